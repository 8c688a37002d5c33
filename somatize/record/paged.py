"""Forwards and their facts by number: all of them at once, or a stretch at a time.

Each stretch is read in a look of its own. So an answer of any length takes little memory, and while somebody reads it
slowly no snapshot is held, which would keep the pages that writers use again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from somatize.facts import Fact
from somatize.store.environment import BadValue
from somatize.store.lines import Line, RunLines, Stored
from somatize.store.opened import Opened
from somatize.store.packing import unpack
from somatize.store.schema import OWN
from somatize.store.view import View, look

from .asked import Place, check_range, first_of, lines_of, opened_at
from .rows import BEFORE, row_of_line, rows_of_block

STRETCH = 8_192
"""How many forwards are read in one look."""
_TOLD_AT_ONCE = 256
"""Of how many forwards the facts are in memory at once, where they are given one after the other."""
Row = dict[str, Any]


def all_rows(opened: Opened, run: str | None, last: int | None, since: int | None) -> list[Row]:
    """What `forwards` gives, from one look."""

    def table(view: View) -> _Table:
        lines = lines_of(view, run)
        return _table(lines, lines.summarised_fields(), first_of(lines, last, since), OWN - 1)

    return _settled(opened, table)


class Pages:
    """The forwards of a run that there were when it was made, or some of them, to be gone through once and again."""

    def __init__(self, store: Place, run: str | None, last: int | None, since: int | None) -> None:
        check_range(last, since)
        self._store = store

        def extent(lines: RunLines) -> tuple[str, int, int, list[str]]:
            return lines.name, first_of(lines, last, since), lines.highest(), lines.summarised_fields()

        with opened_at(store) as opened:
            found = look(opened, lambda view: extent(lines_of(view, run)))
        self.run, self._first, self._highest, self._fields = found

    @property
    def fields(self) -> tuple[str, ...]:
        """What every row of a forward has, in this order."""
        return *BEFORE, *self._fields, "when"

    def __len__(self) -> int:
        return max(0, self._highest + 1 - self._first)

    def rows(self) -> Iterator[list[Row]]:
        """The rows of `forwards`, a stretch at a time."""
        with opened_at(self._store) as opened:
            for first in range(self._first, self._highest + 1, STRETCH):
                yield _settled(opened, partial(self._table, first))

    def facts(self) -> Iterator[list[Fact]]:
        """The facts of these forwards, a stretch at a time."""
        with opened_at(self._store) as opened:
            for first in range(self._first, self._highest + 1, STRETCH):
                found = look(opened, partial(self._told, first))
                yield [fact for _, told in found for fact in told]

    def _table(self, first: int, view: View) -> _Table:
        return _table(lines_of(view, self.run), self._fields, first, self._until(first))

    def _told(self, first: int, view: View) -> list[tuple[int, list[Fact]]]:
        return _facts(lines_of(view, self.run), first, self._until(first))

    def _until(self, first: int) -> int:
        return min(first + STRETCH - 1, self._highest)


def told_in(opened: Opened, run: str, numbers: Sequence[int]) -> Iterator[tuple[int, list[Fact]]]:
    """Each of these forwards, which are in order, with its facts; some hundred of them are read in one look."""
    for start in range(0, len(numbers), _TOLD_AT_ONCE):
        some = numbers[start : start + _TOLD_AT_ONCE]
        told = dict(look(opened, lambda view: _facts(lines_of(view, run), some[0], some[-1])))  # noqa: B023
        yield from ((number, told.get(number, [])) for number in some)


class _Table(NamedTuple):
    """Rows in order, from which number on, and which was the highest there was of the numbers asked for."""

    rows: list[Row]
    first: int
    highest: int
    keys: tuple[str, ...]


def _table(lines: RunLines, fields: Sequence[str], first: int, until: int) -> _Table:
    lines.only(first, until)
    rows: list[Row] = []
    ordered = True
    for block in _blocks(lines, first, until):
        more = _block_rows(lines, block, fields, first)
        while more and more[-1]["forward"] > until:
            del more[-1]
        ordered = ordered and not (rows and more and rows[-1]["forward"] > more[0]["forward"])
        rows += more
    going_on = [_row(line, fields) for line in lines.lines.values() if first <= line.forward <= until]
    if going_on or not ordered:
        rows = sorted(rows + going_on, key=itemgetter("forward"))
    return _Table(rows, first, min(until, lines.highest()), (*BEFORE, *fields, "when"))


def _blocks(lines: RunLines, first: int, until: int) -> Iterator[Stored]:
    return takewhile(lambda block: block.forwards[0] <= until, lines.blocks(first))


def _block_rows(lines: RunLines, block: Stored, fields: Sequence[str], first: int) -> list[Row]:
    found = rows_of_block(lines, block, fields, since=first)
    if found is None:
        return []
    columns = (found.forwards, found.states, found.nodes, found.took_us, *found.said, [us / 1e6 for us in found.whens])
    if len(fields) == 1:  # as most runs are: written out, for it takes a third of the time
        name = fields[0]
        return [
            {"forward": forward, "state": state, "nodes": nodes, "took_us": took, name: said, "when": when}
            for forward, state, nodes, took, said, when in zip(*columns, strict=True)
        ]
    keys = (*BEFORE, *fields, "when")
    return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]


def _row(line: Line, fields: Sequence[str]) -> Row:
    row = dict(zip((*BEFORE, *fields, "when"), row_of_line(line, fields), strict=True))
    row["when"] /= 1e6
    return row


def _settled(opened: Opened, table: Callable[[View], _Table]) -> list[Row]:
    """The rows of a table, with a row for each number that was never written down.

    Several journals are not read at one instant: a number may be missing because it was written after its journal
    was read and a higher one before its own was. So what is missing is looked for once more; what was missing below
    the highest number of the first look is then lost, and what is missing above ends the answer.
    """
    rows, first, highest, _ = look(opened, table)
    if len(rows) == max(0, highest + 1 - first):
        return rows
    rows, first, now, keys = look(opened, table)
    known = {row["forward"] for row in rows}
    missing = [forward for forward in range(first, now + 1) if forward not in known]
    end = next((forward for forward in missing if forward > highest), now + 1)
    shape = dict.fromkeys(keys)
    rows += [{**shape, "forward": forward, "state": "lost", "nodes": 0} for forward in missing]
    return sorted((row for row in rows if row["forward"] < end), key=lambda row: row["forward"])


def _facts(lines: RunLines, first: int, until: int) -> list[tuple[int, list[Fact]]]:
    """Forwards with their facts, by number; damaged ones are named and skipped."""
    lines.only(first, until)
    found = [one for block in _blocks(lines, first, until) for one in lines.block_facts(block, first, until)]
    for forward in (forward for forward in lines.lines if first <= forward <= until):
        try:
            found.append((forward, list(unpack(lines.bodies(forward) or []))))
        except (BadValue, ValueError):
            lines.skip(forward)
    return sorted(found, key=itemgetter(0))

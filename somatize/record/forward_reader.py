"""Forwards of a run read from a store: rows and facts, all at once or page by page.

Each page is read in a snapshot of its own. So an answer of any length takes little memory, and a slow consumer holds no
snapshot, which would keep writers from reusing pages.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from somatize.facts import Fact
from somatize.store import record_format
from somatize.store.lmdb_environment import BadValue
from somatize.store.open_store import Opened, acquire, release
from somatize.store.record_format import OWN, Chunk, unpack
from somatize.store.run_reader import Line, RunLines, Stored, StoreSnapshot, first_of, lines_of, look
from somatize.store.store import Store

Place: TypeAlias = Store | str | os.PathLike[str]
"""A Store, or the path of one that exists."""


@contextmanager
def opened_at(store: Place) -> Iterator[Opened]:
    """Open a store that is given as a Store or by the path of an existing one; the latter is closed after."""
    if isinstance(store, Store):
        yield store.opened
        return
    if not isinstance(store, str | os.PathLike):
        raise TypeError(f"a store is given as a Store or as its path, not as {store!r}")
    opened = acquire(Path(os.path.realpath(store)))
    try:
        yield opened
    finally:
        release(opened)


def check_range(last: int | None, since: int | None) -> None:
    """Raise unless both are None, or whole numbers of zero or more."""
    for name, value in (("last", last), ("since", since)):
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name}= is a whole number, not {value!r}")
        if value < 0:
            raise ValueError(f"{name}= counts from zero; {value} is negative")


BEFORE = ("forward", "state", "nodes", "took_us")
"""The columns that stand before the summarised fields; `when` stands after them."""


class Rows(NamedTuple):
    """Some rows of forwards, column by column; `said` are the summarised fields, `when` is in µs."""

    forwards: Sequence[int]
    states: Sequence[str]
    nodes: Sequence[int]
    took_us: Sequence[int | None]
    said: list[list[Any]]
    whens: Sequence[int]


def rows_of_block(
    lines: RunLines,
    block: Stored,
    fields: Sequence[str],
    said: Callable[[Chunk, str, int], list[Any]] = Chunk.texts,
    since: int = 0,
) -> Rows | None:
    """The rows of a block from forward `since` on, with late facts applied; None, with a warning, if damaged.

    `said` reads a summarised field: as its texts, or with `Chunk.said` as floats where that says the same.
    """
    chunk, start = block.chunk, bisect_left(block.forwards, since)
    try:
        states, nodes, took, whens = (chunk.integers(name)[start:] for name in ("state", "nodes", "took_us", "when"))
        texts = [said(chunk, name, start) if name in chunk else [None] * (chunk.rows - start) for name in fields]
    except BadValue as error:
        lines.damaged(block, error)
        return None
    forwards = block.forwards[start:]
    _put_late(lines, forwards, fields, texts)
    return Rows(
        forwards,
        [record_format.STATES[state] for state in states],
        nodes,
        took if min(took) >= 0 else [us if us >= 0 else None for us in took],
        texts,
        whens,
    )


def _put_late(lines: RunLines, held: Sequence[int], fields: Sequence[str], said: list[list[Any]]) -> None:
    for forward, late in lines.late.items():
        if held[0] <= forward <= held[-1] and forward in held:
            row = held.index(forward)
            for field, text in late.items():
                if field in fields:
                    said[fields.index(field)][row] = text


def row_of_line(line: Line, fields: Sequence[str]) -> tuple[Any, ...]:
    """The row of a forward that is in no block: a tuple in the order of the columns, `when` in µs."""
    took = line.took_us if line.took_us >= 0 else None
    said = (line.texts.get(field) for field in fields)
    return (line.forward, record_format.STATES[line.state], line.nodes, took, *said, line.when)


STRETCH = 8_192
"""The number of forwards read per look."""
_TOLD_AT_ONCE = 256
"""The number of forwards whose facts are in memory at once, where they are given one after the other."""
Row = dict[str, Any]


def all_rows(opened: Opened, run: str | None, last: int | None, since: int | None) -> list[Row]:
    """The rows of `forwards`, from one look."""

    def table(view: StoreSnapshot) -> _Table:
        lines = lines_of(view, run)
        return _table(lines, lines.summarised_fields(), first_of(lines, last, since), OWN - 1)

    return _settled(opened, table)


def rows_between(opened: Opened, run: str, first: int, until: int) -> list[Row]:
    """The rows of the forwards from one number to another, without summarised fields."""
    return _settled(opened, lambda view: _table(lines_of(view, run), (), first, until))


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
        """The fields of every row, in this order."""
        return *BEFORE, *self._fields, "when"

    @property
    def numbers(self) -> range:
        """The numbers of the forwards."""
        return range(self._first, self._highest + 1)

    def __len__(self) -> int:
        return len(self.numbers)

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

    def _table(self, first: int, view: StoreSnapshot) -> _Table:
        return _table(lines_of(view, self.run), self._fields, first, self._until(first))

    def _told(self, first: int, view: StoreSnapshot) -> list[tuple[int, list[Fact]]]:
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
    """Rows in order, the number they start at, and the highest number of the range."""

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


def _settled(opened: Opened, table: Callable[[StoreSnapshot], _Table]) -> list[Row]:
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

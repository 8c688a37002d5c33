"""The rows of forwards, facts and logs, a block of the store at a time and in the order of their readers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

from somatize.facts import KINDS, Fact
from somatize.record.asked import first_of
from somatize.record.rows import BEFORE, row_of_line, rows_of_block
from somatize.record.status_reader import LOG_FIELDS, said_in
from somatize.store import schema
from somatize.store.columns import Chunk
from somatize.store.environment import BadValue
from somatize.store.lines import Line, RunLines
from somatize.store.packing import unpack

from .table import BATCH, Row, Table, Wanted, columns_of
from .text_columns import Kind, Survey

_first = itemgetter(0)


def forwards_table(lines: RunLines, seen: int, last: int | None, since: int | None) -> Table:
    """A row per forward. `seen` is the highest number of an earlier look: what is missing up to it is lost."""
    fields = lines.summarised_fields()
    first = first_of(lines, last, since)

    def rows() -> Iterator[Row]:
        waiting = [row_of_line(line, fields) for line in _open(lines, first)]
        return chain.from_iterable(_whole(_ordered(waiting, _blocks_of_rows(lines, fields, first)), first, seen))

    wanted = [
        Wanted("forward", Kind.WHOLE),
        Wanted("state", Kind.NAME),
        Wanted("nodes", Kind.WHOLE),
        Wanted("took_us", Kind.WHOLE, "us"),
        *(Wanted(name, said=True) for name in fields),
        Wanted("when", Kind.INSTANT),
    ]
    surveys = dict(enumerate(_surveyed(lines, fields, first), start=len(BEFORE)))
    return Table("forwards", lines.name, columns_of(wanted, surveys), rows)


def _surveyed(lines: RunLines, fields: Sequence[str], first: int) -> list[Survey]:
    """What each of the summarised fields holds, from one pass over the blocks."""
    surveys = {field: Survey() for field in fields}
    for block in lines.blocks(first):
        start = bisect_left(block.forwards, first)
        for field, survey in surveys.items():
            try:
                said = block.chunk.said(field) if field in block.chunk else []
            except BadValue:
                continue  # the rows are asked for it again, and say so
            survey.add(value for value in said[start:] if value is not None)
    late = (texts for forward, texts in lines.late.items() if forward >= first)
    for texts in (*late, *(line.texts for line in _open(lines, first))):
        for field, text in texts.items():
            if field in surveys:
                surveys[field].add([text])
    return list(surveys.values())


def _open(lines: RunLines, first: int) -> list[Line]:
    """The forwards that are in no block yet, by number."""
    return [lines.lines[forward] for forward in sorted(lines.lines) if forward >= first]


def _blocks_of_rows(lines: RunLines, fields: Sequence[str], first: int) -> Iterator[list[Row]]:
    for block in lines.blocks(first):
        found = rows_of_block(lines, block, fields, Chunk.said)
        if found is not None:
            columns = (found.forwards, found.states, found.nodes, found.took_us, *found.said, found.whens)
            rows: list[Row] = list(zip(*columns, strict=True))
            yield rows[bisect_left(found.forwards, first) :]


def _ordered(waiting: list[Any], blocks: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """What begins with the number of a forward, by that number, many at a time.

    Blocks come by their first number and overlap where several writers were at work; what another may still precede is
    held back. What is `waiting` already is in order, and has any numbers.
    """
    for some in blocks:
        if waiting and some:
            ready = bisect_left(waiting, some[0][0], key=_first)
            if ready:
                yield waiting[:ready]
            waiting = waiting[ready:]
        waiting = sorted([*waiting, *some], key=_first) if waiting else some
    if waiting:
        yield waiting


def _whole(stretches: Iterable[list[Row]], first: int, seen: int) -> Iterator[list[Row]]:
    """Rows in order, with one for each number that was never written down.

    As readers have it: a number missing below what an earlier look saw is lost, one above it ends the answer.
    """
    following = first
    width = len(BEFORE) + 1
    for rows in stretches:
        width = len(rows[0])
        if rows[-1][0] - following + 1 == len(rows):
            yield rows
            following += len(rows)
            continue
        filled: list[Row] = []
        for row in rows:
            for forward in range(following, row[0]):
                if forward > seen:
                    yield filled
                    return
                filled.append(_lost(forward, width))
            filled.append(row)
            following = row[0] + 1
        yield filled
    if following <= seen:
        yield [_lost(forward, width) for forward in range(following, seen + 1)]


def _lost(forward: int, width: int) -> Row:
    return (forward, schema.STATES[schema.LOST], 0, *[None] * (width - 3))


_SHARED = ("node", "host", "device")
_COUNTS = ("began_us", "took_us", "bytes", "items", "ran", "recalled", "failed")
_UNITS = {"began_us": "us", "took_us": "us", "bytes": "bytes"}


Shape: TypeAlias = tuple[str, tuple[str, ...]]
"""The kind and the keys of a fact."""


def shape_of(fact: Fact) -> Shape:
    """The shape of a fact."""
    return fact.get("fact", ""), tuple(fact)


class _Shapes:
    """Where the values of a fact stand in a row, by its kind and its keys."""

    def __init__(self) -> None:
        self.wanted = [
            Wanted("forward", Kind.WHOLE),
            Wanted("position", Kind.WHOLE),
            Wanted("fact", Kind.NAME),
            *(Wanted(name, Kind.NAME) for name in _SHARED),
            *(Wanted(name, Kind.WHOLE, _UNITS.get(name, ""), said=True) for name in _COUNTS),
            Wanted("why", Kind.TEXT),
        ]
        self._places = {one.name: place for place, one in enumerate(self.wanted)}
        self._known: dict[Shape, list[int]] = {}

    def places(self, fact: Fact) -> list[int]:
        """The places of a fact's values, in the order of its keys."""
        return self.places_of(shape_of(fact))

    def places_of(self, shape: Shape) -> list[int]:
        """The places of the values of a fact of this shape."""
        known = self._known.get(shape)
        if known is None:
            known = self._known[shape] = [self._place(shape[0], name) for name in shape[1]]
        return known

    def _place(self, kind: str, name: str) -> int:
        if name == "fact" or name in _SHARED or (kind in KINDS and name in (*_COUNTS, "why")):
            return self._places[name]
        path = f"{kind}.{name}"
        if path not in self._places:
            self._places[path] = len(self.wanted)
            self.wanted.append(Wanted(path, _WORDS.get(path), said=True))
        return self._places[path]


_WORDS = {
    **dict.fromkeys(("log.level", "log.logger", "task.state", "throughput.stream"), Kind.NAME),
    **dict.fromkeys(("log.message", "log.task", "task.id", "task.name", "task.parent", "task.why"), Kind.TEXT),
    **dict.fromkeys(("task.mark", "machine.id"), Kind.TEXT),
}
"""Fields that are words, even where all that was said looks like a number."""


def facts_table(lines: RunLines, last: int | None, since: int | None) -> Table:
    """A row per fact, those that the run was told outside of any forward first if the whole run is meant.

    A column for each field that the engine tells, and for each other one, named as for a curve: ``loss.value``.
    """
    first = first_of(lines, last, since)
    own = last is None and since is None
    shapes = _Shapes()
    columns = columns_of(shapes.wanted, _survey(shapes, _told(lines, first, own=own)))

    def rows() -> Iterator[Row]:
        blank: list[Any] = [None] * len(shapes.wanted)
        for forward, told in _told(lines, first, own=own):
            for position, fact in enumerate(told):
                row = blank.copy()
                row[0], row[1] = forward, position
                for place, text in zip(shapes.places(fact), fact.values(), strict=True):
                    row[place] = text
                yield row

    return Table("facts", lines.name, columns, rows)


def _survey(shapes: _Shapes, forwards: Iterable[tuple[int | None, list[Fact]]]) -> dict[int, Survey]:
    """What the said columns hold; looked at by the values of many facts of one shape."""
    surveys: dict[int, Survey] = {}
    waiting: dict[Shape, list[Iterable[str]]] = {}
    facts = 0
    for _, told in forwards:
        for fact in told:
            waiting.setdefault(shape_of(fact), []).append(fact.values())
        facts += len(told)
        if facts >= BATCH:
            _settle(shapes, waiting, surveys)
            facts = 0
    _settle(shapes, waiting, surveys)
    return surveys


def _settle(shapes: _Shapes, waiting: dict[Shape, list[Iterable[str]]], surveys: dict[int, Survey]) -> None:
    for shape, values in waiting.items():
        for place, texts in zip(shapes.places_of(shape), zip(*values, strict=True), strict=True):
            wanted = shapes.wanted[place]
            if wanted.said:
                surveys.setdefault(place, Survey(wanted.kind)).add(texts)
    waiting.clear()


def _told(lines: RunLines, first: int, *, own: bool) -> Iterator[tuple[int | None, list[Fact]]]:
    """Each forward with its facts, by number; before them the run itself with its own."""
    blocks = ([(n, told) for n, told in lines.block_facts(block) if n >= first] for block in lines.blocks(first))
    forwards = chain.from_iterable(_ordered(list(_open_facts(lines, first)), blocks))
    return chain([(None, _own(lines))], forwards) if own else forwards


def _own(lines: RunLines) -> list[Fact]:
    return list(unpack(lines.bodies(schema.OWN) or []))


def _open_facts(lines: RunLines, first: int) -> Iterator[tuple[int, list[Fact]]]:
    for line in _open(lines, first):
        try:
            yield line.forward, list(unpack(lines.bodies(line.forward) or []))
        except (BadValue, ValueError):
            lines.skip(line.forward)


def logs_table(lines: RunLines) -> Table:
    """A row per log record."""

    def rows() -> Iterator[Row]:
        return ((forward, *map(fact.get, LOG_FIELDS)) for forward, fact in said_in(lines, "log"))

    names = ("level", "logger", "node", "host")
    wanted = [
        Wanted("forward", Kind.WHOLE),
        *(Wanted(name, Kind.NAME if name in names else Kind.TEXT) for name in LOG_FIELDS),
    ]
    return Table("logs", lines.name, columns_of(wanted, {}), rows)

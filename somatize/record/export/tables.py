"""Tables of a run for exporters: typed columns, and rows read a block at a time."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from somatize.errors import ExportError, nearest
from somatize.facts import KINDS, Fact
from somatize.record import reader, run_info
from somatize.record.forward_reader import BEFORE, Place, check_range, opened_at, row_of_line, rows_of_block
from somatize.record.run_info import LOG_FIELDS, said_in
from somatize.store import record_format
from somatize.store.directory import FORMAT
from somatize.store.lmdb_environment import BadValue
from somatize.store.record_format import Chunk, unpack
from somatize.store.run_reader import Line, RunLines, first_of, lines_of, look
from somatize.utils.notices import held_back, warn_of_record

from .output import ColumnType, Survey, held_by, words_beside

Row = Sequence[Any]
BATCH = 1 << 15
"""Rows that are in memory at once."""


class Wanted(NamedTuple):
    """A column before its rows were looked at; one without a kind gets that of the texts in it.

    The rows of one that is `said` hold texts, whatever its kind.
    """

    name: str
    kind: ColumnType | None = None
    unit: str = ""
    said: bool = False


class Column(NamedTuple):
    """A column: its name, what it holds, its unit if it has one, and where in a row it stands.

    One that is `words` has the texts of its place that the column before it, of that place too, cannot hold.
    """

    name: str
    kind: ColumnType
    unit: str
    place: int
    said: bool = False
    words: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of one kind, and what their columns hold.

    In a row, said values are still the texts that were said, or floats of which those are the `repr`.
    """

    of: str
    run: str | None
    columns: Sequence[Column]
    rows: Callable[[], Iterator[Row]]

    def batches(self, size: int = BATCH) -> Iterator[dict[str, list[Any]]]:
        """The columns of some rows at a time, by name; each value as what its column holds, None where absent."""
        for places in self.raw(size):
            yield self._converted(places)

    def raw(self, size: int = BATCH) -> Iterator[list[Sequence[Any]]]:
        """The places of some rows at a time, said values as in the rows."""
        rows = self.rows()
        while some := list(islice(rows, size)):
            yield list(zip(*some, strict=True))

    def _converted(self, places: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
        made: dict[str, list[Any]] = {}
        values: list[Any] = []
        for column in self.columns:
            held = places[column.place]
            if column.words:
                made[column.name] = words_beside(held, values)
                continue
            values = held_by(column.kind, held) if column.said else list(held)
            made[column.name] = values
        return made

    @property
    def about(self) -> dict[str, str]:
        """Metadata of the table as text: its run, its content, its units, the format of the store."""
        run = {} if self.run is None else {"somatize.run": self.run}
        units = {column.name: column.unit for column in self.columns if column.unit}
        return {
            **run,
            "somatize.table": self.of,
            "somatize.units": json.dumps(units),
            "somatize.store_format": str(FORMAT),
        }


def surveyed(wanted: Sequence[Wanted], rows: Iterable[Row]) -> list[Column]:
    """The columns that rows of these need. Goes through the rows once, some at a time."""
    surveys = {place: Survey(one.kind) for place, one in enumerate(wanted) if one.said or one.kind is None}
    following = iter(rows)
    while surveys and (some := list(islice(following, BATCH))):
        columns = list(zip(*some, strict=True))
        for place, survey in surveys.items():
            survey.add(text for text in columns[place] if text is not None)
    return columns_of(wanted, surveys)


def columns_of(wanted: Sequence[Wanted], surveys: dict[int, Survey]) -> list[Column]:
    """The columns for a field, by its survey; two if one cannot hold all values."""
    taken = {one.name for one in wanted}
    made: list[Column] = []
    for place, one in enumerate(wanted):
        survey = surveys.get(place)
        kind = one.kind or (survey.kind if survey is not None else ColumnType.TEXT)
        made.append(Column(one.name, kind, one.unit, place, said=survey is not None))
        if survey is not None and survey.has_words:
            name = f"{one.name} (text)"
            while name in taken:
                name += " (text)"
            taken.add(name)
            made.append(Column(name, ColumnType.TEXT, "", place, said=True, words=True))
    return made


_first = itemgetter(0)


def forwards_table(lines: RunLines, seen: int, last: int | None, since: int | None) -> Table:
    """A row per forward. `seen` is the highest number of an earlier look: forwards missing up to it are lost."""
    fields = lines.summarised_fields()
    first = first_of(lines, last, since)

    def rows() -> Iterator[Row]:
        waiting = [row_of_line(line, fields) for line in _open(lines, first)]
        return chain.from_iterable(_whole(_ordered(waiting, _blocks_of_rows(lines, fields, first)), first, seen))

    wanted = [
        Wanted("forward", ColumnType.WHOLE),
        Wanted("state", ColumnType.NAME),
        Wanted("nodes", ColumnType.WHOLE),
        Wanted("took_us", ColumnType.WHOLE, "us"),
        *(Wanted(name, said=True) for name in fields),
        Wanted("when", ColumnType.INSTANT),
    ]
    surveys = dict(enumerate(_surveyed(lines, fields, first), start=len(BEFORE)))
    return Table("forwards", lines.name, columns_of(wanted, surveys), rows)


def _surveyed(lines: RunLines, fields: Sequence[str], first: int) -> list[Survey]:
    """The type of each summarised field, from one pass over the blocks."""
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
    """Items sorted by forward number, many at a time.

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
    return (forward, record_format.STATES[record_format.LOST], 0, *[None] * (width - 3))


_SHARED = ("node", "host", "device")
_COUNTS = ("began_us", "took_us", "bytes", "items", "ran", "recalled", "failed")
_UNITS = {"began_us": "us", "took_us": "us", "bytes": "bytes"}


Shape: TypeAlias = tuple[str, tuple[str, ...]]
"""The kind and the keys of a fact."""


def shape_of(fact: Fact) -> Shape:
    """The shape of a fact."""
    return fact.get("fact", ""), tuple(fact)


class _Shapes:
    """The columns of a fact's values, by its kind and keys."""

    def __init__(self) -> None:
        self.wanted = [
            Wanted("forward", ColumnType.WHOLE),
            Wanted("position", ColumnType.WHOLE),
            Wanted("fact", ColumnType.NAME),
            *(Wanted(name, ColumnType.NAME) for name in _SHARED),
            *(Wanted(name, ColumnType.WHOLE, _UNITS.get(name, ""), said=True) for name in _COUNTS),
            Wanted("why", ColumnType.TEXT),
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
    **dict.fromkeys(("log.level", "log.logger", "task.state", "throughput.stream"), ColumnType.NAME),
    **dict.fromkeys(("log.message", "log.task", "task.id", "task.name", "task.parent", "task.why"), ColumnType.TEXT),
    **dict.fromkeys(("task.mark", "machine.id"), ColumnType.TEXT),
}
"""Fields that are words, even where all that was said looks like a number."""


def facts_table(lines: RunLines, last: int | None, since: int | None) -> Table:
    """A row per fact; facts of the run itself come first if the whole run is exported.

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
    """The types of the said columns, from the values of many facts of one shape."""
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
    return list(unpack(lines.bodies(record_format.OWN) or []))


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
        Wanted("forward", ColumnType.WHOLE),
        *(Wanted(name, ColumnType.NAME if name in names else ColumnType.TEXT) for name in LOG_FIELDS),
    ]
    return Table("logs", lines.name, columns_of(wanted, {}), rows)


T = TypeVar("T")


class TableQuery(NamedTuple):
    """The arguments of an exporter."""

    store: Place
    run: str | None
    of: str
    last: int | None
    since: int | None


def read(asked: TableQuery, write: Callable[[Table], T]) -> tuple[T, tuple[str, ...]]:
    """Call `write` with a table and return its result, with warnings about what could not be read.

    `write` may be called again where the store is read without locks. Raises `ExportError`, before anything is read,
    for a table there is not or a stretch that it cannot be asked for.
    """
    _check(asked)
    with held_back() as sentences:
        made = _STREAMED[asked.of](asked, write) if asked.of in _STREAMED else write(_LISTED[asked.of](asked))
    left_out = tuple(dict.fromkeys(sentences))
    for sentence in left_out:
        warn_of_record(sentence)
    return made, left_out


def _check(asked: TableQuery) -> None:
    check_range(asked.last, asked.since)
    if asked.of not in TABLES:
        raise ExportError(f"there is no table of {asked.of!r}{nearest(str(asked.of), list(TABLES))}; {_there_are()}")
    if asked.of == "runs" and asked.run is not None:
        raise ExportError(f"the table of runs is of a whole store, not of the run {asked.run!r}; give None")
    if asked.since is not None and asked.of not in ("forwards", "facts"):
        raise ExportError(f"a table of {asked.of} cannot be asked for with since=; of forwards and facts it can")
    if asked.last is not None and asked.of not in ("forwards", "facts", "nodes"):
        raise ExportError(f"a table of {asked.of} cannot be asked for with last=; of forwards, facts and nodes it can")


def _there_are() -> str:
    return f"there are {', '.join(TABLES[:-1])} and {TABLES[-1]}"


def _forwards(asked: TableQuery, write: Callable[[Table], T]) -> T:
    with opened_at(asked.store) as opened:
        # Journals are not read at one instant; `reader.forwards` says why there are two looks.
        seen = look(opened, lambda view: lines_of(view, asked.run).highest())
        return look(
            opened, lambda view: write(forwards_table(lines_of(view, asked.run), seen, asked.last, asked.since))
        )


def _looked(asked: TableQuery, table: Callable[[RunLines], Table], write: Callable[[Table], T]) -> T:
    with opened_at(asked.store) as opened:
        return look(opened, lambda view: write(table(lines_of(view, asked.run))))


def _facts(asked: TableQuery, write: Callable[[Table], T]) -> T:
    return _looked(asked, lambda lines: facts_table(lines, asked.last, asked.since), write)


def _logs(asked: TableQuery, write: Callable[[Table], T]) -> T:
    return _looked(asked, logs_table, write)


def _nodes(asked: TableQuery) -> Table:
    counts = [Wanted(name, ColumnType.WHOLE) for name in ("ran", "recalled", "failed")]
    wanted = [Wanted("node", ColumnType.NAME), *counts, Wanted("took_us", ColumnType.WHOLE, "us")]
    wanted += [
        Wanted("hosts", ColumnType.NAMES),
        Wanted("devices", ColumnType.NAMES),
        Wanted("mean_us", ColumnType.NUMBER, "us"),
    ]
    return _listed(asked, wanted, reader.nodes(asked.store, asked.run, asked.last))


def _tasks(asked: TableQuery) -> Table:
    wanted = [
        Wanted("forward", ColumnType.WHOLE),
        Wanted("name", ColumnType.TEXT),
        Wanted("state", ColumnType.NAME),
        Wanted("took_us", ColumnType.WHOLE, "us", said=True),
        Wanted("done", said=True),
        Wanted("total", said=True),
        Wanted("parent", ColumnType.TEXT),
        Wanted("node", ColumnType.NAME),
        Wanted("host", ColumnType.NAME),
        Wanted("why", ColumnType.TEXT),
        Wanted("mark", ColumnType.TEXT),
    ]
    return _listed(asked, wanted, run_info.tasks(asked.store, asked.run))


def _throughput(asked: TableQuery) -> Table:
    rates = ("samples_per_s", "batches_per_s", "flops_per_s", "waiting")
    wanted = [
        Wanted("forward", ColumnType.WHOLE),
        Wanted("stream", ColumnType.NAME),
        Wanted("samples", ColumnType.WHOLE, said=True),
        Wanted("batches", ColumnType.WHOLE, said=True),
        *(Wanted(name, ColumnType.NUMBER, said=True) for name in rates),
        Wanted("flops_exact", ColumnType.TRUTH),
    ]
    return _listed(asked, wanted, run_info.throughput(asked.store, asked.run))


def _runs(asked: TableQuery) -> Table:
    counts = [Wanted(name, ColumnType.WHOLE) for name in ("forwards", "broke", "interrupted", "lost")]
    wanted = [Wanted("run", ColumnType.TEXT), *counts, Wanted("took_us", ColumnType.WHOLE, "us")]
    wanted += [Wanted("first", ColumnType.INSTANT), Wanted("last", ColumnType.INSTANT)]
    return _listed(asked, wanted, reader.runs(asked.store))


def _listed(asked: TableQuery, wanted: Sequence[Wanted], rows: Sequence[dict[str, Any]]) -> Table:
    """The table of rows that a reader gave."""
    made = [tuple(_value(one, row[one.name]) for one in wanted) for row in rows]
    run = None if asked.of == "runs" else _name_of(asked)
    return Table(asked.of, run, surveyed(wanted, made), lambda: iter(made))


def _name_of(asked: TableQuery) -> str:
    with opened_at(asked.store) as opened:
        return look(opened, lambda view: lines_of(view, asked.run).name)


def _value(one: Wanted, value: Any) -> Any:
    if value is None:
        return None
    if one.kind is ColumnType.INSTANT:
        return round(value * 1e6)
    return repr(value) if one.said else value


_STREAMED: dict[str, Callable[[TableQuery, Callable[[Table], Any]], Any]] = {
    "forwards": _forwards,
    "facts": _facts,
    "logs": _logs,
}
_LISTED: dict[str, Callable[[TableQuery], Table]] = {
    "nodes": _nodes,
    "tasks": _tasks,
    "throughput": _throughput,
    "runs": _runs,
}
TABLES = (*_STREAMED, *_LISTED)
"""The names of the tables."""

"""Tables of a run as Arrow tables, Parquet files, CSV files and pandas frames, with typed columns.

The record is read once. Each batch of rows goes to a temporary file, said texts as the values they are; only then are
the types of the columns known, and the batches are read back. A column of numbers with texts among them becomes two:
one of the numbers, and beside it ``loss.value (text)`` with the texts.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgpack

from somatize.codecs.arrow import parquet, pyarrow
from somatize.codecs.pandas_frames import pandas
from somatize.errors import ExportError, nearest
from somatize.facts import KINDS, Fact
from somatize.figures.theme import counted
from somatize.record import reader, run_info, run_query
from somatize.record.forward_reader import BEFORE, Pages, Place, check_range, opened_at, told_in
from somatize.record.run_info import LOG_FIELDS
from somatize.store.directory import FORMAT
from somatize.store.record_format import OWN, unpack
from somatize.store.run_reader import RunLines, lines_of, look
from somatize.utils.atomic_files import checked_path, write_atomically
from somatize.utils.notices import held_back, warn_of_record

from .output import Exported, Value, microseconds, run_name, values_of

if TYPE_CHECKING:
    from somatize.codecs.arrow import Table as ArrowTable
    from somatize.codecs.pandas_frames import DataFrame

BATCH = 1 << 16
"""The most rows that are in memory at once."""
_CELLS = 1 << 24
"""The most cells that are in memory at once: batches of wide tables have fewer rows."""
_IN_MEMORY = 1 << 24
"""Bytes of batches above which they are written to a temporary file."""
_EXACT = 2**53
"""Up to this every integer is a float64."""


class ColumnType(Enum):
    """The type of a column; each type allows missing values."""

    WHOLE = "int64"
    NUMBER = "float64"
    TRUTH = "bool"
    TEXT = "text"
    NAME = "name"
    """A text with few different values: a node, a host, a level."""
    INSTANT = "instant"
    """Microseconds since 1970, UTC."""
    NAMES = "names"
    """A list of texts."""


_TEXTS = (ColumnType.TEXT, ColumnType.NAME)


class Field(NamedTuple):
    """A field of the rows; without a kind its column has the type that fits most of its values.

    The values of a `said` field are texts in the record, and may not fit its kind.
    """

    name: str
    kind: ColumnType | None = None
    unit: str = ""
    said: bool = False


class Column(NamedTuple):
    """A column: the values of `field` that fit its kind, or, if it is `words`, the texts of the others."""

    name: str
    kind: ColumnType
    field: Field
    words: bool = False

    @property
    def metadata(self) -> dict[str, str]:
        """Its unit, if it has one."""
        return {"unit": self.field.unit} if self.field.unit and not self.words else {}


class ValueCounts:
    """Counts of the types of a field's values, which decide the type of its column."""

    def __init__(self, declared: ColumnType | None = None) -> None:
        self.declared = declared
        self._types: Counter[type] = Counter()
        self._inexact = 0

    def add(self, values: Sequence[Value]) -> None:
        """Count some more values."""
        found = Counter(map(type, values))
        self._types.update(found)
        if found[int]:
            self._inexact += sum(type(value) is int and not -_EXACT <= value <= _EXACT for value in values)

    @property
    def kind(self) -> ColumnType:
        """The type of the column: text if less than half of the values are numbers."""
        if self.declared is not None:
            return self.declared
        wholes, floats, every = self._types[int], self._types[float], self._types.total()
        if every and self._types[bool] == every:
            return ColumnType.TRUTH
        if 2 * (wholes + floats) < every:
            return ColumnType.TEXT
        return ColumnType.WHOLE if wholes and not floats else ColumnType.NUMBER

    @property
    def has_words(self) -> bool:
        """True if there are values that the type cannot hold."""
        others = self._types.total() - self._types[int]
        if self.kind is ColumnType.WHOLE:
            return bool(others)
        return self.kind is ColumnType.NUMBER and bool(others - self._types[float] + self._inexact)


def held_by(kind: ColumnType, values: Sequence[Value | None]) -> list[Any]:
    """Each value as one of the type; None where it is absent or does not fit."""
    if kind is ColumnType.NUMBER:
        if set(map(type, values)) == {float}:
            return list(values)
        exact = (float(one) if type(one) is int and abs(one) <= _EXACT else one for one in values)
        return [one if type(one) is float else None for one in exact]
    if kind in _TEXTS:
        return [None if one is None else str(one) for one in values]
    wanted = int if kind is ColumnType.WHOLE else bool
    return [one if type(one) is wanted else None for one in values]


def words_beside(values: Sequence[Value | None], held: Sequence[Any]) -> list[str | None]:
    """The texts of the values that `held` could not hold."""
    return [str(one) if fits is None and one is not None else None for one, fits in zip(values, held, strict=True)]


Cells: TypeAlias = tuple[Sequence[int] | None, Sequence[Any]]
"""The rows of a batch in which a field has a value (None means all), and these values."""
ABSENT: Cells = (), ()


class Table:
    """Rows of one kind, in memory or, if there are many, in a temporary file in `folder`."""

    def __init__(self, of: str, fields: Iterable[Field], folder: Path | None) -> None:
        self.of = of
        self.run: str | None = None
        self.rows = 0
        self.fields = {field.name: field for field in fields}
        self._counts: dict[str, ValueCounts] = {}
        self._file = SpooledTemporaryFile(_IN_MEMORY, dir=None if folder is None else str(folder))  # noqa: SIM115

    def close(self) -> None:
        """Delete the rows."""
        self._file.close()

    @property
    def batch(self) -> int:
        """The number of rows of a batch."""
        return max(1, min(BATCH, _CELLS // len(self.fields)))

    def add(self, rows: int, columns: Mapping[str, Cells]) -> None:
        """Add a batch of so many rows; a field that has no cells in it is absent."""
        kept: dict[str, tuple[bytes | None, Sequence[Any]]] = {}
        for name, (places, said) in columns.items():
            field = self.fields[name]
            values = values_of(list(said)) if field.said and field.kind not in _TEXTS else said
            if field.said:
                self._counts.setdefault(name, ValueCounts(field.kind)).add(values)
            kept[name] = None if places is None else array("I", places).tobytes(), values
        self._file.write(msgpack.packb((rows, kept), unicode_errors="surrogatepass"))
        self.rows += rows

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of a reader."""
        following = iter(rows)
        while some := list(islice(following, self.batch)):
            self.add(len(some), {field.name: _cells(field, some) for field in self.fields.values()})

    def columns(self) -> list[Column]:
        """The columns that hold all values."""
        made, taken = [], set(self.fields)
        for name, field in self.fields.items():
            counts = self._counts.get(name, ValueCounts(field.kind))
            made.append(Column(name, counts.kind if field.said else field.kind or ColumnType.TEXT, field))
            if counts.has_words:
                beside = f"{name} (text)"
                while beside in taken:
                    beside += " (text)"
                taken.add(beside)
                made.append(Column(beside, ColumnType.TEXT, field, words=True))
        return made

    def raw(self) -> Iterator[tuple[int, dict[str, Cells]]]:
        """The batches as they were added, said texts as `value_of` has them."""
        self._file.seek(0)
        for rows, kept in msgpack.Unpacker(self._file, max_buffer_size=0, unicode_errors="surrogatepass"):
            yield rows, {name: (places and array("I", places), values) for name, (places, values) in kept.items()}

    def batches(self) -> Iterator[dict[str, list[Any]]]:
        """The batches by name of column; each value as one of the column's type, None where absent."""
        columns = self.columns()
        for rows, cells in self.raw():
            made: dict[str, list[Any]] = {}
            values: Sequence[Any] = ()
            held: list[Any] = []
            for name, kind, field, words in columns:
                if words:
                    made[name] = words_beside(values, held)
                    continue
                values = spread(rows, *cells.get(field.name, ABSENT))
                made[name] = held = held_by(kind, values) if field.said else list(values)
            yield made

    @property
    def about(self) -> dict[str, str]:
        """Metadata of the table as text: its run, its content, its units, the format of the store."""
        run = {} if self.run is None else {"somatize.run": self.run}
        units = {column.name: column.field.unit for column in self.columns() if column.metadata}
        return {
            **run,
            "somatize.table": self.of,
            "somatize.units": json.dumps(units),
            "somatize.store_format": str(FORMAT),
        }


def spread(rows: int, places: Sequence[int] | None, values: Sequence[Any], absent: Any = None) -> Sequence[Any]:
    """A value for each row of a batch."""
    if places is None:
        return values
    made = [absent] * rows
    for place, value in zip(places, values, strict=True):
        made[place] = value
    return made


def _cells(field: Field, rows: Sequence[Mapping[str, Any]]) -> Cells:
    values = [row[field.name] for row in rows]
    if field.kind is ColumnType.INSTANT:
        values = [microseconds(value) for value in values]
    if not field.said:
        return None, values
    texts = [value if isinstance(value, str) else repr(value) for value in values if value is not None]
    return (None if len(texts) == len(rows) else _present(values)), texts


def _present(values: Sequence[Any]) -> array[int]:
    return array("I", (place for place, value in enumerate(values) if value is not None))


class TableQuery(NamedTuple):
    """The arguments of an exporter."""

    store: Place
    run: str | None
    of: str
    last: int | None
    since: int | None


@contextmanager
def read(asked: TableQuery, folder: Path | None = None) -> Iterator[tuple[Table, tuple[str, ...]]]:
    """A table, and warnings about what could not be read; rows that memory should not hold lie in `folder`.

    Raises `ExportError`, before anything is read, for a table that does not exist or cannot be limited as asked.
    """
    _check(asked)
    schema, fill = _TABLES[asked.of]
    with closing(Table(asked.of, _fields(schema), folder)) as table:
        with held_back() as sentences:
            fill(asked, table)
        left_out = tuple(dict.fromkeys(sentences))
        for sentence in left_out:
            warn_of_record(sentence)
        yield table, left_out


def _check(asked: TableQuery) -> None:
    check_range(asked.last, asked.since)
    if asked.of not in TABLES:
        there_are = f"there are {', '.join(TABLES[:-1])} and {TABLES[-1]}"
        raise ExportError(f"there is no table of {asked.of!r}{nearest(str(asked.of), list(TABLES))}; {there_are}")
    if asked.of == "runs" and asked.run is not None:
        raise ExportError(f"the table of runs is of a whole store, not of the run {asked.run!r}; give None")
    if asked.since is not None and asked.of not in ("forwards", "facts"):
        raise ExportError(f"a table of {asked.of} cannot be asked for with since=; of forwards and facts it can")
    if asked.last is not None and asked.of not in ("forwards", "facts", "nodes"):
        raise ExportError(f"a table of {asked.of} cannot be asked for with last=; of forwards, facts and nodes it can")


def _forwards(asked: TableQuery, table: Table) -> None:
    pages = Pages(asked.store, asked.run, asked.last, asked.since)
    table.run = pages.run
    when = table.fields.pop("when")
    table.fields.update({name: Field(name, said=True) for name in pages.fields[len(BEFORE) : -1]}, when=when)
    table.add_rows(chain.from_iterable(pages.rows()))


_SHARED = ("node", "host", "device")
_COUNTS = ("began_us", "took_us", "bytes", "items", "ran", "recalled", "failed")
_WORDS = {
    **dict.fromkeys(("log.level", "log.logger", "task.state", "throughput.stream"), ColumnType.NAME),
    **dict.fromkeys(("log.message", "log.task", "task.id", "task.name", "task.parent", "task.why"), ColumnType.TEXT),
    **dict.fromkeys(("task.mark", "machine.id"), ColumnType.TEXT),
}
"""Fields that are text even if every value looks like a number."""


def _facts(asked: TableQuery, table: Table) -> None:
    """Add a row per fact, those of the run itself first if no stretch is asked for.

    There is a column for each field that the engine writes, and one for each other field, named as in a curve:
    ``loss.value``.
    """
    pages = Pages(asked.store, asked.run, asked.last, asked.since)
    table.run = pages.run
    batch = _FactBatch()
    for forward, told in _told(asked, pages):
        batch.add(forward, told)
        if len(batch.forwards) >= table.batch:
            batch.move_to(table)
            batch = _FactBatch()
    batch.move_to(table)


def _told(asked: TableQuery, pages: Pages) -> Iterator[tuple[int | None, Sequence[Fact]]]:
    """The facts of the run itself, unless a stretch is asked for, then each forward with its facts."""
    with opened_at(asked.store) as opened:
        if asked.last is None and asked.since is None:
            yield None, look(opened, lambda view: _own(lines_of(view, pages.run)))
        yield from told_in(opened, pages.run, pages.numbers)


def _own(lines: RunLines) -> list[Fact]:
    return list(unpack(lines.bodies(OWN) or []))


class _FactBatch:
    """Facts by shape, their kind and keys: the values of those that are alike are moved to columns together."""

    def __init__(self) -> None:
        self.forwards: list[int | None] = []
        self._positions: list[int] = []
        self._alike: dict[tuple[str, ...], tuple[list[int], list[Iterable[str]]]] = {}

    def add(self, forward: int | None, told: Sequence[Fact]) -> None:
        """Add the facts of a forward."""
        row = len(self.forwards)
        for fact in told:
            shape = fact.get("fact", ""), *fact
            found = self._alike.get(shape)
            if found is None:
                found = self._alike[shape] = [], []
            found[0].append(row)
            found[1].append(fact.values())
            row += 1
        self.forwards += [forward] * len(told)
        self._positions += range(len(told))

    def move_to(self, table: Table) -> None:
        """Add the rows to the table, and a field for each that it has not yet."""
        columns: dict[str, tuple[array[int], list[str]]] = {}
        for (kind, *keys), (places, values) in self._alike.items():
            for key, texts in zip(keys, zip(*values, strict=True), strict=True):
                name = key if key == "fact" or key in _SHARED else f"{kind}.{key}"
                if kind in KINDS and key in (*_COUNTS, "why"):
                    name = key
                table.fields.setdefault(name, Field(name, _WORDS.get(name), said=True))
                where, said = columns.setdefault(name, (array("I"), []))
                where.extend(places)
                said.extend(texts)
        if self.forwards:
            rows: dict[str, Cells] = {"forward": (None, self.forwards), "position": (None, self._positions)}
            table.add(len(self.forwards), {**rows, **columns})


def _logs(asked: TableQuery, table: Table) -> None:
    pages = Pages(asked.store, asked.run, None, None)
    table.run = pages.run
    table.add_rows(
        {"forward": forward, **{name: fact.get(name) for name in LOG_FIELDS}}
        for forward, told in _told(asked, pages)
        for fact in told
        if fact.get("fact") == "log"
    )


def _listed(rows: Callable[[TableQuery], Iterable[Mapping[str, Any]]]) -> Callable[[TableQuery, Table], None]:
    """Fills a table with the rows that a reader gives."""

    def fill(asked: TableQuery, table: Table) -> None:
        table.add_rows(rows(asked))
        table.run = None if asked.of == "runs" else run_name(asked.store, asked.run)

    return fill


def _runs(asked: TableQuery, table: Table) -> None:
    """Add a row per run, with a column for each number and each key of a configuration."""
    rows = run_query.runs(asked.store, config=["*"])
    others = dict.fromkeys(name for row in rows for name in row if name not in table.fields)
    table.fields.update({name: Field(name, said=True) for name in others})
    table.add_rows({**row, **{name: _plain(row.get(name)) for name in others}} for row in rows)


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _fields(schema: str) -> list[Field]:
    """Fields as ``name:type``; with ``?`` their values are texts in the record, which may not fit."""
    made = []
    for name, kind in (column.split(":") for column in schema.split()):
        unit = "us" if name.endswith("_us") else "bytes" if name == "bytes" else ""
        of = kind.rstrip("?")
        made.append(Field(name, ColumnType(of) if of else None, unit, said=kind.endswith("?")))
    return made


_TABLES: dict[str, tuple[str, Callable[[TableQuery, Table], None]]] = {
    "forwards": ("forward:int64 state:name nodes:int64 took_us:int64 when:instant", _forwards),
    "facts": (
        """forward:int64 position:int64 fact:name node:name host:name device:name began_us:int64? took_us:int64?
        bytes:int64? items:int64? ran:int64? recalled:int64? failed:int64? why:text""",
        _facts,
    ),
    "logs": ("forward:int64 level:name logger:name message:text task:text node:name host:name", _logs),
    "nodes": (
        "node:name ran:int64 recalled:int64 failed:int64 took_us:int64 hosts:names devices:names mean_us:float64",
        _listed(lambda asked: reader.nodes(asked.store, asked.run, asked.last)),
    ),
    "tasks": (
        """forward:int64 name:text state:name took_us:int64? done:? total:? parent:text node:name host:name why:text
        mark:text""",
        _listed(lambda asked: run_info.tasks(asked.store, asked.run)),
    ),
    "throughput": (
        """forward:int64 stream:name samples:int64? batches:int64? samples_per_s:float64? batches_per_s:float64?
        flops_per_s:float64? waiting:float64? flops_exact:bool""",
        _listed(lambda asked: run_info.throughput(asked.store, asked.run)),
    ),
    "runs": (
        """run:text forwards:int64 broke:int64 interrupted:int64 lost:int64 took_us:int64 first:instant last:instant
        state:name why:text ended:instant launches:int64 tags:names note:text""",
        _runs,
    ),
}
TABLES = tuple(_TABLES)
"""The names of the tables."""


# -- formats


def to_arrow(
    store: Place,
    run: str | None = None,
    of: str = "forwards",
    *,
    last: int | None = None,
    since: int | None = None,
) -> ArrowTable:
    """A table of a run as an Arrow table, from which polars and DuckDB take it without a copy.

    `of` is forwards, facts, nodes, logs, tasks or throughput, or runs of a store. Counts and durations are int64, with
    ``unit`` in the field's metadata; instants are timestamps in UTC; states, nodes and hosts are dictionaries. A column
    of recorded values is int64, float64 or bool if that loses nothing; texts among numbers are in a second column,
    ``loss.value (text)``. An absent value is null; a recorded ``nan`` is not. The schema's metadata names the run, and
    ``somatize.left_out`` in it is a JSON list of what could not be read.

    Reads what the reader of that name reads, once. Raises `ExtraMissing`, `ExportError`, `UnknownRun` and `WhichRun`.
    """
    pa = pyarrow()
    with read(TableQuery(store, run, of, last, since)) as (table, left_out):
        schema = _schema(pa, table)
        made = pa.Table.from_batches(_batches(pa, table, schema), schema).unify_dictionaries()
    listed = {"somatize.left_out": json.dumps(left_out, ensure_ascii=False)}
    return made.replace_schema_metadata({**made.schema.metadata, **_encoded(listed)})


def to_parquet(
    store: Place,
    run: str | None,
    path: str | os.PathLike[str],
    of: str = "forwards",
    *,
    last: int | None = None,
    since: int | None = None,
) -> Exported:
    """Write a table of a run as a Parquet file, 65,536 rows at a time; columns and metadata are those of `to_arrow`.

    Memory holds one such group, however long the run is; a group of a table with hundreds of columns has fewer rows.
    A temporary file beside `path` holds the rows until all are read. The file is replaced atomically: if this raises,
    what was at `path` stays. Reads and raises as `to_arrow` does.
    """
    pa, place = pyarrow(), checked_path(path)

    def write(beside: Path) -> None:
        schema = _schema(pa, table)
        with parquet().ParquetWriter(beside, schema) as writer:
            for batch in _batches(pa, table, schema):
                writer.write_batch(batch)

    with read(TableQuery(store, run, of, last, since), place.parent) as (table, left_out):
        write_atomically(place, write)
    return Exported(place, {of: table.rows}, left_out)


def _batches(pa: Any, table: Table, schema: Any) -> Iterator[Any]:
    for columns in table.batches():
        arrays = [pa.array(columns[field.name], field.type, from_pandas=False) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _schema(pa: Any, table: Table) -> Any:
    fields = [
        pa.field(column.name, _TYPES[column.kind](pa), metadata=_encoded(column.metadata)) for column in table.columns()
    ]
    return pa.schema(fields, _encoded(table.about))


def _encoded(words: Mapping[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): text.encode() for name, text in words.items()}


_TYPES: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.WHOLE: lambda pa: pa.int64(),
    ColumnType.NUMBER: lambda pa: pa.float64(),
    ColumnType.TRUTH: lambda pa: pa.bool_(),
    ColumnType.TEXT: lambda pa: pa.string(),
    ColumnType.NAME: lambda pa: pa.dictionary(pa.int32(), pa.string()),
    ColumnType.INSTANT: lambda pa: pa.timestamp("us", "UTC"),
    ColumnType.NAMES: lambda pa: pa.list_(pa.string()),
}


_QUOTED = re.compile(r'[",\r\n]|^$|^\s|\s$')
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001


def to_csv(
    store: Place,
    run: str | None,
    path: str | os.PathLike[str],
    of: str = "forwards",
    *,
    last: int | None = None,
    since: int | None = None,
) -> Exported:
    """Write a table of a run as CSV: `of` is forwards, facts, nodes, logs, tasks or throughput, or runs of a store.

    UTF-8 with a header line, as in RFC 4180, except that lines end with a newline alone. Recorded values are the very
    texts of the record, also ``nan`` and 9007199254740993; durations are microseconds, instants ISO 8601 in UTC, lists
    JSON. An absent value is nothing between commas, an empty text is ``""``. Reads what the reader of that name reads,
    once, with 65,536 rows in memory; a temporary file beside `path` holds the others until all are read. The file is
    replaced atomically: if this raises, what was at `path` stays.

    Raises `ExportError`, `UnknownRun` and `WhichRun`.
    """
    place = checked_path(path)
    with read(TableQuery(store, run, of, last, since), place.parent) as (table, left_out):
        empty = write_atomically(place, lambda beside: _write(table, beside))
    if empty:
        texts = counted(empty, "empty text")
        left_out += (f'{texts} written as "", which some readers (Python\'s csv, pandas) take for absent',)
    return Exported(place, {of: table.rows}, left_out)


def _write(table: Table, path: Path) -> int:
    """Write the file, and return how many texts are empty: Python's csv would write these as absent ones."""
    columns = [column for column in table.columns() if not column.words]
    empty = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(_quoted(column.name) for column in columns) + "\n")
        for rows, cells in table.raw():
            written = []
            for column in columns:
                places, values = cells.get(column.name, ABSENT)
                shown = list(map(_SHOWN.get(column.kind) or _shown(values), values))
                empty += shown.count('""')
                written.append(spread(rows, places, shown, ""))
            file.writelines(",".join(line) + "\n" for line in zip(*written, strict=True))
    return empty


def _shown(values: Sequence[Any]) -> Callable[[Any], str]:
    return str if set(map(type, values)) <= {int, float, bool} else _text


def _text(value: Any) -> str:
    return _quoted(str(value)) if value is not None else ""


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _instant(us: int | None) -> str:
    return "" if us is None else (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds") + "Z"


_SHOWN: dict[ColumnType, Callable[[Any], str]] = {
    ColumnType.INSTANT: _instant,
    ColumnType.NAMES: lambda names: _quoted(json.dumps(list(names), ensure_ascii=False)),
}


def to_pandas(
    store: Place,
    run: str | None = None,
    of: str = "forwards",
    *,
    last: int | None = None,
    since: int | None = None,
) -> DataFrame:
    """A table of a run as a DataFrame: `of` is forwards, facts, nodes, logs, tasks or throughput, or runs of a store.

    Dtypes do not depend on which values are missing: counts and durations (microseconds) are ``Int64``, instants are
    ``datetime64[us, UTC]``, states, nodes and hosts categories. A column of recorded values is ``Int64``, ``Float64``
    or ``boolean`` if that loses nothing, else ``string``; texts among numbers are in a second column,
    ``loss.value (text)``. An absent value is missing, a recorded ``nan`` is not; ``.astype(float)`` makes both NaN.
    ``frame.attrs`` is the metadata of `to_arrow`: ``somatize.run``, ``somatize.units`` and, as JSON, the list of what
    could not be read, ``somatize.left_out``.

    Reads what the reader of that name reads, once. Raises `ExtraMissing`, `ExportError`, `UnknownRun` and `WhichRun`.
    """
    pd = pandas()
    with read(TableQuery(store, run, of, last, since)) as (table, left_out):
        kinds = {column.name: column.kind for column in table.columns()}
        parts: dict[str, list[Any]] = {name: [] for name in kinds}
        for batch in table.batches():
            for name, values in batch.items():
                parts[name].append(_array_of(pd, kinds[name], values))
    frame = pd.DataFrame({name: _joined(pd, some or [_array_of(pd, kinds[name], [])]) for name, some in parts.items()})
    frame.attrs = {**table.about, "somatize.left_out": json.dumps(left_out, ensure_ascii=False)}
    return frame


def _joined(pd: Any, parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if parts[0].dtype == "category":
        return pd.api.types.union_categoricals(parts)
    return pd.concat(map(pd.Series, parts), ignore_index=True)


def _array_of(pd: Any, kind: ColumnType, values: list[Any]) -> Any:
    if kind is ColumnType.NUMBER:  # pandas' constructors would take a recorded NaN for an absent value
        absent = pd.Series([value is None for value in values], dtype="bool").to_numpy()
        numbers = pd.Series([1.0 if value is None else value for value in values], dtype="float64").to_numpy()
        return pd.arrays.FloatingArray(numbers, absent)
    if kind is ColumnType.INSTANT:  # the least int64 is pandas' NaT; floats would round
        us = pd.array(values, dtype="Int64").to_numpy("int64", na_value=-(2**63))
        return pd.Series(us.view("datetime64[us]")).dt.tz_localize("UTC")
    if kind is ColumnType.NAME:
        known = [name for name in dict.fromkeys(values) if name is not None]
        return pd.Categorical(values, pd.Index(known, dtype=pd.StringDtype("python")))
    if kind is ColumnType.NAMES:
        return pd.Series(values, dtype="object")
    return pd.array(values, dtype=_DTYPES.get(kind) or pd.StringDtype("python"))  # pyarrow is another extra


_DTYPES = {ColumnType.WHOLE: "Int64", ColumnType.TRUTH: "boolean"}

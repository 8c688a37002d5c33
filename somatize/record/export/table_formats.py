"""Tables of a run as Arrow tables, Parquet files, CSV files and pandas frames."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from somatize.codecs.arrow import parquet, pyarrow
from somatize.codecs.pandas_frames import pandas
from somatize.figures.theme import counted
from somatize.record.forward_reader import Place
from somatize.utils.atomic_files import checked_path, write_atomically

from .output import Exported
from .tables import ABSENT, ColumnType, Table, TableQuery, read, spread

if TYPE_CHECKING:
    from somatize.codecs.arrow import Table as ArrowTable
    from somatize.codecs.pandas_frames import DataFrame


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

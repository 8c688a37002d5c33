"""Tables as Arrow, Parquet, CSV and pandas."""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from somatize.codecs.arrow import parquet, pyarrow
from somatize.codecs.pandas_frames import pandas
from somatize.figures.theme import counted
from somatize.record.forward_reader import Place

from .output import ColumnType, Exported, checked_path, write_atomically
from .tables import Column, Table, TableQuery, read

if TYPE_CHECKING:
    from somatize.codecs.arrow import Table as ArrowTable
    from somatize.codecs.pandas_frames import DataFrame


ROW_GROUP = 1 << 16
"""Rows of a Parquet file that are written together, and so are in memory together."""


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
    of said values is int64, float64 or bool where that loses nothing; texts among numbers stand in a second column,
    ``loss.value (text)``. What is absent is null, and ``nan`` is not. The schema's metadata names the run, and under
    ``somatize.left_out`` lists as JSON what could not be read.

    Reads what the reader of that name does, forwards, facts and logs twice. Raises `ExtraMissing`, `ExportError`,
    `UnknownRun` and `WhichRun`.
    """
    pa = pyarrow()
    made, left_out = read(TableQuery(store, run, of, last, since), lambda table: _arrow_columns(pa, table))
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

    Memory holds one such group, however long the run is. The file is whole or not there. Reads and raises as
    `to_arrow` does, and leaves what was at `path` if it raises.
    """
    pa = pyarrow()
    checked_path(path)
    asked = TableQuery(store, run, of, last, since)
    rows, left_out = read(asked, lambda table: write_atomically(path, lambda beside: _written(pa, table, beside)))
    return Exported(Path(path), {of: rows}, left_out)


def _arrow_columns(pa: Any, table: Table) -> Any:
    schema = _schema(pa, table)
    made = pa.Table.from_batches(_batches(pa, table, schema, ROW_GROUP), schema)
    return made.unify_dictionaries()


def _written(pa: Any, table: Table, path: Path) -> int:
    schema, rows = _schema(pa, table), 0
    with parquet().ParquetWriter(path, schema) as writer:
        for batch in _batches(pa, table, schema, ROW_GROUP):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _batches(pa: Any, table: Table, schema: Any, size: int) -> Iterator[Any]:
    for columns in table.batches(size):
        arrays = [
            _array(pa, columns[column.name], schema.field(place).type) for place, column in enumerate(table.columns)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(pa: Any, values: list[Any], kind: Any) -> Any:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode().cast(kind)
    return pa.array(values, kind, from_pandas=False)


def _schema(pa: Any, table: Table) -> Any:
    fields = [_field(pa, column) for column in table.columns]
    return pa.schema(fields, _encoded(table.about))


def _field(pa: Any, column: Column) -> Any:
    unit = {"unit": column.unit} if column.unit else {}
    return pa.field(column.name, _TYPES[column.kind](pa), metadata=_encoded(unit))


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
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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

    UTF-8 with a line of names, as RFC 4180 has it but for lines that end with a newline alone. Said values are the
    very texts that were said, also ``nan`` and 9007199254740993; durations are microseconds, instants ISO 8601 in
    UTC, lists JSON. What is absent is nothing between commas, an empty text is ``""``. Reads as much as the reader of
    that name does, facts twice, with a block of them in memory; the file is whole or not there.

    Raises `ExportError`, `UnknownRun` and `WhichRun`, and leaves what was at `path`.
    """
    checked_path(path)
    asked = TableQuery(store, run, of, last, since)
    (rows, empty), left_out = read(asked, lambda table: write_atomically(path, lambda beside: _write(table, beside)))
    if empty:
        texts = counted(empty, "empty text")
        left_out += (f'{texts} written as "", which some readers (Python\'s csv, pandas) take for absent',)
    return Exported(Path(path), {of: rows}, left_out)


def _write(table: Table, path: Path) -> tuple[int, int]:
    """Write it, and say how many rows there are and how many texts in them are empty."""
    columns = [column for column in table.columns if not column.words]
    rows = empty = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(_quoted(column.name) for column in columns) + "\n")
        for some in table.raw():
            written = [_cells(column, some[column.place]) for column in columns]
            file.writelines(",".join(cells) + "\n" for cells in zip(*written, strict=True))
            rows += len(some[0])
            empty += sum(column.count('""') for column in written)
    return rows, empty


def _cells(column: Column, values: Sequence[Any]) -> list[str]:
    if column.kind in _SHOWN and not column.said:
        show = _SHOWN[column.kind]
        return ["" if value is None else show(value) for value in values]
    if column.kind is ColumnType.NAME:
        known = {name: "" if name is None else _quoted(name) for name in set(values)}
        return [known[name] for name in values]
    return ["" if one is None else repr(one) if isinstance(one, float) else _quoted(one) for one in values]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _instant(us: int) -> str:
    second, part = divmod(us, 1_000_000)
    return f"{_second(second)}.{part:06}Z"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def _names(names: Iterable[str]) -> str:
    return _quoted(json.dumps(list(names), ensure_ascii=False))


_SHOWN: dict[ColumnType, Callable[[Any], str]] = {
    ColumnType.WHOLE: str,
    ColumnType.NUMBER: repr,
    ColumnType.TRUTH: str,
    ColumnType.INSTANT: _instant,
    ColumnType.NAMES: _names,
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

    Dtypes are the same however a run went: counts and durations (microseconds) are ``Int64``, instants are
    ``datetime64[us, UTC]``, states, nodes and hosts categories. A column of said values is ``Int64``, ``Float64`` or
    ``boolean`` where that loses nothing, else ``string``; texts among numbers stand in a second column,
    ``loss.value (text)``. What is absent is missing, and ``nan`` that was said is a value; ``.astype(float)`` makes
    both NaN. ``frame.attrs`` is what the metadata of `to_arrow` is: ``somatize.run``, ``somatize.units`` and, as JSON,
    the list of what could not be read, ``somatize.left_out``.

    Reads what the reader of that name does, forwards, facts and logs twice. Raises `ExtraMissing`, `ExportError`,
    `UnknownRun` and `WhichRun`.
    """
    pd = pandas()
    (frame, about), left_out = read(TableQuery(store, run, of, last, since), lambda table: _frame_columns(pd, table))
    frame.attrs.update(about)
    frame.attrs["somatize.left_out"] = json.dumps(left_out, ensure_ascii=False)
    return frame


def _frame_columns(pd: Any, table: Table) -> tuple[Any, dict[str, str]]:
    made = {column.name: _MAKERS.get(column.kind, Plain)(pd, column.kind) for column in table.columns}
    for batch in table.batches():
        for name, values in batch.items():
            made[name].add(values)
    frame = pd.DataFrame({name: maker.whole() for name, maker in made.items()})
    return frame, table.about


class Plain:
    """A column of a frame, put together out of stretches so that no list of all its values is made."""

    def __init__(self, pd: Any, kind: ColumnType) -> None:
        self.pd = pd
        self.dtype = _dtype(pd, kind)
        self.parts: list[Any] = []

    def add(self, values: list[Any]) -> None:
        """Some values more, None where one is absent."""
        self.parts.append(self.pd.Series(self.array(values), dtype=self.dtype))

    def array(self, values: list[Any]) -> Any:
        """The values in the least memory that holds them."""
        return self.pd.array(values, dtype=self.dtype)

    def whole(self) -> Any:
        """The column."""
        if not self.parts:
            self.add([])
        return self.pd.concat(self.parts, ignore_index=True)


class Floats(Plain):
    """Numbers, of which a NaN that was said is not an absent one: pandas' own way in takes the two for the same."""

    def array(self, values: list[Any]) -> Any:
        """As it is, the mask apart from the numbers."""
        absent = self.pd.Series([value is None for value in values], dtype="bool").to_numpy()
        numbers = self.pd.Series([1.0 if value is None else value for value in values], dtype="float64").to_numpy()
        return self.pd.arrays.FloatingArray(numbers, absent)


class Instants(Plain):
    """Moments, without a way over floats."""

    def array(self, values: list[Any]) -> Any:
        """Microseconds as they are, and pandas' word for nothing, which is the least int64."""
        us = self.pd.array(values, dtype="Int64").to_numpy("int64", na_value=-(2**63))
        return self.pd.Series(us.view("datetime64[us]")).dt.tz_localize("UTC")


class Lists(Plain):
    """Lists, as objects."""

    def array(self, values: list[Any]) -> Any:
        """As they are."""
        return values


class CategoryValues(Plain):
    """Texts of which there are few, each of which is held once."""

    def __init__(self, pd: Any, kind: ColumnType) -> None:
        super().__init__(pd, kind)
        self.codes = array("i")
        self.known: dict[str | None, int] = {None: -1}

    def add(self, values: list[Any]) -> None:
        """Some values more."""
        known = self.known
        self.codes.extend(known.setdefault(value, len(known) - 1) for value in values)

    def whole(self) -> Any:
        """The column, its categories in the order in which they were first met."""
        names = [name for name in self.known if name is not None]
        categories = self.pd.Index(names, dtype=_dtype(self.pd, ColumnType.TEXT))
        return self.pd.Categorical.from_codes(self.pd.Series(self.codes, dtype="int32").to_numpy(), categories)


_MAKERS: dict[ColumnType, type[Plain]] = {
    ColumnType.NUMBER: Floats,
    ColumnType.INSTANT: Instants,
    ColumnType.NAMES: Lists,
    ColumnType.NAME: CategoryValues,
}


def _dtype(pd: Any, kind: ColumnType) -> Any:
    if kind in (ColumnType.TEXT, ColumnType.NAME):
        return pd.StringDtype("python")  # pyarrow is another extra
    return {
        ColumnType.WHOLE: "Int64",
        ColumnType.NUMBER: "Float64",
        ColumnType.TRUTH: "boolean",
        ColumnType.INSTANT: "datetime64[us, UTC]",
        ColumnType.NAMES: "object",
    }[kind]

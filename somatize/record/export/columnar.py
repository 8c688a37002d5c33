"""Tables as Arrow and Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from somatize.codecs.arrow import parquet, pyarrow
from somatize.record.asked import Place

from .exported import Exported
from .files import checked, whole
from .table import Column, Table
from .tables import Asked, read
from .text_columns import Kind

if TYPE_CHECKING:
    from somatize.codecs.arrow import Table as ArrowTable

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
    made, left_out = read(Asked(store, run, of, last, since), lambda table: _collected(pa, table))
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
    checked(path)
    asked = Asked(store, run, of, last, since)
    rows, left_out = read(asked, lambda table: whole(path, lambda beside: _written(pa, table, beside)))
    return Exported(Path(path), {of: rows}, left_out)


def _collected(pa: Any, table: Table) -> Any:
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


_TYPES: dict[Kind, Callable[[Any], Any]] = {
    Kind.WHOLE: lambda pa: pa.int64(),
    Kind.NUMBER: lambda pa: pa.float64(),
    Kind.TRUTH: lambda pa: pa.bool_(),
    Kind.TEXT: lambda pa: pa.string(),
    Kind.NAME: lambda pa: pa.dictionary(pa.int32(), pa.string()),
    Kind.INSTANT: lambda pa: pa.timestamp("us", "UTC"),
    Kind.NAMES: lambda pa: pa.list_(pa.string()),
}

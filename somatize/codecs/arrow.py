"""Arrow's arrays, tables and record batches by Arrow's IPC format; the only module that imports pyarrow.

A table is its schema and its columns, a column its chunks, each a record batch of a stream: chunks come back as they
were. The name of an array is made of the streams of plain bytes that its type is made of (which are missing, lengths,
values), so that it is the same whatever lies in memory behind a missing value or before a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from somatize.errors import DamagedStore, ExtraMissing, NotKeepable, StoreError

from .standard_types import TypeCodec

if TYPE_CHECKING:
    from pyarrow import Table as Table  # noqa: PLC0414


def pyarrow(what: str = "Arrow and Parquet need") -> Any:
    """The library. Raises `ExtraMissing`."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ExtraMissing(f"{what} pyarrow: pip install 'somatize[arrow]'") from error
    return pa


def parquet() -> Any:
    """Its part that writes Parquet."""
    from pyarrow import parquet

    return parquet


class Joined:
    """A chunked array of which it does not matter where its chunks begin."""

    def __init__(self, chunked: Any) -> None:
        self.chunked = chunked


def _written(batches: Iterable[Any], schema: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(memoryview(sink.getvalue()))


def _dump_chunked(chunked: Any) -> list[Any]:
    import pyarrow as pa

    schema = pa.schema([pa.field("x", chunked.type)])
    try:
        data = _written([pa.RecordBatch.from_arrays([chunk], schema=schema) for chunk in chunked.chunks], schema)
        back = _chunked_of(data)
    except pa.ArrowException as wrong:
        raise NotKeepable(f"an Arrow array of type {chunked.type} cannot be written ({wrong})") from wrong
    if back.type != chunked.type or list(map(len, back.chunks)) != list(map(len, chunked.chunks)):
        raise NotKeepable(f"an Arrow array of type {chunked.type} would not come back with the same one")
    return [str(chunked.type), data]


def _chunked_of(data: bytes) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return pa.chunked_array([batch.column(0) for batch in reader], reader.schema.field(0).type)


def _load_chunked(plain: list[Any]) -> Any:
    kind, data = plain
    made = _chunked_of(bytes(data))
    if str(made.type) != kind:
        raise StoreError(f"the value holds an Arrow array of type {kind}, which is not registered here")
    return made


def _dump_array(array: Any) -> list[Any]:
    import pyarrow as pa

    found = _dump_chunked(pa.chunked_array([array], array.type))
    if type(_load_array(found)) is not type(array):
        raise NotKeepable(f"an Arrow array of type {array.type} would not come back as a {type(array).__qualname__}")
    return found


def _load_array(plain: list[Any]) -> Any:
    (chunk,) = _load_chunked(plain).chunks
    return chunk


def _load_schema(plain: Any) -> Any:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(bytes(plain)))


def _dump_schema(schema: Any) -> bytes:
    data = bytes(memoryview(schema.serialize()))
    if not _load_schema(data).equals(schema, check_metadata=True):
        raise NotKeepable("an Arrow schema would not come back as it is")
    return data


def _dump_table(table: Any) -> list[Any]:
    return _with_rows(table, [table.schema, list(table.columns)])


def _load_table(plain: list[Any]) -> Any:
    import pyarrow as pa

    schema, columns, rows = plain
    return _of_rows(pa.Table.from_arrays(columns, schema=schema), rows)


def _load_batch(plain: list[Any]) -> Any:
    import pyarrow as pa

    schema, columns, rows = plain
    return _of_rows(pa.RecordBatch.from_arrays(columns, schema=schema), rows)


def _with_rows(table: Any, plain: list[Any]) -> list[Any]:
    if not table.num_columns and table.num_rows:
        raise NotKeepable("a table of rows without columns would lose them")
    return [*plain, table.num_rows]


def _of_rows(made: Any, rows: int) -> Any:
    if made.num_rows != rows:
        raise DamagedStore(f"a table of {rows} rows came back with {made.num_rows}")
    return made


def _load_joined(plain: list[Any]) -> Joined:
    return Joined(_load_chunked(plain))


KINDS = {
    kind.name: kind
    for kind in (
        TypeCodec("pyarrow.Array", _dump_array, _load_array),
        TypeCodec("pyarrow.ChunkedArray", _dump_chunked, _load_chunked),
        TypeCodec("pyarrow.Joined", lambda value: _dump_chunked(value.chunked), _load_joined),
        TypeCodec("pyarrow.RecordBatch", _dump_table, _load_batch),
        TypeCodec("pyarrow.Schema", _dump_schema, _load_schema),
        TypeCodec("pyarrow.Table", _dump_table, _load_table),
    )
}


def kind_of(cls: type) -> TypeCodec | None:
    """The codec for a type of Arrow's, or None."""
    import pyarrow as pa

    if cls is Joined:
        return KINDS["pyarrow.Joined"]
    if issubclass(cls, pa.Array):
        return KINDS["pyarrow.Array"]
    return KINDS.get(f"pyarrow.{cls.__name__}") if getattr(pa, cls.__name__, None) is cls else None


def named_apart(value: Any) -> tuple[list[Any], Callable[[], Iterator[bytes | memoryview]]] | None:
    """The description of an Arrow array without its elements, and a writer of their bytes; None for other values."""
    import pyarrow as pa

    if isinstance(value, Joined):
        return _apart("Joined", value.chunked.type, value.chunked.chunks)
    if isinstance(value, pa.ChunkedArray):
        words, streams = _apart("ChunkedArray", value.type, value.chunks)
        return [*words, list(map(len, value.chunks))], streams
    return _apart(type(value).__qualname__, value.type, [value]) if isinstance(value, pa.Array) else None


def _apart(kind: str, of: Any, chunks: list[Any]) -> tuple[list[Any], Callable[[], Iterator[bytes | memoryview]]]:
    import pyarrow as pa

    schema = bytes(memoryview(pa.schema([pa.field("x", of)]).serialize()))

    def streams() -> Iterator[bytes | memoryview]:
        for parts in zip(*map(_streams, chunks), strict=True):
            yield sum(map(len, parts)).to_bytes(8, "little")
            yield from parts

    return [kind, schema, sum(map(len, chunks))], streams


def _streams(array: Any) -> list[bytes | memoryview]:
    """The plain bytes an array is made of: as many streams for each array of a type, which lie end to end in chunks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    found: list[bytes | memoryview] = [_values(array.is_valid().cast(pa.uint8()))]
    if pa.types.is_null(kind):
        return found
    if isinstance(array, pa.ExtensionArray):
        return found + _streams(array.storage)
    if pa.types.is_dictionary(kind):
        return found + _streams(array.indices) + _streams(array.dictionary)
    if pa.types.is_struct(kind):
        return found + [stream for inner in array.flatten() for stream in _streams(inner)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.list_value_length(array).fill_null(0).cast(pa.int64())
        return [*found, _values(lengths), *_streams(array.flatten())]
    if pa.types.is_fixed_size_list(kind):
        return found + _streams(array.flatten())
    if pa.types.is_nested(kind) or getattr(pa.types, "is_run_end_encoded", lambda _: False)(kind):
        return [*found, _written_alone(array)]
    if _is_text(kind):
        try:
            array = array.cast(pa.large_string() if "string" in str(kind) else pa.large_binary())
        except pa.ArrowNotImplementedError:  # a view, before pyarrow 18
            return [*found, _written_alone(array)]
    array = array.drop_null() if array.null_count else array
    if pa.types.is_boolean(kind):
        return [*found, _values(array.cast(pa.uint8()))]
    if _is_text(kind):
        lengths = pc.binary_length(array).cast(pa.int64())
        return [*found, _values(lengths), _texts(array)]
    return [*found, _values(array)]


def _written_alone(array: Any) -> bytes:
    import pyarrow as pa

    schema = pa.schema([pa.field("x", array.type)])
    return _written([pa.RecordBatch.from_arrays([array], schema=schema)], schema)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    asked = ("is_string", "is_large_string", "is_binary", "is_large_binary", "is_string_view", "is_binary_view")
    return any(getattr(pa.types, name, lambda _: False)(kind) for name in asked)


def _values(array: Any) -> memoryview:
    """The bytes of elements of one width, none of which is missing."""
    width = array.type.bit_width // 8
    data = array.buffers()[1]
    return memoryview(b"" if data is None else data)[array.offset * width : (array.offset + len(array)) * width]


def _texts(array: Any) -> memoryview:
    if not len(array):
        return memoryview(b"")
    ends = memoryview(array.buffers()[1]).cast("q")
    data = array.buffers()[2]
    return memoryview(b"" if data is None else data)[ends[array.offset] : ends[array.offset + len(array)]]


def joined(array: Any) -> Joined:
    """An array or chunked array as one of which the chunks do not matter."""
    import pyarrow as pa

    return Joined(array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array], array.type))

"""Frames and series of polars by Arrow's IPC format; the only module that imports polars."""

from __future__ import annotations

import io
from typing import Any

from somatize.errors import NotKeepable, StoreError

from . import arrow
from .standard_types import TypeCodec


def _dump_frame(frame: Any) -> list[Any]:
    schema = _said(frame)
    if any("Object" in kind for _, kind in schema):
        raise NotKeepable("a polars frame with a column of dtype Object holds Python objects, which lie elsewhere")
    sink = io.BytesIO()
    try:
        frame.write_ipc_stream(sink)
    except Exception as wrong:
        raise NotKeepable(f"a polars frame that cannot be written ({wrong})") from wrong
    plain = [schema, frame.height, [_order(column) for column in frame.get_columns()], sink.getvalue()]
    back = _load_frame(plain)
    if back.schema != frame.schema or not back.equals(frame, null_equal=True):
        raise NotKeepable(f"a polars frame of schema {frame.schema} would not come back as it is")
    return plain


def _load_frame(plain: list[Any]) -> Any:
    import polars as pl

    schema, height, orders, data = plain
    made = pl.read_ipc_stream(io.BytesIO(data))
    if _said(made) != schema or made.height != height:
        raise StoreError(f"the value holds a polars frame of {schema}, which this version reads as {_said(made)}")
    return made.with_columns(
        column.set_sorted(descending=order == "falling")
        for column, order in zip(made.get_columns(), orders, strict=True)
        if order
    )


def _said(frame: Any) -> list[list[str]]:
    return [[name, repr(dtype)] for name, dtype in frame.schema.items()]


def _order(column: Any) -> str | None:
    # The sortedness flag of a column, which polars relies on.
    flags = column.flags
    return "rising" if flags.get("SORTED_ASC") else "falling" if flags.get("SORTED_DESC") else None


def _dump_series(series: Any) -> list[Any]:
    return [series.name, series.rename("x").to_frame()]


def _load_series(plain: list[Any]) -> Any:
    name, frame = plain
    return frame.to_series().rename(name)


KINDS = {
    kind.name: kind
    for kind in (
        TypeCodec("polars.DataFrame", _dump_frame, _load_frame),
        TypeCodec("polars.Series", _dump_series, _load_series),
    )
}


def kind_of(cls: type) -> TypeCodec | None:
    """The codec for a type of polars', or None."""
    import polars as pl

    return KINDS.get(f"polars.{cls.__name__}") if getattr(pl, cls.__name__, None) is cls else None


def named_apart(value: Any) -> list[Any] | None:
    """The parts of a frame or series as plain values and Arrow arrays; None for other values."""
    import polars as pl

    if isinstance(value, pl.Series):
        return ["series", value.name, value.to_frame()]
    if not isinstance(value, pl.DataFrame):
        return None
    if any("Object" in kind for _, kind in _said(value)):
        raise NotKeepable("a polars frame with a column of dtype Object holds Python objects, which lie elsewhere")
    arrow.pyarrow("a polars frame is named by")
    return [*_said(value), value.height, [_column(column) for column in value.get_columns()]]


def _column(column: Any) -> list[Any]:
    try:
        held: Any = arrow.joined(column.to_arrow())
    except Exception:  # a type that pyarrow does not know
        sink = io.BytesIO()
        column.to_frame().rechunk().write_ipc_stream(sink)
        held = sink.getvalue()
    return [_order(column), held]

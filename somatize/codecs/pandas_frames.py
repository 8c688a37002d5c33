"""Frames, series, indexes and scalars of pandas as the arrays they are made of; the only module that imports pandas.

A frame is its two indexes and its blocks, as they lie in memory; an extension array is the arrays in it, or Arrow's.
What is made of those parts again is compared with what they were taken from before anything is written: what would not
come back with the same types, dtypes, names and frequencies is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from somatize.errors import ExtraMissing, NotKeepable

from . import arrays, arrow
from .standard_types import TypeCodec

if TYPE_CHECKING:
    from pandas import DataFrame as DataFrame  # noqa: PLC0414

_HELD = {"_mgr", "_item_cache", "_attrs", "_flags", "_name", "_is_copy", "_cacher", "_hidden"}
"""Attributes that pandas itself stores on a frame or series; others would be lost."""


def pandas() -> Any:
    """The library. Raises `ExtraMissing`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ExtraMissing("a DataFrame needs pandas: pip install 'somatize[pandas]'") from error
    return pd


def kind_of(cls: type) -> TypeCodec | None:
    """The codec for a type of pandas', or None."""
    import pandas as pd

    name = "Array" if issubclass(cls, pd.api.extensions.ExtensionArray) else _NAMES.get(cls.__name__, cls.__name__)
    of_pandas = cls.__module__.partition(".")[0] == "pandas"
    return KINDS.get(f"pandas.{name}") if of_pandas else None


_NAMES = {"NaTType": "NaT", "NAType": "NA"}


# Frames and series


def _dump_frame(frame: Any) -> list[Any]:
    _check_held(frame)
    blocks = [[block.mgr_locs.as_array, _apart(block.values)] for block in frame._mgr.blocks]
    plain = [frame.columns, frame.index, blocks, dict(frame.attrs), frame.flags.allows_duplicate_labels]
    back = _load_frame(plain)
    same = [_layout(one) == _layout(other) for one, other in zip(back._mgr.blocks, frame._mgr.blocks, strict=True)]
    _check(all(same) and list(back.dtypes) == list(frame.dtypes), frame)
    return plain


def _load_frame(plain: list[Any]) -> Any:
    columns, index, blocks, attrs, duplicates = plain
    made = _of_blocks([(_together(values), places) for places, values in blocks], index, columns)
    return _described(made, attrs, duplicates)


def _of_blocks(blocks: list[Any], index: Any, columns: Any) -> Any:
    import pandas as pd

    try:
        from pandas.api.internals import create_dataframe_from_blocks
    except ImportError:  # before pandas 3
        from pandas.core.internals.api import make_block
        from pandas.core.internals.managers import BlockManager

        made = tuple(make_block(values, placement=places, ndim=2) for values, places in blocks)
        manager = BlockManager(made, [columns, index])
        return pd.DataFrame._from_mgr(manager, axes=manager.axes)
    return create_dataframe_from_blocks(blocks, index=index, columns=columns)


def _layout(block: Any) -> Any:
    values = block.values
    backing = getattr(values, "_ndarray", values)
    # Objects lie elsewhere, and only their order is kept.
    steps = None if getattr(values.dtype, "hasobject", False) else getattr(backing, "strides", None)
    return type(values), values.dtype, values.shape, steps, [*block.mgr_locs.as_array]


def _dump_series(series: Any) -> list[Any]:
    _check_held(series)
    (block,) = series._mgr.blocks
    plain = [series.index, series.name, _apart(block.values), dict(series.attrs), series.flags.allows_duplicate_labels]
    back = _load_series(plain)
    _check(_layout(back._mgr.blocks[0]) == _layout(block) and type(back.name) is type(series.name), series)
    return plain


def _load_series(plain: list[Any]) -> Any:
    import pandas as pd

    index, name, values, attrs, duplicates = plain
    values = _together(values)
    made = pd.Series(values, index=index, dtype=values.dtype, name=name, copy=False)
    return _described(made, attrs, duplicates)


def _described(made: Any, attrs: dict[Any, Any], duplicates: bool) -> Any:
    made.attrs.update(attrs)
    if not duplicates:
        made.flags.allows_duplicate_labels = False
    return made


def _check_held(value: Any) -> None:
    more = sorted(map(str, set(vars(value)) - _HELD))
    if more:
        raise NotKeepable(f"a pandas {type(value).__name__} with attributes of its own ({', '.join(more)}) loses them")


def _check(same: bool, value: Any) -> None:
    if not same:
        what = getattr(value, "dtype", None)
        said = f" of dtype {what}" if what is not None else ""
        raise NotKeepable(f"a pandas {type(value).__name__}{said} would not come back as it is")


# Arrays


def _apart(values: Any) -> list[Any]:
    """The parts of the values of a block, a series or an index."""
    if arrays.kind_of(type(values)) == "ndarray":
        return _of_numpy(values)
    plain = _of_extension(values)
    back = _together(plain)
    _check(type(back) is type(values) and back.dtype == values.dtype and back.shape == values.shape, values)
    return plain


def _of_numpy(values: Any) -> list[Any]:
    if values.dtype.hasobject:
        if values.dtype != object:
            raise NotKeepable(f"a pandas array of dtype {values.dtype} holds Python objects, which lie elsewhere")
        order = "F" if values.flags.f_contiguous and not values.flags.c_contiguous else "C"
        return ["objects", list(values.shape), order, values.ravel(order=order).tolist()]
    return ["numpy", values]


def _of_extension(values: Any) -> list[Any]:
    import pandas as pd

    dtype, cls = values.dtype, type(values)
    if isinstance(dtype, pd.StringDtype):
        form = [str(dtype.storage), dtype.na_value is not pd.NA]
        if hasattr(values, "_pa_array"):
            return ["string", form, arrow.joined(values._pa_array)]
        return ["string", form, [one if isinstance(one, str) else None for one in values._ndarray.tolist()]]
    if isinstance(dtype, pd.ArrowDtype):
        return ["arrow", arrow.joined(values._pa_array)]
    if isinstance(dtype, pd.CategoricalDtype):
        return ["categorical", dtype.categories, dtype.ordered, values._ndarray]
    if isinstance(dtype, pd.IntervalDtype):
        return ["interval", values.left, values.right, values.closed]
    if isinstance(dtype, pd.PeriodDtype):
        return ["period", dtype.name.removeprefix("period[").removesuffix("]"), values._ndarray]
    if cls is pd.arrays.DatetimeArray or cls is pd.arrays.TimedeltaArray:
        return [cls.__name__, values._ndarray, getattr(dtype, "unit", None), getattr(dtype, "tz", None), _freq(values)]
    if cls is pd.arrays.NumpyExtensionArray:
        return ["extended", _of_numpy(values._ndarray)]
    if cls in (pd.arrays.IntegerArray, pd.arrays.FloatingArray, pd.arrays.BooleanArray):
        data, mask = values._data, values._mask
        if mask.any():  # bytes behind a missing value are not visible
            data = data.copy()
            data[mask] = 1
        return [cls.__name__, data, mask]
    raise NotKeepable(f"a pandas array of dtype {dtype} is none that is known here")


def _together(plain: list[Any]) -> Any:
    kind, *parts = plain
    return _MAKERS[kind](*parts)


def _numpy_of(values: Any) -> Any:
    return values


def _string_of(form: list[Any], held: Any) -> Any:
    import pandas as pd

    dtype = pd.StringDtype(form[0], na_value=math.nan) if form[1] else pd.StringDtype(form[0])
    if isinstance(held, arrow.Joined):
        return _arrow_array(dtype, held.chunked)
    missing = dtype.na_value
    filled = arrays.of_objects([len(held)], "C", [missing if one is None else one for one in held])
    return dtype.construct_array_type()._simple_new(filled, dtype)


def _arrow_of(held: arrow.Joined) -> Any:
    import pandas as pd

    return _arrow_array(pd.ArrowDtype(held.chunked.type), held.chunked)


def _arrow_array(dtype: Any, chunked: Any) -> Any:
    cls = dtype.construct_array_type()
    made = cls.__new__(cls)
    made._pa_array, made._dtype = chunked, dtype
    return made


def _categorical_of(categories: Any, ordered: bool, codes: Any) -> Any:
    import pandas as pd

    return pd.Categorical._simple_new(codes, pd.CategoricalDtype(categories, ordered))


def _interval_of(left: Any, right: Any, closed: str) -> Any:
    import pandas as pd

    return pd.arrays.IntervalArray.from_arrays(left, right, closed=closed)


def _period_of(freq: str, ordinals: Any) -> Any:
    import pandas as pd

    return pd.arrays.PeriodArray._simple_new(ordinals, pd.PeriodDtype(freq))


def _datetime_of(values: Any, unit: str | None, tz: Any, freq: str | None) -> Any:
    import pandas as pd

    dtype = values.dtype if tz is None else pd.DatetimeTZDtype(unit, tz)
    return _with_freq(pd.arrays.DatetimeArray._simple_new(values, dtype=dtype), freq)


def _timedelta_of(values: Any, _unit: str | None, _tz: Any, freq: str | None) -> Any:
    import pandas as pd

    return _with_freq(pd.arrays.TimedeltaArray._simple_new(values, dtype=values.dtype), freq)


def _masked(name: str) -> Callable[[Any, Any], Any]:
    def make(data: Any, mask: Any) -> Any:
        import pandas as pd

        return getattr(pd.arrays, name)(data, mask)

    return make


def _extended_of(plain: list[Any]) -> Any:
    import pandas as pd

    return pd.arrays.NumpyExtensionArray(_together(plain))


_MAKERS: dict[str, Callable[..., Any]] = {
    "numpy": _numpy_of,
    "objects": arrays.of_objects,
    "string": _string_of,
    "arrow": _arrow_of,
    "categorical": _categorical_of,
    "interval": _interval_of,
    "period": _period_of,
    "DatetimeArray": _datetime_of,
    "TimedeltaArray": _timedelta_of,
    "extended": _extended_of,
    **{name: _masked(name) for name in ("IntegerArray", "FloatingArray", "BooleanArray")},
}


def _freq(value: Any) -> str | None:
    """The frequency of an index or array as a text, where that says all of it."""
    from pandas.tseries.frequencies import to_offset

    freq = getattr(value, "freq", None)
    if freq is None or isinstance(freq, str):
        return freq
    try:
        same = to_offset(freq.freqstr) == freq
    except ValueError:  # an offset of several units
        same = False
    if not same:
        raise NotKeepable(
            f"a pandas {type(value).__name__} of frequency {freq!r} would not come back with the same one"
        )
    return str(freq.freqstr)


def _with_freq(made: Any, freq: str | None) -> Any:
    if freq is not None:
        from pandas.tseries.frequencies import to_offset

        made._freq = to_offset(freq)
    return made


# Indexes


def _dump_index(index: Any) -> list[Any]:
    import pandas as pd

    plain: list[Any]
    if isinstance(index, pd.RangeIndex):
        plain = ["range", index.name, index.start, index.stop, index.step]
    elif isinstance(index, pd.MultiIndex):
        codes = [_of_numpy(each) for each in index.codes]
        plain = ["multi", list(index.names), list(index.levels), codes, index.sortorder]
    else:
        timed = isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex)
        plain = [type(index).__name__, index.name, _apart(index._data), _freq(index) if timed else None]
    back = _load_index(plain)
    same = type(back) is type(index) and back.dtype == index.dtype and list(back.names) == list(index.names)
    _check(same and getattr(back, "freq", None) == getattr(index, "freq", None), index)
    return plain


def _load_index(plain: list[Any]) -> Any:
    import pandas as pd

    kind, name, *parts = plain
    if kind == "range":
        return pd.RangeIndex(*parts, name=name)
    if kind == "multi":
        levels, codes, order = parts
        return pd.MultiIndex(
            levels=levels,
            codes=[_together(each) for each in codes],
            names=name,
            sortorder=order,
            verify_integrity=False,
        )
    values, freq = parts
    return _with_freq(getattr(pd, kind)._simple_new(_together(values), name=name), freq)


# Scalars


def _dump_timestamp(value: Any) -> list[Any]:
    plain = [value.asm8, value.tz, value.fold]
    back = _load_timestamp(plain)
    _check((back, back.unit, back.tz, back.fold) == (value, value.unit, value.tz, value.fold), value)
    return plain


def _load_timestamp(plain: list[Any]) -> Any:
    import pandas as pd

    at, tz, _fold = plain
    made = pd.Timestamp(at)
    return made if tz is None else made.tz_localize("UTC").tz_convert(tz)


def _dump_period(value: Any) -> list[Any]:
    plain = [value.ordinal, value.freqstr]
    _check(_load_period(plain) == value, value)
    return plain


def _load_period(plain: list[Any]) -> Any:
    import pandas as pd

    return pd.Period(ordinal=plain[0], freq=plain[1])


def _of_pandas(name: str) -> Callable[[Any], Any]:
    def load(plain: Any) -> Any:
        import pandas as pd

        made = getattr(pd, name)
        return made if plain is None else made(*plain)

    return load


_INDEXES = (
    *("Index", "RangeIndex", "MultiIndex", "DatetimeIndex", "TimedeltaIndex", "PeriodIndex", "IntervalIndex"),
    "CategoricalIndex",
)
KINDS = {
    kind.name: kind
    for kind in (
        TypeCodec("pandas.DataFrame", _dump_frame, _load_frame),
        TypeCodec("pandas.Series", _dump_series, _load_series),
        TypeCodec("pandas.Array", _apart, _together),
        *(TypeCodec(f"pandas.{name}", _dump_index, _load_index) for name in _INDEXES),
        TypeCodec("pandas.Timestamp", _dump_timestamp, _load_timestamp),
        TypeCodec("pandas.Timedelta", lambda value: [value.asm8], _of_pandas("Timedelta")),
        TypeCodec("pandas.Period", _dump_period, _load_period),
        TypeCodec("pandas.Interval", lambda value: [value.left, value.right, value.closed], _of_pandas("Interval")),
        TypeCodec("pandas.NaT", lambda _: None, _of_pandas("NaT")),
        TypeCodec("pandas.NA", lambda _: None, _of_pandas("NA")),
    )
}

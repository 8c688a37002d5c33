"""The standard library's types as plainer values: what `codecs` writes for a tuple, a date or a path.

Each kind has a name that stands in what was written and may never mean anything else; a function from the
value to a plainer one; and the way back. The plainer value is made afresh for the purpose, or is a scalar.
"""

from __future__ import annotations

import datetime as dt
import pathlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import EllipsisType
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from somatize.errors import NotKeepable, StoreError


class TypeCodec(NamedTuple):
    """A type that is written as a plainer value: its name, the way there and the way back."""

    name: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


POSITIONS = frozenset({"tuple"})
"""The kinds whose plainer value is a list with the same positions."""

_FACTORIES: dict[str, Any] = {
    "None": None,
    **{made.__name__: made for made in (list, dict, set, tuple, str, bytes, int, float, bool)},
}


def _dump_time(value: dt.time) -> list[Any]:
    return [value.hour, value.minute, value.second, value.microsecond, value.fold, value.tzinfo]


def _load_time(plain: list[Any]) -> dt.time:
    hour, minute, second, micros, fold, zone = plain
    return dt.time(hour, minute, second, micros, zone, fold=fold)


def _dump_datetime(value: dt.datetime) -> list[Any]:
    return [value.year, value.month, value.day, *_dump_time(value.timetz())]


def _load_datetime(plain: list[Any]) -> dt.datetime:
    year, month, day, *clock = plain
    return dt.datetime.combine(dt.date(year, month, day), _load_time(clock))


def _dump_timezone(value: dt.timezone) -> list[Any]:
    # Only this tells a given name from one derived from the offset.
    return list(value.__getinitargs__())  # type: ignore[attr-defined]


def _dump_zone(value: ZoneInfo) -> str:
    if value.key is None:
        raise NotKeepable("a ZoneInfo made from a file has no key to find it by again; use ZoneInfo(key)")
    return value.key


def _load_zone(key: str) -> ZoneInfo:
    try:
        return ZoneInfo(key)
    except (ZoneInfoNotFoundError, IsADirectoryError, PermissionError) as missing:
        raise StoreError(
            f"the value holds the time zone {key!r}, which this machine does not know; install tzdata"
        ) from missing


def _dump_ordered(value: OrderedDict[Any, Any]) -> list[Any]:
    # A state_dict of torch is one of these, and carries its versions in an attribute.
    return [dict(value), dict(vars(value))]


def _load_ordered(plain: list[Any]) -> OrderedDict[Any, Any]:
    entries, attributes = plain
    made = OrderedDict(entries)
    vars(made).update(attributes)
    return made


def _dump_default(value: defaultdict[Any, Any]) -> list[Any]:
    for name, factory in _FACTORIES.items():
        if factory is value.default_factory:
            return [name, dict(value)]
    raise NotKeepable(
        f"a defaultdict whose factory is {value.default_factory!r} cannot be written down without running code to read "
        "it; return dict(value), or register a codec for a type of your own"
    )


def _load_default(plain: list[Any]) -> defaultdict[Any, Any]:
    name, entries = plain
    return defaultdict(_FACTORIES[name], entries)


def _dump_counter(value: Counter[Any]) -> dict[Any, int]:
    if vars(value):
        raise NotKeepable(f"a Counter with attributes of its own ({', '.join(vars(value))}) would lose them")
    return dict(value)


def _load_counter(plain: dict[Any, int]) -> Counter[Any]:
    # `Counter.__init__` would add to the counts.
    made: Counter[Any] = Counter()
    dict.update(made, plain)
    return made


def _load_path(plain: list[str]) -> pathlib.PurePath:
    name, text = plain
    made: dict[str, type[pathlib.PurePath]] = {
        "PurePosixPath": pathlib.PurePosixPath,
        "PureWindowsPath": pathlib.PureWindowsPath,
        "Path": pathlib.Path,
    }
    return made[name](text)


BUILTIN: dict[type, TypeCodec] = {
    tuple: TypeCodec("tuple", list, tuple),
    set: TypeCodec("set", list, set),
    frozenset: TypeCodec("frozenset", list, frozenset),
    complex: TypeCodec("complex", lambda v: [v.real, v.imag], lambda p: complex(*p)),
    range: TypeCodec("range", lambda v: [v.start, v.stop, v.step], lambda p: range(*p)),
    slice: TypeCodec("slice", lambda v: [v.start, v.stop, v.step], lambda p: slice(*p)),
    EllipsisType: TypeCodec("ellipsis", lambda _: None, lambda _: ...),
    Decimal: TypeCodec("decimal", str, Decimal),
    Fraction: TypeCodec("fraction", lambda v: [v.numerator, v.denominator], lambda p: Fraction(*p)),
    UUID: TypeCodec("uuid", lambda v: v.bytes, lambda p: UUID(bytes=p)),
    dt.date: TypeCodec("date", lambda v: [v.year, v.month, v.day], lambda p: dt.date(*p)),
    dt.time: TypeCodec("time", _dump_time, _load_time),
    dt.datetime: TypeCodec("datetime", _dump_datetime, _load_datetime),
    dt.timedelta: TypeCodec("timedelta", lambda v: [v.days, v.seconds, v.microseconds], lambda p: dt.timedelta(*p)),
    dt.timezone: TypeCodec("timezone", _dump_timezone, lambda p: dt.timezone(*p)),
    ZoneInfo: TypeCodec("zoneinfo", _dump_zone, _load_zone),
    pathlib.PurePosixPath: TypeCodec("path", lambda v: ["PurePosixPath", str(v)], _load_path),
    pathlib.PureWindowsPath: TypeCodec("path", lambda v: ["PureWindowsPath", str(v)], _load_path),
    type(pathlib.Path()): TypeCodec("path", lambda v: ["Path", str(v)], _load_path),
    OrderedDict: TypeCodec("OrderedDict", _dump_ordered, _load_ordered),
    defaultdict: TypeCodec("defaultdict", _dump_default, _load_default),
    Counter: TypeCodec("Counter", _dump_counter, _load_counter),
    deque: TypeCodec("deque", lambda v: [list(v), v.maxlen], lambda p: deque(*p)),
}
"""The codec for each type. Types are matched exactly, because a subclass would come back as its parent."""

"""The types a caller registers: which may be, and what stands for which."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, NamedTuple

from . import arrays, arrow, objects, pandas_frames, polars_frames, tensors
from .script import SCALARS
from .standard_types import BUILTIN, TypeCodec


class Registered(NamedTuple):
    kind: str
    type: builtins.type
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


by_type: dict[type, Registered] = {}
by_kind: dict[str, Registered] = {}


def codec(kind: str, type: type, *, dump: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
    """Teach the store a further type: `dump` makes a plainer value of one, and `load` one of that again.

    What `dump` gives may hold anything that can be written, further registered types included. `kind` stands
    in what was written: it stays as it is once something was kept, and whoever reads registers it first. Only
    `type` itself is meant, not its subclasses, and `load` has to answer with exactly that type. A class defined
    again under the same name, as in a notebook, takes the place of the old one.
    """
    _check(kind, type, dump, load)
    made = Registered(kind, type, dump, load)
    if kind in by_kind:
        by_type.pop(by_kind[kind].type, None)
    by_kind[kind] = by_type[type] = made


def _check(kind: object, cls: object, dump: object, load: object) -> None:
    if not isinstance(kind, str) or not kind:
        raise TypeError(f"a codec's kind is a text that names the type in what is written, not {kind!r}")
    if not isinstance(cls, type):
        raise TypeError(f"the codec {kind!r} was given {cls!r} for its type; give a class")
    for name, way in (("dump", dump), ("load", load)):
        if not callable(way):
            raise TypeError(f"the codec {kind!r} was given {way!r} as {name}=; give a function of one value")
    if cls in SCALARS or cls in (list, dict, bytearray) or cls in BUILTIN or library_kind(cls):
        raise ValueError(f"{named(cls)} is written down without a codec; {kind!r} cannot take it over")
    for other in (by_kind.get(kind), by_type.get(cls)):
        if other and (other.kind != kind or named(other.type) != named(cls)):
            raise ValueError(f"the codec {other.kind!r} already stands for {named(other.type)}; {kind!r} and "
                             f"{named(cls)} need a kind and a type of their own")  # fmt: skip


def library_kind(cls: type) -> str | None:
    # Asked by the module's name, so that nothing is imported for a value of another library.
    if cls.__module__ == "numpy":
        return arrays.kind_of(cls)
    if cls.__module__ == "torch":
        return "tensor" if tensors.is_plain(cls) else None
    return None


def kind_of(cls: type) -> TypeCodec | None:
    """The codec for a type that is neither a container nor a scalar of Python's, or None."""
    door = arrow if cls is arrow.Joined else _DOORS.get(cls.__module__.partition(".")[0])
    found = door.kind_of(cls) if door is not None else None
    return found or objects.kind_of(cls)


def kind_named(name: str) -> TypeCodec | None:
    """The same by the name that stands in what was written."""
    door = _DOORS.get(name.partition(".")[0], objects)
    kinds: dict[str, TypeCodec] = door.KINDS
    return kinds.get(name)


# Each asks for its library when a value of it is at hand.
_DOORS: dict[str, Any] = {"pandas": pandas_frames, "polars": polars_frames, "pyarrow": arrow}


def named(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"

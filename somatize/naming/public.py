"""What an object shows of itself: its attributes that do not begin with an underscore."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from somatize.codecs import tensors


def unkeyed_names(cls: type) -> frozenset[str]:
    """The names that a class leaves out, by ``__unkeyed__ = ("attribute",)`` on it or on a base."""
    if not hasattr(cls, "__unkeyed__"):
        return frozenset()
    found: set[str] = set()
    for base in cls.__mro__:
        said = vars(base).get("__unkeyed__", ())
        found.update((said,) if isinstance(said, str) else said)
    return frozenset(found)


def attributes_of(thing: Any) -> dict[str, Any]:
    """The public attributes of a thing by name, as they are now. A Module's mode is a part of its state."""
    left_out = unkeyed_names(type(thing))
    if tensors.is_module(thing):
        left_out |= {"training"}
    if tensors.is_compiled(thing):
        left_out |= {"dynamo_ctx"}
    return {name: value for name, value in held_by(thing).items() if name[:1] != "_" and name not in left_out}


def held_by(thing: Any) -> dict[str, Any]:
    """All attributes of a thing by name, in its dict and its slots."""
    held = dict(vars(thing)) if hasattr(thing, "__dict__") else {}
    for name in _slots(type(thing)):
        if not name.startswith("__") and hasattr(thing, name):
            held[name] = getattr(thing, name)
    return held


def _slots(cls: type) -> Iterable[str]:
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots

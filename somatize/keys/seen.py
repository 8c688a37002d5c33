"""What an object that notes no arguments keeps to itself, as it was when it was first looked at.

A leading underscore marks working state, which does not count. But of an object that is no `Node` nobody knows what it
was made with, and what it keeps of that has such names too: so they stand, as they were at first, for the arguments.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from somatize import tensors

from .constructed import Argument, noted, noted_of
from .hashing import SCALARS
from .outside import is_apart, is_library
from .public import held_by, unkeyed_names

_SEEN: dict[int, tuple[weakref.ref[Any], dict[str, Argument | None]]] = {}
"""What was named of each object; None for what is looked at as it is, so that nothing here keeps an object alive."""


def first_seen(thing: Any) -> dict[str, Argument]:
    """The attributes with a leading underscore, named as they were when this was first asked of the object.

    What cannot be named has an `Argument` that says so. Of a Module, torch's own are left out; one of a class that
    extends a library's may hold what only that library knows, and what cannot be named is left out there too.
    """
    known = _SEEN.get(id(thing))
    if known is not None and known[0]() is thing:
        return _with_live(thing, known[1])
    found = _private(thing)
    number = id(thing)
    said = {name: one if one.digest or one.wrong else None for name, one in found.items()}
    with suppress(TypeError):  # with slots and no place for a reference: it is looked at each time
        _SEEN[number] = weakref.ref(thing, lambda _: _SEEN.pop(number, None)), said
    return found


def _with_live(thing: Any, said: dict[str, Argument | None]) -> dict[str, Argument]:
    if all(said.values()):
        return said  # type: ignore[return-value]
    held = held_by(thing)
    return {name: one or Argument(None, live=held.get(name)) for name, one in said.items()}


_HELD: dict[int, tuple[weakref.ref[Any], tuple[str, ...]]] = {}


def models_of(node: Any) -> dict[str, list[Any]]:
    """What a `Node` keeps to itself that learns, by attribute: Modules and Parameters, also in lists, tuples and dicts.

    They are no working state, however they are named. One that was not there when this was first asked is: it is
    loaded as the node first runs, and whoever recalls what the node gave has none.
    """
    known = _HELD.get(id(node))
    if known is not None and known[0]() is node:
        names: Iterable[str] = known[1]
    else:
        names = tuple(name for name, value in held_by(node).items() if name[:1] == "_" and _models_in(value))
        number = id(node)
        with suppress(TypeError):
            _HELD[number] = weakref.ref(node, lambda _: _HELD.pop(number, None)), names
    if not names:
        return {}
    left_out, given = unkeyed_names(type(node)), _models_given(node)
    found = {name: _models_in(getattr(node, name, None)) for name in names if name not in left_out}
    found = {name: [one for one in models if id(one) not in given] for name, models in found.items()}
    return {name: models for name, models in found.items() if models}


def _models_given(node: Any) -> set[int]:
    """Those that the node was constructed with, and that count as its arguments."""
    live = [one.live for one in (noted_of(node) or {}).values() if one.digest is None]
    return {id(model) for model in _models_in(live)}


def _models_in(value: Any) -> list[Any]:
    if tensors.loaded() is None:
        return []
    found, pending, seen = [], [value], set()
    while pending:
        value = pending.pop()
        if tensors.is_module(value) or tensors.is_parameter(type(value)):
            found.append(value)
        elif type(value) in (list, tuple, dict) and id(value) not in seen:
            seen.add(id(value))
            within = value.values() if type(value) is dict else value
            pending += [one for one in within if type(one) not in SCALARS][::-1]
    return found


def _private(thing: Any) -> dict[str, Argument]:
    cls = type(thing)
    left_out = unkeyed_names(cls)
    module = tensors.is_module(thing)
    if module:
        if is_library(cls.__module__):
            return {}
        left_out |= tensors.own_attributes()
    held = {
        name: noted(value, f"`{name}`")
        for name, value in held_by(thing).items()
        if name[:1] == "_" and name not in left_out and not is_apart(value)
    }
    if module and any(map(_extends, cls.__mro__)):
        return {name: one for name, one in held.items() if one.wrong is None}
    return held


def _extends(base: type) -> bool:
    """Whether a class is of a library and knows more than every Module does."""
    return is_library(base.__module__) and base.__qualname__ not in ("object", "Module")

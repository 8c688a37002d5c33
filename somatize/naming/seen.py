"""What an object of a library keeps to itself, as it was when it was first looked at.

Nobody sees who assigns what a library's object has under an underscore, and what it was made with has such names too:
so these attributes stand, as they were at first, for the arguments. A Module's are torch's own business.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Any

from somatize.codecs import tensors

from .constructed import Argument, noted
from .module_origin import is_apart
from .public import held_by, unkeyed_names

_SEEN: dict[int, tuple[weakref.ref[Any], dict[str, Argument | None]]] = {}
"""What was named of each object; None for what is looked at as it is, so that nothing here keeps an object alive."""


def first_seen(thing: Any) -> dict[str, Argument]:
    """The attributes with a leading underscore, named as they were when this was first asked of the object.

    What cannot be named has an `Argument` that says so.
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


def _private(thing: Any) -> dict[str, Argument]:
    cls = type(thing)
    if tensors.is_module(thing):
        return {}
    left_out = unkeyed_names(cls)
    return {
        name: noted(value, f"`{name}`")
        for name, value in held_by(thing).items()
        if name[:1] == "_" and name not in left_out and not is_apart(value)
    }

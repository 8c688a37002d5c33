"""What a node was made of, in words: its class, and the arguments of its constructor as far as they can be seen."""

from __future__ import annotations

import inspect
import reprlib
from functools import partial
from typing import Any

from .theme import cut

_MOST_LETTERS, _MOST_ARGUMENTS = 60, 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset, range)
_MISSING = object()


def class_of(thing: Any) -> str:
    """The name of a thing's class, or of a function, with the module it is from."""
    while isinstance(thing, partial):
        thing = thing.func
    named = thing if isinstance(getattr(thing, "__qualname__", None), str) else type(thing)
    return f"{named.__module__}.{named.__qualname__}".removeprefix("__main__.").removeprefix("builtins.")


def arguments_of(thing: Any) -> list[tuple[str, str]]:
    """Each argument of a thing's constructor that is there as a public attribute, and its value in words.

    Never runs code of the thing's own: a value is shown in full if it is of a plain type, else by what kind it is.
    """
    if isinstance(thing, partial):
        given = [(str(place), value) for place, value in enumerate(thing.args)] + list(thing.keywords.items())
        return [(name, shown(value)) for name, value in given[:_MOST_ARGUMENTS]]
    try:
        names = list(inspect.signature(type(thing)).parameters) if not inspect.isroutine(thing) else []
    except (TypeError, ValueError):
        return []
    found = [(name, _attribute(thing, name)) for name in names if not name.startswith("_")]
    return [(name, shown(value)) for name, value in found if value is not _MISSING][:_MOST_ARGUMENTS]


def _attribute(thing: Any, name: str) -> Any:
    try:
        return inspect.getattr_static(thing, name) if not _is_kept_apart(thing, name) else _kept_apart(thing, name)
    except AttributeError:
        return _MISSING


def _is_kept_apart(thing: Any, name: str) -> bool:
    return name not in getattr(thing, "__dict__", {}) and _kept_apart(thing, name) is not _MISSING


def _kept_apart(thing: Any, name: str) -> Any:
    """What a torch Module holds under a name, in the places where it keeps such things, or a slot."""
    for place in ("_parameters", "_modules", "_buffers"):
        held = getattr(thing, "__dict__", {}).get(place)
        if isinstance(held, dict) and name in held:
            return held[name]
    slot = getattr(type(thing), name, None)
    if inspect.ismemberdescriptor(slot):
        return slot.__get__(thing)
    return _MISSING


def shown(value: Any) -> str:
    """A value in a few letters."""
    if type(value) in _PLAIN:
        return cut(_short.repr(value), _MOST_LETTERS)
    kind = type(value).__name__
    if isinstance(value, type) or inspect.isroutine(value):
        return cut(str(getattr(value, "__qualname__", kind)), _MOST_LETTERS)
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return f"<{kind} of {' × '.join(str(int(size)) for size in shape) or 'one'}>"
    except Exception:  # an object that looks like an array and is none
        return f"<{kind}>"
    return f"<{kind}>"


class _Short(reprlib.Repr):
    """`reprlib`, but an object inside a container is shown by its kind: its own repr may be long, slow or wrong."""

    def repr_instance(self, x: Any, level: int) -> str:
        return super().repr_instance(x, level) if type(x) in _PLAIN else shown(x)


_short = _Short()
_short.maxstring = _short.maxother = _MOST_LETTERS

"""The arguments that a `Node` was constructed with, noted as it is made.

An argument is named at once, because it may change later or be gone. Functions, classes and torch's modules are held
instead and named when a name is needed; so are arguments that are so large that naming them would be felt where nothing
is ever kept.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import math
import types
from typing import Any
from weakref import WeakKeyDictionary

from somatize.codecs import tensors
from somatize.codecs.serializer import SCALARS
from somatize.errors import Unnameable

from .content_digest import Expansion, content
from .digests import worded
from .module_origin import is_library

_MET = worded("met")
_KINDS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    functools.partial,
    type(functools.lru_cache(len)),
)


class MutabilityProbe:
    """Takes the place of what resolves functions, classes, torch's modules and nodes, and tells if any was met."""

    def __init__(self) -> None:
        self.met = False
        self.classes: dict[type, None] = {}

    def code_of(self, cls: type) -> bytes | None:
        if not is_library(cls.__module__):
            self.classes[cls] = None
        return None

    def __call__(self, value: Any, last: bool) -> Expansion | None:
        node = hasattr(type(value), "__somatize_node__")
        named = callable(value) and isinstance(getattr(value, "__qualname__", None), str)
        if last or not (node or named or isinstance(value, _KINDS) or tensors.is_module(value)):
            return None
        self.met = True
        return Expansion(_MET, [])


_NOTED = "_somatize_arguments"
"""The attribute of an instance that holds its arguments; it is copied and pickled along."""


class Argument:
    """One bound argument: its digest and its text for messages; or the held object; or why it has no name.

    With a digest, what is held are the classes of the objects in it.
    """

    __slots__ = ("digest", "live", "shown", "wrong")

    def __init__(self, digest: bytes | None, shown: str = "", live: Any = None, wrong: str | None = None) -> None:
        self.digest = digest
        self.shown = shown
        self.live = live
        self.wrong = wrong

    def __reduce__(self) -> tuple[Any, ...]:
        return Argument, (self.digest, self.shown, self.live, self.wrong)


_LARGE, _EACH = 1 << 26, 256
"""Bytes from which on an argument is held and not named, and what an element of a container counts for."""

_SIGNATURES: WeakKeyDictionary[type, inspect.Signature] = WeakKeyDictionary()


def record(node: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note the arguments of a node under construction. Raises `TypeError` if its class takes none."""
    cls = type(node)
    if cls.__init__ is object.__init__:
        if args or kwargs:
            raise TypeError(f"{cls.__name__}() takes no arguments")
        return
    try:
        bound = _signature(cls).bind(node, *args, **kwargs)
    except TypeError:
        return  # its constructor says so itself; or it is being put together again, and has them already
    bound.apply_defaults()
    (_, *given) = bound.arguments.items()
    keep(node, {name: noted(value, f"`{name}`") for name, value in _flat(given, bound.signature)})


def keep(node: Any, arguments: dict[str, Argument]) -> None:
    # Past any __setattr__: a torch Module refuses attributes before it is initialised, a frozen dataclass all.
    node.__dict__[_NOTED] = arguments


def noted_of(node: Any) -> dict[str, Argument] | None:
    """The arguments that were noted, or None."""
    found: dict[str, Argument] | None = getattr(node, "__dict__", {}).get(_NOTED)
    return found


def again(node: Any, reduced: Any) -> Any:
    """Reconstruct a node with its arguments, which a `__setstate__` of its class may not restore."""
    if isinstance(reduced, tuple) and reduced[0] is copyreg.__newobj__:  # type: ignore[attr-defined]
        return _again, (noted_of(node), *reduced[1]), *reduced[2:]
    return reduced


def _again(arguments: dict[str, Argument] | None, cls: Any, *args: Any) -> Any:
    made = cls.__new__(cls, *args)
    made.__dict__.pop(_NOTED, None)
    if arguments is not None:
        keep(made, arguments)
    return made


def is_node(thing: Any) -> bool:
    """Whether a thing notes its arguments, so that it can be named from them."""
    return hasattr(type(thing), "__somatize_node__")


def arguments_of(node: Any) -> dict[str, Argument]:
    """The arguments a node was constructed with. Raises `Unnameable` where they are not known."""
    found = noted_of(node)
    if found is not None:
        return found
    cls = type(node)
    if cls.__init__ is object.__init__ or len(_signature(cls).parameters) < 2:
        return {}
    raise Unnameable(
        f"is a {cls.__qualname__} whose constructor's arguments are not known: its __new__, its __reduce__ or "
        "something that emptied its __dict__ kept them away from Node; hand them to super().__new__(cls, *args)"
    )


def noted(value: Any, place: str) -> Argument:
    """One argument, named as it is now."""
    if is_large(value):
        return Argument(None, live=value)
    probe = MutabilityProbe()
    try:
        digest = content(value, place, probe)
    except Unnameable as refused:
        return Argument(None, wrong=str(refused))
    return Argument(None, live=value) if probe.met else Argument(digest, shown(value), tuple(probe.classes) or None)


def is_large(value: Any) -> bool:
    """Whether naming a value would take tens of milliseconds, so that it waits until a name is needed."""
    shape = getattr(value, "shape", None)
    size = getattr(value, "nbytes", None)
    if size is None and type(shape) is tuple and set(map(type, shape)) <= {int}:  # a frame
        size = math.prod(shape) * 8
    if isinstance(value, list | tuple | dict | set | frozenset):
        size = len(value) * _EACH
    elif isinstance(value, str | bytes | bytearray):
        size = len(value)
    return isinstance(size, int) and size > _LARGE


def shown(value: Any) -> str:
    """A short scalar as source text, for messages; empty for other values."""
    text = repr(value) if type(value) in SCALARS else ""
    return text if len(text) <= 40 else ""


def _signature(cls: Any) -> inspect.Signature:
    found = _SIGNATURES.get(cls)
    if found is None:
        found = _SIGNATURES[cls] = inspect.signature(cls.__init__)
    return found


def _flat(given: list[tuple[str, Any]], signature: inspect.Signature) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in given:
        kind = signature.parameters[name].kind
        flat += value.items() if kind is inspect.Parameter.VAR_KEYWORD else [(name, value)]
    return flat

"""Attributes of objects, and the objects that lie in values.

Attributes are public, private or working state. One counts in a name unless only `forward`, or methods that only it
calls, assigns it anything but None: it is then made by a run, as a model that is loaded when the node first runs, and
is absent where the result is recalled. Assignments are read from the code of the class; a class that assigns
attributes by computed names has no working state.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from operator import is_
from typing import Any, NamedTuple

from somatize.codecs import tensors
from somatize.codecs.serializer import SCALARS

from .bytecode import Uses, read, uses_of
from .module_origin import is_apart, is_library


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
    return held | {name: value for name, value in slots_of(thing) if not name.startswith("__")}


def slots_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """The slots of a thing that are filled, and their values."""
    for base in type(thing).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name, getattr(thing, name)


_OURS = "_somatize_"
_COPYING = {
    *("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "__repr__"),
    *("__eq__", "__hash__", "__del__"),
}
"""Methods that may go through all attributes without giving them new values."""


def private_of(thing: Any, entry: str = "forward") -> dict[str, Any]:
    """The attributes with a leading underscore that count, as they are now; `entry` is the method that a run calls.

    Neutral ones are left out (`module_origin.is_apart`), and so is what a Module keeps as torch's.
    """
    cls = type(thing)
    held = held_by(thing)
    names = [name for name in held if name[:1] == "_"]
    if not names:
        return {}
    left_out = unkeyed_names(cls)
    if tensors.is_module(thing):
        left_out |= tensors.own_attributes()
    left_out |= _class_of(cls).inherited
    names = [name for name in names if name not in left_out and not name.startswith((_OURS, "__"))]
    if not names:
        return {}
    working = working_names(cls, entry)
    if working:
        working -= _held_at_first(thing, held, working)
    return {name: held[name] for name in names if name not in working and not is_apart(held[name])}


_FIRST: dict[int, tuple[weakref.ref[Any], frozenset[str]]] = {}


def _held_at_first(thing: Any, held: dict[str, Any], working: frozenset[str]) -> frozenset[str]:
    """Private attributes that were there when the object was first seen, so that their origin is unknown."""
    number = id(thing)
    known = _FIRST.get(number)
    if known is not None and known[0]() is thing:
        return known[1]
    found = frozenset(name for name in working if held.get(name) is not None)
    with suppress(TypeError):  # no weak reference possible: it is looked at each time
        _FIRST[number] = weakref.ref(thing, lambda _: _FIRST.pop(number, None)), found
    return found


class _Class(NamedTuple):
    """How the code of a class uses its attributes; valid as long as its members are the same."""

    members: list[tuple[type, tuple[Any, ...]]]
    working: dict[str, frozenset[str]]
    inherited: frozenset[str]


_CLASSES: weakref.WeakKeyDictionary[type, _Class] = weakref.WeakKeyDictionary()


def _class_of(cls: type) -> _Class:
    known = _CLASSES.get(cls)
    if known is None or not all(_same(base, values) for base, values in known.members):
        members = [(base, tuple(vars(base).values())) for base in cls.__mro__ if not is_library(base.__module__)]
        known = _CLASSES[cls] = _Class(members, {}, _of_libraries(cls))
    return known


def _same(base: type, values: tuple[Any, ...]) -> bool:
    now = vars(base).values()
    return len(now) == len(values) and all(map(is_, now, values))


def _of_libraries(cls: type) -> frozenset[str]:
    """The attributes that the code of a library's class assigns that this one extends, and its own does not."""
    found: set[str] = set()
    own: set[str] = set()
    for base in cls.__mro__:
        if base.__qualname__ in _PLAIN_BASES or base.__module__ == "builtins":
            continue
        for member in vars(base).values():
            for function in _functions_in(member):
                uses = uses_of(function.__code__)
                if is_library(base.__module__):
                    found |= uses.assigned | uses.texts
                else:
                    own |= uses.assigned | uses.texts
    return frozenset(found - own)


_PLAIN_BASES = {"object", "Module", "Node", "ABC", "Generic", "Protocol"}


def working_names(cls: type, entry: str) -> frozenset[str]:
    """The attributes that only the method `entry` of a class, and what only it calls, assigns anything but None."""
    known = _class_of(cls)
    found = known.working.get(entry)
    if found is None:
        found = known.working[entry] = _working_names(cls, entry)
    return found


def _working_names(cls: type, entry: str) -> frozenset[str]:
    methods = dict(_methods(cls))
    mine = _called_only_by(entry, methods)
    found: set[str] = {name for method in mine for name in methods[method].assigned if name[:1] == "_"}
    for name, uses in methods.items() if found else ():
        if name in mine:
            continue
        if uses.any_attribute and name not in _COPYING:
            return frozenset()
        found -= uses.assigned | uses.texts
    return frozenset(found)


def _methods(cls: type) -> Iterator[tuple[str, Uses]]:
    """The code of a class and of all it inherits but for libraries', by name; of one that is overridden, all of it."""
    count = 0
    for base in cls.__mro__:
        if is_library(base.__module__):
            continue
        for name, member in vars(base).items():
            for at, function in enumerate(_functions_in(member)):
                count += 1
                yield name if at == 0 and base is cls else f"{name} {count}", uses_of(function.__code__)


def _functions_in(member: Any) -> Iterator[types.FunctionType]:
    """The functions of a member of a class, the one it is called by first; a property's setter is another method."""
    pending: list[Any] = [member]
    while pending:
        one = pending.pop(0)
        if isinstance(one, types.FunctionType):
            yield one
        if isinstance(one, property):
            pending += [one.fget, one.fset, one.fdel]
        elif isinstance(one, functools.cached_property):
            pending.append(one.func)
        else:
            pending += [held for name in ("__func__", "__wrapped__") if (held := getattr(one, name, None)) is not None]


def _called_only_by(entry: str, methods: dict[str, Uses]) -> set[str]:
    """The methods of a class that are called only by `entry` methods."""
    if entry not in methods:
        return set()
    mine, pending = {entry}, [entry]
    while pending:
        called = methods[pending.pop()].attributes
        fresh = {name for name in methods if name in called and name not in mine and not _is_special(name)}
        mine |= fresh
        pending += fresh
    others: Iterable[str] = set(methods) - mine
    while others:
        called_elsewhere = {name for other in others for name in methods[other].attributes}
        others = {name for name in mine if name in called_elsewhere and name != entry}
        mine -= others
    return mine


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


_PLAIN = SCALARS | {
    complex, range, bytearray, dt.date, dt.time, dt.datetime, dt.timedelta, re.Pattern, types.ModuleType,
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MemberDescriptorType,
    types.GetSetDescriptorType, types.EllipsisType, types.NotImplementedType,
}  # fmt: skip
"""Types that contain no other objects."""
_CONTAINERS = {list, tuple, set, frozenset, deque, dict}
_KNOWN = _PLAIN | _CONTAINERS


def objects_in(value: Any, *, code: bool = False) -> Iterator[Any]:
    """Each object in `value`, and `value` itself, but for scalars and for lists, tuples, sets and dicts.

    They are found in containers, attributes, slots, closures and partials; with `code`, also in classes and in what
    the code of functions names, unless that is a library's. The time is linear in what there is, and plain rows of
    scalars take little of it.
    """
    seen: dict[int, Any] = {}  # held, so that the ids stay theirs
    level: list[Any] = [value]
    depth = 0
    while level:
        kinds = set(map(type, level))
        if kinds <= _PLAIN:
            return
        depth += 1
        below: list[Iterable[Any]] = []
        for cls in kinds & _CONTAINERS:
            held: list[Any] = level if len(kinds) == 1 else [one for one in level if type(one) is cls]
            if depth > _UNSHARED or sum(map(len, held)) > _MANY:
                held = _unseen(held, seen)
            if cls is dict:
                below.append(chain.from_iterable(map(dict.values, held)))
                if not set(map(type, chain.from_iterable(held))) <= _PLAIN:
                    below.append(chain.from_iterable(held))
            else:
                below.append(chain.from_iterable(held))
        if not kinds <= _KNOWN:
            for one in _unseen([one for one in level if type(one) not in _KNOWN], seen):
                yield one
                below.append(_parts(one, code))
        level = list(chain.from_iterable(below))


_UNSHARED, _MANY = 12, 1 << 22
"""Limits of depth and size beyond which containers are checked for being visited twice."""


def _unseen(things: list[Any], seen: dict[int, Any]) -> list[Any]:
    fresh = dict(zip(map(id, things), things, strict=True))
    for known in fresh.keys() & seen.keys():
        del fresh[known]
    seen.update(fresh)
    return list(fresh.values())


def _parts(thing: Any, code: bool) -> list[Any]:
    try:
        if isinstance(thing, types.FunctionType):
            return _of_function(thing, code)
        if isinstance(thing, type):
            return [] if not code or is_library(thing.__module__) else [*thing.__bases__, *vars(thing).values()]
        scripted = tensors.parts_of_scripted(thing)
        return scripted if scripted is not None else [*_held(thing), *([type(thing)] if code else [])]
    except Exception:  # an object may raise when its attributes are read
        return []


def _held(thing: Any) -> list[Any]:
    if isinstance(thing, types.MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, functools.partial | functools.partialmethod):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, property):
        return [thing.fget]
    if isinstance(thing, staticmethod | classmethod):
        return [thing.__func__]
    if isinstance(thing, types.MappingProxyType):
        return [*thing.keys(), *thing.values()]
    if getattr(getattr(thing, "dtype", None), "hasobject", False):  # an array of numpy
        return [thing.tolist()]
    parts = [*held_by(thing).values()]
    plain: Any
    for plain in _CONTAINERS:
        if isinstance(thing, plain):
            parts += plain.__iter__(thing)
            parts += dict.values(thing) if plain is dict else ()
    return parts


def _of_function(function: types.FunctionType, code: bool) -> list[Any]:
    parts: list[Any] = [function.__defaults__, function.__kwdefaults__, function.__dict__]
    for cell in function.__closure__ or ():
        try:
            parts.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    if code and not is_library(function.__module__ or ""):
        parts += [function.__globals__.get(name) for name in read(function.__code__).names]
    return parts


def carries_gradient(value: Any) -> bool:
    """Whether a gradient has to flow through a tensor or a Module's parameter anywhere in `value`."""
    if type(value) in SCALARS or not tensors.watches_gradients():
        return False
    try:
        return any(map(tensors.carries_gradient, objects_in(value)))
    except RuntimeError:  # another thread changes it just now
        return True


def training_in(thing: Any) -> str | None:
    """The random numbers or running statistics of a node's Modules in training mode, in a few words; None if none."""
    if tensors.loaded() is None:
        return None
    training = False
    reading: list[types.FunctionType] = []
    methods: set[int] = set()  # which are looked at with their Module
    for one in objects_in(thing, code=True):
        if tensors.is_module(one):
            training = training or one.training
            words = tensors.in_training(one)
            if words is not None:
                return words
        elif isinstance(one, types.FunctionType):
            reading += [one] if tensors.reads_training(one) else []
        elif isinstance(one, type) and tensors.is_module_class(one):
            methods.update(map(id, vars(one).values()))
    reads = any(id(one) not in methods for one in reading)
    return "a Module and code that reads `training`" if training and reads else None

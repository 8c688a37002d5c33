"""The objects that lie in a value, and those among them through which gradients flow or that train."""

from __future__ import annotations

import datetime as dt
import functools
import re
import types
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from somatize.codecs import tensors

from .attributes import held_by
from .bytecode import read
from .digests import SCALARS
from .module_origin import is_library

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
    except Exception:  # an object may raise when it is looked at, and then shows nothing
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

"""Dependencies of a name, held so that a change is detected quickly.

Each watch compares the identity of objects, which it holds so that their ids stay theirs. What may change
while staying the same object is hashed again.
"""

from __future__ import annotations

import datetime as dt
import enum
import importlib.util
import os
import pathlib
import re
import sys
import types
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from operator import is_
from typing import Any
from uuid import UUID

from somatize.codecs import arrays, tensors
from somatize.codecs.serializer import SCALARS
from somatize.errors import Unnameable

from .attributes import attributes_of
from .callables import Resolver
from .content_digest import Expansion, content
from .digests import worded
from .module_origin import is_apart, is_library

MISSING = object()
"""Marker of a name that is not defined."""

_FIXED: frozenset[type] = SCALARS | {
    complex,
    range,
    Decimal,
    Fraction,
    UUID,
    dt.date,
    dt.time,
    dt.datetime,
    dt.timedelta,
    dt.timezone,
    re.Pattern,
    pathlib.PurePosixPath,
    pathlib.PureWindowsPath,
    type(pathlib.Path()),
    types.EllipsisType,
    types.ModuleType,
    types.FunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    property,
    staticmethod,
    classmethod,
    type,
}
"""The types of what never changes what it is named by, and of what others watch."""


def is_fixed(value: Any) -> bool:
    """Whether a value stays what it is as long as it is the same object."""
    cls = type(value)
    if cls in _FIXED:
        return True
    if cls is types.BuiltinFunctionType or cls is types.MethodWrapperType:
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType | type)
    if cls is tuple or cls is frozenset:
        kinds = set(map(type, value))
        return kinds <= _FIXED or (len(value) < 1000 and all(map(_is_fixed_item, value)))
    if isinstance(value, type | enum.Enum) or is_apart(value):
        return True
    if cls.__module__ == "numpy":
        return arrays.is_fixed(value)
    return tensors.plain_words(value) is not None


def _is_fixed_item(value: Any) -> bool:
    return type(value) in _FIXED or (type(value) is tuple and set(map(type, value)) <= _FIXED)


class Watches:
    """A list of things to compare. `hold` says whether all of them are as when they were noted."""

    __slots__ = (
        *("_absent", "_cells", "_classes", "_environment", "_functions", "_globals", "_holders", "_made", "_scopes"),
        *("_values", "state"),
    )

    def __init__(self) -> None:
        self.state = True
        """Whether the state of torch's modules counts, or was named by the user."""
        self._globals: list[tuple[Mapping[str, Any], str, Any]] = []
        self._cells: list[tuple[types.CellType, Any]] = []
        self._functions: list[tuple[Any, Any, Any, Any, int, Any]] = []
        self._classes: list[tuple[type, Any, tuple[Any, ...]]] = []
        self._values: list[tuple[Any, bytes]] = []
        self._made: list[tuple[Callable[[Any], Any], Any, bytes]] = []
        self._holders: list[tuple[Any, type, int, dict[str, Any], Callable[[Any], dict[str, Any]]]] = []
        self._scopes: list[tuple[Mapping[str, Any], tuple[Any, ...]]] = []
        self._environment: list[tuple[str, str | None]] = []
        self._absent: list[str] = []

    def name(self, scope: Mapping[str, Any], name: str, value: Any) -> None:
        self._globals.append((scope, name, value))

    def scope(self, scope: Mapping[str, Any]) -> None:
        """Watch the whole namespace of a module."""
        self._scopes.append((scope, tuple(scope.values())))

    def environment(self, name: str, value: str | None) -> None:
        self._environment.append((name, value))

    def absent(self, module: str) -> None:
        """Watch a module that could not be imported."""
        if not _is_there(module):
            self._absent.append(module)

    def cell(self, cell: types.CellType, value: Any) -> None:
        self._cells.append((cell, value))

    def function(self, function: Any) -> None:
        held = function.__dict__
        has = len(held), held.get("__wrapped__")
        named = function.__kwdefaults__
        self._functions.append((function, function.__code__, function.__defaults__, named and dict(named), *has))

    def members(self, cls: type) -> None:
        self._classes.append((cls, cls.__bases__, tuple(cls.__dict__.values())))

    def attributes(
        self, holder: Any, held: dict[str, Any], now: Callable[[Any], dict[str, Any]] = attributes_of
    ) -> None:
        """The attributes of an object that count, which `now` tells; what may change in them is watched as a value."""
        self._holders.append((holder, type(holder), len(getattr(holder, "__dict__", ())), held, now))

    def value(self, value: Any) -> None:
        """A value whose identity is watched elsewhere, or not needed: hashed again if it may change."""
        if not is_fixed(value):
            self._values.append((value, self._present(value)))

    def made(self, make: Callable[[Any], Any], thing: Any) -> None:
        """A value made from an object each time it is checked."""
        self._made.append((make, thing, self._present(make(thing))))

    def _present(self, value: Any) -> bytes:
        resolver = _BY_IDENTITY if self.state else _BUT_STATE
        try:
            return content(value, "a value", resolver)
        except Unnameable:  # a library's object that refers back to itself, which counted by its plain attributes
            return content(value, "a value", _LOOSELY)

    def hold(self) -> bool:
        """Whether everything is as it was noted."""
        for scope, name, value in self._globals:
            if scope.get(name, MISSING) is not value:
                return False
        for cell, value in self._cells:
            if filling(cell) is not value:
                return False
        for noted in self._functions:
            if not _same_function(*noted):
                return False
        for cls, bases, values in self._classes:
            if cls.__bases__ is not bases or not _same_members(cls, values):
                return False
        for holder, cls, size, held, look in self._holders:
            if type(holder) is not cls or not _same_attributes(holder, size, held, look):
                return False
        if (self._scopes or self._environment or self._absent) and not self._surroundings_hold():
            return False
        return not (self._made or self._values) or self._values_hold()

    def _surroundings_hold(self) -> bool:
        return (
            all(len(scope) == len(values) and all(map(is_, scope.values(), values)) for scope, values in self._scopes)
            and all(os.environ.get(name) == value for name, value in self._environment)
            and not any(map(_is_there, self._absent))
        )

    def _values_hold(self) -> bool:
        for make, thing, digest in self._made:
            if self._present(make(thing)) != digest:
                return False
        return not any(self._present(value) != digest for value, digest in self._values)


def _is_there(module: str) -> bool:
    """Whether a module that could not be imported can be found by now."""
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def filling(cell: types.CellType) -> Any:
    """The content of a closure's cell."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _same_function(function: Any, code: Any, defaults: Any, kwdefaults: Any, size: int, wrapped: Any) -> bool:
    return (
        function.__code__ is code
        and function.__defaults__ is defaults
        and _same_named(function.__kwdefaults__, kwdefaults)
        and len(function.__dict__) == size
        and function.__dict__.get("__wrapped__") is wrapped
    )


def _same_named(now: Any, before: Any) -> bool:
    if not now or not before:
        return not now and not before
    return len(now) == len(before) and all(now.get(name, MISSING) is value for name, value in before.items())


def _same_attributes(holder: Any, size: int, held: dict[str, Any], look: Callable[[Any], dict[str, Any]]) -> bool:
    now = getattr(holder, "__dict__", {})
    if len(now) != size or len(held) > size:
        now = look(holder)
        if len(now) != len(held):
            return False
    for name, value in held.items():
        if now.get(name, MISSING) is not value:
            return False
    return len(held) < 2 or [*filter(held.__contains__, now)] == [*held]  # code can iterate over them


def _same_members(cls: type, values: tuple[Any, ...]) -> bool:
    now = cls.__dict__.values()
    return len(now) == len(values) and all(map(is_, now, values))


def _identity(value: Any) -> Expansion:
    return Expansion(worded("same", id(value)), [])


def _of_library(module: Any) -> bool:
    return type(module) is str and is_library(module)


def _by_identity(*, state: bool) -> Resolver:
    # Values without a name were refused when the name was made; here they are only compared.
    made = Resolver(_identity, _of_library)
    made.code = made.library = made.watching = True
    made.state = state
    return made


# For digests that are valid in this process only: code and objects are identified by id.
_BY_IDENTITY, _BUT_STATE = _by_identity(state=True), _by_identity(state=False)
_LOOSELY = _by_identity(state=True)
_LOOSELY.watching = False

"""The modules that go along by value, and whether they are as they were when they last went."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from itertools import count
from operator import is_
from typing import Any

_SCALARS = (str, bytes, int, float, complex, bool, type(None))
_MOST = 1000
"""Values in the containers of a module that are compared one by one; of more, only which container it is."""


class Alongside:
    """Some modules, each with those below it; `version` tells that one of them is another."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._numbers = count()
        self._version = next(self._numbers)
        self._seen = -1
        self._modules: list[types.ModuleType] = []
        self._held: list[Any] = []
        self._plain: list[Any] = []

    def version(self) -> int:
        """Another number once a module was reloaded, or something in one of them, or in a class of one, was replaced.

        In lists, dicts and sets of plain values an edit in place counts too.
        """
        held: list[Any] = []
        plain: list[Any] = []
        for module in self._loaded():
            _look(vars(module), module.__name__, held, plain)
        same = len(held) == len(self._held) and all(map(is_, held, self._held)) and plain == self._plain
        if not same:
            self._held, self._plain, self._version = held, plain, next(self._numbers)
        return self._version

    def _loaded(self) -> list[types.ModuleType]:
        if len(sys.modules) != self._seen:
            self._seen = len(sys.modules)
            self._modules = [module for name, module in list(sys.modules.items()) if self._is_ours(name)]
        return self._modules

    def _is_ours(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self._names)


def _look(scope: Mapping[str, Any], home: str, held: list[Any], plain: list[Any]) -> None:
    """Gather what is compared by identity, and copies of what is compared by its content."""
    for name, value in list(scope.items()):
        if name[:2] == "__":
            continue
        held += (name, value)
        if isinstance(value, type) and value.__module__ == home:
            held += vars(value).values()
        elif isinstance(value, list | dict | set):
            plain.append(_copy(value, [_MOST]))


def _copy(value: Any, room: list[int]) -> Any:
    """What a container holds, as something that stays as it is; what is not plain, as its identity."""
    room[0] -= 1
    if isinstance(value, _SCALARS):
        return type(value), value
    if not isinstance(value, list | tuple | dict | set) or room[0] < len(value):
        return id(value)
    if isinstance(value, dict):
        return "dict", [(_copy(key, room), _copy(one, room)) for key, one in value.items()]
    return type(value), [_copy(one, room) for one in value]

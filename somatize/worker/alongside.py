"""The modules that go along by value, and whether they are as they were when they last went."""

from __future__ import annotations

import sys
import types
from operator import is_
from typing import Any

_SCALARS = (str, bytes, int, float, complex, bool, type(None))
_MOST = 1000
"""Values in the containers of a module that are compared one by one; of more, only which container it is."""

_DEEPEST = 20


class Alongside:
    """Some modules, each with those below it; `version` tells that one of them is another."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._version = 0
        self._loaded = -1
        self._looks: list[_Look] = []

    def version(self) -> int:
        """Another number once a module was reloaded, or something in one of them, or in a class of one, was replaced.

        In lists, dicts and sets of plain values an edit in place counts too. Costs some nanoseconds a name.
        """
        if len(sys.modules) != self._loaded or not all(look.holds() for look in self._looks):
            self._loaded = len(sys.modules)
            looks = [_Look(name, module) for name, module in list(sys.modules.items()) if self._has(name)]
            if len(looks) != len(self._looks) or not all(look.holds() for look in self._looks):
                self._version += 1
            self._looks = looks
        return self._version

    def _has(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self._names)


class _Look:
    """One module as it was looked at."""

    def __init__(self, name: str, module: types.ModuleType) -> None:
        self._name, self._module = name, module
        self._scope = vars(module)
        self._names, self._values = list(self._scope), list(self._scope.values())
        mine = [value for own, value in zip(self._names, self._values, strict=True) if own[:2] != "__"]
        classes = [value for value in mine if isinstance(value, type) and value.__module__ == module.__name__]
        self._classes = [(cls, list(vars(cls).values())) for cls in classes]
        self._held = [(value, _copy(value, [_MOST])) for value in mine if isinstance(value, list | dict | set)]

    def holds(self) -> bool:
        """Whether it is still so."""
        return (
            sys.modules.get(self._name) is self._module
            and _same(list(self._scope.values()), self._values)
            and list(self._scope) == self._names
            and all(_same(list(vars(cls).values()), members) for cls, members in self._classes)
            and all(_copy(value, [_MOST]) == copy for value, copy in self._held)
        )


def _same(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def _copy(value: Any, room: list[int], depth: int = _DEEPEST) -> Any:
    """What a container holds, as something that stays as it is; what is not plain, as its identity."""
    room[0] -= 1
    if isinstance(value, _SCALARS):
        return type(value), value
    if not isinstance(value, list | tuple | dict | set) or room[0] < len(value) or not depth:
        return id(value)
    if isinstance(value, dict):
        return dict, [(_copy(key, room, depth - 1), _copy(one, room, depth - 1)) for key, one in value.items()]
    return type(value), [_copy(one, room, depth - 1) for one in value]

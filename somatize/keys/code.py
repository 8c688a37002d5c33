"""The code that a node runs, followed from its class or function to what it refers to in the same module.

Each function and class that is reached is a *unit* with a digest of its own, which says what else it refers to by the
name of that, so that circles need no care and an edit shows in the unit that was edited. What is a value
(a global, a captured variable, a class attribute) stands beside the units, by name.

Followed are the functions and classes of the modules where the node's own code lies; those that no module has under
their name: lambdas, closures, what was typed in a cell; and those that were handed over, as an argument, an attribute
or a captured variable, unless they are of an installed library. All else of other modules counts by its qualified name.
"""

from __future__ import annotations

import enum
import sys
import types
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from somatize.errors import Unnameable

from .bytecode import read
from .constructed import shown
from .content import content
from .expansion import Expansion, class_words
from .hashing import worded
from .outside import is_apart, is_library
from .public import attributes_of, unkeyed_names
from .things import Resolver, is_importable, named_words
from .watches import MISSING, Watches, filling

Said = list[str]
"""A value as the parts of a name have it: its digest as hex, and as it is shown, or an empty text."""

_OF_MODULE = {"__name__", "__file__", "__doc__", "__spec__", "__loader__", "__package__", "__builtins__", "__path__"}


class Code(NamedTuple):
    """The code a node runs: digests of its units, and of the values it takes from around it, all by name."""

    digest: bytes

    units: Mapping[str, str]
    globals: Mapping[str, Said]
    captured: Mapping[str, Said]
    watches: Watches


class Reach:
    """Follows code and gathers what it is made of."""

    def __init__(self, ignoring: Iterable[str] = ()) -> None:
        self.resolver = Resolver(self._named)
        self.watches = Watches()
        self._ignoring = frozenset(ignoring)
        self._homes: set[str] = set()
        self._roots: set[int] = set()
        self._here: set[str] = set()
        self._units: dict[str, str] = {}
        self._globals: dict[str, Said] = {}
        self._captured: dict[str, Said] = {}
        self._keys: dict[int, str] = {}
        self._handed = True  # whether what is looked at was handed over, and not referred to by its name
        self._taken: dict[str, Any] = {}
        self._todo: deque[tuple[str, Any]] = deque()

    def root(self, thing: Any, place: str = "the node") -> bytes:
        """The digest of a thing whose own code is followed, whatever module it is of, down to what it wraps."""
        for home in _wrapped(thing):
            self._roots.add(id(home))
            self._homes.update(_modules(home))
            if isinstance(home, type):  # what it inherits is its own code, wherever that lies
                self._homes.update(base.__module__ for base in home.__mro__ if not is_library(base.__module__))
        return self.value(thing, place)

    def value(self, value: Any, place: str) -> bytes:
        """The digest of a value; code in it is followed. Raises `Unnameable`."""
        if value is None:
            return _NONE
        found = content(value, place, self.resolver)
        self.watches.value(value)
        return found

    def now(self, value: Any, place: str) -> bytes:
        """`value`, for what is watched otherwise."""
        return content(value, place, self.resolver)

    def ahead(self) -> list[Any]:
        """The functions and classes that were met and are still to be gone through."""
        return [thing for _, thing in self._todo]

    def code(self) -> Code:
        """All that was reached, once it has been gone through."""
        self.resolver.code = True
        while self._todo:
            key, thing = self._todo.popleft()
            self._here = _modules(thing)
            self.resolver.library = is_library(_home(thing))
            unit = self._class(key, thing) if isinstance(thing, type) else self._function(key, thing)
            self._units[key] = unit.hex()
        self._here, self.resolver.library, self.resolver.code = set(), False, False
        parts: tuple[Mapping[str, Any], ...] = (self._units, self._globals, self._captured)
        digest = worded("code", *[_plain(part) for part in parts]) if any(parts) else NO_CODE
        return Code(digest, self._units, self._globals, self._captured, self.watches)

    def _named(self, value: Any) -> Expansion:
        if self._follows(value):
            return Expansion(worded("code", self._key(value)), [])
        return Expansion(worded("of", *named_words(value)), [])

    def _follows(self, value: Any) -> bool:
        if isinstance(value, type) and not value.__flags__ & _HEAP_TYPE:
            return False
        modules = _modules(value)
        if modules & self._homes or modules & self._here or "__main__" in modules:
            return True
        return (self._handed and not any(map(is_library, modules))) or not is_importable(value)

    def _key(self, value: Any) -> str:
        key = self._keys.get(id(value))
        if key is not None:
            return key
        module, name = named_words(value)
        base = key = f"{module}:{name}"
        count = 1
        while key in self._taken:
            count += 1
            key = f"{base}#{count}"
        self._taken[key] = value
        self._keys[id(value)] = key
        self._todo.append((key, value))
        return key

    # Functions

    def _function(self, key: str, function: types.FunctionType) -> bytes:
        self.watches.function(function)
        code = read(function.__code__)
        refers = [[name, self._global(function.__globals__, name)] for name in code.names]
        words = [self._default(key, value) for value in function.__defaults__ or ()]
        named = [[name, self._default(key, value)] for name, value in sorted((function.__kwdefaults__ or {}).items())]
        wrapped = self.value(function.__dict__.get("__wrapped__"), f"what {key} wraps")
        if function.__dict__ and id(function) not in self._roots:
            self._held_by(key, function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            refers.append([name, self._cell(key, name, cell)])
        return worded("function", code.digest, words, named, wrapped, refers)

    def _held_by(self, key: str, function: types.FunctionType) -> None:
        """What was put on a function, as an attribute of it; of the node's own that is said elsewhere."""
        held = attributes_of(function)
        self.watches.attributes(function, held)
        for name, value in sorted(held.items()):
            if name not in self._ignoring and not is_apart(value):
                digest = self.value(value, f"`{name}`, an attribute of {key},")
                self._globals[f"{key}.{name}"] = [digest.hex(), shown(value)]

    def _default(self, key: str, value: Any) -> bytes:
        return self.value(value, f"a default of {key}")

    def _cell(self, key: str, name: str, cell: types.CellType) -> bytes | None:
        value = filling(cell)
        self.watches.cell(cell, value)
        if value is MISSING or name in self._ignoring or is_apart(value):
            return None
        digest = self.value(value, f"`{name}`, captured by {key},")
        if _is_code(value):
            return digest
        self._captured[f"{key}.{name}"] = [digest.hex(), shown(value)]
        return None

    def _global(self, scope: dict[str, Any], name: str) -> bytes | None:
        module = str(scope.get("__name__"))
        if name in _OF_MODULE or name in self._ignoring or f"{module}.{name}" in self._ignoring:
            return None
        value = scope.get(name, MISSING)
        self.watches.name(scope, name, value)
        if value is MISSING or is_apart(value):
            return None
        self.resolver.stopping = not self.resolver.library
        self._handed = False
        try:
            digest = self.value(value, f"the global `{name}` of {module}")
        except Unnameable as stopped:
            raise Unnameable(
                f"{stopped}; where the result does not depend on it, .cached(ignoring=[{name!r}])"
            ) from None
        finally:
            self.resolver.stopping = False
            self._handed = True
        if _is_code(value):
            return digest
        self._globals[f"{module}:{name}"] = [digest.hex(), shown(value)]
        return None

    # Classes

    def _class(self, key: str, cls: type) -> bytes:
        self._handed = False
        try:
            return self._class_digest(key, cls)
        finally:
            self._handed = True

    def _class_digest(self, key: str, cls: type) -> bytes:
        self.watches.members(cls)
        words = [self.value((*cls.__bases__, type(cls)), f"the bases of {key}")]
        left_out = unkeyed_names(cls)
        if issubclass(cls, enum.Enum):
            words.append(self.value(tuple(cls.__members__.items()), f"the members of {key}"))
            members = {name: value for name, value in vars(cls).items() if _is_own_function(value, cls)}
        else:
            shown = {name: value for name, value in vars(cls).items() if name not in left_out}
            members = {name: value for name, value in shown.items() if _counts(name, value)}
        return worded("class", *words, [[name, self._member(key, name, members[name])] for name in sorted(members)])

    def _member(self, key: str, name: str, value: Any) -> bytes | None:
        try:
            digest = self.value(value, f"{key}.{name}")
        except Unnameable:
            if name.startswith("_"):
                return None  # working state of the class
            raise
        if _is_code(value):
            return digest
        self._globals[f"{key}.{name}"] = [digest.hex(), shown(value)]
        return None


_NONE = content(None)
NO_CODE = worded("code", [], [], [])


def _plain(part: Mapping[str, Any]) -> list[Any]:
    """The digests of a part in an order that is always the same, without how values are shown."""
    return [[name, said if isinstance(said, str) else said[0]] for name, said in sorted(part.items())]


_HEAP_TYPE = 1 << 9


def _modules(thing: Any) -> set[str]:
    """The modules that a function or class is of: the one it names, and the one whose globals it reads."""
    found = {str(getattr(thing, "__module__", None))}
    scope = getattr(thing, "__globals__", None)
    return found if scope is None else found | {str(scope.get("__name__"))}


def _home(thing: Any) -> str:
    """The module whose names a function or class reads; a wrapper says it is of the module of what it wraps."""
    scope = getattr(thing, "__globals__", None)
    return str(thing.__module__ if scope is None else scope.get("__name__"))


def _wrapped(thing: Any) -> Iterable[Any]:
    seen: set[int] = set()
    while id(thing) not in seen:
        seen.add(id(thing))
        yield thing
        for name in ("func", "__func__", "__wrapped__"):
            thing = getattr(thing, name, thing)


def _is_code(value: Any) -> bool:
    """Whether a value is no value but code, or a door to some."""
    return isinstance(value, _CODE) or hasattr(value, "__get__")


_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodType)


def _counts(name: str, value: Any) -> bool:
    """Whether a member of a class says what it does: of the dunder names, which Python fills too, only code does."""
    if name in _FILLED or isinstance(value, types.MemberDescriptorType):
        return False
    return not (name.startswith("__") and name.endswith("__")) or callable(value) or hasattr(value, "__get__")


_FILLED = {"__dict__", "__weakref__", "_abc_impl", "__annotate__", "__annotate_func__"}
"""What Python fills in; from 3.14 on annotations are functions, and they say no more of what a class does."""


def _is_own_function(value: Any, cls: type) -> bool:
    function = getattr(value, "__func__", getattr(value, "fget", value))
    return isinstance(function, types.FunctionType) and function.__globals__.get("__name__") == cls.__module__


def title(thing: Any) -> str:
    """What a function or a class is called: its module and its name there."""
    module, name = class_words(thing) if isinstance(thing, type) else named_words(thing)
    return name if module == "None" else f"{module}.{name}"


PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

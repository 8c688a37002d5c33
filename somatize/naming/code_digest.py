"""The code that a node runs, followed from its class or function to all it refers to in the user's project.

Each function and class that is reached is a *unit* with a digest of its own, which says what else it refers to by the
name of that, so that circles need no care and an edit shows in the unit that was edited. What is a value
(a global, an attribute of a module, a captured variable, a class attribute) stands beside the units, by name.

Followed are all functions and classes of the project: those of modules that are neither Python's nor part of an
installed distribution (`module_origin.origin`), and those that no module has under their name, such as lambdas,
closures and what was typed in a cell. Of a library, what is reached counts by name, and the library by its version. Of
a module, the attributes count that the code reads; all of them where it uses the module as a value.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import importlib
import importlib.util
import os
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from somatize.codecs.objects import is_hash_of_attrs
from somatize.errors import Unnameable

from . import external_reads, module_origin
from .attributes import attributes_of, unkeyed_names
from .bytecode import Method, Use, read, uses_of
from .callables import Resolver, generator_home, is_importable, lasting_words, named_words
from .constructor_arguments import shown
from .content_digest import Expansion, class_words, content
from .digests import worded
from .external_reads import Read
from .module_origin import is_apart, is_library
from .staleness import MISSING, Watches, filling

Said = list[str]
"""A value as the parts of a name have it: its digest as hex, and as it is shown, or an empty text."""

_OF_MODULE = {"__name__", "__file__", "__doc__", "__spec__", "__loader__", "__package__", "__builtins__", "__path__"}


class ReachedCode(NamedTuple):
    """The code a node runs: digests of its units, and of the values it takes from around it, all by name."""

    digest: bytes

    units: Mapping[str, str]
    globals: Mapping[str, Said]
    captured: Mapping[str, Said]
    watches: Watches
    libraries: Mapping[str, str] = types.MappingProxyType({})
    """The versions of the libraries that are reached."""
    reads: tuple[Read, ...] = ()
    """External reads that no name covers."""


class Reach:
    """Follows code and gathers what it is made of."""

    def __init__(self, ignoring: Iterable[str] = ()) -> None:
        self.resolver = Resolver(self._named, self.meet)
        self.watches = Watches()
        self._ignoring = frozenset(ignoring)
        self._roots: set[int] = set()
        self._units: dict[str, str] = {}
        self._globals: dict[str, Said] = {}
        self._captured: dict[str, Said] = {}
        self.libraries: dict[str, str] = {}
        """The versions of the libraries that were met."""
        self._reads: dict[Read, None] = {}
        self._seeded: set[str] = set()
        self._keys: dict[int, str] = {}
        self._taken: dict[str, Any] = {}
        self._trails: dict[str, tuple[str, ...]] = {}  # by unit, how it is reached from the node
        self._trail: tuple[str, ...] | None = None  # the path to what is being looked at; None for the node's own
        self._whole: set[int] = set()
        self._todo: deque[tuple[str, Any]] = deque()

    def root(self, thing: Any, place: str = "the node") -> bytes:
        """The digest of a node's object, down to what it wraps, and of patches on a library's class."""
        patched: list[bytes] = []
        for home in _wrapped(thing):
            self._roots.add(id(home))
            if isinstance(home, type):
                patched += [found for base in home.__mro__ for found in self._patched(base)]
        found = self.value(thing, place)
        return worded("patched", found, patched) if patched else found

    def _patched(self, cls: type) -> list[bytes]:
        """The functions of the project that stand in a class of a library."""
        if not cls.__flags__ & _HEAP_TYPE or not is_library(cls.__module__):
            return []
        self.watches.members(cls)
        found = [(name, value) for name, value in sorted(vars(cls).items()) if isinstance(value, types.FunctionType)]
        return [worded(name, self.value(value, name)) for name, value in found if self._follows(value)]

    def value(self, value: Any, place: str) -> bytes:
        """The digest of a value; code in it is followed. Raises `Unnameable`."""
        if value is None:
            return _NONE
        found = content(value, place, self.resolver)
        self.watches.value(value)
        return found

    def now(self, value: Any, place: str) -> bytes:
        """`value`, if it is checked by other means."""
        return content(value, place, self.resolver)

    def meet(self, module: Any) -> bool:
        """Note the library that a module is of; whether it is of one."""
        found = module_origin.origin(module) if type(module) is str else None
        if found is None:
            return False
        if found.version and found is not module_origin.PYTHON:
            self.libraries[found.name] = found.version
        return True

    def ahead(self) -> list[Any]:
        """The functions and classes that were met and are still to be gone through."""
        return [thing for _, thing in self._todo]

    def code(self) -> ReachedCode:
        """Follow everything that was met, and return what was reached."""
        self.resolver.code = True
        while self._todo:
            key, thing = self._todo.popleft()
            self.resolver.library = is_library(_home(thing))
            self._trail = self._trails[key]
            if isinstance(thing, types.ModuleType):
                unit = self._whole_of(vars(thing), thing.__name__)
            else:
                unit = self._class(key, thing) if isinstance(thing, type) else self._function(key, thing)
            self._units[key] = unit.hex()
        self._trail, self.resolver.library, self.resolver.code = None, False, False
        parts: tuple[Mapping[str, Any], ...] = (self._units, self._globals, self._captured, self.libraries)
        digest = worded("code", *[_plain(part) for part in parts]) if any(parts) else NO_CODE
        seen = tuple(
            one for one in self._reads if one.kind != "random" or external_reads.family(one.code) not in self._seeded
        )
        return ReachedCode(digest, self._units, self._globals, self._captured, self.watches, self.libraries, seen)

    def _named(self, value: Any) -> Expansion:
        if isinstance(value, types.ModuleType):
            if self.meet(value.__name__):
                return Expansion(worded("module", value.__name__), [])
        elif not self._follows(value):
            return Expansion(worded("of", *lasting_words(value)), [])
        return Expansion(worded("code", self._key(value)), [])

    def _follows(self, value: Any) -> bool:
        if isinstance(value, type) and not value.__flags__ & _HEAP_TYPE:
            self.meet(value.__module__)
            return False
        for module in _modules(value):
            if not self.meet(module):
                return True
        return not is_importable(value)

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
        self._trails[key] = () if self._trail is None else self._trail
        self._todo.append((key, value))
        return key

    # Functions

    def _function(self, key: str, function: types.FunctionType) -> bytes:
        self.watches.function(function)
        code = read(function.__code__)
        # Of a library's closure only the captured values count: its code goes by the library's version.
        refers = [] if self.resolver.library else self._around(function)
        words = [self._default(key, value) for value in function.__defaults__ or ()]
        named = [[name, self._default(key, value)] for name, value in sorted((function.__kwdefaults__ or {}).items())]
        wrapped = self.value(function.__dict__.get("__wrapped__"), f"what {key} wraps")
        # Attributes that a library sets on its wrappers are its own, such as call counts.
        if function.__dict__ and id(function) not in self._roots and not self.resolver.library:
            self._held_by(key, function)
        free = {name: list(group) for name, group in _grouped(uses_of(function.__code__).free)}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            refers.append([name, self._cell(key, name, cell, function, free.get(name, []))])
        return worded("function", code.digest, words, named, wrapped, refers)

    def _around(self, function: types.FunctionType) -> list[Any]:
        """The values a function uses by name: globals, attributes of modules, imports."""
        uses = uses_of(function.__code__)
        module = str(function.__globals__.get("__name__"))
        refers: list[Any] = [
            [name, self._global(function, name, list(group))] for name, group in _grouped(uses.globals)
        ]
        for name, group in _grouped(uses.imports):
            if name not in self._ignoring:
                refers += [[name, [*use.path], self._imported(function, use, module)] for use in _by_path(group)]
        for method in uses.methods:
            self._method(function, method)
        return refers

    def _held_by(self, key: str, function: types.FunctionType) -> None:
        """Attributes set on a function; those of the node's own function are named elsewhere."""
        held = attributes_of(function)
        self.watches.attributes(function, held)
        for name, value in sorted(held.items()):
            if name not in self._ignoring and not is_apart(value):
                digest = self.value(value, f"`{name}`, an attribute of {key},")
                self._globals[f"{key}.{name}"] = [digest.hex(), shown(value)]

    def _default(self, key: str, value: Any) -> bytes:
        return self.value(value, f"a default of {key}")

    def _cell(
        self, key: str, name: str, cell: types.CellType, function: types.FunctionType, uses: list[Use]
    ) -> bytes | None:
        value = filling(cell)
        self.watches.cell(cell, value)
        if value is MISSING or name in self._ignoring or is_apart(value):
            return None
        if isinstance(value, types.ModuleType):
            return self._module(function, value, name, uses)
        digest = self._within(f"`{name}`", lambda: self.value(value, self._place(f"`{name}`, captured by {key},")))
        self._note_read(function, value, name, uses)
        if _is_code(value):
            return digest
        self._captured[f"{key}.{name}"] = [digest.hex(), shown(value)]
        return None

    def _place(self, said: str) -> str:
        """The path to an object, for the message that it has no name."""
        return " -> ".join([*(self._trail or ()), said])

    def _within(self, step: str, look: Callable[[], bytes]) -> bytes:
        """Call `look` with the path in messages extended by one step."""
        before = self._trail
        self._trail = (*(before or ()), step)
        try:
            return look()
        finally:
            self._trail = before

    # Globals, modules and what is in them

    def _global(self, function: types.FunctionType, name: str, uses: list[Use]) -> bytes | None:
        scope = function.__globals__
        module = str(scope.get("__name__"))
        if name in self._ignoring or f"{module}.{name}" in self._ignoring:
            return None
        if name in _OF_MODULE and name != "__doc__":
            return None
        value = scope.get(name, MISSING)
        self.watches.name(scope, name, value)
        if value is MISSING:
            return self._builtin(function, name, uses)
        if isinstance(value, types.ModuleType):
            return self._module(function, value, name, uses)
        self._note_read(function, value, name, uses)
        return self._valued(f"{module}:{name}", name, value, f"the global `{name}` of {module}")

    def _builtin(self, function: types.FunctionType, name: str, uses: list[Use]) -> bytes | None:
        value = vars(builtins).get(name, MISSING)
        if value is MISSING:
            return None
        self.watches.name(vars(builtins), name, value)
        if name in ("eval", "exec", "__import__"):
            self._dynamic(function, f"{name}()", uses, name)
        if name == "globals":
            return self._whole_of(function.__globals__, str(function.__globals__.get("__name__")))
        self._note_read(function, value, name, uses)
        if type(value) is types.FunctionType and self._follows(value):
            return self.value(value, f"the builtin `{name}`")
        return None

    def _dynamic(self, function: types.FunctionType, what: str, uses: list[Use], cure: str) -> None:
        where = _where(function, uses[0].line)
        raise Unnameable(
            f"{self._place(f'`{what}`')} at {where} runs code that no name can see; where the result does not depend "
            f"on it, .cached(ignoring=[{cure!r}])"
        )

    def _valued(self, key: str, name: str, value: Any, said: str) -> bytes | None:
        """Identify a value found under a name: by digest if it is code, else as a value under `key`."""
        if is_apart(value) or value is os.environ:
            return None
        self.resolver.stopping = not self.resolver.library
        step = f"`{name}`"
        place = said if self._trail is None or not self._trail else self._place(step)
        try:
            digest = self._within(step, lambda: self.value(value, place))
        except Unnameable as stopped:
            if "ignoring=[" in str(stopped):
                raise
            cure = name if name.isidentifier() else key.replace(":", ".")
            raise Unnameable(
                f"{stopped}; where the result does not depend on it, .cached(ignoring=[{cure!r}])"
            ) from None
        finally:
            self.resolver.stopping = False
        if _is_code(value):
            return digest
        self._globals[key] = [digest.hex(), shown(value)]
        return None

    def _module(self, function: types.FunctionType, module: types.ModuleType, name: str, uses: list[Use]) -> bytes:
        """The attributes used of a module that is found under a name."""
        found = [[*use.path, self._through(function, module, use, name)] for use in _by_path(uses)]
        return worded("module", found)

    def _through(
        self, function: types.FunctionType, module: types.ModuleType, use: Use, name: str, path: tuple[str, ...] = ()
    ) -> bytes | None:
        """The object that a path of attributes leads to from a module."""
        path = path or use.path
        library: str | None = None
        shown_as = name
        for at, step in enumerate(path):
            if self.meet(module.__name__):
                library = library or ".".join((module.__name__, *path[at:]))
            if step in self._ignoring or f"{module.__name__}.{step}" in self._ignoring:
                return None
            if step in _OF_MODULE:
                return worded("of library", library) if library is not None else None
            if step == "__dict__":
                break
            shown_as = f"{shown_as}.{step}"
            value = self._attribute(module, step)
            if isinstance(value, types.ModuleType):
                module = value
            elif value is MISSING:
                return self._absent(function, module, step, library, use)
            elif library is not None and is_library(module.__name__):
                return self._of_library(function, module, step, value, library, use, path[at + 1 :])
            else:
                self._note_read(function, value, step, [use._replace(path=path[at + 1 :])])
                key = f"{module.__name__}:{step}"
                return self._valued(key, shown_as, value, f"`{shown_as}`")
        return self._whole_of(vars(module), module.__name__, shown_as)

    def _attribute(self, module: types.ModuleType, name: str) -> Any:
        scope = vars(module)
        value = scope.get(name, MISSING)
        self.watches.name(scope, name, value)
        if value is MISSING:  # a module within, that an import may have put there by now
            full = f"{module.__name__}.{name}"
            value = sys.modules.get(full, MISSING)
            self.watches.name(sys.modules, full, value)
        return value

    def _absent(
        self, function: types.FunctionType, module: types.ModuleType, name: str, library: str | None, use: Use
    ) -> bytes | None:
        """An attribute of a module that is not in its dict."""
        scope = vars(module)
        if is_library(module.__name__):
            self._note(function, [library or name], use)
            return worded("of library", library)
        found = [_NONE]
        if "__getattr__" in scope:
            self.watches.name(scope, "__getattr__", scope["__getattr__"])
            found.append(self.value(scope["__getattr__"], self._place(f"`{module.__name__}.__getattr__`")))
        if type(module) is not types.ModuleType:
            found.append(self.value(type(module), self._place(f"the class of `{module.__name__}`")))
            found.append(self._whole_of(scope, module.__name__))
        return worded("absent", found)

    def _of_library(
        self,
        function: types.FunctionType,
        module: types.ModuleType,
        name: str,
        value: Any,
        library: str,
        use: Use,
        rest: tuple[str, ...],
    ) -> bytes:
        """An attribute of a library's module: it counts by name, and by what was put in its place."""
        if value is os.environ or value is os.getenv:
            self._environment(function, value, use._replace(path=rest))
            return worded("of library", library)
        if library == "sys.modules" or library == "importlib.import_module":
            self._imports_by_name(function, use, library, name)
        self._note(function, [library, *_called(value, rest)], use)
        self.meet(getattr(value, "__module__", None))
        word = worded("of library", library)
        if _is_as_made(module, name, value):
            return word
        if type(value) in _PLAIN_DATA or _is_code(value) or callable(value):
            lenient, self.resolver.library = self.resolver.library, True
            try:
                return worded("in its place", word, self.value(value, self._place(f"`{library}`")))
            finally:
                self.resolver.library = lenient
        return worded("in its place", word, class_words(type(value)))

    def _imports_by_name(self, function: types.FunctionType, use: Use, library: str, name: str) -> None:
        if library == "importlib.import_module" and use.key is not None and not use.key.startswith("."):
            found = Use(use.key, (), use.line)
            digest = self._imported(function, found, "")
            if digest is not None:
                self._globals[f"{use.key}:"] = [digest.hex(), ""]
            return
        self._dynamic(function, library, [use], name)

    def _whole_of(self, scope: Mapping[str, Any], module: str, shown_as: str | None = None) -> bytes:
        """All that a module has, where it is used as a value or its names are made up as the code runs."""
        word = worded("whole", module)
        if self.meet(module) or id(scope) in self._whole:
            return word
        self._whole.add(id(scope))
        self.watches.scope(scope)
        found: list[Any] = []
        for name, value in [*scope.items()]:
            if name in _OF_MODULE or name == "__cached__" or name in self._ignoring:
                continue
            if f"{module}.{name}" in self._ignoring:
                continue
            if isinstance(value, types.ModuleType):
                inner = vars(value)
                found.append([name, self._whole_of(inner, value.__name__, f"{shown_as or module}.{name}")])
                continue
            said = f"{shown_as or module}.{name}"
            found.append([name, self._valued(f"{module}:{name}", said, value, f"`{said}`")])
        return worded("whole", module, found)

    # Imports

    def _imported(self, function: types.FunctionType, use: Use, module: str) -> bytes | None:
        """The objects that code imports and uses; `use.path` begins with an empty text if the top package is bound."""
        name = use.name
        if use.level:
            scope = function.__globals__
            package = scope.get("__package__") or (module if "__path__" in scope else module.rpartition(".")[0])
            try:
                name = importlib.util.resolve_name("." * use.level + name, package)
            except ImportError:
                return None  # it raises so as it runs
        path = use.path
        outermost = path[:1] == ("",)
        if outermost:
            path = path[1:]
        found = self._module_named(name)
        if isinstance(found, str):  # a library's that is not imported yet
            start = name.partition(".")[0] if outermost else name
            full = ".".join((start, *path))
            if self._ignoring.intersection((*path, full)):
                return None
            self._note(function, [full], use)
            return worded("of library", full)
        if outermost and found is not None:
            found = self._module_named(name.partition(".")[0])
            if isinstance(found, str):
                found = None
        if found is None:
            return None
        if path and path[0] not in vars(found) and hasattr(found, "__path__") and not is_library(name):
            self._module_named(f"{name}.{path[0]}")
        shown_as = name if not outermost else name.partition(".")[0]
        if not path:
            return self._whole_of(vars(found), found.__name__, shown_as)
        return self._through(function, found, use, shown_as, path)

    def _module_named(self, name: str) -> types.ModuleType | str | None:
        """A module by name: one of the project is imported, as running the code would; of a library, its origin.

        None where there is none.
        """
        found = sys.modules.get(name, MISSING)
        if found is MISSING:
            top = name.partition(".")[0]
            where = _origin_ahead(top)
            if where is not None and where is not module_origin.PYTHON:
                self.watches.name(sys.modules, name, MISSING)
                self.libraries[where.name] = where.version
                return name
            try:
                found = importlib.import_module(name)
            except ImportError:
                found = MISSING
                self.watches.absent(name)
            except Exception as error:
                raise Unnameable(f"importing {name} raised {type(error).__name__}: {error}") from error
            self.watches.name(sys.modules, name, sys.modules.get(name, MISSING))
        else:
            self.watches.name(sys.modules, name, found)
        return found if isinstance(found, types.ModuleType) else None

    # What is read from outside

    def _note_read(self, function: types.FunctionType, value: Any, name: str, uses: list[Use]) -> None:
        """Note the external reads of the uses of a value found under a name."""
        if value is os.environ or value is os.getenv:
            for use in uses:
                self._environment(function, value, use)
            return
        if value is importlib.import_module or value is sys.modules:
            for use in uses:
                which = "importlib.import_module" if value is not sys.modules else "sys.modules"
                self._imports_by_name(function, use, which, name)
        for use in uses:
            self._note(function, _called(value, use.path), use)
            last = use.path[-1] if use.path else ""
            if last in external_reads.METHODS and (last in external_reads.OF_SOURCE or not isinstance(value, type)):
                self._method(function, Method(last, use.line, False))

    def _note(self, function: types.FunctionType, names: Iterable[str], use: Use) -> None:
        found = external_reads.read_of(names, use.empty, self._seeded)
        if found is not None and found[0].rpartition(".")[2] not in self._ignoring:
            name, kind = found
            if name.startswith("torch.nn.functional.") and "training" in function.__code__.co_names:
                return  # it draws only in training mode, in which nothing is kept
            short = "open" if name in ("io.open", "_io.open", "builtins.open") else name
            self._reads[Read(_where(function, use.line), short, kind, kind == "file" and use.of_parameter)] = None

    def _method(self, function: types.FunctionType, method: Method) -> None:
        if method.name == "manual_seed":
            self._seeded.add("torch")
        kind = external_reads.METHODS.get(method.name)
        if kind is not None and method.name not in self._ignoring:
            self._reads[Read(_where(function, method.line), f".{method.name}", kind, method.of_parameter)] = None

    def _environment(self, function: types.FunctionType, value: Any, use: Use) -> None:
        """A read of the environment: the value counts if the name is constant; otherwise it is an external read."""
        if use.writes:
            return
        if use.path[:1] in (("__getitem__",), ("get",), ("pop",), ("setdefault",)) or (
            not use.path and (use.subscript or value is os.getenv)
        ):
            key = use.key
            if key is None and use.key_global is not None:
                key = function.__globals__.get(use.key_global)
            if isinstance(key, str):
                now = os.environ.get(key)
                self.watches.environment(key, now)
                self._globals[f"os.environ:os.environ[{key!r}]"] = [content(now).hex(), ""]
                return
        self._reads[Read(_where(function, use.line), "os.environ", "environment")] = None

    # Classes

    def _class(self, key: str, cls: type) -> bytes:
        self.watches.members(cls)
        words = [self.value((*cls.__bases__, type(cls)), self._place(f"the bases of {key}"))]
        left_out = unkeyed_names(cls)
        if issubclass(cls, enum.Enum):
            words.append(self.value(tuple(cls.__members__.items()), self._place(f"the members of {key}")))
            members = {name: value for name, value in vars(cls).items() if _is_own_function(value, cls)}
        else:
            members = {name: value for name, value in vars(cls).items() if name not in left_out and name not in _FILLED}
            members = {
                name: value
                for name, value in members.items()
                if not isinstance(value, _MEMBERS)
                and not name.startswith(("__pydantic_", "__attrs_"))
                and not is_hash_of_attrs(name, value)
            }
            words += self._fields(key, cls)
        return worded("class", *words, [[name, self._member(key, name, members[name])] for name in sorted(members)])

    def _fields(self, key: str, cls: type) -> list[Any]:
        """The annotations of a class, by which dataclasses, pydantic and others make it, and the fields they made."""
        noted = vars(cls).get("__annotations__")
        words: list[Any] = [
            [[name, _annotation(value)] for name, value in noted.items()] if isinstance(noted, dict) else []
        ]
        fields = vars(cls).get("__dataclass_fields__")
        for field in fields.values() if isinstance(fields, dict) else ():
            made = [field.name, field.init, field.repr, field.compare, field.hash, field.kw_only]
            values = [
                value if value is not dataclasses.MISSING else None for value in (field.default, field.default_factory)
            ]
            place = self._place(f"the field `{field.name}` of {key}")
            words.append([made, self.value([*values, dict(field.metadata)], place)])
        fields = vars(cls).get("__pydantic_fields__")
        for name, field in fields.items() if isinstance(fields, dict) else ():
            told = [repr(getattr(field, what, None)) for what in _OF_PYDANTIC]
            default = "none" if field.is_required() else field.default
            place = self._place(f"the field `{name}` of {key}")
            words.append([name, *told, self.value([default, field.default_factory, list(field.metadata)], place)])
        return words

    def _member(self, key: str, name: str, value: Any) -> bytes | None:
        try:
            digest = self.value(value, self._place(f"`{key.rpartition(':')[2]}.{name}`"))
        except Unnameable as stopped:
            if name.startswith("__") and name.endswith("__"):
                return None  # what a library put there
            raise Unnameable(
                f"{stopped}; where the result does not depend on it, `__unkeyed__ = ({name!r},)` on the class"
            ) from None
        if _is_code(value):
            return digest
        self._globals[f"{key}.{name}"] = [digest.hex(), shown(value)]
        return None


def _grouped(uses: Iterable[Use]) -> list[tuple[str, list[Use]]]:
    """Uses by name, in an order that does not depend on where they stand."""
    ordered = sorted(uses, key=attrgetter("name"))
    return [(name, list(group)) for name, group in groupby(ordered, key=attrgetter("name"))]


def _by_path(uses: Iterable[Use]) -> list[Use]:
    """Uses of a module without those that say the same, in an order that does not depend on where they stand."""
    found = {(use.path, use.key, use.key_global, use.empty, use.line): use for use in uses}
    return sorted(found.values(), key=lambda use: use.path)


def _called(value: Any, rest: tuple[str, ...]) -> list[str]:
    """The names of the thing at the end of a path: as the code calls it, and as its library does."""
    home = generator_home(value)
    if home is not None:
        return [f"{home}.{value.__name__}"]
    module, name = named_words(value)
    if not name or module == "None":
        return []
    full = ".".join((module, name, *rest))
    return [full, ".".join((module.partition(".")[0], name, *rest))]


def _is_as_made(module: types.ModuleType, name: str, value: Any) -> bool:
    """Whether a library's attribute is, as far as can be seen, the one that the library defined."""
    if _is_code(value) or callable(value):
        home, called = named_words(value)
        if home == "None":
            home = type(value).__module__
        ours, theirs = module_origin.origin(module.__name__), module_origin.origin(home)
        return theirs is not None and theirs == ours and called.rpartition(".")[2] == name and is_library(home)
    if type(value) in _PLAIN_DATA:
        return module.__name__.partition(".")[0] in ("math", "numpy", "torch")
    return value is None or is_library(type(value).__module__)


_PLAIN_DATA = {bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset}


def _origin_ahead(top: str) -> module_origin.Origin | None:
    """The origin of a module that was not imported yet, if it belongs to a library or to Python; else None."""
    found = sys.modules.get(top)
    if found is not None:
        return module_origin.origin(top)
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.origin in ("built-in", "frozen"):
        return module_origin.PYTHON
    places = list(spec.submodule_search_locations or ())
    file = spec.origin or (f"{places[0]}/__init__.py" if places else None)
    return module_origin.origin_of_file(top, file) if file is not None else None


def _where(function: types.FunctionType, line: int) -> str:
    return f"{function.__code__.co_filename}:{line}"


def _annotation(value: Any) -> str:
    if isinstance(value, type):
        return ".".join(class_words(value))
    return value if isinstance(value, str) else repr(value)


_NONE = content(None)
NO_CODE = worded("code", [], [], [], [])


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
    if isinstance(thing, types.ModuleType):
        return thing.__name__
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
    """Whether a value is code, or gives access to code."""
    return isinstance(value, _CODE) or hasattr(value, "__get__")


_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodType)


_OF_PYDANTIC = ("alias", "validation_alias", "discriminator", "frozen", "init", "kw_only", "validate_default")
"""Attributes that pydantic stores about a field besides annotation, default and constraints."""

_MEMBERS = (types.MemberDescriptorType, types.GetSetDescriptorType)

_FILLED = {
    *("__dict__", "__weakref__", "_abc_impl", "__annotate__", "__annotate_func__", "__annotations__"),
    *("__annotations_cache__", "__conditional_annotations__", "__module__", "__doc__", "__qualname__"),
    *(
        "__slotnames__",
        "__firstlineno__",
        "__static_attributes__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__unkeyed__",
    ),
}
"""Attributes that Python fills in, or that are handled elsewhere."""


def _is_own_function(value: Any, cls: type) -> bool:
    function = getattr(value, "__func__", getattr(value, "fget", value))
    return isinstance(function, types.FunctionType) and function.__globals__.get("__name__") == cls.__module__


def title(thing: Any) -> str:
    """The module and qualified name of a function or class, for messages."""
    module, name = class_words(thing) if isinstance(thing, type) else named_words(thing)
    return name if module == "None" else f"{module}.{name}"


PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

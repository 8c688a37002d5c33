"""Functions, classes and what is made of them, taken apart: methods, partials, decorators' wrappers, modules of torch.

A `Resolver` is told by its maker what a function or a class is called, and what does not count where it looks.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from somatize import tensors
from somatize.errors import Unnameable

from .constructed import Argument, arguments_of, is_node
from .expansion import Expansion, a, class_words
from .hashing import SCALARS, worded
from .outside import is_apart, is_library
from .public import attributes_of
from .seen import first_seen

Named = Callable[[Any], Expansion]
"""What a function or a class is called."""


class Resolver:
    """Takes apart what `expansion` does not know.

    In `code`, loggers and locks do not count, and a bare object() is no more than that. With `stopping`, what may
    change unseen stops the naming. Of a `library`, what is not known counts as one of its type with its plain
    attributes. Where the `state` is called something by the user, torch's modules count without theirs.
    """

    def __init__(self, named: Named) -> None:
        self._named = named
        self.code = False
        self.stopping = False
        self.library = False
        self.state = True

    def __call__(self, value: Any, last: bool) -> Expansion | None:
        cls = type(value)
        if last:
            return self._loosely(value, cls)
        if cls is types.FunctionType or isinstance(value, type):
            return self._named(value)
        way = _WAYS.get(cls)
        if way is not None:
            return way(value)
        if self.stopping and (_is_array(cls) or tensors.is_module(value) or is_node(value)):
            raise Unnameable(f"is {a(cls)}, which may change and is too much to look at each time")
        if tensors.is_module(value):
            return _module(value, self.state)
        if is_node(value):
            return Expansion(worded("node"), [cls, arguments_of(value), attributes_of(value)])
        if self.code and is_apart(value):
            return _APART
        return _by_name(value, cls)

    def code_of(self, cls: type) -> bytes | None:
        """What the class of an object counts as; nothing is said of a library's."""
        return None if is_library(cls.__module__) else self._named(cls).marker

    def _loosely(self, value: Any, cls: type) -> Expansion | None:
        # A descriptor of a library in a class is a way to an attribute, and no value; what holds nothing is a sentinel.
        hollow = hasattr(cls, "__get__") or (
            cls.__basicsize__ == _Hollow.__basicsize__ and not getattr(value, "__dict__", True)
        )
        if self.library or (self.code and hollow and is_library(cls.__module__)):
            shown = {name: held for name, held in getattr(value, "__dict__", {}).items() if name[:1] != "_"}
            plain = {name: held for name, held in shown.items() if type(held) in SCALARS or tensors.plain_words(held)}
            return Expansion(worded("one of", *class_words(cls)), [plain])
        return None


class _Hollow:
    """As large as any object of a Python class that has but a `__dict__`."""


def _is_array(cls: type) -> bool:
    return (cls.__module__, cls.__qualname__) in _ARRAYS


_ARRAYS = {
    ("numpy", "ndarray"),
    ("numpy", "memmap"),
    ("torch", "Tensor"),
    ("torch.nn.parameter", "Parameter"),
    ("torch.nn.parameter", "Buffer"),
}


_APART = Expansion(worded("apart"), [])


def _by_name(value: Any, cls: type) -> Expansion | None:
    """What another module has under the name that it says of itself: a compiled function, a typing alias."""
    if cls.__module__ in ("typing", "types", "typing_extensions") and not isinstance(value, types.SimpleNamespace):
        return Expansion(worded("typing", repr(value)), [])
    if is_importable(value):
        return Expansion(worded("of", *named_words(value)), [])
    return None


def named_words(value: Any) -> list[str]:
    """Where something says it was defined, and its name there."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
    return [str(getattr(value, "__module__", None)), str(name)]


def is_importable(value: Any) -> bool:
    """Whether the module it says it is of has it, under the name it says."""
    try:
        module, name = named_words(value)
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception:
        return False
    return found is value


def _builtin(value: Any) -> Expansion:
    bound = value.__self__
    if bound is None or isinstance(bound, types.ModuleType):
        return Expansion(worded("builtin", *named_words(value)), [])
    return Expansion(worded("bound builtin", value.__name__), [bound])


def _descriptor(value: Any) -> Expansion:
    return Expansion(worded("descriptor", *class_words(value.__objclass__), value.__name__), [])


def _module(module: Any, with_state: bool) -> Expansion:
    state = [tensors.state_of(module)] if with_state else []
    return Expansion(worded("torch module"), [*structure(module), *state, [one.training for one in module.modules()]])


def structure(module: Any) -> list[Any]:
    """Of a torch Module, what it is made of but for its state: of each module in it its class, attributes and hooks."""
    return [
        [name, type(inner), _made_with(inner), attributes_of(inner), hooks(inner)]
        for name, inner in module.named_modules()
    ]


def _made_with(module: Any) -> dict[str, Argument] | None:
    if is_node(module):
        return arguments_of(module)
    return first_seen(module) or None


def hooks(module: Any) -> list[Any]:
    """The functions a Module calls around its forward."""
    return [list(held.values()) for name in _HOOKS if (held := getattr(module, name, None))]


_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def _members(kind: str, *names: str) -> Callable[[Any], Expansion]:
    marker = worded(kind)
    return lambda value: Expansion(marker, [getattr(value, name) for name in names])


def _argument(value: Argument) -> Expansion:
    if value.wrong is not None:
        raise Unnameable(value.wrong)
    # Of what was named at construction, the classes of the objects in it, which may have been edited since.
    return Expansion(worded("argument", value.digest), list(value.live or ()) if value.digest else [value.live])


_WAYS: Mapping[type, Callable[[Any], Expansion]] = {
    Argument: _argument,
    types.BuiltinFunctionType: _builtin,
    types.MethodWrapperType: _builtin,
    types.MethodDescriptorType: _descriptor,
    types.WrapperDescriptorType: _descriptor,
    types.ClassMethodDescriptorType: _descriptor,
    types.GetSetDescriptorType: _descriptor,
    types.MemberDescriptorType: _descriptor,
    types.MethodType: _members("method", "__func__", "__self__"),
    staticmethod: _members("staticmethod", "__func__"),
    classmethod: _members("classmethod", "__func__"),
    property: _members("property", "fget", "fset", "fdel"),
    functools.cached_property: _members("cached_property", "func"),
    functools.partial: _members("partial", "func", "args", "keywords"),
    functools.partialmethod: _members("partialmethod", "func", "args", "keywords"),
    functools.singledispatchmethod: lambda value: Expansion(
        worded("singledispatchmethod"), [value.func, dict(value.dispatcher.registry)]
    ),
    type(functools.lru_cache(len)): _members("lru_cache", "__wrapped__"),
    **{
        cls: lambda value: Expansion(worded(type(value).__name__), list(value.__reduce__()[1]))
        for name in ("attrgetter", "itemgetter", "methodcaller")
        if (cls := getattr(sys.modules["operator"], name))
    },
}

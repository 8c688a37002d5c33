"""Functions, classes and what is made of them, taken apart: methods, partials, decorators' wrappers, modules of torch.

The maker of a `Resolver` gives the function that names functions and classes, and sets what does not count.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from somatize.codecs import tensors
from somatize.codecs.serializer import SCALARS
from somatize.errors import Unnameable

from .attributes import attributes_of, held_by, private_of, unkeyed_names
from .constructor_arguments import Argument, arguments_of, is_node
from .content_digest import Expansion, a, class_words, module_in_names
from .digests import worded
from .module_origin import is_apart, is_library

Named = Callable[[Any], Expansion]
"""A function that names a function or class."""


class Resolver:
    """Takes apart what `content_digest.expanded` does not know. `meet` notes the library of a module, if it has one.

    With `code`, loggers and locks do not count, and all bare object() are alike. With `stopping`, a value that may
    change unnoticed is refused. With `library`, unknown objects are identified by type and plain attributes. Without
    `state`, because the user named it, torch's modules count without their parameters and buffers.
    """

    def __init__(self, named: Named, meet: Callable[[Any], bool]) -> None:
        self._named = named
        self._meet = meet
        self.code = False
        self.stopping = False
        self.library = False
        self.watching = False  # whether objects of libraries are taken apart too
        self.state = True
        self.reading = False
        """Whether a `Path` counts by its file's content, as in an input; `paths` says that there was one."""
        self.paths = False

    def __call__(self, value: Any, last: bool) -> Expansion | None:
        cls = type(value)
        if last:
            return self._loosely(value, cls)
        self._meet(cls.__module__)
        if cls is types.FunctionType or isinstance(value, type | types.ModuleType):
            return self._named(value)
        home = generator_home(value) if hasattr(value, "__self__") else None
        if home is not None:
            self._meet(home)
            return Expansion(worded("of", home, value.__name__), [])
        way = _WAYS.get(cls)
        if way is not None:
            return way(value)
        if self.stopping and (_is_array(cls) or tensors.is_module(value) or is_node(value)):
            raise Unnameable(f"is {a(cls)}, which may change and is too much to look at each time")
        if tensors.is_module(value):
            return _module(value, self.state)
        if is_node(value):
            return Expansion(worded("node"), [cls, arguments_of(value), attributes_of(value), private_of(value)])
        if self.code and is_apart(value):
            return _APART
        if cls.__module__ == "numpy" and cls.__qualname__ == "ufunc":
            return _ufunc(value)
        return _typing(value, cls) or self._wrapper(value, cls) or self._by_name(value, cls)

    def code_of(self, cls: type) -> bytes | None:
        """The code that identifies the class of an object; empty for a library's class."""
        return None if self._meet(cls.__module__) else self._named(cls).marker

    def _by_name(self, value: Any, cls: type) -> Expansion | None:
        """Identify a compiled function of a library by its module and name."""
        compiled = cls.__module__.startswith("_cython") or self._meet(cls.__module__)
        if compiled and self._meet(getattr(value, "__module__", None)) and is_importable(value):
            return Expansion(worded("of", *lasting_words(value)), [])
        return None

    def _wrapper(self, value: Any, cls: type) -> Expansion | None:
        """An object that stands for a function: its class, and what it holds, among which is the function."""
        if not callable(value) or isinstance(value, types.SimpleNamespace) or dataclasses.is_dataclass(cls):
            return None
        held = {name: one for name, one in held_by(value).items() if name not in _TAKEN_OVER}
        if not is_library(cls.__module__):
            if "__wrapped__" not in held and not hasattr(value, "__wrapped__"):
                return None
            for name in unkeyed_names(cls):
                held.pop(name, None)
            return Expansion(worded("wrapper", self._named(cls).marker), [_apart_left_out(held)])
        if self._meet(getattr(value, "__module__", None)) and is_importable(value):
            return None
        wrapped: dict[str, Any] = {name: one for name, one in held.items() if isinstance(one, _CODE)}
        wrapped |= {name: one for name in _WRAPPED if _is_wrapped(one := getattr(value, name, None), value)}
        if not wrapped:
            return None
        left_out = _CHANGING.get(class_words(cls)[1], ())
        options = {name: one for name, one in held.items() if name not in wrapped and name not in left_out}
        if cls.__module__.startswith("numba."):  # its objects hold what was compiled so far
            return Expansion(worded("wrapper", *class_words(cls)), [wrapped, _plain_options(options)])
        return Expansion(worded("wrapper", *class_words(cls)), [wrapped, self._options(options, [_MOST_OPTIONS])])

    def _options(self, held: dict[str, Any], left: list[int], depth: int = 0) -> dict[str, Any]:
        """The options of a library's object, including project code in them; `left` limits how much is visited."""
        return {
            name: self._option(one, left, depth)
            for name, one in held.items()
            if name[:1] != "_" or isinstance(one, _CODE) or not self._meet(type(one).__module__)
        }

    def _option(self, one: Any, left: list[int], depth: int) -> Any:
        cls = type(one)
        left[0] -= 1
        if isinstance(one, types.MethodType) and self._meet(type(one.__self__).__module__):
            return one.__func__  # mostly a method of the object that holds it
        if cls in SCALARS or isinstance(one, _CODE):
            return one
        if is_apart(one) or depth > _DEEPEST_OPTION or left[0] < 0:
            return class_words(cls)
        if cls in (list, tuple):
            return [self._option(part, left, depth + 1) for part in one[: left[0]]]
        if cls is dict:
            return self._options({str(name): part for name, part in one.items()}, left, depth + 1)
        if not self._meet(cls.__module__) and cls.__module__ in sys.modules:
            return one  # it has a name, or none
        shown = getattr(one, "__dict__", {})
        return [class_words(cls), self._options(dict(shown), left, depth + 1) if isinstance(shown, dict) else None]

    def _loosely(self, value: Any, cls: type) -> Expansion | None:
        # A descriptor of a library in a class is a way to an attribute, and no value; what holds nothing is a sentinel.
        hollow = hasattr(cls, "__get__") or (
            cls.__basicsize__ == _Hollow.__basicsize__ and not getattr(value, "__dict__", True)
        )
        # A compiled class may name a module that does not exist.
        of_library = self._meet(cls.__module__) or cls.__module__ not in sys.modules
        if of_library and (self.library or (self.code and hollow)):
            shown = {name: held for name, held in getattr(value, "__dict__", {}).items() if name[:1] != "_"}
            plain = {name: held for name, held in shown.items() if type(held) in SCALARS or tensors.plain_words(held)}
            if self.watching:
                return Expansion(worded("one of", *class_words(cls)), [plain])
            options = self._options(dict(getattr(value, "__dict__", {})), [_MOST_OPTIONS])
            return Expansion(worded("one of", *class_words(cls)), [plain, options])
        return None


_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)
_WRAPPED = ("__wrapped__", "py_func", "callback", "func", "fn", "_torchdynamo_orig_callable", "pyfunc", "_fun")
_TAKEN_OVER = {"__doc__", "__module__", "__name__", "__qualname__", "__annotations__", "__type_params__"}
"""Attributes that `functools.update_wrapper` copies."""

_MOST_OPTIONS, _DEEPEST_OPTION = 1000, 5

_CHANGING = {
    "MemorizedFunc": ("timestamp", "_verbose", "store_backend", "backend", "mmap_mode", "compress"),
    "NotMemorizedFunc": ("timestamp",),
}
"""Attributes of wrappers (joblib's) that do not influence what the function does."""


def _is_wrapped(held: Any, wrapper: Any) -> bool:
    return callable(held) and held is not wrapper and not isinstance(held, type)


def _apart_left_out(held: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in held.items() if not is_apart(one)}


def _plain_options(held: dict[str, Any]) -> dict[str, Any]:
    """The options of a library's wrapper: scalars, and lists and dicts of them."""

    def plain(one: Any, depth: int = 0) -> bool:
        if type(one) in SCALARS:
            return True
        if depth > 3 or len(one if type(one) in (list, tuple, dict) else range(1000)) >= 1000:
            return False
        within = [*one.keys(), *one.values()] if type(one) is dict else one
        return all(plain(part, depth + 1) for part in within)

    return {name: one for name, one in held.items() if plain(one)}


def _typing(value: Any, cls: type) -> Expansion | None:
    """An alias of `typing`, by how it is written and the classes in it."""
    if cls.__module__ not in ("typing", "types", "typing_extensions") or isinstance(value, types.SimpleNamespace):
        return None
    within = getattr(value, "__args__", ())
    within = within if isinstance(within, tuple) else ()
    return Expansion(
        worded("typing", repr(value)), [one for one in within if isinstance(one, type) or hasattr(one, "__args__")]
    )


class _Hollow:
    """Its instances have the size of any object with a `__dict__` and no slots."""


def _is_array(cls: type) -> bool:
    if cls.__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
        return cls.__name__.endswith(("Frame", "Series", "Index", "Array", "Table", "RecordBatch", "Categorical"))
    return (cls.__module__, cls.__qualname__) in _ARRAYS


_ARRAYS = {
    ("numpy", "ndarray"),
    ("numpy", "memmap"),
    ("torch", "Tensor"),
    ("torch.nn.parameter", "Parameter"),
    ("torch.nn.parameter", "Buffer"),
}


_APART = Expansion(worded("apart"), [])


def generator_home(value: Any) -> str | None:
    """The module whose function this method of its global generator is, such as `random.random`; or None."""
    owner = type(getattr(value, "__self__", None))
    home = _GENERATORS.get((owner.__module__, owner.__qualname__))
    given = getattr(sys.modules.get(home or ""), getattr(value, "__name__", ""), None)
    return home if given is not None and given == value else None


_GENERATORS = {("random", "Random"): "random", ("numpy.random.mtrand", "RandomState"): "numpy.random"}


def named_words(value: Any) -> list[str]:
    """The module and the qualified name that an object reports."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
    return [str(getattr(value, "__module__", None)), str(name)]


def lasting_words(value: Any) -> list[str]:
    """The module and the name under which something of a library counts in a name."""
    module, name = named_words(value)
    return [module_in_names(module), name]


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


def _ufunc(value: Any) -> Expansion:
    """A ufunc of numpy or scipy; one made by `numpy.frompyfunc` hides its function."""
    name = str(value.__name__)
    for home in ("numpy", "scipy.special"):
        if getattr(sys.modules.get(home), name, None) is value:
            return Expansion(worded("of", home, name), [])
    raise Unnameable("is a numpy.ufunc that is none of numpy's own, and the function in it cannot be followed")


def _builtin(value: Any) -> Expansion:
    bound = value.__self__
    if bound is None or isinstance(bound, types.ModuleType):
        return Expansion(worded("builtin", *lasting_words(value)), [])
    return Expansion(worded("bound builtin", value.__name__), [bound])


def _descriptor(value: Any) -> Expansion:
    return Expansion(worded("descriptor", *class_words(value.__objclass__), value.__name__), [])


def _module(module: Any, with_state: bool) -> Expansion:
    state = [tensors.state_of(module)] if with_state else []
    return Expansion(worded("torch module"), [*structure(module), *state, [one.training for one in module.modules()]])


def structure(module: Any) -> list[Any]:
    """The structure of a torch Module without its state: class, attributes and hooks of each module."""
    return [
        [name, type(inner), _made_with(inner), attributes_of(inner), _private(inner), hooks(inner)]
        for name, inner in module.named_modules()
    ]


def _made_with(module: Any) -> dict[str, Argument] | None:
    if is_node(module):
        return arguments_of(module)
    return None


def _private(module: Any) -> dict[str, Any]:
    return {} if is_library(type(module).__module__) else private_of(module)


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

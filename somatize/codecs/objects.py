"""Objects of Python classes, as the name of the class and all attributes; no code of the class runs.

An object is *plain* if what it holds lies in its `__dict__` and its slots and nowhere else. It is made again by filling
those, without its `__init__` or `__setstate__`, and only where that is all there is to it: a class that takes part in
copying or in letting go (`__reduce__`, `__getstate__`, `__new__`, `__del__`, `__enter__`, ...) is refused, as is one
that its module does not have under its name. A class is written with a fingerprint of its code: one that was edited
since is refused when it is read, not filled with what another version of it held.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from somatize.errors import NotKeepable, StoreError

from .standard_types import TypeCodec

_Found = TypeVar("_Found")
_HEAP_TYPE = 1 << 9
_WORD = tuple.__itemsize__
_HOOKS = (
    *("__new__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"),
    *("__copy__", "__deepcopy__", "__del__", "__enter__", "__aenter__", "__next__", "__getattribute__", "__dict__"),
)
_MAKERS = {"dataclasses", "attr._make", "pydantic"}
"""Modules that generate methods which the codec replaces."""
_METACLASSES = {("builtins", "type"), ("abc", "ABCMeta"), ("typing", "_ProtocolMeta")}
_HASH_OF_ATTRS = "_attrs_cached_hash"  # the hash of a str differs between processes


def _once_per_class(find: Callable[[Any], _Found]) -> Callable[[Any], _Found]:
    return functools.lru_cache(maxsize=512)(find)


@_once_per_class
def is_plain(cls: Any) -> bool:
    """Whether all that an object of a class holds lies in its `__dict__` and its slots, as far as the class shows."""
    held = _WORD * (len(_slots(cls)) + (cls.__weakrefoffset__ > 0) + (cls.__dictoffset__ > 0))
    small = not cls.__itemsize__ and cls.__basicsize__ == object.__basicsize__ + held
    return cls is not object and small and not _elsewhere(cls)


def _elsewhere(cls: type) -> list[str]:
    """The attributes that a descriptor of the class's own sets, which may put them anywhere."""
    return [
        name
        for base in cls.__mro__
        if base.__flags__ & _HEAP_TYPE
        for name, value in vars(base).items()
        if (hasattr(type(value), "__set__") and type(value) not in _SETTING)
        or (name == "__dict__" and _is_own(cls, name))
    ]


_SETTING = {property, types.MemberDescriptorType, types.GetSetDescriptorType}


def attributes(value: Any) -> dict[Any, Any]:
    """All that an object holds by name, in its `__dict__` and its slots, past whatever its class says of them."""
    held = dict(_dict_of(value) or {})
    for slot in _slots_of(type(value)):
        found = _filled(slot, value)
        if found:
            name = slot.__name__ if slot.__name__ not in held else f"{slot.__objclass__.__qualname__}.{slot.__name__}"
            held[name] = None if slot.__name__ == _HASH_OF_ATTRS else found[0]
    return held


def is_hollow(value: Any) -> bool:
    """Whether an object has no attributes and is no namespace: code can tell it from others only by identity."""
    return not attributes(value) and not _is_namespace(type(value))


def _is_namespace(cls: type) -> bool:
    return (cls.__module__, cls.__qualname__) in (("types", "SimpleNamespace"), ("argparse", "Namespace"))


def _dict_of(value: Any) -> dict[Any, Any] | None:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def _slots(cls: type) -> list[Any]:
    # The descriptors, not `__slots__`: that may be an exhausted iterator, and has private names unmangled.
    bases = [base for base in cls.__mro__ if base.__flags__ & _HEAP_TYPE]
    held = [one for base in bases for one in vars(base).values() if type(one) is types.MemberDescriptorType]
    return [one for one in held if one.__name__ != "__dict__"]


@_once_per_class
def _slots_of(cls: Any) -> list[Any]:
    return _slots(cls)


def _filled(slot: Any, value: Any) -> list[Any]:
    try:
        return [slot.__get__(value)]
    except AttributeError:
        return []


class ClassName:
    """A placeholder for a class in the output: one per class, so that each is written once."""

    def __init__(self, cls: type) -> None:
        self.cls = cls


@_once_per_class
def _name_of(cls: Any) -> ClassName:
    return ClassName(cls)


def dump_class(name: ClassName) -> list[str]:
    """The module of a class, its name there, and its fingerprint. Raises `NotKeepable` where it is not there."""
    cls = name.cls
    if _found(cls.__module__, cls.__qualname__) is not cls:
        raise NotKeepable(
            f"a {cls.__module__}.{cls.__qualname__} would not find its class again: the module does not have it under "
            "that name; define it at the top of a module"
        )
    return [cls.__module__, cls.__qualname__, fingerprint(cls)]


def load_class(plain: list[str]) -> type:
    """The class again, of a module that is imported, or lies in a package that is. Raises `StoreError`."""
    module, name, was = plain
    found = _found(module, name)
    if found is None and module.partition(".")[0] in sys.modules and module not in sys.modules:
        importlib.import_module(module)
        found = _found(module, name)
    if not isinstance(found, type):
        raise StoreError(f"the value holds a {module}.{name}, which is not there; import {module} first")
    if fingerprint(found) != was:
        raise StoreError(f"the value holds a {module}.{name} of another version of that class")
    return found


def _found(module: str, name: str) -> Any:
    return member_of(sys.modules.get(module), name)


def member_of(module: Any, name: str) -> Any:
    """The object of a qualified name in a module, looked up in namespaces alone; None if there is none."""
    for part in name.split("."):
        module = vars(module).get(part) if isinstance(module, type | types.ModuleType) else None
    return module


def kind_of(cls: type) -> TypeCodec | None:
    """The codec for objects of a class, or None."""
    if cls is ClassName:
        return KINDS["class"]
    if cls is types.SimpleNamespace:
        return KINDS["namespace"]
    if issubclass(cls, enum.Enum):
        return KINDS["enum"]
    if issubclass(cls, tuple) and type(getattr(cls, "_fields", None)) is tuple:
        return KINDS["namedtuple"]
    return KINDS["object"] if is_plain(cls) else None


def dump_enum(value: enum.Enum) -> list[Any]:
    """The class of a member and its name; of flags together, their number."""
    cls = type(value)
    if cls.__members__.get(value._name_ or "") is value:
        return [_name_of(cls), value._name_]
    if isinstance(value, enum.Flag) and type(value._value_) is int and cls(value._value_) is value:
        return [_name_of(cls), value._value_]
    raise NotKeepable(f"{value!r} is no member that its enum has under its name")


def load_enum(plain: list[Any]) -> Any:
    """The member again."""
    cls, name = plain
    if not issubclass(cls, enum.Enum):
        raise StoreError(f"the value holds a member of {cls.__module__}.{cls.__qualname__}, which is no enum")
    return cls.__members__[name] if type(name) is str else cls(name)


def dump_tuple(value: Any) -> list[Any]:
    """The class of a named tuple, its items, and its attributes if it can have some."""
    cls = type(value)
    _check_tuple(cls)
    return [_name_of(cls), list(tuple.__iter__(value)), _dict_of(value)]


def load_tuple(plain: list[Any]) -> Any:
    """The named tuple again."""
    cls, items, held = plain
    _checked(_check_tuple, cls)
    made = tuple.__new__(cls, items)
    if held is not None:
        object.__setattr__(made, "__dict__", held)
    return made


def _check_tuple(cls: type) -> None:
    made = cls.__new__
    named = getattr(made, "__globals__", {}).get("__name__", "").startswith("namedtuple_")
    left = [name for name in _overridden(cls) if name not in ("__new__", "__getnewargs__")]
    if left or not named:
        raise NotKeepable(_refusal(cls, left or ["__new__"]))


def dump_object(value: Any) -> list[Any]:
    """The class of an object, its `__dict__`, and its slots that are filled, each by its place."""
    cls = type(value)
    _check_object(cls)
    constant = _constant_name(value, cls)
    if constant:
        raise NotKeepable(f"the constant {constant} is known by being the same one; return what it holds")
    slots: list[Any] = []
    for at, slot in enumerate(_slots_of(cls)):
        found = _filled(slot, value)
        if found:
            slots.append([at, None if slot.__name__ == _HASH_OF_ATTRS else found[0]])
    held = _dict_of(value)
    if held and _HASH_OF_ATTRS in held:
        held = {**held, _HASH_OF_ATTRS: None}
    if not held and not slots and not _is_namespace(cls):
        raise NotKeepable(f"a {cls.__module__}.{cls.__qualname__} that holds nothing is known by being the same one")
    return [_name_of(cls), held, slots]


def _constant_name(value: Any, cls: type) -> str | None:
    """The name under which the class or module of an object holds it as a constant, which code compares with `is`."""
    module = sys.modules.get(cls.__module__)
    for holder in (cls, module):
        scope = vars(holder) if holder is not None else {}
        if id(value) in map(id, [*scope.values()]):
            for name, held in [*scope.items()]:
                if held is value and (holder is cls or name.isupper()):
                    return f"{cls.__module__}.{f'{cls.__qualname__}.' if holder is cls else ''}{name}"
    return None


def load_object(plain: list[Any]) -> Any:
    """The object again."""
    cls, held, filled = plain
    _checked(_check_object, cls)
    made = object.__new__(cls)
    if held is not None:
        object.__setattr__(made, "__dict__", held)
    slots = _slots(cls)
    for at, value in filled:
        slots[at].__set__(made, value)
    return made


def _check_object(cls: Any) -> None:
    refusal = _refusal_of(cls)
    if refusal is not None:
        raise NotKeepable(refusal)


@_once_per_class
def _refusal_of(cls: Any) -> str | None:
    if (type(cls).__module__, type(cls).__qualname__) not in _METACLASSES and not _is_of_maker(type(cls).__module__):
        return _refusal(cls, [f"its metaclass {type(cls).__qualname__}"])
    if not is_plain(cls) or not cls.__flags__ & _HEAP_TYPE or _overridden(cls):
        return _refusal(cls, _overridden(cls) or ["more than attributes"])
    return None


def _refusal(cls: type, names: list[str]) -> str:
    return (
        f"a {cls.__module__}.{cls.__qualname__} has {', '.join(names)}, so that its attributes alone may not be all "
        "there is to it"
    )


def _checked(check: Any, cls: type) -> None:
    try:
        check(cls)
    except NotKeepable as refused:
        raise StoreError(f"the value holds what is not kept: {refused}") from refused


def _overridden(cls: type) -> list[str]:
    """The hooks that a class defines itself, without those that dataclasses, attrs or pydantic generated."""
    return [name for name in _HOOKS if _is_own(cls, name)]


def _is_own(cls: type, name: str) -> bool:
    for base in cls.__mro__:
        if name in vars(base):
            found = vars(base)[name]
            if base in (object, tuple) or (name == "__dict__" and type(found) is types.GetSetDescriptorType):
                return False
            made = getattr(getattr(found, "__func__", found), "__globals__", {}).get("__name__", "")
            return not _is_of_maker(made)
    return False


def _is_of_maker(module: str) -> bool:
    return module in _MAKERS or module.partition(".")[0] == "pydantic"


def fingerprint(cls: type) -> str:
    """A digest of a class that changes when the code of its methods or its attributes change."""
    words = [_words_of(base) for base in cls.__mro__ if not _is_foreign(base.__module__)]
    return hashlib.sha256(repr(words).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _is_foreign(module: str) -> bool:
    top = module.partition(".")[0]
    return (top in sys.stdlib_module_names and top != "__main__") or top in ("pydantic", "attr", "attrs")


def _words_of(cls: type) -> list[Any]:
    said: list[Any] = [cls.__module__, cls.__qualname__, [slot.__name__ for slot in _slots(cls)]]
    if issubclass(cls, enum.Enum):
        said.append([[name, _constant(one._value_)] for name, one in cls.__members__.items()])
    if dataclasses.is_dataclass(cls):
        said.append([field.name for field in dataclasses.fields(cls)])
    said.append([*vars(cls).get("__pydantic_fields__", ())])
    for name, value in sorted(vars(cls).items()):
        if type(value) in (bool, int, float, str, bytes) and not name.startswith("__"):
            said.append([name, repr(value)])
        if is_hash_of_attrs(name, value):
            continue
        code = [_code(function.__code__, function.__doc__) for function in _functions(value)]
        if code:
            said.append([name, code])
    return said


def is_hash_of_attrs(name: str, value: Any) -> bool:
    """Whether a member of a class is the `__hash__` that attrs wrote, with a number in it that each process draws."""
    code = getattr(value, "__code__", None)
    return name == "__hash__" and code is not None and code.co_filename.startswith("<attrs generated")


def _functions(value: Any) -> Iterator[types.FunctionType]:
    for one in (value, *(getattr(value, name, None) for name in ("__func__", "fget", "fset", "fdel", "func"))):
        if isinstance(one, types.FunctionType):
            yield one


def _code(code: types.CodeType, doc: str | None = None) -> list[Any]:
    constants = code.co_consts[1:] if doc is not None and code.co_consts[:1] == (doc,) else code.co_consts
    return [code.co_code, code.co_names, code.co_varnames, [_constant(one) for one in constants]]


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return [_constant(one) for one in value]
    if isinstance(value, frozenset):
        return sorted(repr(_constant(one)) for one in value)
    plain = isinstance(value, bool | int | float | complex | str | bytes) or value is None or value is ...
    return repr(value) if plain else type(value).__qualname__


def _load_namespace(plain: dict[Any, Any]) -> types.SimpleNamespace:
    made = types.SimpleNamespace()
    vars(made).update(plain)
    return made


KINDS = {
    kind.name: kind
    for kind in (
        TypeCodec("class", dump_class, load_class),
        TypeCodec("enum", dump_enum, load_enum),
        TypeCodec("namedtuple", dump_tuple, load_tuple),
        TypeCodec("namespace", lambda value: dict(vars(value)), _load_namespace),
        TypeCodec("object", dump_object, load_object),
    )
}
"""The codecs by kind name."""

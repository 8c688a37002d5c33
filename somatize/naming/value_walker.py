"""The composition of a value: a marker of its kind, and the values it contains.

`expanded` takes every value that is no scalar. Types are matched exactly, as in `codecs`; beside those which a codec
knows, it takes what can be told apart without being read back: enums, dataclasses, named tuples and subclasses
of the plain containers (by the identity of their class and all they hold), patterns, dtypes, modules.
What the order of parts means is said by the expansion: in a `SET` it means nothing, in a `SEQUENCE` it counts, and in
`PAIRS`, keys and values in turn, it does too, because code can iterate over a dict.
"""

from __future__ import annotations

import dataclasses
import enum
import gc
import hashlib
import os
import pathlib
import re
import stat
import sys
import types
from array import array
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from somatize.codecs import arrays, arrow, objects, polars_frames, tensors
from somatize.codecs.registry import by_type, frame_codecs, library_kind, named
from somatize.codecs.standard_types import BUILTIN
from somatize.errors import NotKeepable, Unnameable

from .digests import hasher, memory_digest, worded
from .module_origin import is_library

SEQUENCE, SET, PAIRS = range(3)


class Expansion(NamedTuple):
    """A value taken apart: its kind, its parts, and what their order means."""

    marker: bytes
    parts: list[Any]
    order: int = SEQUENCE


Resolve = Callable[[Any, bool], Expansion | None]
"""Takes apart functions, classes and other objects that only the caller knows; None for other values.

It is asked twice: before all that is known of objects here, and last, with True, where nothing is. One that has `code`
is asked by that what the class of an object counts as: its methods may be called wherever the object goes.
"""


CODECS = "howto/codec in the documentation"


def expanded(value: Any, resolve: Resolve) -> Expansion:
    """The composition of a value that is no scalar. Raises `Unnameable` without the path to the value."""
    way = _WAYS.get(type(value))
    try:
        found = way(value) if way is not None else _other(value, resolve)
    except NotKeepable as refused:
        raise Unnameable(f"is {a(type(value))}: {refused}") from refused
    if found is None:
        raise Unnameable(f"is {a(type(value))}; somatize.codec(kind, type, dump=, load=) gives it a name: {CODECS}")
    if type(value) is _PATH and getattr(resolve, "reading", False):
        resolve.paths = True  # type: ignore[attr-defined]
        return Expansion(worded("file", found.marker, file_digest(value)), found.parts)
    return found


_PATH = type(pathlib.Path())


def file_digest(path: pathlib.Path, around: tuple[tuple[int, int], ...] = ()) -> bytes:
    """The digest of a file's content; of a directory, of all that is in it by name; or of there being nothing.

    It is read each time, as no file system says for certain that a file is as it was. Links are followed; one to a
    directory that it lies in, `around` it, counts by how far up that is. Raises `Unnameable` for pipes and devices.
    """
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            here = found.st_dev, found.st_ino
            if here in around:
                return worded("directory around", around[::-1].index(here))
            within = [[one.name, file_digest(one, (*around, here))] for one in sorted(path.iterdir())]
            return worded("directory", within)
        if not stat.S_ISREG(found.st_mode):
            raise Unnameable(f"is a path of what is neither a file nor a directory: {path}")
        with path.open("rb") as opened:
            return worded("content", hashlib.file_digest(opened, hasher).digest())
    except (FileNotFoundError, NotADirectoryError):
        return worded("no file")
    except OSError as failed:
        raise Unnameable(f"is a path whose file cannot be read: {failed}") from failed


# Modules of somatize under the names they had when the first results were kept: moving code must not rename results.
_MODULES_IN_NAMES = {
    "somatize.codecs.tensors": "somatize.tensors",
    "somatize.dag.declaration": "somatize.declaring",
    "somatize.dag.implementation": "somatize.implementation",
    "somatize.dag.pieces": "somatize.pieces",
    "somatize.dag.plan": "somatize.plan",
    "somatize.dag.topology": "somatize.topology",
    "somatize.store.store": "somatize.store",
    "somatize.watching.context": "somatize.context",
    "somatize.watching.watchers": "somatize.watching",
    "somatize.worker.process": "somatize.worker.broker",
}


def module_in_names(module: str) -> str:
    """The module under which what is defined in `module` counts in a name."""
    return _MODULES_IN_NAMES.get(module, module)


def class_words(cls: type) -> list[str]:
    """The module and the qualified name under which a class counts in a name."""
    return [module_in_names(cls.__module__), cls.__qualname__]


def _plain(kind: str, order: int = SEQUENCE) -> Callable[[Any], Expansion]:
    marker = worded(kind)
    return lambda value: Expansion(marker, list(value), order)


def _pairs(kind: str) -> Callable[[Any], Expansion]:
    marker = worded(kind)
    return lambda value: Expansion(marker, [part for pair in value.items() for part in pair], PAIRS)


def _dumped(kind: str, dump: Callable[[Any], Any]) -> Callable[[Any], Expansion]:
    marker = worded(kind)

    def way(value: Any) -> Expansion:
        plain = dump(value)
        return Expansion(marker, plain if type(plain) is list else [plain])

    return way


def _ordered(value: OrderedDict[Any, Any]) -> list[Any]:
    return [list(value.keys()), list(value.values()), dict(vars(value))]


def _default(value: defaultdict[Any, Any]) -> list[Any]:
    return [_default_of(value), dict(value)]


def _default_of(value: defaultdict[Any, Any]) -> Any:
    factory: Any = value.default_factory
    of_python = isinstance(factory, type) and factory.__module__ == "builtins"
    return class_words(factory) if of_python else factory


def _counter(value: Counter[Any]) -> list[Any]:
    return [dict(value), dict(vars(value))]


def _memory(kind: str) -> Callable[[Any], Expansion]:
    return lambda value: Expansion(worded(kind, len(value), memory_digest([value])), [])


def _typed_array(value: array[Any]) -> Expansion:
    return Expansion(worded("array.array", value.typecode, memory_digest([memoryview(value).cast("B")])), [])


_MADE: list[dict[Any, Any]] = [{}, OrderedDict()]
_VIEWS = [view for one in _MADE for view in (one.keys(), one.values(), one.items())]

_WAYS: dict[type, Callable[[Any], Expansion]] = {
    **{cls: _dumped(cls.__qualname__, kind.dump) for cls, kind in BUILTIN.items()},
    list: _plain("list"),
    tuple: _plain("tuple"),
    dict: _pairs("dict"),
    set: _plain("set", SET),
    frozenset: _plain("frozenset", SET),
    # By what they show: it is at hand, in `copy()` of the one and `mapping` of the others, and may be a defaultdict.
    types.MappingProxyType: _dumped("mappingproxy", gc.get_referents),
    **{type(view): _dumped(type(view).__name__, gc.get_referents) for view in _VIEWS},
    OrderedDict: _dumped("OrderedDict", _ordered),
    defaultdict: _dumped("defaultdict", _default),
    Counter: _dumped("Counter", _counter),
    bytearray: _memory("bytearray"),
    array: _typed_array,
    re.Pattern: _dumped("pattern", lambda value: [value.pattern, value.flags]),
    # What a dataclass is constructed with where its field says how to make it: what was made is an attribute.
    type(getattr(dataclasses, "_HAS_DEFAULT_FACTORY", NotImplemented)): lambda _: Expansion(worded("made anew"), []),
    types.NotImplementedType: lambda _: Expansion(worded("NotImplemented"), []),
}


def _other(value: Any, resolve: Resolve) -> Expansion | None:
    cls = type(value)
    if cls in by_type:
        entry = by_type[cls]
        return Expansion(worded("codec", entry.kind, *_code_of(cls, resolve)), [_dump_registered(entry, value)])
    found = resolve(value, False)
    if found is not None:
        return found
    if isinstance(value, types.ModuleType):
        return Expansion(worded("module", value.__name__), [])
    if issubclass(cls, enum.Enum):
        words = [*class_words(cls), value._name_, *_code_of(cls, resolve)]
        return Expansion(worded("enum", *words), [value._value_])
    known = _of_library(value, cls) or _of_subclass(value, cls, resolve)
    if known is None and getattr(resolve, "library", False) and not getattr(resolve, "watching", False):
        known = resolve(value, True)
    return known or _of_object(value, cls, resolve) or resolve(value, True)


def _code_of(cls: type, resolve: Resolve) -> list[bytes]:
    """The part of a marker that identifies the code of an object's class."""
    asked = getattr(resolve, "code_of", None)
    found = asked(cls) if asked is not None else None
    return [] if found is None else [found]


def _dump_registered(entry: Any, value: Any) -> Any:
    try:
        return entry.dump(value)
    except Exception as failed:
        raise Unnameable(
            f"is {a(entry.type)}, for which the dump= of its codec {entry.kind!r} raised "
            f"{type(failed).__name__}: {failed}"
        ) from failed


def _of_library(value: Any, cls: type) -> Expansion | None:
    if cls.__module__.startswith("numpy"):
        return _of_numpy(value, cls)
    if cls.__module__.startswith("torch"):
        return _of_torch(value, cls)
    door = frame_codecs(cls)
    return None if door is None else _of_frames(value, cls, door)


def _of_frames(value: Any, cls: type, door: Any) -> Expansion | None:
    """A frame, series, index, table or array: what it is made of, elements by their bytes."""
    if door is polars_frames:
        parts = polars_frames.named_apart(value)
        return None if parts is None else Expansion(worded(named(cls)), parts)
    if door is arrow and (array := arrow.named_apart(value)) is not None:
        words, streams = array
        return Expansion(worded("pyarrow", words, memory_digest(streams())), [])
    kind = door.kind_of(cls)
    if kind is None:
        return None
    plain = kind.dump(value)
    return Expansion(worded(kind.name), plain if type(plain) is list else [plain])


def _of_numpy(value: Any, cls: type) -> Expansion | None:
    if cls.__name__.endswith("DType") or cls.__qualname__ == "dtype":
        return Expansion(worded("numpy.dtype", arrays.description(value)), [])
    if cls.__qualname__ == "ufunc":
        return Expansion(worded("numpy.ufunc", value.__name__), [])
    if library_kind(cls) is None and cls.__name__ != "memmap":
        return None
    words, array = arrays.named_apart(value)
    if array.dtype.hasobject:
        return Expansion(worded(named(cls), words), array.ravel().tolist())
    return Expansion(worded(named(cls), words, memory_digest(arrays.rows_of_bytes(array))), [])


def _of_torch(value: Any, cls: type) -> Expansion | None:
    plain = tensors.plain_words(value)
    if plain is not None:
        return Expansion(worded("torch", *plain), [])
    if not (tensors.is_plain(cls) or tensors.is_parameter(cls)):
        return None
    words, rows = tensors.named_apart(value)
    kind = "tensor" if tensors.is_plain(cls) else cls.__name__
    held = vars(value)
    if value.is_leaf and value.grad is not None:  # which code may read
        held = {**held, "grad": value.grad}
    return Expansion(worded("torch.Tensor", kind, words, memory_digest(rows)), [held] if held else [])


def _of_object(value: Any, cls: type, resolve: Resolve) -> Expansion | None:
    """An object of a Python class: its class, and all it holds by name, in the order in which it came to hold it."""
    if not objects.is_plain(cls):
        return None
    if is_library(cls.__module__) and objects.is_hollow(value):
        return None  # a sentinel; or it has something elsewhere
    held = objects.attributes(value)
    if not getattr(resolve, "watching", False):
        _refuse_reader(cls, held)
    marker = worded("object", *class_words(cls), *_code_of(cls, resolve))
    return Expansion(marker, [part for pair in held.items() for part in pair], PAIRS)


def _refuse_reader(cls: type, held: dict[Any, Any]) -> None:
    """Raise `Unnameable` for a library's object that may read from a file, by a path that it holds, as it is used."""
    if not any(hasattr(cls, name) for name in ("__getitem__", "__iter__", "__call__")):
        return
    if cls.__module__.partition(".")[0] in sys.stdlib_module_names or not is_library(cls.__module__):
        return
    for name, one in held.items():
        path = isinstance(one, os.PathLike) or (type(one) is str and os.sep in one and len(one) < 4096)
        if path and os.path.lexists(one):
            raise Unnameable(
                f"is {a(cls)} of a library, which may read what is at its `{name}` as it is used; hand over what it "
                f"reads, or register a codec: {CODECS}"
            )


_CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset, str, bytes, int, float)


def _of_subclass(value: Any, cls: type, resolve: Resolve) -> Expansion | None:
    """A subclass of a plain type: its class, what it holds as that type, and its attributes."""
    plain: Any
    for plain in _CONTAINERS:
        if issubclass(cls, plain):
            held = plain(plain.__iter__(value)) if plain in (list, tuple, set, frozenset) else _unwrapped(plain, value)
            marker = worded("subclass", *class_words(cls), *_code_of(cls, resolve))
            return Expansion(marker, [held, objects.attributes(value), *_beside(value)])
    return None


def _beside(value: Any) -> list[Any]:
    """The attributes of a dict subclass besides its keys and values."""
    if isinstance(value, OrderedDict):
        return [list(OrderedDict.keys(value))]
    return [_default_of(value)] if isinstance(value, defaultdict) else []


def _unwrapped(plain: Any, value: Any) -> Any:
    if plain is dict:
        return dict(dict.items(value))
    if plain is str:
        return str.__str__(value)
    if plain is bytes:
        return bytes.__getitem__(value, slice(None))
    return plain.__pos__(value)  # adding nothing to -0.0 would give 0.0


def a(cls: type) -> str:
    """The class name with an article, for messages: ``a Lock``."""
    name = named(cls)
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"

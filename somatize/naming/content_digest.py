"""The digest of a value: equal for equal content, in any process.

It follows any depth without recursion, takes an object at two places once, and refuses what holds itself.

There are two ways. The *levels* are for what most values are, plain lists, tuples and dicts of scalars: all that lies
equally deep is hashed at once, at msgpack's own speed. The *tree* goes through a value part by part, from its
innermost ones; it follows any depth and finds circles. Which way is taken is decided by what the
value says (its types, its depth, its size, an object at two places counted twice), never by how it lies in memory, so
that equal values always go the same way.

The tree takes apart by `expanded` every value that is no scalar. Types are matched exactly, as in `codecs`; beside
those which a codec knows, it takes what can be told apart without being read back: enums, dataclasses, named tuples and
subclasses of the plain containers (by the identity of their class and all they hold), patterns, dtypes, modules.
The order of parts means nothing in a `SET`; it counts in a `SEQUENCE` and, because code can iterate over a dict, in
`PAIRS`, which are keys and values in turn.
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
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from somatize.codecs import arrays, arrow, objects, polars_frames, tensors
from somatize.codecs.serializer import SCALARS, TEXTS, Ext, by_type, frame_codecs, library_kind, named, packer, shown
from somatize.codecs.standard_types import BUILTIN
from somatize.errors import NotKeepable, Unnameable

from .digests import BATCH, CHILD, LONG, Pack, absorb, hasher, memory_digest, shortened, worded
from .module_origin import is_library

SEQUENCE, SET, PAIRS = range(3)


class Expansion(NamedTuple):
    """A value taken apart: its kind, its parts, and what their order means."""

    marker: bytes
    parts: list[Any]
    order: int = SEQUENCE


Resolve = Callable[[Any, bool], Expansion | None]
"""Takes apart functions, classes and other objects that only the caller knows; None for other values.

Called before the built-in rules, and again with last=True if none applied. If it has a method `code_of`, that gives the
digest of the code of an object's class, because its methods may be called wherever the object goes.
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
    directory around it (`around`) counts by how many levels up that is. Raises `Unnameable` for pipes and devices.
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
    "somatize.codecs.serializer": "somatize.codecs.registry",
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
    # By the dict they show: code can get it, by `copy()` or `mapping`, and it may be a defaultdict.
    types.MappingProxyType: _dumped("mappingproxy", gc.get_referents),
    **{type(view): _dumped(type(view).__name__, gc.get_referents) for view in _VIEWS},
    OrderedDict: _dumped("OrderedDict", _ordered),
    defaultdict: _dumped("defaultdict", _default),
    Counter: _dumped("Counter", _counter),
    bytearray: _memory("bytearray"),
    array: _typed_array,
    re.Pattern: _dumped("pattern", lambda value: [value.pattern, value.flags]),
    # The default argument of a dataclass field with a factory; what the factory made is an attribute.
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
        return None  # a sentinel, or its content lies elsewhere
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


def tree_digest(value: Any, place: str, resolve: Resolve) -> bytes:
    """The digest of a value; `place` is what an `Unnameable` calls it."""
    if type(value) in SCALARS:
        return _closed(Expansion(b"scalar", [value]), packer(), None)
    return _Tree(place, resolve).digest(value)


@dataclasses.dataclass(slots=True, eq=False)
class _OpenValue:
    """A container being hashed: its position, and the digests of its parts."""

    value: Any
    expansion: Expansion
    words: list[Any] = dataclasses.field(default_factory=list)
    at: int = 0


class _Tree:
    def __init__(self, place: str, resolve: Resolve) -> None:
        self._place = place
        self._resolve = resolve
        self._pack = packer()
        self._frames: list[_OpenValue] = []
        # By id, the digest of each value, or None while it is open; what has one is held, as ids are used again.
        self._digests: dict[int, bytes | None] = {}
        self._held: list[Any] = []

    def digest(self, value: Any) -> bytes:
        frames = self._frames
        made = self._enter(value)
        while frames:
            frame = frames[-1]
            if made is not None:
                frame.words.append(Ext(CHILD, made))
            made = self._go_on(frame)
        assert made is not None
        return made

    def _go_on(self, frame: _OpenValue) -> bytes | None:
        """The digest of the next part that was finished, or of the frame itself once all are."""
        parts, words = frame.expansion.parts, frame.words
        while frame.at < len(parts):
            part = parts[frame.at]
            frame.at += 1
            if type(part) in SCALARS:
                words.append(part)
                continue
            return self._enter(part)
        self._frames.pop()
        made = _closed(frame.expansion, self._pack, words)
        self._digests[id(frame.value)] = made
        return made

    def _enter(self, value: Any) -> bytes | None:
        """The digest of a value, or None where its parts have to be gone through first."""
        known = self._digests.get(id(value), b"")
        if known:
            return known
        if known is None:
            raise self._refusal("holds itself, and a circle has no end")
        try:
            expansion = expanded(value, self._resolve)
        except Unnameable as refused:
            raise self._refusal(str(refused)) from refused.__cause__
        self._held.append(value)
        if set(map(type, expansion.parts)) <= SCALARS:
            made = self._digests[id(value)] = _closed(expansion, self._pack, None)
            return made
        self._digests[id(value)] = None
        self._frames.append(_OpenValue(value, expansion))
        return None

    def _refusal(self, what: str) -> Unnameable:
        spot = "".join(map(_spot, self._frames))
        spot = spot if len(spot) <= 200 else f"{spot[:100]}...{spot[-80:]}"
        attribute = spot.startswith(".") and self._place.endswith("`")
        place = f"{self._place} -> `{spot}`" if attribute else self._place + spot
        return Unnameable(f"{place} {what}")


def _closed(expansion: Expansion, pack: Pack, words: list[Any] | None) -> bytes:
    """The digest of a value, all parts of which are scalars or digests."""
    marker, parts, order = expansion
    said = shortened(parts if words is None else words)
    state = hasher(b"tree" + pack([marker, len(said)]))
    if order == SET:
        state.update(b"".join(sorted(map(pack, said))))
    else:
        absorb(state.update, pack, said)
    return state.digest()


# The names of parts in messages, for values whose parts are not items.
_SPOTS: dict[type, tuple[str, ...]] = {
    list: (),
    tuple: (),
    OrderedDict: (".keys()", ".values()", ".__dict__"),
    defaultdict: (".default_factory", ""),
    Counter: ("", ".__dict__"),
    deque: ("", ".maxlen"),
}


def _spot(frame: _OpenValue) -> str:
    number, order = frame.at - 1, frame.expansion.order
    if order == PAIRS:
        key = frame.expansion.parts[number // 2 * 2]
        if number % 2 == 0:
            return f".keys()[{number // 2}]"
        of_object = type(key) is str and not isinstance(frame.value, dict)
        return f".{key}" if of_object else f"[{shown(key)}]"
    if order == SET:
        return ".pop()"
    spots = _SPOTS.get(type(frame.value))
    if spots == ():
        return f"[{number}]"
    if spots is None:
        return _spot_of_array(frame, number)
    return spots[number]


def _spot_of_array(frame: _OpenValue, number: int) -> str:
    kind = type(frame.value)
    if kind.__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
        return f".<{kind.__name__}>"
    return f".flat[{number}]" if hasattr(frame.value, "dtype") else ""


DEEPEST = 1000
LARGEST = 1 << 22
"""Limits of depth and size for hashing level by level; the size also bounds circles and shared parts."""

MANY = 256
"""The number of records of one form from which they are hashed by column."""

_NUMBERS = frozenset(SCALARS - TEXTS)
# What stands for a container among the words of a level, where no word is a list or a dict otherwise.
_MARKS: dict[type, Any] = {list: [], tuple: [0], dict: {}}
_OTHER = [1]
_EXACT = {str, int, bytes}  # keys that are equal only if they are the same: 1 equals True and 1.0


def _resolve_nothing(_value: Any, _last: bool) -> None:
    return None


def content(value: Any, place: str = "input", resolve: Resolve = _resolve_nothing) -> bytes:
    """The digest of a value, 32 bytes.

    Types are told apart (1, True, 1.0; list, tuple; dtypes, shapes), floats by their bits. The order of dict keys
    counts, that of set elements does not; nor does sharing, nor the device of a tensor. Its `.grad` counts.
    Raises `Unnameable` for what cannot be named, saying where in `place` it lies.
    """
    cls = type(value)
    if cls in SCALARS and (cls in _NUMBERS or len(value) <= LONG):
        return hasher(packer(64)(value)).digest()
    try:
        found = _by_levels(value, resolve) if cls in _MARKS else None
    except Unnameable:
        found = None  # the tree says where
    return found if found is not None else tree_digest(value, place, resolve)


class _ValueTooDeep(Exception):
    """A value that is too deep or too large for the levels."""


def _by_levels(value: Any, resolve: Resolve) -> bytes | None:
    levels = _Levels(resolve)
    level: list[Any] = [value]
    depth = 0
    try:
        while True:
            levels.descend(level, depth + 1)
            if not levels.ahead:
                return levels.state.digest()
            level, depth = levels.ahead.popleft()
    except _ValueTooDeep:
        return None


class _Levels:
    """Hashes a value level by level: the words of one, then how its containers are filled, which is the next one.

    Many records of one form are hashed by column, as a column is mostly of one type. The hash of a level includes how
    the level below is divided, so that no two values have the same input to the hash.
    """

    def __init__(self, resolve: Resolve) -> None:
        self.state = hasher(b"levels")
        self.ahead: deque[tuple[list[Any], int]] = deque()
        self._resolve = resolve
        self._pack = packer()
        self._room = LARGEST

    def descend(self, level: Sequence[Any], depth: int) -> None:
        """Hash one level, and put the level below it into `ahead`."""
        kinds = set(map(type, level))
        if kinds <= SCALARS:
            self._say(level if kinds <= _NUMBERS else shortened(level, kinds))
            return
        if depth > DEEPEST:
            raise _ValueTooDeep
        self._say_kinds(level, kinds)
        below: list[Any] = []
        for cls in (list, tuple, dict):
            if cls in kinds:
                items = level if len(kinds) == 1 else [item for item in level if type(item) is cls]
                columns = self._dicts(items) if cls is dict else self._rows(items)
                if len(columns) == 1:
                    below = below + columns[0] if below else columns[0]
                else:
                    self.ahead.extend([(column, depth) for column in columns])
        if not kinds <= _PLAIN:
            for item in level:
                if type(item) not in _PLAIN:
                    self.state.update(tree_digest(item, "", self._resolve))
        if below:
            self.ahead.append((below, depth))

    def _say_kinds(self, level: Sequence[Any], kinds: set[type]) -> None:
        if len(kinds) == 1:
            self.state.update(b"all")
            self._say([_MARKS.get(type(level[0]), _OTHER)])
            return
        if kinds <= _PLAIN:
            words = [_MARKS.get(type(item), item) for item in level]
        else:
            words = [item if type(item) in SCALARS else _MARKS.get(type(item), _OTHER) for item in level]
        self._say(shortened(words, kinds) if kinds & TEXTS else words)

    def _say(self, words: Sequence[Any]) -> None:
        if len(words) <= BATCH:
            self.state.update(self._pack(words))
        else:
            absorb(self.state.update, self._pack, words)

    def _rows(self, rows: Sequence[Any]) -> list[list[Any]]:
        counts = list(map(len, rows))
        if len(rows) == 1:
            self._spend(1)
            self._say(counts)
            return [list(rows[0]) if type(rows[0]) is tuple else rows[0]]
        self._spend(len(rows) + sum(counts))
        if len(set(counts)) == 1 and _mixed(rows, rows[0]):
            self._say([counts[0], False])
            return [list(map(itemgetter(place), rows)) for place in range(counts[0])]
        self._say(counts)
        return [list(chain.from_iterable(rows))]

    def _spend(self, parts: int) -> None:
        self._room -= parts
        if self._room < 0:
            raise _ValueTooDeep

    def _dicts(self, dicts: Sequence[Any]) -> list[list[Any]]:
        sizes = list(map(len, dicts))
        self._spend(len(sizes) + sum(sizes))
        kinds = set(map(type, chain.from_iterable(dicts)))
        if kinds <= SCALARS and (len(dicts) == 1 or (len(kinds) < 2 and kinds <= _EXACT)):
            self.state.update(b"dicts")
            return [self._record(dicts[0])] if len(dicts) == 1 else self._records(dicts, sizes)
        self.state.update(b"each")
        below: list[Any] = []
        for one in dicts:
            if set(map(type, one)) <= SCALARS:
                below += self._record(one)
            else:
                self._say([len(one), tree_digest(one, "", self._resolve)])
        return [below]

    def _record(self, one: dict[Any, Any]) -> list[Any]:
        self._say([len(one)])
        self._say(shortened(list(one)))
        return list(one.values())

    def _records(self, dicts: Sequence[Any], sizes: list[int]) -> list[list[Any]]:
        """Hash dicts that are compared by their keys: the keys of each kind of record, then the kind of each dict."""
        keys = list(dicts[0])
        if len(set(sizes)) == 1 and list(chain.from_iterable(dicts)) == keys * len(dicts):
            if _mixed(dicts, dicts[0].values()):
                columns = [list(map(itemgetter(key), dicts)) for key in keys]
            else:
                columns = [list(chain.from_iterable(map(dict.values, dicts)))]
            self._say([1, len(keys), len(columns)])
            self._say(shortened(keys))
            return columns
        kinds: dict[tuple[Any, ...], int] = {}
        numbers = [kinds.setdefault(form, len(kinds)) for form in map(tuple, dicts)]
        self._say([len(kinds), *map(len, kinds)])
        self._say(shortened(list(chain.from_iterable(kinds))))
        self._say(numbers)
        return [list(chain.from_iterable(map(dict.values, dicts)))]


def _mixed(records: Sequence[Any], first: Iterable[Any]) -> bool:
    """Whether there are many records, and their columns are of different types as far as the first one tells."""
    return len(records) >= MANY and len(set(map(type, first))) > 1


_PLAIN = SCALARS | set(_MARKS)

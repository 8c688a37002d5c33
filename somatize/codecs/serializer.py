"""The binary format: its codes, the registry of types that have a codec, and the writer and reader of scripts."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped, unused-ignore]

from somatize.errors import DamagedStore, NewerFormat, NotKeepable, StoreError

from . import arrays, arrow, objects, pandas_frames, polars_frames, tensors
from .standard_types import BUILTIN, POSITIONS, TypeCodec

Ext = msgpack.ExtType
"""An extension object of msgpack: a code and its bytes."""

FORMAT = 2
"""The version of the format, the first byte of everything written: 2 says the strides of arrays and tensors.

What was written in an earlier one is read as it was: it has none of what came with the next.
"""

DEEPEST = 5_000
"""Maximum nesting depth of a value; a deeper one is refused."""

HEAD = 9  # the version, and the length of the script
NEWER = 16  # first bytes below this are kept for later versions; any other was not written here
LONG = 1024  # a text or bytes longer than this goes into the bulk, where it is not copied on its way
BATCH = 1024  # msgpack's packer doubles its buffer as it fills; batches keep that small

DEEPEST_TREE = 400  # msgpack itself follows 511 levels on its way there, and more on its way back
LARGEST_TREE = 1 << 20  # items and characters; what is larger goes in pieces, to stay small in memory

# The codes of the script's ext objects.
INT, TEXT, BYTES, VIEW, LIST, DICT, AGAIN, KIND, CODEC, END = range(10)

NUMBERS = frozenset({type(None), bool, int, float})
TEXTS = frozenset({str, bytes})
SCALARS = NUMBERS | TEXTS


def _wide(value: Any) -> msgpack.ExtType:
    # The packer calls this for what it cannot write: here, integers of more than 64 bits.
    if type(value) is not int:
        raise NotKeepable(
            f"the value changed while it was serialised (a {type(value).__name__} was put into it); do not modify it "
            "during the call"
        )
    return msgpack.ExtType(INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


PACKING: dict[str, Any] = {"strict_types": True, "default": _wide, "unicode_errors": "surrogatepass"}
"""The options of msgpack's packer."""


def packer(buf_size: int = 1 << 14) -> Callable[[Any], bytes]:
    made = msgpack.Packer(**PACKING, buf_size=buf_size)
    pack: Callable[[Any], bytes] = made.pack
    return pack


@lru_cache(maxsize=4096)
def op(code: int, data: bytes = b"") -> bytes:
    return packer(64)(msgpack.ExtType(code, data))


def header(cls: type, count: int) -> bytes:
    """The header of a list, or of the keys and values of a dict."""
    made = msgpack.Packer(buf_size=64)
    head: bytes = made.pack_array_header(count) if cls is list else made.pack_map_header(count // 2)
    return head


def unpacker(script: memoryview, ext: Callable[[int, bytes], Any]) -> Any:
    """The objects of a script one after another; no length it claims makes more memory than the script itself."""
    made = msgpack.Unpacker(
        ext_hook=ext,
        strict_map_key=False,
        unicode_errors="surrogatepass",
        max_buffer_size=len(script),
    )
    made.feed(script)
    return made


def unpacked(script: bytes, ext: Callable[[int, bytes], Any]) -> Any:
    """The one object a script is. Raises an error where it is not."""
    return msgpack.unpackb(script, ext_hook=ext, strict_map_key=False, unicode_errors="surrogatepass")


def numbered(code: int, number: int) -> bytes:
    return op(code, number.to_bytes((number.bit_length() + 7) // 8 or 1, "little"))


class Registered(NamedTuple):
    kind: str
    type: builtins.type
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


by_type: dict[type, Registered] = {}
by_kind: dict[str, Registered] = {}


def codec(kind: str, type: type, *, dump: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
    """Teach the store a further type: `dump` makes a plainer value of one, and `load` one of that again.

    What `dump` gives may hold anything that can be written, further registered types included. `kind` stands
    in what was written: it stays as it is once something was kept, and whoever reads registers it first. Only
    `type` itself is meant, not its subclasses, and `load` has to answer with exactly that type. A class defined
    again under the same name, as in a notebook, takes the place of the old one.
    """
    _check(kind, type, dump, load)
    made = Registered(kind, type, dump, load)
    if kind in by_kind:
        by_type.pop(by_kind[kind].type, None)
    by_kind[kind] = by_type[type] = made


def _check(kind: object, cls: object, dump: object, load: object) -> None:
    if not isinstance(kind, str) or not kind:
        raise TypeError(f"a codec's kind is a text that names the type in what is written, not {kind!r}")
    if not isinstance(cls, type):
        raise TypeError(f"the codec {kind!r} was given {cls!r} for its type; give a class")
    for name, way in (("dump", dump), ("load", load)):
        if not callable(way):
            raise TypeError(f"the codec {kind!r} was given {way!r} as {name}=; give a function of one value")
    if cls in SCALARS or cls in (list, dict, bytearray) or cls in BUILTIN or library_kind(cls):
        raise ValueError(f"{named(cls)} is written down without a codec; {kind!r} cannot take it over")
    for other in (by_kind.get(kind), by_type.get(cls)):
        if other and (other.kind != kind or named(other.type) != named(cls)):
            raise ValueError(f"the codec {other.kind!r} already stands for {named(other.type)}; {kind!r} and "
                             f"{named(cls)} need a kind and a type of their own")  # fmt: skip


def library_kind(cls: type) -> str | None:
    # Asked by the module's name, so that nothing is imported for a value of another library.
    if cls.__module__ == "numpy":
        return arrays.kind_of(cls)
    if cls.__module__ == "torch":
        return "tensor" if tensors.is_plain(cls) else None
    return None


def kind_of(cls: type) -> TypeCodec | None:
    """The codec for a type that is neither a container nor a scalar of Python's, or None."""
    door = frame_codecs(cls)
    found = door.kind_of(cls) if door is not None else None
    return found or objects.kind_of(cls)


def frame_codecs(cls: type) -> Any:
    """The module with the codecs of a type of pandas, polars or pyarrow; None for any other type."""
    return arrow if cls is arrow.Joined else _DOORS.get(cls.__module__.partition(".")[0])


def kind_named(name: str) -> TypeCodec | None:
    """The codec by the name that was written."""
    door = _DOORS.get(name.partition(".")[0], objects)
    kinds: dict[str, TypeCodec] = door.KINDS
    return kinds.get(name)


# Each module imports its library only once a value of it is at hand.
_DOORS: dict[str, Any] = {"pandas": pandas_frames, "polars": polars_frames, "pyarrow": arrow}


def named(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def shown(key: object) -> str:
    """A key of a dict as it is shown in the place of a value, cut to 60 characters."""
    try:
        text = repr(key)
    except Exception:
        text = f"<{named(type(key))}>"
    return text if len(text) <= 60 else f"{text[:57]}..."


_TREE = SCALARS | {list, dict}


def _is_flat(items: list[Any]) -> bool:
    """Whether every one of the items is a scalar that goes into the script as it is."""
    kinds = set(map(type, items))
    if kinds <= NUMBERS:
        return True
    if not kinds <= SCALARS:
        return False
    texts = items if kinds <= TEXTS else [item for item in items if type(item) in TEXTS]
    return max(map(len, texts)) <= LONG


def _is_tree(value: object) -> bool:
    """Whether a value is lists, dicts and short scalars alone, each list and dict at one place, and not too large.

    Looked at level by level and not item by item, as this is the way to msgpack's own speed.
    """
    level: list[Any] = [value]
    seen: set[int] = set()
    containers = room = 0
    for _ in range(DEEPEST_TREE):
        seen.update(map(id, level))
        containers += len(level)
        room += sum(map(len, level))
        if room > LARGEST_TREE:
            return False
        dicts = [one for one in level if type(one) is dict]
        items = list(chain.from_iterable(chain(level, map(dict.values, dicts))))
        kinds = set(map(type, items))
        sizes = [len(one) for one in items if type(one) in TEXTS] if kinds & TEXTS else [0]
        room += sum(sizes)
        if not kinds <= _TREE or room > LARGEST_TREE or max(sizes) > LONG or len(seen) < containers:
            return False
        if kinds <= SCALARS:
            return True
        level = [one for one in items if type(one) is list or type(one) is dict]
    return False


@dataclass(slots=True, eq=False)
class _OpenContainer:
    """A container being written: what is left of it, and the bytes that close it."""

    code: int
    items: list[Any]
    owner: object = None
    name: str = ""
    at: int = 0
    reuses: bool = False


class ScriptWriter:
    """Writes one value down, innermost parts first, with a stack of its own."""

    def __init__(self) -> None:
        self.script = bytearray()
        self.bulk: list[bytes | memoryview] = []
        self._pack = packer()
        self._frames: list[_OpenContainer] = []
        self._deep = 0
        self._made = 0
        # By the id of each container: the place it has among those made, or -1 while it is open. What was
        # numbered is held on to, as an id is that of another object once the first is gone.
        self._places: dict[int, int] = {}
        self._held: list[object] = []

    def write(self, value: object) -> None:
        self._put(value)
        frames = self._frames
        while frames:
            frame = frames[-1]
            if frame.at < len(frame.items):
                item = frame.items[frame.at]
                frame.at += 1
                self._put(item)
            else:
                frames.pop()
                self._close(frame)
        self.script += op(END)

    def _put(self, value: Any) -> None:
        cls = type(value)
        if cls in SCALARS:
            self._scalar(value, cls)
            return
        place = self._places.get(id(value))
        if place is None:
            self._container(value, cls)
        elif place < 0:
            raise self._refusal(f"this {named(cls)} holds itself, and a circle has no end")
        else:
            self.script += numbered(AGAIN, place)

    def _scalar(self, value: Any, cls: type) -> None:
        if cls in NUMBERS or len(value) <= LONG:
            self.script += self._pack(value)
            return
        place = self._places.get(id(value))
        if place is not None:
            self.script += numbered(AGAIN, place)
            return
        data = value.encode("utf-8", "surrogatepass") if cls is str else value
        self.bulk.append(data)
        self.script += op(TEXT if cls is str else BYTES, len(data).to_bytes(8, "little"))
        self._held.append(value)
        self._note(value)

    def _container(self, value: Any, cls: type) -> None:
        self._places[id(value)] = -1
        self._held.append(value)
        if cls is list or cls is dict:
            self._plain(value, cls, owner=value)
        elif cls in BUILTIN:
            self._kind(value, BUILTIN[cls])
        elif cls in by_type:
            self._registered(value, by_type[cls])
        elif cls is bytearray:
            self._bulky(value, "bytearray", [], memoryview(value))
        else:
            self._library(value, cls)

    def _plain(self, value: Any, cls: type, owner: object = None) -> None:
        """A list or dict: at once where it holds nothing but scalars, else item by item."""
        items = value if cls is list else list(chain.from_iterable(value.items()))
        if not _is_flat(items):
            if not self._frames and _is_tree(value):
                self.script += self._pack(value)
                return
            self._open(_OpenContainer(LIST if cls is list else DICT, items, owner))
            return
        if len(items) <= BATCH:
            self.script += self._pack(value)
        else:
            self._batches(items, cls)
        self._note(owner)

    def _batches(self, items: list[Any], cls: type) -> None:
        self.script += header(cls, len(items))
        for start in range(0, len(items), BATCH):
            batch = items[start : start + BATCH]
            # The batch's own header is left away: 1 byte for less than 16 items, else 3.
            self.script += memoryview(self._pack(batch))[1 if len(batch) < 16 else 3 :]

    def _kind(self, value: Any, kind: TypeCodec) -> None:
        try:
            plain = kind.dump(value)
        except NotKeepable as refused:
            raise self._refusal(str(refused)) from refused
        except Exception as failed:  # a value in an odd state must not fail the computation
            raise self._refusal(
                f"taking this {named(type(value))} apart raised {type(failed).__name__}: {failed}"
            ) from failed
        if type(plain) is list and len(plain) <= BATCH and _is_flat(plain):  # a shortcut for small tuples
            self.script += self._pack(plain) + op(KIND, kind.name.encode())
            self._note(value)
            return
        frame = _OpenContainer(KIND, [], value, kind.name)
        frame.reuses = type(plain) in (list, dict)
        self._open(frame)
        if frame.reuses:
            self._plain(plain, type(plain))
        else:
            self._scalar(plain, type(plain))

    def _registered(self, value: Any, entry: Registered) -> None:
        try:
            plain = entry.dump(value)
        except Exception as failed:
            raise self._refusal(
                f"for this {named(entry.type)} the dump= of its codec {entry.kind!r} raised "
                f"{type(failed).__name__}: {failed}"
            ) from failed
        self._open(_OpenContainer(CODEC, [plain], value, entry.kind))

    def _library(self, value: Any, cls: type) -> None:
        kind = library_kind(cls)
        if kind is None:
            way = kind_of(cls)
            if way is None:
                raise self._refusal(f"nothing here knows the type {named(cls)}")
            self._kind(value, way)
            return
        try:
            if kind == "tensor":
                form, data = tensors.dump_tensor(value)
            else:
                form, data = arrays.dump(value)
        except NotKeepable as refused:
            raise self._refusal(str(refused)) from refused
        self._bulky(value, kind, form, data)

    def _bulky(self, value: object, kind: str, form: list[Any], data: memoryview | bytes) -> None:
        """Write a description and bytes; more than `LONG` of them go into the bulk."""
        if len(data) <= LONG:
            form.append(bytes(data))
        else:
            self.bulk.append(data)
            form.append(Ext(VIEW, len(data).to_bytes(8, "little")))
        self.script += self._pack(form)
        self.script += op(KIND, kind.encode())
        self._note(value)

    def _open(self, frame: _OpenContainer) -> None:
        self._deep += frame.owner is not None
        if self._deep > DEEPEST:
            raise NotKeepable(
                f"{self._place()} lies more than {DEEPEST} levels deep; no codec follows it; return something flatter"
            )
        self._frames.append(frame)

    def _close(self, frame: _OpenContainer) -> None:
        self._deep -= frame.owner is not None
        if frame.code == LIST:
            self.script += numbered(LIST, frame.at)
        elif frame.code == DICT:
            self.script += numbered(DICT, frame.at // 2)
        else:
            self.script += op(frame.code, frame.name.encode("utf-8", "surrogatepass"))
        self._made -= frame.reuses
        self._note(frame.owner)

    def _note(self, owner: object) -> None:
        # The reader counts in the same way: each list, dict, long text and decoded object has a number.
        if owner is not None:
            self._places[id(owner)] = self._made
        self._made += 1

    def _refusal(self, what: str) -> NotKeepable:
        return NotKeepable(
            f"{self._place()} cannot be written down: {what}; register a codec for it, somatize.codec(kind, type, "
            "dump=, load=), as howto/codec in the documentation shows, or return something plainer"
        )

    def _place(self) -> str:
        """The current position in the value as an expression: ``value[3]['a']``."""
        place, within, around = "value", "", ""
        for frame in self._frames:
            if frame.code == DICT:
                key = frame.items[(frame.at - 1) // 2 * 2]
                if frame.at % 2:
                    place += f".keys()[{(frame.at - 1) // 2}]"
                else:
                    named = type(key) is str and "object" in (within, around)
                    place += f".{key}" if named or within == "namespace" else f"[{shown(key)}]"
            elif frame.code == LIST and (not within or within in POSITIONS) and not (around and frame.at == 0):
                place += f"[{frame.at - 1}]"
            elif frame.code == CODEC or frame.name.startswith(("pandas.", "polars.", "pyarrow.")):
                place += f".<{frame.name}>"
            around, within = within, frame.name if frame.code == KIND else ""
        return place if len(place) <= 200 else f"{place[:100]}...{place[-80:]}"


MISSING = object()
_END = op(END)
_FEW = 1 << 12


def plainly(data: bytes) -> Any:
    """The value of a short script that is one plain object, as most are; decoded without a stack.

    `MISSING` for all others, and for what is no value.
    """
    if len(data) > _FEW or not data.endswith(_END) or data[0] != FORMAT:
        return MISSING
    if int.from_bytes(data[1:HEAD], "little") != len(data) - HEAD:
        return MISSING
    try:
        return unpacked(data[HEAD : -len(_END)], _integer)
    except Exception:
        return MISSING


def _integer(code: int, data: bytes) -> int:
    if code != INT:
        raise ValueError(code)
    return int.from_bytes(data, "little", signed=True)


class ScriptReader:
    """Decodes one value."""

    def __init__(self, data: memoryview) -> None:
        self.size = len(data)
        self.absent: dict[str, str] = {}
        self._data = data
        self._taken = 0
        self._views = 0
        self._stack: list[Any] = []
        self._made: list[Any] = []

    def read(self) -> Any:
        script = self._script()
        objects = unpacker(script, self._ext)
        for token in objects:
            cls = type(token)
            if cls is tuple:  # an ext object, as plain objects are never tuples
                if token[0] == END:
                    return self._end(objects.tell() == len(script))
                self._apply(*token)
            else:
                self._stack.append(token)
                if cls is list or cls is dict or ((cls is str or cls is bytes) and len(token) > LONG):
                    self._made.append(token)
        raise DamagedStore(f"these {self.size} bytes end before the value does")

    def _script(self) -> memoryview:
        version = self._data[0] if self.size else 0
        if FORMAT < version < NEWER:
            raise NewerFormat(
                f"a value in format {version} was written by a later somatize; this one reads up to format {FORMAT}"
            )
        length = int.from_bytes(self._data[1:HEAD], "little")
        if not version or version > FORMAT or self.size < HEAD or not 0 < length <= self.size - HEAD:
            raise DamagedStore(f"these {self.size} bytes are no value as it was written; they may be cut short")
        self._taken = HEAD + length
        return self._data[HEAD : self._taken]

    def _end(self, complete: bool) -> Any:
        # An unused view would refer to memory that is not the caller's and may be freed.
        if not complete or self._taken != self.size or len(self._stack) != 1 or self._views:
            raise DamagedStore(f"these {self.size} bytes are not all of one value")
        return self._stack[0]

    def _ext(self, code: int, data: bytes) -> Any:
        if code == INT:
            return int.from_bytes(data, "little", signed=True)
        if code == TEXT:
            return str(self._bulk(data), "utf-8", "surrogatepass")
        if code == BYTES:
            return bytes(self._bulk(data))
        if code == VIEW:
            self._views += 1
            return self._bulk(data)
        return code, data

    def _bulk(self, length: bytes) -> memoryview:
        start, self._taken = self._taken, self._taken + int.from_bytes(length, "little")
        if self._taken > self.size:
            raise DamagedStore(f"these {self.size} bytes end before the value does")
        return self._data[start : self._taken]

    def _apply(self, code: int, data: bytes) -> None:
        if code == KIND:
            self._make(self._builtin(data, self._stack.pop()))
        elif code == LIST:
            self._make(self._pop(int.from_bytes(data, "little")))
        elif code == DICT:
            self._make(self._dict(int.from_bytes(data, "little")))
        elif code == AGAIN:
            self._stack.append(self._made[int.from_bytes(data, "little")])
        elif code == CODEC:
            self._make(self._registered(data.decode("utf-8", "surrogatepass"), self._stack.pop()))
        else:
            raise DamagedStore(f"a value holds the unknown code {code}")

    def _pop(self, count: int) -> list[Any]:
        start = len(self._stack) - count
        if start < 0:
            raise DamagedStore(f"a container of {count} items has {len(self._stack)} to take")
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _make(self, value: Any) -> None:
        self._stack.append(value)
        self._made.append(value)

    def _builtin(self, kind: bytes, plain: Any) -> Any:
        if type(plain) in (list, dict):
            self._made.pop()
        if kind in _BULKY:
            self._views -= type(plain[-1]) is memoryview
            return _BULKY[kind](plain, self.absent)
        load = _LOADS.get(kind)
        if load is None:
            way = kind_named(kind.decode())
            if way is None:
                raise DamagedStore(f"a value holds the unknown kind {kind!r}")
            load = way.load
        return load(plain)

    def _dict(self, count: int) -> dict[Any, Any]:
        items = iter(self._pop(2 * count))
        made = dict(zip(items, items, strict=True))
        if len(made) != count:
            raise DamagedStore(f"a dict of {count} keys has but {len(made)} different ones")
        return made

    def _registered(self, kind: str, plain: Any) -> Any:
        entry = by_kind.get(kind)
        if entry is None:
            raise StoreError(
                f"the value holds a {kind!r}, which no codec here can read; register it first, as when it was written: "
                f"somatize.codec({kind!r}, type, dump=, load=)"
            )
        try:
            value = entry.load(plain)
        except Exception as failed:
            raise StoreError(
                f"the load= of the codec {kind!r} raised {type(failed).__name__}: {failed}; what was written "
                "may be damaged, or of an earlier form of the type"
            ) from failed
        if type(value) is not entry.type:
            raise StoreError(
                f"the load= of the codec {kind!r} answered with a {named(type(value))}, not a {named(entry.type)}"
            )
        return value


_LOADS: Mapping[bytes, Callable[[Any], Any]] = {kind.name.encode(): kind.load for kind in BUILTIN.values()}
_BULKY: Mapping[bytes, Callable[[Any, dict[str, str]], Any]] = {
    b"bytearray": lambda plain, _: bytearray(plain[0]),
    b"ndarray": lambda plain, _: arrays.load(plain),
    b"npscalar": lambda plain, _: arrays.load_scalar(plain),
    b"tensor": lambda plain, absent: tensors.load_tensor(plain, absent, given=arrays.is_given(plain[-1])),
}

"""The codes of the binary format, and the registry of types: which may be registered, and the codec of each."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped, unused-ignore]

from somatize.errors import NotKeepable

from . import arrays, arrow, objects, pandas_frames, polars_frames, tensors
from .standard_types import BUILTIN, TypeCodec

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
    # The packer asks about what it cannot write: of what it is given here, whole numbers of more than 64 bits.
    if type(value) is not int:
        raise NotKeepable(
            f"a list or dict got a {type(value).__name__} while it was being written down; keep it as it is"
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

"""The words of a script: its codes, and what packs and unpacks them. The package says how a script reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]

from somatize.errors import NotKeepable

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


def packer(buf_size: int = 1 << 14) -> Callable[[Any], bytes]:
    made = msgpack.Packer(strict_types=True, default=_wide, unicode_errors="surrogatepass", buf_size=buf_size)
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

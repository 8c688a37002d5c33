"""Values as bytes and back, exactly: the same types, the same keys in the same order; and never a pickle.

What is written is: a byte for the version of the format; the length of the *script*, in 8 bytes; the script; and
the *bulk*, the bytes of arrays and long texts end to end. The script is a row of msgpack objects, in the order in
which a value is put together from its innermost parts, for a stack: a plain object (a scalar, or a list or dict of
scalars) is pushed, and an ext object says what to make of what lies on top. So depth costs neither side recursion.

Plain are None, bool, int of any size, float, str, bytes, list and dict. `standard_types.BUILTIN` lists the standard
library's other types, `arrays` and `tensors` make numpy's and torch's plain, `pandas_frames`, `polars_frames` and
`arrow` frames and tables, `objects` enums, named tuples and objects of Python classes; `codec` adds more, and goes
before the last four. Types are matched exactly, because a subclass would come back as its parent: it is refused with
`NotKeepable`.

One list, dict, array or tensor at two places is written once, and is one object again; a circle is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from somatize.errors import DamagedStore, StoreError, StoreWarning

from .serializer import DEEPEST, FORMAT, HEAD, MISSING, ScriptReader, ScriptWriter, codec, plainly

__all__ = ["DEEPEST", "FORMAT", "HEAD", "codec", "dump_parts", "dumps", "handed_on", "lead_of", "loads", "room", "take"]

_ALIGNED = 64
_LARGE = 1 << 20


def dumps(value: object) -> bytes:
    """The bytes `loads` makes an equal value of.

    Raises `NotKeepable` for what no codec can write, naming the type and its place in the value. A tensor
    is written detached.
    """
    return b"".join(dump_parts(value))


def dump_parts(value: object) -> list[bytes | memoryview]:
    """The same bytes in pieces, to be written one after another without ever being joined.

    The pieces of an array, a CPU tensor or a bytearray are views of its own memory: write them before it changes.
    """
    writer = ScriptWriter()
    writer.write(value)
    script = memoryview(writer.script)
    return [bytes([FORMAT]) + len(script).to_bytes(8, "little"), script, *writer.bulk]


def loads(data: bytes | bytearray | memoryview) -> Any:
    """The value that was written: new objects, which share no memory with `data`.

    A tensor goes back to its device; where that is not there, it stays on the CPU, with a `StoreWarning`.
    Raises `DamagedStore` for bytes that `dumps` did not write or that were changed since, `NewerFormat` for those of
    a later version, and `StoreError` where a registered kind, a library or a time zone is missing here.
    """
    value = plainly(data) if type(data) is bytes else MISSING
    return value if value is not MISSING else _read(ScriptReader(memoryview(data).cast("B").toreadonly()))


def take(data: memoryview) -> Any:
    """Decode a value from writable memory that the caller gives up: `loads` without a copy.

    An array or tensor that makes up most of that memory goes on using it; all else is copied. Raises as `loads`.
    """
    return _read(ScriptReader(data.cast("B")))


def handed_on(value: object, keep: Callable[[bytes | memoryview], object]) -> tuple[Any, int]:
    """Encode a value, call `keep` with the bytes, and return the decoded value and the number of bytes.

    A large value is decoded in place: there is one more copy of it in memory, not two.
    """
    parts = dump_parts(value)
    size = sum(map(len, parts))
    if size < _LARGE:
        data = b"".join(parts)
        value = loads(data)  # before `keep`: a value that cannot be decoded is not kept
        keep(data)
        return value, size
    memory = _joined(parts, size)
    value = take(memory)
    keep(memory)
    return value, size


def _joined(parts: list[bytes | memoryview], size: int) -> memoryview:
    """Join the pieces of a value, releasing each as it is copied."""
    memory = room(bytes(parts[0]), size)
    at = 0
    while parts:
        part = parts.pop(0)
        memory[at : at + len(part)] = part
        at += len(part)
    return memory


def room(head: bytes, size: int) -> memoryview:
    """Allocate `size` bytes for the value that begins with `head`, so that its arrays will be aligned."""
    lead = lead_of(head)
    return memoryview(bytearray(lead + size))[lead:]


def lead_of(head: bytes) -> int:
    """Offset at which a value has to begin in memory for its arrays to be aligned, from its first `HEAD` bytes."""
    return -(HEAD + int.from_bytes(head[1:HEAD], "little")) % _ALIGNED


def _read(reader: ScriptReader) -> Any:
    try:
        value = reader.read()
    except (StoreError, MemoryError):
        raise
    except ImportError as missing:
        raise StoreError(f"the value was made with a library that is not installed here: {missing}") from missing
    except Exception as wrong:
        raise DamagedStore(
            f"these {reader.size} bytes are no value as it was written ({type(wrong).__name__}: {wrong})"
        ) from wrong
    for device, why in reader.absent.items():
        warnings.warn(
            f"a kept tensor was on {device}, which cannot take it here ({why}); it is on the CPU",
            StoreWarning,
            stacklevel=3,
        )
    return value

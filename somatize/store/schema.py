"""The keys of the records' LMDB file, and the small values under them. Format version 1.

========================================  =====================================================
``n`` digest of a run's name              the run's number
``r`` run                                 `RunInfo`: totals, so that listing runs reads nothing else
``v`` run, writer                         nothing; the writers of a run
``w`` writer                              `WriterInfo`: who it is, and how far its journal was taken in
``c`` run, first forward, writer          a chunk: the columns of a block of rows (`columns`)
``b`` run, first forward, writer          the packed facts of those rows, one after the other
``p`` run, forward, writer, position      packed facts that came in parts, or after their row was stored
``o`` run, forward                        a forward still going when it was stored
``l`` run, forward                        the nodes a lost forward was in
``a`` run, writer                         what a writer says about the run
``t`` run, digest of a task's id          the fact said last of a task that is open (`open_tasks`)
``i``                                     the number the next run gets; numbers are never used again
========================================  =====================================================

Numbers in keys are big-endian, so that keys sort as numbers do. Every value begins with its CRC-32, which covers
the key too; a chunk has one per column, and in it one per row for the packed facts.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

import msgpack

from .lmdb_environment import BadValue, Buffer

OK, BROKE, INTERRUPTED, LOST, OPEN = 1, 2, 3, 4, 5
STATES = {OK: "ok", BROKE: "broke", INTERRUPTED: "interrupted", LOST: "lost", OPEN: "open"}

OWN = 2**64 - 1
"""The forward number under which a run's own record has its facts."""

OF_RUN = (b"v", b"c", b"b", b"p", b"o", b"l", b"a", b"t")
"""The kinds of key that belong to one run, whose number follows."""

NEXT_RUN = b"i"
_RUN = struct.Struct(">I")
_RUN_WRITER = struct.Struct(">IQ")
_RUN_FORWARD = struct.Struct(">IQ")
_BLOCK = struct.Struct(">IQQ")
_PART = struct.Struct(">IQQQ")
_CRC = struct.Struct("<I")
_TOTALS = struct.Struct("<QQQQQQQqQ")
_SEALED = struct.Struct("<IQQQQQQQqQ")
_WRITER = struct.Struct("<IIQB")


class RunInfo(NamedTuple):
    """A run's name and totals over the rows in its chunks. Times are µs since 1970."""

    name: str
    rows: int = 0
    broke: int = 0
    interrupted: int = 0
    lost: int = 0
    took_us: int = 0
    first: int = 0
    last: int = 0
    highest: int = -1
    span: int = 0
    """The most by which the last number of a block is above its first: how far back a search has to look."""


class WriterInfo(NamedTuple):
    """A writer, and how far its journals are in the store: all before `generation`, and `offset` bytes of that one."""

    run: int
    generation: int
    offset: int
    closed: bool
    about: dict[str, Any]


def name_key(name: str) -> bytes:
    """The key of a run's number, by the run's name."""
    return b"n" + blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def run_key(run: int) -> bytes:
    """The key of a run's totals."""
    return b"r" + _RUN.pack(run)


def writer_key(writer: int) -> bytes:
    """The key of a writer."""
    return b"w" + writer.to_bytes(8, "big")


def run_writer_key(kind: bytes, run: int, writer: int) -> bytes:
    """A key of kind ``v`` or ``a``."""
    return kind + _RUN_WRITER.pack(run, writer)


def forward_key(kind: bytes, run: int, forward: int) -> bytes:
    """A key of kind ``o`` or ``l``, or where the keys ``p`` of a forward begin."""
    return kind + _RUN_FORWARD.pack(run, forward)


def block_key(kind: bytes, run: int, first: int, writer: int) -> bytes:
    """A key of kind ``c`` or ``b``."""
    return kind + _BLOCK.pack(run, first, writer)


def part_key(run: int, forward: int, writer: int, position: int) -> bytes:
    """A key of kind ``p``."""
    return b"p" + _PART.pack(run, forward, writer, position)


def run_prefix(kind: bytes, run: int) -> bytes:
    """The prefix of all keys of one kind and one run."""
    return kind + _RUN.pack(run)


def run_of(key: Buffer) -> int:
    """The run in a key of any kind but ``n`` and ``w``."""
    return int.from_bytes(key[1:5], "big")


def block_of(key: bytes) -> tuple[int, int]:
    """The first forward and the writer in a key of kind ``c`` or ``b``."""
    _, first, writer = _BLOCK.unpack_from(key, 1)
    return first, writer


def forward_of(key: bytes) -> int:
    """The forward in a key of kind ``o``, ``l`` or ``p``."""
    return int(_RUN_FORWARD.unpack_from(key, 1)[1])


def writer_of(key: bytes) -> int:
    """The writer in a key of kind ``v``, ``a`` or ``p``."""
    return int.from_bytes(key[13:21] if key[:1] == b"p" else key[5:13], "big")


def position_of(key: bytes) -> int:
    """The position in a key of kind ``p``."""
    return int.from_bytes(key[21:29], "big")


def seal(key: bytes, value: bytes) -> bytes:
    """A value with its checksum before it."""
    return _CRC.pack(crc32(value, crc32(key))) + value


def unseal(key: bytes, sealed: Buffer) -> bytes:
    """The value, if it is the one that was sealed under this key; raises `BadValue`."""
    value = bytes(sealed[4:])
    if len(sealed) < 4 or _CRC.unpack_from(sealed)[0] != crc32(value, crc32(key)):
        raise BadValue(f"the value under {key!r} does not carry its checksum")
    return value


def pack_map(key: bytes, value: Any) -> bytes:
    """A sealed msgpack value."""
    return seal(key, msgpack.packb(value))


def unpack_map(key: bytes, sealed: Buffer) -> Any:
    """The inverse of `pack_map`; raises `BadValue`."""
    return msgpack.unpackb(unseal(key, sealed), strict_map_key=False)


def pack_run(key: bytes, info: RunInfo) -> bytes:
    """A sealed `RunInfo`."""
    return seal(key, _TOTALS.pack(*info[1:]) + info.name.encode("utf-8"))


def unpack_run(key: bytes, sealed: Buffer) -> RunInfo:
    """A `RunInfo`; raises `BadValue`."""
    name, (_, *totals) = unpack_totals(key, sealed)
    return RunInfo(name, *totals)


def unpack_totals(key: bytes, sealed: Buffer) -> tuple[str, tuple[int, ...]]:
    """The fields of a `RunInfo`, unpacked without making one, because a listing unpacks thousands."""
    whole = bytes(sealed)
    totals = _SEALED.unpack_from(whole) if len(whole) >= _SEALED.size else (-1,)
    if totals[0] != crc32(whole[4:], crc32(key)):
        raise BadValue(f"the value under {key!r} does not carry its checksum")
    return whole[_SEALED.size :].decode(), totals


def pack_writer(key: bytes, info: WriterInfo) -> bytes:
    """A sealed `WriterInfo`."""
    return seal(key, _WRITER.pack(info.run, info.generation, info.offset, info.closed) + msgpack.packb(info.about))


def unpack_writer(key: bytes, sealed: Buffer) -> WriterInfo:
    """A `WriterInfo`; raises `BadValue`."""
    value = unseal(key, sealed)
    run, generation, offset, closed = _WRITER.unpack_from(value)
    return WriterInfo(run, generation, offset, bool(closed), msgpack.unpackb(value[_WRITER.size :]))

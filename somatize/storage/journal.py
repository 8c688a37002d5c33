"""The file a writer appends to before anything else: one checksummed entry per `write`.

A journal is named ``<writer>.<generation>``; a writer that fills one goes on in the next generation. It begins with
who the writer is. An entry is a record, a part of a forward that still goes on, the end of such a forward, a fact
said after its forward, or something about the run. What a column needs stands in the entry's head, so that nobody
who copies entries into the store has to unpack the facts.

A process that is killed leaves at most one torn entry, at the end; a power cut may leave any pages old or zero.
`entries` gives what is whole, up to the first place where nothing whole follows.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from .environment import Buffer

RECORD, PART, END, LATE, ABOUT = 1, 2, 3, 4, 5

_MAGIC = b"somatize journal 1\n"
_START = struct.Struct("<II")
# size of what follows, its checksum; kind, state, bytes of summary, nodes, forward, when, took
_ENTRY = struct.Struct("<IIBBxxIIQQQ")
_REST = struct.Struct("<BBxxIIQQQ")
ENTRY_HEAD = _ENTRY.size
_UNSIZED = 8
_TRIED_AFTER_DAMAGE = 1 << 16

NO_TIME = 2**64 - 1
"""Stands for a duration that is not known."""


class Entry(NamedTuple):
    """One entry, as it was read. `summary` and `body` are packed; `at` is where it begins in its journal."""

    kind: int
    state: int
    nodes: int
    forward: int
    when: int
    took_us: int
    summary: bytes
    body: bytes
    at: int


def header(about: dict[str, Any]) -> bytes:
    """What a journal begins with."""
    packed = msgpack.packb(about)
    return b"".join((_MAGIC, _START.pack(len(packed), zlib.crc32(packed)), packed))


def read_header(start: Buffer) -> tuple[dict[str, Any], int] | None:
    """Who writes the journal that starts so, and where its entries begin; None if that was never written whole."""
    fixed = len(_MAGIC) + _START.size
    if bytes(start[: len(_MAGIC)]) != _MAGIC or len(start) < fixed:
        return None
    size, crc = _START.unpack_from(start, len(_MAGIC))
    packed = bytes(start[fixed : fixed + size])
    if len(packed) < size or zlib.crc32(packed) != crc:
        return None
    return msgpack.unpackb(packed), fixed + size


def is_journal(start: Buffer) -> bool:
    """Whether a file that starts so is a journal, or the beginning of one."""
    known = min(len(start), len(_MAGIC))
    return bytes(start[:known]) == _MAGIC[:known] or not bytes(start).strip(b"\0")


def entry(
    kind: int,
    forward: int,
    when: int,
    body: bytes,
    state: int = 0,
    nodes: int = 0,
    took_us: int = NO_TIME,
    summary: bytes = b"",
) -> bytes:
    """One entry, ready to be appended with a single `write`."""
    rest = b"".join((_REST.pack(kind, state, len(summary), nodes, forward, when, took_us), summary, body))
    return _START.pack(len(rest), zlib.crc32(rest)) + rest


def entries(buffer: memoryview, base: int = 0) -> Iterator[Entry | tuple[int, int]]:
    """The whole entries of a stretch of a journal; `base` is where the stretch begins in its file.

    A damaged entry with a whole one behind it comes as the pair of its place and length.
    """
    at, end = 0, len(buffer)
    unpack, crc32 = _ENTRY.unpack_from, zlib.crc32
    least = ENTRY_HEAD - _UNSIZED
    while at + ENTRY_HEAD <= end:
        size, crc, kind, state, summary, nodes, forward, when, took = unpack(buffer, at)
        rest = at + _UNSIZED
        after = rest + size
        if size < least or after > end or crc32(buffer[rest:after]) != crc:
            following = _next_whole(buffer, at)
            if following < 0:
                return
            yield base + at, following - at
            at = following
            continue
        middle = at + ENTRY_HEAD + summary
        yield Entry(
            kind,
            state,
            nodes,
            forward,
            when,
            took,
            bytes(buffer[at + ENTRY_HEAD : middle]),
            bytes(buffer[middle:after]),
            base + at,
        )
        at = after


def whole_length(buffer: memoryview) -> int:
    """How many bytes from the start of a stretch are entries, up to the end of the last whole one."""
    last = 0
    for found in entries(buffer):
        if isinstance(found, Entry):
            last = found.at + ENTRY_HEAD + len(found.summary) + len(found.body)
    return last


def _next_whole(buffer: memoryview, at: int) -> int:
    """Where the next whole entry begins after a damaged one, or -1."""
    end = len(buffer)
    claimed = at + _UNSIZED + int(_ENTRY.unpack_from(buffer, at)[0])
    if _is_whole(buffer, claimed):
        return claimed
    for place in range(at + 1, min(end - ENTRY_HEAD, at + _TRIED_AFTER_DAMAGE) + 1):
        if _is_whole(buffer, place):
            return place
    return -1


def _is_whole(buffer: memoryview, at: int) -> bool:
    if at + ENTRY_HEAD > len(buffer):
        return False
    size, crc, kind = _ENTRY.unpack_from(buffer, at)[:3]
    after = at + _UNSIZED + size
    if not RECORD <= kind <= ABOUT or size < ENTRY_HEAD - _UNSIZED or after > len(buffer):
        return False
    return zlib.crc32(buffer[at + _UNSIZED : after]) == int(crc)


def file_name(writer: int, generation: int) -> str:
    """The name of a journal in its directory."""
    return f"{writer:016x}.{generation:06d}"


def parse_name(path: Path) -> tuple[int, int] | None:
    """The writer and the generation of a journal's name; None for a name that is none."""
    writer, _, generation = path.name.partition(".")
    if len(writer) != 16 or not generation.isdigit():
        return None
    try:
        return int(writer, 16), int(generation)
    except ValueError:
        return None

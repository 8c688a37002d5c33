"""The file a writer appends to before anything else: one checksummed entry per `write`.

A journal is named ``<writer>.<generation>``; a writer that fills one goes on in the next generation. It begins with
who the writer is. An entry is a record, a part of a forward that still goes on, the end of such a forward, a fact
said after its forward, or something about the run. What a column needs stands in the entry's head, so that nobody
who copies entries into the store has to unpack the facts.

A process that is killed leaves at most one torn entry, at the end; a power cut may leave any pages old or zero.
What is whole is read (`JournalRows.take`), up to the first place where nothing whole follows.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack

from .lmdb_environment import Buffer

RECORD, PART, END, LATE, ABOUT = 1, 2, 3, 4, 5

_MAGIC = b"somatize journal 1\n"
_START = struct.Struct("<II")
# size of what follows, its checksum; kind, state, bytes of summary, nodes, forward, when, took
ENTRY = struct.Struct("<IIBBxxIIQQQ")
# An entry is ``pack_start(len(rest), crc32(rest)) + rest``, where rest is what `pack_rest` packs, summary and facts.
pack_start = _START.pack
pack_rest = struct.Struct("<BBxxIIQQQ").pack
ENTRY_HEAD = ENTRY.size
UNSIZED = 8
"""The bytes of an entry that its size does not count."""
_TRIED_AFTER_DAMAGE = 1 << 16

NO_TIME = 2**64 - 1
"""Stands for a duration that is not known."""

EntryContent = tuple[int, int, int, bytes, bytes]
"""The content of an entry: the forward's state, its number of node turns, its duration, and packed, the summary
of the facts and the facts."""


def header(about: dict[str, Any]) -> bytes:
    """The header of a journal."""
    packed = msgpack.packb(about)
    return b"".join((_MAGIC, _START.pack(len(packed), crc32(packed)), packed))


def read_header(start: Buffer) -> tuple[dict[str, Any], int] | None:
    """The writer of a journal and the offset of its first entry; None if the header was never written whole."""
    fixed = len(_MAGIC) + _START.size
    if bytes(start[: len(_MAGIC)]) != _MAGIC or len(start) < fixed:
        return None
    size, crc = _START.unpack_from(start, len(_MAGIC))
    packed = bytes(start[fixed : fixed + size])
    if len(packed) < size or crc32(packed) != crc:
        return None
    return msgpack.unpackb(packed), fixed + size


def is_journal(start: Buffer) -> bool:
    """Whether a file that starts so is a journal, or one whose first page a power cut kept from the disk."""
    known = bytes(start[: len(_MAGIC)])
    return known == _MAGIC[: len(known)] or not known.strip(b"\0")


def pack_entry(kind: int, forward: int, when: int, said: EntryContent) -> bytes:
    """One entry, ready to be appended with a single `write`."""
    state, nodes, took_us, summary, body = said
    rest = pack_rest(kind, state, len(summary), nodes, forward, when, took_us) + summary + body
    return pack_start(len(rest), crc32(rest)) + rest


def entry_at(buffer: bytes, at: int) -> tuple[int, ...] | None:
    """The head of the whole entry that begins there: `ENTRY`'s fields; None if there is none."""
    if at + ENTRY_HEAD > len(buffer):
        return None
    head = ENTRY.unpack_from(buffer, at)
    after = at + UNSIZED + head[0]
    if not RECORD <= head[2] <= ABOUT or head[0] < ENTRY_HEAD - UNSIZED or after > len(buffer):
        return None
    return head if crc32(buffer[at + UNSIZED : after]) == head[1] else None


def next_valid_entry(buffer: bytes, at: int) -> int:
    """The offset of the next whole entry after a damaged one, or -1 if there is none nearby."""
    claimed = at + UNSIZED + int(ENTRY.unpack_from(buffer, at)[0]) if at + ENTRY_HEAD <= len(buffer) else at
    if claimed > at and entry_at(buffer, claimed) is not None:
        return claimed
    for place in range(at + 1, min(len(buffer) - ENTRY_HEAD, at + _TRIED_AFTER_DAMAGE) + 1):
        if RECORD <= buffer[place + UNSIZED] <= ABOUT and entry_at(buffer, place) is not None:
            return place
    return -1


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


def read_slice(fd: int, start: int, most: int) -> bytes:
    """At most `most` bytes of a journal from `start`, and at least one whole entry if one is there."""
    buffer = os.pread(fd, most, start)
    if len(buffer) < most:
        return buffer
    while entry_at(buffer, 0) is None and next_valid_entry(buffer, 0) < 0:
        longer = os.pread(fd, 2 * len(buffer), start)
        if len(longer) == len(buffer):
            break
        buffer = longer
    return buffer

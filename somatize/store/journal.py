"""The format of journals, the write-ahead logs of writers: one checksummed entry per `write`.

A journal is named ``<writer>.<generation>``; a writer that fills one goes on in the next generation. It begins with
a header that identifies the writer. An entry is a record, a part of an open forward, the end of such a forward, a
fact said after its forward, or metadata of the run. The head of an entry has the values of the columns, so that
entries are copied into the store without unpacking their facts.

A killed process leaves at most one torn entry, at the end; a power cut may leave any page old or zero. Valid
entries are read (`JournalRows.read`) up to the first place after which none follows.
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
# size of the rest, its checksum; kind, state, bytes of the summary, nodes, forward, when, took
ENTRY = struct.Struct("<IIBBxxIIQQQ")
# An entry is ``pack_start(len(rest), crc32(rest)) + rest``, where rest is what `pack_rest` packs, summary and facts.
pack_start = _START.pack
pack_rest = struct.Struct("<BBxxIIQQQ").pack
ENTRY_HEAD = ENTRY.size
UNSIZED = 8
"""The bytes of an entry that its size does not count: the size itself and the checksum."""
_TRIED_AFTER_DAMAGE = 1 << 16

NO_TIME = 2**64 - 1
"""The code of an unknown duration."""

EntryContent = tuple[int, int, int, bytes, bytes]
"""The content of an entry: state, number of node turns and duration in µs, packed summary, packed facts."""


def header(about: dict[str, Any]) -> bytes:
    """The header of a journal, with the given metadata of its writer."""
    packed = msgpack.packb(about)
    return b"".join((_MAGIC, _START.pack(len(packed), crc32(packed)), packed))


def read_header(start: Buffer) -> tuple[dict[str, Any], int] | None:
    """The metadata in the header and the offset of the first entry; None if the header is incomplete."""
    fixed = len(_MAGIC) + _START.size
    if bytes(start[: len(_MAGIC)]) != _MAGIC or len(start) < fixed:
        return None
    size, crc = _START.unpack_from(start, len(_MAGIC))
    packed = bytes(start[fixed : fixed + size])
    if len(packed) < size or crc32(packed) != crc:
        return None
    return msgpack.unpackb(packed), fixed + size


def is_journal(start: Buffer) -> bool:
    """Whether a file with this beginning is a journal, or one that lost its first page in a power cut."""
    known = bytes(start[: len(_MAGIC)])
    return known == _MAGIC[: len(known)] or not known.strip(b"\0")


def pack_entry(kind: int, forward: int, when: int, said: EntryContent) -> bytes:
    """A packed entry, to be appended with a single `write`."""
    state, nodes, took_us, summary, body = said
    rest = pack_rest(kind, state, len(summary), nodes, forward, when, took_us) + summary + body
    return pack_start(len(rest), crc32(rest)) + rest


def entry_at(buffer: bytes, at: int) -> tuple[int, ...] | None:
    """The head (the fields of `ENTRY`) of the entry at an offset; None if no valid entry is there."""
    if at + ENTRY_HEAD > len(buffer):
        return None
    head = ENTRY.unpack_from(buffer, at)
    after = at + UNSIZED + head[0]
    if not RECORD <= head[2] <= ABOUT or head[0] < ENTRY_HEAD - UNSIZED or after > len(buffer):
        return None
    return head if crc32(buffer[at + UNSIZED : after]) == head[1] else None


def next_valid_entry(buffer: bytes, at: int) -> int:
    """The offset of the next valid entry after a damaged one; -1 if none is near."""
    claimed = at + UNSIZED + int(ENTRY.unpack_from(buffer, at)[0]) if at + ENTRY_HEAD <= len(buffer) else at
    if claimed > at and entry_at(buffer, claimed) is not None:
        return claimed
    for place in range(at + 1, min(len(buffer) - ENTRY_HEAD, at + _TRIED_AFTER_DAMAGE) + 1):
        if RECORD <= buffer[place + UNSIZED] <= ABOUT and entry_at(buffer, place) is not None:
            return place
    return -1


def file_name(writer: int, generation: int) -> str:
    """The file name of a journal."""
    return f"{writer:016x}.{generation:06d}"


def console_name(writer: int) -> str:
    """The file name of the last lines that the process of a writer wrote to its console; no journal has such a one."""
    return f"{writer:016x}.console"


def parse_name(path: Path) -> tuple[int, int] | None:
    """The writer and the generation of a journal's path; None for another file."""
    writer, _, generation = path.name.partition(".")
    if len(writer) != 16 or not generation.isdigit():
        return None
    try:
        return int(writer, 16), int(generation)
    except ValueError:
        return None


def read_slice(fd: int, start: int, most: int) -> bytes:
    """At most `most` bytes of a journal from `start` on; more if a single entry is longer."""
    buffer = os.pread(fd, most, start)
    if len(buffer) < most:
        return buffer
    while entry_at(buffer, 0) is None and next_valid_entry(buffer, 0) < 0:
        longer = os.pread(fd, 2 * len(buffer), start)
        if len(longer) == len(buffer):
            break
        buffer = longer
    return buffer

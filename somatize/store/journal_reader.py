"""Reading journals beyond a snapshot: the heads of entries as columns, and single stretches in full.

A reader that polls a fast run ten times a second needs few of the records that are not committed yet. So the journal
of a live writer is scanned from head to head, and only the stretch with the wanted forwards is checked and unpacked.
That is safe: every `write` of a live process is complete but the last, whose checksum is verified. If the heads do
not lead to the end, or the writer is dead, every entry is checked.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from somatize.utils.notices import warn_of_record

from . import journal, speedups
from .journal import ABOUT, ENTRY_HEAD, NO_TIME, RECORD, UNSIZED
from .record_format import BROKE, INTERRUPTED, LOST, OWN
from .rows import JournalRows

_HEAD = struct.Struct("<I4xBBxx4x4xQQQ")
_SIZE, _KIND = 0, 1
_NARROW, _WIDE = "B", "Q"
_CODES = (_WIDE, _NARROW, _NARROW, _WIDE, _WIDE, _WIDE)
_PARTS = (journal.PART, journal.END)


class JournalCounts(NamedTuple):
    """Numbers of forwards by state, their total duration, and the first and last time of writing, in µs."""

    rows: int = 0
    broke: int = 0
    interrupted: int = 0
    lost: int = 0
    took_us: int = 0
    first: int = 0
    last: int = 0

    @classmethod
    def of(cls, states: Sequence[int], whens: Sequence[int], took: Sequence[int]) -> JournalCounts:
        """The counts of forwards with these states, times of writing and durations."""
        if not states:
            return cls()
        return cls(
            len(states),
            states.count(BROKE),
            states.count(INTERRUPTED),
            states.count(LOST),
            sum([us for us in took if 0 < us < NO_TIME]),
            min(whens),
            max(whens),
        )

    @classmethod
    def merged(cls, some: Iterable[JournalCounts]) -> JournalCounts:
        """The sum of several counts."""
        counts = [one for one in some if one.rows]
        if not counts:
            return cls()
        rows, broke, interrupted, lost, took_us, firsts, lasts = zip(*counts, strict=True)
        return cls(sum(rows), sum(broke), sum(interrupted), sum(lost), sum(took_us), min(firsts), max(lasts))


class Heads:
    """The heads of the entries of a journal from an offset on, as columns. Appended to as the journal grows."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._columns = [array(code) for code in _CODES]

    def __len__(self) -> int:
        return len(self._columns[0])

    def append(self, buffer: bytes) -> bool:
        """Append the heads of the entries that follow; False, unchanged, if they do not lead to the end."""
        look = _scan_heads if speedups.MODULE is None else speedups.MODULE.heads
        found = look(buffer, self.end)
        if found is None:
            return False
        if found[0]:
            (last,) = struct.unpack("=Q", found[0][-8:])
            if journal.entry_at(buffer, last - self.end) is None:
                return False
        for column, more in zip(self._columns, found, strict=True):
            column.frombytes(more)
        self.end += len(buffer)
        return True

    def starting_at(self, start: int) -> Heads:
        """The heads from an offset on, at which an entry begins or the journal ends."""
        made = Heads(start)
        first = bisect_left(self._columns[0], start)
        made._columns, made.end = [column[first:] for column in self._columns], self.end
        return made

    def stretch(self, first: int, last: int) -> tuple[int, int] | None:
        """The byte range with all entries of the forwards from `first` to `last`; None if there are none."""
        places, forwards = self._columns[0], self._columns[3]
        within = _within if speedups.MODULE is None else speedups.MODULE.within
        start, end = within(forwards, max(0, first), max(0, min(last, OWN)))
        if start == end:
            return None
        return places[start], places[end] if end < len(places) else self.end

    @property
    def highest(self) -> int:
        """The highest forward number; -1 if there is none."""
        find = _highest if speedups.MODULE is None else speedups.MODULE.highest
        return int(find(self._columns[3]))

    def counted(self) -> JournalCounts | None:
        """Counts of the forwards; None if one was written in parts, so that its entries have to be read."""
        _, kinds, states, _, whens, took = self._columns
        kinds_said = kinds.tobytes()
        if any(part in kinds_said for part in _PARTS):
            return None
        if speedups.MODULE is not None:
            return JournalCounts(*speedups.MODULE.totals(kinds_said, states.tobytes(), whens, took))
        whole = [at for at, kind in enumerate(kinds_said) if kind == RECORD]
        return JournalCounts.of(*([column[at] for at in whole] for column in (states, whens, took)))


def _scan_heads(buffer: bytes, base: int) -> list[bytes] | None:
    """The columns of the heads in a stretch of a journal, as bytes; None if they do not lead to the end."""
    unpack, at, end = _HEAD.unpack_from, 0, len(buffer)
    rows: list[tuple[int, ...]] = []
    while at + ENTRY_HEAD <= end:
        head = unpack(buffer, at)
        if not RECORD <= head[_KIND] <= ABOUT or head[_SIZE] < ENTRY_HEAD - UNSIZED:
            return None
        rows.append((base + at, *head[1:]))
        at += UNSIZED + head[_SIZE]
    if at != end:
        return None
    columns = zip(*rows, strict=True) if rows else [()] * len(_CODES)
    return [array(code, column).tobytes() for code, column in zip(_CODES, columns, strict=True)]


def _within(forwards: Sequence[int], first: int, last: int) -> tuple[int, int]:
    """The indexes (start, end) between which all numbers from `first` to `last` lie."""
    found = [at for at, forward in enumerate(forwards) if first <= forward <= last]
    return (found[0], found[-1] + 1) if found else (0, 0)


def _highest(forwards: Sequence[int]) -> int:
    return max([number for number in set(forwards) if number != OWN], default=-1)


_LOOKS = 4
_MOST_KEPT = 200_000
"""The number of heads that the cache keeps, about 7 MB."""


class JournalFile(NamedTuple):
    """An open journal as of before the snapshot, and whether its writer was alive then."""

    path: Path
    fd: int
    writer: int
    generation: int
    alive: bool


class HeadCache:
    """A cache of the heads read so far, so that a process reads each once."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Empty the cache, as in a forked child."""
        self._kept: dict[tuple[int, ...], Heads] = {}

    def heads(self, file: JournalFile, start: int) -> Heads | None:
        """The heads of a journal from `start` to its current end; None if they do not lead there."""
        place = os.fstat(file.fd)
        key = file.writer, file.generation, place.st_dev, place.st_ino  # a copied store has the same writers
        known = self._kept.pop(key, None)  # another thread does not append to it meanwhile, but reads it itself
        known = known.starting_at(start) if known is not None and known.start <= start <= known.end else Heads(start)
        if not known.append(read_range(file.fd, known.end)):
            return None
        found = known.starting_at(start)
        self._keep(key, known)
        return found

    def _keep(self, key: tuple[int, ...], known: Heads) -> None:
        """Keep the heads of the journals that were read last, up to the limit."""
        room, kept = _MOST_KEPT, {key: known, **self._kept}
        self._kept = {at: heads for at, heads in kept.items() if (room := room - len(heads) - 100) > 0}


_HEAD_CACHE = HeadCache()
os.register_at_fork(after_in_child=_HEAD_CACHE.forget)


class Tail:
    """The entries of one journal beyond the snapshot. Valid while its file is open."""

    def __init__(self, file: JournalFile, about: dict[str, Any], start: int) -> None:
        self.writer = file.writer
        self.run: int = about["run"]
        self.about = about
        self.fields: list[str] = about["fields"]
        self._file = file
        self._start = start

    @cached_property
    def heads(self) -> Heads | None:
        """The heads of its entries; None if every entry has to be checked."""
        return _HEAD_CACHE.heads(self._file, self._start) if self._file.alive else None

    @cached_property
    def gathered(self) -> JournalRows:
        """All its entries, as rows."""
        end = None if self.heads is None else self.heads.end
        return self._gathered(self._start, end)

    def _gathered(self, start: int, end: int | None) -> JournalRows:
        for _ in range(_LOOKS):
            found = JournalRows(self.writer, self.fields, self._file.generation).read(
                read_range(self._file.fd, start, end), start
            )
            if not found.damaged:
                break  # it may have been read in the middle of a write, which is complete by now
        warn_of_damage(self._file.path, found)
        return found

    def of(self, first: int, last: int) -> JournalRows:
        """The rows of the forwards from `first` to `last`, and possibly of others."""
        heads = self.heads
        if heads is None or "gathered" in self.__dict__ or (first <= 0 and last >= OWN):
            return self.gathered
        stretch = heads.stretch(first, last)
        return JournalRows(self.writer, self.fields) if stretch is None else self._gathered(*stretch)

    @cached_property
    def highest(self) -> int:
        """The highest forward number in it; -1 if there is none."""
        if self.heads is not None:
            return self.heads.highest
        return max([number for number in self.gathered.rows if number != OWN], default=-1)

    def counted(self) -> JournalCounts | None:
        """Counts of its forwards; None if its entries have to be read for that."""
        return None if self.heads is None else self.heads.counted()


def warn_of_damage(path: Path, gathered: JournalRows) -> None:
    """Warn about damaged entries of a journal, which were skipped."""
    for at, length in gathered.damaged:
        warn_of_record(f"{path} is damaged from byte {at} on; {length} bytes of it were skipped")


def read_range(fd: int, at: int, end: int | None = None) -> bytes:
    """The bytes of a file from `at` to `end`, by default to its current end."""
    end = os.fstat(fd).st_size if end is None else end
    parts = []
    while at < end and (part := os.pread(fd, end - at, at)):
        parts.append(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)

"""What a journal holds beyond a snapshot: found by the heads of its entries, looked at closely where it is asked for.

A reader that looks ten times a second at a fast run wants few of the records that are not committed yet. So the journal
of a living writer is gone through from head to head, and only the stretch that holds the wanted forwards is checked
and unpacked. That is safe: of a process that lives every `write` is whole but the last, whose checksum is looked at.
Where the heads do not lead to the end, and of a writer that is dead, every entry is checked.
"""

from __future__ import annotations

import os
import struct
import threading
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from . import journal
from .gather import Gathered
from .journal import ABOUT, ENTRY_HEAD, LATE, NO_TIME, RECORD, UNSIZED
from .notices import warn
from .schema import BROKE, INTERRUPTED, LOST, OWN

_LOOKS = 4
_MOST_KEPT = 50_000
"""Heads kept between looks: some 12 MB of them."""
_HEAD = struct.Struct("<I4xBBxx4x4xQQQ")

Head: TypeAlias = tuple[int, int, int, int, int, int]
"""The size of an entry, its kind, the forward's state, its number, when it was written, and how long it took."""
KIND, STATE, FORWARD, WHEN, TOOK_US = 1, 2, 3, 4, 5


class JournalFile(NamedTuple):
    """A journal as it lay there before the snapshot was taken, and whether its writer lived then."""

    path: Path
    fd: int
    writer: int
    generation: int
    alive: bool


class Heads:
    """The heads of the entries of a journal, from one on, and where each begins; it grows as the journal does."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.places: list[int] = []
        self.heads: list[Head] = []

    def take(self, buffer: bytes) -> bool:
        """Take in the entries that follow; False, and nothing taken in, where they do not lead to the end."""
        unpack, at, end = _HEAD.unpack_from, 0, len(buffer)
        places: list[int] = []
        heads: list[Head] = []
        while at + ENTRY_HEAD <= end:
            head = unpack(buffer, at)
            if not RECORD <= head[KIND] <= ABOUT or head[0] < ENTRY_HEAD - UNSIZED:
                return False
            places.append(at)
            heads.append(head)
            at += UNSIZED + head[0]
        if at != end or (places and journal.entry_at(buffer, places[-1]) is None):
            return False
        base = self.end
        self.places += [base + place for place in places]
        self.heads += heads
        self.end = base + end
        return True

    def since(self, start: int) -> Heads:
        """Those from a place on, which is where an entry begins or the end."""
        made = Heads(start)
        first = bisect_left(self.places, start)
        made.places, made.heads, made.end = self.places[first:], self.heads[first:], self.end
        return made


class Known:
    """The heads that were read in earlier looks at the journals of a store, so that each is read once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, int], Heads] = {}

    def heads(self, file: JournalFile, start: int) -> Heads | None:
        """Those of a journal from `start` to its end as it is now; None where they do not lead there."""
        key = file.writer, file.generation
        with self._lock:
            known = self._kept.pop(key, None)
            known = known.since(start) if known is not None and known.start <= start <= known.end else Heads(start)
            if not known.take(rest(file.fd, known.end)):
                return None
            self._keep(key, known)
            return known.since(start)

    def _keep(self, key: tuple[int, int], known: Heads) -> None:
        """Keep what was read last, of as many journals as there is room for."""
        room, kept = _MOST_KEPT, {key: known, **self._kept}
        self._kept = {at: heads for at, heads in kept.items() if (room := room - len(heads.places) - 100) > 0}


class Counted(NamedTuple):
    """How many forwards there are and how they ended, how long they took, and when they were written down, in µs."""

    rows: int = 0
    broke: int = 0
    interrupted: int = 0
    lost: int = 0
    took_us: int = 0
    first: int = 0
    last: int = 0

    @classmethod
    def of(cls, states: Sequence[int], whens: Sequence[int], took: Sequence[int]) -> Counted:
        """Of forwards how each ended, when it was written down, and how long it took where that is known."""
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


class Tail:
    """What one journal holds beyond the snapshot. Valid while its file is open."""

    def __init__(self, file: JournalFile, about: dict[str, Any], start: int, known: Known) -> None:
        self.writer = file.writer
        self.run: int = about["run"]
        self.about = about
        self.fields: list[str] = about["fields"]
        self._file = file
        self._start = start
        self._known = known

    @cached_property
    def heads(self) -> Heads | None:
        """The heads of its entries; None if it has to be looked at closely."""
        return self._known.heads(self._file, self._start) if self._file.alive else None

    @cached_property
    def gathered(self) -> Gathered:
        """All that it holds."""
        end = None if self.heads is None else self.heads.end
        return self._gathered(self._start, end)

    def _gathered(self, start: int, end: int | None) -> Gathered:
        for _ in range(_LOOKS):
            found = Gathered(self.writer, self.fields, self._file.generation).take(
                rest(self._file.fd, start, end), start
            )
            if not found.damaged:
                break  # else it may have been half written when it was read, and is whole by now
        tell_damage(self._file.path, found)
        return found

    def of(self, first: int, last: int) -> Gathered:
        """What it holds of the forwards from `first` to `last`, and perhaps something of others."""
        heads = self.heads
        if heads is None or "gathered" in self.__dict__ or (first <= 0 and last >= OWN):
            return self.gathered
        some = [place for place, head in zip(heads.places, heads.heads, strict=True) if first <= head[FORWARD] <= last]
        if not some:
            return Gathered(self.writer, self.fields)
        after = bisect_left(heads.places, some[-1] + 1)
        return self._gathered(some[0], heads.places[after] if after < len(heads.places) else heads.end)

    @cached_property
    def highest(self) -> int:
        """The highest number of a forward in it; -1 if there is none."""
        numbers = self.gathered.rows if self.heads is None else {head[FORWARD] for head in self.heads.heads}
        return max([number for number in numbers if number != OWN], default=-1)

    def counted(self) -> tuple[list[int], list[int], list[int]] | None:
        """Of each forward in it how it ended, when it was written down and how long it took.

        None if it has to be looked at closely for that: where one was or is written down in parts.
        """
        heads = None if self.heads is None else self.heads.heads
        if heads is None or not {head[KIND] for head in heads} <= {RECORD, LATE, ABOUT}:
            return None
        whole = [head for head in heads if head[KIND] == RECORD]
        states, whens, took = ([head[at] for head in whole] for at in (STATE, WHEN, TOOK_US))
        return states, whens, took


def tell_damage(path: Path, gathered: Gathered) -> None:
    """Warn of the entries of a journal that were skipped."""
    for at, length in gathered.damaged:
        warn(f"{path} is damaged from byte {at} on; {length} bytes of it were skipped")


def rest(fd: int, at: int, end: int | None = None) -> bytes:
    """What a file holds from a place on, up to its end or to `end`."""
    parts = []
    while part := os.pread(fd, 8 << 20 if end is None else min(8 << 20, end - at), at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)

"""The heads of a journal's entries as columns: where each begins, its kind, its forward and how that ended."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from . import journal, speedups
from .journal import ABOUT, ENTRY_HEAD, NO_TIME, RECORD, UNSIZED
from .schema import BROKE, INTERRUPTED, LOST, OWN

_HEAD = struct.Struct("<I4xBBxx4x4xQQQ")
_SIZE, _KIND = 0, 1
_NARROW, _WIDE = "B", "Q"
_CODES = (_WIDE, _NARROW, _NARROW, _WIDE, _WIDE, _WIDE)
_PARTS = (journal.PART, journal.END)


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

    @classmethod
    def together(cls, some: Iterable[Counted]) -> Counted:
        """All of them as one."""
        counts = [one for one in some if one.rows]
        if not counts:
            return cls()
        rows, broke, interrupted, lost, took_us, firsts, lasts = zip(*counts, strict=True)
        return cls(sum(rows), sum(broke), sum(interrupted), sum(lost), sum(took_us), min(firsts), max(lasts))


class Heads:
    """The heads of the entries of a journal, from one on; it grows as the journal does."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._columns = [array(code) for code in _CODES]

    def __len__(self) -> int:
        return len(self._columns[0])

    def take(self, buffer: bytes) -> bool:
        """Take in the entries that follow; False, and nothing taken in, where they do not lead to the end."""
        look = _looked_at if speedups.MODULE is None else speedups.MODULE.heads
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

    def since(self, start: int) -> Heads:
        """Those from a place on, which is where an entry begins or the end."""
        made = Heads(start)
        first = bisect_left(self._columns[0], start)
        made._columns, made.end = [column[first:] for column in self._columns], self.end
        return made

    def stretch(self, first: int, last: int) -> tuple[int, int] | None:
        """Where the entries about the forwards from `first` to `last` begin and end; None if there are none."""
        places, forwards = self._columns[0], self._columns[3]
        within = _within if speedups.MODULE is None else speedups.MODULE.within
        start, end = within(forwards, max(0, first), max(0, min(last, OWN)))
        if start == end:
            return None
        return places[start], places[end] if end < len(places) else self.end

    @property
    def highest(self) -> int:
        """The highest number of a forward; -1 if there is none."""
        find = _highest if speedups.MODULE is None else speedups.MODULE.highest
        return int(find(self._columns[3]))

    def counted(self) -> Counted | None:
        """What there is to count; None where a forward was or is written down in parts, which takes a closer look."""
        _, kinds, states, _, whens, took = self._columns
        kinds_said = kinds.tobytes()
        if any(part in kinds_said for part in _PARTS):
            return None
        if speedups.MODULE is not None:
            return Counted(*speedups.MODULE.totals(kinds_said, states.tobytes(), whens, took))
        whole = [at for at, kind in enumerate(kinds_said) if kind == RECORD]
        return Counted.of(*([column[at] for at in whole] for column in (states, whens, took)))


def _looked_at(buffer: bytes, base: int) -> list[bytes] | None:
    """The columns of what a stretch of a journal holds, as bytes; None where its heads do not lead to the end."""
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
    """From which to which place the numbers lie that are from `first` to `last`."""
    found = [at for at, forward in enumerate(forwards) if first <= forward <= last]
    return (found[0], found[-1] + 1) if found else (0, 0)


def _highest(forwards: Sequence[int]) -> int:
    return max([number for number in set(forwards) if number != OWN], default=-1)

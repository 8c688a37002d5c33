"""What a journal holds beyond a snapshot: found by the heads of its entries, looked at closely where it is asked for.

A reader that looks ten times a second at a fast run wants few of the records that are not committed yet. So the journal
of a living writer is gone through from head to head, and only the stretch that holds the wanted forwards is checked
and unpacked. That is safe: of a process that lives every `write` is whole but the last, whose checksum is looked at.
Where the heads do not lead to the end, and of a writer that is dead, every entry is checked.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from somatize.utils.notices_part import warn

from .gather import Gathered
from .heads import Counted, Heads
from .schema import OWN

_LOOKS = 4
_MOST_KEPT = 200_000
"""Heads kept between looks: some 7 MB of them."""


class JournalFile(NamedTuple):
    """A journal as it lay there before the snapshot was taken, and whether its writer lived then."""

    path: Path
    fd: int
    writer: int
    generation: int
    alive: bool


class Known:
    """The heads that were read in earlier looks at journals, so that each is read once by a process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked child."""
        self._kept: dict[tuple[int, ...], Heads] = {}

    def heads(self, file: JournalFile, start: int) -> Heads | None:
        """Those of a journal from `start` to its end as it is now; None where they do not lead there."""
        place = os.fstat(file.fd)
        key = file.writer, file.generation, place.st_dev, place.st_ino  # a store that was copied has a writer's twice
        known = self._kept.pop(key, None)  # so that nobody else adds to it: who comes meanwhile reads it anew
        known = known.since(start) if known is not None and known.start <= start <= known.end else Heads(start)
        if not known.take(rest(file.fd, known.end)):
            return None
        found = known.since(start)
        self._keep(key, known)
        return found

    def _keep(self, key: tuple[int, ...], known: Heads) -> None:
        """Keep what was read last, of as many journals as there is room for."""
        room, kept = _MOST_KEPT, {key: known, **self._kept}
        self._kept = {at: heads for at, heads in kept.items() if (room := room - len(heads) - 100) > 0}


KNOWN = Known()
os.register_at_fork(after_in_child=KNOWN.forget)


class Tail:
    """What one journal holds beyond the snapshot. Valid while its file is open."""

    def __init__(self, file: JournalFile, about: dict[str, Any], start: int) -> None:
        self.writer = file.writer
        self.run: int = about["run"]
        self.about = about
        self.fields: list[str] = about["fields"]
        self._file = file
        self._start = start

    @cached_property
    def heads(self) -> Heads | None:
        """The heads of its entries; None if it has to be looked at closely."""
        return KNOWN.heads(self._file, self._start) if self._file.alive else None

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
        stretch = heads.stretch(first, last)
        return Gathered(self.writer, self.fields) if stretch is None else self._gathered(*stretch)

    @cached_property
    def highest(self) -> int:
        """The highest number of a forward in it; -1 if there is none."""
        if self.heads is not None:
            return self.heads.highest
        return max([number for number in self.gathered.rows if number != OWN], default=-1)

    def counted(self) -> Counted | None:
        """Of the forwards in it how they ended, when they were written down and how long they took.

        None if it has to be looked at closely for that: where one was or is written down in parts.
        """
        return None if self.heads is None else self.heads.counted()


def tell_damage(path: Path, gathered: Gathered) -> None:
    """Warn of the entries of a journal that were skipped."""
    for at, length in gathered.damaged:
        warn(f"{path} is damaged from byte {at} on; {length} bytes of it were skipped")


def rest(fd: int, at: int, end: int | None = None) -> bytes:
    """What a file holds from a place on, up to `end` or to where it ends now: it may grow faster than it is read."""
    end = os.fstat(fd).st_size if end is None else end
    parts = []
    while at < end and (part := os.pread(fd, end - at, at)):
        parts.append(part)
        at += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)

"""Entries that the disk did not take, kept in memory up to a bound until there is room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .journal import Said
from .pending import Pending

MOST_BYTES = 16 << 20
"""Bytes kept in memory, counting what an entry takes beside its facts."""
_BESIDES = 400


class Backlog:
    """What a writer still has to append, in order. True if there is something; `dropped` counts what fell out."""

    def __init__(self) -> None:
        self.entries: deque[tuple[Pending | None, int, int, Said]] = deque()
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, pending: Pending | None, kind: int, when: int, said: Said) -> None:
        """Keep an entry, or count it as dropped if it does not fit."""
        size = len(said[4]) + _BESIDES
        if self._bytes + size > MOST_BYTES:
            self.dropped += 1
            return
        self._bytes += size
        self.entries.append((pending, kind, when, said))

    def drain(self, append: Callable[[Pending | None, int, int, Said], None]) -> None:
        """Append what is kept, as far as the disk takes it."""
        while self.entries:
            first = self.entries[0]
            try:
                append(*first)
            except OSError:
                return
            self.entries.popleft()
            self._bytes -= len(first[3][4]) + _BESIDES

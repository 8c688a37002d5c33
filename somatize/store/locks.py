"""The locks of a store: byte ranges of one file, which the system lets go of when their process dies.

POSIX record locks are what a crash cannot leave behind, what a reused pid cannot fake, and what a forked child
does not inherit. Their one trap is that closing any descriptor of the file drops all that the process holds: so a
process has the file open once, in its `Opened`, and nothing else ever opens it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

# struct flock: type, whence, start, length and pid; on the BSDs and macOS the first two come last.
_LINUX = sys.platform.startswith("linux")
_FLOCK = struct.Struct("hhqqi4x" if _LINUX else "qqihh")
_RUNS = 1 << 61
_OPENING = 1 << 62


def of_writer(writer: int) -> int:
    """The byte a writer holds as long as it lives."""
    return writer


def of_run(run: int) -> int:
    """The byte that is held while a record of a run gets its number."""
    return _RUNS + run


OPENING = _OPENING
"""The byte that is held while writers are counted: opening a run, repairing, forgetting."""


class Locks:
    """The lock file of one store, as this process has it open."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self._fd = -1
        if path.exists():
            self._fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        self._held: set[int] = set()

    def hold(self, offset: int) -> None:
        """Take the lock on one byte, waiting for other processes; threads of this one must take turns themselves."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, offset)
        self._held.add(offset)

    def take(self, offset: int) -> bool:
        """Take the lock on one byte if no other process and nobody in this one has it."""
        if offset in self._held:
            return False
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except OSError:
            return False
        self._held.add(offset)
        return True

    def release(self, offset: int) -> None:
        """Let go of a byte."""
        self._held.discard(offset)
        if self._fd >= 0:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, offset)

    def is_held(self, offset: int) -> bool:
        """Whether a live process, this one included, holds the byte. Needs no right to write."""
        if offset in self._held:
            return True
        if self._fd < 0:
            return False
        answer = fcntl.fcntl(self._fd, fcntl.F_GETLK, _question(offset))
        return _answered(answer) != fcntl.F_UNLCK

    def close(self) -> None:
        """Let go of everything."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._held.clear()


def _question(offset: int) -> bytes:
    if _LINUX:
        return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
    return _FLOCK.pack(offset, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)


def _answered(answer: bytes) -> int:
    fields = _FLOCK.unpack(answer)
    return int(fields[0] if _LINUX else fields[3])

"""Locks that writers share: byte ranges of one file, and the counter of each run's forwards.

POSIX record locks are what a crash cannot leave behind, what a reused pid cannot fake, and what a forked child
does not inherit. Their one trap is that closing any descriptor of the file drops all that the process holds: so a
process has the file open once, in its `Opened`, and nothing else ever opens it.

A number is taken and its entry written in one go, so that whoever sees a number knows that all below it are
written, or that their writers died in between and they are lost. A writer alone on its run counts without a system
call. One that comes second says so in the shared page and waits until the first is not in the middle of taking a
number; from then on both take a lock for each. (The wait is some milliseconds, far longer than a processor keeps a
store to itself, so a first writer that began before it saw the mark is seen to be busy.)
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from somatize.errors import RecordError
from somatize.utils.interrupts import Alone

from . import speedups

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


_SLOT = 16
_PAGE = mmap.ALLOCATIONGRANULARITY
SEVERAL, BUSY = 0, 1
"""Two flags of a run: whether more than one process numbers its forwards, and whether one is in the middle of it."""

_JOINING, _JOINED = 1, 2
"""The flag SEVERAL while the second process waits for the first one to notice, and after that."""

_SETTLED = 0.003
_PATIENCE = 20.0


class RunGate(Alone):
    """The place where the forwards of one run get their numbers. One per run and process; its threads share it.

    What is done `alone`, with its `lock` held, also guards the journals of the run's writers in this process.
    """

    def __init__(self, path: Path, run: int, held: Locks) -> None:
        super().__init__(speedups.lock())
        self._locks = held
        self._offset = of_run(run)
        start = run * _SLOT // _PAGE * _PAGE
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._allocate(fd, start)
            self._map = mmap.mmap(fd, _PAGE, offset=start)
        finally:
            os.close(fd)
        at = run * _SLOT - start
        whole = memoryview(self._map)
        self.count = whole[at : at + 8].cast("Q")
        self.flags = whole[at + 8 : at + 10]
        self._holding = False
        self.counts = False
        """Whether `begin` or `join` was called: what follows it in this process counts on."""

    @staticmethod
    def _allocate(fd: int, start: int) -> None:
        # Written, not only made longer: a page that the disk has no room for would end the process at its first use.
        length = os.fstat(fd).st_size
        if length < start + _PAGE:
            os.pwrite(fd, bytes(start + _PAGE - length), length)

    def begin(self, following: int) -> None:
        """Begin as the run's only writing process; `following` is the next number. A second call does nothing.

        A signal's handler may open a writer, and number forwards with it, after `following` was found.
        """
        if self.counts:
            return
        self.counts = True  # nothing is called from the look at it to the end: no handler comes in between
        self.count[0] = following
        self.flags[BUSY] = 0
        self.flags[SEVERAL] = 0

    def join(self, following: Callable[[], int], others_live: Callable[[], bool]) -> None:
        """Begin beside other processes; raises `RecordError` if one is stopped in the middle of a record.

        `following` tells the next number, and is asked only if the others turn out to be gone.
        """
        if self.counts:
            return
        if self.flags[SEVERAL] != _JOINED:  # also where who was joining was interrupted in it, or ended
            self.flags[SEVERAL] = _JOINING
            self._wait_until_seen(following, others_live)
        self.counts = True

    def _wait_until_seen(self, following: Callable[[], int], others_live: Callable[[], bool]) -> None:
        """Wait until whoever did not see the flag yet has its number."""
        until = time.monotonic() + _PATIENCE
        time.sleep(_SETTLED)
        while self.flags[BUSY] and self.flags[SEVERAL] != _JOINED:
            if not others_live():
                self.begin(following())
                return
            if time.monotonic() > until:
                raise RecordError(
                    "another process is stopped in the middle of writing to this run; end it, or use another run"
                )
            time.sleep(0.001)
        self.flags[SEVERAL] = _JOINED

    def take(self) -> int:
        """The next number. Call with `lock` held, write the number down, and `leave` whatever happens."""
        flags = self.flags
        flags[BUSY] = 1
        if flags[SEVERAL]:
            self.hold()
        number = self.count[0]
        self.count[0] = number + 1
        return number

    def hold(self) -> None:
        """Keep other processes from taking numbers until `leave`."""
        self._holding = True  # first: to let go of what one has not does no harm
        self._locks.hold(self._offset)

    def give_back(self, number: int) -> None:
        """The number was not written down, and nobody was let in since it was taken: the next one gets it."""
        if self.count[0] == number + 1:
            self.count[0] = number

    def leave(self) -> None:
        """Let others take numbers; called again where an interrupt kept it from that."""
        if self._holding:
            self._locks.release(self._offset)
            self._holding = False
        self.flags[BUSY] = 0

    def close(self) -> None:
        """Let the shared page go."""
        try:
            self.count.release()
            self.flags.release()
            self._map.close()
        except BufferError:
            pass  # a writer that was never begun still looks at it, and goes with it

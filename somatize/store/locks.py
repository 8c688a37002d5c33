"""Locks between processes (byte ranges of one file), and the counter of forward numbers of each run.

POSIX record locks end with their process, cannot be faked by a reused pid, and are not inherited by a forked child.
Closing any descriptor of the file releases all locks of the process, so a process opens it once, in its `Opened`.

A number is taken and its entry is written under the same lock, so if a number is visible, all below it are written,
or lost because their writers died in between. The only writing process of a run counts without a system call. A
second one sets a flag in the shared page and waits until the first is not taking a number; from then on both lock for
each number. (The wait is some milliseconds, far longer than a processor delays a store, so that a first writer that
did not see the flag is seen to be busy.)
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
    """The byte that a writer locks as long as it is open."""
    return writer


def of_run(run: int) -> int:
    """The byte that is locked while a record of a run gets its number."""
    return _RUNS + run


OPENING = _OPENING
"""The byte that is locked while a run is opened, recovered, forgotten or renamed."""


class Locks:
    """The open lock file of a store, and the bytes that this process locks."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self._fd = -1
        if path.exists():
            self._fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        self._held: set[int] = set()

    def hold(self, offset: int) -> None:
        """Lock one byte, waiting for other processes. It does not exclude threads of this process."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, offset)
        self._held.add(offset)

    def take(self, offset: int) -> bool:
        """Lock one byte unless this or another process has locked it; whether it did."""
        if offset in self._held:
            return False
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except OSError:
            return False
        self._held.add(offset)
        return True

    def release(self, offset: int) -> None:
        """Unlock a byte."""
        self._held.discard(offset)
        if self._fd >= 0:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, offset)

    def is_held(self, offset: int) -> bool:
        """Whether a live process, this one included, has locked the byte. Works on a read-only file."""
        if offset in self._held:
            return True
        if self._fd < 0:
            return False
        answer = fcntl.fcntl(self._fd, fcntl.F_GETLK, _question(offset))
        return _answered(answer) != fcntl.F_UNLCK

    def close(self) -> None:
        """Close the file, which unlocks everything."""
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
    """The source of the forward numbers of one run; one per run and process, shared by its threads.

    Its `lock`, held by `alone`, also guards the journals of the run's writers in this process.
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
        """Whether `begin` or `join` was called in this process."""

    @staticmethod
    def _allocate(fd: int, start: int) -> None:
        # Written, not only extended: using a page that the disk has no room for would kill the process.
        length = os.fstat(fd).st_size
        if length < start + _PAGE:
            os.pwrite(fd, bytes(start + _PAGE - length), length)

    def begin(self, following: int) -> None:
        """Begin as the only process that writes to the run; `following` is the next number. Idempotent.

        A signal handler may have opened a writer, and numbered forwards, after `following` was computed.
        """
        if self.counts:
            return
        self.counts = True  # no call between the test and the end, so no handler can come in between
        self.count[0] = following
        self.flags[BUSY] = 0
        self.flags[SEVERAL] = 0

    def join(self, following: Callable[[], int], others_live: Callable[[], bool]) -> None:
        """Begin beside other processes; raises `RecordError` if one is stopped in the middle of a record.

        `following` computes the next number; it is called only if the other processes have ended.
        """
        if self.counts:
            return
        if self.flags[SEVERAL] != _JOINED:  # also if another process was interrupted, or ended, while it joined
            self.flags[SEVERAL] = _JOINING
            self._wait_until_seen(following, others_live)
        self.counts = True

    def _wait_until_seen(self, following: Callable[[], int], others_live: Callable[[], bool]) -> None:
        """Wait until a process that did not see the flag has finished taking its number."""
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

    def enter(self) -> None:
        """Begin to take a number: exclude other processes until `leave`, which is to be called in any case.

        The caller holds `lock`. The number is ``count[0]``, which the caller increments itself: the result of a method
        that does so would be lost to an interrupt as it returns.
        """
        self.flags[BUSY] = 1
        if self.flags[SEVERAL]:
            self._holding = True  # first: releasing a lock that is not held does no harm
            self._locks.hold(self._offset)

    def give_back(self, number: int) -> None:
        """Give back a number that was not written; call it before `leave`."""
        if self.count[0] == number + 1:
            self.count[0] = number

    def leave(self) -> None:
        """Allow others to take numbers. Called again if it was interrupted."""
        if self._holding:
            self._locks.release(self._offset)
            self._holding = False
        self.flags[BUSY] = 0

    def close(self) -> None:
        """Unmap the shared page."""
        try:
            self.count.release()
            self.flags.release()
            self._map.close()
        except BufferError:
            pass  # a writer that was never begun still refers to it

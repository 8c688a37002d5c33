"""Large buffers between two processes of one machine: written once into memory that both can see.

A segment is an anonymous file in memory, which has no name anywhere and so is gone with the processes that hold it,
however these end. The other end opens it through ``/proc`` and maps it copy-on-write: what it writes is its own.
Until it says that the last array on its map died, a segment is *leased* and never written again; another is used, up
to a limit, beyond which buffers go the ordinary way.
"""

from __future__ import annotations

import mmap
import os
import secrets
import threading
import weakref
from time import monotonic
from typing import Any

SMALLEST = 1 << 20
"""Bytes from which a buffer is worth a segment."""

IDLE = 5.0
"""Seconds after which a segment that nobody uses is freed."""

_PART = 1 << 30
_ROOM = 4  # a segment is not used for what is so many times smaller


def _limit() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (OSError, ValueError):
        return 1 << 30


class Probe:
    """A piece of shared memory with a secret in it: whoever can read that shares memory with this process."""

    def __init__(self) -> None:
        self._secret = secrets.token_hex(16)
        self._fd = -1
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("somatize-probe")
            os.write(self._fd, self._secret.encode())

    def shown(self) -> list[Any]:
        """What the other end needs to look."""
        return [os.getpid(), self._fd, self._secret]

    def close(self) -> None:
        """No more needed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sees(probe: Any) -> bool:
    """Whether this process can see what a `Probe` of the other end shows."""
    try:
        pid, fd, secret = probe
        with open(f"/proc/{int(pid)}/fd/{int(fd)}", "rb") as file:  # noqa: PTH123
            return file.read(64) == str(secret).encode()
    except (OSError, ValueError, TypeError):
        return False


class _Segment:
    __slots__ = ("capacity", "fd", "id", "since")

    def __init__(self, id: int, capacity: int) -> None:
        self.id = id
        self.fd = os.memfd_create("somatize")
        self.capacity = capacity
        self.since = monotonic()
        os.ftruncate(self.fd, capacity)


class Segments:
    """Those of one end of one connection: its own, which it writes, and what it has mapped of the other's."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = _limit() if limit is None else limit
        self._lock = threading.Lock()
        self._free: list[_Segment] = []
        self._leased: dict[int, _Segment] = {}
        self._count = 0
        self._freed: list[int] = []  # of the other end's, those whose map died; appended to by finalizers
        self._timer: threading.Timer | None = None
        self._closed = False

    def put(self, view: memoryview) -> list[int] | None:
        """Write a buffer into a segment, leased from then on: what the other end finds it by, or None."""
        size = view.nbytes
        with self._lock:
            segment = self._room(size)
            if segment is None:
                return None
            self._leased[segment.id] = segment
        try:
            flat, at = view.cast("B"), 0
            while at < size:
                at += os.pwrite(segment.fd, flat[at : at + _PART], at)
        except OSError:  # no memory for it
            with self._lock:
                os.close(self._leased.pop(segment.id).fd)
            return None
        return [os.getpid(), segment.fd, segment.id, size]

    def _room(self, size: int) -> _Segment | None:
        fitting = [one for one in self._free if size <= one.capacity <= max(size * _ROOM, SMALLEST * _ROOM)]
        if fitting:
            segment = min(fitting, key=lambda one: one.capacity)
            self._free.remove(segment)
            return segment
        while self._free and self._held() + size > self._limit:
            os.close(self._free.pop(0).fd)
        if self._held() + size > self._limit or self._closed:
            return None
        self._count += 1
        try:
            return _Segment(self._count, size)
        except OSError:
            return None

    def _held(self) -> int:
        return sum(one.capacity for one in (*self._free, *self._leased.values()))

    def get(self, token: list[int]) -> memoryview:
        """A map of the other end's segment, this process' own to write to; when it dies, that is noted."""
        pid, fd, id, size = token
        with open(f"/proc/{pid}/fd/{fd}", "rb") as file:  # noqa: PTH123
            flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
            mapped = mmap.mmap(file.fileno(), size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        weakref.finalize(mapped, self._freed.append, id).atexit = False
        return memoryview(mapped)

    def freed(self) -> list[int]:
        """Those of the other end's segments that nothing here lies on any more; to be said once."""
        freed = self._freed[:]
        del self._freed[: len(freed)]
        return freed

    def release(self, ids: list[int]) -> None:
        """The other end has done with these."""
        with self._lock:
            for id in ids:
                segment = self._leased.pop(id, None)
                if segment is not None:
                    segment.since = monotonic()
                    self._free.append(segment)
            self._look_later()

    def _look_later(self) -> None:
        if self._free and self._timer is None and not self._closed:
            self._timer = threading.Timer(IDLE, self._trim)
            self._timer.daemon = True
            self._timer.start()

    def _trim(self) -> None:
        with self._lock:
            self._timer = None
            old = monotonic() - IDLE
            for segment in [one for one in self._free if one.since <= old]:
                self._free.remove(segment)
                os.close(segment.fd)
            self._look_later()

    def forked(self) -> None:
        """In a child of this process, where nobody else may have the lock: these are its parent's."""
        self._lock, self._timer = threading.Lock(), None
        self.close()

    def close(self) -> None:
        """Let go of all that is this end's; what the other has mapped stays its own."""
        with self._lock:
            self._closed = True
            for segment in (*self._free, *self._leased.values()):
                os.close(segment.fd)
            self._free.clear()
            self._leased.clear()
            if self._timer is not None:
                self._timer.cancel()

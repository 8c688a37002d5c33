"""Messages between two processes as frames on descriptors, with large buffers through shared memory.

A segment of shared memory is an anonymous file in memory, without a name and so gone with the processes that hold it,
however these end. The other end opens it through ``/proc`` and maps it copy-on-write: what it writes is its own. A
segment is *leased*, and not written again, until the other end reports that the last array on its map died. Beyond a
limit on segments, buffers are sent inline.

A frame is 4 bytes of length (little-endian), the *head*, which is msgpack of ``[kind, fields, sizes]``, and then as
many bytes as `sizes` says, one buffer after the other. Before the first frame a worker says `GREETING`, so that
whatever else a program printed first can be told from it.
"""

from __future__ import annotations

import functools
import mmap
import os
import secrets
import select
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

import msgpack

from somatize.utils.interrupts import from_handler

SMALLEST = 1 << 20
"""Bytes from which a buffer is worth a segment."""

IDLE = 5.0
"""Seconds after which an unused segment is freed."""

_PART = 1 << 30
_ROOM = 4  # a segment is not used for what is so many times smaller


def _limit() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (OSError, ValueError):
        return 1 << 30


class SharedMemoryProbe:
    """Shared memory with a secret: a process that can read it shares memory with this one."""

    def __init__(self) -> None:
        self._secret = secrets.token_hex(16)
        self._fd = -1
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("somatize-probe")
            os.write(self._fd, self._secret.encode())

    def shown(self) -> list[Any]:
        """The data that the other end needs for the probe."""
        return [os.getpid(), self._fd, self._secret]

    def close(self) -> None:
        """Release the memory of the probe."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def sees_memory(probe: Any) -> bool:
    """Whether this process can read the other end's `SharedMemoryProbe`."""
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
    """The segments of one end of one connection: its own, which it writes, and maps of the other end's."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = _limit() if limit is None else limit
        self._lock = threading.Lock()
        self._free: list[_Segment] = []
        self._leased: dict[int, _Segment] = {}
        self._count = 0
        self._freed: list[int] = []  # ids of the other end's segments that were unmapped; appended to by finalizers
        self._timer: threading.Timer | None = None
        self._closed = False

    def put(self, view: memoryview) -> list[int] | None:
        """Write a buffer into a leased segment; returns how the other end finds it, or None."""
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
        while self._free and self.held() + size > self.limit:
            os.close(self._free.pop(0).fd)
        if self.held() + size > self.limit or self._closed:
            return None
        self._count += 1
        try:
            return _Segment(self._count, size)
        except OSError:
            return None

    def held(self) -> int:
        """The bytes of this end's segments."""
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
        """The other end's segments that are no longer used here; each is reported once."""
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
        """Reset in a forked child: the segments belong to the parent."""
        self._lock, self._timer = threading.Lock(), None
        self.close()

    def close(self) -> None:
        """Release this end's segments; mappings of the other end stay valid."""
        with self._lock:
            self._closed = True
            for segment in (*self._free, *self._leased.values()):
                os.close(segment.fd)
            self._free.clear()
            self._leased.clear()
            if self._timer is not None:
                self._timer.cancel()


PROTOCOL = 5
"""The protocol version, raised with each change; both ends must agree."""

GREETING = b"\x00\x01somatize worker\x01\x00"
NOISE = 1 << 16
"""Bytes that may come before a greeting."""

_LENGTH = struct.Struct("<I")
_LONGEST_HEAD = 1 << 30
_CHUNK = 1 << 16
_MAPPED = 1 << 20
_FEW = 16
_AT_ONCE = 512  # pieces in one writev; the system takes 1,024
_LOOK = 200  # milliseconds after which it is looked whether the other end lives

Pieces: TypeAlias = Sequence[bytes | bytearray | memoryview]
"""One buffer as pieces that are written one after another."""


class WireClosed(Exception):
    """The other end is gone."""


class TooLate(Exception):
    """The other end took too long."""


class Garbled(Exception):
    """The received bytes are no frame."""


class Message(NamedTuple):
    """A message from one end to the other."""

    kind: str
    fields: dict[str, Any]
    buffers: list[memoryview]


class Wire:
    """One end of a connection. Any thread may send, one at a time receives.

    `alive` is asked now and then while nothing comes, and says whether the other end may still say something.
    """

    def __init__(self, reading: int, writing: int, alive: Callable[[], bool] | None = None) -> None:
        self.reading = reading
        self.writing = writing
        self.whole = True
        """Whether no frame was left half written or half read; otherwise the connection is of no more use."""
        self.segments: Segments | None = None
        """The shared memory for large buffers, if both ends see the same memory."""
        self._alive = alive
        self._got = bytearray()
        self._pack = msgpack.Packer(use_bin_type=True).pack
        self._sending = threading.Lock()
        if alive is not None:
            os.set_blocking(reading, False)
            os.set_blocking(writing, False)
            self._readable, self._writable = select.poll(), select.poll()
            self._readable.register(reading, select.POLLIN)
            self._writable.register(writing, select.POLLOUT)

    def send(
        self, kind: str, fields: dict[str, Any], buffers: Sequence[Pieces] = (), until: float | None = None
    ) -> None:
        """Send a message. Raises `WireClosed` and `TooLate`."""
        sizes: list[Any] = [sum([_size(piece) for piece in buffer]) for buffer in buffers]
        if self.segments is not None:
            freed = self.segments.freed()
            if freed:
                fields["freed"] = freed
            if sizes and max(sizes) >= SMALLEST:
                sizes, buffers = self._shared(self.segments, sizes, buffers)
        with self._sending:
            try:
                head = self._pack([kind, fields, sizes])
            except UnicodeEncodeError:  # a lone surrogate, as names of files have
                head = msgpack.packb([kind, fields, sizes], use_bin_type=True, unicode_errors="surrogatepass")
            pieces: list[Any] = [_LENGTH.pack(len(head)), head]
            for buffer in buffers:
                pieces += buffer
            self.whole = False
            self._write(pieces, until)
            self.whole = True

    def _shared(
        self, segments: Segments, sizes: list[Any], buffers: Sequence[Pieces]
    ) -> tuple[list[Any], list[Pieces]]:
        """The sizes, with references to shared segments; and the buffers sent inline."""
        inline = []
        for place, buffer in enumerate(buffers):
            token = None
            if sizes[place] >= SMALLEST and len(buffer) == 1:
                token = segments.put(memoryview(buffer[0]))
            if token is None:
                inline.append(buffer)
            else:
                sizes[place] = token
        return sizes, inline

    def _write(self, pieces: list[Any], until: float | None) -> None:
        if len(pieces) <= _FEW and sum([_size(piece) for piece in pieces]) <= _CHUNK:
            pieces = [b"".join(pieces)]  # mostly sent by one call
            try:
                sent = os.write(self.writing, pieces[0])
            except BlockingIOError:
                sent = 0
            except OSError as gone:
                raise WireClosed(str(gone)) from None
            if sent == len(pieces[0]):
                return
            pieces = [pieces[0][sent:]]
        at = 0
        views = [memoryview(piece).cast("B") for piece in pieces if _size(piece)]
        while at < len(views):
            try:
                sent = os.writev(self.writing, views[at : at + _AT_ONCE])
            except BlockingIOError:
                self._wait(self._writable, until)
                continue
            except OSError as gone:
                raise WireClosed(str(gone)) from None
            while at < len(views) and sent >= len(views[at]):
                sent -= len(views[at])
                at += 1
            if sent:
                views[at] = views[at][sent:]

    def receive(self, until: float | None = None) -> Message:
        """The next message. Raises `WireClosed`, `TooLate`, and `Garbled`."""
        if self._alive is not None and not self._got:  # the data is hardly ever there yet
            self._wait(self._readable, until)
        self._gather(_LENGTH.size, until)
        (length,) = _LENGTH.unpack_from(self._got)
        if length > _LONGEST_HEAD:
            raise Garbled(f"a head of {length} bytes")
        end = _LENGTH.size + length
        self._gather(end, until)
        try:
            kind, fields, sizes = _unpack(self._got[_LENGTH.size : end])
        except Exception as wrong:
            if from_handler(wrong):
                raise
            raise Garbled(str(wrong)) from None
        self.whole = not sizes
        del self._got[:end]
        buffers = [self._buffer(size, until) if type(size) is int else self._mapped(size) for size in sizes]
        self.whole = True
        if "freed" in fields and self.segments is not None:
            self.segments.release(fields["freed"])
        return Message(kind, fields, buffers)

    def skip_noise(self, until: float | None) -> bytes:
        """The bytes before the greeting. Raises `Garbled` with all of them if no greeting comes."""
        while True:
            at = self._got.find(GREETING)
            if at >= 0:
                noise = bytes(self._got[:at])
                del self._got[: at + len(GREETING)]
                return noise
            if len(self._got) > NOISE:
                raise Garbled(bytes(self._got).decode(errors="replace"))
            try:
                self._gather(len(self._got) + 1, until)
            except WireClosed:
                raise Garbled(bytes(self._got).decode(errors="replace")) from None

    def noise(self) -> str:
        """The received bytes that were not understood."""
        return bytes(self._got[:NOISE]).decode(errors="replace")

    def greet(self) -> None:
        """Send the greeting."""
        os.write(self.writing, GREETING)

    def _gather(self, size: int, until: float | None) -> None:
        while len(self._got) < size:
            self.whole = False  # in case an interrupt comes between reading and keeping
            try:
                came = os.read(self.reading, _CHUNK)
            except BlockingIOError:
                self.whole = True
                self._wait(self._readable, until)
                continue
            except OSError as gone:
                raise WireClosed(str(gone)) from None
            if not came:
                raise WireClosed
            self._got += came
            self.whole = True

    def _mapped(self, token: list[int]) -> memoryview:
        if self.segments is None:
            raise Garbled("a segment where none was agreed on")
        try:
            return self.segments.get(token)
        except OSError as gone:
            raise WireClosed(str(gone)) from None

    def _buffer(self, size: int, until: float | None) -> memoryview:
        if not size:
            return memoryview(b"")
        filled = min(size, len(self._got))
        if filled == size:
            whole = memoryview(self._got[:size])
            del self._got[:size]
            return whole
        buffer = memoryview(mmap.mmap(-1, size) if size >= _MAPPED else bytearray(size))
        buffer[:filled] = memoryview(self._got)[:filled]
        del self._got[:filled]
        while filled < size:
            try:
                came = os.readv(self.reading, [buffer[filled:]])
            except BlockingIOError:
                self._wait(self._readable, until)
                continue
            except OSError as gone:
                raise WireClosed(str(gone)) from None
            if not came:
                raise WireClosed
            filled += came
        return buffer

    def _wait(self, poll: select.poll, until: float | None) -> None:
        """Wait until the descriptor is ready. Raises `WireClosed` and `TooLate`; signals are handled in between."""
        late = until is not None and monotonic() > until
        if late:
            raise TooLate
        look = _LOOK if until is None else max(1, min(_LOOK, int((until - monotonic()) * 1000) + 1))
        # The last output of a dead worker can still be read, so the descriptor is polled once more.
        if not poll.poll(look) and self._alive is not None and not self._alive() and not poll.poll(0):
            raise WireClosed


_unpack = functools.partial(msgpack.unpackb, raw=False, strict_map_key=False, unicode_errors="surrogatepass")


def _size(piece: Any) -> int:
    return piece.nbytes if isinstance(piece, memoryview) else len(piece)

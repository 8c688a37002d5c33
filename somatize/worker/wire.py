"""Messages as frames on two descriptors that somebody else opened: a length, a head, and buffers that are not copied.

A frame is 4 bytes of length (little-endian), the *head*, which is msgpack of ``[kind, fields, sizes]``, and then as
many bytes as `sizes` says, one buffer after the other. Before the first frame a worker says `GREETING`, so that
whatever else a program printed first can be told from it.
"""

from __future__ import annotations

import functools
import mmap
import os
import select
import struct
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

import msgpack

from .segments import SMALLEST, Segments

PROTOCOL = 3
"""Raised whenever what is said, or how, changes; both ends have to have the same."""

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


class Ended(Exception):
    """The other end is gone."""


class TooLate(Exception):
    """The other end took too long."""


class Garbled(Exception):
    """What came is no frame."""


class Message(NamedTuple):
    """What one end says to the other."""

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
        """Whether no frame was left half written or half read; after that nothing more can be said."""
        self.segments: Segments | None = None
        """Where both ends see the same memory: what large buffers go through."""
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
        """Say something. Raises `Ended` and `TooLate`."""
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
        """The sizes, with what was put into segments found by it; and the buffers that were not."""
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
            pieces = [b"".join(pieces)]  # with luck gone in one go
            try:
                sent = os.write(self.writing, pieces[0])
            except BlockingIOError:
                sent = 0
            except OSError as gone:
                raise Ended(str(gone)) from None
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
                raise Ended(str(gone)) from None
            while at < len(views) and sent >= len(views[at]):
                sent -= len(views[at])
                at += 1
            if sent:
                views[at] = views[at][sent:]

    def receive(self, until: float | None = None) -> Message:
        """The next message. Raises `Ended`, `TooLate`, and `Garbled`."""
        if self._alive is not None and not self._got:  # what is waited for is hardly ever there yet
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
            raise Garbled(str(wrong)) from None
        self.whole = not sizes
        del self._got[:end]
        buffers = [self._buffer(size, until) if type(size) is int else self._mapped(size) for size in sizes]
        self.whole = True
        if "freed" in fields and self.segments is not None:
            self.segments.release(fields["freed"])
        return Message(kind, fields, buffers)

    def skip_noise(self, until: float | None) -> bytes:
        """What came before the greeting. Raises `Garbled` with all there was, if no greeting comes."""
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
            except Ended:
                raise Garbled(bytes(self._got).decode(errors="replace")) from None

    def noise(self) -> str:
        """What came and was not understood."""
        return bytes(self._got[:NOISE]).decode(errors="replace")

    def greet(self) -> None:
        """Say the greeting."""
        os.write(self.writing, GREETING)

    def _gather(self, size: int, until: float | None) -> None:
        while len(self._got) < size:
            try:
                came = os.read(self.reading, _CHUNK)
            except BlockingIOError:
                self._wait(self._readable, until)
                continue
            except OSError as gone:
                raise Ended(str(gone)) from None
            if not came:
                raise Ended
            self._got += came

    def _mapped(self, token: list[int]) -> memoryview:
        if self.segments is None:
            raise Garbled("a segment where none was agreed on")
        try:
            return self.segments.get(token)
        except OSError as gone:
            raise Ended(str(gone)) from None

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
                raise Ended(str(gone)) from None
            if not came:
                raise Ended
            filled += came
        return buffer

    def _wait(self, poll: select.poll, until: float | None) -> None:
        """Until something can be done, or the other end is gone; a signal is seen to in between."""
        late = until is not None and monotonic() > until
        if late:
            raise TooLate
        look = _LOOK if until is None else max(1, min(_LOOK, int((until - monotonic()) * 1000) + 1))
        # What a dead worker said last is still there to be read: it is looked twice.
        if not poll.poll(look) and self._alive is not None and not self._alive() and not poll.poll(0):
            raise Ended


_unpack = functools.partial(msgpack.unpackb, raw=False, strict_map_key=False, unicode_errors="surrogatepass")


def _size(piece: Any) -> int:
    return piece.nbytes if isinstance(piece, memoryview) else len(piece)

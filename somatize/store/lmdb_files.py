"""LMDB files: their replacement by compaction, their lock files, and a reader of their pages that does not map them.

A compaction makes a file with the next number, and the highest number counts. A process that has an older file open
must notice that before each transaction, even after several compactions, because writes to a deleted file are lost.

LMDB trusts its file: a damaged page number kills the process with a signal. So pages are verified before a file is
mapped (`verify`). `PageFile` is also the reader if LMDB's lock file is not writable, as in a read-only directory.
Opening it with ``lock=False`` would be shorter, but then a page that a writer reuses during a read could kill the
reader, too; here it is at worst an error, and the read is repeated.

Only what a store uses is supported: one database with plain keys, little-endian.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from somatize.errors import DamagedStore

from . import directory as place

MOST_READERS = 1022
LOCK_BYTES = 64 * (MOST_READERS + 2)
"""The size of LMDB's lock file: a header, and a slot for each reader."""


class LmdbFile:
    """The identity of an open LMDB file and of its directory."""

    __slots__ = ("_directory", "_identity", "_inode", "_name", "_place", "_successor", "path")

    def __init__(self, directory: Path, name: str, path: Path, fd: int) -> None:
        """The file at `path`, which is open as `fd`."""
        self.path = path
        self._directory = directory
        self._name = name
        self._identity = place.identity(directory)
        self._inode = os.fstat(fd).st_ino
        self._place, self._successor = str(path), str(place.successor(path))

    def moved_to(self, directory: Path) -> LmdbFile:
        """The same file after its directory was moved."""
        made = LmdbFile.__new__(LmdbFile)
        made.path = directory / self.path.name
        made._directory, made._name, made._identity, made._inode = directory, self._name, self._identity, self._inode
        made._place, made._successor = str(made.path), str(place.successor(made.path))
        return made

    def is_current(self) -> bool:
        """Whether the path still leads to this file, and there is no successor."""
        # Called before each transaction and hardly ever false; `Path.exists` would raise and catch an error.
        try:
            return os.stat(self._place).st_ino == self._inode and not os.access(self._successor, os.F_OK)  # noqa: PTH116
        except FileNotFoundError:
            return False

    def has_directory(self) -> bool:
        """Whether the path of the directory still leads to the same directory."""
        return place.identity(self._directory) == self._identity

    def replace_with(self, copy_to: Callable[[Path], None]) -> None:
        """Replace the file by one that `copy_to` writes. The caller excludes writes and other compactions."""
        for left in self._directory.glob(f".making-{self._name}.*"):
            left.unlink(missing_ok=True)  # left by a killed compaction
        making = self.path.with_name(f".making-{self.path.name}.{os.getpid()}")
        try:
            copy_to(making)
            make_lock(Path(self._successor))
            making.rename(self._successor)
        finally:
            making.unlink(missing_ok=True)
        place.sync(self._directory)
        # The oldest first, so that at any moment each file is gone or has a successor.
        for old in place.generations(self._directory, self._name)[:-1]:
            remove_files(old)


def make_lock(path: Path) -> None:
    """Make the lock file of an LMDB file, or allocate what an existing one lacks. Raises OSError if the disk is full.

    LMDB would make it with holes and map it; on a full disk, writing to a hole of the map kills the process.
    """
    lock = path.with_name(f"{path.name}-lock")
    try:
        there = lock.stat()
    except FileNotFoundError:
        _link_zeros(lock)
        return
    if there.st_blocks * 512 < LOCK_BYTES and hasattr(os, "posix_fallocate"):
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, LOCK_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # other errors: the file system does not support this
        finally:
            os.close(fd)


def _link_zeros(lock: Path) -> None:
    # Made complete and then linked: another process may make it too, and use it at once.
    making = lock.with_name(f".making-{lock.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        making.write_bytes(bytes(LOCK_BYTES))
        try:
            os.link(making, lock)
        except FileExistsError:
            pass
    finally:
        making.unlink(missing_ok=True)


def remove_files(path: Path) -> None:
    """Delete an LMDB file and its lock file."""
    for one in (path, path.with_name(f"{path.name}-lock")):
        one.unlink(missing_ok=True)


_PAGE = struct.Struct("<QHHHH")  # number, pad, flags, lower, upper; the last two are a length on overflow pages
_EXTENT = struct.Struct("<I")
_META = struct.Struct("<II16x48xIHHQQQQQQQ")  # magic, version, the main database (8 fields), last page, txn
_FREE = struct.Struct("<IHHQQQQQ")
_NODE = struct.Struct("<HHHH")
_NUMBER = struct.Struct("<Q")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 1, 2, 4, 8
_BIG = 1
_NONE = 2**64 - 1
_HEAD = 16


class BadPages(Exception):
    """The file is not an LMDB file, is damaged, or was written to during the read."""


class _Meta(NamedTuple):
    root: int
    free_root: int
    pages: int
    txn: int
    size: int


class PageFile:
    """A snapshot of an LMDB file, read page by page without locks."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = os.fstat(fd).st_size
        self._meta = self._newest()

    @property
    def stale(self) -> bool:
        """Whether a writer may have reused pages of this snapshot.

        Without readers, LMDB reuses the pages that transaction T freed from T + 3 on, and writes before it publishes.
        """
        return self._newest().txn > self._meta.txn + 1

    def get(self, key: bytes) -> bytes | None:
        """The value of a key. Raises `BadPages`."""
        for found, value in self.items(key):
            return value if found == key else None
        return None

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys and values in order, from `start`. Raises `BadPages`."""
        if self._meta.root != _NONE:
            yield from self._below(self._meta.root, start, 0)

    def verify(self, budget: int) -> None:
        """Check at most `budget` pages of both trees; raises `BadPages` at the first invalid one."""
        left = budget
        for root in (self._meta.root, self._meta.free_root):
            waiting = [(root, 0)] if root != _NONE else []
            while waiting and left > 0:
                left -= 1
                number, depth = waiting.pop()
                waiting += [(child, depth + 1) for child in self._children(number, depth)]

    def _newest(self) -> _Meta:
        first = os.pread(self._fd, 8192, 0)
        found = [meta for meta in (self._parse_meta(first, 0), self._second_meta(first)) if meta is not None]
        if not found:
            raise BadPages("it does not begin as an LMDB file does")
        return max(found, key=lambda meta: meta.txn)

    def _second_meta(self, first: bytes) -> _Meta | None:
        parsed = self._parse_meta(first, 0)
        size = parsed.size if parsed is not None else 4096
        return self._parse_meta(os.pread(self._fd, size, size), 0)

    def _parse_meta(self, page: bytes, at: int) -> _Meta | None:
        if len(page) < at + _HEAD + _META.size:
            return None
        _, _, flags, _, _ = _PAGE.unpack_from(page, at)
        magic, version, *_, root, last, txn = _META.unpack_from(page, at + _HEAD)
        size, *_, free_root = _FREE.unpack_from(page, at + _HEAD + 24)
        if magic != _MAGIC or not flags & _META_PAGE or size not in {512 << n for n in range(1, 8)}:
            return None
        if version != _VERSION:
            raise BadPages(f"it has LMDB's data format {version}, not {_VERSION}")
        return _Meta(root, free_root, last + 1, txn, size)

    def _page(self, number: int) -> bytes:
        size = self._meta.size
        if not 2 <= number < self._meta.pages:
            raise BadPages(f"it refers to page {number}, and ends at page {self._meta.pages - 1}")
        page = os.pread(self._fd, size, number * size)
        if len(page) < size:
            raise BadPages(f"it is cut off before page {number}")
        return page

    def _nodes(self, number: int, page: bytes) -> tuple[int, list[int]]:
        found, _, flags, lower, upper = _PAGE.unpack_from(page)
        flags &= ~0x10  # "dirty", which is not always cleared
        if found != number or flags not in (_BRANCH, _LEAF) or not _HEAD <= lower <= upper <= len(page) or lower % 2:
            raise BadPages(f"its page {number} is not a page of the tree")
        offsets = list(memoryview(page)[_HEAD:lower].cast("H"))
        if any(not upper <= at <= len(page) - 8 for at in offsets):
            raise BadPages(f"its page {number} points out of itself")
        return flags, offsets

    def _children(self, number: int, depth: int) -> list[int]:
        """Check a page; returns the numbers of its child pages."""
        page = self._page(number)
        flags, offsets = self._nodes(number, page)
        if depth > 40:
            raise BadPages("its tree goes round in a circle")
        if flags == _BRANCH:
            nodes = [_NODE.unpack_from(page, at) for at in offsets]
            return [low | high << 16 | top << 32 for low, high, top, _ in nodes]
        for at in offsets:
            low, high, kind, key = _NODE.unpack_from(page, at)
            if at + 8 + key + (8 if kind & _BIG else low | high << 16) > len(page):
                raise BadPages(f"a value on its page {number} runs out of the page")
            if kind & _BIG:
                self._extent(_NUMBER.unpack_from(page, at + 8 + key)[0], low | high << 16)
        return []

    def _extent(self, number: int, length: int) -> int:
        """Check the first page of a large value; returns the offset of its bytes."""
        size = self._meta.size
        head = os.pread(self._fd, _HEAD, number * size) if 2 <= number < self._meta.pages else b""
        if len(head) < _HEAD:
            raise BadPages(f"it refers to page {number}, which it does not have")
        found, _, flags, _, _ = _PAGE.unpack(head)
        held = _EXTENT.unpack_from(head, 12)[0]
        if found != number or not flags & _OVERFLOW or number + held > self._meta.pages or held * size < length + _HEAD:
            raise BadPages(f"its page {number} does not hold the value that should be there")
        end = number * size + _HEAD + length
        if end > self._end and end > os.fstat(self._fd).st_size:
            raise BadPages(f"it is cut off inside the value on page {number}")
        return number * size + _HEAD

    def _below(self, number: int, start: bytes, depth: int) -> Iterator[tuple[bytes, bytes]]:
        page = self._page(number)
        flags, offsets = self._nodes(number, page)
        if depth > 40:
            raise BadPages("its tree goes round in a circle")
        if flags == _LEAF:
            yield from self._leaf(page, offsets, start)
            return
        nodes = [_NODE.unpack_from(page, at) for at in offsets]
        keys = [page[at + 8 : at + 8 + node[3]] for at, node in zip(offsets, nodes, strict=True)]
        for index, (low, high, top, _) in enumerate(nodes):
            if index + 1 < len(keys) and keys[index + 1] <= start:
                continue
            yield from self._below(low | high << 16 | top << 32, start, depth + 1)

    def _leaf(self, page: bytes, offsets: list[int], start: bytes) -> Iterator[tuple[bytes, bytes]]:
        for at in offsets:
            low, high, kind, size = _NODE.unpack_from(page, at)
            key, body, length = page[at + 8 : at + 8 + size], at + 8 + size, low | high << 16
            if key < start:
                continue
            if not kind & _BIG:
                yield key, page[body : body + length]
                continue
            if body + 8 > len(page):
                raise BadPages("a value runs out of its page")
            value = os.pread(self._fd, length, self._extent(_NUMBER.unpack_from(page, body)[0], length))
            if len(value) < length:
                raise BadPages("it is cut off inside a value")
            yield key, value


def verify(path: Path, budget: int) -> None:
    """Check at most `budget` pages of an LMDB file; raises `DamagedStore`.

    A file that is written to meanwhile is checked again until it no longer changes.
    """
    wrong, was = "", None
    for attempt in range(10):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            snapshot = PageFile(fd)
            snapshot.verify(budget)
            return
        except BadPages as error:
            wrong = str(error)
            now = os.fstat(fd)
        finally:
            os.close(fd)
        written = now.st_mtime_ns, now.st_size
        if written == was:  # unchanged since the last check, which began later than the resolution of file times
            break
        was = written
        time.sleep(0.01 * (attempt + 1))
    raise DamagedStore(f"{path} is damaged: {wrong}")

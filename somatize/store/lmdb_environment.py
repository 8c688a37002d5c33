"""An open LMDB file of a store and its transactions. The only module that imports `lmdb`.

It does what LMDB leaves to its users: the map grows automatically, also after another process grew it; transactions
end with their `with`; files are verified before they are mapped; the slots of killed readers are freed; and if LMDB's
lock file is not writable, pages are read without mapping them (`lmdb_files.PageFile`).
"""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import FileIO
from pathlib import Path
from threading import get_ident
from typing import Any, Protocol, TypeVar

from somatize.errors import DamagedStore, NotWritten, SomatizeError, StoreError, StoreReadOnly
from somatize.utils.interrupts import ServiceThread
from somatize.utils.notices import held_back, warn_of_record

from . import directory as place
from .lmdb_files import MOST_READERS, BadPages, LmdbFile, PageFile, make_lock, remove_files, verify

Buffer = bytes | memoryview


class ReadTransaction(Protocol):
    """A snapshot. Its values are valid inside the `with` that opened it."""

    def get(self, key: bytes) -> Buffer | None:
        """The value of a key, or None."""

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, Buffer]]:
        """Keys and values in the order of the keys, from `start`."""


class WriteTransaction:
    """One write transaction."""

    __slots__ = ("_txn",)

    def __init__(self, txn: Any) -> None:
        self._txn = txn

    def get(self, key: bytes) -> Buffer | None:
        """The value of a key, or None."""
        return self._txn.get(key)  # type: ignore[no-any-return]

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, Buffer]]:
        """Keys and values in the order of the keys, from `start`. Do not write during the iteration."""
        with self._txn.cursor() as cursor:
            if cursor.set_range(start):
                for key, value in cursor:
                    yield bytes(key), value

    def before(self, key: bytes) -> tuple[bytes, Buffer] | None:
        """The last key smaller than `key`, and its value."""
        with self._txn.cursor() as cursor:
            found = cursor.prev() if cursor.set_range(key) else cursor.last()
            return (bytes(cursor.key()), cursor.value()) if found else None

    def put(self, key: bytes, value: Buffer) -> None:
        """Set a key."""
        self._txn.put(key, value)

    def delete(self, key: bytes) -> bool:
        """Delete a key; False if there was none."""
        return self._txn.delete(key)  # type: ignore[no-any-return]


_LOOKS = 0.0005
"""Seconds between two polls while waiting; a condition variable needs a lock, on which a signal handler could hang."""
_INSIDE = nullcontext()


class TransactionGate:
    """Lets the transactions of this process run concurrently, and a change of the map exclusively.

    Each thread has a lock of its own, held during a transaction, so that an interrupt releases it in one step. A signal
    handler may enter again in a thread that is inside.
    """

    def __init__(self) -> None:
        self.closing = threading.RLock()
        """Held while the gate is closed."""
        self._locks: dict[int, Any] = {}
        self._closer: int | None = None

    def enter(self) -> AbstractContextManager[Any]:
        """The context of one transaction, to be used only if `admits`, called inside of it, is true."""
        me = get_ident()
        mine = self._locks.get(me)
        if mine is None:
            mine = self._locks.setdefault(me, threading.Lock())
        return _INSIDE if mine.locked() else mine

    def admits(self, held: AbstractContextManager[Any]) -> bool:
        """Whether the gate is open for the holder of a context; otherwise leave the context, `wait`, and try again."""
        # A thread that is inside already is admitted: it would wait for itself.
        return self._closer is None or held is _INSIDE or self._closer == get_ident()

    def wait(self) -> None:
        """Wait a moment for the gate to open."""
        time.sleep(_LOOKS)

    def is_inside(self) -> bool:
        """Whether this thread has a transaction open."""
        mine = self._locks.get(get_ident())
        return mine is not None and mine.locked()

    def close(self, patience: float) -> bool:
        """Admit nobody until `open`, and wait until no other thread is inside; False if that takes too long.

        Call it with `closing` held, and call `open` in any case.
        """
        me, until = get_ident(), time.monotonic() + patience
        self._closer = me
        while self._others(me):
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOKS)
        return not self.is_inside()

    def _others(self, me: int) -> bool:
        return any(lock.locked() for thread, lock in list(self._locks.items()) if thread != me)

    def open(self) -> None:
        """Admit all threads again."""
        self._closer = None


__all__ = ["BadValue", "Buffer", "Environment", "ReadTransaction", "WriteTransaction", "create"]

T = TypeVar("T")

FIRST_MAP = 16 << 20
"""The initial size of the map in bytes. It takes address space only; the file is as long as its content."""
_VERIFIED_PAGES = 1000
_LINGERS = 2.0
_ATTEMPTS = 40


class Environment:
    """An LMDB file, open in this process at most once. Threads may share it; a forked child must not use it."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        writable: bool,
        full_sync: bool = True,
        follow: Callable[[], Path | None] = lambda: None,
    ) -> None:
        """Open the current file of a name.

        `follow` returns the current path of the directory, after calling `moved_to` if it changed; None if it is gone.
        Raises `DamagedStore` if the file is not a valid LMDB file.
        """
        self.directory = directory
        self._find_directory = follow
        self.name = name
        self.writable = writable
        self._full_sync = full_sync
        self._gate = TransactionGate()
        self._service = ServiceThread(_LINGERS)
        self._env: Any = None
        self._lmdb: Any = None
        self._fd = -1
        self._open()

    def _open(self) -> None:
        for attempt in range(_ATTEMPTS):
            path = place.newest(self.directory, self.name)
            try:
                with self._open_verified(path) as fd:
                    if self.writable or os.access(f"{path}-lock", os.W_OK):
                        self._env, self._fd = self._open_lmdb(path, fd), -1
                    else:
                        self._env, self._fd = None, os.dup(fd)
                    self._file = LmdbFile(self.directory, self.name, path, fd)
                    return
            except (FileNotFoundError, DamagedStore):
                if path.exists() or attempt == _ATTEMPTS - 1:
                    raise  # otherwise it was compacted meanwhile

    @contextmanager
    def _open_verified(self, path: Path) -> Iterator[int]:
        """Open the file after verifying that it is a valid LMDB file."""
        verify(path, _VERIFIED_PAGES)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    def moved_to(self, directory: Path) -> None:
        """Note that the directory was moved to `directory`."""
        self.directory = directory
        self._file = self._file.moved_to(directory)

    def _follow_file(self) -> None:
        """Switch to the current file if this one was compacted or replaced, unless the directory is gone."""
        if self._file.is_current() or self._gate.is_inside():
            return
        if not self._file.has_directory() and (self._find_directory() is None or self._file.is_current()):
            return
        self._exclusively(self._reopen)

    def _reopen(self) -> None:
        if not self._file.is_current():
            before = self._env, self._fd
            self._open()
            self._close_files(*before)

    def _exclusively(self, work: Callable[[], object]) -> None:
        """Run `work` while no thread has a transaction open."""
        with self._gate.closing:
            try:
                if not self._gate.close(patience=60.0):
                    raise StoreError(f"{self.path} is being read for a minute; it cannot be opened anew meanwhile")
                work()
            finally:
                self._gate.open()

    @staticmethod
    def _close_files(env: Any, fd: int) -> None:
        if env is not None:
            env.close()
        if fd >= 0:
            os.close(fd)

    def _open_lmdb(self, path: Path, fd: int) -> Any:
        import lmdb

        self._lmdb = lmdb
        size = max(FIRST_MAP, os.fstat(fd).st_size)
        try:
            make_lock(path)
            env = lmdb.open(
                os.fsencode(path),  # as bytes, because lmdb refuses a text that is not valid UTF-8
                subdir=False,
                map_size=size,
                readonly=not self.writable,
                create=False,
                metasync=self._full_sync,
                max_readers=MOST_READERS,
                # A spare transaction keeps its slot in the table of readers, which a forked child would free.
                max_spare_txns=0,
            )
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: its lock file: {error.strerror or error}") from error
        except lmdb.Error as error:
            raise DamagedStore(f"{path} cannot be opened: {error}") from error
        if not place.is_same(path, fd):
            # It was compacted and deleted just now, and LMDB made an empty file in its place, in spite of `create`.
            env.close()
            remove_files(path)
            raise FileNotFoundError(errno.ENOENT, "it was compacted", str(path))
        env.reader_check()
        return env

    @contextmanager
    def read(self) -> Iterator[ReadTransaction]:
        """A snapshot for the `with`. Values are views into it: copy those to be kept."""
        self._follow_file()
        if self._env is None:
            yield PageFile(self._fd)
            return
        while True:
            inside = self._gate.enter()
            with inside:
                txn = self._begin_read(inside)
                if txn is not None:
                    with txn:
                        yield WriteTransaction(txn)
                    return
            self._wait(inside)

    def _read_locked(self, work: Callable[[ReadTransaction], T]) -> T:
        """Run `work` in a read transaction, which ends also at an interrupt."""
        self._follow_file()
        for _ in range(_ATTEMPTS):
            inside = self._gate.enter()
            with inside:
                txn = self._begin_read(inside)
                if txn is not None:
                    with txn:
                        return work(WriteTransaction(txn))
            self._wait(inside)
        raise StoreError(f"{self.path} grows faster than it can be opened")

    def _wait(self, inside: AbstractContextManager[Any]) -> None:
        """Wait until the gate is open. If it is, another process grew the map: adopt its size."""
        if self._gate.admits(inside):
            self._adopt_size()
        while not self._gate.admits(inside):
            self._gate.wait()

    def _begin_read(self, inside: AbstractContextManager[Any]) -> Any:
        """A read transaction; None if the gate is closed or another process grew the map."""
        if not self._gate.admits(inside):
            return None
        lmdb = self._lmdb
        for _ in range(_ATTEMPTS):
            try:
                return self._env.begin(buffers=True)
            except lmdb.MapResizedError:
                return None
            except lmdb.ReadersFullError:
                self._env.reader_check()
                time.sleep(0.01)
        raise StoreError(f"{self.path} has {MOST_READERS} readers at once; no more fit in")

    def read_retried(self, work: Callable[[ReadTransaction], T]) -> T:
        """Run `work` in one snapshot. Without locks it is repeated until the snapshot stayed valid."""
        if self._env is not None:
            try:
                return self._read_locked(work)
            except (BadPages, BadValue):
                with self._naming_file():
                    raise
        for attempt in range(_ATTEMPTS):
            self._follow_file()
            made = self._read_unlocked(work, last=attempt == _ATTEMPTS - 1)
            if made is not None:
                return made[0]
            time.sleep(0.002 * attempt)
        raise AssertionError("the last attempt answers or raises")

    def _read_unlocked(self, work: Callable[[ReadTransaction], T], *, last: bool) -> tuple[T] | None:
        """Run `work` in a snapshot without locks; None if a writer may have reused its pages meanwhile."""
        with held_back() as notices:
            try:
                snapshot = PageFile(self._fd)
                made = work(snapshot)
                if snapshot.stale and not last:
                    return None
            except (BadPages, BadValue, SomatizeError, ValueError, struct.error) as error:
                if not last and (isinstance(error, BadPages) or snapshot.stale):
                    return None
                with self._naming_file():
                    raise
        for notice in notices:
            warn_of_record(notice)
        return (made,)

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        """Raise damage that is found inside with the path of this file."""
        try:
            yield
        except BadPages as error:
            raise DamagedStore(f"{self.path} is damaged: {error}") from error
        except BadValue as error:
            if str(self.path) in str(error):
                raise
            raise BadValue(f"{self.path} is damaged: {error}; see Store.check()") from error

    def write(self, work: Callable[[WriteTransaction], T]) -> T:
        """Run `work` in one transaction and commit it, synced to the disk.

        `work` may run again if the map has to grow. If it raises, the transaction is aborted. Raises `NotWritten`.
        """
        if not self.writable:
            raise StoreReadOnly(f"{self.path.parent} may only be read")
        return self._service.run(lambda: self._write(work))

    def in_service_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in the service thread, without other writes or signal handlers in between."""
        return self._service.run(work)

    def _write(self, work: Callable[[WriteTransaction], T]) -> T:
        import lmdb

        while True:
            self._follow_file()
            try:
                inside = self._gate.enter()
                with inside, self._naming_file():
                    if self._gate.admits(inside):
                        return self._transact(work)
                self._gate.wait()
            except _Replaced:
                continue
            except lmdb.MapFullError:
                self._grow()
            except lmdb.MapResizedError:
                self._adopt_size()
            except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError) as error:
                raise DamagedStore(f"{self.path} is damaged: {error}") from error
            except lmdb.Error as error:
                raise NotWritten(*_cause(error, self.directory), str(self.path)) from error

    def _transact(self, work: Callable[[WriteTransaction], T]) -> T:
        with self._env.begin(write=True, buffers=True) as txn:  # commits, or aborts if anything is raised
            if not self._file.is_current():  # compacted while this waited for the write lock
                if not self._file.has_directory() and self._find_directory() is None:
                    raise place.gone_error(self.directory)
                raise _Replaced
            return work(WriteTransaction(txn))

    def _grow(self) -> None:
        # Doubling may not suffice for a large value; then the next attempt doubles again.
        self._resize(self._env.info()["map_size"] * 2)

    def _adopt_size(self) -> None:
        """Adopt the map size that another process set."""
        self._resize(0)

    def _resize(self, size: int) -> None:
        self._exclusively(lambda: self._env.set_mapsize(size))

    def compact(self) -> None:
        """Give free space back to the disk: replace the file by a compacted copy.

        Other processes may read and write meanwhile; writes wait, and transactions that follow use the new file.
        """
        self._service.run(self._compact)

    def _compact(self) -> None:
        self._follow_file()
        txn = self._env.begin(write=True)  # excludes writes to the old file
        try:
            if self._file.is_current():
                self._file.replace_with(self.copy_to)
        finally:
            txn.abort()
        self._follow_file()

    def sweep(self) -> None:
        """Free the slots of killed readers, which keep old pages from being reused.

        Also map the file anew unless a thread reads, so that the pages read so far leave the memory of the process.
        """
        if self._env is None:
            return
        self._env.reader_check()
        with self._gate.closing:
            try:
                if self._gate.close(patience=0.0):
                    self._env.set_mapsize(0)
            finally:
                self._gate.open()

    def copy_to(self, target: Path) -> None:
        """Write a compacted copy of a snapshot to a new file, also while others write."""
        if self._env is None:
            raise StoreReadOnly(f"{self.path.parent} may only be read without locks; copy it as files")
        file = FileIO(target, "xb")
        try:
            inside = self._gate.enter()
            while True:
                with inside:
                    if self._gate.admits(inside):
                        self._env.copyfd(file.fileno(), compact=True)
                        break
                self._gate.wait()
            os.fsync(file.fileno())
        except self._lmdb.Error as error:
            raise NotWritten(*_cause(error, target.parent), str(target)) from error
        finally:
            file.close()

    def close(self) -> None:
        """Unmap the file. Call it inside `closed_gate`, or in a forked child."""
        self._service.stop()
        env, fd = self._env, self._fd
        self._env, self._fd = None, -1
        self._close_files(env, fd)

    @contextmanager
    def closed_gate(self, patience: float) -> Iterator[bool]:
        """Keep other threads from beginning transactions; yields whether the open ones ended within so many seconds."""
        with self._gate.closing:
            try:
                yield self._gate.close(patience)
            finally:
                self._gate.open()

    def before_fork(self) -> None:
        """End all transactions before a fork, because the child would share them."""
        self._gate.closing.acquire()
        self._gate.close(patience=5.0)

    def after_fork(self) -> None:
        """Allow transactions again, in the parent."""
        self._gate.open()
        self._gate.closing.release()


class _Replaced(Exception):
    """The file was compacted or replaced, and must be opened anew."""


class BadValue(DamagedStore):
    """A value whose checksum does not match."""


def _cause(error: Exception, directory: Path) -> tuple[int, str]:
    codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
    known = next((code for code in codes if os.strerror(code) in str(error)), errno.EIO)
    if known == errno.EIO and place.is_full(directory):
        known = errno.ENOSPC  # LMDB reports a partial write without a reason
    return known, os.strerror(known)


def create(path: Path) -> None:
    """Make an empty LMDB file and its lock file. Raises OSError."""
    import lmdb

    try:
        env = lmdb.open(os.fsencode(path), subdir=False, map_size=1 << 20, lock=False, sync=False)
        try:
            with env.begin(write=True) as txn:  # writes both meta pages and the format of the tree
                txn.put(b"\x00", b"")
        finally:
            env.close()
    except lmdb.Error as error:
        raise NotWritten(*_cause(error, path.parent), str(path)) from error
    make_lock(path)

"""An open LMDB file of a store, its transactions and its gate. The only module that imports `lmdb`.

What LMDB leaves to its user is settled here. The map grows by itself, also when another process grew it. A
transaction never outlives the `with` it was opened in. A file is checked before it is mapped. Readers that were
killed are cleared away. Where LMDB's lock file may not be written, the pages are read without mapping them.
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
from .lmdb_files import MOST_READERS, BadPages, Generation, PageFile, make_lock, take_away, verify

Buffer = bytes | memoryview


class ReadTransaction(Protocol):
    """One snapshot. What it gives is valid inside the `with` it came from, and no longer."""

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
        """Keys and values in the order of the keys, from `start`. Write nothing meanwhile."""
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
        """Take a key away; False if there was none."""
        return self._txn.delete(key)  # type: ignore[no-any-return]


_LOOKS = 0.0005
"""Seconds between two looks of who waits. Nobody is told: that would take a lock that a signal's handler waits for."""
_INSIDE = nullcontext()


class Gate:
    """Lets transactions of this process run side by side, and a change of the map run alone.

    Each thread has a lock of its own, which it has while it is inside; so that an interrupt leaves it in one step. Of
    whoever is inside a handler of a signal may go in again.
    """

    def __init__(self) -> None:
        self.door = threading.RLock()
        """Held by the one who is to be alone."""
        self._locks: dict[int, Any] = {}
        self._alone: int | None = None

    def one_of_many(self) -> AbstractContextManager[Any]:
        """A context for one of many users. It only counts where `lets_in` says so, asked within."""
        me = get_ident()
        mine = self._locks.get(me)
        if mine is None:
            mine = self._locks.setdefault(me, threading.Lock())
        return _INSIDE if mine.locked() else mine

    def lets_in(self, held: AbstractContextManager[Any]) -> bool:
        """Whether who holds that may go on; else it must be let go of, and tried again after `wait`."""
        # Who is inside already passes: it would else wait for itself.
        return self._alone is None or held is _INSIDE or self._alone == get_ident()

    def wait(self) -> None:
        """Wait a moment for whoever is alone."""
        time.sleep(_LOOKS)

    def has_me(self) -> bool:
        """Whether this thread is inside."""
        mine = self._locks.get(get_ident())
        return mine is not None and mine.locked()

    def shut(self, patience: float) -> bool:
        """Let nobody in until `open`, and wait until nobody else is inside; False if that takes too long.

        Call it with the `door` held, and `open` whatever comes of it.
        """
        me, until = get_ident(), time.monotonic() + patience
        self._alone = me
        while self._others(me):
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOKS)
        return not self.has_me()

    def _others(self, me: int) -> bool:
        return any(lock.locked() for thread, lock in list(self._locks.items()) if thread != me)

    def open(self) -> None:
        """Let everybody in again."""
        self._alone = None


__all__ = ["BadValue", "Buffer", "Environment", "ReadTransaction", "WriteTransaction", "create"]

T = TypeVar("T")

FIRST_MAP = 16 << 20
"""Bytes of address space to begin with. It takes no disk: the file is as long as what was written."""
_VERIFIED_PAGES = 1000
_LINGERS = 2.0
_ATTEMPTS = 40


class Environment:
    """One LMDB file, open in this process at most once. Threads may share it; a forked child may not use it."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        writable: bool,
        full_sync: bool = True,
        follow: Callable[[], Path | None] = lambda: None,
    ) -> None:
        """Open the newest file of a name that `create` or `compact` made.

        `follow` tells where the directory lies now, and has `moved_to` called where it was moved. Raises
        `DamagedStore` if the file is not as LMDB leaves its files.
        """
        self.directory = directory
        self._where_now = follow
        self.name = name
        self.writable = writable
        self._full_sync = full_sync
        self._gate = Gate()
        self._service = ServiceThread(_LINGERS)
        self._env: Any = None
        self._lmdb: Any = None
        self._fd = -1
        self._open()

    def _open(self) -> None:
        for attempt in range(_ATTEMPTS):
            path = place.newest(self.directory, self.name)
            try:
                with self._checked(path) as fd:
                    if self.writable or os.access(f"{path}-lock", os.W_OK):
                        self._env, self._fd = self._opened(path, fd), -1
                    else:
                        self._env, self._fd = None, os.dup(fd)
                    self._generation = Generation(self.directory, self.name, path, fd)
                    return
            except (FileNotFoundError, DamagedStore):
                if path.exists() or attempt == _ATTEMPTS - 1:
                    raise  # else it was compacted in between

    @contextmanager
    def _checked(self, path: Path) -> Iterator[int]:
        """The file, open and known to be as LMDB leaves its files."""
        verify(path, _VERIFIED_PAGES)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._generation.path

    def moved_to(self, directory: Path) -> None:
        """Know that the directory of the file was moved, and is at `directory` now."""
        self.directory = directory
        self._generation = self._generation.moved_to(directory)

    def _follow(self) -> None:
        """Go on in the newest file, if somebody compacted this one. In a directory that is gone it stays as it is."""
        if self._generation.is_last() or self._gate.has_me():
            return
        if not self._generation.is_at_home() and (self._where_now() is None or self._generation.is_last()):
            return
        self._alone(self._reopen)

    def _reopen(self) -> None:
        if not self._generation.is_last():
            before = self._env, self._fd
            self._open()
            self._let_go(*before)

    def _alone(self, work: Callable[[], object]) -> None:
        """Do what must be done while nobody has a transaction open."""
        with self._gate.door:
            try:
                if not self._gate.shut(patience=60.0):
                    raise StoreError(f"{self.path} is being read for a minute; it cannot be opened anew meanwhile")
                work()
            finally:
                self._gate.open()

    @staticmethod
    def _let_go(env: Any, fd: int) -> None:
        if env is not None:
            env.close()
        if fd >= 0:
            os.close(fd)

    def _opened(self, path: Path, fd: int) -> Any:
        import lmdb

        self._lmdb = lmdb
        size = max(FIRST_MAP, os.fstat(fd).st_size)
        try:
            make_lock(path)
            env = lmdb.open(
                os.fsencode(path),  # of a text it would refuse what is no UTF-8
                subdir=False,
                map_size=size,
                readonly=not self.writable,
                create=False,
                metasync=self._full_sync,
                max_readers=MOST_READERS,
                # A spare transaction keeps its place in the table of readers, and a forked child would give it away.
                max_spare_txns=0,
            )
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: its lock file: {error.strerror or error}") from error
        except lmdb.Error as error:
            raise DamagedStore(f"{path} cannot be opened: {error}") from error
        if not place.is_same(path, fd):
            # It was compacted and taken away just now, and LMDB, asked not to, made an empty one in its place.
            env.close()
            take_away(path)
            raise FileNotFoundError(errno.ENOENT, "it was compacted", str(path))
        env.reader_check()
        return env

    @contextmanager
    def read(self) -> Iterator[ReadTransaction]:
        """A snapshot for the length of the `with`. Values are views into it: copy what should stay."""
        self._follow()
        if self._env is None:
            yield PageFile(self._fd)
            return
        while True:
            inside = self._gate.one_of_many()
            with inside:
                txn = self._begin(inside)
                if txn is not None:
                    with txn:
                        yield WriteTransaction(txn)
                    return
            self._wait(inside)

    def _read(self, work: Callable[[ReadTransaction], T]) -> T:
        """Run `work` in a read transaction. An interrupt ends the transaction wherever it comes."""
        self._follow()
        for _ in range(_ATTEMPTS):
            inside = self._gate.one_of_many()
            with inside:
                txn = self._begin(inside)
                if txn is not None:
                    with txn:
                        return work(WriteTransaction(txn))
            self._wait(inside)
        raise StoreError(f"{self.path} grows faster than it can be opened")

    def _wait(self, inside: AbstractContextManager[Any]) -> None:
        """Wait until whoever is alone is through; if nobody is, another process grew the map."""
        if self._gate.lets_in(inside):
            self._adopt_size()
        while not self._gate.lets_in(inside):
            self._gate.wait()

    def _begin(self, inside: AbstractContextManager[Any]) -> Any:
        """A read transaction; None if one is not let in, or another process grew the map."""
        if not self._gate.lets_in(inside):
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
        """Run `work` in one snapshot; without locks it is repeated until the snapshot stayed valid."""
        if self._env is not None:
            try:
                return self._read(work)
            except (BadPages, BadValue):
                with self._named():
                    raise
        for attempt in range(_ATTEMPTS):
            self._follow()
            made = self._attempt(work, last=attempt == _ATTEMPTS - 1)
            if made is not None:
                return made[0]
            time.sleep(0.002 * attempt)
        raise AssertionError("the last attempt answers or raises")

    def _attempt(self, work: Callable[[ReadTransaction], T], *, last: bool) -> tuple[T] | None:
        """Run `work` in a snapshot without locks; None if a writer reused its pages meanwhile."""
        with held_back() as notices:
            try:
                snapshot = PageFile(self._fd)
                made = work(snapshot)
                if snapshot.stale and not last:
                    return None
            except (BadPages, BadValue, SomatizeError, ValueError, struct.error) as error:
                if not last and (isinstance(error, BadPages) or snapshot.stale):
                    return None
                with self._named():
                    raise
        for notice in notices:
            warn_of_record(notice)
        return (made,)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Damage that comes to light in here is said to be of this file."""
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

        `work` may run again, from the start, if the map has to grow. What it raises undoes all. Raises `NotWritten`.
        """
        if not self.writable:
            raise StoreReadOnly(f"{self.path.parent} may only be read")
        return self._service.run(lambda: self._write(work))

    def in_service_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in the service thread, where no other write and no signal handler comes in between."""
        return self._service.run(work)

    def _write(self, work: Callable[[WriteTransaction], T]) -> T:
        import lmdb

        while True:
            self._follow()
            try:
                inside = self._gate.one_of_many()
                with inside, self._named():
                    if self._gate.lets_in(inside):
                        return self._transact(work)
                self._gate.wait()
            except _Moved:
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
        with self._env.begin(write=True, buffers=True) as txn:  # which commits, or aborts where something is raised
            if not self._generation.is_last():  # compacted while this waited for its turn
                if not self._generation.is_at_home() and self._where_now() is None:
                    raise place.gone_error(self.directory)
                raise _Moved
            return work(WriteTransaction(txn))

    def _grow(self) -> None:
        # Doubling may be too little for one large value; then the next attempt comes here again.
        self._resize(self._env.info()["map_size"] * 2)

    def _adopt_size(self) -> None:
        """Take the size that another process gave the map."""
        self._resize(0)

    def _resize(self, size: int) -> None:
        self._alone(lambda: self._env.set_mapsize(size))

    def compact(self) -> None:
        """Give free space back to the disk: write a copy without it, which takes the file's place.

        Others may read and write meanwhile; they go on in the successor by themselves.
        """
        self._service.run(self._compact)

    def _compact(self) -> None:
        self._follow()
        txn = self._env.begin(write=True)  # nobody writes to the old file once its successor is there
        try:
            if self._generation.is_last():
                self._generation.succeed(self.copy_to)
        finally:
            txn.abort()
        self._follow()

    def sweep(self) -> None:
        """Clear away the marks of readers that were killed; they would keep old pages from being used again.

        And map the file anew unless somebody here reads: pages that were looked at stay with the process else.
        """
        if self._env is None:
            return
        self._env.reader_check()
        with self._gate.door:
            try:
                if self._gate.shut(patience=0.0):
                    self._env.set_mapsize(0)
            finally:
                self._gate.open()

    def copy_to(self, target: Path) -> None:
        """Write a compacted copy of one snapshot to a new file, also while others write."""
        if self._env is None:
            raise StoreReadOnly(f"{self.path.parent} may only be read without locks; copy it as files")
        file = FileIO(target, "xb")
        try:
            inside = self._gate.one_of_many()
            while True:
                with inside:
                    if self._gate.lets_in(inside):
                        self._env.copyfd(file.fileno(), compact=True)
                        break
                self._gate.wait()
            os.fsync(file.fileno())
        except self._lmdb.Error as error:
            raise NotWritten(*_cause(error, target.parent), str(target)) from error
        finally:
            file.close()

    def close(self) -> None:
        """Unmap the file. Call it where nobody has a transaction: within `shut`, or in a forked child."""
        self._service.stop()
        env, fd = self._env, self._fd
        self._env, self._fd = None, -1
        self._let_go(env, fd)

    @contextmanager
    def shut(self, patience: float) -> Iterator[bool]:
        """Let other threads begin no transaction; gives whether those that go on ended within so many seconds."""
        with self._gate.door:
            try:
                yield self._gate.shut(patience)
            finally:
                self._gate.open()

    def has_me(self) -> bool:
        """Whether this thread has a transaction open."""
        return self._gate.has_me()

    def before_fork(self) -> None:
        """Let no transaction be open at the moment of a fork: the child would share it."""
        self._gate.door.acquire()
        self._gate.shut(patience=5.0)

    def after_fork(self) -> None:
        """Go on, in the parent."""
        self._gate.open()
        self._gate.door.release()


class _Moved(Exception):
    """The file was compacted, and its successor is to be used."""


class BadValue(DamagedStore):
    """A value that does not carry its checksum."""


def _cause(error: Exception, directory: Path) -> tuple[int, str]:
    codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
    known = next((code for code in codes if os.strerror(code) in str(error)), errno.EIO)
    if known == errno.EIO and place.is_full(directory):
        known = errno.ENOSPC  # of what fitted in part LMDB says only that it failed
    return known, os.strerror(known)


def create(path: Path) -> None:
    """Make an empty LMDB file and its lock file, complete when this returns. Raises OSError where there is no room."""
    import lmdb

    try:
        env = lmdb.open(os.fsencode(path), subdir=False, map_size=1 << 20, lock=False, sync=False)
        try:
            with env.begin(write=True) as txn:  # so that both meta pages and the format of the tree are there
                txn.put(b"\x00", b"")
        finally:
            env.close()
    except lmdb.Error as error:
        raise NotWritten(*_cause(error, path.parent), str(path)) from error
    make_lock(path)

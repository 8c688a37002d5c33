"""One LMDB file of a store, as this process has it open. The only module that imports `lmdb`.

What LMDB leaves to its user is settled here. The map grows by itself, also when another process grew it. A
transaction never outlives the `with` it was opened in. A file is checked before it is mapped. Readers that were
killed are cleared away. Where LMDB's lock file may not be written, the pages are read without mapping them.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from somatize.errors import DamagedStore, SomatizeError, StoreError, StoreReadOnly

from . import place
from .gate import Gate
from .notices import held_back, warn
from .pages import BadPages, PageFile, verify

T = TypeVar("T")

FIRST_MAP = 16 << 20
"""Bytes of address space to begin with. It takes no disk: the file is as long as what was written."""
_MOST_READERS = 1022
_VERIFIED_PAGES = 1000
_ATTEMPTS = 40

Buffer = bytes | memoryview


class Reading(Protocol):
    """One snapshot. What it gives is valid inside the `with` it came from, and no longer."""

    def get(self, key: bytes) -> Buffer | None:
        """The value of a key, or None."""

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, Buffer]]:
        """Keys and values in the order of the keys, from `start`."""


class Writing:
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


class Environment:
    """One LMDB file, open in this process at most once. Threads may share it; a forked child may not use it."""

    def __init__(self, directory: Path, name: str, *, writable: bool, full_sync: bool = True) -> None:
        """Open the newest file of a name that `create` or `compact` made.

        Raises `DamagedStore` if it is not as LMDB leaves its files.
        """
        self.directory = directory
        self.name = name
        self.writable = writable
        self._full_sync = full_sync
        self._gate = Gate()
        self._writer = threading.Lock()
        self._env: Any = None
        self._lmdb: Any = None
        self._fd = -1
        self._open()

    def _open(self) -> None:
        for attempt in range(_ATTEMPTS):
            self.path = place.newest(self.directory, self.name)
            self._successor = str(place.successor(self.path))
            try:
                verify(self.path, _VERIFIED_PAGES)
                if self.writable or os.access(f"{self.path}-lock", os.W_OK):
                    self._env = self._opened()
                else:
                    self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                return
            except (FileNotFoundError, DamagedStore):
                if self.path.exists() or attempt == _ATTEMPTS - 1:
                    raise  # else it was compacted in between

    def _follow(self) -> None:
        """Go on in the successor of the file, if somebody compacted it."""
        # Asked before each transaction, and hardly ever so: `exists` would raise and catch an error.
        if os.access(self._successor, os.F_OK) and not self._gate.has_me():
            with self._alone():
                if os.path.exists(self._successor):  # noqa: PTH110
                    self._let_go()
                    self._open()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            if not self._gate.shut(patience=60.0):
                raise StoreError(f"{self.path} is being read for a minute; it cannot be opened anew meanwhile")
            yield
        finally:
            self._gate.open()

    def _let_go(self) -> None:
        if self._env is not None:
            self._env.close()
        elif self._fd >= 0:
            os.close(self._fd)
        self._env, self._fd = None, -1

    def _opened(self) -> Any:
        import lmdb

        self._lmdb = lmdb
        size = max(FIRST_MAP, self.path.stat().st_size)
        try:
            env = lmdb.open(
                str(self.path),
                subdir=False,
                map_size=size,
                readonly=not self.writable,
                create=False,
                metasync=self._full_sync,
                max_readers=_MOST_READERS,
                # A spare transaction keeps its place in the table of readers, and a forked child would give it away.
                max_spare_txns=0,
            )
        except lmdb.Error as error:
            raise DamagedStore(f"{self.path} cannot be opened: {error}") from error
        env.reader_check()
        return env

    def read(self) -> AbstractContextManager[Reading]:
        """A snapshot for the length of the `with`. Values are views into it: copy what should stay."""
        return Snapshot(self)

    def enter(self, snapshot: Snapshot) -> None:
        """Give a snapshot its transaction, inside of the gate; none where there are no locks to take."""
        self._follow()
        if self._env is None:
            return
        for _ in range(_ATTEMPTS):
            self._gate.enter()
            try:
                snapshot.txn = self._begin()
            finally:  # also when Ctrl-C comes in between
                if snapshot.txn is None:
                    self._gate.leave()
            if snapshot.txn is not None:
                return
            self._adopt_size()
        raise StoreError(f"{self.path} grows faster than it can be opened")

    def leave(self, snapshot: Snapshot) -> None:
        """End a snapshot's transaction, if it has one."""
        txn, snapshot.txn = snapshot.txn, None
        if txn is not None:
            try:
                txn.abort()
            finally:
                self._gate.leave()

    def pages(self) -> PageFile:
        """A snapshot without locks."""
        return PageFile(self._fd)

    def _begin(self) -> Any:
        """A read transaction; None if another process grew the map."""
        lmdb = self._lmdb
        for _ in range(_ATTEMPTS):
            try:
                return self._env.begin(buffers=True)
            except lmdb.MapResizedError:
                return None
            except lmdb.ReadersFullError:
                self._env.reader_check()
                time.sleep(0.01)
        raise StoreError(f"{self.path} has {_MOST_READERS} readers at once; no more fit in")

    def read_retried(self, work: Callable[[Reading], T]) -> T:
        """What `work` makes of one snapshot; without locks it is tried again until the snapshot held still."""
        if self._env is not None:
            with self.read() as reading:
                return work(reading)
        for attempt in range(_ATTEMPTS):
            self._follow()
            made = self._attempt(work, last=attempt == _ATTEMPTS - 1)
            if made is not None:
                return made[0]
            time.sleep(0.002 * attempt)
        raise AssertionError("the last attempt answers or raises")

    def _attempt(self, work: Callable[[Reading], T], *, last: bool) -> tuple[T] | None:
        """What `work` makes of a snapshot without locks; None if a writer used its pages again meanwhile."""
        with held_back() as notices:
            try:
                snapshot = PageFile(self._fd)
                made = work(snapshot)
                if snapshot.stale and not last:
                    return None
            except (BadPages, BadValue, SomatizeError, ValueError, struct.error) as error:
                if not last and (isinstance(error, BadPages) or snapshot.stale):
                    return None
                if isinstance(error, BadPages):
                    raise DamagedStore(f"{self.path} is damaged: {error}") from error
                raise
        for notice in notices:
            warn(notice)
        return (made,)

    def write(self, work: Callable[[Writing], T]) -> T:
        """Run `work` in one transaction and commit it, synced to the disk.

        `work` may run again, from the start, when the map had to grow. Whatever it raises undoes all. Raises
        OSError when the disk is full or fails.
        """
        import lmdb

        if not self.writable:
            raise StoreReadOnly(f"{self.path.parent} may only be read")
        with self._writer:
            while True:
                self._follow()
                try:
                    with self._gate.one_of_many():
                        return self._transact(work)
                except _Moved:
                    continue
                except lmdb.MapFullError:
                    self._grow()
                except lmdb.MapResizedError:
                    self._adopt_size()
                except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError) as error:
                    raise DamagedStore(f"{self.path} is damaged: {error}") from error
                except lmdb.Error as error:
                    raise OSError(*_cause(error)) from error

    def _transact(self, work: Callable[[Writing], T]) -> T:
        txn = self._env.begin(write=True, buffers=True)
        try:
            if os.path.exists(self._successor):  # noqa: PTH110
                raise _Moved  # compacted while this waited for its turn
            made = work(Writing(txn))
            txn.commit()
            return made
        except BaseException:
            txn.abort()
            raise

    def _grow(self) -> None:
        # Doubling may be too little for one large value; then the next attempt comes here again.
        self._resize(self._env.info()["map_size"] * 2)

    def _adopt_size(self) -> None:
        """Take the size that another process gave the map."""
        self._resize(0)

    def _resize(self, size: int) -> None:
        with self._alone():
            self._env.set_mapsize(size)

    def compact(self) -> None:
        """Give free space back to the disk: write a copy without it, which takes the file's place.

        Others may read and write meanwhile; they go on in the successor by themselves.
        """
        with self._writer:
            self._follow()
            txn = self._env.begin(write=True)  # nobody writes to the old file once its successor is there
            try:
                if os.path.exists(self._successor):  # noqa: PTH110
                    return
                making = self.path.with_name(f".making-{self.path.name}.{os.getpid()}")
                making.unlink(missing_ok=True)
                self.copy_to(making)
                making.rename(self._successor)
                place.sync(self.directory)
                old = self.path
                for name in (old, old.with_name(f"{old.name}-lock")):
                    name.unlink(missing_ok=True)
            finally:
                txn.abort()
            self._follow()

    def sweep(self) -> None:
        """Clear away the marks of readers that were killed; they would keep old pages from being used again."""
        if self._env is not None:
            self._env.reader_check()

    def copy_to(self, target: Path) -> None:
        """Write a compacted copy of one snapshot to a new file, also while others write."""
        if self._env is None:
            raise StoreReadOnly(f"{self.path.parent} may only be read without locks; copy it as files")
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with self._gate.one_of_many():
                self._env.copyfd(fd, compact=True)
            os.fsync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Unmap the file, once the transactions of other threads have ended."""
        self._gate.shut(patience=60.0)
        self._let_go()

    def before_fork(self) -> None:
        """Let no transaction be open at the moment of a fork: the child would share it."""
        self._gate.shut(patience=5.0)

    def after_fork(self) -> None:
        """Go on, in the parent."""
        self._gate.open()


class Snapshot:
    """The `with` of `Environment.read`; a class, as it is entered for every look at a kept value."""

    __slots__ = ("_environment", "txn")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.txn: Any = None

    def __enter__(self) -> Reading:
        environment = self._environment
        try:
            environment.enter(self)
            return Writing(self.txn) if self.txn is not None else environment.pages()
        except BaseException:
            environment.leave(self)
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._environment.leave(self)
        if isinstance(error, BadPages):
            raise DamagedStore(f"{self._environment.path} is damaged: {error}") from error


class _Moved(Exception):
    """The file was compacted, and its successor is to be used."""


class BadValue(Exception):
    """A value that does not carry its checksum."""


def _cause(error: Exception) -> tuple[int, str]:
    import errno

    text = str(error)
    codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
    known = next((code for code in codes if os.strerror(code) in text), errno.EIO)
    return known, text


def create(path: Path) -> None:
    """Make an empty LMDB file. It is complete when this returns, and on the disk when it is synced."""
    import lmdb

    env = lmdb.open(str(path), subdir=False, map_size=1 << 20, max_readers=_MOST_READERS, sync=False)
    # A first transaction, so that both meta pages and the format of the tree are there.
    with env.begin(write=True) as txn:
        txn.put(b"\x00", b"")
    env.close()
    path.with_name(f"{path.name}-lock").unlink(missing_ok=True)

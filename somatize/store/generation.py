"""The files that hold one LMDB database one after the other: compacting one makes the next, and the old one goes.

Of two that lie there the one of the higher number counts. Whoever has an old one open must notice before each
transaction, also when it slept through several compactions: what it wrote to a file that is gone would be lost.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from . import directory as place

MOST_READERS = 1022
LOCK_BYTES = 64 * (MOST_READERS + 2)
"""The length of LMDB's lock file: a place for each reader, and what comes before them."""


class Generation:
    """One of these files, as it was when it was opened."""

    __slots__ = ("_directory", "_home", "_inode", "_name", "_place", "_successor", "path")

    def __init__(self, directory: Path, name: str, path: Path, fd: int) -> None:
        """The file at `path`, which is open as `fd`."""
        self.path = path
        self._directory = directory
        self._name = name
        self._home = place.identity(directory)
        self._inode = os.fstat(fd).st_ino
        self._place, self._successor = str(path), str(place.successor(path))

    def moved_to(self, directory: Path) -> Generation:
        """The same file, after its directory was moved."""
        made = Generation.__new__(Generation)
        made.path = directory / self.path.name
        made._directory, made._name, made._home, made._inode = directory, self._name, self._home, self._inode
        made._place, made._successor = str(made.path), str(place.successor(made.path))
        return made

    def is_last(self) -> bool:
        """Whether the file still lies in its place, and no successor does."""
        # Asked before each transaction, and hardly ever false: `exists` would raise and catch an error.
        try:
            return os.stat(self._place).st_ino == self._inode and not os.access(self._successor, os.F_OK)  # noqa: PTH116
        except FileNotFoundError:
            return False

    def is_at_home(self) -> bool:
        """Whether its directory is still there, and not another in its place."""
        return place.identity(self._directory) == self._home

    def succeed(self, copy_to: Callable[[Path], None]) -> None:
        """Put the file that `copy_to` writes in its place. Nobody may write meanwhile, or do the same."""
        for left in self._directory.glob(f".making-{self._name}.*"):
            left.unlink(missing_ok=True)  # by one that was killed
        making = self.path.with_name(f".making-{self.path.name}.{os.getpid()}")
        try:
            copy_to(making)
            make_lock(Path(self._successor))
            making.rename(self._successor)
        finally:
            making.unlink(missing_ok=True)
        place.sync(self._directory)
        # The oldest first, so that at any moment each is gone or has a successor.
        for old in place.generations(self._directory, self._name)[:-1]:
            take_away(old)


def make_lock(path: Path) -> None:
    """Make the lock file of an LMDB file, or what it lacks of one. Raises OSError where there is no room.

    LMDB makes it with holes and maps it: where the disk has no room for a hole, the process dies at its first touch.
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
                raise  # else it is a file system that cannot do this
        finally:
            os.close(fd)


def _link_zeros(lock: Path) -> None:
    # Made whole and then linked into place: another process may make it too, and use it at once.
    making = lock.with_name(f".making-{lock.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        making.write_bytes(bytes(LOCK_BYTES))
        try:
            os.link(making, lock)
        except FileExistsError:
            pass
    finally:
        making.unlink(missing_ok=True)


def take_away(path: Path) -> None:
    """Remove an LMDB file, and the lock file beside it."""
    for one in (path, path.with_name(f"{path.name}-lock")):
        one.unlink(missing_ok=True)

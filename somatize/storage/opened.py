"""All that one process holds of one store: its files, its locks, its writers and the thread that commits.

A store is open at most once in a process, however many handles there are and by whatever path they name it; LMDB
and POSIX locks both demand it. Handles count references. A forked child starts with nothing: what it inherited is
its parent's, and is put aside the moment it is forked.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from somatize.errors import DamagedStore, StoreReadOnly

from . import place
from .environment import Environment, create
from .locks import Locks
from .numbers import RunGate
from .used import Used

if TYPE_CHECKING:
    from .committer import Committer
    from .writer import Writer


class Opened:
    """One store, as this process has it open. Made by `acquire`, which checks its format, let go of by `release`."""

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        place.warn_if_remote(path)
        self.path = path
        self.identity = identity
        self.pid = os.getpid()
        self.references = 0
        place.complete(path)
        self.writable = place.writable(path)
        self.locks = Locks(path / place.LOCKS, writable=self.writable)
        self.records = Environment(path, place.RECORDS, writable=self.writable)
        self.opening = threading.RLock()
        self.writers: dict[int, Writer] = {}
        self.told: set[str] = set()
        self.used = Used()
        self._values: Environment | None = None
        self._gates: dict[int, RunGate] = {}
        self._committer: Committer | None = None
        self._lock = threading.Lock()

    @property
    def journals(self) -> Path:
        """The directory of the journals."""
        return self.path / place.JOURNALS

    @property
    def values(self) -> Environment:
        """The file of kept values, opened when first asked for."""
        with self._lock:
            if self._values is None:
                if place.identity(self.path) != self.identity:
                    raise place.gone(self.path)
                self._values = Environment(self.path, place.VALUES, writable=self.writable, full_sync=False)
            return self._values

    @property
    def committer(self) -> Committer:
        """The thread that takes journals in; it starts when it first has something to do."""
        from .committer import Committer

        with self._lock:
            if self._committer is None:
                self._committer = Committer(self)
            return self._committer

    def gate(self, run: int) -> RunGate:
        """Where the forwards of a run get their numbers in this process."""
        with self._lock:
            if run not in self._gates:
                self._gates[run] = RunGate(self.path / place.NUMBERS, run, self.locks)
            return self._gates[run]

    def is_alive(self, writer: int) -> bool:
        """Whether the process of a writer lives, and has it open."""
        from . import locks

        return writer in self.writers or self.locks.is_held(locks.of_writer(writer))

    def is_there(self) -> bool:
        """Whether the store still lies where it was opened."""
        return place.identity(self.path) == self.identity and (self.path / place.LOCKS).exists()

    def must_be_writable(self) -> None:
        """Raise `StoreReadOnly` where this process may not write, `DamagedStore` where what it takes is not there."""
        if not self.writable:
            missing = [str(self.path / name) for name, wrong in place.parts(self.path).items() if wrong]
            if missing:
                raise DamagedStore(
                    f"{' and '.join(missing)} is missing, which those who write share; if no process has the store "
                    "open, make it anew as an empty file"
                )
            raise StoreReadOnly(
                f"{self.path} may only be read by this process: its files or directory are not writable"
            )

    def flush(self) -> None:
        """Return when all that was said so far is committed."""
        if self._committer is not None:
            self._committer.flush()

    def finish(self) -> None:
        """End what this process has to say to the store; what fails is warned about, as nobody is left to catch it."""
        for writer in list(self.writers.values()):
            writer.end_at_exit()

    def close(self) -> None:
        """Let go of every file."""
        if self._committer is not None:
            self._committer.stop()
        self.used.write(self)
        for gate in self._gates.values():
            gate.close()
        for environment in (self.records, self._values):
            if environment is not None:
                environment.close()
        self.locks.close()

    def before_fork(self) -> None:
        """Let no transaction be open while the process is forked."""
        for environment in (self.records, self._values):
            if environment is not None:
                environment.before_fork()

    def after_fork(self) -> None:
        """Go on, in the parent."""
        for environment in (self.records, self._values):
            if environment is not None:
                environment.after_fork()

    def abandon(self) -> None:
        """Put aside, in a forked child, what belongs to its parent. Nothing is written and no lock is touched."""
        for environment in (self.records, self._values):
            if environment is not None:
                environment.after_fork()
                environment.close()
        for writer in self.writers.values():
            writer.abandon()
        self.locks.close()


_all: dict[tuple[int, int], Opened] = {}
_lock = threading.RLock()


def acquire(path: Path, *, make: bool = False) -> Opened:
    """The store at `path`, opened in this process if it is not yet; `make` creates one where there is none.

    Every call needs a `release`. Raises what `place.make`, `place.check_format` and `Environment` raise.
    """
    if make:
        place.make(path, _fill)
    with _lock:
        place.check_format(path)
        found = path.stat()
        identity = (found.st_dev, found.st_ino)
        opened = _all.get(identity)
        if opened is None:
            opened = _all[identity] = Opened(path, identity)
        opened.references += 1
        return opened


def release(opened: Opened) -> None:
    """Give back what `acquire` gave; the last one closes the store."""
    with _lock:
        opened.references -= 1
        if opened.references or opened.pid != os.getpid():
            return
        if _all.get(opened.identity) is opened:
            del _all[opened.identity]
        opened.close()


def exclusive() -> AbstractContextManager[Any]:
    """What is held while stores are opened and closed in this process; a forked child has its own."""
    return _lock


def _fill(directory: Path) -> None:
    create(directory / f"{place.RECORDS}.lmdb")
    create(directory / f"{place.VALUES}.lmdb")


def _before_fork() -> None:
    _lock.acquire()
    for opened in _all.values():
        opened.before_fork()


def _after_fork_in_parent() -> None:
    for opened in _all.values():
        opened.after_fork()
    _lock.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    inherited = list(_all.values())
    _all.clear()
    for opened in inherited:
        opened.abandon()


def _at_exit() -> None:
    for opened in list(_all.values()):
        opened.finish()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)

"""The open files of a store in one process: LMDB files, locks, writers and the committing thread.

A store is open at most once in a process, whatever the number of handles and paths, because LMDB and POSIX locks
require it. Its directory is kept open, so that it is found again after it was renamed. Handles count references. In a
forked child everything inherited is closed at once, because it belongs to the parent.
"""

from __future__ import annotations

import atexit
import os
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from somatize.errors import DamagedStore, NotWritten, SomatizeError, StoreReadOnly
from somatize.utils.interrupts import ServiceThread

from . import directory as place
from . import journal
from .lmdb_environment import Environment, create
from .locks import Locks, RunGate
from .run_summary import FINISHED, NOT_CLOSED, end_of

if TYPE_CHECKING:
    from .lmdb_environment import ReadTransaction, WriteTransaction
    from .rows import Position


_BATCH = 256
_TIME = struct.Struct("<d")


class UseTimes:
    """Times of last use of kept values that are not written yet, by the key of the name without its kind."""

    def __init__(self) -> None:
        self._times: dict[bytes, float] = {}

    def note(self, opened: Opened, key: bytes) -> None:
        """Note a use at this moment."""
        self._times[key] = time.time()
        if len(self._times) % _BATCH == 0:
            with suppress(NotWritten):  # kept until the disk has room
                self.write(opened)

    def write(self, opened: Opened) -> None:
        """Write the noted times; in a read-only store, drop them."""
        times, self._times = self._times, {}  # in one step, so no lock is needed
        if times and opened.writable:
            try:
                opened.values.write(lambda txn: _put_all(txn, times))
            except BaseException:
                self._times = {**times, **self._times}
                raise

    def noted(self) -> dict[bytes, float]:
        """The times that are not written yet."""
        return self._times.copy()


def _put_all(txn: WriteTransaction, times: dict[bytes, float]) -> None:
    for key, when in times.items():
        txn.put(b"u" + key, _TIME.pack(when))


def last_used(reading: ReadTransaction, key: bytes, default: float) -> float:
    """The written time of last use of a name, at least `default`."""
    held = reading.get(b"u" + key)
    return max(default, float(_TIME.unpack(held)[0])) if held is not None and len(held) == _TIME.size else default


T = TypeVar("T")

_PATIENCE = 0.3
"""Seconds that closing waits for readers; if they take longer, the files are closed with the next store."""


class OpenWriter(Protocol):
    """The interface of `Writer` for its store and the committing thread; see there."""

    taken: Position
    closed_in_store: bool
    exiting: bool
    end: tuple[str, str] | None

    @property
    def id(self) -> int:
        """Its id in the store."""

    @property
    def run(self) -> int:
        """The number of its run."""

    @property
    def fields(self) -> Sequence[str]:
        """The summarised fields."""

    @property
    def about(self) -> dict[str, Any]:
        """Its metadata, as stored."""

    @property
    def backlog(self) -> object:
        """Entries that the disk refused; false if there are none."""

    @property
    def closing(self) -> bool:
        """Whether nothing more is appended."""

    def is_abandoned(self) -> bool:
        """Whether its recorder is gone."""

    @property
    def has_more(self) -> bool:
        """Whether its journals hold entries that are not committed."""

    def waiting_since(self) -> float | None:
        """The time since which the oldest open forward is unwritten; None if none is open."""

    def drain(self) -> None:
        """Append the entries that the disk refused."""

    def write_open_forwards(self, after: float) -> None:
        """Write a part of each forward that has been open for so many seconds."""

    def end_of_journal(self) -> Position:
        """The position at which its journals end."""

    def read_journal(self, generation: int, start: int, most: int) -> bytes:
        """Up to `most` bytes of one of its journals."""

    def next_journal(self, generation: int) -> bool:
        """Go on to the next journal; False if there is none."""

    def close_without_errors(self) -> None:
        """Close it; errors become warnings."""

    def close_in_child(self) -> None:
        """Close its descriptors in a forked child."""


class CommitThread(Protocol):
    """The interface of `commit.Committer` for writers and its store."""

    idle: bool

    def begin(self) -> None:
        """Wake it."""

    def flush(self) -> None:
        """Commit everything said before the call."""

    def stop(self) -> None:
        """End it."""


class Opened:
    """One store, open in this process. Opened by `acquire`, which checks its format, and closed by `release`."""

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        place.warn_if_remote(path)
        self._path = path
        self.identity = identity
        self.pid = os.getpid()
        self.references = 0
        self.writable = place.is_writable(path)
        self._complete = False
        self.opening = threading.RLock()
        self.opening_held = False
        """Whether the holder of `opening` holds the store's lock on opening, too."""
        self.writers: dict[int, OpenWriter] = {}
        self.warned: set[str] = set()
        self.use_times = UseTimes()
        self._values: Environment | None = None
        self._gates: dict[int, tuple[RunGate, int]] = {}
        self.committer: CommitThread | None = None
        """The committing thread; see `commit.committer_of`."""
        self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.locks = Locks(path / place.LOCKS, writable=self.writable)
            self.records = Environment(path, place.RECORDS, writable=self.writable, follow=self.follow)
        except BaseException:
            os.close(self._directory)
            if hasattr(self, "locks"):
                self.locks.close()
            raise

    @property
    def path(self) -> Path:
        """The current path, also after the directory was renamed or moved; the last one if it is gone."""
        try:
            found = self._path.stat()
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self.identity:
            self.follow()
        return self._path

    def follow(self) -> Path | None:
        """The current path of the directory, which is noted; None if it is gone."""
        if place.identity(self._path) == self.identity:
            return self._path
        now = place.path_of(self._directory)
        if now is None or place.identity(now) != self.identity:
            return None
        return self.moved_to(now)

    def moved_to(self, path: Path) -> Path:
        """Note that the directory is now at `path`."""
        self._path = path
        for environment in (self.records, self._values):
            if environment is not None:
                environment.moved_to(path)
        return path

    @property
    def journals(self) -> Path:
        """The directory of the journals."""
        return self.path / place.JOURNALS

    @property
    def values(self) -> Environment:
        """The LMDB file of values, opened on first use."""
        return self._values or _service.run(self._open_values)

    def _open_values(self) -> Environment:
        if self._values is None:
            path = self.follow()
            if path is None:
                raise place.gone_error(self._path)
            self._values = Environment(path, place.VALUES, writable=self.writable, full_sync=False, follow=self.follow)
        return self._values

    def gate(self, run: int) -> RunGate:
        """The number gate of a run in this process, counted; `leave_gate` gives it back."""
        return _service.run(lambda: self._gate_of(run), undo=lambda _: self.leave_gate(run))

    def _gate_of(self, run: int) -> RunGate:
        if run in self._gates:
            gate, users = self._gates[run]
        else:
            gate, users = RunGate(self.path / place.NUMBERS, run, self.locks), 0
        self._gates[run] = gate, users + 1
        return gate

    def leave_gate(self, run: int) -> None:
        """Give back a gate; the last user closes it."""
        _service.run(lambda: self._leave_gate(run))

    def _leave_gate(self, run: int) -> None:
        gate, users = self._gates.pop(run)
        if users > 1:
            self._gates[run] = gate, users - 1
        else:
            gate.close()

    def is_within(self) -> bool:
        """Whether this thread is in the middle of a write, so that the caller is a signal handler.

        It must not wait for threads that wait for this one.
        """
        return any(gate.is_mine() for gate, _ in list(self._gates.values()))

    def is_alive(self, writer: int) -> bool:
        """Whether a live process has the writer open."""
        from . import locks

        return writer in self.writers or self.locks.is_held(locks.of_writer(writer))

    def is_there(self) -> bool:
        """Whether the store still exists, also elsewhere."""
        path = self.follow()
        return path is not None and (path / place.LOCKS).exists()

    def must_be_writable(self) -> None:
        """Raise `StoreReadOnly` if this process may not write, `DamagedStore` if a file needed for it is missing."""
        if not self.writable:
            wrong = place.part_faults(self.path)
            missing = [str(self.path / name) for name in (place.LOCKS, place.NUMBERS) if wrong[name]]
            if missing:
                raise DamagedStore(
                    f"{' and '.join(missing)} is missing, which those who write share; if no process has the store "
                    "open, make it anew as an empty file"
                )
            raise StoreReadOnly(
                f"{self.path} may only be read by this process: its files or directory are not writable"
            )
        if not self._complete:
            place.make_empty_directories(self.path)
            place.reserve(self.path)
            self._complete = True

    def flush(self) -> None:
        """Commit everything said so far."""
        if self.committer is not None:
            self.committer.flush()
            if any(writer.is_abandoned() for writer in list(self.writers.values())):
                self.committer.begin()  # a dropped recorder may have been interrupted before it did

    def finish(self, end: tuple[str, str] | None = None) -> None:
        """Close the writers of this process as it ends, with how it ends if that is known; errors become warnings."""
        for writer in list(self.writers.values()):
            writer.exiting = True
            writer.end = writer.end or end
            writer.close_without_errors()

    def close(self) -> bool:
        """Close every file; False, and nothing is closed, if a reader goes on."""
        if self.committer is not None:
            self.committer.stop()
        try:
            self.use_times.write(self)
        except SomatizeError:
            pass  # only times of use are lost, on a full disk
        environments = [one for one in (self.records, self._values) if one is not None]
        with ExitStack() as stack:
            if not all(stack.enter_context(one.closed_gate(_PATIENCE)) for one in environments):
                return False
            for environment in environments:
                environment.close()
        for gate, _ in self._gates.values():
            gate.close()
        self.locks.close()
        self._forget_directory()
        return True

    def _forget_directory(self) -> None:
        if self._directory >= 0:
            os.close(self._directory)
        self._directory = -1

    def before_fork(self) -> None:
        """End all transactions before a fork."""
        for environment in (self.records, self._values):
            if environment is not None:
                environment.before_fork()

    def after_fork(self) -> None:
        """Allow transactions again, in the parent."""
        for environment in (self.records, self._values):
            if environment is not None:
                environment.after_fork()

    def close_in_child(self) -> None:
        """Close what a forked child inherited. Nothing is written and no lock is released."""
        self.follow()  # handles of the child reopen it at its current path
        for environment in (self.records, self._values):
            if environment is not None:
                environment.after_fork()
                environment.close()
        for writer in self.writers.values():
            writer.close_in_child()
        self.locks.close()
        self._forget_directory()


_all: dict[tuple[int, int], Opened] = {}
_lock = threading.RLock()
"""Held while stores are opened and closed (in the thread of `_service`), and during a fork."""
_reopening_lock = threading.RLock()
_service = ServiceThread()


class _ReferenceState(weakref.ref["Reference"]):
    """The state of a `Reference` that outlives it, because an interrupt may stop its finaliser."""

    __slots__ = ("held", "opened")
    opened: Opened
    held: bool


_gone: deque[_ReferenceState] = deque()
_held: set[_ReferenceState] = set()


class Reference:
    """A counted reference to an open store, given back at the latest when it is garbage-collected."""

    __slots__ = ("__weakref__", "_state", "opened")

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._state = _ReferenceState(self, _gone.append)
        self._state.opened, self._state.held = opened, True
        _held.add(self._state)

    def give_back(self) -> None:
        """Give it back. The last one closes the store, or a later call does if it is being read. Idempotent."""
        if self._state.held and self.opened.pid == os.getpid():
            _service.run(partial(_give_back, self._state), certain=True)

    def forget(self) -> None:
        """Drop it without closing: it belongs to another process."""
        self._state.held = False

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():
            self.give_back()


def _give_back(state: _ReferenceState) -> None:
    _held.discard(state)
    if state.held and state.opened.pid == os.getpid():
        state.held = False
        _released(state.opened)


def hold(path: Path, *, make: bool = False) -> Reference:
    """A reference to the store at `path`, opened if it is not open in this process; `make` creates a missing one.

    Raises what `directory.make`, `directory.check_format` and `Environment` raise.
    """
    return _service.run(lambda: Reference(_acquired(path, make=make)))


def in_service_thread(work: Callable[[], T]) -> T:
    """Run `work` in the thread that opens and closes stores, where no signal handler interrupts it."""
    return _service.run(work, certain=True)


def acquire(path: Path, *, make: bool = False) -> Opened:
    """`hold` for callers that call `release` once for each call."""
    return _service.run(lambda: _acquired(path, make=make), undo=release)


def _acquired(path: Path, *, make: bool) -> Opened:
    with place.store_errors(path):
        if make:
            place.make(path, _fill)
        with _lock:
            place.check_format(path)
            if make:
                place.make_empty_directories(path)
            found = path.stat()
            identity = (found.st_dev, found.st_ino)
            opened = _all.get(identity)
            if opened is None:
                opened = _all[identity] = Opened(path, identity)
                _expect_end_of_child()
            elif opened.follow() is None:  # this system does not tell the path of an open directory
                opened.moved_to(path)
            opened.references += 1
            return opened


def release(opened: Opened) -> None:
    """Give back what `acquire` returned; the last call closes the store, or a later one if it is being read."""
    if opened.pid == os.getpid():
        _service.run(lambda: _released(opened), certain=True)


def _released(opened: Opened) -> None:
    with _lock:
        opened.references -= 1
        while _gone:
            state = _gone.popleft()
            _held.discard(state)
            if state.held and state.opened.pid == os.getpid():
                state.held = False
                state.opened.references -= 1
        for one in list(_all.values()):
            if not one.references and one.close() and _all.get(one.identity) is one:
                del _all[one.identity]


def reopening_lock() -> AbstractContextManager[Any]:
    """The lock under which a forked child reopens stores; each child has its own."""
    return _reopening_lock


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
    global _lock, _reopening_lock, _service
    _lock, _reopening_lock, _service = threading.RLock(), threading.RLock(), ServiceThread()
    inherited = list(_all.values())
    _all.clear()
    for opened in inherited:
        opened.close_in_child()


def _at_exit() -> None:
    for opened in list(_all.values()):
        opened.finish()


def _at_exit_of_child() -> None:
    """The end of a process of multiprocessing, which runs no atexit functions; an exception may be passing."""
    error = sys.exc_info()[1]
    end = (FINISHED, NOT_CLOSED) if error is None else end_of(error)
    for opened in list(_all.values()):
        opened.finish(end)


_expected: list[int] = []
"""The process for whose end `_at_exit_of_child` is registered."""


def _expect_end_of_child() -> None:
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None and _expected != [os.getpid()]:
        from multiprocessing.util import Finalize

        _expected[:] = [os.getpid()]
        Finalize(None, _at_exit_of_child, exitpriority=100)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)


def journal_files(opened: Opened) -> list[Path]:
    """The paths of the journals, by writer and generation."""
    directory = opened.journals
    try:
        with os.scandir(directory) as entries:
            # Files only: opening a pipe would wait for ever. `check` reports others.
            names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return []  # a copy that lost empty directories
    return [path for name in names if journal.parse_name(path := directory / name) is not None]

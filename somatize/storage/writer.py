"""One writer of one run: facts packed, numbered and appended to its journal before the call returns.

Where the disk does not take an entry it is kept in memory, up to a bound, and written when there is room again;
nothing about a disk is ever raised into a forward.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from somatize.errors import RecordLost

from . import journal, locks, packing
from .committer import read_from, take_in, warn
from .gather import Gathered
from .opened import Opened, release
from .schema import LOST, OPEN, OWN

if TYPE_CHECKING:
    from somatize.facts import Fact

ROTATE = 32 << 20
"""Bytes after which a journal is followed by the next."""
MOST_BACKLOG = 16 << 20
"""Bytes of records kept in memory while the disk does not take them."""
SPILL = 4096
"""Facts of one forward held in memory before they are written as a part."""


class Pending:
    """A forward as its writer knows it: what is not written down yet, and its number once something is."""

    __slots__ = ("entered", "facts", "number", "opened", "over", "parted")

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.entered: list[str] = []
        self.number: int | None = None
        self.opened = time.monotonic()
        self.over = False
        self.parted = False


class Writer:
    """The writing end of a run in this process. Threads may share it."""

    def __init__(self, opened: Opened, name: str, run: int, fields: Sequence[str], about: dict[str, Any]) -> None:
        """Made by `opening.open_writer`, which holds the lock on opening."""
        self.opened = opened
        self.name = name
        self.run = run
        self.fields = tuple(fields)
        self.about = about
        self.pid = os.getpid()
        self.id = secrets.randbits(60) | 1
        self.gate = opened.gate(run)
        self.committer = opened.committer
        self.packer = packing.Packer(self.fields)
        self.backlog: deque[tuple[Pending | None, int, bytes, dict[str, Any]]] = deque()
        self.dropped = 0
        self.closings = 0
        self.last_closed: Any = None
        self.retired = False
        self.taken = (0, 0)
        self._backlog_bytes = 0
        self._closed = False
        self._pending: dict[int, Pending] = {}
        self._files: dict[int, int] = {}
        self._generation = -1
        self._fd = -1
        self._size = 0
        opened.locks.take(locks.of_writer(self.id))
        opened.writers[self.id] = self

    @property
    def has_more(self) -> bool:
        """Whether something was appended that is not committed."""
        return self.taken != (self._generation, self._size)

    def start_journal(self) -> None:
        """Begin the next generation of the journal; raises OSError."""
        generation = self._generation + 1
        path = self.opened.journals / journal.file_name(self.id, generation)
        start = journal.header({**self.about, "run": self.run, "name": self.name, "fields": list(self.fields)})
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            _write_whole(fd, start, 0)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        if self._generation < 0:
            self.taken = (generation, len(start))
        self._files[generation] = fd
        self._generation, self._fd, self._size = generation, fd, len(start)

    # -- saying

    def opens(self, pending: Pending) -> None:
        """A forward begins."""
        self._pending[id(pending)] = pending
        if self.committer.idle:
            self.committer.begin()

    def ends(self, pending: Pending, state: int, took_us: int) -> None:
        """Write the record of a forward, or the rest of it."""
        with self.gate.lock:
            pending.over = True
            self._pending.pop(id(pending), None)
            facts, pending.facts, pending.entered = pending.facts, [], []
            body, nodes, summary = self.packer.pack(facts)
            kind = journal.END if pending.parted else journal.RECORD
            self._say(pending, kind, body, state=state, nodes=nodes, took_us=took_us, summary=summary)
        if self.committer.idle:
            self.committer.begin()

    def says(self, pending: Pending | None, fact: Fact) -> None:
        """Write a fact said after its forward, or one of the run's own."""
        with self.gate.lock:
            body, _, summary = self.packer.pack([fact])
            self._say(pending, journal.LATE, body, summary=summary)
        if self.committer.idle:
            self.committer.begin()

    def tells(self, about: bytes) -> None:
        """Write something about the run: a packed map."""
        with self.gate.lock:
            self._say(None, journal.ABOUT, about)
        if self.committer.idle:
            self.committer.begin()

    def forgets(self, pending: Pending) -> None:
        """A forward that never told anything leaves nothing."""
        self._pending.pop(id(pending), None)
        pending.over = True

    def write_part(self, pending: Pending, *, spilled: bool = False) -> None:
        """Write what is known of a forward that goes on; if `spilled` it leaves the forward's hands for good."""
        with self.gate.lock:
            if pending.over or (self.backlog and not spilled):
                return
            count = len(pending.facts)
            facts = pending.facts[:count]
            done = {fact.get("node") for fact in facts if fact.get("fact") in packing.COUNTED}
            known = len(pending.entered)
            pending.entered[:known] = [node for node in pending.entered[:known] if node not in done]
            body, nodes, summary = self.packer.pack(facts, inside=pending.entered)
            if (
                self._say(pending, journal.PART, body, state=OPEN, nodes=nodes, summary=summary, keep=spilled)
                or spilled
            ):
                del pending.facts[:count]
                pending.parted = True
            pending.opened = time.monotonic()

    def write_parts(self, older_than: float) -> None:
        """Write down the forwards that have gone on for so long since they were last written down."""
        now = time.monotonic()
        for pending in list(self._pending.values()):
            if now - pending.opened >= older_than:
                self.write_part(pending)

    def next_part(self) -> float | None:
        """Since when the forward waits that has waited longest to be written down."""
        try:
            return min((pending.opened for pending in list(self._pending.values())), default=None)
        except RuntimeError:  # changed in between; look again at once
            return time.monotonic()

    def _say(self, pending: Pending | None, kind: int, body: bytes, *, keep: bool = True, **head: Any) -> bool:
        if self._closed:
            raise RecordLost(f"the recorder of run {self.name!r} is closed")
        if not self.backlog:
            try:
                self._append(pending, kind, time.time_ns() // 1000, body, head)
                return True
            except OSError as error:
                self._tell_once(error)
        if keep:
            self._keep(pending, kind, body, head)
        return False

    def _append(self, pending: Pending | None, kind: int, when: int, body: bytes, head: dict[str, Any]) -> None:
        if pending is None or pending.number is not None:
            number = OWN if pending is None else pending.number
            self._write(journal.entry(kind, number, when, body, **head))  # type: ignore[arg-type]
            return
        gate = self.gate
        number = gate.take()
        try:
            self._write(journal.entry(kind, number, when, body, **head))
            pending.number = number
        except OSError:
            gate.give_back(number)
            raise
        finally:
            gate.leave()

    def _write(self, data: bytes) -> None:
        if self._size > ROTATE or self._fd < 0:
            self.start_journal()
        if os.write(self._fd, data) != len(data):
            _write_rest(self._fd, data, self._size)
        self._size += len(data)

    # -- when the disk does not take it

    def _keep(self, pending: Pending | None, kind: int, body: bytes, head: dict[str, Any]) -> None:
        size = len(body) + 400
        if self._backlog_bytes + size > MOST_BACKLOG:
            self.dropped += 1
            return
        self._backlog_bytes += size
        head["when"] = time.time_ns() // 1000
        self.backlog.append((pending, kind, body, head))

    def drain(self) -> None:
        """Write what was kept in memory, as far as there is room."""
        with self.gate.lock:
            while self.backlog:
                pending, kind, body, head = self.backlog[0]
                rest = {name: value for name, value in head.items() if name != "when"}
                try:
                    self._append(pending, kind, head["when"], body, rest)
                except OSError:
                    return
                self.backlog.popleft()
                self._backlog_bytes -= len(body) + 400
                if not self.backlog:
                    self.opened.told.discard("journal")

    def _tell_once(self, error: OSError) -> None:
        if "journal" not in self.opened.told:
            self.opened.told.add("journal")
            warn(
                f"the records of run {self.name!r} cannot be written to {self.opened.path} "
                f"({error.strerror or error}); "
                f"up to {MOST_BACKLOG >> 20} MB of them are kept in memory and written when there is room"
            )

    # -- being taken in

    def read_journal(self, generation: int, start: int, most: int) -> bytes:
        """A slice of what was appended."""
        fd = self._files.get(generation, -1)
        return read_from(fd, start, most) if fd >= 0 else b""

    def next_journal(self, generation: int) -> bool:
        """A journal was taken in to its end; if it is not the last one, go on to the next."""
        with self.gate.lock:
            if generation >= self._generation or generation < 0:
                return False
            self._drop_file(generation)
            following = generation + 1
            found = journal.read_header(os.pread(self._files[following], 1 << 16, 0))
            self.taken = (following, found[1] if found is not None else 0)
            return True

    def _drop_file(self, generation: int) -> None:
        os.close(self._files.pop(generation))
        (self.opened.journals / journal.file_name(self.id, generation)).unlink(missing_ok=True)

    # -- ending

    def retire(self) -> None:
        """Nobody can say anything more: the committing thread closes it. Waits for nothing."""
        self.retired = True
        self.committer.begin()

    def close(self) -> None:
        """Return when all is committed. Raises `RecordLost` if something could not be written down."""
        with self.gate.lock:
            if self._closed:
                return
            self.drain()
            for pending in list(self._pending.values()):
                self._left_open(pending)
            self._closed = True
        problem: OSError | None = None
        try:
            self.committer.flush()
            self._end()
        except OSError as error:
            problem = error
        finally:
            self._let_go()
        self._judge(problem)

    def _left_open(self, pending: Pending) -> None:
        self.write_part(pending)
        pending.over = True
        if pending.number is not None and not self.backlog:
            self._say(pending, journal.END, b"", state=LOST, keep=False)

    def _end(self) -> None:
        """Say in the store that this writer is through, then take its journal away."""
        if not self.opened.is_there():
            return
        gathered = Gathered(self.id, self.fields)
        self.opened.records.write(lambda txn: take_in(txn, self.run, gathered, self.taken, self.about, closed=True))
        for generation in list(self._files):
            self._drop_file(generation)

    def _let_go(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        self.opened.writers.pop(self.id, None)
        self.opened.locks.release(locks.of_writer(self.id))
        release(self.opened)

    def _judge(self, problem: OSError | None) -> None:
        lost = self.dropped + len(self.backlog)
        if lost:
            raise RecordLost(
                f"{lost} entries of run {self.name!r} could not be written to {self.opened.path}; they are lost"
            )
        if problem is not None:
            warn(
                f"{self.opened.path} could not be brought up to date ({problem.strerror or problem}); nothing is lost: "
                f"the records of run {self.name!r} are in a journal, and are taken in by the next to write to the store"
            )

    def end_at_exit(self) -> None:
        """Close, where nobody is left to catch an error."""
        try:
            self.close()
        except Exception as error:
            warn(str(error))

    def abandon(self) -> None:
        """In a forked child: this writer is the parent's. Its descriptors are closed, its files left alone."""
        self._closed = True
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        self._fd = -1


def _write_whole(fd: int, data: bytes, at: int) -> None:
    if os.write(fd, data) != len(data):
        _write_rest(fd, data, at)


def _write_rest(fd: int, data: bytes, at: int) -> None:
    """Finish a write that stopped half way, or leave the file as it was before it and raise OSError."""
    try:
        done = os.fstat(fd).st_size - at
        while done < len(data):
            done += os.write(fd, data[done:])
    except OSError:
        os.ftruncate(fd, at)
        raise

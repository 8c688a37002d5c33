"""One writer of one run: facts packed, numbered and appended to its journal before the call returns.

Where the disk does not take an entry it is kept in memory, up to a bound, and written when there is room again;
nothing about a disk is ever raised into a forward.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from os import write
from time import time_ns
from typing import TYPE_CHECKING, Any

from somatize.errors import RecorderClosed, RecordLost

from . import journal, locks, packing
from .backlog import MOST_BYTES, Backlog
from .batch import Batch, Position
from .committer import read_from, take_in
from .gather import Gathered
from .journal import ABOUT, END, LATE, NO_TIME, PART, RECORD, entry
from .notices import warn
from .opened import Opened, release
from .pending import Pending, Said, write_whole
from .schema import LOST, OPEN, OWN

if TYPE_CHECKING:
    from somatize.facts import Fact

ROTATE = 32 << 20
"""Bytes after which a journal is followed by the next."""


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
        self.backlog = Backlog()
        self.closings = 0
        self.last_closed: Any = None
        self.retired = False
        self.closing = False
        """Whether nothing more can be said, so that the next commit is its last."""
        self.closed_in_store = False
        self.taken: Position = (0, 0)
        self.batch = Batch(self.taken)
        self._closed = False
        self.pending: dict[int, Pending] = {}
        """The forwards that go on, by identity."""
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

    @property
    def position(self) -> tuple[int, int]:
        """Up to where the journal was appended to: its generation, and bytes of that."""
        return self._generation, self._size

    def start_journal(self) -> None:
        """Begin the next generation of the journal; raises OSError."""
        generation = self._generation + 1
        path = self.opened.journals / journal.file_name(self.id, generation)
        start = journal.header({**self.about, "run": self.run, "name": self.name, "fields": list(self.fields)})
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write_whole(fd, start, 0)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        if self._generation < 0:
            self.taken = (generation, len(start))
            self.batch = Batch(self.taken)
        else:
            self.batch.give_up()
        self._files[generation] = fd
        self._generation, self._fd, self._size = generation, fd, len(start)

    # -- saying

    # `ends` and `says` are what a recorded forward costs; they are written out, where calls would read better.

    def ends(self, pending: Pending, state: int, took_us: int) -> None:
        """Write the record of a forward, or the rest of it."""
        gate = self.gate
        with gate.lock:
            pending.over = True
            self.pending.pop(id(pending), None)
            body, nodes, texts = self.packer.pack(pending.facts)
            summary = b"" if texts is None else self.packer.summary(texts)
            said = (state, nodes, took_us, summary, body)
            if pending.parted or self.backlog or self._closed:
                self._say(pending, END if pending.parted else RECORD, said)
            else:
                when = time_ns() // 1000
                number = gate.take()
                try:
                    data = entry(RECORD, number, when, said)
                    if self._size > ROTATE or write(self._fd, data) != len(data):
                        self._write_with_care(data)
                    else:
                        self._size += len(data)
                    pending.number = number
                    pending.batch = self.batch
                    pending.line = line = [number, state, nodes, took_us, when, texts, body]
                    self.batch.add(line, self._size)
                except OSError as error:
                    gate.give_back(number)
                    self._refused(error, pending, RECORD, said)
                finally:
                    gate.leave()
            pending.facts.clear()
        if self.committer.idle:
            self.committer.begin()

    def says(self, pending: Pending, fact: Fact) -> None:
        """Write a fact said after its forward."""
        with self.gate.lock:
            body, texts = self.packer.pack_one(fact)
            summary = b"" if texts is None else self.packer.summary(texts)
            said = (0, 0, NO_TIME, summary, body)
            batch, number = self.batch, pending.number
            if number is None or self.backlog or self._closed:
                self._say(pending, LATE, said)
            else:
                when, at = time_ns() // 1000, self._size
                try:
                    data = entry(LATE, number, when, said)
                    if at > ROTATE or write(self._fd, data) != len(data):
                        self._write_with_care(data)
                    else:
                        self._size += len(data)
                    if pending.batch is batch:
                        batch.add_late(pending.line, texts, body)
                    else:
                        batch.add_old((number, self._generation << 40 | at, when, body, summary), self._size)
                except OSError as error:
                    self._refused(error, pending, LATE, said)
        if self.committer.idle:
            self.committer.begin()

    def says_of_run(self, fact: Fact) -> None:
        """Write one of the run's own facts."""
        with self.gate.lock:
            body, _ = self.packer.pack_one(fact)
            self._say(None, LATE, (0, 0, NO_TIME, b"", body))
        if self.committer.idle:
            self.committer.begin()

    def tells(self, about: bytes) -> None:
        """Write something about the run: a packed map."""
        with self.gate.lock:
            self._say(None, ABOUT, (0, 0, NO_TIME, b"", about))
        if self.committer.idle:
            self.committer.begin()

    def next_batch(self) -> Batch:
        """What was written since the last call; what follows goes to a new one."""
        with self.gate.lock:
            batch, self.batch = self.batch, Batch(self.position)
            batch.end = self.position
            return batch

    def forgets(self, pending: Pending) -> None:
        """A forward that never told anything leaves nothing."""
        self.pending.pop(id(pending), None)
        pending.over = True

    def write_part(self, pending: Pending, *, spilled: bool = False) -> None:
        """Write what is known of a forward that goes on; if `spilled` it leaves the forward's hands for good."""
        with self.gate.lock:
            if pending.over or (self.backlog and not spilled):
                return
            count, inside = len(pending.facts), len(pending.entered)
            if pending.parted and not count and inside == pending.told_inside:
                pending.since = time.monotonic()
                return
            facts = pending.facts[:count]
            done = {fact.get("node") for fact in facts if fact.get("fact") in packing.COUNTED}
            known = len(pending.entered)
            pending.entered[:known] = [node for node in pending.entered[:known] if node not in done]
            body, nodes, texts = self.packer.pack(facts)
            summary = self.packer.summary(texts, inside=pending.entered)
            state = 0 if pending.parted else OPEN  # said with its first part only
            if self._say(pending, PART, (state, nodes, NO_TIME, summary, body), keep=spilled) or spilled:
                del pending.facts[:count]
                pending.parted = True
                pending.told_inside = len(pending.entered)
            pending.since = time.monotonic()

    def write_parts(self, older_than: float) -> None:
        """Write down the forwards that have gone on for so long since they were last written down."""
        now = time.monotonic()
        for pending in list(self.pending.values()):
            if now - pending.since >= older_than:
                self.write_part(pending)

    def next_part(self) -> float | None:
        """Since when the forward waits that has waited longest to be written down."""
        try:
            return min((pending.since for pending in list(self.pending.values())), default=None)
        except RuntimeError:  # changed in between; look again at once
            return time.monotonic()

    def _say(self, pending: Pending | None, kind: int, said: Said, keep: bool = True) -> bool:
        """Append an entry, or keep it in memory; True if it is in the journal. Call it with the lock held."""
        if self._closed:
            raise RecorderClosed(f"the recorder of run {self.name!r} is closed; nothing more can be said to it")
        self.batch.give_up()
        if not self.backlog:
            try:
                self._append(pending, kind, time_ns() // 1000, said)
                return True
            except OSError as error:
                self._tell_once(error)
        if keep:
            self.backlog.add(pending, kind, time_ns() // 1000, said)
        return False

    def _refused(self, error: OSError, pending: Pending, kind: int, said: Said) -> None:
        self.batch.give_up()
        self._tell_once(error)
        self.backlog.add(pending, kind, time_ns() // 1000, said)

    def _append(self, pending: Pending | None, kind: int, when: int, said: Said) -> None:
        known = OWN if pending is None else pending.number
        if known is not None:
            self._write_with_care(entry(kind, known, when, said))
            return
        gate = self.gate
        number = gate.take()
        try:
            self._write_with_care(entry(kind, number, when, said))
            pending.number = number  # type: ignore[union-attr]
        except OSError:
            gate.give_back(number)
            raise
        finally:
            gate.leave()

    def _write_with_care(self, data: bytes) -> None:
        """Append `data` whole, in a new journal if the old one is full; else raise OSError, with nothing appended."""
        if self._fd >= 0 and os.fstat(self._fd).st_size > self._size:
            self.batch.give_up()  # a write that stopped half way, made good below
            os.ftruncate(self._fd, self._size)
        if self._size > ROTATE or self._fd < 0:
            self.start_journal()
        write_whole(self._fd, data, self._size)
        self._size += len(data)

    # -- when the disk does not take it

    def drain(self) -> None:
        """Write what was kept in memory, as far as there is room."""
        with self.gate.lock:
            if self.backlog:
                self.batch.give_up()
                self.backlog.drain(self._append)
                if not self.backlog:
                    self.opened.told.discard("journal")

    def _tell_once(self, error: OSError) -> None:
        if "journal" not in self.opened.told:
            self.opened.told.add("journal")
            warn(
                f"the records of run {self.name!r} cannot be written to {self.opened.path} "
                f"({error.strerror or error}); "
                f"up to {MOST_BYTES >> 20} MB of them are kept in memory and written when there is room"
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
            for pending in list(self.pending.values()):
                self._left_open(pending)
            self._closed = self.closing = True
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
            self._say(pending, END, (LOST, 0, NO_TIME, b"", b""), keep=False)

    def _end(self) -> None:
        """Say in the store that this writer is through, then take its journal away."""
        if not self.opened.is_there():
            return
        if not self.closed_in_store:
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
        if not self.opened.is_there():
            raise RecordLost(f"{self.opened.path} is gone, and with it what was recorded to run {self.name!r}")
        lost = self.backlog.dropped + len(self.backlog)
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

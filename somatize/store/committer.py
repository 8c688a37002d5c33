"""The thread that takes journals into the store: every quarter of a second, all writers of this process at once.

It reads what was appended back from the journal's file and copies it in blocks. So it holds a bounded amount of
memory at any rate, a slow disk makes no writer wait, and what happens after a crash is what happens every time.
"""

from __future__ import annotations

import _thread
import errno
import os
import time
from typing import TYPE_CHECKING

from somatize.utils.interrupts import Wakeup, start
from somatize.utils.notices_part import warn

from . import journal, schema, speedups
from .absorb import absorb, end_open
from .batch import Batch, Position
from .environment import Writing
from .gather import Gathered

if TYPE_CHECKING:
    from .opened import Opened
    from .writer import Writer

EVERY = 0.25
"""Seconds between commits, and after which a forward that still goes on is written down."""
_SLICE = (2 if speedups.MODULE is None else 8) << 20
_SWEEP_EVERY = 10.0
_TURN = 0.0002
_AFTER_FAILURE = 1.0


class Committer:
    """Commits for one store in this process."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._wake = Wakeup()
        self._stopped = False
        self._living = _thread.allocate_lock()  # taken by the thread as long as it lives
        self._thread = 0
        self._ends_writer = False
        """Whether the thread ends a writer. As the last one it closes the store, which must not wait for the thread."""
        self._last = 0.0
        self._swept = time.monotonic()
        self._not_before = 0.0
        self.idle = True
        """Whether the thread sleeps until it is told that there is something to do."""

    def begin(self) -> None:
        """Tell the thread that there is something to do. Call it only if it is `idle`: that is checked cheaply."""
        self.idle = False
        self._last = time.monotonic()  # so that what follows in the next moments is committed with it
        if not self._living.locked():
            start(self._run)
        self._wake.set()

    def flush(self) -> None:
        """Write down and commit all that was said before the call.

        Not where a handler of a signal came in the middle of what its thread writes: that stays in the journal.
        """
        self._parts(everything=True)
        if not self._opened.is_within():
            self._opened.records.served(lambda: self._commit(patient=False))

    def stop(self, patience: float = 5.0) -> None:
        """End the thread. What is not committed stays in the journals."""
        self._stopped = True
        self._wake.set()
        if self._ends_writer or self._thread == _thread.get_ident():
            return
        if self._living.acquire(timeout=patience):
            self._living.release()

    def _run(self) -> None:
        if not self._living.acquire(blocking=False):
            return
        self._thread = _thread.get_ident()
        try:
            while not self._stopped:
                pause = self._until_due()
                if pause is None:
                    self._sleep()
                    continue
                self._wake.wait(pause)
                if not self._stopped:
                    self._turn()
        finally:
            self._thread = 0
            self._living.release()

    def _sleep(self) -> None:
        self.idle = True
        # Looked at again after `idle` was set: whoever appended just before saw it still unset.
        if self._until_due() is None and not self._stopped:
            self._wake.wait()
        self.idle = False

    def _until_due(self) -> float | None:
        """Seconds until there is something to do; None if there is nothing."""
        now = time.monotonic()
        due: list[float] = []
        for writer in list(self._opened.writers.values()):
            if writer.has_more or writer.backlog or writer.is_left():
                due.append(max(self._last + EVERY, self._not_before))
            opened = writer.next_part()
            if opened is not None:
                due.append(opened + EVERY)
        return max(0.0, min(due) - now) if due else None

    def _turn(self) -> None:
        try:
            self._parts(everything=False)
            now = time.monotonic()
            if now >= max(self._last + EVERY, self._not_before):
                self._opened.records.served(lambda: self._commit(patient=True))
                for writer in list(self._opened.writers.values()):
                    if writer.is_left() and not writer.backlog:
                        self._end(writer)
            if now - self._swept > _SWEEP_EVERY and not self._stopped:
                self._swept = now
                self._opened.records.sweep()
        except OSError as error:
            self._not_before = time.monotonic() + _AFTER_FAILURE
            self._tell_once(f"{error.strerror or error}; the records stay in the journal, and it is tried again")
        except Exception as error:  # damage, above all; this thread must live to try again
            self._not_before = time.monotonic() + _AFTER_FAILURE
            self._tell_once(f"{error}; the records stay in the journal: see Store.check()")

    def _end(self, writer: Writer) -> None:
        self._ends_writer = True
        try:
            writer.end_at_exit()
        finally:
            self._ends_writer = False

    def _tell_once(self, sentence: str) -> None:
        if "commit" not in self._opened.told:
            self._opened.told.add("commit")
            warn(f"{self._opened.path} could not be written: {sentence}")

    def _parts(self, *, everything: bool) -> None:
        for writer in list(self._opened.writers.values()):
            writer.drain()
            writer.write_parts(0.0 if everything else EVERY)

    def _commit(self, *, patient: bool) -> None:
        self._last = time.monotonic()
        if self._opened.writers and not self._opened.is_there():
            raise FileNotFoundError(errno.ENOENT, "the store's directory is gone")
        for writer in list(self._opened.writers.values()):
            batch = writer.next_batch()
            if batch.whole and batch.start == writer.taken:
                self._store_batch(writer, batch)
            else:
                self._read_back(writer, batch.end, patient)
        self._opened.told.discard("commit")

    def _store_batch(self, writer: Writer, batch: Batch) -> None:
        if batch.end == writer.taken and not writer.closing:
            return
        gathered = Gathered(writer.id, writer.fields)
        gathered.take_batch(batch)
        self._store(writer, gathered, batch.end, closed=writer.closing)

    def _read_back(self, writer: Writer, until: Position, patient: bool) -> None:
        """Commit a writer's journal as far as it has come now; what is appended meanwhile waits for the next time."""
        while writer.taken < until:
            generation, start = writer.taken
            buffer = writer.read_journal(generation, start, _SLICE)
            if generation == until[0]:
                # What lies beyond may be half written: a torn entry before a whole one would pass for damage.
                buffer = buffer[: until[1] - start]
            gathered = Gathered(writer.id, writer.fields, generation)
            gathered.take_to_store(buffer, start, _give_turn if patient else None)
            if gathered.read_to:
                taken = (generation, gathered.read_to)
                self._store(writer, gathered, taken, closed=writer.closing and taken == until)
            elif not writer.next_journal(generation):
                return

    def _store(self, writer: Writer, gathered: Gathered, taken: Position, *, closed: bool = False) -> None:
        run, about = writer.run, writer.about
        self._opened.records.write(lambda txn: take_in(txn, run, gathered, taken, about, closed=closed))
        writer.taken, writer.closed_in_store = taken, closed


def take_in(
    txn: Writing,
    run: int,
    gathered: Gathered,
    taken: tuple[int, int],
    about: dict[str, object],
    *,
    closed: bool = False,
) -> None:
    """Store a stretch of a journal and, in the same transaction, that it was."""
    absorb(txn, run, gathered)
    if closed:
        end_open(txn, run, gathered.writer, gathered.fields)
    if txn.get(schema.run_key(run)) is not None:
        key = schema.writer_key(gathered.writer)
        txn.put(key, schema.pack_writer(key, schema.WriterInfo(run, *taken, closed, about)))
        txn.put(schema.run_writer_key(b"v", run, gathered.writer), b"")


def _give_turn() -> None:
    """Give the other threads a turn, so that none waits long for what this one is at."""
    time.sleep(_TURN)


def read_from(fd: int, start: int, most: int) -> bytes:
    """At most `most` bytes of a journal from `start`, and at least one whole entry if one is there."""
    buffer = os.pread(fd, most, start)
    if len(buffer) < most:
        return buffer
    while journal.entry_at(buffer, 0) is None and journal.next_whole(buffer, 0) < 0:
        longer = os.pread(fd, 2 * len(buffer), start)
        if len(longer) == len(buffer):
            break
        buffer = longer
    return buffer

"""One writer of one run: facts packed, numbered and appended to its journal before the call returns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from sys import getrefcount
from time import monotonic
from typing import TYPE_CHECKING, Any

from somatize.errors import RecordLost
from somatize.utils.notices import warn_of_record

from . import locks, record_format
from .appender import Appender, ForwardPart, Pending, is_end
from .commit import commit_rows, committer_of
from .journal import ABOUT, END, LATE, NO_TIME, PART, RECORD
from .open_store import Reference, in_service_thread
from .record_format import LOST, OPEN
from .rows import JournalRows
from .run_summary import FAILED, FINISHED, NOT_CLOSED, end_of_process, pack_end

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from somatize.facts import Fact

    from .console import Console


_UNKNOWN = 4
"""The reference count that a forward has in `write_open_forwards` if nothing outside of the writer refers to it."""


class Writer(Appender):
    """Writes one run from this process. Threads may share it."""

    def __init__(self, reference: Reference, name: str, run: int, fields: Sequence[str], about: dict[str, Any]) -> None:
        """Made by `recovery.open_writer`, which holds the lock on opening."""
        opened = reference.opened
        super().__init__(opened, name, run, fields, about)
        self.reference = reference
        self.pid = os.getpid()
        self.shut = False
        """Whether it is closed, or belongs to the parent of this forked process."""
        self.committer = committer_of(opened)
        self.recorder: Callable[[], Any] = _nobody
        """Returns the recorder that uses it; None if that was dropped."""
        self.retired = False
        self.closing = False
        """Whether nothing more is appended, so that the next commit is its last."""
        self.closed_in_store = False
        self.end: tuple[str, str] | None = None
        """How it ended and why, if that was said before it is closed."""
        self.console: Console | None = None
        """The recorded output of the process, if it is recorded to this run."""
        self.current: Pending | None = None
        """The forward whose record is being written."""
        self._finished = False
        """Whether it has ended, or its end has begun."""
        self._given_back = False
        """Whether its files and locks were given back."""
        self.pending: set[Pending] = set()
        """The open forwards."""
        opened.locks.take(locks.of_writer(self.id))
        opened.writers[self.id] = self

    # `open_forward`, `end_forward` and `add_fact` are what recording a forward costs: they are written out where calls
    # would read better. In C, `write_ordinary_record` and `write_ordinary_fact` do all of it for ordinary forwards.

    def write_ordinary_record(self, pending: Pending) -> bool:
        """Write the record of an ordinary forward in C; False, and nothing is done, if it is not ordinary."""
        if self.gate.busy or not self.pen.record(pending, pending.facts, self.pending):
            return False
        if self.committer.idle:
            self.committer.begin()
        return True

    def write_ordinary_fact(self, pending: Pending, given: Mapping[str, Any]) -> bool:
        """Write an ordinary fact said after its forward in C; False, and nothing is done, if it is not ordinary."""
        if self.gate.busy or not self.pen.late(pending.number, given):
            return False
        if self.committer.idle:
            self.committer.begin()
        return True

    def open_forward(self, pending: Pending) -> None:
        """Register a forward that begins. Nothing is written."""
        pending.writer = self
        facts: list[Fact] = []
        pending.facts = facts
        pending.tell = facts.append
        pending.since = monotonic()
        self.pending.add(pending)
        if self.committer.idle:
            self.committer.begin()

    def end_forward(self, pending: Pending, state: int, took_us: int) -> None:
        """Write the record of a forward, or the rest of it."""
        self.gate.alone(partial(self._end_forward, pending, state, took_us))
        if self.committer.idle:
            self.committer.begin()

    def _end_forward(self, pending: Pending, state: int, took_us: int) -> None:
        if pending.over:
            if self._closed:
                raise self._refusal(pending)
            return
        self.current = pending
        body, nodes, texts = self.packer.pack(pending.facts)
        said = (state, nodes, took_us, self.packer.summary(texts), body)
        try:
            self._write_entry(pending, END if pending.parted else RECORD, said, written=pending.mark_over)
            pending.over = True  # also if the entry is kept in memory
        finally:
            self.current = None
            if pending.over:
                self.pending.discard(pending)
        pending.facts.clear()

    def import_forward(self, pending: Pending, state: int, took_us: int, when: int) -> None:
        """Write the record of a forward that ended elsewhere, at `when` in µs since 1970, with the next number.

        Unlike what a running forward says, nothing is kept in memory for it: raises OSError where the disk does not
        take it.
        """
        self.gate.alone(partial(self._import_forward, pending, state, took_us, when))
        if self.committer.idle:
            self.committer.begin()

    def _import_forward(self, pending: Pending, state: int, took_us: int, when: int) -> None:
        pending.over = True
        self.pending.discard(pending)
        body, nodes, texts = self.packer.pack(pending.facts)
        self._append(pending, RECORD, when, (state, nodes, took_us, self.packer.summary(texts), body))
        pending.facts.clear()

    def add_fact(self, pending: Pending, fact: Fact, given: Mapping[str, Any]) -> None:
        """Write a fact said after its forward; `given` is what the fact was made of."""
        self.gate.alone(partial(self._add_fact, pending, fact, given))
        if self.committer.idle:
            self.committer.begin()

    def _add_fact(self, pending: Pending, fact: Fact, given: Mapping[str, Any]) -> None:
        body, summary, _ = self.packer.pack_one(fact, given)
        self._write_entry(pending, LATE, (0, 0, NO_TIME, summary, body))

    def add_run_fact(self, fact: Fact) -> None:
        """Write a fact of the run as a whole."""
        self.gate.alone(partial(self._add_run_fact, fact))
        if self.committer.idle:
            self.committer.begin()

    def _add_run_fact(self, fact: Fact) -> None:
        body, _, _ = self.packer.pack_one(fact, fact)
        self._write_entry(None, LATE, (0, 0, NO_TIME, b"", body))

    def add_open_fact(self, pending: Pending, fact: Fact) -> None:
        """Write a fact of an open forward to the journal at once, with those before it."""
        self.gate.alone(partial(self._add_open_fact, pending, fact))
        if self.committer.idle:
            self.committer.begin()

    def _add_open_fact(self, pending: Pending, fact: Fact) -> None:
        if pending.over:  # it ended meanwhile, in another thread
            self._add_fact(pending, fact, fact)
            return
        pending.facts.append(fact)
        self._write_part(pending, spilled=True)

    def add_run_info(self, about: bytes) -> None:
        """Write metadata of the run: a packed map, merged with what is there."""
        self.gate.alone(partial(self._add_run_info, about))
        if self.committer.idle:
            self.committer.begin()

    def _add_run_info(self, about: bytes) -> None:
        self._write_entry(None, ABOUT, (0, 0, NO_TIME, b"", about))

    def add_end(self, state: str, why: str) -> None:
        """Write how the writer ends; a later word counts."""
        self.end = state, why
        self.add_run_info(pack_end(state, why))

    # -- open forwards

    def drop_forward(self, pending: Pending) -> None:
        """Unregister a forward of which nothing is to be recorded, as it was interrupted before its first fact."""
        self.pending.discard(pending)
        pending.forgotten = not pending.over  # one that is over was written
        pending.over = True

    def _write_part(self, pending: Pending, *, spilled: bool = False) -> None:
        """Write the facts of an open forward so far; if `spilled`, keep them in memory where the disk refuses."""
        if pending.over or (self.backlog and not spilled):
            return
        inside = pending.inside()  # before its facts are looked at: what is done by then is no longer in
        facts = pending.facts.copy()
        if pending.parted and not facts and pending.with_progress(inside) == pending.written_inside:
            pending.since = monotonic()
            return
        left = pending.without(
            inside, {fact.get("node") for fact in facts if fact.get("fact") in record_format.COUNTED}
        )
        shown = pending.with_progress(left)
        body, nodes, texts = self.packer.pack(facts)
        summary = self.packer.summary(texts, inside=shown)
        state = 0 if pending.parted else OPEN  # said with its first part only
        part = ForwardPart(pending, len(facts), shown, next(filter(is_end, facts), pending.ended))
        self._write_entry(
            pending, PART, (state, nodes, NO_TIME, summary, body), keep=spilled, written=part.mark_written
        )
        if spilled:
            part.mark_written()
        pending.since = monotonic()

    def write_open_forwards(self, older_than: float) -> None:
        """Write a part of each forward that has been open, since its last part, for so many seconds."""
        now = monotonic()
        for pending in list(self.pending):
            if now - pending.since >= older_than:
                if pending.over:
                    self.pending.discard(pending)  # an interrupt came once it was written
                elif not pending.has_begun() and getrefcount(pending) == _UNKNOWN:
                    self.drop_forward(pending)  # one came before its forward knew of it
                else:
                    self.gate.alone(partial(self._write_part, pending))

    def waiting_since(self) -> float | None:
        """When the part was written, or the forward opened, that is the oldest of the open forwards."""
        try:
            return min((pending.since for pending in list(self.pending)), default=None)
        except RuntimeError:  # changed in between; look again at once
            return monotonic()

    # -- ending

    def is_abandoned(self) -> bool:
        """Whether its recorder is gone. An interrupt may have prevented `close_later`."""
        return self.retired or (self.recorder is not _nobody and self.recorder() is None)

    def close_later(self) -> None:
        """Have the committing thread close it. Returns at once."""
        if not self._finished:
            self.retired = True
            self.committer.begin()

    def close(self) -> None:
        """Close it, and return when everything is committed. Raises `RecordLost` if something could not be written.

        If a signal handler calls it in the middle of a write of its own thread, it returns once everything is in the
        journal; the committing thread, or the next process, commits it.
        """
        if self._closed:
            return
        self._close_console()
        if self.gate.is_mine():
            self._catch_up()
            self._shut()
        else:
            self.gate.alone(self._shut)
        if self.opened.is_within():
            self.close_later()
        else:
            self._finish()

    def _close_console(self) -> None:
        """End recording the output; its last lines stand in the reason why a writer failed."""
        console, self.console = self.console, None
        if console is not None:
            from .console import with_output

            lines = console.close()
            state, why = self._ending()
            self.end = state, with_output(why, lines) if state == FAILED else why

    def _ending(self) -> tuple[str, str]:
        return self.end or (end_of_process() if self.exiting else (FINISHED, NOT_CLOSED))

    def _catch_up(self) -> None:
        """Finish the interrupted write of this thread, then make the postponed ones."""
        if self.pen.fd >= 0:
            self.pen.size = max(self.pen.size, os.fstat(self.pen.fd).st_size)
        after, self.gate.after = self.gate.after, []
        for work in after:
            work()

    def _shut(self) -> None:
        if self._closed:
            return
        self._drain()
        for pending in list(self.pending):
            if pending is not self.current:  # else this came in the middle of writing it, and it will be written
                self._end_as_lost(pending)
        state, why = self._ending()
        self._write_entry(None, ABOUT, (0, 0, NO_TIME, b"", pack_end(state, why)), keep=False)
        self.shut = self._closed = self.closing = True
        self.pen.close()

    def _finish(self) -> None:
        if self._finished:
            return
        try:
            self._finished = True
            problem = self._end()
            in_service_thread(self._release)  # whole, whenever an interrupt comes
        except BaseException:  # an interrupt: it is for the committing thread, or the end of the process
            if not self._given_back:
                self._finished = False
                self.close_later()
            raise
        self._report_losses(problem)

    def _end_as_lost(self, pending: Pending) -> None:
        if pending.over:
            return
        if not pending.has_begun():
            self.drop_forward(pending)  # a Ctrl-C came before it began
            return
        self._write_part(pending)
        pending.over = True
        if pending.number is not None and not self.backlog:
            self._write_entry(pending, END, (LOST, 0, NO_TIME, b"", b""), keep=False)

    def _end(self) -> OSError | None:
        """Note the end of this writer in the store, then remove its journals; returns the error of the disk, if any."""
        try:
            self.committer.flush()
            if not self.opened.is_there():
                return None
            if not self.closed_in_store:
                gathered = JournalRows(self.id, self.fields)
                self.opened.records.write(
                    lambda txn: commit_rows(txn, self.run, gathered, self.taken, self.about, closed=True)
                )
            for generation in list(self._files):
                self._drop_file(generation)
        except OSError as error:
            return error
        return None

    def _release(self) -> None:
        if self._given_back:
            return
        self._given_back = True
        self.pen.close()
        for file in self._files.values():
            file.close()
        self._files.clear()
        self.opened.writers.pop(self.id, None)
        self.opened.locks.release(locks.of_writer(self.id))
        self.opened.leave_gate(self.run)
        self.reference.give_back()

    def discard(self) -> None:
        """Give up a writer that could not be opened. If it has a journal already, the committing thread closes it."""
        if self._files:
            self.close_later()
        else:
            self.shut = self._closed = self._finished = True
            in_service_thread(self._release)

    def _report_losses(self, problem: OSError | None) -> None:
        if not self.opened.is_there():
            raise RecordLost(f"{self.opened.path} is gone, and with it what was recorded to run {self.name!r}")
        lost = self.backlog.dropped + len(self.backlog)
        if lost:
            raise RecordLost(
                f"{lost} entries of run {self.name!r} could not be written to {self.opened.path}; they are lost"
            )
        if problem is not None:
            warn_of_record(
                f"{self.opened.path} could not be brought up to date ({problem.strerror or problem}); nothing is lost: "
                f"the records of run {self.name!r} are in a journal, and are taken in by the next to write to the store"
            )

    def close_without_errors(self) -> None:
        """Close it; errors become warnings, since no caller is left."""
        try:
            self._close_console()
            self.gate.alone(self._shut)
            self._finish()
        except Exception as error:
            warn_of_record(str(error))

    def close_in_child(self) -> None:
        """In a forked child: close the descriptors, and leave the files to the parent."""
        self.shut = self._closed = True
        self.pen.close()
        for file in self._files.values():
            file.close()
        self._files.clear()
        self.pen.fd = -1


def _nobody() -> None:
    """The default of `Writer.recorder`."""

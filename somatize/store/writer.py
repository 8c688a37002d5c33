"""One writer of one run: facts packed, numbered and appended to its journal before the call returns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from os import write
from sys import getrefcount
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any
from zlib import crc32

from somatize.errors import RecordLost
from somatize.utils.notices import warn_of_record

from . import locks, record_format
from .appender import ROTATE, Appender, ForwardPart, Pending, ends
from .commit import committer_of, take_in
from .journal import ABOUT, END, LATE, NO_TIME, PART, RECORD, pack_rest, pack_start
from .locks import BUSY, SEVERAL
from .open_store import Reference, served
from .record_format import LOST, OPEN
from .rows import JournalRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from somatize.facts import Fact


_UNKNOWN = 4
"""The references that `write_parts` sees to a forward nobody else knows of: of two collections, its own, the call's."""


class Writer(Appender):
    """The writing end of a run in this process. Threads may share it."""

    def __init__(self, reference: Reference, name: str, run: int, fields: Sequence[str], about: dict[str, Any]) -> None:
        """Made by `recovery.open_writer`, which holds the lock on opening."""
        opened = reference.opened
        super().__init__(opened, name, run, fields, about)
        self.reference = reference
        self.pid = os.getpid()
        self.shut = False
        """Whether it is closed, or belongs to the process that this one was forked from."""
        self.committer = committer_of(opened)
        self.recorder: Callable[[], Any] = _nobody
        """Gives what records by it, or None where that is gone."""
        self.retired = False
        self.closing = False
        """Whether nothing more can be said, so that the next commit is its last."""
        self.closed_in_store = False
        self.current: Pending | None = None
        """The forward whose record is written just now."""
        self._finished = False
        """Whether it is ended, or is about to be."""
        self._given_back = False
        """Whether it holds nothing of the store any more."""
        self.pending: set[Pending] = set()
        """The forwards that go on."""
        opened.locks.take(locks.of_writer(self.id))
        opened.writers[self.id] = self

    # `begins`, `ends` and `says` are what it costs to record a forward; written out, where calls would read better.
    # What `finishes` and `adds` do in C is all that of an ordinary one.

    def finishes(self, pending: Pending) -> bool:
        """Write the record of an ordinary forward; False, and nothing is done, if it is none."""
        if self.gate.busy or not self.pen.record(pending, pending.facts, self.pending):
            return False
        if self.committer.idle:
            self.committer.begin()
        return True

    def adds(self, pending: Pending, given: Mapping[str, Any]) -> bool:
        """Write an ordinary fact said after its forward; False, and nothing is done, if it is none."""
        if self.gate.busy or not self.pen.late(pending.number, given):
            return False
        if self.committer.idle:
            self.committer.begin()
        return True

    def begins(self, pending: Pending) -> None:
        """A forward begins."""
        pending.writer = self
        facts: list[Fact] = []
        pending.facts = facts
        pending.tell = facts.append
        pending.since = monotonic()
        self.pending.add(pending)
        if self.committer.idle:
            self.committer.begin()

    def ends(self, pending: Pending, state: int, took_us: int) -> None:
        """Write the record of a forward, or the rest of it."""
        self.gate.alone(partial(self._ends, pending, state, took_us))
        if self.committer.idle:
            self.committer.begin()

    def _ends(self, pending: Pending, state: int, took_us: int) -> None:
        if pending.over:
            if self._closed:
                raise self._refusal(pending)
            return
        self.current = pending
        facts = pending.facts
        body, nodes, texts = self.packer.pack(facts)
        summary = b"" if texts is None else self.packer.summary(texts)
        if pending.parted or self.backlog.entries or self._closed:
            self._say(
                pending,
                END if pending.parted else RECORD,
                (state, nodes, took_us, summary, body),
                written=pending.is_over,
            )
        else:
            when, at, number, data = time_ns() // 1000, self.pen.size, -1, b""
            gate = self.gate
            flags, count = gate.flags, gate.count
            try:
                flags[BUSY] = 1  # as in `RunGate.take`
                if flags[SEVERAL]:
                    gate.hold()
                number = count[0]
                count[0] = number + 1
                rest = pack_rest(RECORD, state, len(summary), nodes, number, when, took_us) + summary + body
                data = pack_start(len(rest), crc32(rest)) + rest
                size = len(data)
                if at > ROTATE or write(self.pen.fd, data) != size:
                    self._write_with_care(data)
                else:
                    self._grown(at, size)
                pending.number = number
                pending.over = True
            except OSError as error:
                if number >= 0:
                    gate.give_back(number)
                self._refused(error, pending, RECORD, (state, nodes, took_us, summary, body))
            except BaseException:
                self.current = None
                self._settle(pending, number, data, pending.is_over)
                if pending.over:
                    self.pending.discard(pending)
                raise
            finally:
                self._leave()
        pending.over, self.current = True, None
        self.pending.discard(pending)
        facts.clear()

    def brings(self, pending: Pending, state: int, took_us: int, when: int) -> None:
        """Write the record of a forward that ended elsewhere, at `when` in µs since 1970, with the next number.

        Unlike what a running forward says, nothing is kept in memory for it: raises OSError where the disk does not
        take it.
        """
        self.gate.alone(partial(self._brings, pending, state, took_us, when))
        if self.committer.idle:
            self.committer.begin()

    def _brings(self, pending: Pending, state: int, took_us: int, when: int) -> None:
        pending.over = True
        self.pending.discard(pending)
        body, nodes, texts = self.packer.pack(pending.facts)
        self._append(pending, RECORD, when, (state, nodes, took_us, self.packer.summary(texts), body))
        pending.facts.clear()

    def says(self, pending: Pending, fact: Fact, given: Mapping[str, Any]) -> None:
        """Write a fact said after its forward; `given` is what the fact was made of."""
        self.gate.alone(partial(self._says, pending, fact, given))
        if self.committer.idle:
            self.committer.begin()

    def _says(self, pending: Pending, fact: Fact, given: Mapping[str, Any]) -> None:
        body, summary, _ = self.packer.pack_one(fact, given)
        number = pending.number
        if number is None or self.backlog.entries or self._closed:
            self._say(pending, LATE, (0, 0, NO_TIME, summary, body))
            return
        when, at, data = time_ns() // 1000, self.pen.size, b""
        try:
            rest = pack_rest(LATE, 0, len(summary), 0, number, when, NO_TIME) + summary + body
            data = pack_start(len(rest), crc32(rest)) + rest
            size = len(data)
            if at > ROTATE or write(self.pen.fd, data) != size:
                self._write_with_care(data)
            else:
                self._grown(at, size)
        except OSError as error:
            self._refused(error, pending, LATE, (0, 0, NO_TIME, summary, body))
        except BaseException:
            self._stands(data)
            raise

    def says_of_run(self, fact: Fact) -> None:
        """Write one of the run's own facts."""
        self.gate.alone(partial(self._says_of_run, fact))
        if self.committer.idle:
            self.committer.begin()

    def _says_of_run(self, fact: Fact) -> None:
        body, _, _ = self.packer.pack_one(fact, fact)
        self._say(None, LATE, (0, 0, NO_TIME, b"", body))

    def says_to(self, pending: Pending, fact: Fact) -> None:
        """Write a fact said to a forward that goes on; it is on its way to the disk when this returns."""
        self.gate.alone(partial(self._says_to, pending, fact))
        if self.committer.idle:
            self.committer.begin()

    def _says_to(self, pending: Pending, fact: Fact) -> None:
        if pending.over:  # it ended meanwhile, in another thread
            self._says(pending, fact, fact)
            return
        pending.facts.append(fact)
        self._write_part(pending, spilled=True)

    def tells(self, about: bytes) -> None:
        """Write something about the run: a packed map."""
        self.gate.alone(partial(self._tells, about))
        if self.committer.idle:
            self.committer.begin()

    def _tells(self, about: bytes) -> None:
        self._say(None, ABOUT, (0, 0, NO_TIME, b"", about))

    # -- forwards that go on

    def forgets(self, pending: Pending) -> None:
        """A forward that never told anything leaves nothing."""
        self.pending.discard(pending)
        pending.forgotten = not pending.over  # one that is over was written
        pending.over = True

    def _write_part(self, pending: Pending, *, spilled: bool = False) -> None:
        """Write what is known of a forward that goes on; if `spilled` it leaves the forward's hands for good."""
        if pending.over or (self.backlog and not spilled):
            return
        inside = pending.inside()  # before its facts are looked at: what is done by then is no longer in
        facts = pending.facts.copy()
        if pending.parted and not facts and inside == pending.told_inside:
            pending.since = monotonic()
            return
        inside = pending.without(
            inside, {fact.get("node") for fact in facts if fact.get("fact") in record_format.COUNTED}
        )
        body, nodes, texts = self.packer.pack(facts)
        summary = self.packer.summary(texts, inside=inside)
        state = 0 if pending.parted else OPEN  # said with its first part only
        part = ForwardPart(pending, len(facts), inside, next(filter(ends, facts), pending.ended))
        self._say(pending, PART, (state, nodes, NO_TIME, summary, body), keep=spilled, written=part.leaves)
        if spilled:
            part.leaves()
        pending.since = monotonic()

    def write_parts(self, older_than: float) -> None:
        """Write down the forwards that have gone on for so long since they were last written down."""
        now = monotonic()
        for pending in list(self.pending):
            if now - pending.since >= older_than:
                if pending.over:
                    self.pending.discard(pending)  # an interrupt came once it was written
                elif not pending.has_begun() and getrefcount(pending) == _UNKNOWN:
                    self.forgets(pending)  # one came before its forward knew of it
                else:
                    self.gate.alone(partial(self._write_part, pending))

    def next_part(self) -> float | None:
        """Since when the forward waits that has waited longest to be written down."""
        try:
            return min((pending.since for pending in list(self.pending)), default=None)
        except RuntimeError:  # changed in between; look again at once
            return monotonic()

    # -- ending

    def is_left(self) -> bool:
        """Whether nobody can say anything more; an interrupt may keep `retire` from being called."""
        return self.retired or (self.recorder is not _nobody and self.recorder() is None)

    def retire(self) -> None:
        """Nobody can say anything more: the committing thread closes it. Waits for nothing."""
        if not self._finished:
            self.retired = True
            self.committer.begin()

    def close(self) -> None:
        """Return when all is committed. Raises `RecordLost` if something could not be written down.

        Where a handler of a signal calls it in the middle of what its thread writes, it returns once all that was said
        is in the journal; the committing thread, or the end of the process, sees to the rest.
        """
        if self._closed:
            return
        if self.gate.is_mine():
            self._catch_up()
            self._shut()
        else:
            self.gate.alone(self._shut)
        if self.opened.is_within():
            self.retire()
        else:
            self._finish()

    def _catch_up(self) -> None:
        """Write what was put off until what this thread was interrupted in is written."""
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
                self._left_open(pending)
        self.shut = self._closed = self.closing = True
        self.pen.close()

    def _finish(self) -> None:
        if self._finished:
            return
        try:
            self._finished = True
            problem = self._end()
            served(self._give_all_back)  # whole, whenever an interrupt comes
        except BaseException:  # an interrupt: it is for the committing thread, or the end of the process
            if not self._given_back:
                self._finished = False
                self.retire()
            raise
        self._judge(problem)

    def _left_open(self, pending: Pending) -> None:
        if pending.over:
            return
        if not pending.has_begun():
            self.forgets(pending)  # a Ctrl-C came before it began
            return
        self._write_part(pending)
        pending.over = True
        if pending.number is not None and not self.backlog:
            self._say(pending, END, (LOST, 0, NO_TIME, b"", b""), keep=False)

    def _end(self) -> OSError | None:
        """Say in the store that this writer is through, then take its journal away; gives what the disk refused."""
        try:
            self.committer.flush()
            if not self.opened.is_there():
                return None
            if not self.closed_in_store:
                gathered = JournalRows(self.id, self.fields)
                self.opened.records.write(
                    lambda txn: take_in(txn, self.run, gathered, self.taken, self.about, closed=True)
                )
            for generation in list(self._files):
                self._drop_file(generation)
        except OSError as error:
            return error
        return None

    def _give_all_back(self) -> None:
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
        """It never began: where it has a journal, the committing thread closes it."""
        if self._files:
            self.retire()
        else:
            self.shut = self._closed = self._finished = True
            served(self._give_all_back)

    def _judge(self, problem: OSError | None) -> None:
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

    def end_at_exit(self) -> None:
        """Close, where nobody is left to catch an error."""
        try:
            self.gate.alone(self._shut)
            self._finish()
        except Exception as error:
            warn_of_record(str(error))

    def abandon(self) -> None:
        """In a forked child: this writer is the parent's. Its descriptors are closed, its files left alone."""
        self.shut = self._closed = True
        self.pen.close()
        for file in self._files.values():
            file.close()
        self._files.clear()
        self.pen.fd = -1


def _nobody() -> None:
    """Give no recorder."""

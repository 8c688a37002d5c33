"""Commit of journals into LMDB: every quarter of a second, blocks of rows in one transaction.

Packed facts are copied as they are. Small blocks of one writer are joined with the one before, each row at most about
twelve times, so that a run with a forward per second is as compact as a fast one.

Journals are read back from their files, in pieces of bounded size, so that a slow disk makes no writer wait and the
commit after a crash is the same as every other.
"""

from __future__ import annotations

import _thread
import errno
import time
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from somatize.utils.interrupts import Wakeup, start
from somatize.utils.notices import warn_of_record

from . import record_format, speedups
from .lmdb_environment import BadValue, WriteTransaction
from .open_store import CommitThread, Opened, OpenWriter, in_service_thread
from .record_format import OWN, Chunk, RunInfo, pack_chunk, pack_texts, texts
from .rows import (
    FORWARD,
    MOST_BYTES,
    MOST_ROWS,
    UNKNOWN,
    Block,
    JournalRow,
    JournalRows,
    Line,
    Position,
    cut,
    find_chunk,
    store_open_tasks,
)
from .run_summary import KILLED, SummaryUpdate, WriterEnd

_LOOK_BACK = 64
_NOT_OK = (record_format.BROKE, record_format.INTERRUPTED, record_format.LOST)


def store_rows(txn: WriteTransaction, run: int, gathered: JournalRows, summary: SummaryUpdate | None = None) -> None:
    """Store the rows of a stretch of a journal, and update the totals and the summary of the run."""
    key = record_format.run_key(run)
    sealed = txn.get(key)
    if sealed is None:
        return  # the run was forgotten; its writer died before it could say more
    summary = summary or SummaryUpdate(txn, run)
    tally = _RunTotals(record_format.unpack_run(key, sealed), summary)
    complete, late, alone = gathered.complete(), list[JournalRow](), list[Line]()
    for row in gathered.rows.values():
        if row.started and row.ended and row.forward != OWN:
            if row.state == record_format.LOST:
                _store_inside(txn, run, row.forward, row.inside(gathered.fields))
        elif row.started or row.ended or row.forward == OWN:
            _store_part(txn, run, row, gathered, tally, complete)
        else:
            late.append(row)
    _store(txn, run, gathered, tally, _blocks(gathered, complete))
    for row in late:  # once the blocks are stored, as it may be about a forward in one of them
        _store_part(txn, run, row, gathered, tally, alone)
    _store(txn, run, gathered, tally, cut(alone, gathered.fields))
    if gathered.about:
        _store_run_info(txn, run, gathered)
    store_open_tasks(txn, run, gathered.tasks)
    txn.put(key, record_format.pack_run(key, tally.info))
    summary.store()


def _blocks(gathered: JournalRows, complete: list[Line]) -> Iterable[Block]:
    """The blocks to store, in ascending order of forward numbers."""
    if not complete:
        return gathered.blocks
    for block in gathered.blocks:
        complete.extend(block.lines(gathered.fields))
    if gathered.rows:
        complete.sort(key=itemgetter(FORWARD))
    return cut(complete, gathered.fields)


def _store(txn: WriteTransaction, run: int, gathered: JournalRows, tally: _RunTotals, blocks: Iterable[Block]) -> None:
    for block in blocks:
        tally.count(block)
        tally.reach(_store_block(txn, run, gathered.writer, block))


class _RunTotals:
    """The totals of a run while rows are added."""

    def __init__(self, info: RunInfo, summary: SummaryUpdate) -> None:
        self.info = info
        self.summary = summary

    def count(self, block: Block) -> None:
        info, numbers = self.info, block.numbers
        self.summary.add_block(numbers["forward"], block.fields)
        forwards, states, whens, took = (numbers[name] for name in ("forward", "state", "when", "took_us"))
        ended = (
            [0, 0, 0] if states.count(record_format.OK) == len(states) else [states.count(state) for state in _NOT_OK]
        )
        first, last = min(whens), max(whens)
        self.info = info._replace(
            rows=info.rows + len(block),
            broke=info.broke + ended[0],
            interrupted=info.interrupted + ended[1],
            lost=info.lost + ended[2],
            took_us=info.took_us + sum(took) + took.count(UNKNOWN),
            first=min(first, info.first or first),
            last=max(last, info.last),
            highest=max(info.highest, forwards[-1]),
        )

    def reach(self, span: int) -> None:
        if span > self.info.span:
            self.info = self.info._replace(span=span)


def _store_block(txn: WriteTransaction, run: int, writer: int, block: Block) -> int:
    """Store a block, joined with small ones before it; returns the distance of its first and last number."""
    for key, before in _blocks_before(txn, run, writer, block):
        block = before.followed_by(block)
        txn.delete(b"b" + key[1:])
        txn.delete(key)
    numbers = block.numbers["forward"]
    first = numbers[0]
    txn.put(record_format.block_key(b"b", run, first, writer), block.body)
    txn.put(record_format.block_key(b"c", run, first, writer), block.packed())
    return numbers[-1] - first


def _blocks_before(txn: WriteTransaction, run: int, writer: int, block: Block) -> Iterable[tuple[bytes, Block]]:
    """The blocks of this writer to be joined with a new one: no larger than what they are joined with."""
    key = record_format.block_key(b"c", run, block.numbers["forward"][0], writer)
    prefix = record_format.run_prefix(b"c", run)
    rows, size, first = len(block), len(block.body), block.numbers["forward"][0]
    for _ in range(_LOOK_BACK):
        found = txn.before(key)
        if found is None or not found[0].startswith(prefix):
            return
        key = found[0]
        if record_format.block_of(key)[1] != writer:
            continue
        try:
            chunk = Chunk(bytes(found[1]))
            body = bytes(txn.get(b"b" + key[1:]) or b"")
            if chunk.rows > rows or rows + chunk.rows > MOST_ROWS or size + len(body) > MOST_BYTES:
                return
            before = Block.stored(chunk, body)
        except BadValue:
            return  # damage stays where it is, to be found by `check`
        if before.numbers["forward"][-1] > first:
            return  # rows of both lie between each other, of forwards that went on while others ended
        rows, size, first = rows + chunk.rows, size + len(body), before.numbers["forward"][0]
        yield key, before


def _store_part(
    txn: WriteTransaction, run: int, row: JournalRow, gathered: JournalRows, totals: _RunTotals, complete: list[Line]
) -> None:
    """Store what came of a forward that is not wholly in this stretch: parts, its end, or facts said after it."""
    fields, writer = gathered.fields, gathered.writer
    if row.body:
        key = record_format.part_key(run, row.forward, writer, row.at)
        txn.put(key, record_format.seal(key, row.when.to_bytes(8, "little") + row.body))
    if row.forward == OWN:
        return
    key = record_format.forward_key(b"o", run, row.forward)
    sealed = txn.get(key)
    if row.started or sealed is not None:
        _open(txn, key, _opened_before(key, sealed, writer), row, fields, complete)
        return
    chunk = find_chunk(txn, run, row.forward, totals.info.span, writer)
    if chunk is None:
        # Its beginning was lost, to a power cut or a full disk and memory; what came after says that it was there.
        said = [row.texts(fields).get(field) for field in fields]
        state = row.state if row.ended else record_format.LOST
        complete.append([row.forward, state, row.nodes, row.took_us, row.when, said, b""])
    elif row.summary:
        _change_summary(txn, chunk, row.forward, row.texts(fields), totals.summary)


def _opened_before(key: bytes, sealed: Any, writer: int) -> dict[str, Any]:
    known: dict[str, Any] = {"writer": writer, "nodes": 0, "texts": {}, "inside": []}
    return known if sealed is None else dict(record_format.unpack_map(key, sealed))


def _open(
    txn: WriteTransaction,
    key: bytes,
    known: dict[str, Any],
    row: JournalRow,
    fields: Sequence[str],
    complete: list[Line],
) -> None:
    nodes = row.nodes + known["nodes"]
    texts = {**known["texts"], **row.texts(fields)}
    if row.ended:
        txn.delete(key)
        if row.state == record_format.LOST:
            _store_inside(txn, record_format.run_of(key), row.forward, row.inside(fields) or known["inside"])
        said = [texts.get(field) for field in fields]
        # Its facts are among the parts; what is left is the line.
        complete.append([row.forward, row.state, nodes, row.took_us, row.when, said, b""])
        return
    inside = row.inside(fields)
    state = {"writer": known["writer"], "nodes": nodes, "texts": texts, "inside": inside, "when": row.when}
    txn.put(key, record_format.pack_map(key, state))


def _store_inside(txn: WriteTransaction, run: int, forward: int, inside: record_format.Inside) -> None:
    key = record_format.forward_key(b"l", run, forward)
    txn.put(key, record_format.pack_map(key, inside))


def _change_summary(
    txn: WriteTransaction, key: bytes, forward: int, said: dict[str, str], summary: SummaryUpdate
) -> None:
    """Correct the summary columns of a stored row after late facts."""
    chunk = Chunk(bytes(txn.get(key) or b""))
    columns = {name: chunk.raw(name) for name in chunk.names}
    index = list(chunk.integers("forward")).index(forward)
    for field, text in said.items():
        known: list[str | None] = [None] * chunk.rows
        if field in columns:
            known = texts(*columns[field], chunk.rows)
        summary.change(field, forward, known[index], text)
        known[index] = text
        columns[field] = pack_texts(known)
    txn.put(key, pack_chunk(chunk.rows, columns))


def _store_run_info(txn: WriteTransaction, run: int, gathered: JournalRows) -> None:
    key = record_format.run_writer_key(b"a", run, gathered.writer)
    txn.put(key, record_format.pack_map(key, {**_run_info(txn, run, gathered.writer), **gathered.about}))


def _run_info(txn: WriteTransaction, run: int, writer: int) -> dict[str, Any]:
    key = record_format.run_writer_key(b"a", run, writer)
    sealed = txn.get(key)
    return record_format.unpack_map(key, sealed) if sealed is not None else {}


def end_open(
    txn: WriteTransaction, run: int, writer: int, fields: Sequence[str], summary: SummaryUpdate | None = None
) -> None:
    """Mark the forwards that a dead writer left open as lost."""
    prefix = record_format.run_prefix(b"o", run)
    left: list[int] = []
    for key, sealed in txn.items(prefix):
        if not key.startswith(prefix):
            break
        if record_format.unpack_map(key, sealed)["writer"] == writer:
            left.append(record_format.forward_of(key))
    if not left:
        return
    gathered = JournalRows(writer, fields)
    for forward in left:
        key = record_format.forward_key(b"o", run, forward)
        when = record_format.unpack_map(key, txn.get(key) or b"")["when"]
        row = gathered.rows[forward] = JournalRow(forward, 0, when, b"", b"")
        row.ended, row.state = True, record_format.LOST
    store_rows(txn, run, gathered, summary)


EVERY = 0.25
"""Seconds between commits, and after which a part of an open forward is written."""
_SLICE = (2 if speedups.MODULE is None else 8) << 20
_SWEEP_EVERY = 10.0
_TURN = 0.0002
_AFTER_FAILURE = 1.0


class Committer:
    """The committing thread of one store in this process."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._wake = Wakeup()
        self._stopped = False
        self._living = _thread.allocate_lock()  # taken by the thread as long as it lives
        self._thread = 0
        self._ends_writer = False
        """Whether the thread is closing a writer; the store, closed by the last one, must not wait for the thread."""
        self._last = 0.0
        self._swept = time.monotonic()
        self._not_before = 0.0
        self.idle = True
        """Whether the thread sleeps until `begin` is called."""

    def begin(self) -> None:
        """Wake the thread. Callers check `idle` first, which is cheap."""
        self.idle = False
        try:
            self._last = time.monotonic()  # so that what follows within the interval is in the same commit
            if not self._living.locked():
                start(self._run)
            self._wake.set()
        except BaseException:
            self.idle = True  # an interrupt: the next writer calls it again
            raise

    def flush(self) -> None:
        """Commit everything that was said before the call.

        In a signal handler that interrupted a write of its own thread, the rest stays in the journal.
        """
        self._write_open_forwards(everything=True)
        if not self._opened.is_within():
            self._opened.records.in_service_thread(lambda: self._commit(patient=False))

    def stop(self, patience: float = 5.0) -> None:
        """End the thread. Entries that are not committed stay in the journals."""
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
                    self._work_once()
        finally:
            self._thread = 0
            self._living.release()

    def _sleep(self) -> None:
        self.idle = True
        # Checked again after `idle` was set, as a writer that appended just before did not see it.
        if self._until_due() is None and not self._stopped:
            self._wake.wait()
        self.idle = False

    def _until_due(self) -> float | None:
        """Seconds until the next work; None if there is none."""
        now = time.monotonic()
        due: list[float] = []
        for writer in list(self._opened.writers.values()):
            if writer.has_more or writer.backlog or writer.is_abandoned():
                due.append(max(self._last + EVERY, self._not_before))
            opened = writer.waiting_since()
            if opened is not None:
                due.append(opened + EVERY)
        return max(0.0, min(due) - now) if due else None

    def _work_once(self) -> None:
        try:
            self._write_open_forwards(everything=False)
            now = time.monotonic()
            if now >= max(self._last + EVERY, self._not_before):
                self._opened.records.in_service_thread(lambda: self._commit(patient=True))
                for writer in list(self._opened.writers.values()):
                    if writer.is_abandoned() and not writer.backlog:
                        self._end(writer)
            if now - self._swept > _SWEEP_EVERY and not self._stopped:
                self._swept = now
                self._opened.records.sweep()
        except OSError as error:
            self._not_before = time.monotonic() + _AFTER_FAILURE
            self._warn_once(f"{error.strerror or error}; the records stay in the journal, and it is tried again")
        except Exception as error:  # damage, above all; this thread must live to try again
            self._not_before = time.monotonic() + _AFTER_FAILURE
            self._warn_once(f"{error}; the records stay in the journal: see Store.check()")

    def _end(self, writer: OpenWriter) -> None:
        self._ends_writer = True
        try:
            writer.close_without_errors()
        finally:
            self._ends_writer = False

    def _warn_once(self, sentence: str) -> None:
        if "commit" not in self._opened.warned:
            self._opened.warned.add("commit")
            warn_of_record(f"{self._opened.path} could not be written: {sentence}")

    def _write_open_forwards(self, *, everything: bool) -> None:
        for writer in list(self._opened.writers.values()):
            writer.drain()
            writer.write_open_forwards(0.0 if everything else EVERY)

    def _commit(self, *, patient: bool) -> None:
        self._last = time.monotonic()
        if self._opened.writers and not self._opened.is_there():
            raise FileNotFoundError(errno.ENOENT, "the store's directory is gone")
        for writer in list(self._opened.writers.values()):
            self._read_back(writer, writer.end_of_journal(), patient)
        self._opened.warned.discard("commit")

    def _read_back(self, writer: OpenWriter, until: Position, patient: bool) -> None:
        """Commit a writer's journal up to a position."""
        while writer.taken < until:
            generation, start = writer.taken
            buffer = writer.read_journal(generation, start, _SLICE)
            if generation == until[0]:
                # Beyond it an entry may be half written, which would be taken for damage.
                buffer = buffer[: until[1] - start]
            gathered = JournalRows(writer.id, writer.fields, generation)
            gathered.read_blocks(buffer, start, _yield_turn if patient else None)
            if gathered.read_to:
                taken = (generation, gathered.read_to)
                self._store(writer, gathered, taken, closed=writer.closing and taken == until)
            elif not writer.next_journal(generation):
                return

    def _store(self, writer: OpenWriter, gathered: JournalRows, taken: Position, *, closed: bool = False) -> None:
        run, about = writer.run, writer.about
        self._opened.records.write(lambda txn: commit_rows(txn, run, gathered, taken, about, closed=closed))
        writer.taken, writer.closed_in_store = taken, closed


def committer_of(opened: Opened) -> CommitThread:
    """The `Committer` of an open store, made on first use; its thread starts with the first work."""

    def make() -> CommitThread:
        if opened.committer is None:
            opened.committer = Committer(opened)
        return opened.committer

    return opened.committer or in_service_thread(make)


def commit_rows(
    txn: WriteTransaction,
    run: int,
    gathered: JournalRows,
    taken: tuple[int, int],
    about: dict[str, Any],
    *,
    closed: bool = False,
    heard: int = 0,
    why: str = "",
) -> None:
    """Store the rows of a stretch of a journal and, in the same transaction, the position it ends at.

    A writer that is `closed` and did not say how it ended was killed, `why` says by what; `heard` is when it last
    wrote, in µs since 1970, if that is known.
    """
    run_key = record_format.run_key(run)
    if txn.get(run_key) is None:
        return  # the run was forgotten
    summary = SummaryUpdate(txn, run)
    store_rows(txn, run, gathered, summary)
    if closed:
        end_open(txn, run, gathered.writer, gathered.fields, summary)
    key = record_format.writer_key(gathered.writer)
    txn.put(key, record_format.pack_writer(key, record_format.WriterInfo(run, *taken, closed, about)))
    known = gathered.about if "end" in gathered.about or not closed else _run_info(txn, run, gathered.writer)
    end = WriterEnd.of(gathered.writer, about)
    if closed and not heard:
        heard = record_format.unpack_run(run_key, txn.get(run_key) or b"").last or end.opened
    state, why, when = known.get("end") or ((KILLED, why, heard) if closed else ("", "", 0))
    summary.note_writer(end._replace(state=state, why=why, when=when))
    if gathered.about:
        summary.add_info(gathered.about, about.get("opened", 0))
    summary.store()


def _yield_turn() -> None:
    """Let other threads run."""
    time.sleep(_TURN)

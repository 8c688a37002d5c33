"""The appending end of a writer: forwards that go on, the files of its journal, and entries that the disk did not take.

An entry that the disk does not take is kept in memory, up to a bound, and written when there is room again; nothing
about a disk is ever raised into a forward.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections import deque
from collections.abc import Callable, Sequence
from os import write
from time import time_ns
from typing import TYPE_CHECKING, Any, Protocol

from somatize.errors import RecorderClosed, RecordLost
from somatize.utils.interrupts import Descriptor
from somatize.utils.notices import warn_of_record

from . import journal, record_format, speedups
from .journal import EntryContent, pack_entry, read_slice
from .record_format import OWN
from .rows import Position

if TYPE_CHECKING:
    from somatize.facts import Fact

    from .open_store import Opened


class Running(Protocol):
    """A forward whose nodes are called one after another."""

    @property
    def node(self) -> str | None:
        """The node that is running; None between nodes."""


class Tell(Protocol):
    """A callable that takes a fact."""

    def __call__(self, fact: Fact, /) -> object: ...


class Pending:
    """An open forward of a writer: its facts that are not written yet, and its number once some are.

    Forwards are begun tens of thousands of times a second, so it has no constructor and its defaults stand on the
    class: `Writer.open_forward` sets what has none.
    """

    writer: Any
    """Its `Writer`, set by `Writer.open_forward`."""
    facts: list[Fact]
    """Facts that are not written yet."""
    tell: Tell
    """Takes a fact of it."""
    since: float
    """When a part of it was last written, or it was opened (monotonic seconds)."""

    number: int | None = None
    over = False
    """Whether its last fact was told."""
    forgotten = False
    """Whether nothing of it is on record, as it was interrupted before its first fact."""
    parted = False
    """Whether a part of it was written while it was open."""
    place: Running | None = None
    """The engine's forward, if its nodes run one after the other: it knows which one is running."""
    entered: list[str] | None = None
    """Otherwise, the nodes that were entered and have not ended, as far as known."""
    going: dict[str, tuple[Any, Any, float, float, Any]] | None = None
    """By node that said how far it is: done and total, when it said so first and last, and done at the first."""
    written_inside: Sequence[Any] = ()
    """The nodes it was in when the last part was written, with how far they were."""
    ended: Fact | None = None
    """The fact that ended it, if a written part has that already."""

    def mark_over(self) -> None:
        """Note that its end is written."""
        self.over = True

    def has_begun(self) -> bool:
        """Whether anything is known of it."""
        return bool(self.facts or self.parted or self.place or self.entered)

    def inside(self) -> list[str]:
        """The nodes that are running, as far as known."""
        place = self.place
        if place is None:
            return list(self.entered or ())
        node = place.node
        return [] if node is None else [node]

    def without(self, inside: list[str], done: set[str | None]) -> list[str]:
        """Those of `inside` that have not ended; the others are removed from `entered`."""
        left = [node for node in inside if node not in done]
        if self.entered is not None:
            self.entered[: len(inside)] = left
        return left

    def with_progress(self, inside: list[str]) -> record_format.Inside:
        """Those nodes, with how far they are if they said it."""
        going = self.going
        return (
            list(inside) if going is None else [_far(node, going[node]) if node in going else node for node in inside]
        )

    def ended_by(self) -> Fact:
        """The fact that ended it; empty if it has not ended."""
        return next((fact for fact in reversed(self.facts) if is_end(fact)), self.ended or {})


def _far(node: str, said: tuple[Any, Any, float, float, Any]) -> Any:
    done, total, first, last, since = said
    try:
        whole = None if total is None else _count(total)
        return list(record_format.Progress(node, _count(done), whole, round((last - first) * 1e6), _count(since)))
    except (TypeError, ValueError, OverflowError):
        return node  # what was said is no count


def _count(said: Any) -> int:
    return max(0, min(int(said), 2**62))


class ForwardPart:
    """A part of an open forward as it is written to the journal."""

    def __init__(self, pending: Pending, facts: int, inside: record_format.Inside, ended: Fact | None) -> None:
        self._pending = pending
        self._facts = facts
        self._inside = inside
        self._ended = ended
        self._left = False

    def mark_written(self) -> None:
        """Remove the written facts from the forward. A second call does nothing."""
        pending = self._pending
        if not self._left:
            self._left = True
            del pending.facts[: self._facts]
            pending.parted, pending.ended, pending.written_inside = True, self._ended, self._inside


def is_end(fact: Fact) -> bool:
    """Whether this is the fact that ends a forward."""
    return fact.get("fact") in ("finished", "broke")


def write_whole(fd: int, data: bytes, at: int) -> None:
    """Append to a file of `at` bytes; if that stops half way, leave it as it was and raise OSError."""
    done = 0
    try:
        while done < len(data):
            done += write(fd, data[done:])
    except OSError:
        if done:
            os.ftruncate(fd, at)
        raise


MOST_BYTES = 16 << 20
"""Limit of bytes kept in memory, counting what an entry takes beside its facts."""
_BESIDES = 400


class Backlog:
    """Entries that the disk refused, in order, to be appended later. `dropped` counts those beyond the memory limit."""

    def __init__(self) -> None:
        self.entries: deque[tuple[Pending | None, int, int, EntryContent]] = deque()
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, pending: Pending | None, kind: int, when: int, said: EntryContent) -> None:
        """Keep an entry, or count it as dropped if it does not fit."""
        size = len(said[4]) + _BESIDES
        if self._bytes + size > MOST_BYTES:
            self.dropped += 1
            return
        self._bytes += size
        self.entries.append((pending, kind, when, said))

    def drain(self, append: Callable[[Pending | None, int, int, EntryContent], None]) -> None:
        """Append what is kept, as far as the disk takes it."""
        while self.entries:
            first = self.entries[0]
            try:
                append(*first)
            except OSError:
                return
            self.entries.popleft()
            self._bytes -= len(first[3][4]) + _BESIDES


ROTATE = 32 << 20
"""Size in bytes after which a new journal file is begun."""


class Appender:
    """Appends entries to the journals of one writer. Its methods are called with the gate's lock held."""

    def __init__(self, opened: Opened, name: str, run: int, fields: Sequence[str], about: dict[str, Any]) -> None:
        """Nothing is written before `start_journal`."""
        self.opened = opened
        self.name = name
        self.run = run
        self.fields = tuple(fields)
        self.about = about
        self.id = secrets.randbits(60) | 1
        self.gate = opened.gate(run)
        self.lock = self.gate.lock
        self.packer = record_format.Packer(self.fields)
        self.backlog = Backlog()
        self.pen = speedups.pen(self.gate, self.fields, ROTATE, self.backlog.entries)
        self.compiled = speedups.MODULE is not None
        """Whether the pen writes ordinary records, in C."""
        self.taken: Position = (0, 0)
        """The position up to which the journals are committed."""
        self._closed = False
        self.exiting = False
        """Whether the end of the process is closing it."""
        self._files: dict[int, Descriptor] = {}
        self._generation = -1

    @property
    def has_more(self) -> bool:
        """Whether the journals hold entries that are not committed."""
        return self.taken != (self._generation, self.pen.size)

    @property
    def position(self) -> Position:
        """The end of the journals: the generation of the last file, and its size in bytes."""
        return self._generation, self.pen.size

    def start_journal(self) -> None:
        """Begin the next journal file; raises OSError."""
        generation = self._generation + 1
        path = self.opened.journals / journal.file_name(self.id, generation)
        start = journal.header({**self.about, "run": self.run, "name": self.name, "fields": list(self.fields)})
        # A file and no descriptor, as an interrupt may come before it is kept: then it is closed, and begun anew.
        file = Descriptor(path, "ab+")
        try:
            file.truncate(0)
            write_whole(file.fileno(), start, 0)
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        if self._generation < 0:
            self.taken = (generation, len(start))
        self._files[generation] = file
        self.pen.size, self.pen.fd, self._generation = len(start), file.fileno(), generation

    def _write_entry(
        self,
        pending: Pending | None,
        kind: int,
        said: EntryContent,
        keep: bool = True,
        written: Callable[[], object] | None = None,
    ) -> None:
        """Append an entry, or keep it in memory until the disk takes it.

        `written` is called when the entry is in the journal, also after an interrupt; then perhaps twice.
        """
        if self._closed:
            raise self._refusal(pending)
        if not self.backlog:
            try:
                self._append(pending, kind, time_ns() // 1000, said, written)
                return
            except OSError as error:
                self._warn_once(error)
        if keep:
            self.backlog.add(pending, kind, time_ns() // 1000, said)

    def _refusal(self, pending: Pending | None) -> RecorderClosed | RecordLost:
        if self.exiting and pending is not None:
            return RecordLost(f"the process ends: a forward of run {self.name!r} that goes on is not recorded any more")
        return RecorderClosed(f"the recorder of run {self.name!r} is closed; nothing more can be said to it")

    def _append(
        self,
        pending: Pending | None,
        kind: int,
        when: int,
        said: EntryContent,
        written: Callable[[], object] | None = None,
    ) -> None:
        known, number, data = OWN if pending is None else pending.number, -1, b""
        gate = self.gate
        try:
            if known is None:
                gate.enter()
                number = gate.count[0]
                gate.count[0] = number + 1
            data = pack_entry(kind, number if known is None else known, when, said)
            self._append_whole(data)
            if pending is not None and known is None:
                pending.number = number
            if written is not None:
                written()
        except OSError:
            if number >= 0:
                gate.give_back(number)
            raise
        except BaseException:
            self._finish_interrupted(pending if known is None else None, number, data, written)
            raise
        finally:
            if known is None:
                self._leave_gate()

    def _finish_interrupted(
        self, pending: Pending | None, number: int, data: bytes, written: Callable[[], object] | None = None
    ) -> None:
        """After an interrupt in an append: note the entry if it is in the journal, else give its number back."""
        if self._is_written(data):
            if pending is not None:
                pending.number = number
            if written is not None:
                written()
        elif number >= 0:
            self.gate.give_back(number)

    def _is_written(self, data: bytes) -> bool:
        """Whether the journal ends with `data`, after an interrupt; an entry that is half written is cut off."""
        if self.pen.fd < 0:
            return False
        end = os.fstat(self.pen.fd).st_size
        if data and os.pread(self.pen.fd, len(data), max(0, end - len(data))) == data:
            self.pen.size = end
            return True
        if end > self.pen.size:
            os.ftruncate(self.pen.fd, self.pen.size)
        if self._closed and data:  # a handler closed it in the middle, so that nobody else writes it
            write_whole(self.pen.fd, data, self.pen.size)
            self.pen.size += len(data)
            return True
        return False

    def _leave_gate(self) -> None:
        try:
            self.gate.leave()
        except BaseException:  # an interrupt: others must not wait for this process
            self.gate.leave()
            raise

    def _append_whole(self, data: bytes) -> None:
        """Append `data` whole, to a new journal file if this one is full. Raises OSError with nothing appended."""
        if self.pen.size > ROTATE or self.pen.fd < 0:
            self.start_journal()
        at, size = self.pen.size, len(data)
        try:
            write_whole(self.pen.fd, data, at)
        except OSError:
            if os.fstat(self.pen.fd).st_size > at:
                self.pen.size = sys.maxsize  # a torn entry ends this file: the next entry begins another
            raise
        # A signal handler that closes the writer may have written and counted other entries meanwhile.
        self.pen.size = at + size if self.pen.size == at else os.fstat(self.pen.fd).st_size

    # -- when the disk does not take it

    def drain(self) -> None:
        """Append the entries kept in memory, as far as the disk takes them."""
        if self.backlog:
            self.gate.alone(self._drain)

    def _drain(self) -> None:
        if self.backlog:
            self.backlog.drain(self._append)
            if not self.backlog:
                self.opened.warned.discard("journal")

    def _warn_once(self, error: OSError) -> None:
        if "journal" not in self.opened.warned:
            self.opened.warned.add("journal")
            warn_of_record(
                f"the records of run {self.name!r} cannot be written to {self.opened.path} "
                f"({error.strerror or error}); "
                f"up to {MOST_BYTES >> 20} MB of them are kept in memory and written when there is room"
            )

    # -- read back by the commit

    def read_journal(self, generation: int, start: int, most: int) -> bytes:
        """Up to `most` bytes of a journal file from `start` on."""
        file = self._files.get(generation)
        return read_slice(file.fileno(), start, most) if file is not None else b""

    def next_journal(self, generation: int) -> bool:
        """Remove a journal file that is committed to its end, and go on to the next; False if it is the last."""
        if generation >= self._generation or generation < 0:
            return False
        following = generation + 1
        found = journal.read_header(os.pread(self._files[following].fileno(), 1 << 16, 0))
        self.taken = (following, found[1] if found is not None else 0)
        self._drop_file(generation)
        return True

    def _drop_file(self, generation: int) -> None:
        self._files.pop(generation).close()
        (self.opened.journals / journal.file_name(self.id, generation)).unlink(missing_ok=True)

    def end_of_journal(self) -> Position:
        """The `position` between two entries, so that none is half written before it."""
        found: list[Position] = []
        self.gate.alone(lambda: found.append(self.position))
        return found[0]

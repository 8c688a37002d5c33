"""Reading runs: a snapshot of the committed records, merged with the journals beyond it.

The journals are opened before the snapshot is taken, so nothing is missed: the snapshot says how far each journal is
committed. Nothing is written and no lock is taken.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, takewhile
from typing import NamedTuple, TypeVar

from somatize.errors import DamagedStore, UnknownName, UnknownRun, WhichRun, nearest
from somatize.facts import KINDS, Fact
from somatize.utils.interrupts import Descriptor
from somatize.utils.notices import warn_of_record

from . import directory, journal, record_format
from .journal import NO_TIME, console_name
from .journal_reader import JournalCounts, JournalFile, Tail
from .lmdb_environment import BadValue, ReadTransaction, WriteTransaction
from .open_store import Opened, journal_files
from .record_format import (
    LOST,
    OPEN,
    OWN,
    Chunk,
    Inside,
    Progress,
    RunInfo,
    WriterInfo,
    nodes_of,
    number,
    parted_path,
    progress_of,
    readings,
    unpack,
)
from .rows import TaskFact, find_chunk, open_tasks_after, stored_open_tasks
from .run_summary import (
    KILLED,
    NumberTotal,
    RunSummary,
    WriterEnd,
    number_columns,
    run_end,
    summed_up,
    total_of,
    why_killed,
    writer_ends,
)

_STAMPS = frozenset({"fact", "node", "host", "device"})


class Line(NamedTuple):
    """A forward without its facts; `took_us` is -1 if it has not ended."""

    forward: int
    state: int
    nodes: int
    took_us: int
    when: int
    writer: int
    texts: dict[str, str]
    inside: list[str]
    progress: Sequence[Progress] = ()


class Stored(NamedTuple):
    """A stored block: its columns, its writer, its forwards and the key of the columns."""

    chunk: Chunk
    writer: int
    forwards: Sequence[int]
    key: bytes


class RunFactsPart(NamedTuple):
    """Packed facts of the run as a whole, by one writer; `when` is in µs since 1970."""

    writer: int
    position: int
    when: int
    body: bytes


class RunLines:
    """One run in a snapshot, read lazily. Valid inside the `look` that made it."""

    def __init__(self, view: StoreSnapshot, run: int) -> None:
        self.view = view
        self.run = run
        self._key = run.to_bytes(4, "big")  # what follows the kind in a key
        self._highest: int | None = None
        self.info = view.run(run)
        self.name = self.info.name
        self._first, self._last = 0, OWN
        self._lines: dict[int, Line] | None = None
        self._late: dict[int, dict[str, str]] = {}
        self._bodies: dict[int, list[bytes]] = {}
        self._fields: dict[int, frozenset[str]] = {}

    def only(self, first: int, last: int = OWN - 1) -> None:
        """Restrict reading to the forwards from `first` to `last`."""
        if self._lines is None:
            self._first, self._last = first, last

    @property
    def lines(self) -> dict[int, Line]:
        """The forwards that are not in a block: open, or not committed yet."""
        if self._lines is None:
            self._lines = {}
            self._read_open()
            self._read_tails()
            self._mark_lost()
        return self._lines

    @property
    def late(self) -> dict[int, dict[str, str]]:
        """Uncommitted summarised fields of committed forwards."""
        return self._late if self.lines is not None else {}

    def said(self, forward: int) -> list[bytes]:
        """The packed facts of a forward in the journals."""
        return self._bodies.get(forward, []) if self.lines is not None else []

    # -- outside of blocks

    def _read_open(self) -> None:
        for key, sealed in self._under(b"o", self._first, self._last):
            try:
                known = record_format.unpack_map(key, sealed)
            except BadValue:
                self.skip(record_format.forward_of(key))
                continue
            forward = record_format.forward_of(key)
            self.lines[forward] = Line(
                *(forward, OPEN, known["nodes"], -1, known["when"], known["writer"], known["texts"]),
                nodes_of(known["inside"]),
                progress_of(known["inside"]),
            )

    def _read_tails(self) -> None:
        for tail in self.view.tails_of(self.run):
            order = tail.fields
            fields = frozenset(order)
            for row in tail.of(self._first, self._last).rows.values():
                if not self._first <= row.forward <= self._last:
                    continue
                self._bodies.setdefault(row.forward, []).append(row.body)
                if row.forward == OWN:
                    continue
                before = self.lines.get(row.forward)
                if before is None and not row.started:
                    self._late.setdefault(row.forward, {}).update(row.texts(order))
                    continue
                self._fields[row.forward] = fields
                took = -1 if row.took_us == NO_TIME else row.took_us
                said, inside = row.texts(order), row.inside(order) if row.state in (OPEN, LOST) else []
                line = Line(row.forward, row.state, row.nodes, took, row.when, tail.writer, said, [])
                if inside:
                    line = line._replace(inside=nodes_of(inside), progress=progress_of(inside))
                self.lines[row.forward] = line if before is None else _continued(before, line, ended=row.ended)

    def _mark_lost(self) -> None:
        for forward, line in self.lines.items():
            if line.state == OPEN and not self.view.is_alive(line.writer):
                self.lines[forward] = line._replace(state=LOST)

    def inside(self, forward: int) -> list[str]:
        """The nodes that were running in an open or lost forward when it was last written."""
        return self.lines[forward].inside if forward in self.lines else nodes_of(self._left_inside(forward))

    def progress(self, forward: int) -> Sequence[Progress]:
        """How far they were, of those that said it."""
        return self.lines[forward].progress if forward in self.lines else progress_of(self._left_inside(forward))

    def _left_inside(self, forward: int) -> Inside:
        key = record_format.forward_key(b"l", self.run, forward)
        sealed = self.view.reading.get(key)
        try:
            return list(record_format.unpack_map(key, sealed)) if sealed is not None else []
        except BadValue:
            return []

    # -- its summary

    def summary(self, *, exact: bool = True) -> RunSummary:
        """The summary of the run with what journals hold beyond the store. Its `end` is never None.

        Unless it is `exact`, journals of other processes that live are not read: what they hold beyond the last
        commit, a quarter of a second of numbers, is left out. Of a number of which a journal has another value for a
        forward, the totals are made anew from its column.
        """
        try:
            found = RunSummary.read(self.view.reading, self.run)
        except BadValue:
            found = None
        made = summed_up(self.view.reading, self.run) if found is None else found
        tails = self.view.tails_of(self.run)
        here = self.view.opened.writers
        read = [one for one in tails if exact or one.writer in here or not self.view.is_alive(one.writer)]
        if made.end is None or tails:
            ends = {one.writer: one for one in writer_ends(self.view.reading, self.run)}
            for tail in tails:
                known = ends.setdefault(tail.writer, WriterEnd.of(tail.writer, tail.about))
                if tail in read:
                    said = tail.gathered.about
                    made.add_info(said, tail.about.get("opened", 0))
                    heard = known.when or tail.gathered.heard() or self.info.last or known.opened
                    state, why, when = said.get("end") or (known.state, known.why, heard)
                    if not state and not self.view.is_alive(tail.writer):
                        output = self.view.opened.journals / console_name(tail.writer)
                        state, why = KILLED, why_killed(tail.about, output)
                    ends[tail.writer] = known._replace(state=state, why=why, when=when)
            made.end = run_end(ends.values(), [one for one in ends if self.view.is_alive(one)])
        if (read or not tails) and (self.lines or self.late):
            self._add_numbers(made)
        return made

    def _add_numbers(self, made: RunSummary) -> None:
        """Add the numbers of forwards that only journals have, and of facts said late."""
        for line in self.lines.values():
            for path, said in line.texts.items():
                value = number(said)
                if value is not None:
                    made.numbers[path] = made.numbers.get(path, NumberTotal()).added(line.forward, value)
        again = {path for texts in self.late.values() for path in texts}
        for path, points in number_columns(self.view.reading, self.run, again).items():
            values = dict(points)
            for forward, texts in chain(
                ((line.forward, line.texts) for line in self.lines.values()), self.late.items()
            ):
                value = number(texts[path]) if path in texts else None
                if value is not None:
                    values[forward] = value
                elif path in texts:
                    values.pop(forward, None)
            made.numbers[path] = total_of(values.items())

    # -- blocks

    def blocks(self, since: int = 0) -> Iterator[Stored]:
        """The stored blocks with a forward of number `since` or above, by their first forward."""
        start = max(0, since - self.info.span)
        for key, value in self._under(b"c", start, OWN):
            first, writer = record_format.block_of(key)
            try:
                chunk = Chunk(value)
                forwards = chunk.integers("forward")
            except BadValue:
                warn_of_record(
                    f"the columns of run {self.name!r} from forward {first} on are damaged; that block was skipped"
                )
                continue
            if forwards[-1] >= since:
                yield Stored(chunk, writer, forwards, key)

    def summarised_fields(self) -> list[str]:
        """Every field that a writer of the run summarised."""
        found: dict[str, None] = {}
        known: set[int] = set()
        writers = self._writers()
        for key, value in self._under(b"c", 0, OWN):
            if len(known) == writers:
                break
            writer = record_format.block_of(key)[1]
            if writer in known:
                continue  # all its blocks have the same fields, or none if they hold lost forwards only
            try:
                names = [name for name in Chunk(value).names if "." in name]
            except BadValue:
                continue  # reported when its rows are read
            if names:
                known.add(writer)
                found.update(dict.fromkeys(names))
        for tail in self.view.tails_of(self.run):
            found.update(dict.fromkeys(tail.fields))
        return self._without_twins(list(found))

    def _without_twins(self, fields: list[str]) -> list[str]:
        """Of two summarised readings of one name, the one with values; the first if neither has any."""
        hidden = set()
        for field in fields:
            first, *others = readings(field)
            for other in others:
                if other in fields:
                    said = [one for one in (first, other) if self.was_summarised(one)] or [first]
                    hidden |= {first, other} - set(said)
        return [field for field in fields if field not in hidden]

    def was_summarised(self, path: str) -> bool:
        """Whether a summary column has a value of a field."""
        if any(path in texts for texts in (*self.late.values(), *(line.texts for line in self.lines.values()))):
            return True
        for block in self.blocks():
            try:
                if path in block.chunk and any(text is not None for text in block.chunk.texts(path)):
                    return True
            except BadValue:
                continue
        return False

    def path_of(self, name: str) -> str:
        """The path of a name in this run: the reading that has values, the first if none has."""
        paths = readings(name)
        if len(paths) == 1:
            return paths[0]
        return next((path for path in paths if self.was_said(path)), paths[0])

    def was_said(self, path: str) -> bool:
        """Whether any fact has a field. Reads the facts unless it is summarised."""
        if self.was_summarised(path):
            return True
        kind, field = parted_path(path)
        mark = kind.encode()
        blocks = [block for block in self.blocks() if path not in block.chunk]
        apart = ((forward, self.bodies(forward) or []) for forward in (OWN, *self.lines))
        for forward, bodies in chain(chain.from_iterable(map(self._block_packed_all, blocks)), apart):
            if any(mark in body for body in bodies):
                for _, told in self.unpacked(forward, bodies):
                    if any(fact.get("fact") == kind and field in fact for fact in told):
                        return True
        return False

    def _block_packed_all(self, block: Stored) -> Iterator[tuple[int, list[bytes]]]:
        return self._block_packed(block, 0)

    def names(self) -> list[str]:
        """The names of curves: summarised fields, and those in the first and last forwards."""
        blocks = list(self.blocks())
        ends = blocks if len(blocks) < 3 else [blocks[0], blocks[-1]]
        apart = chain.from_iterable(map(self._facts_of, (OWN, *self.lines)))
        told = chain(chain.from_iterable(map(self.block_facts, ends)), apart)
        return _names_in(chain.from_iterable(facts for _, facts in told), self.summarised_fields())

    def said_last(self) -> list[str]:
        """`names`, of the summarised fields and the last forward only."""
        told = (facts for _, facts in self._facts_of(self.highest()))
        return _names_in(chain.from_iterable(told), self.summarised_fields())

    def _facts_of(self, number: int) -> Iterator[tuple[int, list[Fact]]]:
        try:
            yield from self.unpacked(number, self.bodies(number) or [])
        except BadValue:
            self.skip(number)

    def _writers(self) -> int:
        """The number of writers with committed records."""
        prefix = b"v" + self._key
        return sum(1 for _ in takewhile(lambda item: item[0].startswith(prefix), self.view.reading.items(prefix)))

    def summarised(self, path: str, since: int = 0) -> bool:
        """Whether the values of a field can be read from columns alone."""
        if not all(path in block.chunk for block in self.blocks(since)):
            return False
        return all(path in self._fields.get(forward, ()) for forward in self.lines if forward >= since)

    def highest(self) -> int:
        """The highest forward number; -1 if there is none."""
        if self._highest is None:
            going_on = (record_format.forward_of(key) for key, _ in self._under(b"o", 0, OWN))
            self._highest = max(
                self.info.highest, -1, *going_on, *(tail.highest for tail in self.view.tails_of(self.run))
            )
        return self._highest

    def counted(self) -> JournalCounts:
        """Counts of the forwards that are not in a block, from the heads of journals if they suffice."""
        glimpsed = [tail.counted() for tail in self.view.tails_of(self.run)]
        if None in glimpsed or any(True for _ in self._under(b"o", 0, OWN)):
            lines = list(self.lines.values())
            return JournalCounts.of(*([getattr(line, name) for line in lines] for name in ("state", "when", "took_us")))
        return JournalCounts.merged(some for some in glimpsed if some is not None)

    def writer_of(self, forward: int) -> int | None:
        """The id of the writer of a forward; None if there is no such forward."""
        self.only(forward, forward)
        if forward in self.lines:
            return self.lines[forward].writer
        key = find_chunk(self.view.reading, self.run, forward, self.info.span)
        return None if key is None else record_format.block_of(key)[1]

    # -- facts

    def bodies(self, forward: int) -> list[bytes] | None:
        """The packed facts of a forward, in order; None if there is no such forward. Raises `BadValue`."""
        first: list[bytes] = []
        if forward != OWN and forward not in self.lines:
            key = find_chunk(self.view.reading, self.run, forward, self.info.span)
            if key is None:
                return None
            chunk = Chunk(self.view.reading.get(key) or b"")
            stored = Stored(chunk, 0, chunk.integers("forward"), key)
            first = [body for _, body in self.block_bodies(stored, [stored.forwards.index(forward)])]
        return first + self.parts(forward, forward).get(forward, []) + self.said(forward)

    def block_bodies(self, block: Stored, rows: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """The packed facts of some rows of a block, or of all undamaged ones. Raises `BadValue`."""
        ends, crcs = block.chunk.integers("end"), block.chunk.integers("crc")
        packed = self.view.reading.get(b"b" + block.key[1:])
        if packed is None:
            raise BadValue("its facts are missing")
        if rows is None:
            whole = bytes(packed)
            bodies = [whole[start:end] for start, end in zip((0, *ends), ends, strict=False)]
            if list(map(zlib.crc32, bodies)) == list(crcs):  # the usual case, without a loop over the rows
                yield from enumerate(bodies)
                return
        for row in range(block.chunk.rows) if rows is None else rows:
            body = bytes(packed[ends[row - 1] if row else 0 : ends[row]])
            if zlib.crc32(body) != crcs[row]:
                if rows is not None:
                    raise BadValue("its facts do not carry their checksum")
                self.skip(block.forwards[row])
                continue
            yield row, body

    def parts(self, first: int, last: int) -> dict[int, list[bytes]]:
        """The packed facts that are stored as parts, of the forwards from `first` to `last`."""
        found: dict[int, list[tuple[int, bytes]]] = {}
        for key, sealed in self._under(b"p", first, last):
            forward = record_format.forward_of(key)
            try:
                value = record_format.unseal(key, sealed)
            except BadValue:
                self.skip(forward)
                continue
            found.setdefault(forward, []).append((int.from_bytes(value[:8], "little"), value[8:]))
        # Those of a forward are in order; those of the run come from several writers and are sorted by time.
        return {
            forward: [body for _, body in (sorted(bodies, key=lambda one: one[0]) if forward == OWN else bodies)]
            for forward, bodies in found.items()
        }

    def facts(self, since: int = 0) -> Iterator[tuple[int, list[Fact]]]:
        """Each forward from `since` on with its facts, by block; damaged ones are skipped with a warning."""
        for forward, bodies in self.packed(since):
            yield from self.unpacked(forward, bodies)

    def packed(self, since: int = 0) -> Iterator[tuple[int, list[bytes]]]:
        """`facts`, with the facts packed."""
        for block in self.blocks(since):
            yield from self._block_packed(block, since)
        rest = sorted(forward for forward in self.lines if forward >= since)
        apart = self.parts(rest[0], rest[-1]) if rest else {}
        yield from ((forward, apart.get(forward, []) + self.said(forward)) for forward in rest)

    def block_facts(self, block: Stored, first: int = 0, last: int = OWN) -> Iterator[tuple[int, list[Fact]]]:
        """The forwards of a block from `first` to `last` with their facts; damaged ones are skipped with a warning."""
        for forward, bodies in self._block_packed(block, first):
            if forward > last:
                return
            yield from self.unpacked(forward, bodies)

    def _block_packed(self, block: Stored, since: int) -> Iterator[tuple[int, list[bytes]]]:
        held = block.forwards
        apart = self.parts(max(since, held[0]), held[-1])
        more = bool(apart or (self.lines is not None and self._bodies))
        try:
            for row, body in self.block_bodies(block):
                forward = held[row]
                if forward >= since:
                    yield forward, [body, *apart.get(forward, []), *self.said(forward)] if more else [body]
        except BadValue as error:
            self.damaged(block, error)

    def own(self, since: Mapping[int, int]) -> Iterator[RunFactsPart]:
        """The facts of the run as a whole, each writer's in order, from the position that `since` has for it.

        The last part of a writer may grow or be split into several; concatenated they are always the same bytes.
        """
        prefix = b"p" + self._key
        start: bytes | None = prefix + OWN.to_bytes(8, "big")
        while start is not None:
            start = yield from self._own_stored(start, prefix, since)
        for tail in self.view.tails_of(self.run):
            row = tail.gathered.rows.get(OWN)
            if row is not None:
                yield RunFactsPart(tail.writer, row.at, row.when, row.body)

    def _own_stored(
        self, start: bytes, prefix: bytes, since: Mapping[int, int]
    ) -> Generator[RunFactsPart, None, bytes | None]:
        """The stored parts from a key on; returns the key to go on from if parts of a writer were skipped."""
        for key, sealed in self.view.reading.items(start):
            if not key.startswith(prefix):
                return None
            writer, position = record_format.writer_of(key), record_format.position_of(key)
            if position < since.get(writer, 0):
                return record_format.part_key(self.run, OWN, writer, since[writer])
            try:
                value = record_format.unseal(key, sealed)
            except BadValue:
                self.skip(OWN)
                continue
            yield RunFactsPart(writer, position, int.from_bytes(value[:8], "little"), value[8:])
        return None

    def open_tasks(self) -> list[TaskFact]:
        """The last fact of each open task, by time; these are not among the facts of forwards."""
        tails = [tail.gathered.tasks for tail in self.view.tails_of(self.run)]
        return open_tasks_after(stored_open_tasks(self.view.reading, self.run), tails)

    def has_column(self, forward: int, path: str) -> bool:
        """Whether a field is summarised in the line of a forward."""
        return forward in self.lines and path in self._fields.get(forward, ())

    def all_have_column(self, path: str) -> bool:
        """Whether a field is summarised in every line."""
        return all(path in self._fields.get(forward, ()) for forward in self.lines)

    def damaged(self, block: Stored, error: BadValue) -> None:
        """Warn that a block is damaged and was skipped."""
        first, last = block.forwards[0], block.forwards[-1]
        warn_of_record(f"run {self.name!r}, forwards {first} to {last}: {error}; they were skipped")

    def unpacked(self, forward: int, bodies: list[bytes]) -> Iterator[tuple[int, list[Fact]]]:
        """A forward with its facts; nothing, with a warning, if it is damaged."""
        try:
            yield forward, list(unpack(bodies))
        except ValueError:
            self.skip(forward)

    def skip(self, forward: int) -> None:
        """Warn that a record is damaged and was skipped."""
        warn_of_record(f"the record {record_name(self.name, forward)} is damaged; it was skipped")

    def _under(self, kind: bytes, first: int, last: int) -> Iterator[tuple[bytes, bytes | memoryview]]:
        prefix = kind + self._key
        for key, value in self.view.reading.items(prefix + first.to_bytes(8, "big")):
            if not key.startswith(prefix) or int.from_bytes(key[5:13], "big") > last:
                return
            yield key, value


def _continued(before: Line, more: Line, *, ended: bool) -> Line:
    """A line, updated by a later line of the same forward."""
    line = before._replace(nodes=before.nodes + more.nodes, texts={**before.texts, **more.texts})
    if ended:
        line = line._replace(state=more.state, took_us=more.took_us, when=more.when)
        return line if more.state == LOST else line._replace(inside=[], progress=())
    if not more.inside:
        return line
    return line._replace(inside=more.inside, progress=more.progress)


def record_name(run: str, forward: int) -> str:
    """The name of a record: ``run/<run>/<n>``, the run percent-encoded."""
    from urllib.parse import quote

    return f"run/{quote(run, safe='')}/{forward}"


def _names_in(told: Iterable[Fact], fields: Sequence[str]) -> list[str]:
    """The names of curves: of the summarised `fields`, and of the facts that the engine did not report."""
    found = dict.fromkeys(field.removesuffix(".value") for field in fields)
    for fact in told:
        kind = fact.get("fact", "")
        said = [] if kind in KINDS else [field for field in fact if field not in _STAMPS]
        found.update((kind if field == "value" else f"{kind}.{field}", None) for field in said)
    return list(found)


T = TypeVar("T")


def look(opened: Opened, work: Callable[[StoreSnapshot], T]) -> T:
    """Run `work` with a snapshot of the store. It may run again if the store is read without locks."""
    with _journals(opened) as files:
        return opened.records.read_retried(lambda reading: work(StoreSnapshot(opened, reading, files)))


@contextmanager
def _journals(opened: Opened) -> Iterator[list[JournalFile]]:
    files: list[JournalFile] = []
    held: list[Descriptor] = []
    try:
        with directory.store_errors(opened.path):
            for path in journal_files(opened):
                writer, generation = journal.parse_name(path) or (0, 0)
                alive = opened.is_alive(writer)
                try:
                    if not stat.S_ISREG(path.stat().st_mode):
                        raise OSError(errno.EINVAL, "it is no file", str(path))
                    held.append(Descriptor(path))
                except FileNotFoundError:
                    continue  # committed and deleted since it was listed
                files.append(JournalFile(path, held[-1].fileno(), writer, generation, alive))
        yield files
    finally:
        for one in held:
            one.close()


class StoreSnapshot:
    """A snapshot of the records, with the journals beyond it. Valid inside the `look` that made it."""

    def __init__(self, opened: Opened, reading: ReadTransaction, files: list[JournalFile]) -> None:
        self.opened = opened
        self.reading = reading
        self._alive = {file.writer: file.alive for file in files}
        self.tails = [tail for file in files if (tail := self._tail(file)) is not None]

    def is_alive(self, writer: int) -> bool:
        """Whether the writer was alive when its journal was opened."""
        known = self._alive.get(writer)
        return self.opened.is_alive(writer) if known is None else known

    def _tail(self, file: JournalFile) -> Tail | None:
        start = os.pread(file.fd, 1 << 16, 0)
        found = journal.read_header(start)
        if found is None:
            if not journal.is_journal(start):
                warn_of_record(f"{file.path} is not a journal; it was skipped")
            return None
        about, at = found
        info = writer_info(self.reading, file.writer)
        if info is not None:
            if info.closed or info.generation > file.generation:
                return None
            if info.generation == file.generation:
                at = info.offset
        return Tail(file, about, at)

    def runs(self) -> Iterator[tuple[int, RunInfo]]:
        """The number and committed totals of every run. Damaged ones are skipped with a warning."""
        return ((run, RunInfo(name, *totals[1:])) for run, name, totals in self.totals())

    def totals(self) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """`runs` with the totals as `record_format.unpack_totals` returns them."""
        unpack = record_format.unpack_totals
        for key, sealed in self.reading.items(b"r"):
            if key[:1] != b"r":
                return
            run = int.from_bytes(key[1:], "big")
            try:
                yield run, *unpack(key, sealed)
            except BadValue:
                warn_of_record(f"the totals of run number {run} in {self.opened.path} are damaged; it was skipped")

    def run(self, run: int) -> RunInfo:
        """The totals of a run; raises `DamagedStore`."""
        key = record_format.run_key(run)
        try:
            return record_format.unpack_run(key, self.reading.get(key) or b"")
        except BadValue as error:
            raise DamagedStore(f"run number {run} of {self.opened.path}: {error}") from error

    def tails_of(self, run: int) -> list[Tail]:
        """The journals of a run beyond the snapshot."""
        return [tail for tail in self.tails if tail.run == run]


def find_run(reading: ReadTransaction | WriteTransaction, name: str) -> int | None:
    """The number of the run with a name; None if there is none."""
    key = record_format.name_key(name)
    sealed = reading.get(key)
    return None if sealed is None else int.from_bytes(record_format.unseal(key, sealed), "big")


def writer_info(reading: ReadTransaction | WriteTransaction, writer: int) -> WriterInfo | None:
    """The stored information about a writer; None if there is none."""
    key = record_format.writer_key(writer)
    sealed = reading.get(key)
    return None if sealed is None else record_format.unpack_writer(key, sealed)


_LISTED = 20


def lines_of(view: StoreSnapshot, name: str | None) -> RunLines:
    """The run of that name, or the only run of the store. Raises `UnknownRun` and `WhichRun`."""
    if name is not None:
        run = find_run(view.reading, name) if isinstance(name, str) and name else None
        if run is None:
            known = [info.name for _, info in view.runs()]
            raise UnknownRun(f"there is no run {name!r} in {view.opened.path}{nearest(str(name), known)}")
        return RunLines(view, run)
    runs = list(view.runs())
    if not runs:
        raise WhichRun(f"{view.opened.path} holds no run yet")
    if len(runs) > 1:
        names = ", ".join(repr(info.name) for _, info in runs[:_LISTED])
        more = f" and {len(runs) - _LISTED} more" if len(runs) > _LISTED else ""
        raise WhichRun(f"{view.opened.path} holds several runs, say which: {names}{more}")
    return RunLines(view, runs[0][0])


def path_in(lines: RunLines, name: str) -> str:
    """The path of a name in a run; ``took_us`` and ``nodes`` are paths themselves. Raises `UnknownName`.

    Names without any value are accepted for the loss, which is the default, for fields of the engine's facts, and in a
    run without forwards.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of a number is a text such as 'loss', not {name!r}")
    if name in ("took_us", "nodes"):
        return name
    path = lines.path_of(name)
    kind, field = parted_path(path)
    if path == "loss.value" or path in lines.summarised_fields():
        return path
    if kind in KINDS and field in KINDS[kind].__annotations__:
        return path
    if lines.highest() < 0 or lines.was_said(path):
        return path
    known = lines.names()
    last = ", ".join(sorted(lines.said_last())[:_LISTED]) or "nothing"
    raise UnknownName(
        f"run {lines.name!r} has no number said as {name!r}; its last forward has {last}{nearest(name, known)}"
    )


def first_of(lines: RunLines, last: int | None, since: int | None) -> int:
    """The first forward of the last `last`, or from `since` on; `lines` is restricted to it and what follows."""
    first = since or 0
    if last is not None:
        first = max(first, lines.highest() + 1 - last)
    if first:
        lines.only(first)
    return first

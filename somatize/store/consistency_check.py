"""Everything that must hold in a store, held against what is there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import msgpack

from somatize.errors import DamagedStore, SomatizeError

from . import directory, journal, schema, values
from .lmdb_environment import BadValue, ReadTransaction
from .lmdb_files import verify
from .open_store import Opened
from .record_format import Chunk, unpack
from .recovery import journal_files
from .rows import JournalRows
from .schema import RunInfo

_ALL_PAGES = 1 << 40


def check(opened: Opened) -> list[str]:
    """A sentence for each broken invariant; none if all holds. Reads everything, so it takes a while."""
    wrong = [f"{opened.path / name} {wrong}" for name, wrong in directory.parts(opened.path).items() if wrong]
    before = len(wrong)
    for environment in (opened.records, opened.values):
        try:
            verify(environment.path, _ALL_PAGES)
        except DamagedStore as error:
            wrong.append(str(error))
    if len(wrong) > before:
        return wrong  # what the pages lead to cannot be trusted
    wrong += opened.records.read_retried(lambda reading: list(_records(reading)))
    wrong += opened.values.read_retried(lambda reading: list(_values(opened, reading)))
    wrong += _journals(opened)
    return wrong


def _records(reading: ReadTransaction) -> Iterator[str]:
    runs: dict[int, RunInfo] = {}
    for key, sealed in _kind(reading, b"r"):
        try:
            runs[schema.run_of(key)] = schema.unpack_run(key, sealed)
        except BadValue:
            yield f"the totals of run number {schema.run_of(key)} are damaged"
    yield from _names(reading, runs)
    for run, info in runs.items():
        yield from _Run(reading, run, info).check()
    for kind in schema.OF_RUN:
        for key, _ in _kind(reading, kind):
            if schema.run_of(key) not in runs:
                yield f"the key {key!r} belongs to no run"


def _kind(reading: ReadTransaction, prefix: bytes) -> Iterator[tuple[bytes, bytes | memoryview]]:
    for key, value in reading.items(prefix):
        if not key.startswith(prefix):
            return
        yield key, value


def _names(reading: ReadTransaction, runs: dict[int, RunInfo]) -> Iterator[str]:
    found: dict[int, bytes] = {}
    for key, sealed in _kind(reading, b"n"):
        try:
            found[int.from_bytes(schema.unseal(key, sealed), "big")] = key
        except BadValue:
            yield f"the name under {key!r} is damaged"
    for run, info in runs.items():
        if found.pop(run, None) != schema.name_key(info.name):
            yield f"run {info.name!r} is not found by its name"
    for run, key in found.items():
        yield f"the name under {key!r} leads to run number {run}, which is not there"


class _Run:
    """One run's invariants."""

    def __init__(self, reading: ReadTransaction, run: int, info: RunInfo) -> None:
        self._reading = reading
        self._run = run
        self._info = info
        self._forwards: Counter[int] = Counter()
        self._states: Counter[int] = Counter()
        self._took = 0

    def check(self) -> Iterator[str]:
        for sentence in self._check():
            yield f"run {self._info.name!r}: {sentence}"

    def _check(self) -> Iterator[str]:
        for key, value in self._of(b"c"):
            first, _ = schema.block_of(key)
            try:
                yield from self._block(key, Chunk(value))
            except (BadValue, ValueError, IndexError) as error:
                yield f"the block of forward {first}: {error}"
        for key, _ in self._of(b"b"):
            if self._reading.get(b"c" + key[1:]) is None:
                yield f"the facts from forward {schema.block_of(key)[0]} on have no columns"
        yield from self._apart()
        yield from self._writers()
        yield from self._totals()

    def _of(self, kind: bytes) -> Iterator[tuple[bytes, bytes | memoryview]]:
        return _kind(self._reading, schema.run_prefix(kind, self._run))

    def _block(self, key: bytes, chunk: Chunk) -> Iterator[str]:
        columns = {name: chunk.texts(name) for name in chunk.names if "." in name}
        forwards, ends, crcs = (list(chunk.integers(name)) for name in ("forward", "end", "crc"))
        states, took = list(chunk.integers("state")), list(chunk.integers("took_us"))
        packed = self._reading.get(b"b" + key[1:])
        self._forwards.update(forwards)
        self._states.update(states)
        self._took += sum(us for us in took if us >= 0)
        lengths = {*map(len, columns.values()), *map(len, (forwards, ends, crcs, states, took))}
        if lengths != {chunk.rows}:
            yield f"the columns from forward {forwards[0]} on have different lengths"
        if forwards != sorted(set(forwards)) or forwards[0] != schema.block_of(key)[0]:
            yield f"the numbers from forward {forwards[0]} on are not in order"
        if forwards[-1] - forwards[0] > self._info.span:
            yield f"the block of forward {forwards[0]} is wider than it should be"
        if packed is None or len(packed) != ends[-1]:
            yield f"the facts from forward {forwards[0]} on are missing or cut off"
            return
        for row, forward in enumerate(forwards):
            body = bytes(packed[ends[row - 1] if row else 0 : ends[row]])
            if crc32(body) != crcs[row] or not _unpacks(body):
                yield f"the record of forward {forward} is damaged"

    def _apart(self) -> Iterator[str]:
        opened = set()
        for kind, what in ((b"o", "the open forward"), (b"l", "the lost forward")):
            for key, sealed in self._of(kind):
                opened.add(schema.forward_of(key))
                try:
                    schema.unpack_map(key, sealed)
                except BadValue:
                    yield f"{what} {schema.forward_of(key)} is damaged"
        for key, sealed in self._of(b"t"):
            try:
                schema.unpack_map(key, sealed)
            except BadValue:
                yield f"the open task under {key!r} is damaged"
        self._forwards.update(schema.forward_of(key) for key, _ in self._of(b"o"))
        for key, sealed in self._of(b"p"):
            forward = schema.forward_of(key)
            try:
                whole = _unpacks(schema.unseal(key, sealed)[8:])
            except BadValue:
                whole = False
            if not whole:
                yield f"facts that came in parts, of forward {forward}, are damaged"
            if forward != schema.OWN and forward not in self._forwards:
                yield f"there are facts of forward {forward}, which is not there"

    def _writers(self) -> Iterator[str]:
        for key, _ in self._of(b"v"):
            writer = schema.writer_key(schema.writer_of(key))
            try:
                if schema.unpack_writer(writer, self._reading.get(writer) or b"").run != self._run:
                    yield f"writer {schema.writer_of(key):x} is one of another run"
            except BadValue:
                yield f"writer {schema.writer_of(key):x} is damaged or missing"
        for key, sealed in self._of(b"a"):
            try:
                schema.unpack_map(key, sealed)
            except BadValue:
                yield f"what writer {schema.writer_of(key):x} says about the run is damaged"

    def _totals(self) -> Iterator[str]:
        twice = [forward for forward, count in self._forwards.items() if count > 1]
        if twice:
            yield f"forwards {sorted(twice)[:10]} are there more than once"
        rows = sum(self._states.values())
        said = (self._info.rows, self._info.broke, self._info.interrupted, self._info.lost, self._info.took_us)
        held = (rows, *(self._states[state] for state in (schema.BROKE, schema.INTERRUPTED, schema.LOST)), self._took)
        if said != held:
            yield f"its totals say {said}, and its records {held}"


def _unpacks(body: bytes) -> bool:
    try:
        return all(isinstance(fact, dict) for fact in unpack([body]))
    except (ValueError, msgpack.UnpackException):
        return False


def _values(opened: Opened, reading: ReadTransaction) -> Iterator[str]:
    held: set[str] = set()
    for digest, data in values.digests(reading):
        held.add(digest)
        file = opened.path / directory.FILES / digest
        content: Callable[[], bytes] = file.read_bytes if not data and digest != values.digest_of(b"") else lambda: data  # noqa: B023
        try:
            if values.digest_of(content()) != digest:
                yield f"the bytes {digest} are not what their digest says"
        except OSError as error:
            yield f"{file} cannot be read: {error.strerror}"
    for kind in (b"n", b"k"):
        for key, sealed in _kind(reading, kind):
            try:
                name, digest, *_ = msgpack.unpackb(schema.unseal(key, sealed))
            except BadValue:
                yield f"the name under {key!r} is damaged"
                continue
            if digest not in held:
                yield f"{name!r} points at {digest}, which is not there"


def _journals(opened: Opened) -> list[str]:
    wrong = []
    for path in journal_files(opened):
        try:
            wrong += [f"{path}: {sentence}" for sentence in _journal(path)]
        except FileNotFoundError:
            pass  # committed meanwhile
        except (OSError, SomatizeError) as error:
            wrong.append(f"{path}: {error}")
    return wrong


def _journal(path: Path) -> Iterator[str]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        content = file.read()
    found = journal.read_header(content)
    if found is None:
        if not journal.is_journal(content):
            yield "it is not a journal"
        return
    gathered = JournalRows(0, found[0]["fields"]).take(content[found[1] :], found[1])
    for at, length in gathered.damaged:
        yield f"{length} bytes from {at} on are damaged"

"""Store maintenance: listing, sizes, checking, forgetting and renaming runs, copying, compacting."""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zlib import crc32

import msgpack

from somatize.errors import BadName, BadRun, DamagedStore, NoStore, RecordError, SomatizeError, UnknownRun, nearest

from . import directory, journal, record_format, values
from .lmdb_environment import BadValue, Environment, ReadTransaction, WriteTransaction
from .lmdb_files import verify
from .open_store import Opened, journal_files
from .record_format import Chunk, RunInfo, unpack
from .recovery import live_writers, opening_alone, recover_journals
from .rows import JournalRows
from .run_reader import RunLines, StoreSnapshot, find_run, look
from .run_summary import SummaryUpdate, checked_tags
from .values import Named, check_name

_ALL_PAGES = 1 << 40


def check(opened: Opened) -> list[str]:
    """A sentence for each broken invariant of a store. Reads everything."""
    wrong = [f"{opened.path / name} {wrong}" for name, wrong in directory.part_faults(opened.path).items() if wrong]
    before = len(wrong)
    for environment in (opened.records, opened.values):
        try:
            verify(environment.path, _ALL_PAGES)
        except DamagedStore as error:
            wrong.append(str(error))
    if len(wrong) > before:
        return wrong  # the content of damaged pages cannot be checked
    wrong += opened.records.read_retried(lambda reading: list(_records(reading)))
    wrong += opened.values.read_retried(lambda reading: list(_values(opened, reading)))
    wrong += _journals(opened)
    return wrong


def _records(reading: ReadTransaction) -> Iterator[str]:
    runs: dict[int, RunInfo] = {}
    for key, sealed in _items(reading, b"r"):
        try:
            runs[record_format.run_of(key)] = record_format.unpack_run(key, sealed)
        except BadValue:
            yield f"the totals of run number {record_format.run_of(key)} are damaged"
    yield from _check_names(reading, runs)
    for run, info in runs.items():
        yield from _Run(reading, run, info).check()
    for kind in record_format.OF_RUN:
        for key, _ in _items(reading, kind):
            if record_format.run_of(key) not in runs:
                yield f"the key {key!r} belongs to no run"


def _items(reading: ReadTransaction | WriteTransaction, prefix: bytes) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """The keys with a prefix, and their values."""
    for key, value in reading.items(prefix):
        if not key.startswith(prefix):
            return
        yield key, value


def _keys(txn: WriteTransaction, prefix: bytes) -> list[bytes]:
    return [key for key, _ in _items(txn, prefix)]


def _check_names(reading: ReadTransaction, runs: dict[int, RunInfo]) -> Iterator[str]:
    found: dict[int, bytes] = {}
    for key, sealed in _items(reading, b"n"):
        try:
            found[int.from_bytes(record_format.unseal(key, sealed), "big")] = key
        except BadValue:
            yield f"the name under {key!r} is damaged"
    for run, info in runs.items():
        if found.pop(run, None) != record_format.name_key(info.name):
            yield f"run {info.name!r} is not found by its name"
    for run, key in found.items():
        yield f"the name under {key!r} leads to run number {run}, which is not there"


class _Run:
    """Checks the invariants of one run."""

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
            first, _ = record_format.block_of(key)
            try:
                yield from self._block(key, Chunk(value))
            except (BadValue, ValueError, IndexError) as error:
                yield f"the block of forward {first}: {error}"
        for key, _ in self._of(b"b"):
            if self._reading.get(b"c" + key[1:]) is None:
                yield f"the facts from forward {record_format.block_of(key)[0]} on have no columns"
        yield from self._apart()
        yield from self._writers()
        yield from self._totals()

    def _of(self, kind: bytes) -> Iterator[tuple[bytes, bytes | memoryview]]:
        return _items(self._reading, record_format.run_prefix(kind, self._run))

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
        if forwards != sorted(set(forwards)) or forwards[0] != record_format.block_of(key)[0]:
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
                opened.add(record_format.forward_of(key))
                try:
                    record_format.unpack_map(key, sealed)
                except BadValue:
                    yield f"{what} {record_format.forward_of(key)} is damaged"
        for key, sealed in self._of(b"t"):
            try:
                record_format.unpack_map(key, sealed)
            except BadValue:
                yield f"the open task under {key!r} is damaged"
        self._forwards.update(record_format.forward_of(key) for key, _ in self._of(b"o"))
        for key, sealed in self._of(b"p"):
            forward = record_format.forward_of(key)
            try:
                whole = _unpacks(record_format.unseal(key, sealed)[8:])
            except BadValue:
                whole = False
            if not whole:
                yield f"facts that came in parts, of forward {forward}, are damaged"
            if forward != record_format.OWN and forward not in self._forwards:
                yield f"there are facts of forward {forward}, which is not there"

    def _writers(self) -> Iterator[str]:
        for key, _ in self._of(b"v"):
            writer = record_format.writer_key(record_format.writer_of(key))
            try:
                if record_format.unpack_writer(writer, self._reading.get(writer) or b"").run != self._run:
                    yield f"writer {record_format.writer_of(key):x} is one of another run"
            except BadValue:
                yield f"writer {record_format.writer_of(key):x} is damaged or missing"
        for key, sealed in self._of(b"a"):
            try:
                record_format.unpack_map(key, sealed)
            except BadValue:
                yield f"what writer {record_format.writer_of(key):x} says about the run is damaged"

    def _totals(self) -> Iterator[str]:
        twice = [forward for forward, count in self._forwards.items() if count > 1]
        if twice:
            yield f"forwards {sorted(twice)[:10]} are there more than once"
        rows = sum(self._states.values())
        said = (self._info.rows, self._info.broke, self._info.interrupted, self._info.lost, self._info.took_us)
        held = (
            rows,
            *(self._states[state] for state in (record_format.BROKE, record_format.INTERRUPTED, record_format.LOST)),
            self._took,
        )
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
        for key, sealed in _items(reading, kind):
            try:
                name, digest, *_ = msgpack.unpackb(record_format.unseal(key, sealed))
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
    gathered = JournalRows(0, found[0]["fields"]).read(content[found[1] :], found[1])
    for at, length in gathered.damaged:
        yield f"{length} bytes from {at} on are damaged"


def forwards_named(opened: Opened, prefix: str) -> list[Named]:
    """The names of all forwards that begin with `prefix`, by run and number."""

    def work(view: StoreSnapshot) -> list[Named]:
        found: list[Named] = []
        for run, info in sorted(view.runs(), key=lambda one: one[1].name):
            start = f"run/{quote(info.name, safe='')}/"
            if start.startswith(prefix) or prefix.startswith(start):
                found += _names_of_run(RunLines(view, run), start, prefix)
        return found

    return look(opened, work)


def _names_of_run(lines: RunLines, start: str, prefix: str) -> list[Named]:
    rows = [(line.forward, line.when, line.state, line.writer) for line in lines.lines.values()]
    for block in lines.blocks():
        try:
            whens, states = block.chunk.integers("when"), block.chunk.integers("state")
        except BadValue as error:
            lines.damaged(block, error)
            continue
        rows += [
            (forward, when, state, block.writer)
            for forward, when, state in zip(block.forwards, whens, states, strict=True)
        ]
    rows.sort()
    named = [
        Named(f"{start}{forward}", when / 1e6, {"state": record_format.STATES[state], "writer": f"{writer:015x}"})
        for forward, when, state, writer in rows
    ]
    return [one for one in named if one.name.startswith(prefix)] if len(prefix) > len(start) else named


def size_of_runs(opened: Opened, names: list[str]) -> dict[str, int]:
    """The size in bytes of the committed keys and values of each run that exists.

    Reads no records: one step for each block of up to 2,048.
    """

    def weighed(view: StoreSnapshot) -> dict[str, int]:
        found = ((name, find_run(view.reading, name)) for name in names)
        return {name: _of_run(view, run) for name, run in found if run is not None}

    return look(opened, weighed)


def _of_run(view: StoreSnapshot, run: int) -> int:
    total = 0
    for kind in record_format.OF_RUN:
        items = _items(view.reading, record_format.run_prefix(kind, run))
        total += sum(len(key) + len(value) for key, value in items)
    return total


def size_of_directory(path: Path) -> int:
    """The bytes that a directory and everything in it occupy on the disk."""
    total = 0
    for one in path.rglob("*"):
        try:
            total += one.lstat().st_blocks * 512
        except FileNotFoundError:
            continue  # committed meanwhile
    return total


def forget(opened: Opened, names: Iterable[str]) -> None:
    """Delete runs with all their records: all of them or none.

    Raises `UnknownRun`, and `RecordError` for a run that is open for writing.
    """
    wanted = list(names)
    with opening_alone(opened):
        recover_journals(opened)
        _with_reserve(opened, lambda: opened.records.write(lambda txn: _forget_all(opened, txn, wanted)))


def _with_reserve(opened: Opened, work: Callable[[], None]) -> None:
    """Run `work`, which makes room on the disk; if the disk is full, again without the reserve file."""
    try:
        work()
    except OSError as error:
        if not directory.is_disk_full(error) or not directory.release_reserve(opened.path):
            raise
        work()
    finally:
        directory.reserve(opened.path)


def rename(opened: Opened, name: str, to: str) -> None:
    """Rename a run. Raises `UnknownRun`, `BadRun`, and `RecordError` if it is open for writing."""
    try:
        check_name(to, "a run's name")
    except BadName as error:
        raise BadRun(str(error)) from None
    with opening_alone(opened):
        recover_journals(opened)
        opened.records.write(lambda txn: _rename(txn, _idle_run(opened, txn, name), name, to))


def annotate(opened: Opened, name: str, tags: Iterable[str] | None, note: str | None) -> None:
    """Set the tags and the note of a run. Raises `UnknownRun`."""
    found = None if tags is None else checked_tags(tags)
    opened.must_be_writable()

    def work(txn: WriteTransaction) -> None:
        run = find_run(txn, name)
        if run is None:
            raise UnknownRun(f"there is no run {name!r} in {opened.path}{nearest(name, _names(txn))}")
        SummaryUpdate(txn, run).annotate(found, note)

    opened.flush()  # the tags that recorders of this process were given come first
    opened.records.write(work)


def _idle_run(opened: Opened, txn: WriteTransaction, name: str) -> int:
    run = find_run(txn, name)
    if run is None:
        raise UnknownRun(f"there is no run {name!r} in {opened.path}{nearest(name, _names(txn))}")
    if live_writers(opened, run):
        raise RecordError(f"run {name!r} of {opened.path} is being recorded to; close its recorders first")
    return run


def _names(txn: WriteTransaction) -> list[str]:
    return [record_format.unpack_run(key, sealed).name for key, sealed in _items(txn, b"r")]


def _forget_all(opened: Opened, txn: WriteTransaction, names: list[str]) -> None:
    for run in {_idle_run(opened, txn, name) for name in names}:
        _forget(txn, run)


def _forget(txn: WriteTransaction, run: int) -> None:
    key = record_format.run_key(run)
    info: RunInfo = record_format.unpack_run(key, txn.get(key) or b"")
    for mark in _keys(txn, record_format.run_prefix(b"v", run)):
        txn.delete(record_format.writer_key(record_format.writer_of(mark)))
    for kind in record_format.OF_RUN:
        for held in _keys(txn, record_format.run_prefix(kind, run)):
            txn.delete(held)
    txn.delete(record_format.name_key(info.name))
    txn.delete(key)


def _rename(txn: WriteTransaction, run: int, name: str, to: str) -> None:
    if to == name:
        return
    if find_run(txn, to) is not None:
        raise BadRun(f"there is a run {to!r} already; forget it first, or choose another name")
    key = record_format.name_key(to)
    txn.delete(record_format.name_key(name))
    txn.put(key, record_format.seal(key, run.to_bytes(4, "big")))
    key = record_format.run_key(run)
    txn.put(key, record_format.pack_run(key, record_format.unpack_run(key, txn.get(key) or b"")._replace(name=to)))


def compact(opened: Opened) -> None:
    """Give free space back to the disk; see `Store.compact`."""
    with opening_alone(opened):
        try:
            recover_journals(opened)
            opened.flush()
        except OSError as error:
            if not directory.is_disk_full(error):
                raise  # without room, entries stay in the journals, which compacting does not touch
        # The larger one first: the space it frees is room for the other.
        waiting = sorted((opened.values, opened.records), key=lambda one: one.path.stat().st_size)
        _with_reserve(opened, lambda: _compact(waiting))


def _compact(waiting: list[Environment]) -> None:
    """Compact each, the last first, and remove it from the list, so that a second call continues."""
    while waiting:
        waiting[-1].compact()
        waiting.pop()


def copy(opened: Opened, target: Path, make: Callable[[Path], Any]) -> None:
    """Copy a store to a new directory, also while others write to it.

    The copy has everything that was recorded before it began; open forwards are lost in it. `make` completes the new
    store. A copy that fails or is interrupted leaves the target as it was.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise NoStore(f"{target} is there already; a store is copied to a place of its own")
    if target.is_relative_to(opened.path):
        raise NoStore(f"{target} lies inside of {opened.path}; a store is copied to a place of its own")
    opened.flush()
    was_there = target.exists()
    target.mkdir(parents=True, exist_ok=True)
    try:
        _copy_into(opened, target)
        make(target)
    except BaseException:
        for one in target.iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
        if not was_there:
            target.rmdir()
        raise


def _copy_into(opened: Opened, target: Path) -> None:
    # The journals first: the records say which of their entries were committed meanwhile.
    shutil.copytree(opened.journals, target / directory.JOURNALS, copy_function=_copy_if_there)
    for environment in (opened.records, opened.values):
        _copy_environment(environment, target)
    shutil.copytree(opened.path / directory.FILES, target / directory.FILES, copy_function=_copy_if_there)


def _copy_environment(environment: Environment, target: Path) -> None:
    environment.copy_to(directory.generation_of(target, environment.name, 0))


def _copy_if_there(source: str, target: str) -> None:
    if not stat.S_ISREG(Path(source).lstat().st_mode if os.path.lexists(source) else 0):
        return  # not a file of a store; reading a device may never end
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError:
        pass  # committed and deleted meanwhile

"""Opening a writer: commit the journals of dead writers, register the run, and set up its numbering.

All of this holds one lock of the store, so that two processes that open a run at once agree on who is alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from somatize.errors import DamagedStore, StoreError
from somatize.facts import encodable
from somatize.utils.interrupts import Descriptor
from somatize.utils.notices import warn_of_record

from . import journal, locks, record_format
from .commit import commit_rows, end_open
from .journal import read_slice
from .journal_reader import warn_of_damage
from .lmdb_environment import BadValue, ReadTransaction, WriteTransaction
from .open_store import Opened, Reference, in_service_thread, journal_files
from .record_format import RunInfo
from .rows import JournalRows
from .run_reader import find_run, writer_info
from .run_summary import origin, why_killed
from .writer import Writer

_SLICE = 4 << 20


@contextmanager
def opening_alone(opened: Opened) -> Iterator[None]:
    """Hold the store's lock on opening: no writer is opened or recovered meanwhile. Open writers are not affected."""
    opened.must_be_writable()
    with opened.opening:
        within = opened.opening_held  # by this thread, if a signal handler interrupted it
        try:
            opened.opening_held = True
            opened.locks.hold(locks.OPENING)  # again if held: the interrupted call may not have taken it yet
            yield
        finally:
            opened.opening_held = within
            if not within:
                opened.locks.release(locks.OPENING)


def open_writer(
    reference: Reference,
    name: str,
    fields: Sequence[str],
    taken: Callable[[Writer], object] | None = None,
    parent: int = 0,
) -> Writer:
    """Open a writer of a run; the run is registered if the store has none of that name.

    The writer keeps `reference` and gives it back when it closes. `parent` is the writer that this process was forked
    from. `taken` is called with the writer before it is
    returned, because an interrupt could lose the returned object. Raises `StoreReadOnly`, and `StoreError` if the
    run cannot be registered.
    """
    opened = reference.opened
    for left in [one for one in list(opened.writers.values()) if one.is_abandoned()]:
        left.close_without_errors()  # recorders that were dropped: close their files before opening more
    with opening_alone(opened):
        try:
            recover_journals(opened)
        except OSError as error:
            warn_of_record(f"{opened.path}: what dead writers left is not taken in yet ({error.strerror or error})")
        run = _enter(opened, name)
        following = _number_finder(opened, run)
        made: list[Writer] = []
        try:
            in_service_thread(lambda: made.append(Writer(reference, name, run, fields, identity(parent))))
            writer = made[0]
            _join(opened, writer, following)
            _begin_journal(writer)
            if taken is not None:
                taken(writer)
            return writer
        except OSError as error:
            for writer in made:
                writer.discard()
            raise StoreError(f"run {name!r} cannot be entered in {opened.path}: {error.strerror or error}") from error
        except BaseException:
            for writer in made:
                writer.discard()
            raise


def _begin_journal(writer: Writer) -> None:
    try:
        writer.start_journal()
    except OSError:
        pass  # entries are kept in memory, and each one tries again


def identity(parent: int = 0) -> dict[str, Any]:
    """The identity of this process, as pids are reused; and its `parent`, the writer it was forked from."""
    rank = os.environ.get("RANK", "").strip()
    return {
        **({"parent": parent} if parent else {}),
        **({"rank": encodable(rank)} if rank else {}),
        "pid": os.getpid(),
        **origin(),
        "started": _started(),
        "opened": time.time_ns() // 1000,
        "argv0": encodable(sys.argv[0]) if sys.argv else "",
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _started() -> str:
    # The 22nd field: clock ticks since boot. The name before the last ")" may contain blanks.
    fields = _read("/proc/self/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def _enter(opened: Opened, name: str) -> int:
    known = opened.records.read_retried(lambda reading: find_run(reading, name))
    if known is not None:
        return known
    try:
        return opened.records.write(lambda txn: _register(txn, name))
    except OSError as error:
        raise StoreError(f"run {name!r} cannot be entered in {opened.path}: {error.strerror or error}") from error


def _register(txn: WriteTransaction, name: str) -> int:
    known = find_run(txn, name)
    if known is not None:
        return known
    sealed = txn.get(record_format.NEXT_RUN)
    run = 1 if sealed is None else int.from_bytes(record_format.unseal(record_format.NEXT_RUN, sealed), "big")
    txn.put(record_format.NEXT_RUN, record_format.seal(record_format.NEXT_RUN, (run + 1).to_bytes(4, "big")))
    key = record_format.name_key(name)
    txn.put(key, record_format.seal(key, run.to_bytes(4, "big")))
    key = record_format.run_key(run)
    txn.put(key, record_format.pack_run(key, RunInfo(name)))
    return run


def _number_finder(opened: Opened, run: int) -> Callable[[], int]:
    """A function that computes the next forward number of a run, from its journals and records."""

    def following() -> int:
        # The journals first: an entry that is no longer in one by then is in the records.
        appended = max((_highest_in(path, run) for path in journal_files(opened)), default=-1)
        return max(appended, opened.records.read_retried(lambda reading: _highest(reading, run))) + 1

    return following


def _highest(reading: ReadTransaction, run: int) -> int:
    key = record_format.run_key(run)
    highest = record_format.unpack_run(key, reading.get(key) or b"").highest
    prefix = record_format.run_prefix(b"o", run)
    for key, _ in reading.items(prefix):
        if not key.startswith(prefix):
            break
        highest = max(highest, record_format.forward_of(key))
    return highest


def _highest_in(path: Path, run: int) -> int:
    try:
        with path.open("rb") as file:
            content = file.read()
    except FileNotFoundError:
        return -1
    found = journal.read_header(content)
    if found is None or found[0]["run"] != run:
        return -1
    gathered = JournalRows(0, ()).read(content[found[1] :], 0)
    return max((forward for forward in gathered.rows if forward != record_format.OWN), default=-1)


def _join(opened: Opened, writer: Writer, following: Callable[[], int]) -> None:
    """Start the numbering of the run's gate, unless another writer of this process did."""

    def others() -> set[int]:
        return live_writers(opened, writer.run) - set(opened.writers)

    if writer.gate.counts:
        return
    if others():
        writer.gate.join(following, lambda: bool(others()))
    else:
        writer.gate.begin(following())


def live_writers(opened: Opened, run: int | None = None) -> set[int]:
    """The ids of the live writers of a run, or of all runs, including those of this process."""
    live: set[int] = set()
    for path in journal_files(opened):
        writer, _ = journal.parse_name(path) or (0, 0)
        if writer in live or not opened.is_alive(writer):
            continue
        try:
            with path.open("rb") as file:
                found = journal.read_header(file.read(1 << 16))
        except FileNotFoundError:
            continue
        if run is None or (found is not None and found[0]["run"] == run):
            live.add(writer)
    return live


def recover_journals(opened: Opened) -> None:
    """Commit the journals of dead writers and mark their open forwards as lost. Call it within `opening_alone`."""
    for path in journal_files(opened):
        writer, generation = journal.parse_name(path) or (0, 0)
        if writer in opened.writers or not opened.locks.take(locks.of_writer(writer)):
            continue
        try:
            _recover_file(opened, path, writer, generation)
        except DamagedStore as damage:
            warn_of_record(str(damage))
        finally:
            opened.locks.release(locks.of_writer(writer))
    _close_orphans(opened)


def _recover_file(opened: Opened, path: Path, writer: int, generation: int) -> None:
    try:
        file = Descriptor(path)
    except FileNotFoundError:
        return  # its writer closed since it was listed
    try:
        start = os.pread(file.fileno(), 1 << 16, 0)
        found = journal.read_header(start)
        if found is not None:
            _recover_rest(opened, file.fileno(), path, writer, generation, found)
        elif not journal.is_journal(start):
            raise DamagedStore(f"{path} is not a journal: it starts with {start[:20]!r}; move it away")
    finally:
        file.close()
    path.unlink(missing_ok=True)


def _recover_rest(
    opened: Opened, fd: int, path: Path, writer: int, generation: int, found: tuple[dict[str, Any], int]
) -> None:
    about, at = found
    # Read in a write transaction: after a process was killed between a commit and its publication, read transactions
    # still see the snapshot before it.
    known = opened.records.write(lambda txn: writer_info(txn, writer))
    if known is not None and (known.generation, known.offset) >= (generation, at):
        if known.closed or known.generation > generation:
            return
        at = known.offset
    heard = 0
    console = path.with_name(journal.console_name(writer))
    why = why_killed(about, console)
    last_one = not (path.parent / journal.file_name(writer, generation + 1)).exists()
    while True:
        gathered = JournalRows(writer, about["fields"], generation)
        gathered.read_blocks(read_slice(fd, at, _SLICE), at)
        warn_of_damage(path, gathered)
        heard = max(heard, gathered.heard())
        at = gathered.read_to or at
        closed = last_one and not gathered.read_to
        taken = (generation, at)
        opened.records.write(
            lambda txn: commit_rows(txn, about["run"], gathered, taken, about, closed=closed, heard=heard, why=why)  # noqa: B023
        )
        if not gathered.read_to:
            console.unlink(missing_ok=True)
            return


def _close_orphans(opened: Opened) -> None:
    """Mark forwards as lost that are open though their writer and its journal are gone, as after a power cut."""
    for run, writer in opened.records.read_retried(lambda reading: set(_orphans(opened, reading))):
        opened.records.write(lambda txn: end_open(txn, run, writer, ()))  # noqa: B023


def _orphans(opened: Opened, reading: ReadTransaction) -> Iterator[tuple[int, int]]:
    for key, sealed in reading.items(b"o"):
        if key[:1] != b"o":
            return
        try:
            writer = record_format.unpack_map(key, sealed)["writer"]
        except BadValue:
            continue  # reported by readers and by `check`
        if not opened.is_alive(writer):
            yield record_format.run_of(key), writer

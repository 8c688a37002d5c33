"""What a reader sees: one snapshot of the store, and over it what journals hold that is not committed yet.

The journals are opened first and the snapshot is taken after, so nothing falls between them: of what a journal
holds, the snapshot tells how much is in the store already. Nothing is written, no lock is taken, and the snapshot
ends with the call.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from somatize.errors import DamagedStore
from somatize.utils.interrupts import Descriptor
from somatize.utils.notices_part import warn

from . import directory, journal, schema
from .environment import BadValue, Reading
from .opened import Opened
from .recovery import journal_files, writer_info
from .schema import RunInfo
from .tails import JournalFile, Tail

T = TypeVar("T")


def look(opened: Opened, work: Callable[[View], T]) -> T:
    """What `work` makes of a view of the store. It may run again where the store is read without locks."""
    with _journals(opened) as files:
        return opened.records.read_retried(lambda reading: work(View(opened, reading, files)))


@contextmanager
def _journals(opened: Opened) -> Iterator[list[JournalFile]]:
    files: list[JournalFile] = []
    held: list[Descriptor] = []
    try:
        with directory.refusing(opened.path):
            for path in journal_files(opened):
                writer, generation = journal.parse_name(path) or (0, 0)
                alive = opened.is_alive(writer)
                try:
                    if not stat.S_ISREG(path.stat().st_mode):
                        raise OSError(errno.EINVAL, "it is no file", str(path))
                    held.append(Descriptor(path))
                except FileNotFoundError:
                    continue  # committed and taken away since it was listed
                files.append(JournalFile(path, held[-1].fileno(), writer, generation, alive))
        yield files
    finally:
        for one in held:
            one.close()


class View:
    """A snapshot of the records, with the journals merged in. Valid inside the `look` that made it."""

    def __init__(self, opened: Opened, reading: Reading, files: list[JournalFile]) -> None:
        self.opened = opened
        self.reading = reading
        self._alive = {file.writer: file.alive for file in files}
        self.tails = [tail for file in files if (tail := self._tail(file)) is not None]

    def is_alive(self, writer: int) -> bool:
        """Whether the writer lived when its journal was looked at."""
        known = self._alive.get(writer)
        return self.opened.is_alive(writer) if known is None else known

    def _tail(self, file: JournalFile) -> Tail | None:
        start = os.pread(file.fd, 1 << 16, 0)
        found = journal.read_header(start)
        if found is None:
            if not journal.is_journal(start):
                warn(f"{file.path} is not a journal; it was skipped")
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
        """Every run's number and totals, as far as they are committed. A damaged one is named and skipped."""
        return ((run, RunInfo(name, *totals[1:])) for run, name, totals in self.totals())

    def totals(self) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """`runs`, with what `schema.unpack_totals` gives of each."""
        unpack = schema.unpack_totals
        for key, sealed in self.reading.items(b"r"):
            if key[:1] != b"r":
                return
            run = int.from_bytes(key[1:], "big")
            try:
                yield run, *unpack(key, sealed)
            except BadValue:
                warn(f"the totals of run number {run} in {self.opened.path} are damaged; it was skipped")

    def run(self, run: int) -> RunInfo:
        """A run's totals; raises `DamagedStore`."""
        key = schema.run_key(run)
        try:
            return schema.unpack_run(key, self.reading.get(key) or b"")
        except BadValue as error:
            raise DamagedStore(f"run number {run} of {self.opened.path}: {error}") from error

    def tails_of(self, run: int) -> list[Tail]:
        """What journals hold of one run beyond the snapshot."""
        return [tail for tail in self.tails if tail.run == run]

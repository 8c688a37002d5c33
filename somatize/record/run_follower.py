"""A run that another process records, read as it grows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from somatize.errors import NewerFormat, NoStore, StoreError, nearest
from somatize.store import directory, record_format
from somatize.store.journal_reader import Tail
from somatize.store.lmdb_environment import BadValue
from somatize.store.open_store import Opened, acquire, journal_files, release
from somatize.store.run_reader import RunLines, StoreSnapshot, find_run, look, writer_info
from somatize.store.run_summary import RunEnd

from .run_query import run_row
from .run_state import Cursor, ForwardCounts, Grown, Standing, drawn_of, grown

_SETTLED = 1.0
"""Seconds for which nothing changes in a directory of which something is missing, before that is damage."""
RECORDED, DIED, ENDED = "recorded", "died", "ended"


class WriterActivity(NamedTuple):
    """A process that records a run, or did; `heard` is its last writing, in seconds since 1970."""

    pid: int
    host: str
    alive: bool
    heard: float


class _StoreLook(NamedTuple):
    """The result of one look at the store. A look may be repeated, so it changes nothing until it is over."""

    runs: int
    run: int | None = None
    name: str = ""
    standing: Standing | None = None
    cursor: Cursor | None = None
    grown: Grown | None = None
    counts: ForwardCounts = ForwardCounts()
    writers: tuple[tuple[int, WriterActivity], ...] = ()
    last: float = 0.0


class Followed:
    """A run of the store at `path` as it grows; with no `run` the one that was begun last, and then the next.

    There may be no store yet, or no such run: `waits_for` says so, and `look` goes on asking. Each `look` reads what
    is new and no more, holds no transaction afterwards and takes no lock, so a writer never waits for it; one that
    finds nothing new costs a few system calls. `of` names what is drawn; the loss, where nothing is said.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        run: str | None = None,
        of: Sequence[str] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(os.path.realpath(path))
        self.run = run
        self.standing: Standing | None = None
        """The state of the followed run; None until it exists."""
        self.runs = 0
        self.writers: dict[int, WriterActivity] = {}
        self.died_at: float | None = None
        """When the run's last writer was found dead that was alive a look before."""
        self.last = 0.0
        """When the run was written to last, in seconds since 1970; 0 before that."""
        self._of = tuple(of)
        self._clock = clock
        self._opened: Opened | None = None
        self._number: int | None = None
        self._cursor = Cursor()
        self._seen: Any = None
        self._end: tuple[Any, RunEnd | None] | None = None
        """The end of the run as it was read, and the marks of the store then."""
        self._near = ""
        self._changing: tuple[Any, float] | None = None
        """The directory's content when it was found faulty, and since when it has been so."""

    # -- how things are

    @property
    def waits_for(self) -> str:
        """The missing precondition, as a sentence; empty once a run is followed."""
        if self.standing is not None:
            return ""
        if self._opened is None:
            return f"no store at {self.path} yet"
        if self.run is None:
            return f"{self.path} holds no run yet"
        return f"{self.path} holds no run {self.run!r} yet{self._near}"

    @property
    def state(self) -> str:
        """``"recorded"`` while a writer lives, ``"died"`` if the last one did, ``"ended"`` if it closed; else empty."""
        if self.standing is None:
            return ""
        if any(writer.alive for writer in self.writers.values()):
            return RECORDED
        return DIED if self.writers else ENDED

    @property
    def end(self) -> RunEnd | None:
        """How the run ended, once no writer of it lives; None before that. Read when it is first asked for."""
        if self.state in ("", RECORDED) or self._opened is None or self._number is None:
            return None
        if self._end is None or self._end[0] != self._seen:
            number = self._number
            found = look(self._opened, lambda view: RunLines(view, number).summary().end)
            self._end = self._seen, found
        return self._end[1]

    @property
    def alive(self) -> frozenset[str]:
        """The pids of the writers that live, as text."""
        return frozenset(str(writer.pid) for writer in self.writers.values() if writer.alive)

    # -- looking

    def look(self) -> bool:
        """Read new content; False if there was none.

        Raises `NoStore` where something else lies at the path, `NewerFormat`, and `DamagedStore` of files that have
        not changed for a second: a store that is just being made, copied, removed or replaced is waited for.
        """
        opened = self._there()
        if opened is None:
            return self._lost()
        try:
            seen = _marks(opened, self.writers)
            if seen == self._seen:
                return False
            found = look(opened, self._find)
        except (FileNotFoundError, StoreError):
            if self._is_at_home(opened) and self._has_settled():
                raise
            return self._lost()
        self._seen = seen
        self._take(found)
        return True

    def _there(self) -> Opened | None:
        if self._opened is not None and self._is_at_home(self._opened):
            return self._opened
        self._let_go()
        try:
            self._opened = acquire(self.path)
            self._changing = None
        except NewerFormat:
            raise
        except NoStore:
            if not directory.may_become(self.path):
                raise
        except StoreError:
            if self._has_settled():
                raise
        return self._opened

    def _is_at_home(self, opened: Opened) -> bool:
        """Whether the store that is open is the one at the path: a renamed one is not."""
        return directory.identity(self.path) == opened.identity

    def _has_settled(self) -> bool:
        """Whether faulty files are damaged, and not just being made or removed."""
        said = directory.has_format(self.path)
        if not said:
            return said is False or not directory.may_become(self.path)
        seen, now = directory.entries(self.path), time.monotonic()
        if self._changing is None or self._changing[0] != seen:
            self._changing = seen, now
        return now - self._changing[1] >= _SETTLED

    def _lost(self) -> bool:
        """There is no store, or none any more."""
        known, self.standing = self.standing, None
        self._number, self._seen, self.writers = None, None, {}
        return known is not None

    def _find(self, view: StoreSnapshot) -> _StoreLook:
        infos = dict(view.runs())
        number = self._meant(view, {run: info.last for run, info in infos.items()})
        if number is None or not _was_written(view, number):
            self._near = nearest(self.run or "", [info.name for info in infos.values()])
            return _StoreLook(len(infos))
        lines = RunLines(view, number)
        standing, cursor = self.standing, self._cursor
        if standing is None or number != self._number or lines.name != standing.run:
            standing = Standing(lines.name, self._of or drawn_of(lines), lines.highest())
            cursor = Cursor()
        row = run_row(lines)
        holes = 0 if view.tails_of(number) else row["holes"]  # while it is written, they are about to be
        return _StoreLook(
            len(infos),
            number,
            lines.name,
            standing,
            cursor,
            grown(lines, cursor, [curve.name for curve in standing.curves]),
            ForwardCounts(row["forwards"] + holes, row["broke"], row["interrupted"], row["lost"] + holes),
            tuple((tail.writer, _writing(view, tail)) for tail in view.tails_of(number)),
            row["last"] or 0.0,
        )

    def _meant(self, view: StoreSnapshot, runs: dict[int, int]) -> int | None:
        """The number of the run to follow: of those with a living writer the one opened last, else the last one."""
        if self.run is not None:
            try:
                return find_run(view.reading, self.run)
            except BadValue:
                return None
        living = [(tail.about.get("opened", 0), tail.run) for tail in view.tails if view.is_alive(tail.writer)]
        if living:
            return max(living)[1]
        return max(runs, key=lambda run: (runs[run], run), default=None)

    def _take(self, found: _StoreLook) -> None:
        self.runs = found.runs
        before = self.state
        if found.standing is None or found.cursor is None or found.grown is None:
            self.standing, self._number = None, None
            return
        if found.standing is not self.standing:
            before, self.died_at = "", None
        self.standing, self._number = found.standing, found.run
        self._cursor = found.grown.cursor
        self.last = found.last
        self.writers = dict(found.writers)
        found.standing.take(found.grown, found.counts)
        if self.state == RECORDED:
            self.died_at = None
        elif self.state == DIED and before == RECORDED:
            self.died_at = self._clock()

    # -- let go of

    def _let_go(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            release(opened)

    def close(self) -> None:
        """Let go of the store."""
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _was_written(view: StoreSnapshot, run: int) -> bool:
    """Whether a run ever had a writer: it is entered a moment before its first one, and has not ended then."""
    prefix = record_format.run_prefix(b"v", run)
    known = next(view.reading.items(prefix), None)
    return bool(view.tails_of(run)) or view.run(run).rows > 0 or (known is not None and known[0].startswith(prefix))


def _writing(view: StoreSnapshot, tail: Tail) -> WriterActivity:
    rows = tail.gathered.rows.values()
    heard = max((row.when for row in rows), default=tail.about.get("opened", 0)) / 1e6
    if not rows and writer_info(view.reading, tail.writer) is not None:
        heard = max(heard, view.run(tail.run).last / 1e6)
    return WriterActivity(tail.about.get("pid", 0), tail.about.get("host", ""), view.is_alive(tail.writer), heard)


def _marks(opened: Opened, writers: dict[int, WriterActivity]) -> Any:
    """A key that changes whenever something is written, or a known writer dies."""
    try:
        records = opened.records.path.stat()
    except FileNotFoundError:  # it was compacted, and its successor is found by whoever reads
        return object()
    sizes = []
    for path in journal_files(opened):
        try:
            sizes.append((path.name, path.stat().st_size))
        except FileNotFoundError:
            continue
    living = [(writer, opened.is_alive(writer)) for writer in writers]
    return records.st_ino, records.st_mtime_ns, records.st_size, sizes, living

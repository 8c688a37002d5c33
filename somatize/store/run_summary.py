"""The summary of a run, stored beside its totals: how it ended, its configuration, tags and note, and its numbers.

One map per run, brought up to date by each commit, so that a list of thousands of runs opens no record. Each writer has
a `WriterEnd`; the ends of all writers of the last launch decide how the run ended.
"""

from __future__ import annotations

import math
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from somatize import facts
from somatize.errors import RecordError

from . import record_format
from .lmdb_environment import BadValue, ReadTransaction, WriteTransaction
from .record_format import Chunk, number

RUNNING, FINISHED, FAILED, INTERRUPTED, KILLED = "running", "finished", "failed", "interrupted", "killed"
ENDS = (FAILED, KILLED, INTERRUPTED, FINISHED)
"""The ends of a writer. The first of these that a writer of the last launch has is that of the run."""
NOT_CLOSED = "not closed"
"""Why a writer ended that was dropped, or left open until its process ended well."""
MOST_NUMBERS = 1000
"""The number of names of a run of which totals are kept: the first that are summarised."""


def end_of(error: BaseException | None) -> tuple[str, str]:
    """The state of a writer that ended by an exception, or without one, and why."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return FINISHED, ""
    interrupted = isinstance(error, KeyboardInterrupt | GeneratorExit) or type(error).__name__ == "CancelledError"
    return INTERRUPTED if interrupted else FAILED, facts.why(error)


def end_of_process() -> tuple[str, str]:
    """The same where the process ends: by the exception that nothing caught, as far as Python says so.

    Of ``sys.exit(3)`` it says nothing. In an interactive interpreter an exception ends no process.
    """
    uncaught = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if uncaught is None or hasattr(sys, "ps1") or sys.flags.interactive:
        return FINISHED, NOT_CLOSED
    return end_of(uncaught)


def pack_end(state: str, why: str) -> bytes:
    """The packed run information that says that a writer ends now."""
    packed: bytes = msgpack.packb({"end": [state, facts.encodable(why), time.time_ns() // 1000]})
    return packed


_BOOT, _MACHINE, _GROUPS, _GROUP = (
    Path("/proc/sys/kernel/random/boot_id"),
    Path("/etc/machine-id"),
    Path("/proc/self/cgroup"),
    Path("/sys/fs/cgroup"),
)


def origin() -> dict[str, Any]:
    """The host of this process, and what tells later why it was killed: the boot, and kills for want of memory."""
    found = {
        "host": facts.encodable(socket.gethostname()),
        "boot": _content(_BOOT),
        "machine_id": _content(_MACHINE),
    }
    kills = next((known for path in _kill_counters() if (known := _kills(path)) is not None), None)
    return found if kills is None else {**found, "oom": kills}


def why_killed(about: Mapping[str, Any], output: Path) -> str:
    """Why a writer with this `origin` was killed, as far as that is known here, and what it wrote last to its console.

    On the same machine, of the same name and id: it was restarted if it has another boot. In the same boot: out of
    memory, if the kernel killed a process of the writer's control group since the writer was opened.
    """
    from .console import last_lines, with_output

    return with_output(_cause(about), last_lines(output))


def _cause(about: Mapping[str, Any]) -> str:
    now = origin()
    if not about.get("boot") or any(about.get(key) != now[key] for key in ("host", "machine_id")):
        return ""
    if about["boot"] != now["boot"]:
        return "the machine was restarted" if now["boot"] and now["machine_id"] else ""
    if not about.get("oom"):
        return ""
    path, inode, before = about["oom"]
    known = _kills(Path(path))
    return "out of memory" if known is not None and known[1] == inode and known[2] > before else ""


def _kill_counters() -> list[Path]:
    """The files that may count the kills in the control group of this process; in a container it may be the root."""
    found = []
    for line in _content(_GROUPS).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            found += [_GROUP / group.lstrip("/") / "memory.events"]
        elif "memory" in controllers.split(","):
            found += [_GROUP / "memory" / one / "memory.oom_control" for one in (group.lstrip("/"), "")]
    return found


def _kills(path: Path) -> tuple[str, int, int] | None:
    """The path, the inode of the group (another group may have the path later), and the count of kills."""
    for line in _content(path).splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdecimal():
            return str(path), path.parent.stat().st_ino, int(count)
    return None


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


class NumberTotal(NamedTuple):
    """Totals of a number over the forwards of a run: what a fold over its curve gives.

    `said` is the number of values, `odd` of those that are NaN or infinite. `low` and `high` are of the others, NaN
    where there are none; of equal values the first forward counts. `last` is of the highest forward, whatever it is.
    """

    said: int = 0
    odd: int = 0
    last: float = math.nan
    last_at: int = -1
    low: float = math.nan
    low_at: int = -1
    high: float = math.nan
    high_at: int = -1

    def added(self, forward: int, value: float) -> NumberTotal:
        """These totals with one more value."""
        return self.joined(NumberTotal.of([forward], [value]))

    @classmethod
    def of(cls, forwards: Sequence[int], values: Sequence[float]) -> NumberTotal:
        """The totals of some values, by ascending forward."""
        if not values:
            return cls()
        last, last_at = values[-1], forwards[-1]
        total = sum(values)
        finite: Sequence[float] = values
        known: Sequence[int] = forwards
        if total - total != 0.0:  # some are not finite, or their sum is not
            pairs = [(at, value) for at, value in zip(forwards, values, strict=True) if math.isfinite(value)]
            known, finite = [at for at, _ in pairs], [value for _, value in pairs]
        if not finite:
            return cls(len(values), len(values), last, last_at)
        low, high = min(finite), max(finite)
        ends = low, known[finite.index(low)], high, known[finite.index(high)]
        return cls(len(values), len(values) - len(finite), last, last_at, *ends)

    def joined(self, other: NumberTotal) -> NumberTotal:
        """The totals of both, which have no forward in common."""
        if not self.said or not other.said:
            return self if self.said else other
        late = other if other.last_at > self.last_at else self
        lows = [(one.low, one.low_at) for one in (self, other) if one.low_at >= 0]
        highs = [(-one.high, one.high_at) for one in (self, other) if one.high_at >= 0]
        low, low_at = min(lows, default=(math.nan, -1))
        high, high_at = min(highs, default=(math.nan, -1))
        counts = self.said + other.said, self.odd + other.odd
        return NumberTotal(*counts, late.last, late.last_at, low, low_at, -high, high_at)

    def needs(self, forward: int) -> bool:
        """Whether another value of that forward changes more than its own."""
        return forward in (self.last_at, self.low_at, self.high_at) or self.odd > 0


class WriterEnd(NamedTuple):
    """When a writer was opened and how it ended, in µs since 1970; `state` is empty until it ended.

    `parent` is the writer of the process that this one was forked from: it does not count in the state of the run.
    """

    writer: int
    opened: int
    state: str = ""
    why: str = ""
    when: int = 0
    parent: int = 0
    rank: str = ""
    host: str = ""

    @classmethod
    def of(cls, writer: int, about: Mapping[str, Any]) -> WriterEnd:
        """A writer that did not end, from the head of its journal."""
        opened, parent = int(about.get("opened", 0)), int(about.get("parent", 0))
        return cls(writer, opened, parent=parent, rank=about.get("rank", ""), host=about.get("host", ""))


class RunEnd(NamedTuple):
    """How a run ended, why, when in µs since 1970 (0 while it runs), and the number of its launches."""

    state: str
    why: str
    when: int
    launches: int


def run_end(ends: Iterable[WriterEnd], alive: Iterable[int] = ()) -> RunEnd:
    """The end of a run from those of its writers, of which some are `alive`.

    Writers whose lifetimes overlap are one launch. A run is running while a counted writer lives; else its last launch
    decides: it finished if all did, else it failed, was killed or interrupted, in this order, for the reason of the
    earliest writer that ended so.
    """
    living = set(alive)
    counted = sorted((one for one in ends if not one.parent), key=lambda one: (one.opened, one.writer))
    launch: list[WriterEnd] = []
    launches, until = 0, -1.0
    for one in counted:
        if one.opened > until:
            launch, launches = [], launches + 1
        launch.append(one)
        until = max(until, math.inf if one.writer in living else max(one.when, one.opened))
    if any(one.writer in living for one in launch):
        return RunEnd(RUNNING, "", 0, launches)
    if not launch:
        return RunEnd(FINISHED, "", 0, 0)
    worst = min(launch, key=lambda one: (ENDS.index(one.state or KILLED), one.when))
    where = ""
    if len(launch) > 1:
        parts = [f"rank {worst.rank}" if worst.rank else "", f"host {worst.host}" if worst.host else ""]
        where = f" ({', '.join(filter(None, parts))})" if any(parts) else ""
    when = worst.when if worst.state != FINISHED else max(one.when for one in launch)
    return RunEnd(worst.state or KILLED, f"{worst.why}{where}" if worst.why else "", when, launches)


@dataclass
class RunSummary:
    """The stored summary of a run. `end` is None while a writer of it has not ended."""

    end: RunEnd | None = None
    tags: list[str] = field(default_factory=list)
    note: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    """The configuration of the writer that was opened last, flat: ``{"optim.lr": 0.1}``."""
    opened: int = 0
    """When that writer was opened."""
    numbers: dict[str, NumberTotal] = field(default_factory=dict)
    """By path, such as ``loss.value``: the numbers that are summarised."""

    @classmethod
    def read(cls, reading: ReadTransaction | WriteTransaction, run: int) -> RunSummary | None:
        """The summary of a run; None where there is none, as of a run of an older version. Raises `BadValue`."""
        key = record_format.run_prefix(b"e", run)
        sealed = reading.get(key)
        if sealed is None:
            return None
        known = record_format.unpack_map(key, sealed)
        end = known.get("end")
        return cls(
            None if end is None else RunEnd(*end),
            known.get("tags", []),
            known.get("note", ""),
            known.get("config", {}),
            known.get("opened", 0),
            {path: NumberTotal(*total) for path, total in known.get("numbers", {}).items()},
        )

    def write(self, txn: WriteTransaction, run: int) -> None:
        """Store it."""
        key = record_format.run_prefix(b"e", run)
        txn.put(key, record_format.pack_map(key, vars(self)))

    def add_info(self, about: Mapping[str, Any], opened: int) -> None:
        """Take over what a writer said of the run; the configuration of the one opened last counts."""
        if opened >= self.opened and "config" in about:
            self.config, self.opened = flat(about["config"]), opened
        self.tags = sorted({*self.tags, *about.get("tags", ())})
        if about.get("note"):
            self.note = about["note"]


def checked_tags(tags: Iterable[str]) -> list[str]:
    """Tags in order, each once. Raises `RecordError` for what is no text, or an empty one."""
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise RecordError(f"tags= is a list of texts, as tags=[{tags!r}]")
    found = list(tags)
    for tag in found:
        if not isinstance(tag, str) or not tag.strip():
            raise RecordError(f"tags= holds {tag!r}: a tag is a text")
    return sorted({facts.encodable(tag) for tag in found})


def flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested mappings as one, with the keys joined by dots: ``{"optim.lr": 0.1}``."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


class SummaryUpdate:
    """The summary of one run while a stretch of a journal is stored. Without changes nothing is written."""

    def __init__(self, txn: WriteTransaction, run: int) -> None:
        self._txn = txn
        self._run = run
        try:
            known = RunSummary.read(txn, run)
        except BadValue:
            known = None  # it is made anew from what it sums up
        self.summary = summed_up(txn, run) if known is None else known
        self._changed = known is None
        self._again: set[str] = set()

    def add_block(self, forwards: Sequence[int], fields: Mapping[str, Sequence[str | float | None]]) -> None:
        """Add rows that are about to be stored, by ascending forward."""
        for path, column in fields.items():
            if set(map(type, column)) == {float}:  # as nearly always
                self._add(path, forwards, column)  # type: ignore[arg-type]
                continue
            values = [number(text) if isinstance(text, str) else text for text in column]
            if None in values:
                pairs = [(at, value) for at, value in zip(forwards, values, strict=True) if value is not None]
                self._add(path, [at for at, _ in pairs], [value for _, value in pairs])
            else:
                self._add(path, forwards, values)  # type: ignore[arg-type]

    def _add(self, path: str, forwards: Sequence[int], values: Sequence[float]) -> None:
        numbers = self.summary.numbers
        if not values or path in self._again or (path not in numbers and len(numbers) >= MOST_NUMBERS):
            return
        self._changed = True
        numbers[path] = numbers.get(path, NumberTotal()).joined(NumberTotal.of(forwards, values))

    def change(self, path: str, forward: int, before: str | None, now: str) -> None:
        """A stored row has another text of a field now."""
        old, new = None if before is None else number(before), number(now)
        known = self.summary.numbers.get(path, NumberTotal())
        if old is not None and (known.needs(forward) or new is None):
            self._again.add(path)
        elif new is not None and (path in self.summary.numbers or len(self.summary.numbers) < MOST_NUMBERS):
            made = NumberTotal.of([forward], [new])
            self._changed = True
            self.summary.numbers[path] = known.joined(made)._replace(said=known.said + (old is None))

    def note_writer(self, end: WriterEnd) -> None:
        """Note a writer, and how it ended. An end that it said before counts where it says none now."""
        key = record_format.run_writer_key(b"v", self._run, end.writer)
        known = self._txn.get(key)
        if known and not end.state:
            state, why, when = _said_end(key, known)
            end = end._replace(state=state, why=why, when=when)
        value = record_format.pack_map(key, end)
        if known is None or bytes(known) != value:
            self._txn.put(key, value)
            ends = writer_ends(self._txn, self._run)
            self.summary.end = run_end(ends) if all(one.state for one in ends) else None
            self._changed = True

    def add_info(self, about: Mapping[str, Any], opened: int) -> None:
        """Take over what a writer said of the run."""
        self.summary.add_info(about, opened)
        self._changed = True

    def annotate(self, tags: list[str] | None, note: str | None) -> None:
        """Set the tags, the note, or both."""
        if tags is not None:
            self.summary.tags = tags
        if note is not None:
            self.summary.note = facts.text(note)
        self._changed = True
        self.store()

    def store(self) -> None:
        """Store the summary, with totals made anew where a value was replaced that they depended on."""
        if self._again:
            columns = number_columns(self._txn, self._run, self._again)
            self.summary.numbers.update({path: total_of(pairs) for path, pairs in columns.items() if pairs})
            for path, pairs in columns.items():
                if not pairs:
                    self.summary.numbers.pop(path, None)
        if self._changed or self._again:
            self.summary.write(self._txn, self._run)
            self._changed, self._again = False, set()


def summed_up(reading: ReadTransaction | WriteTransaction, run: int) -> RunSummary:
    """The summary of a run that has none, as of an older version, from its blocks and what its writers said."""
    made = RunSummary()
    for writer in writer_ends(reading, run):
        key = record_format.run_writer_key(b"a", run, writer.writer)
        sealed = reading.get(key)
        try:
            said = record_format.unpack_map(key, sealed) if sealed is not None else {}
        except BadValue:
            continue
        made.add_info({"config": said.get("about", {}), **said}, writer.opened)
    paths: dict[str, None] = {}
    prefix = record_format.run_prefix(b"c", run)
    for key, value in reading.items(prefix):
        if not key.startswith(prefix):
            break
        try:
            paths.update(dict.fromkeys(name for name in Chunk(value).names if "." in name))
        except BadValue:
            continue
    columns = number_columns(reading, run, list(paths)[:MOST_NUMBERS])
    made.numbers = {path: total_of(points) for path, points in columns.items() if points}
    return made


def total_of(pairs: Iterable[tuple[int, float]]) -> NumberTotal:
    """The totals of the points of a curve, in any order."""
    ordered = sorted(pairs, key=lambda pair: pair[0])
    return NumberTotal.of([forward for forward, _ in ordered], [value for _, value in ordered])


def number_columns(
    reading: ReadTransaction | WriteTransaction, run: int, paths: Iterable[str]
) -> dict[str, list[tuple[int, float]]]:
    """The stored points of some summarised fields of a run; blocks that are damaged are left out."""
    found: dict[str, list[tuple[int, float]]] = {path: [] for path in paths}
    prefix = record_format.run_prefix(b"c", run)
    for key, value in reading.items(prefix):
        if not key.startswith(prefix):
            break
        try:
            chunk = Chunk(bytes(value))
            forwards = chunk.integers("forward")
            for path, points in found.items():
                if path in chunk:
                    mask, values = chunk.numbers(path)
                    some = (
                        forwards
                        if mask is None
                        else [at for at, is_said in zip(forwards, mask, strict=True) if is_said]
                    )
                    points.extend(zip(some, values, strict=True))
        except BadValue:
            continue
    return found


def writer_ends(reading: ReadTransaction | WriteTransaction, run: int) -> list[WriterEnd]:
    """The writers of a run that committed anything. Those of older versions did not say how they ended: finished."""
    found = []
    prefix = record_format.run_prefix(b"v", run)
    for key, sealed in reading.items(prefix):
        if not key.startswith(prefix):
            break
        try:
            found.append(WriterEnd(*record_format.unpack_map(bytes(key), sealed)))
        except (BadValue, TypeError):
            found.append(_of_older_version(reading, record_format.writer_of(key)))
    return found


def _said_end(key: bytes, sealed: Any) -> tuple[str, str, int]:
    try:
        known = WriterEnd(*record_format.unpack_map(key, sealed))
    except (BadValue, TypeError):
        return "", "", 0
    return known.state, known.why, known.when


def _of_older_version(reading: ReadTransaction | WriteTransaction, writer: int) -> WriterEnd:
    key = record_format.writer_key(writer)
    try:
        info = record_format.unpack_writer(key, reading.get(key) or b"")
    except BadValue:
        return WriterEnd(writer, 0, FINISHED)
    made = WriterEnd.of(writer, info.about)
    return made._replace(state=FINISHED, when=made.opened) if info.closed else made

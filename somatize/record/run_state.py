"""The state of a run as far as it has been read, and what it has grown by since: counts, times, curves, tasks, logs.

Facts may be said of a forward after it ended, and a forward may be open while others end. So the last forwards and the
open ones are read again each time; all before them is settled.
"""

from __future__ import annotations

import math
import re
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from somatize.facts import Fact
from somatize.store import record_format
from somatize.store.lmdb_environment import BadValue
from somatize.store.node_tally import ENDINGS, Spent, Where, micro
from somatize.store.record_format import field_path, last_said, number, readings, unpack
from somatize.store.run_reader import Line, RunFactsPart, RunLines, Stored

from .run_info import progress_rows

HELD = 64
"""Forwards that are looked at again: of these, something may still be said."""
_MOST_ROWS, _MOST_BYTES = 5000, 8 << 20
"""Limits of facts that one look reads; beyond them only columns are read."""
_MOST_UNPACKED = 64 << 10
"""The size of packed facts unpacked at once for times: the newest. Rare kinds are always unpacked."""
_LAST_SAID = 64
"""Parts of a run's own record that are looked at for log records when it is met first."""
_LAST_BROKEN = 20
_RARE = ("log", "throughput", "broke", "machine", "left")


class ForwardRow(NamedTuple):
    """A forward; `took_us` is -1 where it did not end, `when` in seconds since 1970."""

    forward: int
    state: int
    took_us: int
    when: float


class NewFacts(NamedTuple):
    """Facts that are new, of one forward or, where that is None, of the run as a whole."""

    forward: int | None
    when: float
    facts: list[Fact]


class OpenTask(NamedTuple):
    """The last fact of an open task, and its time."""

    fact: Fact
    when: float


class CurveColumn(NamedTuple):
    """Numbers of one of the curves, from a stored column."""

    place: int
    forwards: Sequence[int]
    values: Sequence[float]


@dataclass
class Cursor:
    """The position up to which a run was read."""

    settled: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    """By forward that may still change: the number of bytes of its facts that were read."""
    own: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By writer: the start of the last part read of the run's own record, and how much of it was read."""


@dataclass
class Grown:
    """New content of a run. `columns` and `said` have the numbers of summarised curves; others are among the facts."""

    cursor: Cursor
    rows: list[ForwardRow] = field(default_factory=list)
    columns: list[CurveColumn] = field(default_factory=list)
    said: list[tuple[int, int, str]] = field(default_factory=list)
    """Texts of curves: the curve's position, the forward, the text."""
    broken: list[ForwardRow] = field(default_factory=list)
    told: list[NewFacts] = field(default_factory=list)
    going_on: list[Line] = field(default_factory=list)
    tasks: dict[str, OpenTask] = field(default_factory=dict)
    """All that are open, by their ids."""


def grown(lines: RunLines, cursor: Cursor, of: Sequence[str]) -> Grown:
    """The content since `cursor`; of the curves in `of`, the first is the duration of forwards."""
    return _Look(lines, cursor, of).answer()


def drawn_of(lines: RunLines) -> list[str]:
    """The default curves: the loss, or else the first summarised number."""
    names: dict[str, None] = {}
    for tail in lines.view.tails_of(lines.run):
        names.update(dict.fromkeys(tail.fields))
    for block in lines.blocks(max(0, lines.info.highest)):
        names.update({name: None for name in block.chunk.names if "." in name})
    if not names or "loss.value" in names:
        return ["loss"]
    return [next(iter(names)).removesuffix(".value")]


class _Look:
    def __init__(self, lines: RunLines, cursor: Cursor, of: Sequence[str]) -> None:
        self.lines = lines
        self.before = cursor
        self.of = of
        self.blocks = list(lines.blocks(cursor.settled))
        self.highest = lines.highest()
        self.start = self._start()
        self.paths = [self._path(name) for name in of]
        kinds = {
            *_RARE,
            *(path.rpartition(".")[0] for name in of[1:] for path in readings(name) if not self._is_summarised(path)),
        }
        marks = (bytes([0xA0 | len(kind)]) + kind.encode() for kind in kinds if len(kind) < 32)
        self.is_wanted = re.compile(b"|".join(map(re.escape, marks))).search

    def _path(self, name: str) -> str:
        """The path of a name in columns; in facts `Standing` finds it by any path."""
        paths = readings(name)
        return next((path for path in paths if len(paths) > 1 and self.lines.was_summarised(path)), paths[0])

    def _is_summarised(self, path: str) -> bool:
        return all(path in block.chunk for block in self.blocks) and self.lines.all_have_column(path)

    def _start(self) -> int:
        """The first forward of which the facts are read."""
        rows = size = 0
        start = self.highest + 1
        for block in reversed(self.blocks):
            rows, size = rows + block.chunk.rows, size + _size(block)
            if start <= self.highest + 1 - HELD and (rows > _MOST_ROWS or size > _MOST_BYTES):
                break
            start = min(start, block.forwards[0])
        start = min([start, *(number for number in self.lines.lines if number > self.highest - _MOST_ROWS)])
        return max(self.before.settled, min(start, max(0, self.highest + 1 - HELD)))

    def answer(self) -> Grown:
        made = Grown(Cursor(max(self.before.settled, self.highest + 1 - HELD)))
        for block in self.blocks:
            try:
                self._take_block(made, block)
            except BadValue as error:
                self.lines.damaged(block, error)
        for line in self.lines.lines.values():
            if line.forward >= self.start:
                made.rows.append(ForwardRow(line.forward, line.state, line.took_us, line.when / 1e6))
            if line.state == record_format.OPEN:
                made.going_on.append(line)
            self._take_line(made, line.forward, line.took_us, line.texts)
        for forward, texts in self.lines.late.items():
            self._take_line(made, forward, -1, texts)
        made.rows.sort()
        self._take_facts(made)
        self._take_own(made)
        return made

    def _take_block(self, made: Grown, block: Stored) -> None:
        chunk, forwards = block.chunk, block.forwards
        states, took, whens = (chunk.integers(name) for name in ("state", "took_us", "when"))
        begin = bisect_left(forwards, self.before.settled)
        split = max(begin, bisect_left(forwards, self.start))
        for at in range(split, len(forwards)):
            made.rows.append(ForwardRow(forwards[at], states[at], took[at], whens[at] / 1e6))
        some = [at for at in range(begin, split) if states[at] == record_format.BROKE][-_LAST_BROKEN:]
        made.broken += [ForwardRow(forwards[at], states[at], took[at], whens[at] / 1e6) for at in some]
        del made.broken[:-_LAST_BROKEN]
        names = [name if name in ("took_us", "nodes") else path for name, path in zip(self.of, self.paths, strict=True)]
        found = [_numbers(block, name, begin) for name in names] if begin < len(forwards) else []
        made.columns += [CurveColumn(place, *numbers) for place, numbers in enumerate(found) if numbers is not None]

    def _take_line(self, made: Grown, forward: int, took_us: int, texts: Mapping[str, str]) -> None:
        if took_us >= 0:
            made.said.append((0, forward, str(took_us)))
        made.said += [(place, forward, texts[path]) for place, path in enumerate(self.paths) if path in texts]

    # -- facts

    def _take_facts(self, made: Grown) -> None:
        when = {row.forward: row.when for row in made.rows}
        found: list[tuple[int, bytes]] = []
        for forward, bodies in self._bodies(made):
            whole = b"".join(bodies)
            seen = self.before.seen.get(forward, 0)
            if forward >= made.cursor.settled or self._goes_on(forward):
                made.cursor.seen[forward] = len(whole)
            if len(whole) > seen:
                found.append((forward, whole[seen:]))
        room = _MOST_UNPACKED
        for forward, body in reversed(found):
            room -= len(body)
            if room > 0 or self.is_wanted(body):
                made.told.append(NewFacts(forward, when.get(forward, 0.0), self._unpacked(forward, body)))
        made.told.reverse()

    def _bodies(self, made: Grown) -> Iterator[tuple[int, list[bytes]]]:
        """The packed facts of each forward that is new or may have changed."""
        early = {number for number in self.before.seen if number < self.start}
        early |= {line.forward for line in made.going_on if line.forward < self.start}
        early |= {row.forward for row in made.broken if row.forward < self.start}
        for forward in sorted(early):
            try:
                yield forward, self.lines.bodies(forward) or []
            except BadValue:
                self.lines.skip(forward)
        yield from self.lines.packed(self.start)

    def _goes_on(self, forward: int) -> bool:
        line = self.lines.lines.get(forward)
        return line is not None and line.state == record_format.OPEN

    def _unpacked(self, forward: int, body: bytes) -> list[Fact]:
        try:
            return list(unpack([body]))
        except ValueError:
            self.lines.skip(forward)
            return []

    # -- the run's own record

    def _take_own(self, made: Grown) -> None:
        """Read new facts of the run itself. On the first look, all but the last part is read for streams only."""
        first = not self.before.own
        said: list[tuple[RunFactsPart, bytes]] = []
        made.cursor.own = dict(self.before.own)
        skip = {writer: length for writer, (_, length) in self.before.own.items()}
        for part in self.lines.own({writer: position for writer, (position, _) in self.before.own.items()}):
            skipped = min(skip.get(part.writer, 0), len(part.body))
            skip[part.writer] = skip.get(part.writer, 0) - skipped
            made.cursor.own[part.writer] = part.position, len(part.body)
            if skipped < len(part.body):
                said.append((part, part.body[skipped:]))
                if first and len(said) > 2 * _LAST_SAID:
                    said[:-_LAST_SAID] = [one for one in said[:-_LAST_SAID] if _is_lasting(one[1])]
        if first:
            said = [one for one in said[:-_LAST_SAID] if _is_lasting(one[1])] + said[-_LAST_SAID:]
        made.told += [NewFacts(None, part.when / 1e6, self._unpacked(record_format.OWN, body)) for part, body in said]
        made.tasks = {one.fact["id"]: OpenTask(one.fact, one.when / 1e6) for one in self.lines.open_tasks()}


def _is_lasting(body: bytes) -> bool:
    return b"\xaathroughput" in body


def _size(block: Stored) -> int:
    try:
        return block.chunk.integers("end")[-1]
    except BadValue:
        return 0


def _numbers(block: Stored, name: str, begin: int) -> tuple[Sequence[int], Sequence[float]] | None:
    """The numbers of the rows of a block from one on, out of a column; None where there is none."""
    forwards = block.forwards[begin:]
    if name in ("took_us", "nodes"):
        values = block.chunk.integers(name)[begin:]
        if min(values) >= 0:
            return forwards, [float(value) for value in values]
        pairs = [(forward, float(value)) for forward, value in zip(forwards, values, strict=True) if value >= 0]
        return [forward for forward, _ in pairs], [value for _, value in pairs]
    path = field_path(name)
    if path not in block.chunk:
        return None
    mask, numbers = block.chunk.numbers(path)
    if mask is None:
        return forwards, numbers[begin:]
    some = [forward for forward, there in zip(forwards, mask[begin:], strict=True) if there]
    return some, numbers[sum(mask[:begin]) :]


CAPACITY = 1024
_NONE = math.nan


class Buckets:
    """The lowest and the highest number of each stretch of forwards; the stretches widen as the run grows.

    A bucket is `width` forwards. One in which nothing was said has `nan`s.
    """

    def __init__(self, highest: int = -1) -> None:
        """Begin empty; `highest` is the last forward that is known of, so that nothing need be widened for it."""
        self.width = 1
        while highest >= CAPACITY * self.width:
            self.width *= 2
        self.low = array("d", [_NONE]) * CAPACITY
        self.high = array("d", [_NONE]) * CAPACITY

    def put(self, forward: int, value: float) -> None:
        """A number was said in a forward. One that is not finite leaves no trace."""
        if value - value != 0.0:
            return
        while forward >= CAPACITY * self.width:
            self._widen()
        at = forward // self.width
        self._join(at, value, value)

    def extend(self, forwards: Sequence[int], values: Sequence[float]) -> None:
        """Several at once, as a stored column has them; quick where the forwards follow one another."""
        if not (isinstance(forwards, range) and len(forwards) and forwards.step == 1) or not _finite(values):
            for forward, value in zip(forwards, values, strict=True):
                self.put(forward, value)
            return
        while forwards[-1] >= CAPACITY * self.width:
            self._widen()
        first, width = forwards[0], self.width
        for at in range(first // width, forwards[-1] // width + 1):
            some = values[max(0, at * width - first) : (at + 1) * width - first]
            self._join(at, min(some), max(some))

    def _join(self, at: int, low: float, high: float) -> None:
        if not self.low[at] <= low:
            self.low[at] = low
        if not self.high[at] >= high:
            self.high[at] = high

    def _widen(self) -> None:
        """Two buckets become one."""
        low, high = self.low, self.high
        for at in range(CAPACITY // 2):
            low[at] = _least(low[2 * at], low[2 * at + 1])
            high[at] = -_least(-high[2 * at], -high[2 * at + 1])
        rest = array("d", [_NONE]) * (CAPACITY // 2)
        low[CAPACITY // 2 :] = rest
        high[CAPACITY // 2 :] = rest
        self.width *= 2

    def extents(self) -> list[tuple[int, float, float]]:
        """The first forward of each bucket in which something was said, its lowest and its highest number."""
        pairs = zip(self.low, self.high, strict=True)
        return [(at * self.width, low, high) for at, (low, high) in enumerate(pairs) if low == low]


def _least(one: float, other: float) -> float:
    return other if one != one or other < one else one


def _finite(values: Sequence[float]) -> bool:
    total = sum(values)
    return total - total == 0.0


_FORWARDS, _FACTS = 250, 20_000
"""The number of forwards, or of facts of nodes, in one half of the window."""


@dataclass
class HostSpent:
    """Totals of one host: slices sent, their round trip time, and how long its nodes worked."""

    slices: int = 0
    trip_us: int = 0
    ran_us: int = 0
    failures: int = 0

    def add(self, other: HostSpent) -> None:
        """Both together."""
        self.slices += other.slices
        self.trip_us += other.trip_us
        self.ran_us += other.ran_us
        self.failures += other.failures


@dataclass
class _Half:
    forwards: int = 0
    facts: int = 0
    nodes: dict[str, Spent] = field(default_factory=dict)
    hosts: dict[str, HostSpent] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return self.forwards >= _FORWARDS or self.facts >= _FACTS


class Lately:
    """A window over the last forwards, 250 to 500 of them; of large graphs fewer."""

    def __init__(self) -> None:
        self._before, self._now = _Half(), _Half()
        self.home: dict[str, str] = {}
        """The host that each node last ran at, of those that ran at one."""

    def take(self, told: Sequence[Fact]) -> None:
        """The facts of one more forward, or some of them."""
        if self._now.full:
            self._before, self._now = self._now, _Half()
        half, ended = self._now, False
        for fact in told:
            kind, host = fact.get("fact", ""), fact.get("host", "")
            if kind in ENDINGS:
                self._turn(fact, kind, host)
            elif kind == "left":
                spent = half.hosts.setdefault(host, HostSpent())
                spent.slices += 1
                spent.trip_us += micro(fact, "took_us")
            elif kind in ("finished", "broke"):
                ended = True
        half.forwards += ended

    def _turn(self, fact: Fact, kind: str, host: str) -> None:
        half, node, took = self._now, fact.get("node", ""), micro(fact, "took_us")
        half.facts += 1
        half.nodes.setdefault(node, Spent(node)).add(Where(host, fact.get("device", "")), kind, took)
        if host:
            self.home[node] = host
            spent = half.hosts.setdefault(host, HostSpent())
            spent.ran_us += took
            spent.failures += kind == "failed"

    @property
    def forwards(self) -> int:
        """The number of forwards in the window."""
        return self._before.forwards + self._now.forwards

    def nodes(self) -> list[Spent]:
        """Totals of nodes, slowest first."""
        found: dict[str, Spent] = {}
        for half in (self._before, self._now):
            for node, spent in half.nodes.items():
                whole = found.setdefault(node, Spent(node))
                for (where, ending), (count, us) in spent.turns.items():
                    known, total = whole.turns.get((where, ending), (0, 0))
                    whole.turns[where, ending] = known + count, total + us
        return sorted(found.values(), key=lambda one: (-one.us, one.node))

    def hosts(self) -> dict[str, HostSpent]:
        """Totals of hosts, longest first."""
        found: dict[str, HostSpent] = {}
        for half in (self._before, self._now):
            for host, spent in half.hosts.items():
                found.setdefault(host, HostSpent()).add(spent)
        return dict(sorted(found.items(), key=lambda one: (-one[1].trip_us, one[0])))


TOOK = "took_us"
_SPAN, _FEWEST = 10.0, 5
"""Over how many seconds a rate is taken, and over how many forwards where these were fewer."""
_WRITTEN_AFTER = 0.25
_LOGS, _BROKEN, _REMEMBERED = 200, 20, 256


class ForwardCounts(NamedTuple):
    """The number of forwards, and of those that did not end well."""

    forwards: int = 0
    broke: int = 0
    interrupted: int = 0
    lost: int = 0


class GoingOn(NamedTuple):
    """An open forward: the nodes it is in and since when, as last written."""

    forward: int
    inside: tuple[str, ...]
    began: float
    since: float
    progress: Sequence[Mapping[str, Any]] = ()


class Log(NamedTuple):
    """A log record, and about when it was said."""

    when: float
    forward: int | None
    fact: Fact


class Broken(NamedTuple):
    """A forward that broke."""

    forward: int
    when: float
    why: str


class OpenTaskState:
    """A task that was open when it was last said, at `when`."""

    def __init__(self, told: OpenTask) -> None:
        self.fact, self.when = told
        self.elapsed = micro(self.fact, "took_us") / 1e6
        self.done = _number(self.fact.get("done")) or 0.0
        self.total = _number(self.fact.get("total"))
        self._before = _number(self.fact.get("before")) or 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds until it ends at the present rate; None if unknown."""
        done = self.done - self._before
        if not self.total or done <= 0 or self.done > self.total:
            return None
        return self.elapsed / done * (self.total - self.done)


@dataclass
class Curve:
    """One number over the forwards: its buckets, and the last value."""

    name: str
    buckets: Buckets
    last: tuple[int, str] | None = None

    def put(self, forward: int, text: str) -> None:
        """`text` was said in a forward."""
        value = number(text)
        if value is not None:
            self.buckets.put(forward, value)
        if self.last is None or forward >= self.last[0]:
            self.last = forward, text


@dataclass
class Standing:
    """The state of one run; `take` brings it up to date."""

    run: str
    of: Sequence[str]
    highest: int = -1
    clock: Callable[[], float] = time.monotonic
    count: ForwardCounts = field(default_factory=ForwardCounts)
    going_on: list[GoingOn] = field(default_factory=list)
    lately: Lately = field(default_factory=Lately)
    tasks: dict[str, OpenTaskState] = field(default_factory=dict)
    streams: dict[str, Fact] = field(default_factory=dict)
    machines: dict[str, dict[str, Fact]] = field(default_factory=dict)
    logs: deque[Log] = field(default_factory=lambda: deque(maxlen=_LOGS))
    broken: deque[Broken] = field(default_factory=lambda: deque(maxlen=_BROKEN))
    said: int = 0
    """The number of log records read, dropped ones included."""
    last: ForwardRow | None = None
    """The forward that ended last."""

    def __post_init__(self) -> None:
        self.curves = [Curve(name, Buckets(self.highest)) for name in (TOOK, *self.of)]
        self._paths = [(place, path) for place, name in enumerate(self.of, start=1) for path in readings(name)]
        self._samples: deque[tuple[float, int]] = deque()
        self._whens: dict[int, float] = {}
        self._began: dict[int, float] = {}

    @property
    def took(self) -> Curve:
        """The durations of forwards in microseconds."""
        return self.curves[0]

    # -- brought up to date

    def take(self, grown: Grown, count: ForwardCounts) -> None:
        """Update from new content, and the current number of forwards."""
        self.count = count
        for place, forwards, values in grown.columns:
            self._column(self.curves[place], forwards, values)
        for place, forward, text in grown.said:
            self.curves[place].put(forward, text)
        self._rows([row for row in grown.rows if row.took_us >= 0])
        self._sample()
        for row in grown.broken:
            self.broken.append(Broken(row.forward, row.when, ""))
        for told in grown.told:
            self._told(told)
        self._take_open(grown)
        self.tasks = {key: OpenTaskState(told) for key, told in grown.tasks.items()}

    def _column(self, curve: Curve, forwards: Sequence[int], values: Sequence[float]) -> None:
        if len(values):
            curve.buckets.extend(forwards, values)
            if curve.last is None or forwards[-1] >= curve.last[0]:
                curve.last = forwards[-1], repr(values[-1])

    def _rows(self, rows: Sequence[ForwardRow]) -> None:
        for row in rows[-_REMEMBERED:]:
            self._whens[row.forward] = row.when
        while len(self._whens) > _REMEMBERED:
            del self._whens[next(iter(self._whens))]
        if rows and (self.last is None or rows[-1].forward >= self.last.forward):
            self.last = rows[-1]

    def _sample(self) -> None:
        now = self.clock()
        self._samples.append((now, self.count.forwards))
        while now - self._samples[0][0] > _SPAN:
            self._samples.popleft()

    def _told(self, told: NewFacts) -> None:
        forward = told.forward
        if forward is not None:
            self.lately.take(told.facts)
            for place, path in self._paths:
                text = last_said(told.facts, path)
                if text is not None:
                    self.curves[place].put(forward, text)
        for fact in told.facts:
            kind = fact.get("fact", "")
            if kind == "log":
                self.logs.append(Log(told.when, forward, fact))
                self.said += 1
            elif kind == "throughput":
                self.streams[fact.get("stream", "")] = fact
            elif kind == "machine":
                self.machines.setdefault(fact.get("host", ""), {})[fact.get("id", "")] = fact
            elif kind == "broke" and forward is not None:
                self._broke(Broken(forward, told.when, fact.get("why", "")))

    def _broke(self, broken: Broken) -> None:
        for place, known in enumerate(self.broken):
            if known.forward == broken.forward:
                self.broken[place] = broken._replace(when=broken.when or known.when)
                return
        self.broken.append(broken)

    def _take_open(self, grown: Grown) -> None:
        known, self._began = self._began, {}
        ends = {told.forward: _end(told.facts) for told in grown.told}
        self.going_on = []
        for line in sorted(grown.going_on):
            # When it began is not told: it was written down a quarter of a second later, or after what it then told.
            since = line.when / 1e6
            began = since - max(_WRITTEN_AFTER, ends.get(line.forward, 0) / 1e6)
            began = self._began[line.forward] = min(began, known.get(line.forward, began))
            self.going_on.append(GoingOn(line.forward, tuple(line.inside), began, since, progress_rows(line.progress)))

    # -- asked

    def rate(self) -> float | None:
        """Forwards a second, lately; None where there were too few to tell."""
        if self._samples and self._samples[-1][0] - self._samples[0][0] >= _SPAN / 2:
            (first, before), (last, now) = self._samples[0], self._samples[-1]
            if now - before >= _FEWEST:
                return (now - before) / (last - first)
        whens = sorted(self._whens.values())
        # The last ones only: before them the run may have stood still, as one does that is resumed.
        whens = whens[min(bisect_left(whens, whens[-1] - _SPAN), max(0, len(whens) - 1 - _FEWEST)) :] if whens else []
        if len(whens) < 2 or whens[-1] <= whens[0]:
            return None
        return (len(whens) - 1) / (whens[-1] - whens[0])

    def open_tasks(self, alive: frozenset[str]) -> Iterator[OpenTaskState]:
        """The tasks that are open, of processes that live; `alive` are their pids, as text."""
        return (task for key, task in self.tasks.items() if key.partition("-")[0] in alive)


def _end(told: Sequence[Fact]) -> int:
    """When the last turn of these was over, in microseconds from the start of the forward."""
    return max((micro(fact, "began_us") + micro(fact, "took_us") for fact in told if "began_us" in fact), default=0)


def _number(text: str | None) -> float | None:
    value = None if text is None else number(text)
    return value if value is not None and math.isfinite(value) else None

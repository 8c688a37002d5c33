"""What a run has grown by since it was last looked at; none of it is read twice but what may still change.

Something may be said of a forward after it ended, and a forward may go on while others end. So the last forwards, and
those going on, are looked at again each time; all before them is settled.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from somatize.facts import Fact
from somatize.store import schema
from somatize.store.lmdb_environment import BadValue
from somatize.store.record_format import field_path, readings, unpack
from somatize.store.run_reader import Line, RunFactsPart, RunLines, Stored

HELD = 64
"""Forwards that are looked at again: of these, something may still be said."""
_MOST_ROWS, _MOST_BYTES = 5000, 8 << 20
"""Of how much the facts are looked at, at once: of the rest, only columns."""
_MOST_UNPACKED = 64 << 10
"""Packed facts that are unpacked for where the time goes, at once: the newest. What is rare is always unpacked."""
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
    """What was said last of a task that is open, and when that was."""

    fact: Fact
    when: float


class CurveColumn(NamedTuple):
    """Numbers of one of the curves, from a stored column."""

    place: int
    forwards: Sequence[int]
    values: Sequence[float]


@dataclass
class Cursor:
    """How far a run has been read."""

    settled: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    """Of a forward that may still change, how many bytes of its facts were read."""
    own: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each writer, where the last part of the run's own record begins that was read, and how much of it was."""


@dataclass
class Grown:
    """What is new. `columns` and `said` have the numbers of summarised curves; those of others are among the facts."""

    cursor: Cursor
    rows: list[ForwardRow] = field(default_factory=list)
    columns: list[CurveColumn] = field(default_factory=list)
    said: list[tuple[int, int, str]] = field(default_factory=list)
    """Of a curve by its place, a forward and the text that was said in it."""
    broken: list[ForwardRow] = field(default_factory=list)
    told: list[NewFacts] = field(default_factory=list)
    going_on: list[Line] = field(default_factory=list)
    tasks: dict[str, OpenTask] = field(default_factory=dict)
    """All that are open, by their ids."""


def grown(lines: RunLines, cursor: Cursor, of: Sequence[str]) -> Grown:
    """What is new since `cursor`; of the curves in `of`, the first is how long a forward took."""
    return _Look(lines, cursor, of).answer()


def drawn_of(lines: RunLines) -> list[str]:
    """What is worth a curve where nobody said what: the loss, or else what was summarised first."""
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
        """The path by which a name is read from columns now; what is read from facts, `Standing` finds by any."""
        paths = readings(name)
        return next((path for path in paths if len(paths) > 1 and self.lines.was_summarised(path)), paths[0])

    def _is_summarised(self, path: str) -> bool:
        lines = self.lines
        return all(path in block.chunk for block in self.blocks) and all(lines.has_column(n, path) for n in lines.lines)

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
            if line.state == schema.OPEN:
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
        some = [at for at in range(begin, split) if states[at] == schema.BROKE][-_LAST_BROKEN:]
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
        return line is not None and line.state == schema.OPEN

    def _unpacked(self, forward: int, body: bytes) -> list[Fact]:
        try:
            return list(unpack([body]))
        except ValueError:
            self.lines.skip(forward)
            return []

    # -- the run's own record

    def _take_own(self, made: Grown) -> None:
        """What is new of it. When it is met first, of all but its end only what tells of streams is read."""
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
        made.told += [NewFacts(None, part.when / 1e6, self._unpacked(schema.OWN, body)) for part, body in said]
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

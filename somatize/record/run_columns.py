"""The columns that figures are drawn from: forwards of a run, numbers of streams, and facts outside of forwards."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from somatize.facts import Fact, whole_number
from somatize.store.record_format import (
    BROKE,
    INTERRUPTED,
    LOST,
    OK,
    OPEN,
    STATES,
    field_path,
    number,
    parted_path,
    readings,
)
from somatize.store.run_summary import flat

from .run_info import config_change

FIELD = {"throughput": "stream"}
"""The kinds that streams say, and the field that names the stream."""

MOST = 24
"""Up to how many streams are drawn of one number; a figure says of how many."""

MOST_PANELS = 100
"""The largest number of panels in a figure."""

Key: TypeAlias = tuple[str, str | None]
"""A number and the stream that said it; None is a stream without a name."""


def is_split(name: str) -> bool:
    """Whether a number, named as for `curve`, is said by streams."""
    return field_path(name).rpartition(".")[0] in FIELD


class Said:
    """The values of one rarely said number, by stream and row."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kind, _, self._field = field_path(name).rpartition(".")
        self._texts: dict[str | None, dict[int, str]] = {}

    def take(self, row: int, told: Iterable[Fact]) -> None:
        """The facts of a row."""
        for fact in told:
            if fact.get("fact") == self._kind and self._field in fact:
                self.put(row, fact.get(FIELD[self._kind]), fact[self._field])

    def put(self, row: int, stream: str | None, text: str) -> None:
        """A stream said this in a row; what it said before of it no longer counts."""
        self._texts.setdefault(stream, {})[row] = text

    def series(self, rows: int) -> list[Series]:
        """One for each stream, over so many rows; an empty one where none said anything."""
        made = []
        for stream, texts in self._texts.items() or [(None, {})]:
            series = Series(self.name, stream)
            series.skip(rows)
            for row in sorted(texts):
                series.put(row, texts[row])
            made.append(series)
        return made


class Keys(NamedTuple):
    """The series of some runs: over their forwards, and over the batches of streams outside of forwards."""

    series: list[Key]
    outside: list[Key]


def alike(several: Sequence[Columns], keys: Keys | None = None) -> None:
    """Give the columns of several runs the same series in the same order: those of `keys`, else of all there are."""
    found = _shown(several) if keys is None else keys
    for columns in several:
        has = {_key(series): series for series in columns.series}
        columns.series = [has.get(key) or _empty(key, len(columns)) for key in found.series]
        lines = {_key(line.series[0]): line for line in columns.outside}
        columns.outside = [lines.get(key) or Columns(columns.run, series=[Series(*key)]) for key in found.outside]


def keys_of(columns: Columns) -> Keys:
    """The keys that distinguish the series of these columns."""
    return Keys([_key(series) for series in columns.series], [_key(line.series[0]) for line in columns.outside])


def _key(series: Series) -> Key:
    return series.of, series.stream


def _shown(several: Sequence[Columns]) -> Keys:
    outside = _by_number(line.series[0] for columns in several for line in columns.outside)
    named = _by_number(series for columns in several for series in columns.series)
    inside: dict[str, set[str | None]] = {}
    for name, streams in named.items():
        told = {stream for stream in streams if stream is not None or _said(several, name)}
        inside[name] = told or (set() if name in outside else {None})
    return Keys(_first(several, inside, ""), _first(several, outside, " outside of forwards"))


def _by_number(several: Iterable[Series]) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for series in several:
        found.setdefault(series.of, set()).add(series.stream)
    return found


def _said(several: Sequence[Columns], name: str) -> bool:
    """Whether anything was said of the series that no stream said."""
    return any(
        series.kinds.count(NOTHING) < len(series.kinds)
        for columns in several
        for series in columns.series
        if series.of == name and series.stream is None
    )


def _first(several: Sequence[Columns], found: dict[str, set[str | None]], where: str) -> list[Key]:
    """So many of the streams as are drawn, the one without a name before the others, by name."""
    keys: list[Key] = []
    for name, streams in found.items():
        named = sorted(stream for stream in streams if stream is not None)
        keys += [(name, None)] * (None in streams) + [(name, stream) for stream in named[:MOST]]
        if len(named) > MOST:
            for columns in several:
                columns.left_out[f"{name}{where}"] = len(named)
    return keys


def _empty(key: Key, rows: int) -> Series:
    series = Series(*key)
    series.skip(rows)
    return series


class _Line:
    """The values of one number of one stream. If the batch count does not rise, another meter or run follows."""

    def __init__(self, of: str, stream: str | None) -> None:
        self.series = Series(of, stream)
        self.batches = array("q")
        self.segments = array("q")
        self._writer: int | None = None

    def put(self, writer: int, batches: str | None, text: str) -> None:
        """This was said by a writer once there had been so many batches."""
        before, segment = (self.batches[-1], self.segments[-1]) if self.batches else (0, 0)
        known = None if batches is None else whole_number(batches)
        at = before + 1 if known is None else known
        if self.batches and (at <= before or writer != self._writer):
            segment += 1
        self._writer = writer
        self.batches.append(at)
        self.segments.append(segment)
        self.series.append(text)

    def columns(self, run: str) -> Columns:
        """The line as the columns of a run whose forwards are batches."""
        rows = len(self.batches)
        made = Columns(run, self.batches[:], bytearray([OK]) * rows, array("d", [GAP]) * rows, self.segments[:])
        series = Series(self.series.of, self.series.stream)
        series.values, series.kinds, series.texts = self.series.values[:], self.series.kinds[:], self.series.texts
        made.series = [series]
        return made


class Outside:
    """Facts of a run itself for a figure: numbers by stream, and counts of other numbers."""

    def __init__(self, names: Iterable[str]) -> None:
        self._split: dict[str, list[tuple[str, str]]] = {}
        self._others: dict[str, list[tuple[str, str]]] = {}
        for name in dict.fromkeys(names):
            for path in readings(name):
                kind, field = parted_path(path)
                (self._split if is_split(name) else self._others).setdefault(kind, []).append((name, field))
        self._lines: dict[Key, _Line] = {}
        self.counts: dict[str, int] = {}
        """By number that no stream says: how often it was said."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of fact that are looked at."""
        return frozenset((*self._split, *self._others))

    def take(self, writer: int, fact: Fact) -> None:
        """A fact of the run itself, in the order in which its writer said them."""
        kind = fact.get("fact", "")
        for name, said in self._split.get(kind, ()):
            if said in fact:
                key = name, fact.get(FIELD[kind])
                self._lines.setdefault(key, _Line(*key)).put(writer, fact.get("batches"), fact[said])
        for name, said in self._others.get(kind, ()):
            if said in fact:
                self.counts[name] = self.counts.get(name, 0) + 1

    def fill(self, columns: Columns) -> None:
        """Add the values said outside of forwards to the columns of a run."""
        columns.outside = [line.columns(columns.run) for line in self._lines.values()]
        columns.said_outside = dict(self.counts)


def is_silent(series: Series) -> bool:
    """Whether nothing was said of a number in any forward."""
    return series.kinds.count(NOTHING) == len(series.kinds)


__all__ = ["BROKE", "GAP", "INTERRUPTED", "LOST", "MOST_WHYS", "OK", "OPEN", "STATES", "WORDS", "Columns", "Series"]

CLOCKS = ("time", "elapsed")
"""The axes that are no said number, beside that of forwards."""

AXES = ("forward", *CLOCKS)

MOST_CUTS = 500
"""In how many places at most a line begins anew because x goes back there."""

MOST_WHYS = 100
"""The number of broken forwards, the last ones, whose errors a figure shows."""

_TEXTS = 64
"""The number of texts of a series that are kept although they are no numbers."""

GAP = math.nan
"""The placeholder in a column where there is no number to draw."""

NOTHING, NUMBER, NAN, INF, MINUS_INF, WORDS = range(6)
"""The kind of a value in a column: nothing, a number, a non-finite number, or words."""


def kind_of(value: float) -> int:
    """The kind of a number."""
    if value - value == 0.0:
        return NUMBER
    return NAN if value != value else INF if value > 0 else MINUS_INF


class Series:
    """One said number over the rows of a `Columns`: drawn values, and the original texts of odd ones.

    `values` has a finite number or `GAP` per row, `kinds` one byte per row (`NOTHING`, `NUMBER`, `NAN`, `INF`,
    `MINUS_INF`, `WORDS`), and `texts` some of the texts by row that were no number. `of` is what was asked for,
    `stream` the stream that said it, where a number is said by streams, and `name` what both are called in a figure.
    """

    __slots__ = ("kinds", "name", "of", "path", "stream", "texts", "values")

    def __init__(self, of: str, stream: str | None = None) -> None:
        self.of = of
        self.path = field_path(of)
        """The path of the value in facts and columns."""
        self.stream = stream
        self.name = of if stream is None else f"{of} of {stream}"
        self.values: array[float] = array("d")
        self.kinds = bytearray()
        self.texts: dict[int, str] = {}

    @property
    def words(self) -> str | None:
        """The first text that was no number, as far as it is kept."""
        return self.texts[min(self.texts)] if self.texts else None

    def append(self, text: str | None) -> None:
        """The next row, of which `text` was said last, or nothing."""
        self.values.append(GAP)
        self.kinds.append(NOTHING)
        if text is not None:
            self.put(-1, text)

    def put(self, row: int, text: str) -> None:
        """Set the text of an existing row; replaces the previous one."""
        value = number(text)
        if value is None:
            self.values[row], self.kinds[row] = GAP, WORDS
            at = row if row >= 0 else len(self.values) + row
            if at in self.texts or len(self.texts) < _TEXTS:
                self.texts[at] = text
        else:
            self.put_number(row, value)

    def put_number(self, row: int, value: float) -> None:
        """`put` of a number that was parsed already."""
        if self.kinds[row] == WORDS:
            self.texts.pop(row if row >= 0 else len(self.values) + row, None)
        kind = self.kinds[row] = kind_of(value)
        self.values[row] = value if kind == NUMBER else GAP

    def extend(self, values: array[float]) -> None:
        """More rows, each of which said a number, by the column."""
        total = sum(values)
        if total - total == 0.0:  # a sum is finite only if each is; most columns are
            self.values.extend(values)
            self.kinds.extend(bytes([NUMBER]) * len(values))
            return
        for value in values:
            self.values.append(GAP)
            self.kinds.append(NOTHING)
            self.put_number(-1, value)

    def skip(self, rows: int) -> None:
        """More rows, of which nothing was said."""
        self.values.extend(array("d", [GAP]) * rows)
        self.kinds.extend(bytes(rows))


@dataclass(repr=False)
class Columns:
    """The forwards of one run: a row each, in the order of their numbers.

    `states` has one byte per row, of those `STATES` names. `took_us` is `GAP` where a forward did not end. `writers`
    numbers the segments: rows of one writer may be joined by a stroke, others never; empty means all are one's.
    `whys` gives for a row that broke what its `broke` fact said, as far as it is known. `left_out` has for what was
    asked for how many streams said it, where those are too many to be drawn. `outside` has what streams said outside of
    any forward, each as columns of their own whose forwards are batches, and `said_outside` how often other numbers
    were said there. `asked` is of how many numbers a figure was asked for, which may be more than these.
    """

    run: str
    forwards: array[int] = field(default_factory=lambda: array("q"))
    states: bytearray = field(default_factory=bytearray)
    took_us: array[float] = field(default_factory=lambda: array("d"))
    writers: array[int] = field(default_factory=lambda: array("q"))
    series: list[Series] = field(default_factory=list)
    whys: dict[int, str] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    outside: list[Columns] = field(default_factory=list)
    said_outside: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    ended: str = ""
    """How the run ended and why, if it did not finish."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The last configuration of the run, flat."""
    changes: dict[int, str] = field(default_factory=dict)
    """By the first forward of a writer: what differs in its configuration from that of the writer before."""
    axis: Series | None = None
    """The x of each row, on another axis than that of forwards."""
    off_axis: int = 0
    """The number of forwards that were left out because they have no x."""

    @classmethod
    def of(cls, run: str, names: Iterable[str]) -> Columns:
        """Columns without rows, for these series."""
        return cls(run, series=[Series(name) for name in names])

    def describe(self, about: Mapping[str, Any]) -> None:
        """Note how the run ended and what it was configured with, as `about` has it."""
        if about.get("state") not in (None, "running", "finished"):
            self.ended = str(about["state"]) + (f": {about['why']}" if about.get("why") else "")
        self.config = flat(about["config"])
        self.changes = {
            now["first"]: words
            for before, now in pairwise(about["writers"])
            if now["first"] is not None and (words := config_change(flat(before["config"]), flat(now["config"])))
        }

    def __len__(self) -> int:
        return len(self.forwards)

    @property
    def at(self) -> array[int] | array[float]:
        """The x of each row: the number of the forward, or what `axis` has."""
        return self.forwards if self.axis is None else self.axis.values

    def in_units(self, size: float) -> Columns:
        """The same, with x in units of `size`."""
        assert self.axis is not None
        axis = Series(self.axis.of)
        axis.values = array("d", [x / size for x in self.axis.values])
        return replace(self, axis=axis)

    def back(self) -> list[int]:
        """The rows at which x is lower than in the row before of the same writer; none on an axis of time."""
        if self.axis is None or self.axis.of in CLOCKS:
            return []
        x = self.axis.values
        return sorted(row for rows in self.segments() for before, row in pairwise(rows) if x[row] < x[before])

    def lines(self) -> Sequence[Sequence[int]]:
        """The rows that are joined by a line: the segments, cut where x goes back, unless that is nearly everywhere."""
        back = self.back()
        if not 0 < len(back) <= MOST_CUTS:
            return self.segments()
        found: list[Sequence[int]] = []
        for rows in self.segments():
            places = ((bisect_left(rows, row), row) for row in back)
            cuts = [place for place, row in places if place < len(rows) and rows[place] == row]
            found += [rows[start:end] for start, end in pairwise([0, *cuts, len(rows)])]
        return found

    def segments(self) -> list[range] | list[array[int]]:
        """The rows of each segment, in the order in which the segments begin."""
        writers = self.writers
        if not writers or writers.count(writers[0]) == len(writers):
            return [range(len(self))] if len(self) else []
        rows: dict[int, array[int]] = {}
        for row, writer in enumerate(writers):
            rows.setdefault(writer, array("q")).append(row)
        return list(rows.values())

"""What was said outside of any forward: a line over a stream's own batches, as it has no place among forwards."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from somatize.facts import Fact
from somatize.store.packing import parted_path, readings

from .columns import GAP, NOTHING, OK, Columns, Series
from .streams import FIELD, Key, is_split


class _Line:
    """What one stream said of one number. A count of batches that does not rise is another meter's, or run's."""

    def __init__(self, of: str, stream: str | None) -> None:
        self.series = Series(of, stream)
        self.batches = array("q")
        self.segments = array("q")
        self._writer: int | None = None

    def put(self, writer: int, batches: str | None, text: str) -> None:
        """This was said by a writer once there had been so many batches."""
        before, segment = (self.batches[-1], self.segments[-1]) if self.batches else (0, 0)
        at = int(batches) if batches is not None and batches.isascii() and batches.isdigit() else before + 1
        at = min(at, 2**62)
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
    """The facts of a run itself that a figure asks for: numbers by stream, and of others how often they were said."""

    def __init__(self, names: Iterable[str]) -> None:
        self._split: dict[str, list[tuple[str, str]]] = {}
        self._others: dict[str, list[tuple[str, str]]] = {}
        for name in dict.fromkeys(names):
            for path in readings(name):
                kind, field = parted_path(path)
                (self._split if is_split(name) else self._others).setdefault(kind, []).append((name, field))
        self._lines: dict[Key, _Line] = {}
        self.counts: dict[str, int] = {}
        """How often each number was said that no stream says."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of fact that are looked at."""
        return frozenset((*self._split, *self._others))

    def take(self, writer: int, fact: Fact) -> None:
        """A fact of the run itself, in the order in which its writer said them."""
        kind = fact.get("fact", "")
        for name, field in self._split.get(kind, ()):
            if field in fact:
                key = name, fact.get(FIELD[kind])
                self._lines.setdefault(key, _Line(*key)).put(writer, fact.get("batches"), fact[field])
        for name, field in self._others.get(kind, ()):
            if field in fact:
                self.counts[name] = self.counts.get(name, 0) + 1

    def fill(self, columns: Columns) -> None:
        """Give the columns of a run what was said outside of its forwards."""
        columns.outside = [line.columns(columns.run) for line in self._lines.values()]
        columns.said_outside = dict(self.counts)


def is_silent(series: Series) -> bool:
    """Whether nothing was said of a number in any forward."""
    return series.kinds.count(NOTHING) == len(series.kinds)

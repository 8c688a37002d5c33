"""What a figure is drawn from: forwards of one run as columns, whether read from a store or tallied live."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from somatize.store.columns import number
from somatize.store.packing import field_path
from somatize.store.schema import BROKE, INTERRUPTED, LOST, OK, OPEN, STATES

__all__ = ["BROKE", "GAP", "INTERRUPTED", "LOST", "MOST_WHYS", "OK", "OPEN", "STATES", "WORDS", "Columns", "Series"]

MOST_WHYS = 100
"""Of how many broken forwards, the last ones, a figure says why."""

_TEXTS = 64
"""How many texts of a series are kept that are no number."""

GAP = math.nan
"""What stands in a column where there is no number to draw."""

NOTHING, NUMBER, NAN, INF, MINUS_INF, WORDS = range(6)
"""What was said of a series in a forward: nothing, a number, what is no finite number, or words."""


def kind_of(value: float) -> int:
    """Which of the kinds a number is."""
    if value - value == 0.0:
        return NUMBER
    return NAN if value != value else INF if value > 0 else MINUS_INF


class Series:
    """One said number over the rows of a `Columns`: what is drawn, and beside it what was really said.

    `values` has a finite number or `GAP` per row, `kinds` one byte per row (`NOTHING`, `NUMBER`, `NAN`, `INF`,
    `MINUS_INF`, `WORDS`), and `texts` some of the texts by row that were no number. `of` is what was asked for,
    `stream` the stream that said it, where a number is said by streams, and `name` what both are called in a figure.
    """

    __slots__ = ("kinds", "name", "of", "path", "stream", "texts", "values")

    def __init__(self, of: str, stream: str | None = None) -> None:
        self.of = of
        self.path = field_path(of)
        """Where it stands in facts and columns."""
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
        """`text` was said of a row that is there; what was said before of it no longer counts."""
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

    @classmethod
    def of(cls, run: str, names: Iterable[str]) -> Columns:
        """Columns without rows, for these series."""
        return cls(run, series=[Series(name) for name in names])

    def __len__(self) -> int:
        return len(self.forwards)

    def segments(self) -> list[range] | list[array[int]]:
        """The rows of each segment, in the order in which the segments begin."""
        writers = self.writers
        if not writers or writers.count(writers[0]) == len(writers):
            return [range(len(self))] if len(self) else []
        rows: dict[int, array[int]] = {}
        for row, writer in enumerate(writers):
            rows.setdefault(writer, array("q")).append(row)
        return list(rows.values())

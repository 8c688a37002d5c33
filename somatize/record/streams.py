"""Numbers that several streams say, as throughput is said: a series for each stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from somatize.facts import Fact
from somatize.store.packing import field_path

from .columns import NOTHING, Columns, Series

FIELD = {"throughput": "stream"}
"""The kinds that streams say, and the field that names the stream."""

MOST = 24
"""Up to how many streams are drawn of one number; a figure says of how many."""

MOST_PANELS = 100
"""How many numbers are drawn of those that a figure is asked for."""

Key: TypeAlias = tuple[str, str | None]
"""What was asked for, and the stream that said it; None is one without a name."""


def is_split(name: str) -> bool:
    """Whether a number, named as for `curve`, is said by streams."""
    return field_path(name).rpartition(".")[0] in FIELD


class Said:
    """What was said of one number, by stream and row. It is said seldom, so nothing is kept of other rows."""

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
    """What is drawn of some runs: over their forwards, and over the batches of streams outside of any."""

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
    """What tells the series of these columns apart."""
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

"""Numbers that several streams say, as throughput is said: a series for each stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from somatize.facts import Fact
from somatize.storage.packing import field_path

from .columns import NOTHING, Columns, Series

FIELD = {"throughput": "stream"}
"""The kinds that streams say, and the field that names the stream."""

MOST = 24
"""Up to how many streams are drawn of one number; a figure says of how many."""

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


def alike(several: Sequence[Columns], keys: Sequence[Key] | None = None) -> None:
    """Give the columns of several runs the same series in the same order: those of `keys`, else of all there are."""
    found = _shown(several) if keys is None else list(keys)
    for columns in several:
        has = {(series.of, series.stream): series for series in columns.series}
        columns.series = [has.get(key) or _empty(key, len(columns)) for key in found]


def keys_of(columns: Columns) -> list[Key]:
    """What tells the series of these columns apart."""
    return [(series.of, series.stream) for series in columns.series]


def _shown(several: Sequence[Columns]) -> list[Key]:
    streams: dict[str, set[str]] = {}
    unnamed: dict[str, bool] = {}
    for series in (series for columns in several for series in columns.series):
        names = streams.setdefault(series.of, set())
        if series.stream is not None:
            names.add(series.stream)
        else:
            said = series.kinds.count(NOTHING) < len(series.kinds)
            unnamed[series.of] = said or unnamed.get(series.of, False)
    keys: list[Key] = []
    for name, named in streams.items():
        if unnamed.get(name) or not named:
            keys.append((name, None))
        keys += [(name, stream) for stream in sorted(named)[:MOST]]
        if len(named) > MOST:
            for columns in several:
                columns.left_out[name] = len(named)
    return keys


def _empty(key: Key, rows: int) -> Series:
    series = Series(*key)
    series.skip(rows)
    return series

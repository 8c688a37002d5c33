"""A table as exporters read it: typed columns, and rows that stream past."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from somatize.store.directory import FORMAT

from .text_columns import Kind, Survey, held_by, words_beside

Row = Sequence[Any]
BATCH = 1 << 15
"""Rows that are in memory at once."""


class Wanted(NamedTuple):
    """A column before its rows were looked at; one without a kind gets that of the texts in it.

    The rows of one that is `said` hold texts, whatever its kind.
    """

    name: str
    kind: Kind | None = None
    unit: str = ""
    said: bool = False


class Column(NamedTuple):
    """A column: its name, what it holds, its unit if it has one, and where in a row it stands.

    One that is `words` has the texts of its place that the column before it, of that place too, cannot hold.
    """

    name: str
    kind: Kind
    unit: str
    place: int
    said: bool = False
    words: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of one kind, and what their columns hold.

    In a row, said values are still the texts that were said, or floats of which those are the `repr`.
    """

    of: str
    run: str | None
    columns: Sequence[Column]
    rows: Callable[[], Iterator[Row]]

    def batches(self, size: int = BATCH) -> Iterator[dict[str, list[Any]]]:
        """The columns of some rows at a time, by name; each value as what its column holds, None where absent."""
        for places in self.raw(size):
            yield self._converted(places)

    def raw(self, size: int = BATCH) -> Iterator[list[Sequence[Any]]]:
        """The places of some rows at a time, said values as in the rows."""
        rows = self.rows()
        while some := list(islice(rows, size)):
            yield list(zip(*some, strict=True))

    def _converted(self, places: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
        made: dict[str, list[Any]] = {}
        values: list[Any] = []
        for column in self.columns:
            held = places[column.place]
            if column.words:
                made[column.name] = words_beside(held, values)
                continue
            values = held_by(column.kind, held) if column.said else list(held)
            made[column.name] = values
        return made

    @property
    def about(self) -> dict[str, str]:
        """What a file should say of the table, as text: its run, what it is of, its units, the format of the store."""
        run = {} if self.run is None else {"somatize.run": self.run}
        units = {column.name: column.unit for column in self.columns if column.unit}
        return {
            **run,
            "somatize.table": self.of,
            "somatize.units": json.dumps(units),
            "somatize.store_format": str(FORMAT),
        }


def surveyed(wanted: Sequence[Wanted], rows: Iterable[Row]) -> list[Column]:
    """The columns that rows of these need. Goes through the rows once, some at a time."""
    surveys = {place: Survey(one.kind) for place, one in enumerate(wanted) if one.said or one.kind is None}
    following = iter(rows)
    while surveys and (some := list(islice(following, BATCH))):
        columns = list(zip(*some, strict=True))
        for place, survey in surveys.items():
            survey.add(text for text in columns[place] if text is not None)
    return columns_of(wanted, surveys)


def columns_of(wanted: Sequence[Wanted], surveys: dict[int, Survey]) -> list[Column]:
    """The columns of what is wanted, by what was found in it; two where one cannot hold all that was said."""
    taken = {one.name for one in wanted}
    made: list[Column] = []
    for place, one in enumerate(wanted):
        survey = surveys.get(place)
        kind = one.kind or (survey.kind if survey is not None else Kind.TEXT)
        made.append(Column(one.name, kind, one.unit, place, said=survey is not None))
        if survey is not None and survey.has_words:
            name = f"{one.name} (text)"
            while name in taken:
                name += " (text)"
            taken.add(name)
            made.append(Column(name, Kind.TEXT, "", place, said=True, words=True))
    return made

"""Tables as pandas DataFrames."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

from somatize.codecs.pandas_frames import pandas
from somatize.record.asked import Place

from .table import Table
from .tables import Asked, read
from .text_columns import Kind

if TYPE_CHECKING:
    from somatize.codecs.pandas_frames import DataFrame


def to_pandas(
    store: Place,
    run: str | None = None,
    of: str = "forwards",
    *,
    last: int | None = None,
    since: int | None = None,
) -> DataFrame:
    """A table of a run as a DataFrame: `of` is forwards, facts, nodes, logs, tasks or throughput, or runs of a store.

    Dtypes are the same however a run went: counts and durations (microseconds) are ``Int64``, instants are
    ``datetime64[us, UTC]``, states, nodes and hosts categories. A column of said values is ``Int64``, ``Float64`` or
    ``boolean`` where that loses nothing, else ``string``; texts among numbers stand in a second column,
    ``loss.value (text)``. What is absent is missing, and ``nan`` that was said is a value; ``.astype(float)`` makes
    both NaN. ``frame.attrs`` is what the metadata of `to_arrow` is: ``somatize.run``, ``somatize.units`` and, as JSON,
    the list of what could not be read, ``somatize.left_out``.

    Reads what the reader of that name does, forwards, facts and logs twice. Raises `ExtraMissing`, `ExportError`,
    `UnknownRun` and `WhichRun`.
    """
    pd = pandas()
    (frame, about), left_out = read(Asked(store, run, of, last, since), lambda table: _collected(pd, table))
    frame.attrs.update(about)
    frame.attrs["somatize.left_out"] = json.dumps(left_out, ensure_ascii=False)
    return frame


def _collected(pd: Any, table: Table) -> tuple[Any, dict[str, str]]:
    made = {column.name: _MAKERS.get(column.kind, Plain)(pd, column.kind) for column in table.columns}
    for batch in table.batches():
        for name, values in batch.items():
            made[name].add(values)
    frame = pd.DataFrame({name: maker.whole() for name, maker in made.items()})
    return frame, table.about


class Plain:
    """A column of a frame, put together out of stretches so that no list of all its values is made."""

    def __init__(self, pd: Any, kind: Kind) -> None:
        self.pd = pd
        self.dtype = _dtype(pd, kind)
        self.parts: list[Any] = []

    def add(self, values: list[Any]) -> None:
        """Some values more, None where one is absent."""
        self.parts.append(self.pd.Series(self.array(values), dtype=self.dtype))

    def array(self, values: list[Any]) -> Any:
        """The values in the least memory that holds them."""
        return self.pd.array(values, dtype=self.dtype)

    def whole(self) -> Any:
        """The column."""
        if not self.parts:
            self.add([])
        return self.pd.concat(self.parts, ignore_index=True)


class Floats(Plain):
    """Numbers, of which a NaN that was said is not an absent one: pandas' own way in takes the two for the same."""

    def array(self, values: list[Any]) -> Any:
        """As it is, the mask apart from the numbers."""
        absent = self.pd.Series([value is None for value in values], dtype="bool").to_numpy()
        numbers = self.pd.Series([1.0 if value is None else value for value in values], dtype="float64").to_numpy()
        return self.pd.arrays.FloatingArray(numbers, absent)


class Instants(Plain):
    """Moments, without a way over floats."""

    def array(self, values: list[Any]) -> Any:
        """Microseconds as they are, and pandas' word for nothing, which is the least int64."""
        us = self.pd.array(values, dtype="Int64").to_numpy("int64", na_value=-(2**63))
        return self.pd.Series(us.view("datetime64[us]")).dt.tz_localize("UTC")


class Lists(Plain):
    """Lists, as objects."""

    def array(self, values: list[Any]) -> Any:
        """As they are."""
        return values


class Names(Plain):
    """Texts of which there are few, each of which is held once."""

    def __init__(self, pd: Any, kind: Kind) -> None:
        super().__init__(pd, kind)
        self.codes = array("i")
        self.known: dict[str | None, int] = {None: -1}

    def add(self, values: list[Any]) -> None:
        """Some values more."""
        known = self.known
        self.codes.extend(known.setdefault(value, len(known) - 1) for value in values)

    def whole(self) -> Any:
        """The column, its categories in the order in which they were first met."""
        names = [name for name in self.known if name is not None]
        categories = self.pd.Index(names, dtype=_dtype(self.pd, Kind.TEXT))
        return self.pd.Categorical.from_codes(self.pd.Series(self.codes, dtype="int32").to_numpy(), categories)


_MAKERS: dict[Kind, type[Plain]] = {
    Kind.NUMBER: Floats,
    Kind.INSTANT: Instants,
    Kind.NAMES: Lists,
    Kind.NAME: Names,
}


def _dtype(pd: Any, kind: Kind) -> Any:
    if kind in (Kind.TEXT, Kind.NAME):
        return pd.StringDtype("python")  # pyarrow is another extra
    return {
        Kind.WHOLE: "Int64",
        Kind.NUMBER: "Float64",
        Kind.TRUTH: "boolean",
        Kind.INSTANT: "datetime64[us, UTC]",
        Kind.NAMES: "object",
    }[kind]

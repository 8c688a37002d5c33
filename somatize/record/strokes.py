"""The columns of one run made into traces: condensed, broken where there is a gap or another writer begins."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from somatize.figures import theme as themes

from .columns import BROKE, INTERRUPTED, LOST, NOTHING, STATES, Columns, Series
from .downsample import gaps_of, kept
from .panels import Panel, is_duration
from .smoothing import RollingMeans

_BREAK = re.compile(b"[%c%c%c]" % (BROKE, INTERRUPTED, LOST))
_EACH_MARKED, _EACH_OF_SEVERAL = 60, 15
"""Up to how many points each has a marker, in one run or several; beyond, only those that no stroke reaches."""
MOST_BREAKS = 4000
ESTIMATE = ", smoothed (one-sided estimate)"
_NAME = 40
"""How many letters of a series' name stand in the legend."""
_WHY_WIDTH = 64
Drawn = tuple[list[int | None], list[float | None]]


class Stretch(NamedTuple):
    """A segment's rows, the column over them, which of its places are drawn, and where it has no number."""

    rows: Sequence[int]
    values: array[float]
    places: list[int]
    gaps: list[int]


class Strokes:
    """What is drawn of one run, in at most about `buckets` times four points a trace."""

    def __init__(self, columns: Columns, buckets: int) -> None:
        self.columns = columns
        self.segments = columns.segments()
        self.buckets = buckets
        self.breaks = [found.start() for found in _BREAK.finditer(columns.states)]
        self.marked = _thinned(self.breaks)
        self.series = [self._stretches(series.values, _rows_of(series)) for series in columns.series]
        self.took = self._stretches(columns.took_us)

    @property
    def condensed(self) -> bool:
        """Whether less is drawn than there is."""
        return any(len(one.places) < len(one.rows) for column in [*self.series, self.took] for one in column)

    def drawn(self, place: int | None) -> list[float]:
        """The numbers that are drawn of a series, or of the durations."""
        stretches = self.took if place is None else self.series[place]
        return [value for _, values, places, _ in stretches for at in places if (value := values[at]) == value]

    def _stretches(self, values: array[float], said: set[int] | None = None) -> list[Stretch]:
        return list(self._each_stretch(values, said))

    def _each_stretch(self, values: array[float], said: set[int] | None) -> Iterator[Stretch]:
        """Of each segment; with `said` only those of its rows, and none where it has none of them."""
        for segment in self.segments:
            rows = segment if said is None else array("q", [row for row in segment if row in said])
            if said is not None and not rows:
                continue
            whole = len(rows) == len(values)
            column = values if whole else array("d", [values[row] for row in rows])
            share = max(1, self.buckets * len(segment) // max(1, len(values)))
            gaps = gaps_of(column)
            yield Stretch(rows, column, kept(column, share, gaps=gaps), gaps)

    def points(self, stretches: Sequence[Stretch]) -> Drawn:
        """Forwards and numbers; None where there is a gap, and both None between two segments."""
        return self._joined(
            (rows, places, [value if (value := values[place]) == value else None for place in places])
            for rows, values, places, _ in stretches
        )

    def smoothed(self, means: Sequence[RollingMeans]) -> Drawn:
        """As `points`, of the means; nothing of segments that are shorter than a window."""
        return self._joined((one.stretch.rows, places, one.of(places)) for one in means if (places := one.places()))

    def estimated(self, means: Sequence[RollingMeans]) -> Drawn:
        """Of the last segment the means from its last whole window on, each of what is there of its window."""
        return self._joined((one.stretch.rows, places, one.of(places)) for one in means[-1:] if (places := one.tail()))

    def _joined(self, parts: Iterable[tuple[Sequence[int], Sequence[int], list[float | None]]]) -> Drawn:
        xs: list[int | None] = []
        ys: list[float | None] = []
        forwards = self.columns.forwards
        for rows, places, numbers in parts:
            if xs:
                xs.append(None)
                ys.append(None)
            xs += [forwards[rows[place]] for place in places]
            ys += numbers
        return xs, ys


def _rows_of(series: Series) -> set[int] | None:
    """The rows of which a stream said something: what it says is of all the batches since, so they are joined."""
    if series.stream is None:
        return None
    return {row for row, kind in enumerate(series.kinds) if kind != NOTHING}


def series_traces(
    strokes: Strokes,
    place: int,
    panel: Panel,
    look: Look,
    means: Sequence[RollingMeans] | None,
    *,
    named: bool,
    size: float = 1.0,
    live: bool = False,
) -> list[dict[str, Any]]:
    """A series as it was said, thin, and over it its rolling mean, bold, both in units of `size`.

    `means` are those of its stretches, None where none is drawn. `named` says if it is in the legend. Where it is
    `live`, the mean goes on to the end of the series as an estimate, dotted.
    """
    series = strokes.columns.series[place]
    xs, ys = strokes.points(strokes.series[place])
    mean = strokes.smoothed(means or ())
    smoothed = means is not None and bool(mean[0] or not strokes.drawn(place))
    name, timed = themes.escaped(series.name, _NAME), is_duration(series.of)
    raw = look.trace(name, xs, ys, panel)
    raw["line"] |= {"width": themes.RAW if smoothed else themes.SMOOTHED / 1.4}
    raw["opacity"] = 0.8 if smoothed else 1.0
    raw |= _marked(ys, look.colour, each=_EACH_OF_SEVERAL if look.prefix else _EACH_MARKED)
    raw["showlegend"] = named and (not smoothed or not look.prefix)
    if means is None:
        return [_in_units(raw, size, timed=timed)]
    bold = look.trace(f"{name}, smoothed", *mean, panel)
    bold["line"] |= {"width": themes.SMOOTHED}
    bold |= _marked(bold["y"], look.colour, each=0, size=6)
    bold["showlegend"] = named and smoothed
    drawn = [raw, bold]
    if live and len((tail := strokes.estimated(means))[0]) > 1:
        dotted = look.trace(name + ESTIMATE, *tail, panel)
        dotted["line"] |= {"width": themes.SMOOTHED, "dash": "dot" if look.stroke != "dot" else "dash"}
        dotted["showlegend"] = named
        drawn.append(dotted)
    return [_in_units(one, size, timed=timed) for one in drawn]


def _in_units(trace: dict[str, Any], size: float, *, timed: bool) -> dict[str, Any]:
    """The same line in units of `size`; the hover says the numbers themselves."""
    if size == 1.0 and not timed:
        return trace
    ys = trace["y"]
    said = themes.each_took(ys) if timed else [None if y is None else f"{y:.6g}" for y in ys]
    return trace | {"y": [None if y is None else y / size for y in ys], "customdata": said}


def took_trace(strokes: Strokes, panel: Panel, look: Look, size: float) -> dict[str, Any]:
    """How long each forward took, in units of `size` microseconds."""
    xs, ys = strokes.points(strokes.took)
    trace = look.trace("took", xs, [None if us is None else us / size for us in ys], panel)
    trace["customdata"] = themes.each_took(ys)
    trace["line"] |= {"width": themes.RAW}
    trace["showlegend"] = not look.prefix
    return trace | _marked(ys, look.colour)


class Look(NamedTuple):
    """How the traces of one run, or of one series, look: a hue, a stroke, and what their names begin with."""

    colour: str
    stroke: str
    prefix: str

    def trace(self, name: str, xs: list[int | None], ys: list[float | None], panel: Panel) -> dict[str, Any]:
        """A line through points, straight from each to the next."""
        return {
            "type": "scatter",
            "name": self.prefix + name,
            "legendgroup": self.prefix or name,
            "x": xs,
            "y": ys,
            "xaxis": panel.x,
            "yaxis": panel.ref,
            "mode": "lines",
            "connectgaps": False,
            "line": {"color": self.colour, "dash": self.stroke, "shape": "linear"},
        }


def _marked(ys: Sequence[float | None], colour: str, each: int = _EACH_MARKED, size: int = 5) -> dict[str, Any]:
    """Markers: on every point where there are at most `each`, else on those that no stroke reaches."""
    count = len(ys) - ys.count(None)
    if 0 < count <= each:
        return {"mode": "lines+markers", "marker": {"size": size, "color": colour, "line": {"width": 0}}}
    if 1 < count == len(ys):
        return {"mode": "lines"}
    there = [y is not None for y in ys]
    alone = [
        here and not before and not after
        for before, here, after in zip([False, *there], there, [*there[1:], False], strict=False)
    ]
    if not any(alone):
        return {"mode": "lines"}
    # Markers of several sizes would have a white rim.
    sizes = [size * one for one in alone]
    return {"mode": "lines+markers", "marker": {"size": sizes, "color": colour, "line": {"width": 0}}}


def broke_trace(strokes: Strokes, level: float, axis: str, prefix: str) -> dict[str, Any]:
    """A red mark for every forward that broke, was interrupted or is lost, whatever else is known of it."""
    columns, rows = strokes.columns, strokes.marked
    return {
        "type": "scatter",
        "name": f"{prefix}broke",
        "legendgroup": prefix or "broke",
        "showlegend": bool(rows),
        "x": [columns.forwards[row] for row in rows],
        "y": [level] * len(rows),
        "xaxis": "x",
        "yaxis": axis,
        "mode": "markers",
        "marker": {"symbol": "x", "size": 8, "color": themes.RED},
        "error_y": {
            "type": "constant",
            "symmetric": False,
            "value": 1 - level,
            "valueminus": level,
            "color": themes.tint(themes.RED, 0.45),
            "thickness": 1,
            "width": 0,
        },
        "hovertext": [_fate(columns, row) for row in rows],
        "hovertemplate": f"%{{hovertext}}<extra>{prefix}broke</extra>",
    }


def _thinned(rows: list[int]) -> list[int]:
    """All of them, or so many evenly taken that a screen could not show more."""
    return rows if len(rows) <= MOST_BREAKS else rows[:: -(-len(rows) // MOST_BREAKS)]


def _fate(columns: Columns, row: int) -> str:
    """How a forward ended, after how long, and why as far as it is known."""
    us, state = columns.took_us[row], STATES[columns.states[row]]
    words = f"forward {columns.forwards[row]:,}: {state}" + (f" after {themes.took(us)}" if us == us else "")
    why = columns.whys.get(row)
    lines = themes.wrapped(themes.cut(why.removesuffix(": "), 4 * _WHY_WIDTH), _WHY_WIDTH) if why else []
    return "<br>".join([words, *(themes.escaped(line) for line in lines)])

"""Traces of a run's columns: downsampled, smoothed, and broken where there is a gap or another writer begins."""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple

from somatize.figures import theme as themes

from .panels import Panel, is_duration
from .run_columns import BROKE, INTERRUPTED, LOST, NOTHING, NUMBER, STATES, Columns, Series

_FEWEST, _SOME = 32, 16
_PAIRS = 4096


class RollingMean:
    """Means of windows of `window` numbers, each centred on its place.

    The windows at `first` to `last` are whole. Nearer to an end a window is cut off there, and its mean an estimate.

    No mean lies outside of the numbers it is made of, rounding and overflow notwithstanding. Made once in time linear
    in `numbers`; a mean then costs little however wide the window.
    """

    def __init__(self, numbers: Sequence[float], window: int) -> None:
        self._numbers = numbers if isinstance(numbers, array) else array("d", numbers)
        self._half = max(0, window // 2)
        self.first = self._half
        self.last = len(self._numbers) - 1 - self._half
        # Blocks of about the root of a window: so few of them, and so few numbers beside them, make one.
        size = self._block = max(_FEWEST, math.isqrt(window))
        blocks = [self._numbers[at : at + size] for at in self._starts()] if self._half > 2 * size else []
        self._sums = array("d", map(_total, blocks))

    def _starts(self) -> range:
        return range(0, len(self._numbers) - self._block + 1, self._block)

    def at(self, place: int) -> float:
        """The mean around the number at `place`."""
        numbers, size = self._numbers, self._block
        low, high = max(0, place - self._half), min(len(numbers), place + self._half + 1)
        if self._sums and high - low >= 3 * size:  # the sums of whole blocks, and the numbers at the ends
            first, end = -(-low // size), high // size
            window = self._sums[first:end] + numbers[low : first * size] + numbers[end * size : high]
        else:
            window = numbers[low:high]
        mean = _total(window) / (high - low)
        # Only rounding can take it out of the numbers, and hardly ever does: two of them show that it did not.
        one, other = numbers[low], numbers[high - 1]
        if one <= mean <= other or other <= mean <= one:
            return mean
        return self._within(mean, low, high)

    def _within(self, mean: float, low: int, high: int) -> float:
        """A mean that may lie outside of its numbers, put back."""
        numbers = self._numbers
        if mean - mean != 0.0:  # the sum is beyond a float, the mean is not
            # Halved, as the parts of equal numbers may add up to a little more than them; what is beyond is put back.
            mean = 2 * math.fsum([number / 2 / (high - low) for number in numbers[low:high]])
        some = numbers[low : high : 1 + (high - low) // _SOME]
        if min(some) <= mean <= max(some):
            return mean
        window = numbers[low:high]
        return min(max(mean, min(window)), max(window))


def is_stepped(numbers: Sequence[float]) -> bool:
    """Whether a series holds each of few values for a while, as a learning rate or an epoch does.

    That is so where at most a quarter of the numbers differ from the one before; a long series is sampled.
    """
    pairs = range(1, len(numbers), max(1, len(numbers) // _PAIRS))
    changes = sum(numbers[place] != numbers[place - 1] for place in pairs)
    return len(numbers) > 1 and changes <= len(pairs) // 4


def _total(numbers: array[float]) -> float:
    """Their sum; infinite where it is beyond a float."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return math.inf


_AT_ONCE = 512
PER_BUCKET = 4
"""The number of points kept per bucket: first, lowest, highest, last."""


def downsampled(
    values: array[float], buckets: int, also: Iterable[int] = (), gaps: Sequence[int] | None = None
) -> list[int]:
    """The rows of `values` to draw, in order: all of them where few, else up to four for each of `buckets` stretches.

    Kept are the first and the last number and the lowest and the highest of every stretch, so every extreme is
    there; the rows in `also`; and between kept numbers with a gap (NaN) between them one row of that gap, so that
    a line over the rows breaks where the column does. Gaps at the ends are left out. `gaps` are those of `values`,
    where they are known.
    """
    size = len(values)
    if size <= PER_BUCKET * buckets:
        return list(range(size))
    found = gaps_of(values) if gaps is None else gaps
    rows = set(also)
    for bucket in range(buckets):
        low, high = size * bucket // buckets, size * (bucket + 1) // buckets
        rows.update(_of_stretch(values, low, high, bisect_left(found, high) - bisect_left(found, low)))
    return _with_gaps(values, sorted(rows), found)


def gaps_of(values: array[float]) -> list[int]:
    """The rows that hold no number, in order."""
    found: list[int] = []
    for at in range(0, len(values), _AT_ONCE):
        stretch = values[at : at + _AT_ONCE]
        total = sum(stretch)
        if total - total != 0.0:  # a finite sum has no NaN in it
            found += [at + place for place, value in enumerate(stretch) if value != value]
    return found


def without_gaps(values: array[float], gaps: list[int]) -> array[float]:
    """The numbers of `values`, given where it holds none."""
    numbers, start = array("d"), 0
    for gap in gaps:
        numbers += values[start:gap]
        start = gap + 1
    return numbers + values[start:] if gaps else values


def _of_stretch(values: array[float], low: int, high: int, gaps: int) -> tuple[int, ...]:
    # As a list: each number is made an object once, and not for each of the ways through them.
    stretch = values[low:high].tolist()
    if not gaps:
        return low, low + stretch.index(min(stretch)), low + stretch.index(max(stretch)), high - 1
    rows = [low + place for place, value in enumerate(stretch) if value == value]
    if not rows:
        return ()
    lowest, highest = min(rows, key=values.__getitem__), max(rows, key=values.__getitem__)
    return rows[0], lowest, highest, rows[-1]


def _with_gaps(values: array[float], chosen: list[int], gaps: Sequence[int]) -> list[int]:
    """`chosen`, and one row of a gap between each two numbers that have one between them."""
    if not gaps or not chosen:
        return chosen
    rows = [chosen[0]]
    for row in chosen[1:]:
        before = rows[-1]
        following = bisect_right(gaps, before)
        if values[before] == values[before] and following < len(gaps) and gaps[following] < row:
            rows.append(gaps[following])
        rows.append(row)
    return rows


_BREAK = re.compile(b"[%c%c%c]" % (BROKE, INTERRUPTED, LOST))
_EACH_MARKED, _EACH_OF_SEVERAL, _MOST_POINTS = 60, 15, 400
"""Up to how many points each has a marker, in one run, in several, and of a number that is said seldom.

Beyond, only those have one that no stroke reaches."""
MOST_BREAKS = 4000
ESTIMATE = ", smoothed (one-sided estimate)"
_NAME = 40
"""The number of letters of a series' name in the legend."""
_WHY_WIDTH = 64
Drawn = tuple[list[float | None], list[float | None]]


class TraceSegment(NamedTuple):
    """A segment's rows, the column over them, which of its places are drawn, and where it has no number."""

    rows: Sequence[int]
    values: array[float]
    places: list[int]
    gaps: list[int]


class Strokes:
    """The traces of one run, with at most about `buckets` times four points each."""

    def __init__(self, columns: Columns, buckets: int) -> None:
        self.columns = columns
        self.segments = columns.segments()
        self.lines = columns.lines()
        self.buckets = buckets
        self.breaks = [found.start() for found in _BREAK.finditer(columns.states)]
        self.marked = _thinned(self.breaks)
        self.series = [list(self._stretches(series.values, series.kinds)) for series in columns.series]
        self.took = list(self._stretches(columns.took_us))

    @property
    def condensed(self) -> bool:
        """Whether less is drawn than there is."""
        return any(len(one.places) < len(one.rows) for column in [*self.series, self.took] for one in column)

    def drawn(self, place: int | None) -> list[float]:
        """The numbers that are drawn of a series, or of the durations."""
        stretches = self.took if place is None else self.series[place]
        return [value for _, values, places, _ in stretches for at in places if (value := values[at]) == value]

    def _stretches(self, values: array[float], kinds: bytearray | None = None) -> Iterator[TraceSegment]:
        """The lines of a column. Rows of which `kinds` says that nothing was said are passed over: they cut none."""
        passes_over = kinds is not None and NOTHING in kinds
        for segment in self.lines:
            rows = segment
            if kinds is not None and passes_over:
                known = (
                    kinds[segment.start : segment.stop]
                    if isinstance(segment, range)
                    else [kinds[row] for row in segment]
                )
                rows = array("q", compress(segment, known))
                if not rows:
                    continue
            whole = len(rows) == len(values)
            column = values if whole else array("d", [values[row] for row in rows])
            share = max(1, self.buckets * len(segment) // max(1, len(values)))
            gaps = gaps_of(column)
            yield TraceSegment(rows, column, downsampled(column, share, gaps=gaps), gaps)

    def points(self, stretches: Sequence[TraceSegment]) -> Drawn:
        """Forwards and numbers; None where there is a gap, and both None between two segments."""
        return self._joined(
            (rows, places, [value if (value := values[place]) == value else None for place in places])
            for rows, values, places, _ in stretches
        )

    def smoothed(self, means: Sequence[RollingMeans]) -> Drawn:
        """As `points`, of the means; nothing of segments that are shorter than a window."""
        return self._joined((one.stretch.rows, places, one.of(places)) for one in means if (places := one.places()))

    def estimated(self, means: Sequence[RollingMeans]) -> Drawn:
        """The means of the last segment from its last whole window on, each over the part of its window that exists."""
        return self._joined((one.stretch.rows, places, one.of(places)) for one in means[-1:] if (places := one.tail()))

    def _joined(self, parts: Iterable[tuple[Sequence[int], Sequence[int], list[float | None]]]) -> Drawn:
        xs: list[float | None] = []
        ys: list[float | None] = []
        at = self.columns.at
        for rows, places, numbers in parts:
            if xs:
                xs.append(None)
                ys.append(None)
            xs += [at[rows[place]] for place in places]
            ys += numbers
        return xs, ys


def is_seldom(series: Series) -> bool:
    """Whether a number was said in a fifth of the forwards at most, and so few times that each is drawn as a point."""
    said = len(series.kinds) - series.kinds.count(NOTHING)
    return 0 < said <= min(len(series.kinds) // 5, _MOST_POINTS)


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
    seldom = is_seldom(series)
    raw["line"] |= {"width": themes.RAW if smoothed or seldom else themes.SMOOTHED / 1.4}
    raw["opacity"] = 0.8 if smoothed else 1.0
    raw |= look.marked(ys, _MOST_POINTS if seldom else _EACH_OF_SEVERAL if look.prefix else _EACH_MARKED)
    raw["showlegend"] = named and (not smoothed or not look.prefix)
    if means is None:
        return [_in_units(raw, size, timed=timed)]
    bold = look.trace(f"{name}, smoothed", *mean, panel)
    bold["line"] |= {"width": themes.SMOOTHED}
    bold |= look.marked(bold["y"], 0, size=6)
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
    """The trace of durations, in units of `size` microseconds."""
    xs, ys = strokes.points(strokes.took)
    trace = look.trace("took", xs, [None if us is None else us / size for us in ys], panel)
    trace["customdata"] = themes.each_took(ys)
    trace["line"] |= {"width": themes.RAW}
    trace["showlegend"] = not look.prefix
    return trace | look.marked(ys)


class Look(NamedTuple):
    """The style of the traces of one run or series: hue, stroke, prefix of names."""

    colour: str
    stroke: str
    prefix: str
    symbol: str = "circle"

    def trace(self, name: str, xs: list[float | None], ys: list[float | None], panel: Panel) -> dict[str, Any]:
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

    def marked(self, ys: Sequence[float | None], each: int = _EACH_MARKED, size: int = 5) -> dict[str, Any]:
        """Markers: on every point where there are at most `each`, else on those that no stroke reaches."""
        marker = {"size": size, "color": self.colour, "line": {"width": 0}}
        if self.symbol != "circle":
            marker["symbol"] = self.symbol
        count = len(ys) - ys.count(None)
        if 0 < count <= each:
            return {"mode": "lines+markers", "marker": marker}
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
        return {"mode": "lines+markers", "marker": marker | {"size": [size * one for one in alone]}}


def broke_trace(strokes: Strokes, level: float, axis: str, prefix: str) -> dict[str, Any]:
    """A red mark for every forward that broke, was interrupted or is lost, whatever else is known of it."""
    columns, rows = strokes.columns, strokes.marked
    return {
        "type": "scatter",
        "name": f"{prefix}broke",
        "legendgroup": prefix or "broke",
        "showlegend": bool(rows),
        "x": [columns.at[row] for row in rows],
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
    """The end of a forward: its state, duration, and reason as far as known."""
    us, state = columns.took_us[row], STATES[columns.states[row]]
    words = f"forward {columns.forwards[row]:,}: {state}" + (f" after {themes.took(us)}" if us == us else "")
    why = columns.whys.get(row)
    lines = themes.wrapped(themes.cut(why.removesuffix(": "), 4 * _WHY_WIDTH), _WHY_WIDTH) if why else []
    return "<br>".join([words, *(themes.escaped(line) for line in lines)])


class Smoothing:
    """Over how many numbers the means of a figure are taken: `over`, 0 for no mean, None for a twentieth of a series.

    An `over` below 1 is a share of the numbers of each series.

    With None, a series that holds each of its values for a while has no mean. A figure of a part of what another shows
    has means of the same series as that; `like` is the other's. Where it is `live`, a mean goes on to the end of its
    series, as an estimate.
    """

    def __init__(self, over: float | None = None, like: Smoothing | None = None, *, live: bool = False) -> None:
        self.live = live
        self._over = over
        self._is_smoothed: dict[Hashable, bool] = {} if like is None else like._is_smoothed

    def means(self, key: Hashable, series: Series, stretches: Sequence[TraceSegment]) -> list[RollingMeans] | None:
        """Those of each stretch of a series, which `key` tells from the others of the figure; None for no mean."""
        if self._over == 0:
            return None
        means = [RollingMeans(one, self._window(series)) for one in stretches]
        if self._over is not None or self._is_smoothed.setdefault(
            key, not is_seldom(series) and not _is_stepped(means)
        ):
            return means
        return None

    def _window(self, series: Series) -> int:
        """Odd, so that it has a middle."""
        over = 0.05 if self._over is None else self._over
        wanted = over * series.kinds.count(NUMBER) if over < 1 else over
        return max(1, int(wanted)) | 1


class RollingMeans:
    """The rolling mean over the numbers of a stretch, gaps left out of it."""

    def __init__(self, stretch: TraceSegment, window: int) -> None:
        self.stretch = stretch
        self.numbers = without_gaps(stretch.values, stretch.gaps)
        self._mean = RollingMean(self.numbers, window)

    def places(self) -> list[int]:
        """The positions of the mean: where windows are whole; every other position of a condensed stretch."""
        first, last = self._mean.first, self._mean.last
        if first > last:
            return []
        return self._within(self._drawn(), first, last) if first else list(self._drawn())

    def tail(self) -> list[int]:
        """The places from the last whole window on, of those that are drawn."""
        mean, end = self._mean, len(self.numbers) - 1
        return self._within(self.stretch.places, max(0, mean.last), end) if mean.last < end and end >= 0 else []

    def _within(self, places: Sequence[int], first: int, last: int) -> list[int]:
        """Those from the `first` number to the `last`, both counted without gaps, and these two among them."""
        low, high = self._place_of(first), self._place_of(last)
        return sorted({low, high, *places[bisect_left(places, low) : bisect_left(places, high)]})

    def _place_of(self, number: int) -> int:
        """The position of a number in the stretch, gaps counted."""
        gaps = self.stretch.gaps
        return number + bisect_left(range(len(gaps)), number + 1, key=lambda at: gaps[at] - at)

    def _drawn(self) -> list[int]:
        places, values = self.stretch.places, self.stretch.values
        if len(places) == len(values):
            return places
        there = [values[at] == values[at] for at in places]
        beside = zip([False, *there], there, [*there[1:], False], strict=False)
        return [at for order, (at, near) in enumerate(zip(places, beside, strict=True)) if order % 2 or not all(near)]

    def of(self, places: Sequence[int]) -> list[float | None]:
        """The mean at each place; None in a gap."""
        gaps, mean, values = self.stretch.gaps, self._mean, self.stretch.values
        return [mean.at(at - bisect_left(gaps, at)) if values[at] == values[at] else None for at in places]


def _is_stepped(means: Sequence[RollingMeans]) -> bool:
    if len(means) == 1:
        return is_stepped(means[0].numbers)
    return is_stepped(array("d", chain.from_iterable(one.numbers for one in means)))

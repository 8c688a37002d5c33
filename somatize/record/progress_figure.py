"""The figure of a run's progress: columns in, traces and a layout out, as plain dicts that plotly takes.

Figures of a store and live views both come from here, so that they are the same for the same facts. Nothing here
reads a store, and plotly is not needed before the picture is made a figure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from somatize.errors import FigureError
from somatize.figures import plotly_backend
from somatize.figures import theme as themes
from somatize.figures.theme import Theme, counted, cut

from .panels import (
    TIME,
    AxisScale,
    Extent,
    Panel,
    count_axis,
    extent_of,
    is_duration,
    label,
    measured,
    number_axis,
    panels_of,
    place_panels,
    scale_of,
    scale_of_durations,
    scale_on_log,
    value_axis,
    without_outlier,
    x_in_hover,
)
from .run_columns import (
    BROKE,
    CLOCKS,
    INF,
    INTERRUPTED,
    LOST,
    MINUS_INF,
    MOST,
    MOST_CUTS,
    MOST_PANELS,
    NAN,
    NOTHING,
    NUMBER,
    OPEN,
    WORDS,
    Columns,
    Series,
)
from .traces import ESTIMATE, MOST_BREAKS, Look, Smoothing, Strokes, broke_trace, is_seldom, series_traces, took_trace

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure


_ODD = ((NAN, "NaN"), (INF, "inf"), (MINUS_INF, "-inf"))
_ENDS = ((BROKE, "broke"), (INTERRUPTED, "interrupted"), (LOST, "lost"), (OPEN, "still going"))


def notes_of(strokes: Strokes, *, brief: bool = False) -> list[str]:
    """Sentences about one run: how its forwards ended, odd values, where it was resumed."""
    columns = strokes.columns
    notes = [_ends(columns)] + ([f"the run {cut(columns.ended, 80)}"] if columns.ended else [])
    for what, where in [(columns, "forward"), *((line, "batch") for line in columns.outside)]:
        notes += [words for series in what.series if (words := _oddities(what, series, where, brief=brief))]
    notes += [f"{name}: {MOST} of {count:,} streams are drawn" for name, count in columns.left_out.items()]
    if columns.asked > MOST_PANELS:
        notes.append(f"{MOST_PANELS} of {columns.asked:,} numbers asked for are drawn")
    of_lines = _writers(strokes, brief=brief), _axis(columns, brief=brief), _condensed(strokes, brief=brief)
    return [*notes, *(words for words in of_lines if words)]


def _ends(columns: Columns) -> str:
    counts = [(columns.states.count(state), word) for state, word in _ENDS]
    whole = counted(len(columns), "forward")
    if len(columns) and columns.forwards[0] > 0:
        whole += f" ({columns.forwards[0]:,} to {columns.forwards[-1]:,})"
    return ", ".join([whole, *(f"{count:,} {word}" for count, word in counts if count)])


def _oddities(columns: Columns, series: Series, where: str, *, brief: bool) -> str:
    """Values that are no finite numbers, with the first forward or batch of each."""
    found = [
        f"{count:,} {word}" + ("" if brief else f" (first in {where} {columns.forwards[series.kinds.index(kind)]:,})")
        for kind, word in _ODD
        if (count := series.kinds.count(kind))
    ]
    if count := series.kinds.count(WORDS):
        found.append(f"{counted(count, 'text')} that {'is' if count == 1 else 'are'} no number{_example(series)}")
    return f"{series.name}: {', '.join(found)}" if found else ""


def _example(series: Series) -> str:
    return "" if series.words is None else f", such as {cut(series.words, 24)!r}"


def _writers(strokes: Strokes, *, brief: bool) -> str:
    segments, forwards = strokes.segments, strokes.columns.forwards
    if len(segments) < 2:
        return ""
    starts = resumed_at(strokes)
    if starts is None:
        return f"{len(segments)} writers at once, a line for each"
    changes = strokes.columns.changes
    shown = ", ".join(
        f"{forwards[row]:,}" + (f" ({cut(words, 60)})" if (words := changes.get(forwards[row])) else "")
        for row in starts[:3]
    )
    more = f" and {len(starts) - 3} times more" if len(starts) > 3 else ""
    return f"resumed at forward {shown}{more}" + ("" if brief else ", where the line is not joined")


def _axis(columns: Columns, *, brief: bool) -> str:
    """The forwards that are not on the axis, and where x goes back."""
    if columns.axis is None:
        return ""
    name, notes, again = cut(columns.axis.of, 40), [], redone_at(columns)
    if columns.off_axis:
        why = "" if brief else f", before the first {name} of a writer or after its last"
        notes.append(f"{counted(columns.off_axis, 'forward')} left out{why}")
    if again:
        more = f" and {len(again) - 1:,} times more" if len(again) > 1 else ""
        drawn = ", the line is not cut there" if len(again) > MOST_CUTS else "" if brief else ", in a new line"
        where = f"{columns.at[again[0]]:.6g} at forward {columns.forwards[again[0]]:,}"
        notes.append(f"{name} goes back to {where}{more}{drawn}")
    return "; ".join(notes)


def redone_at(columns: Columns) -> list[int]:
    """The rows at which x goes back, in one writer or from one to the next."""
    if columns.axis is None or columns.axis.of in CLOCKS:
        return []
    x, pairs = columns.at, pairwise(columns.segments())
    between = [
        after[0] for before, after in pairs if before[-1] < after[0] and x[after[0]] <= max(x[row] for row in before)
    ]
    return sorted([*columns.back(), *between])


def resumed_at(strokes: Strokes) -> list[int] | None:
    """The rows at which another writer continues; None if several wrote at the same time."""
    segments = strokes.segments
    if any(before[-1] > after[0] for before, after in pairwise(segments)):
        return None
    return [segment[0] for segment in segments[1:]]


def _condensed(strokes: Strokes, *, brief: bool) -> str:
    if not strokes.condensed:
        return ""
    if brief:
        return "condensed"
    drawn = max(sum(len(one.places) for one in column) for column in [*strokes.series, strokes.took])
    kept = "every extreme and every break is kept"
    if len(strokes.marked) < len(strokes.breaks):
        kept = f"every extreme is kept, {len(strokes.marked):,} of {len(strokes.breaks):,} breaks are marked"
    return f"condensed: up to {drawn:,} of {len(strokes.columns):,} points a line; {kept}"


def silence_of(several: Sequence[Columns], places: Sequence[int]) -> str:
    """The text of a panel without numbers, for the series it would show."""
    name = several[0].series[places[0]].of
    outside = sum(columns.said_outside.get(name, 0) for columns in several)
    if any(one.off_axis for one in several) and not any(len(columns) for columns in several):
        return _NO_X
    if not any(len(columns) for columns in several):
        return "no forwards yet" + (f"; {_apart(name, outside)}" if outside else "")
    kinds = b"".join(bytes(columns.series[place].kinds) for columns in several for place in places)
    if kinds.count(NOTHING) == len(kinds):
        return f"no {cut(name, 40)} was said" + (f" in a forward; {_apart(name, outside)}" if outside else "")
    said = [(kinds.count(kind), word) for kind, word in (*_ODD, (WORDS, "text"))]
    words = ", ".join(counted(count, word, f"{word}s" if word == "text" else word) for count, word in said if count)
    assert not kinds.count(NUMBER)
    return f"{cut(name, 40)} was never a finite number: {words}"


def _apart(name: str, count: int) -> str:
    """The note on a number that was said outside of forwards."""
    return f"{cut(name, 40)} was said {counted(count, 'time')} outside of any, which is not drawn"


_NO_X = "no forward is between two that said x"
X = "x2"
"""The name of the axis of batches in a trace."""


class BatchPanels:
    """Panels over batches, for one or several runs with the same lines."""

    def __init__(self, columns: Sequence[Columns], panels: Sequence[Panel], buckets: int) -> None:
        lines = columns[0].outside
        self.panels = panels
        self._within = [
            [place for place, line in enumerate(lines) if line.series[0].of == panel.name] for panel in panels
        ]
        self._runs = [[Strokes(line, buckets) for line in one.outside] for one in columns]
        self._extents = [extent_of(self._drawn(places)) for places in self._within]
        self._scales = [scale_of(extent) for extent in self._extents]

    def _drawn(self, places: Sequence[int]) -> list[float]:
        return [number for run in self._runs for place in places for number in run[place].drawn(0)]

    @property
    def condensed(self) -> bool:
        """Whether less is drawn than there is."""
        return any(line.condensed for run in self._runs for line in run)

    def traces(
        self, order: int, look: Callable[[int, int], Look], smoothing: Smoothing, named: set[str]
    ) -> list[dict[str, Any]]:
        """The lines of one run; `look` is of a line's place, and its place in its panel. `named` are in the legend."""
        traces = []
        for panel, places, scale in zip(self.panels, self._within, self._scales, strict=True):
            for at, place in enumerate(places):
                strokes = self._runs[order][place]
                series, size = strokes.columns.series[0], scale.size
                shown = bool(strokes.drawn(0)) and series.name not in named
                means = smoothing.means((order, "batches", place), series, strokes.series[0])
                live = smoothing.live
                traces += series_traces(strokes, 0, panel, look(place, at), means, named=shown, size=size, live=live)
        return traces

    def axes(self, look: Theme) -> dict[str, Any]:
        """Their axes, by what those are called in a layout."""
        if not self.panels:
            return {}
        lines = [line.columns.forwards for run in self._runs for line in run if len(line.columns)]
        spans = [(min(batches), max(batches)) for batches in lines]
        values = zip(self.panels, self._extents, self._scales, strict=True)
        return {
            f"xaxis{X[1:]}": count_axis(look, self.panels[-1], spans, "batch"),
            **{panel.key: value_axis(look, panel, extent, scale) for panel, extent, scale in values},
        }

    def labels(self, look: Theme) -> list[dict[str, Any]]:
        """The titles of the panels."""
        made = []
        for panel, extent, scale in zip(self.panels, self._extents, self._scales, strict=True):
            words = scale.words if extent else ""
            made.append(label(look, panel, f"{themes.escaped(panel.name, 44)}, outside of forwards{words}"))
            if extent is None:
                made.append(themes.in_the_middle(look, f"{panel.name} was never a finite number", panel.middle))
        return made


_NAME = 28
_OPACITY, _LEVEL = 0.55, 0.04


class GreyRuns:
    """The other runs, a line of all of them in each panel."""

    def __init__(self, runs: Sequence[Strokes], look: Theme) -> None:
        self.runs = runs
        self._look = Look(look.faint, "solid", f"{counted(len(runs), 'other run')}: ")
        self._names = [themes.escaped(run.columns.run, _NAME) for run in runs]
        self._particular: Sequence[str] = [""] * len(runs)

    def tell(self, particular: Sequence[str]) -> None:
        """Note what is particular about each run, for the pointer."""
        self._particular = particular

    def traces(
        self, panels: Sequence[Panel], within: Sequence[Sequence[int]], sizes: Sequence[float]
    ) -> Iterator[dict[str, Any]]:
        """A line for each panel, the last of durations, and where they broke; sizes as in `AxisScale`."""
        for panel, places, size in zip(panels, [*within, [None]], sizes, strict=True):
            yield self._line(panel, places, size) | {"showlegend": panel is panels[0]}
        broke = f"y{len(panels) + 1}"
        marks = [broke_trace(run, _LEVEL, broke, self._look.prefix) for run in self.runs]
        words = [f"{name}, {text}" for name, one in zip(self._names, marks, strict=True) for text in one["hovertext"]]
        at = [x for one in marks for x in one["x"]]
        step = -(-len(at) // MOST_BREAKS) or 1
        yield marks[0] | {
            "x": at[::step],
            "y": [_LEVEL] * len(at[::step]),
            "hovertext": words[::step],
            "showlegend": False,
        }

    def _line(self, panel: Panel, places: Sequence[int | None], size: float) -> dict[str, Any]:
        xs: list[float | None] = []
        ys: list[float | None] = []
        said: list[str | None] = []
        for name, run, more in zip(self._names, self.runs, self._particular, strict=True):
            for place in places:
                at, values = run.points(run.took if place is None else run.series[place])
                words = themes.each_took(values) if place is None else [_number(value) for value in values]
                xs += [*at, None]
                ys += [*(None if value is None else value / size for value in values), None]
                said += [*(f"{name}: {text}{more}" for text in words), None]
        trace = self._look.trace("took" if panel.name == "took" else themes.escaped(panel.name, 40), xs, ys, panel)
        trace["line"] |= {"width": 1}
        few = all(place is None or is_seldom(run.columns.series[place]) for run in self.runs for place in places)
        marked = self._look.marked(ys, len(ys) if few and places != [None] else 0, size=4)
        return trace | marked | {"opacity": _OPACITY, "customdata": said}


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}"


_POINTS = 2400
"""About how many points all series of one figure have together once they are condensed, and all durations."""
_FEWEST_BUCKETS = 50
_RESUMED_SHOWN, _RUNS_TOLD, _MARKS_NAMED = 30, 6, 8
_LINES = 96
"""About how many lines of several runs have a look of their own; a run more than `MOST` never has."""
_RUN = 28
"""The number of letters of a run's name in the legend of several runs."""
_LABEL, _TO_LEGEND = 28, 46
"""Heights in pixels: a panel's label, the axis of forwards."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A plotly figure as plain dicts: traces and a layout.

    And what a picture of a part of it has in common with it: the scale of each panel of numbers, and which series have
    a mean.
    """

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    scales: Sequence[AxisScale] = ()
    smoothing: Smoothing = field(default_factory=Smoothing)


class Style(NamedTuple):
    """The drawing of numbers: smoothing, a logarithmic axis (``"y"``), and the numbers that share a panel.

    `first` says which runs come first, where some are grey.
    """

    smooth: float | None = None
    log: str | None = None
    panels: Sequence[Sequence[str]] | None = None
    first: str = "first"


_FALLS = re.compile(
    r"(?i)loss|err|nll|perplexity|ppl|(?:^|[._/-])(?:r?mse|mae|wer|cer|fid|kl|bpb|us)(?:$|[._/-])|time|_us$"
)


def _coloured(columns: Sequence[Columns]) -> int:
    """How many runs have a look of their own."""
    return max(2, min(MOST, _LINES // max(1, len(columns[0].series) + len(columns[0].outside))))


def best_first(columns: Sequence[Columns]) -> tuple[Sequence[Columns], str]:
    """The runs, the best by the first number first where not all have a look of their own, and words about that.

    The lowest are the best of what is called a loss, an error or a time, the highest of all else.
    """
    if len(columns) <= _coloured(columns) or not columns[0].series:
        return columns, "first"
    name = columns[0].series[0].of
    falls = _FALLS.search(name) is not None

    def rank(one: Columns) -> float:
        said = [value for value in one.series[0].values if value == value]
        return math.inf if not said else min(said) if falls else -max(said)

    return sorted(columns, key=rank), f"{'lowest' if falls else 'highest'} by {cut(name, 40)}"


def progress_figure(
    columns: Sequence[Columns],
    style: Style = Style(),  # noqa: B008
    *,
    theme: str | None = None,
    title: str | None = None,
) -> Figure:
    """`progress_picture` as a plotly figure. Raises `ExtraMissing` without plotly."""
    picture = progress_picture(columns, style, theme=theme, title=title)
    return plotly_backend.figure(picture.data, picture.layout)


def progress_picture(
    columns: Sequence[Columns],
    style: Style = Style(),  # noqa: B008
    *,
    theme: str | None = None,
    title: str | None = None,
    whole: Picture | None = None,
    live: bool = False,
) -> Picture:
    """A panel per number, and below them the durations, over one axis: of forwards, or that of the columns.

    `columns` are those of one run or several, each with the same series. `style.smooth` is over how many said numbers
    a mean is taken, 0 for no mean, None for a twentieth of them, where a series does not hold each value for a while.
    `title` is text. `whole` is the picture of more of the same, on whose axes and with whose lines this one is drawn.
    Where it is `live`, a mean goes on to the end as an estimate, which is dotted. Raises `FigureError`.
    """
    _check(columns, style)
    return _Progress(columns, style, themes.theme_of(theme), title, whole, live=live).picture()


def _check(columns: Sequence[Columns], style: Style) -> None:
    smooth = style.smooth
    if smooth is not None and not (smooth >= 0 if type(smooth) is int else type(smooth) is float and 0 < smooth < 1):
        raise FigureError(
            f"smooth={smooth!r}: a whole number of values, 0 for no mean, a share of them below 1, None to leave it to "
            "the figure"
        )
    if style.log not in (None, "y"):
        raise FigureError(f"log={style.log!r}: it is 'y', or None to leave it to the figure")
    if not columns or any(
        [series.name for series in one.series] != [series.name for series in columns[0].series] for one in columns
    ):
        raise FigureError("progress is drawn of one run or several, each with the same series")


def _hues(columns: Columns) -> list[int]:
    """The number of the hue of each series: one for what measures the same, and for a stream in all panels."""
    seen: dict[str, int] = {}
    every = (*columns.series, *(line.series[0] for line in columns.outside))
    return [
        seen.setdefault(measured(series.name) if series.stream is None else f"of {series.stream}", len(seen))
        for series in every
    ]


def _in_units(several: Sequence[Columns]) -> tuple[Sequence[Columns], str]:
    """The columns with times as the axis has them, and the title of the axis."""
    axis = several[0].axis
    if axis is None or axis.of not in CLOCKS:
        return several, "forward" if axis is None else axis.of
    words, size = TIME, 1e-3
    if axis.of == "elapsed":
        unit, us = themes.unit(1e6 * max((max(one.at) for one in several if len(one)), default=0.0))
        words, size = f"elapsed, {unit}", us / 1e6
    return [one.in_units(size) for one in several], words


_TOLD, _KEYS = 48, 4


def _particular(columns: Sequence[Columns]) -> list[str]:
    """By run, the keys of its configuration in which the runs differ, and how it ended; empty for a single run."""
    if len(columns) < 2:
        return []
    names = dict.fromkeys(name for one in columns for name in one.config)
    differing = [name for name in names if any(one.config.get(name) != columns[0].config.get(name) for one in columns)]
    told = []
    for one in columns:
        words = [f"{name} {one.config[name]}" for name in differing[:_KEYS] if name in one.config]
        words = [themes.escaped(word, _TOLD) for word in (*words, one.ended) if word]
        told.append("".join(f"<br>{word}" for word in words))
    return told


def _scaled(drawn: list[float], log: str | None, *, durations: bool) -> tuple[Extent | None, AxisScale]:
    """The extent of the axis of a panel, and its scale."""
    if durations:
        extent = extent_of(drawn)
        return extent, scale_of_durations(extent)
    if log:
        return scale_on_log(drawn)
    extent, words = without_outlier(drawn)
    scale = scale_of(extent)
    return extent, scale._replace(words=scale.words + words)


class _Progress:
    """One picture being made."""

    def __init__(
        self,
        columns: Sequence[Columns],
        style: Style,
        look: Theme,
        title: str | None,
        whole: Picture | None,
        *,
        live: bool,
    ) -> None:
        columns, self.x = _in_units(columns)
        lines = max(1, len(columns[0].series) + len(columns[0].outside))
        named = _coloured(columns)
        self.everyone = columns
        self.columns = columns[:named]
        self.smoothing = Smoothing(style.smooth, whole.smoothing if whole else None, live=live)
        self.look = look
        self.style = style
        self.title = title
        asked = [series.of for series in columns[0].series]
        self.hues = _hues(columns[0])
        apart = list(dict.fromkeys(line.series[0].of for line in columns[0].outside))
        groups = panels_of(list(dict.fromkeys(asked)), style.panels, len(columns))
        self.panels, over_batches, self.height = place_panels([", ".join(names) for names in groups], apart)
        self.within = [[place for name in names for place, of in enumerate(asked) if of == name] for names in groups]
        """By panel except the last: the positions of its series."""
        self.durations = [all(map(is_duration, names)) for names in groups]
        buckets = max(_FEWEST_BUCKETS, _POINTS // 4 // (lines * len(self.columns)))
        self.runs = [Strokes(one, buckets) for one in self.columns]
        rest = columns[named:]
        few = max(1, 4 * _POINTS // max(1, lines * len(rest)))
        self.rest = GreyRuns([Strokes(one, few) for one in rest], look) if rest else None
        self.batches = BatchPanels(self.columns, over_batches, buckets)
        took = extent_of(self._drawn([None]))
        scaled = [
            _scaled(self._drawn(places), style.log, durations=durations)
            for places, durations in zip(self.within, self.durations, strict=True)
        ]
        self.extents = [*(extent for extent, _ in scaled), took]
        of_series = (whole.scales if whole else ()) or [scale for _, scale in scaled]
        self.scales = [*of_series, scale_of_durations(took)]
        self.shown = themes.apart([one.run for one in self.columns], _RUN)
        told = _particular(columns)
        self.particular = {self._look(order).prefix: told[order] for order in range(len(self.runs)) if told}
        """By legend group of a run: what is particular about it."""
        if self.rest:
            self.rest.tell(told[named:])

    def _drawn(self, places: Sequence[int | None]) -> list[float]:
        runs = [*self.runs, *(self.rest.runs if self.rest else ())]
        return [number for strokes in runs for place in places for number in strokes.drawn(place)]

    def picture(self) -> Picture:
        size = self.scales[-1].size
        data: list[dict[str, Any]] = []
        if self.rest:
            data += self.rest.traces(self.panels, self.within, [scale.size for scale in self.scales])
        for order in range(len(self.runs)):
            data += (lines := self._lines(order))
            data += self._over_batches(order, {trace["name"] for trace in lines if trace["showlegend"]})
        data += [took_trace(run, self.panels[-1], self._look(order), size) for order, run in enumerate(self.runs)]
        data += [self._breaks(order) for order in range(len(self.runs))]
        # What comes and goes with the length of a series is last: the others keep their places in a widget.
        data.sort(key=lambda trace: trace["name"].endswith(ESTIMATE))
        self._hover(data)
        return Picture(data, self._layout(themes.legend_height(data)), self.scales[:-1], self.smoothing)

    def _look(self, order: int, place: int | None = None, stream: int | None = None) -> Look:
        """One run: a hue per series and stream. Several: a hue per run, and a stroke for each stream of a panel."""
        if len(self.runs) > 1:
            stroke = themes.dash(order) if stream is None else themes.DASHES[stream % len(themes.DASHES)]
            prefix = f"{themes.escaped(self.shown[order])}: "
            return Look(themes.hue(order), stroke, prefix, themes.symbol(order))
        if place is None:
            return Look(themes.hue(unused := max(self.hues, default=-1) + 1), themes.dash(unused), "")
        hue = self.hues[place]
        alike = [other for other in range(place) if self.hues[other] == hue and self._is_number(other)]
        stroke = (
            themes.DASHES[len(alike) % len(themes.DASHES)] if alike and self._is_number(place) else themes.dash(hue)
        )
        return Look(themes.hue(hue), stroke, "")

    def _is_number(self, place: int) -> bool:
        """Whether a series is no stream's."""
        series = self.columns[0].series
        return place < len(series) and series[place].stream is None

    def _lines(self, order: int) -> list[dict[str, Any]]:
        traces = []
        for panel, places, scale in zip(self.panels, self.within, self.scales, strict=False):
            for at, place in enumerate(places):
                look = self._look(order, place, at if len(places) > 1 else None)
                named = len(self.runs) == 1 or place == 0  # of several runs, each shows its first line
                if len(places) > 1:  # and of several streams those that said something
                    named = bool(self.runs[order].drawn(place))
                run = self.runs[order]
                means = self.smoothing.means((order, place), run.columns.series[place], run.series[place])
                live = self.smoothing.live
                traces += series_traces(run, place, panel, look, means, named=named, size=scale.size, live=live)
        return traces

    def _over_batches(self, order: int, named: set[str]) -> list[dict[str, Any]]:
        inside = len(self.hues) - len(self.columns[0].outside)
        return self.batches.traces(
            order, lambda place, at: self._look(order, inside + place, at), self.smoothing, named
        )

    def _breaks(self, order: int) -> dict[str, Any]:
        level = 0.04 + 0.06 * (order % 10)
        trace = broke_trace(self.runs[order], level, f"y{len(self.panels) + 1}", self._look(order).prefix)
        if len(self.runs) > _MARKS_NAMED:
            trace["showlegend"] = False  # a mark is red whosever it is, and what a legend can hold is little
        return trace

    def _hover(self, data: list[dict[str, Any]]) -> None:
        for trace in data:
            if "hovertemplate" not in trace:
                closest = self._condensed() or len(self.runs) > len(themes.HUES)
                where = f"{x_in_hover('batch' if trace['xaxis'] == X else self.x)}<br>" if closest else ""
                what = "%{customdata}" if "customdata" in trace else "%{y:.6~g}"
                more = self.particular.get(trace["legendgroup"], "")
                trace["hovertemplate"] = f"{where}{what}<extra>{trace['name']}{more}</extra>"

    def _condensed(self) -> bool:
        return self.rest is not None or self.batches.condensed or any(strokes.condensed for strokes in self.runs)

    def _layout(self, legend: int) -> dict[str, Any]:
        title, head = themes.title(self.look, self.title or "", self._notes())
        above, below = head + _LABEL, _TO_LEGEND + legend
        layout = themes.layout(
            self.look,
            height=above + self.height + below,
            margin={"t": above, "b": below, "l": 8, "r": 14},
            title=title,
            # Points of several lines stand above one another only where every forward is drawn.
            hovermode="closest" if self._condensed() or len(self.runs) > len(themes.HUES) else "x unified",
            hoversubplots="axis",
            legend=themes.legend(-_TO_LEGEND / self.height),
            annotations=[*self._annotations(), *self.batches.labels(self.look)],
            shapes=self._resumptions(),
            xaxis=self._forwards_axis(),
            **self.batches.axes(self.look),
        )
        every = zip(self.panels, self.extents, self.scales, [*self.durations, True], strict=True)
        for panel, extent, scale, durations in every:
            layout[panel.key] = value_axis(self.look, panel, extent, scale, durations=durations)
        layout[f"yaxis{len(self.panels) + 1}"] = {
            "overlaying": "y",
            "range": [0, 1],
            "fixedrange": True,
            "visible": False,
        }
        return layout

    def _notes(self) -> list[str]:
        if len(self.runs) == 1:
            return themes.wrapped(". ".join(notes_of(self.runs[0])))
        lines = []
        for name, strokes in list(zip(self.shown, self.runs, strict=True))[:_RUNS_TOLD]:
            lines += themes.wrapped(f"{name}: {'; '.join(notes_of(strokes, brief=True))}")
        others = len(self.rest.runs) if self.rest else 0
        more = len(self.runs) + others - _RUNS_TOLD
        lines += [f"and {themes.counted(more, 'run')} more"] if more > 0 else []
        if others:
            count, which = len(self.runs), self.style.first
            named = f"the first {count}" if which == "first" else f"the {count} {which}"
            lines += themes.wrapped(f"{named} have colours of their own, the others are grey")
        return lines

    def _annotations(self) -> list[dict[str, Any]]:
        made = []
        for place, (panel, extent, scale) in enumerate(zip(self.panels, self.extents, self.scales, strict=True)):
            took = panel is self.panels[-1]
            name = "took" if took else themes.escaped(panel.name, 44)
            made.append(label(self.look, panel, name + (scale.words if extent or took else "")))
            if extent is None:
                silence = self._no_end() if took else silence_of(self.everyone, self.within[place])
                made.append(themes.in_the_middle(self.look, silence, panel.middle))
        return made

    def _no_end(self) -> str:
        if any(len(one) for one in self.everyone):
            return "no forward has ended"
        if any(one.off_axis for one in self.everyone):
            return _NO_X
        return "" if self.within else "no forwards yet"

    def _resumptions(self) -> list[dict[str, Any]]:
        if self.columns[0].axis is not None:
            return self._redone()
        if len(self.runs) > 1:
            return []
        rows = resumed_at(self.runs[0]) or []
        starts = [self.columns[0].forwards[row] for row in rows[:_RESUMED_SHOWN]]
        common = {"type": "line", "y0": 0, "y1": self.panels[0].high, "yref": "paper"}
        return [
            # Where the configuration changed the line is bold.
            {
                **common,
                "x0": at - 0.5,
                "x1": at - 0.5,
                "line": {"color": self.look.faint, "width": width, "dash": "dot"},
            }
            for at, width in ((start, 2 if start in self.columns[0].changes else 1) for start in starts)
        ]

    def _redone(self) -> list[dict[str, Any]]:
        """A dotted line where a run was resumed, and where its x goes back, in the colour of the run."""
        marks = []
        for order, run in enumerate(self.runs):
            colour = self.look.faint if len(self.runs) == 1 else themes.hue(order)
            rows = sorted({*(resumed_at(run) or []), *redone_at(run.columns)})
            marks += [(run.columns.at[row], colour) for row in rows[:_RESUMED_SHOWN]]
        common = {"type": "line", "y0": 0, "y1": self.panels[0].high, "yref": "paper"}
        return [
            {**common, "x0": at, "x1": at, "line": {"color": colour, "width": 1, "dash": "dot"}} for at, colour in marks
        ]

    def _forwards_axis(self) -> dict[str, Any]:
        if self.columns[0].axis is not None:
            ends = [(min(one.at), max(one.at)) for one in self.everyone if len(one)]
            return number_axis(self.look, self.panels[-1], ends, self.x)
        spans = [(one.forwards[0], one.forwards[-1]) for one in self.everyone if len(one)]
        return count_axis(self.look, self.panels[-1], spans, "forward")

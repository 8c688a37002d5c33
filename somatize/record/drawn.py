"""Progress as a picture: columns in, traces and a layout out, as plain dicts that plotly takes.

Figures of a store and live views both come from here, so that they are the same for the same facts. Nothing here
reads a store, and plotly is not needed before the picture is made a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from somatize.errors import FigureError
from somatize.figures import plotly_backend
from somatize.figures import theme as themes
from somatize.figures.theme import Theme

from .batches import BatchPanels, X
from .columns import Columns
from .gathered import Gathered
from .notes import notes_of, resumed_at, silence_of
from .panels import (
    Extent,
    Scale,
    count_axis,
    extent_of,
    is_duration,
    label,
    place_panels,
    scale_of,
    scale_of_durations,
    value_axis,
)
from .smoothing import Smoothing
from .streams import MOST
from .strokes import ESTIMATE, Look, Strokes, broke_trace, series_traces, took_trace

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure

_POINTS = 2400
"""About how many points all series of one figure have together once they are condensed, and all durations."""
_FEWEST_BUCKETS = 50
_RESUMED_SHOWN, _RUNS_TOLD, _MARKS_NAMED = 30, 6, 8
_LINES = 96
"""About how many lines of several runs have a look of their own; a run more than `MOST` never has."""
_RUN = 28
"""How many letters of a run's name stand in the legend of several."""
_LABEL, _TO_LEGEND = 28, 46
"""Heights in pixels: a panel's label, the axis of forwards."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Traces and a layout, plain dicts: what a plotly figure is made of.

    And what a picture of a part of it has in common with it: the scale of each panel of numbers, and which series have
    a mean.
    """

    data: list[dict[str, Any]]
    layout: dict[str, Any]
    scales: Sequence[Scale] = ()
    smoothing: Smoothing = field(default_factory=Smoothing)


def progress_figure(
    columns: Sequence[Columns], *, smooth: int | None = None, theme: str | None = None, title: str | None = None
) -> Figure:
    """`progress_picture` as a plotly figure. Raises `ExtraMissing` without plotly."""
    picture = progress_picture(columns, smooth=smooth, theme=theme, title=title)
    return plotly_backend.figure(picture.data, picture.layout)


def progress_picture(
    columns: Sequence[Columns],
    *,
    smooth: int | None = None,
    theme: str | None = None,
    title: str | None = None,
    whole: Picture | None = None,
    live: bool = False,
) -> Picture:
    """A panel per number that was asked for, and below them how long each forward took, all over one axis of forwards.

    `columns` are those of one run or several, each with the same series. `smooth` is over how many said numbers a
    mean is taken, 0 for no mean, None for a twentieth of them, where a series does not hold each value for a while.
    `title` is text. `whole` is the picture of more of the same, on whose axes and with whose lines this one is drawn.
    Where it is `live`, a mean goes on to the end as an estimate, which is dotted. Raises `FigureError`.
    """
    _check(columns, smooth)
    return _Progress(columns, smooth, themes.theme_of(theme), title, whole, live=live).picture()


def _check(columns: Sequence[Columns], smooth: int | None) -> None:
    if smooth is not None and (type(smooth) is not int or smooth < 0):
        raise FigureError(f"smooth={smooth!r}: a whole number of values, 0 for no mean, None to leave it to the figure")
    if not columns or any(
        [series.name for series in one.series] != [series.name for series in columns[0].series] for one in columns
    ):
        raise FigureError("progress is drawn of one run or several, each with the same series")


def _hues(columns: Columns) -> list[int]:
    """The number of the hue of each series: that of a stream is the same in all panels."""
    seen: dict[str, int] = {}
    every = (*columns.series, *(line.series[0] for line in columns.outside))
    return [
        seen.setdefault(series.name if series.stream is None else f"of {series.stream}", len(seen)) for series in every
    ]


class _Progress:
    """One picture being made."""

    def __init__(
        self,
        columns: Sequence[Columns],
        smooth: int | None,
        look: Theme,
        title: str | None,
        whole: Picture | None,
        *,
        live: bool,
    ) -> None:
        lines = max(1, len(columns[0].series) + len(columns[0].outside))
        named = max(2, min(MOST, _LINES // lines))
        self.everyone = columns
        self.columns = columns[:named]
        self.smoothing = Smoothing(smooth, whole.smoothing if whole else None, live=live)
        self.look = look
        self.title = title
        asked = [series.of for series in columns[0].series]
        self.hues = _hues(columns[0])
        apart = list(dict.fromkeys(line.series[0].of for line in columns[0].outside))
        self.panels, over_batches, self.height = place_panels(list(dict.fromkeys(asked)), apart)
        self.within = [[place for place, of in enumerate(asked) if of == panel.name] for panel in self.panels[:-1]]
        """Of each panel but the last, the places of its series."""
        buckets = max(_FEWEST_BUCKETS, _POINTS // 4 // (lines * len(self.columns)))
        self.runs = [Strokes(one, buckets) for one in self.columns]
        rest = columns[named:]
        few = max(1, 4 * _POINTS // max(1, lines * len(rest)))
        self.rest = Gathered([Strokes(one, few) for one in rest], look) if rest else None
        self.batches = BatchPanels(self.columns, over_batches, buckets)
        self.extents = [self._extent(places) for places in self.within] + [self._extent([None])]
        of_series = (whole.scales if whole else ()) or [
            scale_of_durations(extent) if is_duration(panel.name) else scale_of(extent)
            for panel, extent in zip(self.panels, self.extents[:-1], strict=False)
        ]
        self.scales = [*of_series, scale_of_durations(self.extents[-1])]
        self.shown = themes.apart([one.run for one in self.columns], _RUN)

    def _extent(self, places: Sequence[int | None]) -> Extent | None:
        runs = [*self.runs, *(self.rest.runs if self.rest else ())]
        return extent_of([number for strokes in runs for place in places for number in strokes.drawn(place)])

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
            return Look(themes.hue(order), stroke, f"{themes.escaped(self.shown[order])}: ")
        index = max(self.hues, default=-1) + 1 if place is None else self.hues[place]
        return Look(themes.hue(index), themes.dash(index), "")

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
                counted = "batch" if trace["xaxis"] == X else "forward"
                where = f"{counted} %{{x:,d}}<br>" if self._condensed() else ""
                what = "%{customdata}" if "customdata" in trace else "%{y:.6~g}"
                trace["hovertemplate"] = f"{where}{what}<extra>{trace['name']}</extra>"

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
            hovermode="closest" if self._condensed() else "x unified",
            hoversubplots="axis",
            legend=themes.legend(-_TO_LEGEND / self.height),
            annotations=[*self._annotations(), *self.batches.labels(self.look)],
            shapes=self._resumptions(),
            xaxis=self._forwards_axis(),
            **self.batches.axes(self.look),
        )
        for panel, extent, scale in zip(self.panels, self.extents, self.scales, strict=True):
            durations = panel is self.panels[-1] or is_duration(panel.name)
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
            lines += themes.wrapped(f"the first {len(self.runs)} have colours of their own, the others are grey")
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
        return "" if self.within else "no forwards yet"

    def _resumptions(self) -> list[dict[str, Any]]:
        if len(self.runs) > 1:
            return []
        rows = resumed_at(self.runs[0]) or []
        stroke = {"color": self.look.faint, "width": 1, "dash": "dot"}
        forwards = self.columns[0].forwards
        return [
            {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": self.panels[0].high, "yref": "paper", "line": stroke}
            for at in (forwards[row] - 0.5 for row in rows[:_RESUMED_SHOWN])
        ]

    def _forwards_axis(self) -> dict[str, Any]:
        spans = [(one.forwards[0], one.forwards[-1]) for one in self.everyone if len(one)]
        return count_axis(self.look, self.panels[-1], spans, "forward")

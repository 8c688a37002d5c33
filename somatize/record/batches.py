"""The panels of what streams said outside of any forward: lines over batches, above those over forwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from somatize.figures import theme as themes
from somatize.figures.theme import Theme

from .columns import Columns
from .panels import Panel, count_axis, extent_of, label, scale_of, value_axis
from .smoothing import Smoothing
from .strokes import Look, Strokes, series_traces

X = "x2"
"""What the axis of batches is called in a trace."""


class BatchPanels:
    """What is drawn over batches, of one run or several, each with the same lines."""

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
        """What the panels show."""
        made = []
        for panel, extent, scale in zip(self.panels, self._extents, self._scales, strict=True):
            words = scale.words if extent else ""
            made.append(label(look, panel, f"{themes.escaped(panel.name, 44)}, outside of forwards{words}"))
            if extent is None:
                made.append(themes.in_the_middle(look, f"{panel.name} was never a finite number", panel.middle))
        return made

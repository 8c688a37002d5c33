"""Runs beyond those that a figure can tell apart: drawn as they are, but in one grey, and named where one points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from somatize.figures import theme as themes
from somatize.figures.theme import Theme, counted

from .panels import Panel
from .strokes import MOST_BREAKS, Look, Strokes, broke_trace

_NAME = 28
_OPACITY, _LEVEL = 0.55, 0.04


class Gathered:
    """The other runs, a line of all of them in each panel."""

    def __init__(self, runs: Sequence[Strokes], look: Theme) -> None:
        self.runs = runs
        self._look = Look(look.faint, "solid", f"{counted(len(runs), 'other run')}: ")
        self._names = [themes.escaped(run.columns.run, _NAME) for run in runs]

    def traces(
        self, panels: Sequence[Panel], within: Sequence[Sequence[int]], sizes: Sequence[float]
    ) -> Iterator[dict[str, Any]]:
        """A line for each panel, the last of durations, and where they broke; sizes as in `Scale`."""
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
        xs: list[int | None] = []
        ys: list[float | None] = []
        said: list[str | None] = []
        for name, run in zip(self._names, self.runs, strict=True):
            for place in places:
                at, values = run.points(run.took if place is None else run.series[place])
                words = themes.each_took(values) if place is None else [_number(value) for value in values]
                xs += [*at, None]
                ys += [*(None if value is None else value / size for value in values), None]
                said += [*(f"{name}: {text}" for text in words), None]
        trace = self._look.trace("took" if panel.name == "took" else themes.escaped(panel.name, 40), xs, ys, panel)
        trace["line"] |= {"width": 1}
        return trace | {"opacity": _OPACITY, "customdata": said}


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}"

"""The panels of a figure, one above the other over one axis, and their axes of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from somatize import theme as themes
from somatize.theme import Theme

_ALONE, _ONE_OF_SEVERAL, _TOOK, _BETWEEN = 250, 160, 110, 44
_APART, _APART_TOOK = 1e4, 30.0
"""How far the highest is above the lowest, or of durations above the middle one, where an axis is logarithmic."""
_TICKS = 7


class Panel(NamedTuple):
    """A stretch of the figure's height, in parts of it from below; `axis` is the number of its axis of values."""

    name: str
    axis: int
    low: float
    high: float

    @property
    def key(self) -> str:
        """What its axis is called in a layout."""
        return f"yaxis{self.axis if self.axis > 1 else ''}"

    @property
    def middle(self) -> float:
        """Its middle, in parts of the figure's height."""
        return (self.low + self.high) / 2

    @property
    def ref(self) -> str:
        """What its axis is called in a trace."""
        return f"y{self.axis if self.axis > 1 else ''}"


def place_panels(names: Sequence[str]) -> tuple[list[Panel], int]:
    """A panel for each name and one below them called ``took``; and the height of all in pixels."""
    each = _ALONE if len(names) <= 1 else _ONE_OF_SEVERAL
    heights = [each] * len(names) + [_TOOK]
    whole = sum(heights) + _BETWEEN * (len(heights) - 1)
    panels, top = [], whole
    for axis, (name, height) in enumerate(zip([*names, "took"], heights, strict=True), start=1):
        panels.append(Panel(name, axis, (top - height) / whole, top / whole))
        top -= height + _BETWEEN
    return panels, whole


class Extent(NamedTuple):
    """The lowest, the highest and the middle one of the numbers that are drawn."""

    low: float
    high: float
    middle: float

    def scaled(self, size: float) -> Extent:
        """The same in units of `size`."""
        return Extent(self.low / size, self.high / size, self.middle / size)


def value_axis(look: Theme, panel: Panel, extent: Extent | None, *, durations: bool = False) -> dict[str, Any]:
    """The axis of values of a panel; with nothing to draw it has no numbers on it."""
    common: dict[str, Any] = {
        "domain": [panel.low, panel.high],
        "anchor": "x",
        "exponentformat": "power",
        "minexponent": 4,
        "nticks": 6 if panel.high - panel.low > 0.4 else 4,
    }
    if extent is None:
        return themes.axis(look, **common, range=[0, 1], showticklabels=False, showgrid=False, fixedrange=True)
    if is_logarithmic(extent, durations=durations):
        low, high = math.log10(extent.low), math.log10(extent.high)
        room = (high - low) * 0.06
        ticks = _log_ticks(low - room, high + room)
        words = [f"{tick:g}" for tick in ticks]
        return themes.axis(look, **common, type="log", range=[low - room, high + room], tickvals=ticks, ticktext=words)
    return themes.axis(look, **common, type="linear", range=_room(extent, from_zero=durations))


def is_logarithmic(extent: Extent, *, durations: bool) -> bool:
    """Whether the numbers are so far apart that a linear axis would show the highest only."""
    if extent.low <= 0:
        return False
    return extent.high / extent.middle > _APART_TOOK if durations else extent.high / extent.low > _APART


def _log_ticks(low: float, high: float) -> list[float]:
    """A few round numbers between two powers of ten."""
    for digits, every in (((1, 2, 5), 1), *(((1,), every) for every in (1, 2, 3, 5, 10, 20, 50, 100, 200))):
        powers = range(math.ceil((low - 1) / every) * every, math.floor(high) + 1, every)
        ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        ticks = [tick for tick in ticks if tick and low <= math.log10(tick) <= high]
        if len(ticks) <= _TICKS:
            return ticks
    return []


def _room(extent: Extent, *, from_zero: bool) -> list[float]:
    """A range with some room around what is drawn, also if that is one number or the largest floats there are."""
    low, high = extent.low, extent.high
    if from_zero and low >= 0:
        return [0.0, min(high * 1.08, 1.7e308) if high else 1.0]
    half = high / 2 - low / 2
    room = half * 0.12
    if not room:
        room = abs(high) * 0.1 or 1.0
    return [max(low - room, -1.7e308), min(high + room, 1.7e308)]


def label(look: Theme, panel: Panel, words: str) -> dict[str, Any]:
    """What a panel shows, above its upper left corner."""
    return {
        "text": words,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": panel.high,
        "yref": "paper",
        "yanchor": "bottom",
        "yshift": 3,
        "showarrow": False,
        "align": "left",
        "font": {"size": themes.TEXT, "color": look.ink, "weight": 600},
    }

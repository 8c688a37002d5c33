"""The panels of a figure, one above the other over a shared x axis, and their axes."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Sequence
from statistics import median_low
from typing import Any, NamedTuple

from somatize.figures import theme as themes
from somatize.figures.theme import Theme

_ALONE, _ONE_OF_SEVERAL, _TOOK, _BETWEEN, _AXIS = 250, 160, 110, 44, 34
_APART, _APART_TOOK = 1e4, 30.0
"""Ratios above which an axis is logarithmic: highest to lowest, and for durations highest to median."""
_LEAST, _MOST = 1e-280, 1e300
"""The absolute values between which plotly can place ticks on a linear axis."""
_TICKS = 7


class Panel(NamedTuple):
    """A panel between two heights, as fractions of the figure from below; `axis` is the number of its y axis."""

    name: str
    axis: int
    low: float
    high: float
    x: str = "x"
    """The name of its x axis in a trace."""

    @property
    def key(self) -> str:
        """The name of its y axis in a layout."""
        return f"yaxis{self.axis if self.axis > 1 else ''}"

    @property
    def middle(self) -> float:
        """Its middle, as a fraction of the figure's height."""
        return (self.low + self.high) / 2

    @property
    def ref(self) -> str:
        """The name of its y axis in a trace."""
        return f"y{self.axis if self.axis > 1 else ''}"


class Panels(NamedTuple):
    """The panels over forwards, the last of them ``took``, those over batches above them, and the height in pixels.

    The number after the y axes of the panels over forwards is free for marks across the first panel.
    """

    forwards: list[Panel]
    batches: list[Panel]
    height: int


def place_panels(names: Sequence[str], batches: Sequence[str] = ()) -> Panels:
    """Panels from the top: one for each name over batches, one for each name over forwards, and ``took``."""
    each = _ALONE if len(names) + len(batches) <= 1 else _ONE_OF_SEVERAL
    heights = [each] * (len(batches) + len(names)) + [_TOOK]
    whole = sum(heights) + _BETWEEN * (len(heights) - 1) + (_AXIS if batches else 0)
    axes = [*range(len(names) + 3, len(names) + 3 + len(batches)), *range(1, len(names) + 2)]
    panels, top = [], whole
    for place, (name, axis, height) in enumerate(zip([*batches, *names, "took"], axes, heights, strict=True), 1):
        x = "x2" if place <= len(batches) else "x"
        panels.append(Panel(name, axis, (top - height) / whole, top / whole, x))
        top -= height + _BETWEEN + (_AXIS if place == len(batches) else 0)
    return Panels(panels[len(batches) :], panels[: len(batches)], whole)


_SPLIT = "train|training|val|valid|validation|test|eval"
_MEASURED = re.compile(rf"(?:(?:{_SPLIT})[._/-])?(.+?)(?:[._/-](?:{_SPLIT}))?")


def measured(name: str) -> str:
    """The name of a number without a leading or trailing ``train``, ``val``, ``test`` or the like."""
    found = _MEASURED.fullmatch(name)
    return found[1] if found else name


def panels_of(names: Sequence[str], panels: Sequence[Sequence[str]] | None, runs: int) -> list[list[str]]:
    """The numbers of each panel: as `panels` has them, else those together that measure the same.

    Of more runs than there are hues each number has a panel of its own: colours could not tell the lines apart.
    """
    if panels is not None:
        return [[name for name in panel if name in names] for panel in panels]
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(measured(name) if runs <= len(themes.HUES) else name, []).append(name)
    return list(found.values())


class Extent(NamedTuple):
    """The minimum, maximum and median of the numbers that are drawn."""

    low: float
    high: float
    middle: float


def extent_of(drawn: Sequence[float]) -> Extent | None:
    """The extent of these numbers, None without numbers."""
    return Extent(min(drawn), max(drawn), median_low(drawn)) if drawn else None


class AxisScale(NamedTuple):
    """The scale of a panel: numbers are divided by `size`, on a linear or a logarithmic axis.

    `words` describe it, and follow the panel's name.
    """

    size: float = 1.0
    words: str = ""
    logarithmic: bool = False


_FEWEST, _FLAT = 8, 20.0
"""Of how many numbers one may be left out of an axis, and how many times it widens the span of the others."""


def without_outlier(drawn: Sequence[float]) -> tuple[Extent | None, str]:
    """The extent of the numbers, without the one that would flatten all others; and words about that one."""
    extent = extent_of(drawn)
    if extent is None or len(drawn) < _FEWEST:
        return extent, ""
    low, second, *_ = heapq.nsmallest(2, drawn)
    high, last, *_ = heapq.nlargest(2, drawn)
    for outlier, rest in ((high, (low, last)), (low, (second, high))):
        if 0 < _FLAT * (rest[1] - rest[0]) < high - low < math.inf:
            return Extent(*rest, extent.middle), f", {outlier:.4g} is beyond the axis"
    return extent, ""


def scale_on_log(drawn: Sequence[float]) -> tuple[Extent | None, AxisScale]:
    """The extent and the scale of numbers on a logarithmic axis that was asked for."""
    above = [value for value in drawn if value > 0]
    if not above:
        return extent_of(drawn), AxisScale(words=", none above 0 for a log scale" if drawn else "")
    words = ", log scale" + ("; what is not above 0 is not on it" if len(above) < len(drawn) else "")
    return extent_of(above), AxisScale(words=words, logarithmic=True)


def scale_of(extent: Extent | None) -> AxisScale:
    """The scale of a series."""
    if extent is None:
        return AxisScale()
    highest = max(abs(extent.low), abs(extent.high))
    beyond = highest > 0 and not _LEAST <= highest <= _MOST
    if extent.low > 0 and (beyond or extent.high / extent.low > _APART):
        return AxisScale(words=", log scale", logarithmic=True)
    if beyond:
        exponent = math.floor(math.log10(highest))
        size = 10.0**exponent or 5e-324
        return AxisScale(size, f", in {themes.power(float(f'1e{exponent}') or size)}")
    return AxisScale()


def is_duration(name: str) -> bool:
    """True for a name of a number in microseconds: facts give these the suffix ``_us``."""
    return name.endswith("_us")


def scale_of_durations(extent: Extent | None) -> AxisScale:
    """The scale of durations in microseconds: the unit that fits the longest, or a logarithmic axis."""
    unit, size = themes.unit(extent.high if extent else 0.0)
    if extent and extent.low > 0 and extent.high / extent.middle > _APART_TOOK:
        return AxisScale(size, ", log scale", logarithmic=True)
    return AxisScale(size, f", {unit}")


def value_axis(
    look: Theme, panel: Panel, extent: Extent | None, scale: AxisScale, *, durations: bool = False
) -> dict[str, Any]:
    """The y axis of a panel, without tick labels if there is nothing to draw."""
    common: dict[str, Any] = {
        "domain": [panel.low, panel.high],
        "anchor": panel.x,
        "exponentformat": "power",
        "minexponent": 4,
        "nticks": 6 if panel.high - panel.low > 0.4 else 4,
    }
    if extent is None:
        return themes.axis(look, **common, range=[0, 1], showticklabels=False, showgrid=False, fixedrange=True)
    low, high = extent.low / scale.size, extent.high / scale.size
    if scale.logarithmic:
        low, high = math.log10(low), math.log10(high)
        room = (high - low) * 0.06 or 0.5
        ticks = (_duration_ticks if durations else log_ticks)(low - room, high + room, scale.size)
        marked = {"tickvals": [at for at, _ in ticks], "ticktext": [words for _, words in ticks]}
        return themes.axis(look, **common, type="log", range=[low - room, high + room], **marked)
    return themes.axis(look, **common, type="linear", range=_room(low, high, from_zero=durations))


def count_axis(look: Theme, panel: Panel, spans: Sequence[tuple[int, int]], what: str) -> dict[str, Any]:
    """The x axis of forwards or batches below a panel, without tick labels if `spans` is empty."""
    low = min((first for first, _ in spans), default=0)
    high = max((last for _, last in spans), default=1)
    room = max(0.5, (high - low) * 0.02)
    return themes.axis(
        look,
        anchor=panel.ref,
        range=[low - room, high + room],
        dtick=1 if high - low < 12 else None,
        nticks=8,
        tickformat=",d",
        hoverformat=",d",
        unifiedhovertitle={"text": f"{what} %{{x:,d}}"},
        title={"text": what, "font": {"size": themes.TEXT, "color": look.ink}, "standoff": 6},
        showspikes=False,
        showticklabels=bool(spans),
        showgrid=bool(spans),
    )


TIME = "time, UTC"
"""The title of the axis of time."""
_CLOCK = "%Y-%m-%d %H:%M:%S"


def number_axis(look: Theme, panel: Panel, spans: Sequence[tuple[float, float]], what: str) -> dict[str, Any]:
    """As `count_axis`, of any numbers; those of `TIME` are milliseconds since 1970."""
    low, high = min((first for first, _ in spans), default=0.0), max((last for _, last in spans), default=1.0)
    room = (high - low) * 0.02 or abs(high) * 0.02 or 0.5
    axis = count_axis(look, panel, [(0, 1)] * bool(spans), themes.escaped(what, 44))
    form = _CLOCK if what == TIME else ".6~g"
    axis |= {"range": [low - room, high + room], "dtick": None, "tickformat": "", "hoverformat": form}
    axis["unifiedhovertitle"] = {"text": x_in_hover(what)}
    return axis | ({"type": "date"} if what == TIME else {"exponentformat": "power"})


def x_in_hover(what: str) -> str:
    """The x of a point in a template of plotly."""
    form = f"|{_CLOCK}" if what == TIME else ":,d" if what in ("forward", "batch") else ":.6~g"
    return f"{themes.escaped(what, 44)} %{{x{form}}}"


_Ticks = list[tuple[float, str]]


def log_ticks(low: float, high: float, _size: float) -> _Ticks:
    """A few round numbers as ticks, given the logarithms of the ends of the axis."""
    for digits, every in (((1, 2, 5), 1), *(((1,), every) for every in (1, 2, 3, 5, 10, 20, 50, 100, 200))):
        powers = range(math.ceil((low - 1) / every) * every, math.floor(high) + 1, every)
        ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        ticks = [tick for tick in ticks if tick and low <= math.log10(tick) <= high]
        if len(ticks) <= _TICKS:
            return [(tick, themes.power(tick)) for tick in ticks]
    return []


_DURATIONS: Sequence[Sequence[float]] = (
    [digit * 10.0**power for power in range(6) for digit in (1, 2, 5)]
    + [seconds * 1e6 for seconds in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800)]
    + [hours * 3.6e9 for hours in (1, 2, 5, 10)]
    + [days * 8.64e10 for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)],
    [10.0**power for power in range(8)] + [6e7, 6e8, 3.6e9, 3.6e10, 8.64e10, 8.64e11, 8.64e12],
    [1.0, 1e3, 1e6, 6e7, 3.6e9, 8.64e10, 8.64e12],
)
"""Round durations in microseconds, from many to few."""


def _duration_ticks(low: float, high: float, size: float) -> _Ticks:
    """A few round durations, each in its own unit, given the logarithms of the ends in units of `size` microseconds."""
    for round_ones in _DURATIONS:
        ticks = [us for us in round_ones if low <= math.log10(us / size) <= high]
        if len(ticks) <= _TICKS:
            break
    return [(us / size, themes.took(us)) for us in ticks]


def _room(low: float, high: float, *, from_zero: bool) -> list[float]:
    """The range of an axis with a margin, also around a single number."""
    if from_zero and low >= 0:
        return [0.0, high * 1.08 if high else 1.0]
    room = (high - low) * 0.06
    if not room:
        room = abs(high) * 0.1 or 1.0
    return [low - room, high + room]


def label(look: Theme, panel: Panel, words: str) -> dict[str, Any]:
    """The title of a panel, above its upper left corner."""
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

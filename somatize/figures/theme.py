"""One table of colours, type, sizes and units for every figure, and the rule by which a name is shown as text.

One meaning per channel: hue says where or which series, red only marks a forward that broke. With no theme asked
for, the background is transparent, and every ink and hue here reads on a white page as on a dark one; a test
holds them to it, and the hues to being told apart by people who see colours differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

from somatize.errors import FigureError
from somatize.utils.units import duration

FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
TITLE, TEXT, SMALL = 16, 12, 11
"""Type sizes in pixels."""

HUES = ("#0070fa", "#db7c00", "#09a586", "#985294", "#a285e0", "#659852")
"""Series or places, in order; beyond the sixth they come again, dashed."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
RED = "#e03131"
"""A forward that broke, and nothing else."""

RAW, SMOOTHED = 1.2, 2.6
"""Line widths: what was measured, and its rolling mean."""
_NARROW, _TITLE_WIDTH = 370, 42
"""The narrowest figure that must read well, in pixels within its margins; and how many letters of a title it holds."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours, type and sizes of a figure."""

    ink: str
    faint: str
    grid: str
    background: str
    hover: str
    hover_ink: str


_THEMES: Mapping[str | None, Theme] = {
    # A grey in the middle: 4.3 to 1 against white, 3.9 to 1 against the darkest page in common use.
    None: Theme("#797979", "#797979", "rgba(128,128,128,0.22)", "rgba(0,0,0,0)", "#2b2b2b", "#f2f2f2"),
    "light": Theme("#222222", "#595959", "#e3e3e3", "#ffffff", "#ffffff", "#222222"),
    "dark": Theme("#e8e8e8", "#a6a6a6", "#333333", "#161616", "#2b2b2b", "#f2f2f2"),
}


def theme_of(name: str | None) -> Theme:
    """The theme of that name, None for the one that reads on any page. Raises `FigureError`."""
    if name not in _THEMES:
        raise FigureError(f"theme={name!r}: a theme is 'light', 'dark', or None for one that reads on any page")
    return _THEMES[name]


def hue(index: int) -> str:
    """The colour of the series or place of that number."""
    return HUES[index % len(HUES)]


def dash(index: int) -> str:
    """The stroke of the series of that number; the first six are solid."""
    return DASHES[index // len(HUES) % len(DASHES)]


def symbol(index: int) -> str:
    """The symbol of points of the run of that number; the first six have circles."""
    return SYMBOLS[index // len(HUES) % len(SYMBOLS)]


def fill(index: int) -> str:
    """The fill colour of the place with that number; paler beyond the sixth hue."""
    return hue(index) if index < len(HUES) else tint(hue(index), max(0.2, 0.55 - 0.15 * (index // len(HUES) - 1)))


def tint(colour: str, opacity: float) -> str:
    """A hue as a fill that lets the page through."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def layout(theme: Theme, **more: Any) -> dict[str, Any]:
    """The base layout of every figure."""
    return {
        "template": {},
        "autosize": "width" not in more,
        "font": {"family": FAMILY, "size": TEXT, "color": theme.ink},
        "paper_bgcolor": theme.background,
        "plot_bgcolor": "rgba(0,0,0,0)",
        # Plotly makes a grey bar of a transparent page, and offers to send the figure to a server.
        "modebar": {
            "bgcolor": "rgba(0,0,0,0)",
            "color": theme.faint,
            "activecolor": theme.ink,
            "remove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
        },
        "hoverlabel": {
            "bgcolor": theme.hover,
            "bordercolor": theme.faint,
            "font": {"family": FAMILY, "size": TEXT, "color": theme.hover_ink},
            "align": "left",
            "namelength": -1,
        },
        **more,
    }


def axis(theme: Theme, **more: Any) -> dict[str, Any]:
    """The base settings of every axis: thin lines, no box, no zero line."""
    return {
        "gridcolor": theme.grid,
        "linecolor": theme.grid,
        "zeroline": False,
        "ticks": "",
        "tickfont": {"size": SMALL, "color": theme.faint},
        "automargin": True,
        **more,
    }


def title(theme: Theme, words: str, notes: Sequence[str]) -> tuple[dict[str, Any], int]:
    """A figure's title at its left, and under it lines of notes; both are text. Also how high they are together."""
    lines = wrapped(plain(words), _TITLE_WIDTH)
    made = {
        "text": "<br>".join(escaped(line) for line in lines),
        "x": 0,
        "xref": "container",
        "xanchor": "left",
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        # Plotly anchors several lines by the second of them.
        "pad": {"t": 12 if len(lines) == 1 else 23, "l": 10},
        "font": {"size": TITLE, "color": theme.ink},
        "subtitle": {
            "text": "<br>".join(escaped(line) for line in notes),
            "font": {"size": SMALL, "color": theme.faint},
        },
    }
    return made, 32 + 21 * len(lines) + 15 * len(notes)


def legend(y: float) -> dict[str, Any]:
    """A legend below the axes, its upper edge at `y` of their height."""
    return {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": y,
        "yanchor": "top",
        "font": {"size": SMALL},
        "bgcolor": "rgba(0,0,0,0)",
    }


def legend_height(data: Sequence[Mapping[str, Any]], beside: float = 0.0) -> int:
    """The height of the legend of these traces in a narrow figure, where it has the most rows.

    `beside` is how wide the labels of the axis are, to the right of which it begins.
    """
    groups: dict[str, list[float]] = {}
    for trace in data:
        if trace.get("showlegend", True):
            name = unescape(str(trace["name"]))
            groups.setdefault(trace.get("legendgroup") or name, []).append(44 + 6.4 * len(name))
    widths = [max(group) for group in groups.values()]
    if not any("legendgroup" in trace for trace in data):  # then all are as wide as the widest
        widths = [max(widths, default=0.0)] * len(widths)
    height, at, row = 10, 0.0, 0
    for width, group in zip(widths, groups.values(), strict=True):
        if at and at + width > _NARROW - beside:
            height, at, row = height + row, 0.0, 0
        at += width
        row = max(row, 10 + 19 * len(group))
    return height + row


def in_the_middle(theme: Theme, words: str, y: float = 0.5) -> dict[str, Any]:
    """The annotation shown in the place of a panel that cannot be drawn."""
    return {
        "text": "<br>".join(escaped(line) for line in wrapped(words, 44)),
        "x": 0.5,
        "xref": "paper",
        "y": y,
        "yref": "paper",
        "showarrow": False,
        "font": {"size": TEXT, "color": theme.faint},
    }


# -- names as text

_MEANT: Mapping[str, str] = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "%": "&#37;", "{": "&#123;"}
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_WORD = re.compile(r"\S+")
_RIGHT_TO_LEFT = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc"
_TURNED = re.compile(f"[{_RIGHT_TO_LEFT}](?:[{_RIGHT_TO_LEFT} ]*[{_RIGHT_TO_LEFT}])?(?! *[{_RIGHT_TO_LEFT}])(?=.)")
_LEFT_TO_RIGHT = "\u200e"


def escaped(words: object, most: int | None = None) -> str:
    """`words` so that a figure shows these very letters: no tags, no formulas, no templates, on one line.

    With `most`, a longer text is cut in its middle.
    """
    one_line = plain(words)
    if most is not None:
        one_line = cut(one_line, most)
    # What follows a word that is read from the right, such as a count, must not be drawn to its other side.
    sided = _TURNED.sub(rf"\g<0>{_LEFT_TO_RIGHT}", one_line)
    return "".join([_MEANT.get(letter, letter) for letter in sided])


def plain(words: object) -> str:
    """`words` on one line, without invisible or bidirectional control characters."""
    return _UNSEEN.sub(" ", str(words))


def brief(why: str | None) -> str:
    """The first and the last line of a reason, for a line of a table."""
    lines = (why or "").split("\n")
    return f"{lines[0]} … {lines[-1].strip()}" if len(lines) > 2 else "\n".join(lines)


def cut(words: str, most: int) -> str:
    """`words`, or its beginning and end with a mark between them where it has more than `most` letters."""
    if len(words) <= most:
        return words
    end = (most - 1) // 3
    return f"{words[: most - 1 - end]}…{words[len(words) - end :]}"


def apart(names: Sequence[str], most: int) -> list[str]:
    """Each name in at most `most` letters; those that differ only where they would be cut are shown from there."""
    shown = [cut(plain(name), most) for name in names]
    for one in {one for one in shown if shown.count(one) > 1}:
        alike = [place for place, other in enumerate(shown) if other == one]
        letters = zip(*(plain(names[place]) for place in alike), strict=False)
        same = next((at for at, each in enumerate(letters) if len(set(each)) > 1), None)
        for place in alike if same is not None else []:
            rest = plain(names[place])[max(0, (same or 0) - 4) :]
            shown[place] = f"…{rest}" if len(rest) < most else f"…{rest[: most - 2]}…"
    return shown


def wrapped(words: str, width: int = 60) -> list[str]:
    """The lines of a sentence; a word longer than a line is cut."""
    lines: list[str] = []
    for word in _WORD.findall(words):
        shown = cut(word, width)
        if lines and len(lines[-1]) + 1 + len(shown) <= width:
            lines[-1] += f" {shown}"
        else:
            lines.append(shown)
    return lines


# -- numbers with the units that fit

_SUBNORMAL = 2.3e-308
"""Below, floats have few digits."""
_UNITS: Sequence[tuple[str, float]] = (("µs", 1.0), ("ms", 1e3), ("s", 1e6), ("min", 6e7), ("h", 3.6e9), ("d", 8.64e10))


def unit(longest_us: float) -> tuple[str, float]:
    """The unit in which durations of up to `longest_us` are drawn, and its size in microseconds."""
    fitting = [one for one in _UNITS if longest_us >= one[1] * (2 if one[1] >= 6e7 else 1)]
    return fitting[-1] if fitting else _UNITS[0]


def took(us: float) -> str:
    """A duration given in microseconds: ``850 µs``, ``1.24 ms``, ``3 min 20 s``, ``2 d 7 h``."""
    return duration(us / 1e6, words=True)


def power(number: float) -> str:
    """A number at a tick of a logarithmic axis, as other axes write theirs."""
    if not number or 1e-4 <= abs(number) < 1e5:
        return f"{number:,.6g}"
    digits, exponent = f"{number:.{3 if abs(number) > _SUBNORMAL else 0}e}".split("e")
    factor = f"{float(digits):g}"
    raised = f"10<sup>{int(exponent)}</sup>".replace("-", "−")
    return raised if factor == "1" else f"{factor}×{raised}"


def each_took(several: Sequence[float | None]) -> list[str | None]:
    """`took` for each duration; fast for the commonest, because it runs ten times a second."""
    return [
        # The same operations as in `units.duration`: others differ at 999.5 µs.
        None if us is None else f"{us / 1e6 * 1e3:.3g} ms" if 0.9995e-3 <= us / 1e6 < 0.9995 else took(us)
        for us in several
    ]


def share(part: float, digits: int = 0) -> str:
    """A part of a whole in percent; 0% and 100% only for none and all of it: ``<1%``, ``99.5%``, ``>99.9%``."""
    least = 10.0**-digits
    percent = 100 * part
    if percent > 0 and round(percent, digits) == 0:
        return f"<{least:.{digits}f}%"
    if percent < 100 and round(percent, digits) >= 100:
        return f">{100 - least:.{digits}f}%"
    return f"{percent:.{digits}f}%"


def counted(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun: ``1 forward``, ``12,000 forwards``."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"

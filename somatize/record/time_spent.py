"""Where the time went, as a picture: a bar per node, the slowest on top, in the hue of the place it ran at."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from somatize.figures import theme as themes
from somatize.figures.theme import Theme, counted

from .drawn import Picture
from .node_totals import ENDINGS, Spent, Where
from .node_turns import Total

_MOST = 40
_ROW, _TWO, _BAR, _FIRST, _TO_LEGEND = 40, 50, 0.36, 0.8, 32
"""Heights: a node in pixels, one with two lines; in parts of that its bar and what is above its middle; the axis."""
_WIDTH, _LETTER, _SMALL, _LINE = 365.0, 7.0, 6.0, 40
"""A narrow figure's width, that of a letter of either size, and how many of them leave a name room beside them."""
_PATTERNS = {"ran": "", "recalled": "/", "failed": "x"}


def spent_picture(total: Total, *, last: int | None = None, theme: str | None = None) -> Picture:
    """The nodes of a run, slowest first; beyond the first forty they are one bar together."""
    look = themes.theme_of(theme)
    rows = _rows(total.spent)
    unit, size = themes.unit(max((row.us for row in rows), default=0))
    two = any(len(_numbers(row, 1)) > 1 for row in rows)
    data, inside = _bars(rows, size), round((_TWO if two else _ROW) * (max(3, len(rows)) + _FIRST - 0.5))
    title, above = themes.title(look, f"run {total.run}: where the time went", _notes(total, last))
    explained = _is_explained(rows)
    below = _TO_LEGEND + (themes.legend_height(data) if explained else 0)
    layout = themes.layout(
        look,
        height=above + inside + below,
        margin={"t": above, "b": below, "l": 24, "r": 14},
        title=title,
        barmode="stack",
        hovermode="closest",
        showlegend=explained,
        legend=themes.legend(-_TO_LEGEND / inside),
        annotations=_labels(look, rows) if rows else [themes.in_the_middle(look, "no node has had its turn yet")],
        xaxis=themes.axis(look, range=[0, _longest(rows) / size * 1.02], ticksuffix=f" {unit}", nticks=6),
        yaxis={"range": [len(rows) - 0.5, -_FIRST] if rows else [2.5, -0.5], "visible": False, "fixedrange": True},
    )
    if not rows:
        layout["xaxis"] |= {"showticklabels": False, "showgrid": False}
    return Picture(data, layout)


def _rows(spent: Sequence[Spent]) -> list[Spent]:
    if len(spent) <= _MOST + 1:
        return list(spent)
    rest = Spent(f"{len(spent) - _MOST:,} others")
    for one in spent[_MOST:]:
        for (where, ending), (count, us) in one.turns.items():
            before, total = rest.turns.get((where, ending), (0, 0))
            rest.turns[where, ending] = before + count, total + us
    return [*spent[:_MOST], rest]


def _longest(rows: Sequence[Spent]) -> float:
    return max((row.us for row in rows), default=0) or 1.0


def _notes(total: Total, last: int | None) -> list[str]:
    inside = sum(one.us for one in total.spent)
    which = counted(total.forwards, "forward")
    if last is not None:
        which = "the last forward" if total.forwards == 1 else f"the last {which}"
    words = [f"{which}, {themes.took(total.us)} in all"]
    if total.spent:
        words.append(f"{counted(len(total.spent), 'node')}, {themes.took(inside)} in them")
    for ending in ENDINGS[1:]:
        count = sum(one.count(ending) for one in total.spent)
        if count:
            words.append(f"{count:,} {ending}")
    return themes.wrapped("; ".join(words))


def _places(rows: Sequence[Spent]) -> list[Where]:
    """The places, those where most time went first, but that of plain nodes before all."""
    spent: dict[Where, int] = {}
    for row in rows:
        for (where, _), (_, us) in row.turns.items():
            spent[where] = spent.get(where, 0) + us
    return sorted(spent, key=lambda where: (where != Where(), -spent[where], where))


def _is_explained(rows: Sequence[Spent]) -> bool:
    """Whether there is more than one kind of bar, so that a legend says something."""
    return len({key for row in rows for key in row.turns}) > 1


def _bars(rows: Sequence[Spent], size: float) -> list[dict[str, Any]]:
    whole = sum(row.us for row in rows)
    bars = []
    for order, where in enumerate(_places(rows)):
        for ending in ENDINGS:
            found = [
                (place, row, row.turns[where, ending]) for place, row in enumerate(rows) if (where, ending) in row.turns
            ]
            if found:
                bars.append(_bar(order, where, ending, found, size, whole))
    return bars


def _bar(
    order: int, where: Where, ending: str, found: list[tuple[int, Spent, tuple[int, int]]], size: float, whole: int
) -> dict[str, Any]:
    colour = themes.hue(order)
    name = themes.escaped(str(where), 40) + ("" if ending == "ran" else f", {ending}")
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "legendgroup": name,
        "x": [us / size for _, _, (_, us) in found],
        "y": [place for place, _, _ in found],
        "width": _BAR,
        "marker": {
            "color": themes.fill(order) if ending == "ran" else themes.tint(colour, 0.35),
            "line": {"color": colour, "width": 1},
            "pattern": {"shape": _PATTERNS[ending], "fgcolor": colour, "size": 6, "solidity": 0.4},
        },
        "hovertext": [_words(row, where, ending, turns, whole) for _, row, turns in found],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _words(row: Spent, where: Where, ending: str, turns: tuple[int, int], whole: int) -> str:
    count, us = turns
    mean = themes.took(us / count) if count else "0 µs"
    lines = [
        f"<b>{themes.escaped(row.node, 60)}</b> {ending} {counted(count, 'time')}",
        themes.escaped(str(where), 60),
        f"{themes.took(us)} in all, {mean} each",
        f"{_share(us, whole)} of all nodes' time",
    ]
    return "<br>".join(lines)


def _share(us: int, whole: int) -> str:
    return escape(themes.share(us / whole, 1)) if whole else "none"


def _labels(look: Theme, rows: Sequence[Spent]) -> list[dict[str, Any]]:
    """Above each bar its node at the left, and at the right how long in all, its share, and how long each time."""
    whole = sum(row.us for row in rows)
    made = []
    for place, row in enumerate(rows):
        right = _numbers(row, whole)
        left = themes.escaped(row.node, max(5, int((_WIDTH - _SMALL * max(map(len, right))) / _LETTER)))
        made.append(_label(look, place, 0, "left", left) | {"font": {"size": themes.TEXT, "color": look.ink}})
        made.append(_label(look, place, 1, "right", "<br>".join(right)) | {"align": "right"})
    return made


def _numbers(row: Spent, whole: int) -> list[str]:
    """What stands at the right of a node, in one line or, where that would not leave its name room, in two."""
    words = [themes.took(row.us), _share(row.us, whole)]
    if row.mean_us is not None:
        words.append(f"{row.count('ran'):,} × {themes.took(row.mean_us)}")
    odd = [f"{row.count(ending):,} {ending}" for ending in ENDINGS[1:] if row.count(ending)]
    line = " · ".join([*words, *odd])
    return [line] if len(line) <= _LINE else [" · ".join(words), " · ".join(odd)]


def _label(look: Theme, place: int, x: int, side: str, words: str) -> dict[str, Any]:
    return {
        "text": words,
        "x": x,
        "xref": "paper",
        "xanchor": side,
        "y": place - _BAR / 2,
        "yref": "y",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": themes.SMALL, "color": look.faint},
    }

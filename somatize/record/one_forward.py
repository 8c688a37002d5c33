"""One forward as a picture: its nodes on a time axis, branches side by side, a slice inside its round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from somatize.figures import theme as themes
from somatize.figures.theme import Theme, counted

from .drawn import Picture
from .node_totals import Where
from .node_turns import OneForward, Turn

_EACH_ITS_ROW = 60
"""Up to how many turns each has a row with its name; beyond, turns that do not overlap share one."""
_ROW, _PACKED, _TO_LEGEND = 22, 12, 32
_LABEL = 20
"""How many letters of a name stand beside its row."""
_BEFORE = {"left": "to ", "failed": "✗ "}
"""What stands before a name: a turn that failed may be too short to be seen."""
_INSIDE = 3
"""How many of the nodes are named that a forward was in when it was last heard of."""
_PATTERNS = {"ran": "", "recalled": "/", "failed": "x", "left": ""}


def timeline_picture(one: OneForward, *, theme: str | None = None) -> Picture:
    """The turns of a forward from its start to its end. Times are as they were told."""
    look = themes.theme_of(theme)
    rows, packed = _rows(one.turns)
    count = max(rows, default=0) + 1
    end = max([turn.end for turn in one.turns] + [one.took or 0.0, 1.0])
    unit, size = themes.unit(end)
    height = max(3 * _ROW, count * (_PACKED if packed else _ROW))
    title, above = themes.title(look, f"run {one.run}, forward {one.number:,}", _notes(one, packed=packed))
    data = _bars(one.turns, rows, size)
    known = bool(one.turns) or one.took is not None
    if one.state != "ok":
        data.append(_end(one, end / size if known else 0.0, count))
    explained = len(data) > 1
    beside = 0.0 if packed else 6.5 * min(_LABEL, max((len(turn.name) for turn in one.turns), default=0))
    below = _TO_LEGEND + (themes.legend_height(data, beside) if explained else 0)
    layout = themes.layout(
        look,
        height=above + height + below,
        margin={"t": above, "b": below, "l": 20 if packed else 8, "r": 18},
        title=title,
        barmode="overlay",
        hovermode="closest",
        showlegend=explained,
        legend=themes.legend(-_TO_LEGEND / height),
        xaxis=themes.axis(look, range=[0, end / size * 1.03], ticksuffix=f" {unit}", nticks=6, showticklabels=known),
        yaxis=_names(look, one.turns, count, packed=packed),
        shapes=_trips(one.turns, rows, size),
        annotations=[] if one.turns else [themes.in_the_middle(look, "no node had its turn")],
    )
    return Picture(data, layout)


def _notes(one: OneForward, *, packed: bool) -> list[str]:
    state = {"ok": "finished", "open": "is still going"}.get(one.state, one.state)
    if one.state == "lost":
        state = "is lost: its process ended before it did"
    words = state + (f" after {themes.took(one.took)}" if one.took is not None and one.state != "open" else "")
    lines = themes.wrapped(f"{words}; {counted(len(one.turns), 'turn')} told")
    if one.inside:
        names = [themes.cut(name, 40) for name in one.inside[:_INSIDE]]
        more = [f"{len(one.inside) - _INSIDE} more"] if len(one.inside) > _INSIDE else []
        lines += themes.wrapped(f"it was last seen in {', '.join([*names, *more])}")
    if one.why:
        lines += themes.wrapped(themes.cut(one.why.removesuffix(": "), 240))
    if packed:
        lines.append("turns that do not overlap share a row; hover names them")
    return lines


def _rows(turns: Sequence[Turn]) -> tuple[list[int], bool]:
    """The row of each turn, and whether rows are shared."""
    if len(turns) <= _EACH_ITS_ROW:
        return list(range(len(turns))), False
    free: list[float] = []
    rows = []
    for turn in turns:
        row = next((row for row, until in enumerate(free) if until <= turn.began), len(free))
        free[row : row + 1] = [turn.end]
        rows.append(row)
    return rows, True


def _bars(turns: Sequence[Turn], rows: Sequence[int], size: float) -> list[dict[str, Any]]:
    order: dict[Where, int] = {}
    groups: dict[tuple[Where, str], list[int]] = {}
    for place, turn in enumerate(turns):
        where = turn.where if turn.ending != "left" else Where(turn.where.host)
        order.setdefault(where, len(order))
        groups.setdefault((where, turn.ending), []).append(place)
    return [
        _bar([turns[place] for place in places], [rows[place] for place in places], where, ending, order[where], size)
        for (where, ending), places in groups.items()
    ]


def _bar(turns: list[Turn], rows: list[int], where: Where, ending: str, order: int, size: float) -> dict[str, Any]:
    colour = themes.hue(order)
    words = {"ran": "", "left": ", round trip"}.get(ending, f", {ending}")
    name = themes.escaped(str(where), 40) + words
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "legendgroup": name,
        "base": [turn.began / size for turn in turns],
        "x": [turn.took / size for turn in turns],
        "y": rows,
        "width": 0.62,
        "marker": {
            "color": themes.fill(order) if ending == "ran" else themes.tint(colour, 0.3),
            # An outline, so that a turn too short to fill a pixel is seen all the same.
            "line": {"color": colour, "width": 1},
            "pattern": {"shape": _PATTERNS[ending], "fgcolor": colour, "size": 6, "solidity": 0.4},
        },
        "hovertext": [_words(turn) for turn in turns],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _words(turn: Turn) -> str:
    name = "to host " * (turn.ending == "left") + turn.name
    ending = "was there and back" if turn.ending == "left" else turn.ending
    lines = [
        f"<b>{themes.escaped(name, 60)}</b> {ending} in {themes.took(turn.took)}",
        f"from {themes.took(turn.began)} to {themes.took(turn.end)}"
        if turn.known
        else "when is not told; drawn after what came before it",
    ]
    if turn.ending != "left":
        lines.append(themes.escaped(str(turn.where), 60))
    return "<br>".join([*lines, *(themes.escaped(line) for line in themes.wrapped(themes.cut(turn.why, 240), 64))])


def _names(look: Theme, turns: Sequence[Turn], count: int, *, packed: bool) -> dict[str, Any]:
    shown = not packed and bool(turns)
    names = [f"{_BEFORE.get(turn.ending, '')}{turn.name}" for turn in turns]
    return themes.axis(
        look,
        range=[count - 0.4, -0.6],
        fixedrange=True,
        showgrid=False,
        showticklabels=shown,
        tickvals=list(range(count)) if shown else [],
        ticktext=[themes.escaped(name, _LABEL) for name in names] if shown else [],
    )


def _trips(turns: Sequence[Turn], rows: Sequence[int], size: float) -> list[dict[str, Any]]:
    """A frame from a round trip down over the turns that belong to it."""
    frames = []
    for place, trip in enumerate(turns):
        if trip.ending == "left":
            inside = [rows[other] for other, turn in enumerate(turns) if turn.inside is trip]
            frames.append(
                {
                    "type": "rect",
                    "layer": "below",
                    "x0": trip.began / size,
                    "x1": trip.end / size,
                    "y0": rows[place] - 0.45,
                    "y1": max([rows[place], *inside]) + 0.45,
                    "fillcolor": "rgba(128,128,128,0.10)",
                    "line": {"color": "rgba(128,128,128,0.45)", "width": 1},
                }
            )
    return frames


def _end(one: OneForward, at: float, count: int) -> dict[str, Any]:
    """The moment at which a forward broke, or up to which anything is known of it."""
    return {
        "type": "scatter",
        "name": one.state,
        "x": [at, at],
        "y": [-0.6, count - 0.4],
        "mode": "lines",
        "line": {"color": themes.RED if one.state != "open" else "rgba(128,128,128,0.8)", "width": 2},
        "hovertext": "<br>".join(themes.escaped(line) for line in _notes(one, packed=False)),
        "hovertemplate": "%{hovertext}<extra></extra>",
    }

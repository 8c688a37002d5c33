"""The overview of a large graph as a picture that plotly takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from somatize.dag.pieces import Marks

from . import theme as themes
from .graph_structure import Wiring
from .overview import Band, described, overview_of
from .theme import Theme, counted

_WIDTH, _LINE, _GAP, _LANE = 330.0, 16.0, 34.0, 14.0
_MARGIN, _EDGE = 16, 2


def overview_picture(
    wiring: Wiring, marks: Sequence[Marks], look: Theme
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Bands one below the other, arrows with the number of edges they stand for."""
    bands, edges = overview_of(wiring)
    lines = [described(wiring, marks, band) for band in bands]
    tops, at = [], 0.0
    for told in lines:
        tops.append(at)
        at += _LINE * len(told) + 14 + _GAP
    height = at - _GAP
    bottoms = [top + _LINE * len(told) + 14 for top, told in zip(tops, lines, strict=True)]
    skips = {pair: count for pair, count in edges.items() if pair[1] - pair[0] > 1}
    data = [_names(look, lines, tops, bottoms)]
    data += [
        _lines(look, tops, bottoms, [pair for pair in edges if pair not in skips]),
        _around(look, tops, bottoms, skips),
    ]
    width = _WIDTH + _LANE * (min(len(skips), 12) + 1)
    notes = themes.wrapped(
        f"{counted(sum(len(after) for after in wiring.after), 'edge')}. Too many to draw each: a box is a stretch of "
        "the graph, the number at an arrow is how many edges it stands for",
        52,
    )
    title, above = themes.title(look, f"{counted(len(wiring), 'node')}, an overview", notes)
    layout = themes.layout(
        look,
        width=round(width + 2 * (_MARGIN + _EDGE)),
        height=round(height + above + _MARGIN + 2 * _EDGE),
        margin={"l": _MARGIN, "r": _MARGIN, "t": above, "b": _MARGIN},
        title=title,
        xaxis={"range": [-_EDGE, width + _EDGE], "visible": False},
        yaxis={"range": [height + _EDGE, -_EDGE], "visible": False},
        hovermode="closest",
        hoverdistance=60,
        dragmode="pan",
        showlegend=False,
        shapes=[_box(look, band, top, bottom) for band, top, bottom in zip(bands, tops, bottoms, strict=True)],
        annotations=_counts(look, tops, edges),
    )
    return data, layout


def _box(look: Theme, band: Band, top: float, bottom: float) -> dict[str, Any]:
    return {
        "type": "rect",
        "layer": "below",
        "x0": 0,
        "x1": _WIDTH,
        "y0": top,
        "y1": bottom,
        "fillcolor": "rgba(128,128,128,0.10)",
        "line": {"color": look.faint, "width": 1.2, "dash": "solid" if len(band.nodes) == 1 else "dash"},
    }


def _names(look: Theme, lines: list[list[str]], tops: list[float], bottoms: list[float]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "name": "stretches",
        "x": [_WIDTH / 2] * len(lines),
        "y": [(top + bottom) / 2 for top, bottom in zip(tops, bottoms, strict=True)],
        "text": ["<br>".join(themes.escaped(line) for line in told) for told in lines],
        "textfont": {"color": look.ink, "size": themes.TEXT},
        "hoverinfo": "skip",
    }


def _lines(look: Theme, tops: list[float], bottoms: list[float], pairs: list[tuple[int, int]]) -> dict[str, Any]:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for above, below in pairs:
        xs += [_WIDTH / 2, _WIDTH / 2, None]
        ys += [bottoms[above], tops[below] - 4, None]
    return _stroke(look, xs, ys)


def _around(look: Theme, tops: list[float], bottoms: list[float], skips: dict[tuple[int, int], int]) -> dict[str, Any]:
    """Edges that go past a box, at the side of all of them; beyond a dozen they share the last lane."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for place, (above, below) in enumerate(sorted(skips, key=lambda pair: (pair[1] - pair[0], pair))):
        lane = _WIDTH + _LANE * (min(place, 11) + 1)
        out, into = bottoms[above] - 7, tops[below] + 7
        xs += [_WIDTH, lane, lane, _WIDTH + 4, None]
        ys += [out, out, into, into, None]
    return _stroke(look, xs, ys)


def _stroke(look: Theme, xs: list[float | None], ys: list[float | None]) -> dict[str, Any]:
    """Lines with a head at the end of each."""
    size = [8 * (place + 1 < len(xs) and xs[place + 1] is None) for place in range(len(xs))]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "feeds",
        "x": xs,
        "y": ys,
        "line": {"color": look.faint, "width": 1.3},
        "marker": {
            "symbol": "arrow",
            "angleref": "previous",
            "size": size,
            "color": look.faint,
            "line": {"width": 0},
        },
        "hoverinfo": "skip",
    }


def _counts(look: Theme, tops: list[float], edges: dict[tuple[int, int], int]) -> list[dict[str, Any]]:
    return [
        {
            "text": f"{count:,}",
            "x": _WIDTH / 2 + 8,
            "y": tops[below] - _GAP / 2,
            "xref": "x",
            "yref": "y",
            "xanchor": "left",
            "showarrow": False,
            "font": {"size": themes.SMALL, "color": look.faint},
        }
        for (above, below), count in edges.items()
        if below - above == 1
    ]

"""A graph too large to draw node by node: bands of its depth, each one box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from somatize.dag.pieces import Marks

from . import theme as themes
from .graph_structure import Wiring
from .theme import Theme, counted, cut

_BANDS = 24


@dataclass
class Band:
    """The nodes from one depth to another; layers of one make, such as those of a chain, lie in one band."""

    first: int
    last: int
    nodes: list[int] = field(default_factory=list)

    @property
    def layers(self) -> int:
        """How many nodes lie one below the other."""
        return self.last - self.first + 1


class Overview(NamedTuple):
    """The bands from above to below, and by their numbers how many edges lead from one to another."""

    bands: list[Band]
    edges: dict[tuple[int, int], int]


def overview_of(wiring: Wiring) -> Overview:
    """At most two dozen bands. Linear in nodes and edges."""
    width = [0] * (max(wiring.depth) + 1)
    for depth in wiring.depth:
        width[depth] += 1
    bands = _bands(width)
    of_depth = [place for place, band in enumerate(bands) for _ in range(band.layers)]
    edges: dict[tuple[int, int], int] = {}
    for node, before in enumerate(wiring.before):
        place = of_depth[wiring.depth[node]]
        bands[place].nodes.append(node)
        for source in before:
            key = of_depth[wiring.depth[source]], place
            if key[0] != place:
                edges[key] = edges.get(key, 0) + 1
    return Overview(bands, edges)


def _bands(width: Sequence[int]) -> list[Band]:
    """Layers that are equally wide together, then neighbours that are smallest, until there are few enough."""
    bands: list[Band] = []
    for depth, nodes in enumerate(width):
        if bands and width[bands[-1].last] == nodes:
            bands[-1].last = depth
        else:
            bands.append(Band(depth, depth))
    if len(bands) <= _BANDS:
        return bands
    whole, merged, size = sum(width), [Band(0, -1)], 0
    for depth, nodes in enumerate(width):
        if size >= whole / _BANDS and merged[-1].last >= 0 and len(merged) < _BANDS:
            merged.append(Band(depth, depth))
            size = 0
        merged[-1].last = depth
        size += nodes
    return merged


def described(wiring: Wiring, marks: Sequence[Marks], band: Band) -> list[str]:
    """A band in a few lines: how many nodes, in which shape, their names, hosts and devices."""
    names = [wiring.names[node] for node in band.nodes]
    if len(names) == 1:
        return [cut(names[0], 40)]
    shape = f"{_about(len(names) / band.layers)} side by side, {band.layers:,} one after the other"
    if band.layers == 1:
        shape = "side by side"
    elif band.layers == len(names):
        shape = "one after the other"
    lines = [f"{counted(len(names), 'node')}, {shape}", f"{cut(names[0], 24)} … {cut(names[-1], 24)}"]
    for word, said in (("on", "device"), ("at", "host")):
        found = sorted({value for node in band.nodes if (value := getattr(marks[node], said)) is not None})
        if found:
            lines.append(f"{word} {cut(', '.join(found), 40)}")
    return lines


def _about(mean: float) -> str:
    """A mean of counts, as a count: nobody sees 3.79 nodes."""
    whole = round(mean)
    return f"{whole:,}" if whole == mean else f"about {whole:,}"


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

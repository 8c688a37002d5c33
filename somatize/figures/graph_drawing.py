"""A graph drawn without running it: as a figure or an overview, as Mermaid text, in a notebook, or from a record.

Boxes say *when*: what comes later lies lower, branches lie side by side in a frame, and a slice has a frame labelled
with its host. Arrows say *what feeds what*, and none crosses a box it does not belong to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from somatize.dag.declaration import Declaration
from somatize.dag.pieces import Cached, Frozen, Mapped, Marks
from somatize.dag.topology import Topology
from somatize.store.node_tally import RunTurns

from . import plotly_backend
from . import theme as themes
from .graph_layout import LayoutBlock, Rect, Wiring, structure_of
from .graph_picture import Picture, Sights, marked, picture_of, rectangle, run_notes, title_of
from .theme import Theme, counted, cut

if TYPE_CHECKING:
    from .plotly_backend import Figure


_BANDS = 24


@dataclass
class Band:
    """The nodes from one depth to another; layers of one make, such as those of a chain, lie in one band."""

    first: int
    last: int
    nodes: list[int] = field(default_factory=list)

    @property
    def layers(self) -> int:
        """The number of layers, which lie one below the other."""
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
    """A mean of counts, rounded to a count."""
    whole = round(mean)
    return f"{whole:,}" if whole == mean else f"about {whole:,}"


_WIDTH, _LINE, _GAP, _LANE = 330.0, 16.0, 34.0, 14.0
_MARGIN, _EDGE = 16, 2


def overview_picture(
    wiring: Wiring, marks: Sequence[Marks], look: Theme, turns: RunTurns | None = None, said: str = ""
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
    notes = run_notes(turns, said) + themes.wrapped(
        f"{counted(sum(len(after) for after in wiring.after), 'edge')}. Too many to draw each: a box is a stretch of "
        "the graph, the number at an arrow is how many edges it stands for",
        52,
    )
    title, above = themes.title(look, f"{title_of(wiring, turns)}, an overview", notes)
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
    line = {"color": look.faint, "width": 1.2, "dash": "solid" if len(band.nodes) == 1 else "dash"}
    return rectangle(Rect(0, top, _WIDTH, bottom), "rgba(128,128,128,0.10)", line)


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


_MOST_EDGES, _MOST_LETTERS = 480, 48_000
"""Limits below Mermaid's defaults of 500 edges and 50,000 characters."""
_PLAIN = re.compile(r"[^\w .,:()/=+…·●❄⋮-]")
_LIST = re.compile(r"^(\s*)([-+*]|\d+[.)])(\s|$)")


def mermaid_of(wiring: Wiring, marks: Sequence[Marks]) -> str:
    """The text; of a graph larger than Mermaid draws, an overview that says so."""
    if not len(wiring):
        return "flowchart TD\n"
    if sum(len(after) for after in wiring.after) <= _MOST_EDGES and len(wiring) <= _MOST_EDGES:
        text = "\n".join(_each(wiring, marks)) + "\n"
        if len(text) <= _MOST_LETTERS:
            return text
    return "\n".join(_overview(wiring, marks)) + "\n"


def _each(wiring: Wiring, marks: Sequence[Marks]) -> Iterator[str]:
    yield "flowchart TD"
    yield from _within(structure_of(wiring, marks), wiring, marks, "    ")
    for node, after in enumerate(wiring.after):
        yield from (f"    n{node} --> n{other}" for other in after)
    devices = sorted({said.device for said in marks if said.device is not None})
    for place, device in enumerate(devices):
        colour = themes.hue(place)
        yield f"    classDef device{place} fill:{colour}4d,stroke:{colour}"
        members = ",".join(f"n{node}" for node, said in enumerate(marks) if said.device == device)
        yield f"    class {members} device{place}"


def _within(block: LayoutBlock, wiring: Wiring, marks: Sequence[Marks], indent: str) -> Iterator[str]:
    """The nodes of a block, each slice as a subgraph."""
    if block.host is not None:
        yield f'{indent}subgraph s{block.nodes[0]}["at {quoted(block.host)}"]'
    inside = indent + "    " * (block.host is not None)
    if block.children and block.host is None:
        for child in block.children:
            yield from _within(child, wiring, marks, inside)
    else:
        for node in block.nodes:
            yield f'{inside}n{node}["{_label(wiring.names[node], marks[node])}"]'
    if block.host is not None:
        yield f"{indent}end"


def _label(name: str, marks: Marks) -> str:
    said = ([f"on {marks.device}"] if marks.device is not None else []) + marked(marks)
    return "<br/>".join(quoted(line) for line in [name, *said])


def _overview(wiring: Wiring, marks: Sequence[Marks]) -> Iterator[str]:
    bands, edges = overview_of(wiring)
    yield "flowchart TD"
    yield f"    %% {len(wiring)} nodes are more than Mermaid draws; a box is a stretch of the graph"
    for place, band in enumerate(bands):
        words = "<br/>".join(quoted(line) for line in described(wiring, marks, band))
        yield f'    b{place}["{words}"]'
    for (above, below), count in edges.items():
        yield f'    b{above} -->|"{count:,}"| b{below}'


def quoted(words: str) -> str:
    """`words` so that Mermaid shows these very letters between quotes: no markup, no list, no end of the quote."""
    plain = themes.plain(words)
    listed = _LIST.match(plain)
    if listed:
        start = listed.start(2)
        end = listed.end(2)
        plain_head = plain[:start] + plain[start : end - 1]
        return _entities(plain_head) + f"#{ord(plain[end - 1])};" + _entities(plain[end:])
    return _entities(plain)


def _entities(words: str) -> str:
    text = _PLAIN.sub(lambda found: f"#{ord(found.group())};", words)
    text = text.replace(":fa-", "#58;fa-")  # an icon
    return re.sub(r"(?<!\w)_|_(?!\w)", "#95;", text.replace("__", "#95;#95;"))


__all__ = ["figure", "in_a_cell", "mermaid", "picture"]

MOST = 300
"""Up to how many nodes each has a box."""


def figure(
    declaration: Declaration,
    theme: str | None = None,
    foreseen: Sights | None = None,
    turns: RunTurns | None = None,
) -> Figure:
    """A plotly figure of a graph. Raises `ExtraMissing` where plotly is not installed."""
    plotly_backend.require()
    return plotly_backend.figure(*picture(declaration, theme, foreseen, turns))


def picture(
    declaration: Declaration,
    theme: str | None = None,
    foreseen: Sights | None = None,
    turns: RunTurns | None = None,
) -> Picture:
    """The figure of a graph as plain dicts; each box shows what a forward would do, or did in the `turns` of a run."""
    look = themes.theme_of(theme)
    wiring = Wiring(declaration.topology)
    if not len(wiring):
        return empty(look)
    marks = [declaration.marks[name] for name in wiring.names]
    if len(wiring) > MOST:
        return overview_picture(wiring, marks, look, turns)
    things = [declaration.implementations[name].thing for name in wiring.names]
    return picture_of(wiring, marks, things, look, foreseen, turns)


def empty(look: Theme) -> Picture:
    """The picture of a graph without nodes."""
    hidden: dict[str, Any] = {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    return [], themes.layout(look, height=160, **hidden, annotations=[themes.in_the_middle(look, "an empty graph")])


def mermaid(declaration: Declaration) -> str:
    """Mermaid text that GitHub draws."""
    wiring = Wiring(declaration.topology)
    return mermaid_of(wiring, [declaration.marks[name] for name in wiring.names])


def in_a_cell(declaration: Declaration) -> dict[str, Any]:
    """The notebook output of a graph by media type; without plotly, Mermaid text, which JupyterLab draws."""
    shown: dict[str, Any] = {"text/plain": declaration.shown()}
    if not plotly_backend.installed():
        return {"text/markdown": f"```mermaid\n{mermaid(declaration)}```\n", **shown}
    return plotly_backend.bundle(figure(declaration)) | shown


class _AbsentNode:
    """A placeholder for the object of a recorded node, of which only the class name is known."""

    def __init__(self) -> None:
        self.__qualname__ = ""

    @classmethod
    def called(cls, name: object) -> _AbsentNode:
        made = cls()
        made.__module__, _, made.__qualname__ = str(name or "?").rpartition(".")
        return made


def recorded(
    described: Mapping[str, Any], theme: str | None = None, turns: RunTurns | None = None, said: str = ""
) -> Picture:
    """The figure of a recorded graph as traces and layout; the boxes show the `turns` of a run if they are given.

    `described` is one of the ``graphs`` that `record.about` gives; `said` is more for the subtitle. Raises KeyError for
    what is no such description.
    """
    look = themes.theme_of(theme)
    topology = Topology()
    classes = {node["id"]: node.get("class") for node in described["nodes"]}
    for name in classes:
        topology.add(name)
    for before, after in described["edges"]:
        topology.link(before, after)
    wiring = Wiring(topology)
    if not len(wiring):
        return empty(look)
    marks = [_marks(described.get("marks", {}), name) for name in wiring.names]
    if len(wiring) > MOST:
        return overview_picture(wiring, marks, look, turns, said)
    things = [_AbsentNode.called(classes[name]) for name in wiring.names]
    return picture_of(wiring, marks, things, look, None, turns, said)


def _marks(said: Mapping[str, Any], name: str) -> Marks:
    cached, mapped = (said.get(mark, {}).get(name) for mark in ("cached", "mapped"))
    return Marks(
        id=name,
        host=said.get("hosts", {}).get(name),
        device=said.get("devices", {}).get(name),
        cached=None if cached is None else Cached(_field(cached, "salt")),
        frozen=Frozen() if name in said.get("frozen", {}) else None,
        mapped=None if mapped is None else Mapped(_field(mapped, "batch")),
    )


def _field(mark: Any, name: str) -> Any:
    """A part of a mark; records of before it was kept say no more than that there is one."""
    return mark.get(name) if isinstance(mark, Mapping) else None

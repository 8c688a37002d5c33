"""A graph drawn without running it: as a figure, as Mermaid text, in a notebook, or from what a record says of it.

Boxes say *when*: what comes later lies lower, branches lie side by side in a frame, and a slice has a frame labelled
with its host. Arrows say *what feeds what*, and none crosses a box it does not belong to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from somatize.dag.declaration import Declaration
from somatize.dag.pieces import Cached, Frozen, Mapped, Marks
from somatize.dag.topology import Topology

from . import plotly_backend
from . import theme as themes
from .graph_overview import described, overview_of, overview_picture
from .graph_picture import Picture, Sights, marked, picture_of
from .graph_structure import LayoutBlock, Wiring, structure_of
from .theme import Theme

if TYPE_CHECKING:
    from .plotly_backend import Figure


_MOST_EDGES, _MOST_LETTERS = 480, 48_000
"""What Mermaid draws by default is 500 edges of 50,000 letters."""
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


def figure(declaration: Declaration, theme: str | None = None, foreseen: Sights | None = None) -> Figure:
    """A plotly figure of a graph. Raises `ExtraMissing` where plotly is not installed."""
    plotly_backend.require()
    return plotly_backend.figure(*picture(declaration, theme, foreseen))


def picture(declaration: Declaration, theme: str | None = None, foreseen: Sights | None = None) -> Picture:
    """What the figure is made of, as plain dicts; with `foreseen`, what a forward would do is on each box."""
    look = themes.theme_of(theme)
    wiring = Wiring(declaration.topology)
    if not len(wiring):
        return empty(look)
    marks = [declaration.marks[name] for name in wiring.names]
    if len(wiring) > MOST:
        return overview_picture(wiring, marks, look)
    things = [declaration.implementations[name].thing for name in wiring.names]
    return picture_of(wiring, marks, things, look, foreseen)


def empty(look: Theme) -> Picture:
    """The picture of a graph without nodes."""
    hidden: dict[str, Any] = {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    return [], themes.layout(look, height=160, **hidden, annotations=[themes.in_the_middle(look, "an empty graph")])


def mermaid(declaration: Declaration) -> str:
    """Mermaid text that GitHub draws."""
    wiring = Wiring(declaration.topology)
    return mermaid_of(wiring, [declaration.marks[name] for name in wiring.names])


def in_a_cell(declaration: Declaration) -> dict[str, Any]:
    """What a notebook shows of a graph, by media type; without plotly, Mermaid text, which JupyterLab draws."""
    shown: dict[str, Any] = {"text/plain": declaration.shown()}
    if not plotly_backend.installed():
        return {"text/markdown": f"```mermaid\n{mermaid(declaration)}```\n", **shown}
    return plotly_backend.bundle(figure(declaration)) | shown


class _AbsentNode:
    """Stands for what a node ran: all that is known of it is its class."""

    def __init__(self) -> None:
        self.__qualname__ = ""

    @classmethod
    def called(cls, name: object) -> _AbsentNode:
        made = cls()
        made.__module__, _, made.__qualname__ = str(name or "?").rpartition(".")
        return made


def recorded(described: Mapping[str, Any], theme: str | None = None) -> Picture:
    """What the figure of a recorded graph is made of: traces and a layout, as for a graph that is there.

    `described` is one of the ``graphs`` that `record.about` gives. Raises KeyError for what is no such description.
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
        return overview_picture(wiring, marks, look)
    return picture_of(wiring, marks, [_AbsentNode.called(classes[name]) for name in wiring.names], look)


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

"""A graph as Mermaid text, which GitHub and others draw."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from somatize.dag.pieces import Marks

from . import theme as themes
from .graph_structure import Block, Wiring, structure_of
from .overview import described, overview_of
from .picture import marked

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


def _within(block: Block, wiring: Wiring, marks: Sequence[Marks], indent: str) -> Iterator[str]:
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

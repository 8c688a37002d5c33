"""A graph too large to draw node by node: stretches of its depth, each one box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from somatize.dag.pieces import Marks

from .graph_structure import Wiring
from .theme import counted, cut

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

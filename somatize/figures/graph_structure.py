"""The structure of a graph for drawing: sequences, parallel blocks, and parts that are neither.

A graph is cut across wherever all that came before feeds all that comes after, and what lies between two cuts falls
apart into branches; so on inside of each. What can be cut no further, such as ``a→c, a→d, b→d``, stays as it is, a
*tangle*. Layers are depths: a node lies one below the lowest that feeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from somatize.dag.pieces import Marks
from somatize.dag.topology import Topology

LEAF, SERIES, BRANCHES, TANGLE, CROWD = "leaf", "series", "branches", "tangle", "crowd"

_CROWD = 9
"""From how many single-node branches with the same neighbours on these are drawn as one crowd."""


@dataclass(eq=False)
class LayoutBlock:
    """A part of a graph that has a rectangle of its own: layers `first` to `last`, and a stretch from side to side.

    `host` is set where the block is framed as a slice.
    """

    kind: str
    nodes: list[int]
    first: int
    last: int
    children: list[LayoutBlock] = field(default_factory=list)
    host: str | None = None
    parent: LayoutBlock | None = None

    @property
    def framed(self) -> bool:
        """Whether a frame is drawn around it."""
        return self.host is not None or self.kind in (BRANCHES, TANGLE, CROWD)

    @property
    def unit(self) -> bool:
        """Whether arrows begin and end at it as a whole."""
        return self.kind in (LEAF, CROWD)


class Wiring:
    """A graph by numbers: nodes in running order, predecessors, successors, and depth."""

    def __init__(self, topology: Topology) -> None:
        inputs = topology.inputs()
        number = {name: place for place, name in enumerate(inputs)}
        self.names = list(inputs)
        self.before = [[number[name] for name in names] for names in inputs.values()]
        self.after: list[list[int]] = [[] for _ in self.names]
        self.depth: list[int] = []
        for node, feeding in enumerate(self.before):
            self.depth.append(1 + max((self.depth[source] for source in feeding), default=-1))
            for source in feeding:
                self.after[source].append(node)

    def __len__(self) -> int:
        return len(self.names)


def structure_of(wiring: Wiring, marks: Sequence[Marks]) -> LayoutBlock:
    """The shape of a graph that is not empty. Takes time linear in nodes and edges for each level of nesting."""
    root = _Shape(wiring, [said.host for said in marks]).of(list(range(len(wiring))))
    _adopt(root)
    return root


def _adopt(block: LayoutBlock) -> None:
    for child in block.children:
        child.parent = block
        _adopt(child)


class _Shape:
    def __init__(self, wiring: Wiring, hosts: Sequence[str | None]) -> None:
        self.wiring = wiring
        self.hosts = hosts

    def of(self, nodes: list[int]) -> LayoutBlock:
        root = self._any(nodes)
        self._slices(root)
        return root

    def _block(self, kind: str, nodes: list[int], children: Sequence[LayoutBlock] = ()) -> LayoutBlock:
        depths = [self.wiring.depth[node] for node in nodes]
        return LayoutBlock(kind, nodes, min(depths), max(depths), list(children))

    def _any(self, nodes: list[int]) -> LayoutBlock:
        parts = self._components(nodes)
        if len(parts) == 1:
            return self._connected(nodes)
        return self._side_by_side(nodes, parts)

    def _side_by_side(self, nodes: list[int], parts: list[list[int]]) -> LayoutBlock:
        crowds: dict[tuple[object, ...], list[int]] = {}
        for part in parts:
            if len(part) == 1:
                crowds.setdefault(self._kin(part[0]), []).append(part[0])
        crowded = {node for crowd in crowds.values() if len(crowd) >= _CROWD for node in crowd}
        children = [self._connected(part) for part in parts if part[0] not in crowded]
        children += [self._block(CROWD, crowd) for crowd in crowds.values() if len(crowd) >= _CROWD]
        children.sort(key=lambda child: child.nodes[0])
        return children[0] if len(children) == 1 else self._block(BRANCHES, nodes, children)

    def _kin(self, node: int) -> tuple[object, ...]:
        """The key by which nodes of one crowd are grouped."""
        return self.hosts[node], frozenset(self.wiring.before[node]), frozenset(self.wiring.after[node])

    def _connected(self, nodes: list[int]) -> LayoutBlock:
        if len(nodes) == 1:
            return self._block(LEAF, nodes)
        stretches = self._cut(nodes)
        if len(stretches) > 1:
            return self._block(SERIES, nodes, [self._any(stretch) for stretch in stretches])
        return self._block(TANGLE, nodes, [self._block(LEAF, [node]) for node in nodes])

    def _components(self, nodes: list[int]) -> list[list[int]]:
        """The parts that no edge connects, each in order, the parts by their first."""
        left = set(nodes)
        parts = []
        for node in nodes:
            if node not in left:
                continue
            left.discard(node)
            part, stack = [], [node]
            while stack:
                part.append(place := stack.pop())
                for other in (*self.wiring.before[place], *self.wiring.after[place]):
                    if other in left:
                        left.discard(other)
                        stack.append(other)
            parts.append(sorted(part))
        return parts

    def _cut(self, nodes: list[int]) -> list[list[int]]:
        """The stretches between cuts.

        All above a cut is before all below it if and only if each node that has no successor above feeds every
        node of the next layer: those are the only ones below it without a predecessor there.
        """
        depth, inside = self.wiring.depth, set(nodes)
        low, high = min(depth[node] for node in nodes), max(depth[node] for node in nodes)
        width, ends, fed = ([0] * (high - low + 2) for _ in range(3))
        for node in nodes:
            at = depth[node] - low
            width[at] += 1
            below = [depth[other] - low for other in self.wiring.after[node] if other in inside]
            nearest = min(below, default=high - low + 1)
            ends[at] += 1  # from here down to its nearest successor it has none above the cut
            ends[nearest] -= 1
            if below:
                fed[nearest] += below.count(nearest)
        stretches: list[list[int]] = [[]]
        open_ends, starts = 0, set()
        for layer in range(high - low):
            open_ends += ends[layer]
            if fed[layer + 1] == open_ends * width[layer + 1]:
                starts.add(layer + 1)
        for node in sorted(nodes, key=lambda node: (depth[node], node)):
            at = depth[node] - low
            if at in starts:
                starts.discard(at)
                stretches.append([])
            stretches[-1].append(node)
        return [sorted(stretch) for stretch in stretches]

    # -- slices

    def _host(self, block: LayoutBlock) -> str | None:
        """The host of all its nodes, if they have one in common."""
        hosts = {self.hosts[node] for node in block.nodes}
        return hosts.pop() if len(hosts) == 1 else None

    def _slices(self, block: LayoutBlock) -> None:
        """Frame the largest blocks that go to one host; what follows in a series on the same host is one."""
        block.host = self._host(block)
        if block.host is not None:
            return
        if block.kind == SERIES:
            block.children = self._runs(block.children)
        for child in block.children:
            self._slices(child)

    def _runs(self, children: list[LayoutBlock]) -> list[LayoutBlock]:
        runs: list[list[LayoutBlock]] = []
        for child in children:
            host = self._host(child)
            if runs and host is not None and self._host(runs[-1][-1]) == host:
                runs[-1].append(child)
            else:
                runs.append([child])
        return [self._joined(run) for run in runs]

    def _joined(self, run: list[LayoutBlock]) -> LayoutBlock:
        if len(run) == 1:
            return run[0]
        return self._block(SERIES, [node for child in run for node in child.nodes], run)

"""The structure and the layout of a graph for drawing.

Structure: a graph is cut across wherever all that came before feeds all that comes after, and what lies between two
cuts falls apart into branches; so on inside of each. What can be cut no further, such as ``a→c, a→d, b→d``, stays as it
is, a *tangle*. Layers are depths: a node lies one below the lowest that feeds it.

Layout, in pixels from the upper left corner: layers lie one below the other over the whole width. Between two layers is
a strip without any box or frame's edge; arrows move sideways there and nowhere else, and go straight down through
layers, where they have a lane. So none crosses a box, or a frame that it neither begins nor ends in. An arrow that goes
past a part of a series runs in a gutter at the side of that series; in a tangle it has a place in each layer it goes
through, like a node. Arrows from one place share a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import NamedTuple

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


_SWEEPS = 6

Spot = Hashable
"""A node of the tangle, or the place where an arrow passes through a layer."""


def spread(
    layers: Sequence[list[Spot]], widths: Mapping[Spot, float], links: Mapping[Spot, list[Spot]], gap: float
) -> dict[Spot, float]:
    """The middle of each spot from side to side; the leftmost edge is at 0.

    `links` go both ways and only to neighbouring layers. No two spots of a layer come nearer than `gap`.
    """
    _order(layers, links)
    middles: dict[Spot, float] = {}
    for layer in layers:
        at = 0.0
        for spot in layer:
            middles[spot] = at + widths[spot] / 2
            at += widths[spot] + gap
    for sweep in range(2 * _SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _pull(layer, widths, links, middles, gap)
    left = min(middles[spot] - widths[spot] / 2 for layer in layers for spot in layer)
    return {spot: middle - left for spot, middle in middles.items()}


def _order(layers: Sequence[list[Spot]], links: Mapping[Spot, list[Spot]]) -> None:
    """Sort each layer by where its neighbours stand, some times down and up."""
    place = {spot: float(at) for layer in layers for at, spot in enumerate(layer)}
    for sweep in range(2 * _SWEEPS):
        pairs = list(pairwise(layers))
        for above, below in pairs if sweep % 2 == 0 else [(b, a) for a, b in reversed(pairs)]:
            known = set(above)
            wanted = {
                spot: _mean([place[other] for other in links[spot] if other in known], place[spot]) for spot in below
            }
            below.sort(key=wanted.__getitem__)
            for at, spot in enumerate(below):
                place[spot] = float(at)


def _pull(
    layer: Sequence[Spot],
    widths: Mapping[Spot, float],
    links: Mapping[Spot, list[Spot]],
    middles: dict[Spot, float],
    gap: float,
) -> None:
    """Move each spot towards its neighbours as far as the order and the gaps allow: least squares."""
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + gap)
    wanted = [_mean([middles[other] for other in links[spot]], middles[spot]) for spot in layer]
    rising: list[tuple[float, int]] = []  # means over neighbours that want to be where the other is, and how many
    for goal, offset in zip(wanted, offsets, strict=True):
        mean, count = goal - offset, 1
        while rising and rising[-1][0] > mean:
            before, many = rising.pop()
            mean, count = (mean * count + before * many) / (count + many), count + many
        rising.append((mean, count))
    shifts = [mean for mean, count in rising for _ in range(count)]
    for spot, shift, offset in zip(layer, shifts, offsets, strict=True):
        middles[spot] = shift + offset


def _mean(numbers: list[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


class Pass(NamedTuple):
    """An arrow that passes through layers `first` to `last` of a block."""

    block: LayoutBlock
    first: int
    last: int


@dataclass
class Lanes:
    """By block and source, through which layers arrows pass; and of a series, which of its lanes it is."""

    spans: dict[LayoutBlock, dict[LayoutBlock, tuple[int, int]]] = field(default_factory=dict)
    places: dict[tuple[LayoutBlock, LayoutBlock], int] = field(default_factory=dict)
    counts: dict[LayoutBlock, int] = field(default_factory=dict)


def lanes_for(arrows: Mapping[tuple[LayoutBlock, LayoutBlock], list[Pass]]) -> Lanes:
    """The lanes that these arrows need."""
    lanes = Lanes()
    for (source, _), passes in arrows.items():
        for block, first, last in passes:
            spans = lanes.spans.setdefault(block, {})
            before = spans.get(source, (first, last))
            spans[source] = min(before[0], first), max(before[1], last)
    for block, spans in lanes.spans.items():
        if block.kind == SERIES:
            _assign(lanes, block, spans)
    return lanes


def _assign(lanes: Lanes, block: LayoutBlock, spans: Mapping[LayoutBlock, tuple[int, int]]) -> None:
    """Give each source the innermost lane that is free all along its way; the shortest ways go first."""
    taken: list[list[tuple[int, int]]] = []
    for source, (first, last) in sorted(spans.items(), key=lambda one: (one[1][1] - one[1][0], one[1])):
        place = next(
            (place for place, ways in enumerate(taken) if all(last < a or b < first for a, b in ways)), len(taken)
        )
        if place == len(taken):
            taken.append([])
        taken[place].append((first, last))
        lanes.places[block, source] = place
    lanes.counts[block] = len(taken)


def passes_of(source: LayoutBlock, target: LayoutBlock) -> list[Pass]:
    """The blocks that an arrow passes, from its source downwards."""
    out, into = list(_ancestors(source)), list(_ancestors(target))
    while len(out) > 1 and len(into) > 1 and out[-2] is into[-2]:
        out.pop()
        into.pop()
    # The last of both is the innermost block that holds the two; before it come the parts that hold one of them.
    found = [*_leaving(out), *_between(out, into), *_arriving(into)]
    return [one for one in found if one.first <= one.last]


def _ancestors(block: LayoutBlock | None) -> Iterator[LayoutBlock]:
    while block is not None:
        yield block
        block = block.parent


def _leaving(chain: list[LayoutBlock]) -> Iterator[Pass]:
    for child, block in pairwise(chain[:-1]):
        if block.kind in (SERIES, TANGLE):
            yield Pass(block, child.last + 1, block.last)


def _between(out: list[LayoutBlock], into: list[LayoutBlock]) -> Iterator[Pass]:
    yield Pass(out[-1], out[-2].last + 1, into[-2].first - 1)


def _arriving(chain: list[LayoutBlock]) -> Iterator[Pass]:
    steps = list(pairwise(chain[:-1]))
    for child, block in reversed(steps):
        if block.kind in (SERIES, TANGLE):
            yield Pass(block, block.first, child.first - 1)


BOX, GAP, PAD, LABEL, LANE = 26.0, 16.0, 9.0, 15.0, 12.0
"""Sizes: a box's height, between neighbours, within a frame, a frame's label, a lane for arrows."""
_STRIP, _WIDEST_STRIP = 22.0, 80.0
_CELL_GAP = 7.0
_NARROW = 310.0
_HALF_LABEL, _LETTER, _ALWAYS = 8.0, 6.4, 14
"""Beside a frame's label, a letter of it, and so many of them that every frame has room for."""


class Rect(NamedTuple):
    """From its left upper to its right lower corner."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        """Half way from side to side."""
        return (self.left + self.right) / 2


class Frame(NamedTuple):
    """A frame and the host it is labelled with, if it is a slice."""

    rect: Rect
    host: str | None
    kind: str
    nodes: list[int]


class Arrow(NamedTuple):
    """From a node, or all of a crowd, to another: the nodes at both ends, and the points of its way."""

    sources: list[int]
    targets: list[int]
    points: list[tuple[float, float]]


@dataclass
class Placed:
    """A graph with a place for everything; boxes by node, frames from the outermost in."""

    width: float
    height: float
    boxes: dict[int, Rect] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)


def placed(wiring: Wiring, root: LayoutBlock, width_of: Callable[[int], float], box: float = BOX) -> Placed:
    """Places for all of a graph; `width_of` says how wide the box of a node is, `box` how high all are."""
    return _Placing(wiring, root, width_of, box).all()


class _Placing:
    def __init__(self, wiring: Wiring, root: LayoutBlock, width_of: Callable[[int], float], box: float) -> None:
        self.wiring = wiring
        self.root = root
        self.width_of = width_of
        self.box = box
        self.units: list[LayoutBlock] = []
        self._collect(root)
        self.arrows = self._arrows()
        self.lanes: Lanes = lanes_for(self.arrows)
        self.widths: dict[LayoutBlock, float] = {}
        self.spare: dict[LayoutBlock, float] = {}  # how much wider a frame is for its label than what is in it
        self.inner: dict[LayoutBlock, dict[Spot, float]] = {}  # of each tangle, the middles of its spots
        self.left: dict[LayoutBlock, float] = {}
        self.tops: dict[LayoutBlock, float] = {}  # room for frames' edges and labels above a block's first layer
        self.bottoms: dict[LayoutBlock, float] = {}
        self.layer_top: list[float] = []
        self.layer_bottom: list[float] = []
        self.strips: list[tuple[float, float]] = []

    def all(self) -> Placed:
        self._measure(self.root)
        self._put(self.root, 0.0)
        self._rise()
        made = Placed(self.widths[self.root], self.layer_bottom[-1] + self.bottoms[self.root])
        self._draw(self.root, made)
        made.arrows = [self._arrow(source, target, passes) for (source, target), passes in self.arrows.items()]
        return made

    def _collect(self, block: LayoutBlock) -> None:
        if block.unit:
            self.units.append(block)
        for child in block.children:
            self._collect(child)

    def _arrows(self) -> dict[tuple[LayoutBlock, LayoutBlock], list[Pass]]:
        unit = {node: block for block in self.units for node in block.nodes}
        pairs = {
            (unit[source], unit[node]): None for node in range(len(self.wiring)) for source in self.wiring.before[node]
        }
        return {(source, target): passes_of(source, target) for source, target in pairs}

    # -- from side to side

    def _measure(self, block: LayoutBlock) -> None:
        for child in block.children:
            self._measure(child)
        content = self._content(block)
        if block.host is not None:  # the label lies to the left of the arrow that comes in
            letters = min(_ALWAYS, len(f"at {block.host}"))
            self.spare[block] = max(0.0, 2 * (letters * _LETTER + _HALF_LABEL - PAD) - content)
        self.widths[block] = content + self.spare.get(block, 0.0) + 2 * PAD * block.framed

    def _content(self, block: LayoutBlock) -> float:
        if block.kind == LEAF:
            return self.width_of(block.nodes[0])
        if block.kind == CROWD:
            columns, cell, _ = self._cells(block)
            return columns * (cell + _CELL_GAP) - _CELL_GAP
        if block.kind == BRANCHES:
            return sum(self.widths[child] + GAP for child in block.children) - GAP
        if block.kind == SERIES:
            return max(self.widths[child] for child in block.children) + self._gutter(block)
        return self._untangle(block)

    def _gutter(self, block: LayoutBlock) -> float:
        count = self.lanes.counts.get(block, 0)
        return LANE * (count + 0.5) if count else 0.0

    def _cells(self, block: LayoutBlock) -> tuple[int, float, int]:
        """The grid of a crowd: number of columns, width of a cell, number of rows."""
        cell = max(self.width_of(node) for node in block.nodes)
        count = len(block.nodes)
        # As wide as a narrow page holds, or beyond that about three times as wide as high.
        narrow = int((_NARROW + _CELL_GAP) / (cell + _CELL_GAP))
        columns = max(3, min(count, narrow if count <= narrow * 8 else round((count * 3 * self.box / cell) ** 0.5)))
        return columns, cell, ceil(count / columns)

    def _untangle(self, block: LayoutBlock) -> float:
        layers: list[list[Spot]] = [[] for _ in range(block.first, block.last + 1)]
        widths: dict[Spot, float] = {}
        links: dict[Spot, list[Spot]] = {}
        for child in block.children:
            layers[child.first - block.first].append(child)
            widths[child] = self.widths[child]
        for source, (first, last) in self.lanes.spans.get(block, {}).items():
            for layer in range(first, last + 1):
                layers[layer - block.first].append((source, layer))
                widths[source, layer] = LANE
        links = {spot: [] for spot in widths}
        for (source, target), passes in self.arrows.items():
            within = next((one for one in passes if one.block is block), None)
            way: list[Spot] = [source] if source in widths else []
            way += [(source, layer) for layer in range(within.first, within.last + 1)] if within else []
            way += [target] if target in widths else []
            for above, below in pairwise(way):
                links[above].append(below)
                links[below].append(above)
        self.inner[block] = spread(layers, widths, links, GAP)
        return max(self.inner[block][spot] + widths[spot] / 2 for spot in widths)

    def _put(self, block: LayoutBlock, left: float) -> None:
        self.left[block] = left
        inside = self._inside(block)
        room = self.widths[block] - 2 * (inside - left) - self._gutter(block)
        for child in block.children:
            if block.kind == BRANCHES:
                self._put(child, inside)
                inside += self.widths[child] + GAP
            elif block.kind == SERIES:
                self._put(child, inside + (room - self.widths[child]) / 2)
            else:
                self._put(child, inside + self.inner[block][child] - self.widths[child] / 2)

    def _inside(self, block: LayoutBlock) -> float:
        """The upper left corner of the area inside a block."""
        return self.left[block] + PAD * block.framed + self.spare.get(block, 0.0) / 2

    def _middle(self, block: LayoutBlock) -> float:
        return self.left[block] + self.widths[block] / 2

    def _lane(self, block: LayoutBlock, source: LayoutBlock, layer: int) -> float:
        if block.kind == TANGLE:
            return self._inside(block) + self.inner[block][source, layer]
        right = 2 * self._middle(block) - self._inside(block)
        return right - self._gutter(block) + LANE * (self.lanes.places[block, source] + 1.0)

    # -- from top to bottom

    def _rise(self) -> None:
        self._edges(self.root)
        layers = self.root.last + 1
        heights, above, below, reach = ([0.0] * layers for _ in range(4))
        for block in self.tops:
            above[block.first] = max(above[block.first], self.tops[block])
            below[block.last] = max(below[block.last], self.bottoms[block])
            if block.unit:
                heights[block.first] = max(heights[block.first], self._height(block))
        for source, target in self.arrows:
            reach[source.last] = max(reach[source.last], abs(self._middle(source) - self._middle(target)))
        at = above[0]
        for layer in range(layers):
            self.layer_top.append(at)
            at += heights[layer]
            self.layer_bottom.append(at)
            if layer + 1 < layers:
                at += below[layer]
                end = at + min(_WIDEST_STRIP, _STRIP + reach[layer] * 0.06)
                self.strips.append((at, end))
                at = end + above[layer + 1]

    def _edges(self, block: LayoutBlock) -> None:
        for child in block.children:
            self._edges(child)
        frame = PAD * block.framed + LABEL * (block.host is not None)
        inside = [self.tops[child] for child in block.children if child.first == block.first]
        under = [self.bottoms[child] for child in block.children if child.last == block.last]
        # A crowd's own padding is a part of its height.
        own = block.kind == CROWD
        self.tops[block] = max(inside, default=0.0) + (LABEL * (block.host is not None) if own else frame)
        self.bottoms[block] = max(under, default=0.0) + (0.0 if own else PAD * block.framed)

    def _height(self, block: LayoutBlock) -> float:
        if block.kind == LEAF:
            return self.box
        rows = self._cells(block)[2]
        return rows * (self.box + _CELL_GAP) - _CELL_GAP + 2 * PAD

    # -- what is drawn

    def _rect(self, block: LayoutBlock) -> Rect:
        top = self.layer_top[block.first]
        bottom = top + self._height(block) if block.unit else self.layer_bottom[block.last]
        left = self.left[block]
        return Rect(left, top - self.tops[block], left + self.widths[block], bottom + self.bottoms[block])

    def _draw(self, block: LayoutBlock, made: Placed) -> None:
        if block.framed:
            made.frames.append(Frame(self._rect(block), block.host, block.kind, block.nodes))
        if block.kind == LEAF:
            left, top = self._inside(block), self.layer_top[block.first]
            made.boxes[block.nodes[0]] = Rect(left, top, left + self.width_of(block.nodes[0]), top + self.box)
        elif block.kind == CROWD:
            made.boxes.update(self._crowd(block))
        for child in block.children:
            self._draw(child, made)

    def _crowd(self, block: LayoutBlock) -> dict[int, Rect]:
        columns, cell, _ = self._cells(block)
        boxes = {}
        for place, node in enumerate(block.nodes):
            row, column = divmod(place, columns)
            left = self._inside(block) + column * (cell + _CELL_GAP)
            top = self.layer_top[block.first] + PAD + row * (self.box + _CELL_GAP)
            boxes[node] = Rect(left, top, left + cell, top + self.box)
        return boxes

    def _arrow(self, source: LayoutBlock, target: LayoutBlock, passes: Sequence[Pass]) -> Arrow:
        lane = {layer: one.block for one in passes for layer in range(one.first, one.last + 1)}
        at = self._middle(source)
        points = [(at, self.layer_top[source.first] + self._height(source))]
        for layer in range(source.last + 1, target.first + 1):
            begin, end = self.strips[layer - 1]
            if layer == target.first:
                to = self._middle(target)
            else:
                to = self._lane(lane[layer], source, layer) if layer in lane else at
            if to != at:
                points += [(at, begin), (to, end)]
            at = to
        # A crowd's label lies above it: the arrow goes to its frame.
        top = self.layer_top[target.first] - (self.tops[target] if target.kind == CROWD else 0.0)
        points.append((at, top))
        return Arrow(source.nodes, target.nodes, points)

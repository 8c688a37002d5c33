"""Where arrows pass what they do not belong to: lanes beside the blocks, kept free for them.

An arrow that goes past a part of a series runs in a gutter at the side of that series; in a tangle it has a place in
each layer it goes through, like a node. Arrows from one place share a lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from .graph_structure import SERIES, TANGLE, Block


class Pass(NamedTuple):
    """That an arrow goes through layers `first` to `last` of a block, past what is there."""

    block: Block
    first: int
    last: int


@dataclass
class Lanes:
    """By block and source, through which layers arrows pass; and of a series, which of its lanes it is."""

    spans: dict[Block, dict[Block, tuple[int, int]]] = field(default_factory=dict)
    places: dict[tuple[Block, Block], int] = field(default_factory=dict)
    counts: dict[Block, int] = field(default_factory=dict)


def lanes_for(arrows: Mapping[tuple[Block, Block], list[Pass]]) -> Lanes:
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


def _assign(lanes: Lanes, block: Block, spans: Mapping[Block, tuple[int, int]]) -> None:
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


def passes_of(source: Block, target: Block) -> list[Pass]:
    """What an arrow goes past, from its source downwards."""
    out, into = list(_ancestors(source)), list(_ancestors(target))
    while len(out) > 1 and len(into) > 1 and out[-2] is into[-2]:
        out.pop()
        into.pop()
    # The last of both is the innermost block that holds the two; before it come the parts that hold one of them.
    found = [*_leaving(out), *_between(out, into), *_arriving(into)]
    return [one for one in found if one.first <= one.last]


def _ancestors(block: Block | None) -> Iterator[Block]:
    while block is not None:
        yield block
        block = block.parent


def _leaving(chain: list[Block]) -> Iterator[Pass]:
    for child, block in pairwise(chain[:-1]):
        if block.kind in (SERIES, TANGLE):
            yield Pass(block, child.last + 1, block.last)


def _between(out: list[Block], into: list[Block]) -> Iterator[Pass]:
    yield Pass(out[-1], out[-2].last + 1, into[-2].first - 1)


def _arriving(chain: list[Block]) -> Iterator[Pass]:
    steps = list(pairwise(chain[:-1]))
    for child, block in reversed(steps):
        if block.kind in (SERIES, TANGLE):
            yield Pass(block, block.first, child.first - 1)

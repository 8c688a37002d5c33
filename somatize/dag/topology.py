"""A directed graph without circles, over names: what feeds what, and in which order that can run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from somatize.errors import CycleError, GraphError, NameTaken, UnknownNode, nearest


class Topology:
    """Names and the edges between them, in the order they were declared; never a circle.

    What is refused leaves it as it was. Building takes time linear in names and edges where edges are
    declared along the order in which names were, or against it.
    """

    def __init__(self) -> None:
        self._before: dict[str, dict[str, None]] = {}  # of each name, what feeds it, in order
        self._after: dict[str, dict[str, None]] = {}

    def add(self, name: str) -> None:
        """A name without edges. Raises `NameTaken`."""
        if name in self._before:
            raise NameTaken(f"the id {name!r} is taken; an id names one node")
        self._before[name] = {}
        self._after[name] = {}

    def connect(self, before: str, after: str) -> None:
        """An edge. Raises `UnknownNode`, `GraphError` for one that is there, and `CycleError`."""
        self.known(before)
        self.known(after)
        if after in self._after[before]:
            raise GraphError(f"the edge {before!r} -> {after!r} is there already; an edge is declared once")
        if self._reaches(after, before):
            round_trip = " -> ".join([before, *self._path(after, before)])
            raise CycleError(f"the edge {before!r} -> {after!r} would close a circle: {round_trip}")
        self.link(before, after)

    def link(self, before: str, after: str) -> None:
        """An edge that is known to be new and to close no circle."""
        self._after[before][after] = None
        self._before[after][before] = None

    def known(self, name: str) -> str:
        """`name`, if it is one. Raises `UnknownNode` with the nearest otherwise."""
        if not isinstance(name, str) or name not in self._before:
            near = nearest(name, list(self._before)) if isinstance(name, str) else "; an edge is declared between ids"
            raise UnknownNode(f"no node is called {name!r}{near}")
        return name

    def names(self) -> list[str]:
        """All names, in the order declared."""
        return list(self._before)

    def edges(self) -> list[tuple[str, str]]:
        """All edges, grouped by where they start."""
        return [(before, after) for before, afters in self._after.items() for after in afters]

    def predecessors(self, name: str) -> list[str]:
        """The predecessors of `name`, in the order the edges were declared."""
        return list(self._before[self.known(name)])

    def successors(self, name: str) -> list[str]:
        """The successors of `name`, in the order the edges were declared."""
        return list(self._after[self.known(name)])

    def inputs(self) -> dict[str, tuple[str, ...]]:
        """The predecessors of every node; the keys are in topological order."""
        return {name: tuple(self._before[name]) for name in self.order()}

    def roots(self) -> list[str]:
        """The names nothing feeds."""
        return [name for name, before in self._before.items() if not before]

    def leaves(self) -> list[str]:
        """The names that feed nothing."""
        return [name for name, after in self._after.items() if not after]

    def order(self) -> list[str]:
        """Every name after all that feed it; of those that could come next, the one declared first does."""
        names = self.names()
        index = {name: place for place, name in enumerate(names)}
        waiting = [len(before) for before in self._before.values()]
        ready = [place for place, count in enumerate(waiting) if not count]
        ordered = []
        while ready:
            name = names[heapq.heappop(ready)]
            ordered.append(name)
            for after in self._after[name]:
                place = index[after]
                waiting[place] -= 1
                if not waiting[place]:
                    heapq.heappush(ready, place)
        return ordered

    def __len__(self) -> int:
        return len(self._before)

    def __contains__(self, name: object) -> bool:
        return name in self._before

    def _reaches(self, start: str, end: str) -> bool:
        """Whether edges lead from `start` to `end`.

        Searched from both sides by turns, so that it ends as soon as either side is exhausted: a graph
        built along its order, or against it, has nothing on one of the two.
        """
        forwards, backwards = self._closure(start, self._after), self._closure(end, self._before)
        while True:
            ahead, behind = next(forwards, None), next(backwards, None)
            if ahead == end or behind == start:
                return True
            if ahead is None or behind is None:
                return False

    @staticmethod
    def _closure(start: str, edges: dict[str, dict[str, None]]) -> Iterator[str]:
        # A name is looked at when it is asked for: one with thousands of successors costs no more than is wanted.
        yield start
        seen = {start}
        queue = [start]
        for name in queue:
            for other in edges[name]:
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
                    yield other

    def _path(self, start: str, end: str) -> list[str]:
        """The names on a shortest way from `start` to `end`, which is known to be there."""
        came_from: dict[str, str] = {start: start}
        queue = [start]
        for name in queue:
            for after in self._after[name]:
                if after not in came_from:
                    came_from[after] = name
                    queue.append(after)
        path = [end]
        while path[-1] != start:
            path.append(came_from[path[-1]])
        return path[::-1]

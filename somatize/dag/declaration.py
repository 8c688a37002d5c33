"""The declaration of a graph: its topology, and the implementation and marks of each node."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from somatize.errors import GraphError, NameTaken

from .implementation import Implementation
from .pieces import Declared, Marks, Piece, checked_id, piece, unfold
from .topology import Topology

_SHOWN = 12


class Declaration:
    """A graph as declared so far. A refused change leaves it unchanged."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.implementations: dict[str, Implementation] = {}
        self.marks: dict[str, Marks] = {}
        self._counted: dict[str, int] = {}  # how far each default id has been counted

    def declare(self, expression: Any) -> None:
        """Everything in an expression. Ids that were given go first, so that no default takes one."""
        nodes, edges = unfold(piece(expression))
        ids = self._ids(nodes)
        for id, (implementation, marks) in zip(ids, nodes, strict=True):
            self._add(id, implementation, marks)
        for before, after in edges:
            self.topology.link(ids[before], ids[after])

    def node(self, *args: Any) -> str:
        """One node, ``(thing)`` or ``(id, thing)``."""
        if len(args) not in (1, 2):
            raise GraphError(f"node(thing) or node('id', thing); {len(args)} things were given")
        declared: Piece = piece(args[-1])
        if len(args) == 2:
            id = checked_id(args[0])
            said = _said_id(declared)
            if said not in (None, id):
                raise GraphError(f"node({id!r}, ...) was given a piece that is named {said!r}; name it once")
            declared = declared.named(id)
        nodes, _ = unfold(declared)
        if len(nodes) != 1:
            raise GraphError(f"node(...) declares one node, and this piece has {len(nodes)}; use Graph.somatize")
        (id,) = self._ids(nodes)
        self._add(id, *nodes[0])
        return id

    def implementation(self, id: str) -> Implementation:
        """The implementation of a node. Raises `UnknownNode`."""
        return self.implementations[self.topology.known(id)]

    def marked(self, mark: str) -> dict[str, Any]:
        """By id, what was said of `mark`, in the order declared."""
        found = ((id, getattr(marks, mark)) for id, marks in self.marks.items())
        return {id: said for id, said in found if said is not None}

    def shown(self) -> str:
        """The graph in a line or two: its size, and what feeds what."""
        topology = self.topology
        if not len(topology):
            return "Graph(empty: forward returns its input)"
        edges = topology.edges()
        size = f"{len(topology)} node{'s' * (len(topology) != 1)}, {len(edges)} edge{'s' * (len(edges) != 1)}"
        after = {name: topology.successors(name) for name in topology.names()}
        lines = [f"{name} -> {', '.join(_some(fed))}" for name, fed in after.items() if fed]
        lines += [name for name, fed in after.items() if not fed and not topology.predecessors(name)]
        return f"Graph({size}: {'; '.join(_some(lines))})"

    def copied(self) -> Declaration:
        """An independent copy; its nodes run the same objects."""
        other = Declaration()
        other.topology = deepcopy(self.topology)
        other.implementations = self.implementations.copy()
        other.marks = self.marks.copy()
        other._counted = self._counted.copy()
        return other

    def _ids(self, nodes: list[Declared]) -> list[str]:
        given: set[str] = set()
        for _, marks in nodes:
            if marks.id is not None:
                if marks.id in given or marks.id in self.topology:
                    raise NameTaken(f"the id {marks.id!r} is taken; an id names one node")
                given.add(marks.id)
        return [marks.id or self._default(implementation.name, given) for implementation, marks in nodes]

    def _default(self, name: str, given: set[str]) -> str:
        number = self._counted.get(name, 0)
        while True:
            number += 1
            id = name if number == 1 else f"{name}_{number}"
            if id not in given and id not in self.topology:
                self._counted[name] = number
                given.add(id)
                return id

    def _add(self, id: str, implementation: Implementation, marks: Marks) -> None:
        self.topology.add(id)
        self.implementations[id] = implementation
        self.marks[id] = replace(marks, id=id)


def _some(words: list[str]) -> list[str]:
    """`words`, or where they are many the first and the last, and how many are between."""
    if len(words) <= _SHOWN:
        return words
    return [*words[: _SHOWN - 2], f"... {len(words) - _SHOWN + 1} more ...", words[-1]]


def _said_id(declared: Piece) -> str | None:
    nodes, _ = unfold(declared)
    return nodes[0][1].id if len(nodes) == 1 else None

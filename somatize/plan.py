"""A graph compiled: its steps in order, where each takes its input from, and what can be let go after it.

A plan is data. It is made by a pure function of the topology and the marks, and only the engine walks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .pieces import Marks
from .topology import Topology


@dataclass(frozen=True, slots=True)
class Step:
    """One node's place in a plan; other steps are named by their index.

    `inputs` are the steps whose values it takes, none for a root, which takes the graph's input. `names` are their
    ids. `frees` are the steps whose value nobody reads after this one. `hands_on` says that its only
    reader is the very next step, which takes nothing else.
    """

    index: int
    node: str
    inputs: tuple[int, ...]
    names: tuple[str, ...]
    frees: tuple[int, ...]
    leaf: bool
    hands_on: bool
    marks: Marks

    def __str__(self) -> str:
        said = [f"{self.index:>4}  {self.node}"]
        said.append("<- " + ", ".join(self.names) if self.names else "<- input")
        said += [f"{word} {value}" for word, value in (("on", self.marks.device), ("at", self.marks.host)) if value]
        said += [word for word in ("frozen", "cached", "mapped") if getattr(self.marks, word) is not None]
        if self.frees:
            said.append("frees " + ", ".join(str(index) for index in self.frees))
        return "  ".join(said)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a graph in the order they run, and which of them are its leaves."""

    steps: tuple[Step, ...]
    leaves: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        return "\n".join(str(step) for step in self.steps) or "(no steps)"


def compile(topology: Topology, marks: Mapping[str, Marks]) -> Plan:
    """The plan of a graph. Pure, and linear in nodes and edges (but for one heap)."""
    order = topology.order()
    index = {name: place for place, name in enumerate(order)}
    sources = [tuple(index[name] for name in topology.predecessors(node)) for node in order]
    last_reader = {source: place for place, taken in enumerate(sources) for source in taken}
    frees: list[list[int]] = [[] for _ in order]
    for source, reader in last_reader.items():
        frees[reader].append(source)
    steps = tuple(
        Step(
            index=place,
            node=node,
            inputs=sources[place],
            names=tuple(topology.predecessors(node)),
            frees=tuple(sorted(frees[place])),
            leaf=place not in last_reader,
            hands_on=_hands_on(place, len(topology.successors(node)), sources),
            marks=marks[node],
        )
        for place, node in enumerate(order)
    )
    return Plan(steps, _in_order(topology.leaves(), index))


def _hands_on(place: int, readers: int, sources: list[tuple[int, ...]]) -> bool:
    return readers == 1 and place + 1 < len(sources) and sources[place + 1] == (place,)


def _in_order(leaves: Iterable[str], index: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(index[leaf] for leaf in leaves)

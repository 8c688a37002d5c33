"""A graph compiled: its steps in order, where each takes its input from, and what can be let go after it.

A plan is data. It is made by a pure function of the topology and the marks, and only the engine walks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .pieces import Marks
from .topology import Topology


class Step(NamedTuple):
    """One node's place in a plan; other steps are named by their number.

    `inputs` are the steps whose values it takes, none for a root, which takes the graph's input. `names` are their
    ids. `frees` are the steps whose value nobody reads after this one. `hands_on` says that its only
    reader is the very next step, which takes nothing else.
    """

    number: int
    node: str
    inputs: tuple[int, ...]
    names: tuple[str, ...]
    frees: tuple[int, ...]
    leaf: bool
    hands_on: bool
    marks: Marks

    def __str__(self) -> str:
        said = [f"{self.number:>4}  {self.node}"]
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


def compiled(topology: Topology, marks: Mapping[str, Marks]) -> Plan:
    """The plan of a graph. Pure, and linear in nodes and edges (but for one heap)."""
    names = topology.inputs()
    index = {name: place for place, name in enumerate(names)}
    sources = [tuple([index[name] for name in before]) for before in names.values()]
    readers = [0] * len(sources)
    last_reader: dict[int, int] = {}
    for place, taken in enumerate(sources):
        for source in taken:
            readers[source] += 1
            last_reader[source] = place
    frees: list[list[int]] = [[] for _ in sources]
    for source, reader in sorted(last_reader.items()):
        frees[reader].append(source)
    steps = [
        Step(
            place,
            node,
            sources[place],
            before,
            tuple(frees[place]),
            leaf=not readers[place],
            hands_on=readers[place] == 1 and place + 1 < len(sources) and sources[place + 1] == (place,),
            marks=marks[node],
        )
        for place, (node, before) in enumerate(names.items())
    ]
    return Plan(tuple(steps), tuple([index[leaf] for leaf in topology.leaves()]))

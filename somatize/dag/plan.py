"""A graph compiled: its steps in order, and the slices of it that go to hosts.

A plan is data, made by a pure function of the topology and the marks; only the engine walks it. Slices are made by a
pure function of a plan and the steps to run. A slice waits for all its inputs, so two slices must never wait for each
other.

What a step *awaits* is all it needs, directly or not, of other hosts, and of what is made here that which needs its
own host. Adjacent steps of one host go together if they await the same. So none waits for another host without need,
and hosts work at the same time; of all cuts with that property this one has the fewest slices, but for those where a
value comes here and goes back to its host. And no two slices wait for each other: what leaves a step u for elsewhere
is awaited by all of the slice it goes to, or is made into something here that all of a slice at u's host await; so all
of every slice along a way from u need u, and a way back to u's own slice would make u need itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


Compared = tuple[list[int], list[int], list[int], list[int]]
"""Comparison orders for a host: readers, values, which values are shared, and which are held there."""


class Slice(NamedTuple):
    """The steps that go to one host in one message; steps are named by their number in the plan."""

    host: str
    steps: tuple[int, ...]
    takes: tuple[int, ...]
    """The steps outside of it whose values it reads."""
    returns: tuple[int, ...]
    """Its steps whose values come back."""
    holds: tuple[int, ...]
    """Its steps whose values stay at the host, for a later slice."""
    alone: bool = False
    """Whether it is a mapped node whose items are dealt out from here."""
    roots: bool = False
    """Whether one of its steps takes the graph's own input."""


def slices(
    plan: Plan, running: Collection[int], alone: Collection[int] = (), brought: Collection[int] = ()
) -> list[Slice]:
    """The slices of the steps that are `running` and have a host, in the order of their first steps. Linear.

    Adjacent steps of one host are one slice where they await the same, and so are those that read just the same and
    do. Steps of `alone` are slices by themselves, and read their input here. The values of those in
    `brought` come back in any case.
    """
    units = _Units(plan, frozenset(running), frozenset(alone))
    bundles = units.bundles()
    where = {number: index for index, bundle in enumerate(bundles) for number in bundle}
    readers: dict[int, list[int]] = {}
    for number in units.running:
        for source in plan.steps[number].inputs:
            readers.setdefault(source, []).append(number)
    return [_slice(plan, bundle, units, where, readers, frozenset(brought)) for bundle in bundles]


class _Units:
    """Groups of steps that can form a slice: adjacent steps of one host that await the same steps."""

    def __init__(self, plan: Plan, running: frozenset[int], alone: frozenset[int]) -> None:
        self.plan = plan
        self.running = sorted(running)
        self.alone = alone
        self._runs = running
        self.awaited = _awaited(self)

    def place(self, number: int) -> object:
        host = self.plan.steps[number].marks.host
        return (host, number) if number in self.alone else host

    def before(self, number: int) -> list[int]:
        return [source for source in self.plan.steps[number].inputs if source in self._runs]

    def bundles(self) -> list[list[int]]:
        """The steps of each slice, in the order of the plan."""
        first: dict[int, int] = {}

        def root(number: int) -> int:
            while first[number] != number:
                first[number] = first[first[number]]
                number = first[number]
            return number

        alike: dict[object, int] = {}
        for number in self.running:
            step = self.plan.steps[number]
            if step.marks.host is None:
                continue
            first[number] = number
            group = self.place(number), self.awaited[number]
            near = [one for one in self.before(number) if (self.place(one), self.awaited[one]) == group]
            if not near:  # fed from outside alone: with those that are fed the same
                near = [alike.setdefault((group, step.inputs), number)]
            for one in near:
                a, b = sorted((root(one), root(number)))
                first[b] = a
        found: dict[int, list[int]] = {}
        for number in first:
            found.setdefault(root(number), []).append(number)
        return [found[number] for number in sorted(found)]


def _awaited(units: _Units) -> list[int]:
    """The steps that each step awaits, as a bit set over the steps that are read elsewhere."""
    read = {s for number in units.running for s in units.before(number) if units.place(s) != units.place(number)}
    needs = [0] * len(units.plan)  # all it needs
    hosts: list[frozenset[str]] = [frozenset()] * len(units.plan)  # those it needs something of, and its own
    awaited = [0] * len(units.plan)
    made: dict[object, int] = {None: 0}  # what is made at each place
    back: dict[object, int] = {}  # what is made here and needs a host
    for bit, number in enumerate(units.running):
        place, host = units.place(number), units.plan.steps[number].marks.host
        for source in units.before(number):
            needs[number] |= needs[source]
            hosts[number] |= hosts[source]
        if host is not None:
            hosts[number] |= {host}
            awaited[number] = needs[number] & ~made.get(place, 0) & (~made[None] | back.get(place, 0))
        if number in read:
            needs[number] |= 1 << bit
            made[place] = made.get(place, 0) | 1 << bit
            for one in hosts[number] if host is None else ():
                back[one] = back.get(one, 0) | 1 << bit
    return awaited


def _slice(
    plan: Plan,
    bundle: list[int],
    units: _Units,
    where: dict[int, int],
    readers: dict[int, list[int]],
    brought: frozenset[int],
) -> Slice:
    host, own = plan.steps[bundle[0]].marks.host, where[bundle[0]]
    assert host is not None
    takes: dict[int, None] = {}
    returns, holds = [], []
    for number in bundle:
        step = plan.steps[number]
        takes.update(dict.fromkeys(source for source in step.inputs if where.get(source) != own))
        outside = [one for one in readers.get(number, ()) if where.get(one) != own]
        there = [one for one in outside if plan.steps[one].marks.host == host and one not in units.alone]
        alone = number in units.alone
        if step.leaf or number in brought or alone or len(there) < len(outside):
            returns.append(number)
        if there and not alone:
            holds.append(number)
    roots = any(not plan.steps[number].inputs for number in bundle)
    return Slice(host, tuple(bundle), tuple(takes), tuple(returns), tuple(holds), bundle[0] in units.alone, roots)

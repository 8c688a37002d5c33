"""What of a plan goes where: the steps of one host that are one trip, and which values travel.

Pure: from a plan and the steps that are to run in this forward, to slices. A slice waits for all that it takes, so two
slices may never wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from .plan import Plan


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

    Adjacent steps of one host are one slice, and so are those that read just the same; but a step that also waits for
    something elsewhere, which what feeds it at its host does not, is in a later slice, so that the two places work
    at the same time. Steps of `alone` are slices by themselves, and read their input here. The values of those in
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
    """Which steps may be together: those of one place and one level, and of those the adjacent ones."""

    def __init__(self, plan: Plan, running: frozenset[int], alone: frozenset[int]) -> None:
        self.plan = plan
        self.running = sorted(running)
        self.alone = alone
        self._runs = running
        self._levels: dict[int, int] = {}
        for number in self.running:
            # Along every edge that leaves a place the level rises, so that no two groups can wait for each other.
            self._levels[number] = max(
                (self._levels[source] + (self.place(source) != self.place(number)) for source in self._before(number)),
                default=0,
            )

    def place(self, number: int) -> object:
        host = self.plan.steps[number].marks.host
        return (host, number) if number in self.alone else host

    def _before(self, number: int) -> list[int]:
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
            group = self.place(number), self._levels[number]
            near = [one for one in self._before(number) if (self.place(one), self._levels[one]) == group]
            if not near:  # fed from outside alone: with those that are fed the same
                near = [alike.setdefault((group, step.inputs), number)]
            for one in near:
                a, b = sorted((root(one), root(number)))
                first[b] = a
        found: dict[int, list[int]] = {}
        for number in first:
            found.setdefault(root(number), []).append(number)
        return [found[number] for number in sorted(found)]


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

"""The agenda of a forward: the steps to take, and counts of what each still waits for.

Most forwards run every step once. Where results are kept, a step may be recalled in place of being run, and then what
is above it may not have to run at all; and where a kept result proves damaged after all, it has to.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any

from somatize.dag.plan import Plan


class Role(Enum):
    """The treatment of a step in a forward: run, recall or skip."""

    SKIP = "skip"  # nobody needs its value
    RECALL = "recall"
    RUN = "run"


def roles(plan: Plan, kept: Collection[int]) -> list[Role]:
    """The role of each step if the results of `kept` can be recalled: ancestors read by nobody else are skipped."""
    found = [Role.SKIP] * len(plan)
    needed = set(plan.leaves)
    for step in reversed(plan.steps):
        if step.number in needed:
            found[step.number] = Role.RECALL if step.number in kept else Role.RUN
            if found[step.number] is Role.RUN:
                needed.update(step.inputs)
    return found


class Agenda:
    """The steps that are left in one forward, and the number of readers each value still has.

    For the thread that walks the plan alone. `slots` holds each value from when its step was done until its last
    reader was.
    """

    def __init__(self, plan: Plan, slots: list[Any], kept: Collection[int] = ()) -> None:
        self.plan = plan
        self.slots = slots
        self.kept = set(kept)
        self.roles = roles(plan, kept)
        self._waiting = [0] * len(plan)
        self._readers = [0] * len(plan)
        self._done = [False] * len(plan)
        self.ready: list[int] = []
        self._after: list[list[int]] = [[] for _ in plan.steps]
        self._head = list(range(len(plan)))  # of each step the one that is taken in its place
        self._bundles: set[int] = set()
        self.due: list[int] = []
        """The bundles that can be taken now, by first step; the caller removes one as it takes it."""
        for leaf in plan.leaves:
            self._readers[leaf] += 1
        for step in plan.steps:
            if self.roles[step.number] is Role.RUN:
                self._waits_for(step.number, step.inputs)
        self.ready = [
            number for number, role in enumerate(self.roles) if role is not Role.SKIP and not self._waiting[number]
        ]

    def copied(self, slots: list[Any]) -> Agenda:
        """One of its own for another forward, of an agenda of which nothing was taken and nothing is to be recalled."""
        made = object.__new__(Agenda)
        made.plan, made.slots, made.kept, made.roles = self.plan, slots, self.kept, self.roles
        made._waiting, made._readers, made._done = self._waiting[:], self._readers[:], self._done[:]
        made.ready, made._after, made.due = self.ready[:], self._after[:], self.due[:]
        made._head, made._bundles = self._head, self._bundles
        return made

    def take(self) -> int:
        """The step to take next: of those that can be, the first in the plan's order."""
        return heapq.heappop(self.ready)

    def put_back(self, numbers: Sequence[int]) -> None:
        """Steps that were taken and are to be taken later after all."""
        for number in numbers:
            self._put(number)

    def _put(self, number: int) -> None:
        heapq.heappush(self.due if number in self._bundles else self.ready, number)

    def done(self, number: int, value: Any) -> None:
        """A step gave its value. What it read is let go, and what waited for it may be taken."""
        if self.roles[number] is Role.RUN:
            for source in self.plan.steps[number].inputs:
                self._readers[source] -= 1
                if not self._readers[source]:
                    self.slots[source] = None
        self._done[number] = True
        if self._readers[number]:
            self.slots[number] = value
        after, self._after[number] = self._after[number], []
        for reader in after:
            head = self._head[reader]
            self._waiting[head] -= 1
            if not self._waiting[head]:
                self._put(head)

    def bundle(self, bundles: Sequence[Sequence[int]]) -> None:
        """Let the steps of each bundle be `due` together, as its first, when all they need from outside is there.

        To be called while no step that runs was taken, and after all that is recalled was.
        """
        for bundle in bundles:
            for number in bundle:
                self._head[number] = bundle[0]
        inside = {number for bundle in bundles for number in bundle}
        for bundle in bundles:
            self._waiting[bundle[0]] = 0
        for source, after in enumerate(self._after):
            kept = [one for one in after if one not in inside or self._head[one] != self._head[source]]
            self._after[source] = kept
            for reader in kept:
                if reader in inside:
                    self._waiting[self._head[reader]] += 1
        self._bundles = {bundle[0] for bundle in bundles}
        self.ready = sorted(number for number in self.ready if number not in inside)
        self.due = sorted(number for number in self._bundles if not self._waiting[number])

    def given(self, number: int, value: Any) -> None:
        """The value of the step that would be taken next is there already."""
        if self.take() != number:
            raise ValueError(number)
        self.done(number, value)

    def missed(self, number: int) -> None:
        """A step that was to be recalled cannot be: it runs, and so does all it needs that is not there any more."""
        self.kept.discard(number)
        self._again(number)
        todo = [number]
        while todo:
            again = todo.pop()
            if self.roles[again] is Role.RUN:
                sources = self.plan.steps[again].inputs
                gone = [source for source in sources if self._gone(source)]
                for source in gone:
                    self._again(source)
                todo += gone
                self._waits_for(again, sources)
            if not self._waiting[again]:
                heapq.heappush(self.ready, again)

    def _again(self, number: int) -> None:
        self._done[number] = False
        self.roles[number] = Role.RECALL if number in self.kept else Role.RUN

    def _gone(self, number: int) -> bool:
        return self.roles[number] is Role.SKIP or (self._done[number] and not self._readers[number])

    def _waits_for(self, number: int, sources: tuple[int, ...]) -> None:
        for source in sources:
            there = self._done[source] and self._readers[source] > 0
            self._readers[source] += 1
            if not there:
                self._waiting[number] += 1
                self._after[source].append(number)

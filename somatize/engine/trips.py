"""Slices of a forward on their way to hosts: what is sent when, what comes back, and what is told of it."""

from __future__ import annotations

import itertools
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns as clock
from typing import Any, NamedTuple

from somatize.codecs import tensors
from somatize.dag.slices import Compared, Slice, slices
from somatize.watching.watchers import HERE, Branch, Forward

from .agenda import Agenda, Role
from .elsewhere import FACTS, HELD, NOBODY, SHOWN, Broker, Landed, Said, Trip, nodes_at_hosts
from .program import INPUT, Program

_NUMBERS = itertools.count(1)
_REMEMBERED = 16


class Back(NamedTuple):
    """A slice that came back; times in nanoseconds."""

    slice: Slice
    landed: Landed
    began: int
    took: int


class Trips:
    """The trips of one forward."""

    def __init__(self, program: Program, forward: Forward, broker: Broker, *, keeps: bool) -> None:
        self.broker = broker
        self.number = next(_NUMBERS)
        self._program = program
        self._forward = forward
        self._keeps = keeps
        self._by_head: dict[int, Slice] = {}
        self._held: set[tuple[str, int]] = set()
        self.changed_steps: set[int] = set()
        """The steps that were given at their host what had changed there."""
        self.changed_values: set[int] = set()
        """The steps whose values changed at a host after they were made or came."""
        self._watched = NOBODY if forward.tell is None else FACTS if forward.status() is None else SHOWN
        self._modes = _modes()
        self._pools = _pools(program.hosts, broker.hosts())
        if keeps:
            broker.refuse_changed(nodes_at_hosts(program, named=True))

    def whole(self) -> Slice | None:
        """The one slice there is, where the whole plan goes to a host and nothing is kept."""
        if self._keeps:
            return None
        _, by_head = self._all()
        one = next(iter(by_head.values()))
        return one if len(one.steps) == len(self._program.plan) and not one.alone else None

    def agenda(self, slots: list[Any]) -> Agenda:
        """What is to be done, in slices, where every step runs."""
        agenda, self._by_head = self._all()
        return agenda.copied(slots)

    def _all(self) -> tuple[Agenda, dict[int, Slice]]:
        key = None, self._keeps, self._pools
        known: tuple[Agenda, dict[int, Slice]] | None = self._program.slices.get(key)
        if known is None:
            agenda = Agenda(self._program.plan, [])
            self.plan(agenda)
            known = self._program.slices[key] = agenda, self._by_head
        return known

    def plan(self, agenda: Agenda) -> None:
        """Bundle what is to run into slices; once all that can be recalled was."""
        running = frozenset(number for number, role in enumerate(agenda.roles) if role is Role.RUN)
        key = running, self._keeps, self._pools
        known = self._program.slices.get(key)
        if known is None:
            known = self._cut(running)
            if len(self._program.slices) < _REMEMBERED:
                self._program.slices[key] = known
        self._by_head = {one.steps[0]: one for one in known}
        agenda.bundle([one.steps for one in self._by_head.values()])

    def _cut(self, running: frozenset[int]) -> list[Slice]:
        steps = self._program.plan.steps
        here = {step.number for step in steps if step.marks.host is not None}
        kept = {number for number in here if self._keeps and steps[number].marks.cached is not None}
        alone = {n for n in here if steps[n].marks.mapped and (n in kept or steps[n].marks.host in self._pools)}
        return slices(self._program.plan, running, alone, kept)

    def headed(self, number: int) -> Slice:
        """The slice that is taken as this step."""
        return self._by_head[number]

    def packed(self, one: Slice, slots: list[Any], compares: Compared | None) -> Trip:
        """A slice with the values it takes, and what is to be compared there."""
        values = [HELD if (one.host, number) in self._held else slots[number] for number in one.takes]
        given = slots[INPUT] if one.roots else None
        enters = self._forward.entering is not None
        return Trip(
            one,
            self._program,
            self.number,
            given,
            values,
            self._watched,
            enters,
            modes=self._modes,
            compares=compares,
            seed=self._forward.seed,
        )

    def go(self, trip: Trip) -> Back:
        """Take one trip, in whichever thread."""
        began = clock()
        try:
            landed = self.broker.carry(trip, self.hearing(trip.slice.host))
        except BaseException as error:  # an interrupt, or what went wrong with the host
            landed = Landed({}, error, getattr(error, "step", -1), told=getattr(error, "told", False))
        return Back(trip.slice, landed, began, clock() - began)

    def landed(self, one: Slice) -> None:
        """Remember what stayed at the host of a slice that came back."""
        self._held.update((one.host, number) for number in one.holds)

    def held(self, one: Slice) -> list[int]:
        """The values a slice takes that stayed at its host."""
        return [number for number in one.takes if (one.host, number) in self._held]

    def sends(self, number: int) -> str | None:
        """The host to which the items of a mapped node are sent from here, or None."""
        one = self._by_head.get(number)
        return one.host if one is not None and one.alone else None

    def width(self, number: int) -> int:
        """How many workers the items of a node go to."""
        return self.broker.hosts()[self._by_head[number].host]

    def go_with_items(self, number: int, items: list[Any], places: Sequence[int], at: int) -> Landed:
        """Take some items of a mapped node, which have these places, to the `at`-th worker of its host."""
        one = self._by_head[number]
        node = self._program.plan.steps[number].node
        trip = Trip(
            one,
            self._program,
            self.number,
            items,
            [],
            self._watched,
            enters=False,
            items=True,
            modes=self._modes,
            seed=self._forward.seed,
            places=places,
        )
        return self.broker.carry(trip, self.hearing(one.host, items=node), at)

    def hearing(self, host: str, *, items: str | None = None) -> Callable[[Said], None]:
        """What is done about each thing that `host` says; facts about the items of node `items` are summed up here."""

        def hear(said: Said) -> None:
            if self._forward.over:
                return
            if said[0] == "fact":
                fact = said[1]
                if items is None or fact.get("node") != items or fact["fact"] not in ("items", "ran", "failed"):
                    fact["host"] = host
                    self._forward.say(fact)
            elif said[0] == "enter":
                self._forward.enter(said[1], host)
            elif said[0] == "changed":
                self.changed_steps.update(said[1])
                self.changed_values.update(said[2])
            elif said[0] == "progress" and items is None:
                with self._forward.gate:  # type: ignore[union-attr]
                    self._forward.progress(*said[1:])
            elif said[0] == "task":
                with self._at(said[1]), self._forward.gate:  # type: ignore[union-attr]
                    self._forward.heard(host, *said[1:])
            elif said[0] == "log":
                with self._at(said[1]):
                    _log(host, *said[1:])
            elif said[0] == "warning":
                with self._at(said[1]):
                    _warn(host, *said[2:])

        return hear

    @contextmanager
    def _at(self, node: str) -> Any:
        step = next((step.number for step in self._program.plan.steps if step.node == node), -1)
        here = HERE.set(Branch(self._forward, step))
        try:
            yield
        finally:
            HERE.reset(here)

    def end(self, *, abandoned: bool) -> None:
        """The walk is over: what is still on its way is stopped, and what hosts hold is let go."""
        if abandoned:
            self.broker.abandon(self.number)
        if self._held:
            self.broker.over(self.number, {host for host, _ in self._held})


def _modes() -> list[Any] | None:
    """The modes of torch in this thread, as a trip has them."""
    found = tensors.modes()
    return None if found == tensors.DEFAULT_MODES else found


_NONE: frozenset[str] = frozenset()


def _pools(hosts: Iterable[str], widths: Mapping[str, int]) -> frozenset[str]:
    """Those of the hosts that have several workers."""
    if max(widths.values(), default=1) == 1:
        return _NONE
    return frozenset(host for host in hosts if widths[host] > 1)


def _log(host: str, node: str, attributes: dict[str, Any]) -> None:
    task = attributes.pop("task", None)
    record = logging.makeLogRecord({**attributes, "host": host, "node": node, "elsewhere": (node, task)})
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _warn(host: str, category: str, text: str, file: str, line: int) -> None:
    kind = getattr(sys.modules["builtins"], category, None)
    kind = kind if isinstance(kind, type) and issubclass(kind, Warning) else _ours(category)
    try:
        warnings.warn_explicit(f"{text} (on host {host})", kind, file, line)
    except Warning as raised:  # where warnings are errors, what a host warned of is still only a warning
        print(f"{type(raised).__name__}: {raised}", file=sys.stderr)  # noqa: T201


def _ours(category: str) -> type[Warning]:
    from somatize import errors

    kind = getattr(errors, category, None)
    return kind if isinstance(kind, type) and issubclass(kind, Warning) else UserWarning

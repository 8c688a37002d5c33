"""Calls to hosts: the interface between the engine and a broker, and the slices of a forward on their way.

The engine knows no worker: it is given a `HostBroker`, which carries trips.
"""

from __future__ import annotations

import itertools
import logging
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns as clock
from typing import Any, NamedTuple, Protocol

from somatize.codecs import tensors
from somatize.dag.plan import Compared, Slice, slices
from somatize.errors import NoHost
from somatize.watching.watchers import HERE, Branch, Forward

from .program import INPUT, Agenda, Program, Role

NOBODY, FACTS, SHOWN = 0, 1, 2
"""Watchers of a forward: none, told facts, or also a status that shows tasks of node code."""

HELD = object()
"""Stands for a value that stayed at its host."""

Said = list[Any]
"""One thing a host said on the way: its kind, and what belongs to it.

``["fact", fact]``, ``["enter", node]``, ``["progress", node, done, total]``, ``["log", node, attributes]``,
``["task", node, what became of it]`` of a task that node code opened or a stream it measures,
``["warning", node, category, text, file, line]``, and ``["changed", steps, values]`` of what is not to be kept.
"""


class Trip(NamedTuple):
    """A slice on its way, with the values it takes; `forward` tells its forward from any other."""

    slice: Slice
    program: Program
    forward: int
    given: Any
    values: list[Any]
    watched: int
    """`NOBODY`, `FACTS` or `SHOWN`."""
    enters: bool
    items: bool = False
    """Whether `given` is a list of items for the one mapped node of the slice."""
    modes: list[Any] | None = None
    """The modes of torch it runs in, as `tensors.modes` gives them; None for those nobody changed."""
    compares: Compared | None = None
    """The comparisons to make at the host, where results are kept."""

    seed: int | None = None
    """The seed of the random generators before each node, if any."""
    places: Sequence[int] = ()
    """The positions of the sent items among all items."""

    @property
    def grad(self) -> bool:
        """Whether a value it takes or gives may have to carry a gradient: grad mode is on."""
        return self.modes is None or bool(self.modes[0])


class Landed(NamedTuple):
    """The result of a trip: the returned values by step, or the exception and its step.

    `told` says that the host told the `failed` of that step itself, or that none is due. `place` says which items it
    was at; where items were sent, `done` are the answers to those before, and `failed` how many were at fault.
    """

    values: Mapping[int, Any]
    error: BaseException | None = None
    step: int = -1
    told: bool = False
    place: str = ""
    done: list[Any] | None = None
    failed: int = 1


class HostBroker(Protocol):
    """Knows a worker, or several, for each host."""

    def hosts(self) -> Mapping[str, int]:
        """The number of workers of each host. Raises `BrokerClosed`."""

    def carry(self, trip: Trip, hear: Callable[[Said], None], at: int = 0) -> Landed:
        """Take a trip to the `at`-th worker of its host and back, whatever becomes of it.

        `hear` is called with what is said on the way, in order, in this thread. An interrupt of this thread stops the
        trip, and its worker if need be.
        """

    def abandon(self, forward: int) -> None:
        """Stop the trips of a forward that are on their way in other threads; does not wait for that."""

    def refuse_changed(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise `StateConflict` where some nodes, by their hosts and ids, have another state there than here."""

    def pull(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Bring home the state of what some nodes run, by their hosts and ids."""

    def push(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Send the state of what some nodes run, by their hosts and ids, whatever they have there."""

    def over(self, forward: int, hosts: Collection[str]) -> None:
        """A forward ended: let go of what these hosts hold of it."""


def nodes_at_hosts(program: Program, *, named: bool = False) -> dict[str, dict[str, Any]]:
    """The objects that nodes at hosts run, by host and id; optionally only of results that need names."""
    found: dict[str, dict[str, Any]] = {}
    for step in program.plan.steps:
        if step.marks.host is not None and (not named or step.number in program.named):
            found.setdefault(step.marks.host, {})[step.node] = program.implementations[step.node].thing
    return found


def refuse_unknown(program: Program, broker: HostBroker | None) -> None:
    """Raises `NoHost` where a step of `program` is to run on a host that `broker` does not have."""
    if broker is not None and not hasattr(broker, "carry"):
        raise NoHost(f"broker={broker!r}: it is a Broker, as Broker.embedded({{...}}) makes one; nothing ran")
    known = broker.hosts() if broker is not None else {}
    for host, node in program.hosts.items():
        if host not in known:
            there = f"the broker has {', '.join(map(repr, known)) or 'none'}" if broker is not None else "no broker"
            there += " was given: forward(..., broker=Broker.embedded({...}))" if broker is None else ""
            raise NoHost(f"node {node!r} is to run at host {host!r}, and {there}; nothing ran")


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

    def __init__(self, program: Program, forward: Forward, broker: HostBroker, *, keeps: bool) -> None:
        self.broker = broker
        self.number = next(_NUMBERS)
        self._program = program
        self._forward = forward
        self._keeps = keeps
        self._by_head: dict[int, Slice] = {}
        self._held: set[tuple[str, int]] = set()
        self.changed_steps: set[int] = set()
        """The steps that read, at their host, a value that had changed there."""
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
        """The agenda in slices, where every step runs."""
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
        """Bundle the steps to run into slices, after recalling."""
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
        """A slice with its input values, and the comparisons to make at the host."""
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
        """The number of workers that the items of a node are distributed to."""
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
        """A handler for the messages of `host`; facts about the items of node `items` are summed up."""

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
        """End the walk: stop what is under way, and release what hosts hold."""
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
    """The hosts that have several workers."""
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

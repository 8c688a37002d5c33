"""What the engine and a broker say to each other: a trip goes to a host, and what became of it comes back.

The engine knows no worker: it is given a `Broker`, which carries trips.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from somatize.dag.slices import Compared, Slice
from somatize.errors import NoHost

from .program import Program

NOBODY, FACTS, SHOWN = 0, 1, 2
"""Who watches a forward: nobody, somebody who is told facts, or also a status that shows the tasks of node code."""

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
    """Where results are kept, what is compared there."""

    seed: int | None = None
    """What the random generators are seeded from before each node, if they are."""
    places: Sequence[int] = ()
    """Of items that are sent, which of all they are."""

    @property
    def grad(self) -> bool:
        """Whether a value it takes or gives may have to carry a gradient: grad mode is on."""
        return self.modes is None or bool(self.modes[0])


class Landed(NamedTuple):
    """What became of a trip: the values that came back by step, or what was raised and at which step.

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


class Broker(Protocol):
    """Knows a worker, or several, for each host."""

    def hosts(self) -> Mapping[str, int]:
        """How many workers each host has. Raises `BrokerClosed`."""

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
    """What the nodes of a plan run, by their hosts and ids; or of those whose results need names."""
    found: dict[str, dict[str, Any]] = {}
    for step in program.plan.steps:
        if step.marks.host is not None and (not named or step.number in program.named):
            found.setdefault(step.marks.host, {})[step.node] = program.implementations[step.node].thing
    return found


def refuse_unknown(program: Program, broker: Broker | None) -> None:
    """Raises `NoHost` where a step of `program` is to run on a host that `broker` does not have."""
    if broker is not None and not hasattr(broker, "carry"):
        raise NoHost(f"broker={broker!r}: it is a Broker, as Broker.embedded({{...}}) makes one; nothing ran")
    known = broker.hosts() if broker is not None else {}
    for host, node in program.hosts.items():
        if host not in known:
            there = f"the broker has {', '.join(map(repr, known)) or 'none'}" if broker is not None else "no broker"
            there += " was given: forward(..., broker=Broker.embedded({...}))" if broker is None else ""
            raise NoHost(f"node {node!r} is to run at host {host!r}, and {there}; nothing ran")

"""Client side of sending slices: connections, which slices a worker knows, and its nodes as they were last sent."""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from somatize.dag.parameters import learned_by
from somatize.dag.plan import Plan, Slice
from somatize.engine.remote_calls import HELD, Landed, Said, Trip
from somatize.errors import (
    GradientCut,
    HostTimeout,
    NotSendable,
    SomatizeWarning,
    StateConflict,
    WorkerDied,
    WorkerError,
)
from somatize.utils.interrupts import TripLock

from . import payload
from .replica import Delta, Digests, Leaf, Replica
from .slice_runner import CUT, REFUSED, WARNED, Spec, cure_of_cut
from .wire import Pieces

Raised = TypeVar("Raised", bound=WorkerError)

_NOT_STATE = ("function", "class", "space", "cell")
"""Kinds of objects of which only what changed at a worker comes home."""

_MOST = 256
"""Slices a worker remembers; beyond that, the oldest are declared again when they are used."""


class SentSlice(NamedTuple):
    """A slice that a worker knows: its number, the keys of its nodes, and the values that the worker holds."""

    number: int
    keys: list[int]
    held: list[bool]


class Load(NamedTuple):
    """The fields and buffers of a trip, and what the worker will have then."""

    fields: dict[str, Any]
    buffers: list[Pieces]
    delta: Delta | None
    shape: Any
    declared: SentSlice


class Lost(NamedTuple):
    """State that ended with a worker: an object of which a leaf had changed there, that leaf, and how it ended."""

    refer: Callable[[], Any]
    leaf: str
    how: str


class SentObjects:
    """Objects sent over one connection, and their changes since; forgotten with the connection."""

    def __init__(self, host: str, mode: str, send: tuple[str, ...]) -> None:
        self.host = host
        self.mode = mode
        self.send = send
        self.replica = Replica(mode, send, 1)
        self.there: set[Leaf] = set()
        """The leaves that changed at the worker since both ends agreed."""
        self._roots: dict[int, None] = {}
        self._declared: dict[Any, SentSlice] = {}
        self._count = 0
        self._forgets: list[int] = []
        self._looked: dict[Any, int] = {}
        """By graph: the number of leaves that had changed at the worker when its nodes here were last checked."""
        _SENT.append(weakref.ref(self, _SENT.remove))

    def load(self, trip: Trip, lost: list[Lost] | None = None, *, whole: bool = False) -> Load:
        """The objects that a trip needs and the worker does not have.

        With `whole` the slice is declared each time, for a worker that may have been replaced unseen. Raises
        `NotSendable`, naming the node, `StateConflict`, and `WorkerDied` where something of the trip was `lost`.
        """
        fields, keys, delta, sources = self._asked(trip, lost)
        shape = trip.program.key, trip.slice
        held = [value is HELD for value in trip.values]
        known = self._declared.get(shape)
        new = known is None or known.keys != keys or known.held != held
        if known is None or new:
            known = SentSlice(known.number if known is not None else self._next(), keys, held)
        if new or whole:
            fields["declares"] = declaration(trip, keys, held)
        fields["slice"] = known.number
        values = self._values(trip)
        if delta is None:
            return Load(fields, values, None, shape, known)
        fields["state"] = len(delta.buffers)
        if sources:
            fields["sources"] = sources
        return Load(fields, [*delta.buffers, *values], delta, shape, known)

    def _asked(
        self, trip: Trip, lost: list[Lost] | None
    ) -> tuple[dict[str, Any], list[int], Delta | None, dict[str, str] | None]:
        fields: dict[str, Any] = {"forward": trip.forward, "watched": trip.watched, "enters": trip.enters}
        self._let_go(fields)  # first, so that nothing that is gone is sent
        if trip.compares is not None:
            fields["compares"] = trip.compares
        if trip.seed is not None:
            fields |= {"seed": f"{trip.seed}", "places": list(trip.places)}
        replica, steps = self.replica, trip.program.plan.steps
        things = things_of(trip)
        keys = [replica.root(thing) for thing in things]
        checked = []
        for key, number in zip(keys, trip.slice.steps, strict=True):
            replica.labels[key] = steps[number].node
            if steps[number].marks.checked is not False or not replica.is_known(key):
                checked.append(key)
        sources = None
        if self.mode == "project":
            fresh = [thing for key, thing in zip(keys, things, strict=True) if not replica.is_known(key)]
            sources = self._sources(trip, fresh)
        try:
            state = {} if replica.is_stateless(checked) else replica.walk(checked)
            self._warn_of_working()
            self.refuse_lost(
                lost, {steps[number].node: thing for number, thing in zip(trip.slice.steps, things, strict=True)}
            )
            self._refuse_others(keys)
            delta = self._delta(keys, state)
        except NotSendable as wrong:
            at, node = self._blamed(trip, keys)
            raise _at(NotSendable(f"node {node!r} cannot go to host {self.host!r}: {wrong}"), at) from wrong
        except WorkerError as wrong:
            raise _at(wrong, trip.slice.steps[0]) from None
        return fields, keys, delta, sources

    def _warn_of_working(self) -> None:
        stays, self.replica.stays = self.replica.stays, []
        for leaf in stays:
            warn(f"{self.replica.describe(leaf)} was set here and cannot travel; {self.called()} goes on with its own")

    def _delta(self, keys: list[int], state: Digests) -> Delta | None:
        here = self.replica.changed(state)
        if not here:
            return None
        self._roots.update(dict.fromkeys(keys))
        self._roots = {root: None for root in self._roots if root in self.replica.entries}
        delta = self.replica.delta(here, self._roots, state)
        both = sorted(self.there & delta.leaves.keys())
        if both:
            named = self.replica.describe(both[0])
            more = f" (and {len(both) - 1} more)" if len(both) > 1 else ""
            raise StateConflict(
                f"{named}{more} was changed both here and at host {self.host!r}; g.pull(broker) takes the state that "
                "is there, and g.push(broker) sends the one that is here"
            )
        return delta

    def refuse_lost(self, lost: list[Lost] | None, things: dict[str, Any]) -> None:
        """Raise `WorkerDied` where a node has an object whose state ended with a worker."""
        if not lost:
            return
        reached = {node: self.replica.walk([self.replica.root(thing)]) for node, thing in things.items()}
        all_reached = {name for state in reached.values() for name in state}
        mine = [one for one in lost if self.replica.name_of(one.refer()) in all_reached]
        if mine:
            names = {self.replica.name_of(one.refer()) for one in mine}
            found = [repr(node) for node, state in reached.items() if not names.isdisjoint(state)]
            nodes = f"node{'s' if len(found) > 1 else ''} {', '.join(found)}"
            raise WorkerDied(
                f"{mine[0].how}, and what {nodes} had changed there since it was sent is not here "
                f"(`{mine[0].leaf}`{f' and {len(mine) - 1} more' if len(mine) > 1 else ''}); "
                "g.push(broker) goes on from the state that is here"
            )

    def _refuse_others(self, keys: list[int]) -> None:
        """Raise `StateConflict` where an object of the trip was changed at another worker."""
        alive = [reference() for reference in _SENT]
        others = [other for other in alive if other is not None and other is not self and other.there]
        reached = self.replica.walk(keys) if others else {}
        for other in others:
            for leaf in list(other.there):
                entry = other.replica.entries.get(leaf[0])
                if entry is not None and self.replica.name_of(entry.refer()) in reached:
                    raise StateConflict(
                        f"{other.replica.describe(leaf)} was changed at {other.called()}, and is to run at "
                        f"{self.called()}; g.pull(broker) of the graph that has it there brings its state "
                        "here, and g.push(broker) sends the one that is here"
                    )

    def called(self) -> str:
        """The host, for a sentence."""
        return f"host {self.host!r}"

    def changed(self) -> list[tuple[Any, str, str]]:
        """Objects that still exist here and changed at the worker, with their names for messages."""
        found = []
        for name, leaf in sorted(self.there):
            entry = self.replica.entries.get(name)
            thing = entry.refer() if entry is not None else None
            if thing is not None:
                found.append((thing, leaf, self.replica.describe((name, leaf))))
        return found

    def changed_of(self, things: Iterable[Any], *, torn: bool = False) -> str | None:
        """The objects of some nodes that changed at the worker, for a message, or None.

        Where it is `torn` only what shares its memory with something else here, which it does not there.
        """
        there = self.there & self.replica.overlaps if torn else self.there
        if not there:
            return None
        reached = self.replica.walk([self.replica.root(thing) for thing in things])
        found = sorted(leaf for leaf in there if leaf[0] in reached)
        return self.replica.describe(found[0]) if found else None

    def pulls(self, things: dict[str, Any]) -> dict[str, Any]:
        """The request for a worker's state of some nodes."""
        fields: dict[str, Any] = {}
        self._let_go(fields)
        keys, entries = self.known(things), self.replica.entries
        leaves = []
        for name, leaf in self.replica.changed(self.replica.walk(keys)):
            entry = entries.get(name)
            if entry is not None and entry.known and entry.kind not in _NOT_STATE:
                leaves.append([name, leaf])
        return {**fields, "roots": keys, "leaves": leaves}

    def pushes(self, things: dict[str, Any]) -> Delta | None:
        """All that changed on either side of what some nodes have, as it is here."""
        keys = self.known(things)
        state = self.replica.walk(keys)
        wanted = self.replica.changed(state) | {leaf for leaf in self.there if leaf[0] in state}
        return self.replica.delta(wanted, self._roots, state) if wanted else None

    def known(self, things: dict[str, Any]) -> list[int]:
        """The names of those of some nodes that the worker has."""
        keys = {node: self.replica.root(thing) for node, thing in things.items()}
        self.replica.labels.update({key: node for node, key in keys.items()})
        return [key for key in keys.values() if self.replica.is_known(key)]

    def pushed(self, delta: Delta, changed: Any) -> None:
        """Note a successful push; returns what differs at the worker."""
        self.replica.agreed(delta)
        self.heard(changed)

    def pulled(
        self, asked: dict[str, Any], buffers: list[memoryview], stays: list[list[Any]], confirm: Callable[[], Any]
    ) -> None:
        """Take over state pulled from a worker, `confirm` that to it, and warn of what could not be sent.

        `confirm` returns what differs there then. Where this fails what came counts as changed at the worker, as it was
        before, and is pulled again.
        """
        self._dropped(asked)
        known = self.replica.known()
        try:
            if buffers:
                self.replica.load(buffers, reply=True)
            changed = confirm()
        except BaseException:
            self.replica.disown(self.replica.known() - known)
            raise
        self.heard(changed)
        for name, leaf in stays:
            warn(f"{self.replica.describe((name, leaf))} stays at host {self.host!r}: it cannot be pickled")

    def heard(self, changed: Any) -> None:
        """Note which leaves have changed at the worker."""
        self.there = {(name, leaf) for name, leaf in changed}

    def warn_of_readers(self, trip: Trip) -> None:
        """Warn once of a node that runs here and uses a module whose state changed at the worker.

        It is looked for only where more has changed than before.
        """
        key = trip.program.key
        if len(self.there) <= self._looked.get(key, 0):
            return
        self._looked[key] = len(self.there)
        changed = {id(thing): described for thing, _, described in self.changed()}
        for step in trip.program.plan.steps:
            shared = step.marks.host is None and changed.keys() & learned_by(
                trip.program.implementations[step.node].thing
            )
            if shared:
                warn(
                    f"{changed[min(shared)]} was changed at {self.called()}, and node {step.node!r}, which runs here, "
                    "uses it as it is here; g.pull(broker) brings home what changed"
                )
                return

    def lost(self, how: str) -> list[Lost]:
        """Objects that still exist here whose state is lost with the worker."""
        found = []
        for name, leaf in self.there:
            entry = self.replica.entries.get(name)
            if entry is not None and entry.refer() is not None:
                found.append(Lost(entry.refer, self.replica.describe((name, leaf)).replace("`", ""), how))
        return found

    def sent(self, load: Load) -> None:
        """Note that a load was sent, so that the worker has it from now on."""
        if self._declared.get(load.shape) is not load.declared:
            if len(self._declared) >= _MOST and load.shape not in self._declared:
                self._forgets.append(self._declared.pop(next(iter(self._declared))).number)
            self._declared[load.shape] = load.declared
        if load.delta is not None:
            self.replica.agreed(load.delta)
        self._dropped(load.fields)

    def unsent(self, load: Load) -> None:
        """Note that the worker could not load what was sent."""
        if self._declared.pop(load.shape, None) is not None:
            self._forgets.append(load.declared.number)
        if load.delta is not None:
            self.replica.disagreed(load.delta)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _let_go(self, fields: dict[str, Any]) -> None:
        """Add the objects and slices that no longer exist here, for the worker to drop."""
        if not self.replica.drops and not self._forgets:
            return
        drops = list(self.replica.drops)
        gone = set(drops)
        self.there = {leaf for leaf in self.there if leaf[0] not in gone}
        for shape, known in [each for each in self._declared.items() if not gone.isdisjoint(each[1].keys)]:
            self._forgets.append(known.number)
            del self._declared[shape]
        fields["drops"], fields["forgets"] = drops, list(self._forgets)

    def _dropped(self, fields: dict[str, Any]) -> None:
        """Note that the worker has dropped the objects and slices in these fields."""
        if "drops" in fields:
            del self.replica.drops[: len(fields["drops"])]
            del self._forgets[: len(fields["forgets"])]

    def _sources(self, trip: Trip, things: list[Any]) -> dict[str, str]:
        try:
            return payload.sources_of(things)
        except NotSendable as wrong:
            steps = trip.program.plan.steps
            for number in trip.slice.steps:
                try:
                    payload.sources_of([trip.program.implementations[steps[number].node].thing])
                except NotSendable as one:
                    sentence = f"node {steps[number].node!r} cannot go to host {trip.slice.host!r}: {one}"
                    raise _at(NotSendable(sentence), number) from wrong
            raise

    def _blamed(self, trip: Trip, keys: list[int]) -> tuple[int, str]:
        """The first step whose node cannot travel."""
        steps = trip.program.plan.steps
        for key, number in zip(keys, trip.slice.steps, strict=True):
            try:
                self.replica.delta(self.replica.changed(state := self.replica.walk([key])), [key], state)
            except NotSendable:
                return number, steps[number].node
        return trip.slice.steps[0], steps[trip.slice.steps[0]].node

    def _values(self, trip: Trip) -> list[Pieces]:
        plain = [trip.given, *trip.values]
        if self.mode == "network" and payload.are_scalars(plain):  # so that none is held there
            return payload.pack(plain, self.mode)
        pieces = list(_taken(trip))
        values, detached = [piece.value for piece in pieces], [piece.reader is None for piece in pieces]
        try:
            return payload.pack_values(values, detached, self.mode, self.send, grad=trip.grad)
        except NotSendable as wrong:
            raise self._refused(trip, pieces, wrong) from wrong

    def _refused(self, trip: Trip, pieces: list[_Taken], wrong: NotSendable) -> NotSendable:
        """The error that names which of the values cannot go, and why."""
        host, steps = trip.slice.host, trip.program.plan.steps
        for one in _single(trip, pieces):
            try:
                payload.pack_one(one.value, one.reader is None, self.mode, self.send, grad=trip.grad)
            except GradientCut as cut:
                number = trip.slice.steps[0] if one.reader is None else one.reader
                sentence = f"{one.what} would lose its gradient on the way to node {steps[number].node!r}"
                return _at(GradientCut(f"{sentence} at host {host!r}, as {cut}; {cure_of_cut(host)}"), number)
            except NotSendable as other:
                return _at(NotSendable(f"{one.what} cannot go to host {host!r}: {other}"), trip.slice.steps[0])
        return _at(wrong, trip.slice.steps[0])


class HostConnection(ABC):
    """A connection to one worker of one host: what was sent over it, and the state lost with workers that ended.

    A subclass starts workers, and carries slices and state there and back.
    """

    def __init__(self, host: str, mode: str, send: tuple[str, ...]) -> None:
        self.host = host
        self.sent = SentObjects(host, mode, send)
        """Of the worker there is; anew with the next."""
        self.lost: list[Lost] = []
        """State that was lost with workers and not given up."""
        self.turn = TripLock(host)
        self.carried: int | None = None
        """The forward whose trip is under way."""
        self.abandoned = self.closed = False
        self._how = ""
        self._learners: set[int] = set()

    @abstractmethod
    def go(self, trip: Trip, hear: Callable[[Said], None]) -> Landed:
        """Take a trip there and back once, starting a worker where there is none."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the trip that is under way."""

    @abstractmethod
    def fetched(self, asked: dict[str, Any]) -> tuple[list[memoryview], list[list[Any]]]:
        """The requested state at the worker, and what of it cannot be sent."""

    @abstractmethod
    def confirmed(self) -> Any:
        """Tell the worker that what it was asked for is here; returns what differs there then."""

    @abstractmethod
    def replaced(self, buffers: list[Pieces]) -> Any:
        """Send state to the worker; returns what differs there then. Raises `WorkerDied`."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether there is a worker that was sent something."""

    def carry(self, trip: Trip, hear: Callable[[Said], None]) -> Landed:
        """Take a trip there and back, again where the worker died and every node of it may run again."""
        with self.turn.once():
            self.carried, self.abandoned, tries = trip.forward, False, 0
            try:
                while True:
                    try:
                        return self.go(trip, hear)
                    except (WorkerDied, HostTimeout):
                        if self.abandoned or self.closed or tries >= self._retries(trip):
                            raise
                        tries += 1
            finally:
                self.carried = None

    def _retries(self, trip: Trip) -> int:
        """How often a trip may be taken again: never where held values are gone, or nodes changed their state there."""
        gone = self.lost or any(value is HELD for value in trip.values)
        if gone or not self._learners.isdisjoint(map(id, things_of(trip))):
            return 0
        return min(trip.program.plan.steps[number].marks.retries or 0 for number in trip.slice.steps)

    def abandon(self, forward: int) -> None:
        """Stop the trip of that forward, if it is under way; the thread that waits for it cleans up."""
        if self.carried == forward:
            self.abandoned = True
            self.stop()

    def is_busy(self) -> bool:
        """Whether a trip is under way."""
        return self.turn.is_taken()

    def loaded(self, trip: Trip, *, whole: bool = False) -> Load:
        """As `SentObjects.load`; warns once of a worker that was replaced without a loss."""
        load = self.sent.load(trip, self.lost, whole=whole)
        if self._how:
            warn(f"{self._how}; it had nothing that is not here too, and was replaced")
            self._how = ""
        return load

    def heard(self, trip: Trip, load: Load, fields: Mapping[str, Any]) -> None:
        """Note what a trip's answer says of the state at the worker."""
        if not fields["loaded"]:
            self.sent.unsent(load)
        if "changed" in fields:
            self.sent.heard(fields["changed"])
            self._learners.update(map(id, things_of(trip)))
            self.sent.warn_of_readers(trip)

    def ended(self, how: str, *, forked: bool = False) -> None:
        """Note that the worker ended, and what it had with it; or is another process' now, without a warning."""
        lost = [] if self.closed else self.sent.lost(how)
        self._how = "" if lost or self.closed or forked else how
        self.lost += lost
        self.sent.there.clear()
        self.sent = SentObjects(self.host, self.sent.mode, self.sent.send)

    def refuse_lost(self, things: dict[str, Any]) -> None:
        """Raise `WorkerDied` where state of some nodes ended with a worker."""
        self.sent.refuse_lost(self.lost, things)

    def pull(self, things: dict[str, Any]) -> None:
        """Bring home the state of some nodes, by their ids."""
        with self.turn.once():
            self.refuse_lost(things)
            asked = self.sent.pulls(things)
            if asked["roots"]:
                held = self.sent.replica.living()  # keeps alive what the answer refers to
                self.sent.pulled(asked, *self.fetched(asked), self.confirmed)
                del held

    def push(self, things: dict[str, Any]) -> None:
        """Send the state that some nodes have here, whatever they have there, or had at a worker that ended."""
        with self.turn.once():
            delta = self.sent.pushes(things)
            if delta is not None and self.is_there():
                with contextlib.suppress(WorkerDied):  # the next worker gets the local state
                    self.sent.pushed(delta, self.replaced(delta.buffers))
            if self.lost:
                replica = self.sent.replica
                reached = replica.walk([replica.root(thing) for thing in things.values()])
                self.lost = [one for one in self.lost if replica.name_of(one.refer()) not in reached]


def things_of(trip: Trip) -> list[Any]:
    """The objects that the nodes of a trip run."""
    return [trip.program.implementations[trip.program.plan.steps[number].node].thing for number in trip.slice.steps]


def warn(sentence: str) -> None:
    """Warn; where warnings are errors the sentence is printed instead, as the work has been done."""
    try:
        warnings.warn(sentence, SomatizeWarning, stacklevel=2)
    except SomatizeWarning:
        print(f"SomatizeWarning: {sentence}", file=sys.stderr)  # noqa: T201


_SENT: list[weakref.ref[SentObjects]] = []
"""All instances of this process, as their workers may have state of the same objects."""


class _Taken(NamedTuple):
    """A value that is sent, with its name for messages; `reader` is a step that needs its gradient."""

    what: str
    value: Any
    reader: int | None


def _taken(trip: Trip) -> Iterator[_Taken]:
    steps, inside = trip.program.plan.steps, trip.slice.steps
    wanting = [number for number in inside if not steps[number].marks.detached]

    def reader(source: int | None) -> int | None:
        reads = (n for n in wanting if (source in steps[n].inputs if source is not None else not steps[n].inputs))
        return next(reads, None)

    if trip.items:
        yield _Taken("an item", trip.given, wanting[0] if wanting else None)
        return
    yield _Taken("the graph's input", trip.given, reader(None))
    for number, value in zip(trip.slice.takes, trip.values, strict=True):
        if value is not HELD:
            yield _Taken(f"the value of node {steps[number].node!r}", value, reader(number))


def _single(trip: Trip, pieces: list[_Taken]) -> Iterator[_Taken]:
    """The values one by one, items too."""
    if not trip.items:
        yield from pieces
        return
    node = trip.program.plan.steps[trip.slice.steps[0]].node
    for item in pieces[0].value:
        yield pieces[0]._replace(what=f"an item of node {node!r}", value=item)


def cuts_of_replies(plan: Plan, one: Slice) -> list[int]:
    """The treatment of the gradient of each value that comes back, by step.

    An error where a node here reads it. Nothing where it was said, or where no node learns by it: that of a frozen node
    leads to weights that do not learn, unless an unfrozen node at the same host feeds it. One warning where the forward
    returns it.
    """
    settled: dict[int, bool] = {}
    for step in plan.steps:
        if step.marks.host == one.host:
            frozen = step.marks.frozen is not None
            settled[step.number] = frozen and all(settled.get(source, True) for source in step.inputs)
    return [
        CUT if settled[number] or plan.steps[number].marks.detached else WARNED if plan.steps[number].leaf else REFUSED
        for number in one.returns
    ]


def _at(error: Raised, number: int) -> Raised:
    # For the engine: the step at fault, and that no node failed.
    error.step, error.told = number, True  # type: ignore[attr-defined]
    return error


def landed(trip: Trip, fields: Mapping[str, Any], buffers: list[memoryview], mode: str) -> Landed:
    """The result of a trip, from the fields and buffers of its answer."""
    host, failed = trip.slice.host, "error" in fields
    of_error = fields["error_buffers"] if failed else 0
    try:
        values = payload.unpack(buffers[of_error:], mode, reply=True) if buffers[of_error:] else []
    except (Exception, SystemExit) as wrong:
        with contextlib.suppress(Exception):
            wrong.add_note(f"while what came back from host {host!r} was put together")
        return Landed({}, wrong, trip.slice.steps[-1], told=True)
    numbers = fields["numbers"] if failed else trip.slice.returns
    found, done = ({}, values) if trip.items else (dict(zip(numbers, values, strict=True)), None)
    if not failed:
        return Landed(found, done=done)
    error = payload.unpack_error(fields["error"], buffers[:of_error], mode, host)
    return Landed(found, error, fields["step"], fields["told"], fields["place"], done, fields["failed"])


def declaration(trip: Trip, keys: list[int], held: list[bool]) -> dict[str, Any]:
    """The declaration of a slice for a worker, sent once: steps, nodes, inputs and outputs."""
    one = trip.slice
    return {
        "host": one.host,
        "spec": spec_of(trip),
        "keys": keys,
        "takes": [] if trip.items else [list(each) for each in zip(one.takes, held, strict=True)],
        "returns": list(one.returns),
        "cut": cuts_of_replies(trip.program.plan, one),
        "holds": list(one.holds),
        "items": trip.items,
    }


def spec_of(trip: Trip) -> Spec:
    """A slice as plain data."""
    plan, one = trip.program.plan, trip.slice
    steps = []
    for number in one.steps:
        step, mapped = plan.steps[number], plan.steps[number].marks.mapped
        batch = None if mapped is None else mapped.batch or 0
        inputs = [] if trip.items else list(step.inputs)
        steps.append([number, step.node, inputs, list(step.names) if inputs else [], step.marks.device, batch])
    return {
        "takes": [] if trip.items else [[number, plan.steps[number].node] for number in one.takes],
        "steps": steps,
        "returns": list(one.returns),
        "holds": list(one.holds),
        "waits": trip.program.waits,
        "shared": [[number, trip.program.shared[number]] for number in one.steps if number in trip.program.shared],
    }

"""What of a trip a worker has already: slices it knows, and nodes as they were when they were last sent."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from somatize import tensors
from somatize.elsewhere import HELD, Trip
from somatize.errors import NotSendable, Unnameable
from somatize.keys import Namer, given
from somatize.pieces import Marks

from . import payload
from .far import Spec
from .wire import Pieces

_PLAIN = Marks()
_NOTHING = given(None)
_SCALARS = (str, bytes, int, float, bool, type(None))


class Sent(NamedTuple):
    """A node as a worker has it."""

    key: int
    thing: Any
    """A weak reference where there can be one, so that a node nobody has any more is dropped there too."""
    version: Any


class Load(NamedTuple):
    """What is said of a trip, and the buffers that go along; what the worker will have then."""

    fields: dict[str, Any]
    buffers: list[Pieces]
    fresh: dict[int, Sent]
    shape: Any


class Shipping:
    """What was sent over one connection; it is forgotten with it."""

    def __init__(self, mode: str, send: tuple[str, ...]) -> None:
        self.mode = mode
        self.send = send
        self._namer = Namer()
        self._sent: dict[int, Sent] = {}
        self._specs: dict[Any, int] = {}
        self._count = 0
        self._drops: list[int] = []

    def load(self, trip: Trip) -> Load:
        """What a worker needs for a trip and does not have. Raises `NotSendable`, naming the node."""
        one, program = trip.slice, trip.program
        shape = trip.program.key, trip.slice
        known = self._specs.get(shape)
        number = known or self._next()
        things = [program.implementations[program.plan.steps[step].node].thing for step in one.steps]
        keys, fresh = self._keys(things)
        code = self._code(trip, [thing for thing, _ in fresh.values()]) if fresh else []
        buffers = self._values(trip)
        fields = self._fields(trip, number, keys)
        fields |= {"spec": None if known else spec_of(trip), "code": list(fresh), "code_buffers": len(code)}
        made = {key: self._noted(key, *thing) for key, thing in fresh.items()}
        return Load(fields, [*code, *buffers], made, shape)

    def _fields(self, trip: Trip, number: int, keys: list[int]) -> dict[str, Any]:
        one = trip.slice
        takes = [] if trip.items else [[n, value is HELD] for n, value in zip(one.takes, trip.values, strict=True)]
        return {
            "program": number,
            "keys": keys,
            "drops": list(self._drops),
            "forward": trip.forward,
            "takes": takes,
            "returns": list(one.returns),
            "holds": list(one.holds),
            "watched": trip.watched,
            "enters": trip.enters,
            "items": trip.items,
        }

    def bare_load(self, trip: Trip) -> tuple[dict[str, Any], dict[int, Any]]:
        """The same for who sends things and values by itself: what is said, and the nodes by their new keys."""
        things = [trip.program.implementations[trip.program.plan.steps[step].node].thing for step in trip.slice.steps]
        keys, fresh = self._keys(things)
        shape = trip.program.key, trip.slice
        number = self._specs.get(shape) or self._next()
        made = {key: self._noted(key, *thing) for key, thing in fresh.items()}
        fields = self._fields(trip, number, keys) | {"spec": spec_of(trip)}
        self.sent(Load(fields, [], made, shape))
        return fields, {key: thing for key, (thing, _) in fresh.items()}

    def sent(self, load: Load) -> None:
        """It was sent, so that the worker has it from now on."""
        self._specs[load.shape] = load.fields["program"]
        for sent in load.fresh.values():
            at = id(_thing(sent))
            if at in self._sent:
                self._drops.append(self._sent[at].key)
            self._sent[at] = sent
        gone = set(load.fields["drops"])
        self._drops = [key for key in self._drops if key not in gone]

    def unsent(self, load: Load) -> None:
        """The worker could make nothing of it."""
        self._specs.pop(load.shape, None)
        fresh = {sent.key for sent in load.fresh.values()}
        self._sent = {at: sent for at, sent in self._sent.items() if sent.key not in fresh}

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _keys(self, things: list[Any]) -> tuple[list[int], dict[int, tuple[Any, Any]]]:
        """The key of each node at the worker; and those it has to be sent, with their versions, by their new keys."""
        naming = self._namer.opened()
        keys: list[int] = []
        fresh: dict[int, tuple[Any, Any]] = {}
        new: dict[int, int] = {}
        for thing in things:
            version = _version(naming, thing)
            if version is None:  # nothing tells whether it changed but what would be sent
                version = b"".join(map(bytes, (piece for pieces in self._packed([thing]) for piece in pieces)))
            sent = self._sent.get(id(thing))
            if sent is not None and _thing(sent) is thing and sent.version == version:
                keys.append(sent.key)
                continue
            if id(thing) not in new:
                new[id(thing)] = self._next()
                fresh[new[id(thing)]] = thing, version
            keys.append(new[id(thing)])
        return keys, fresh

    def _noted(self, key: int, thing: Any, version: Any) -> Sent:
        at = id(thing)

        def gone(_: Any) -> None:
            found = self._sent.get(at)
            if found is not None and found.key == key:
                del self._sent[at]
                self._drops.append(key)

        try:
            return Sent(key, weakref.ref(thing, gone), version)
        except TypeError:
            return Sent(key, thing, version)

    def _packed(self, things: list[Any]) -> list[Pieces]:
        return payload.pack_code(things, self.mode, self.send)

    def _code(self, trip: Trip, things: list[Any]) -> list[Pieces]:
        try:
            return self._packed(things)
        except NotSendable as wrong:
            raise self._blamed(trip, things, wrong) from wrong

    def _blamed(self, trip: Trip, things: list[Any], wrong: NotSendable) -> NotSendable:
        steps = trip.program.plan.steps
        for number in trip.slice.steps:
            thing = trip.program.implementations[steps[number].node].thing
            try:
                if any(thing is one for one in things):
                    self._packed([thing])
            except NotSendable as one:
                return _at(
                    NotSendable(f"node {steps[number].node!r} cannot go to host {trip.slice.host!r}: {one}"), number
                )
        return wrong

    def _values(self, trip: Trip) -> list[Pieces]:
        values = [trip.given, *(value for value in trip.values if value is not HELD)]
        try:
            return payload.pack(values, self.mode, self.send)
        except NotSendable as wrong:
            steps = trip.program.plan.steps
            whose = [None, *(n for n, value in zip(trip.slice.takes, trip.values, strict=False) if value is not HELD)]
            for number, value in zip(whose, values, strict=True):
                try:
                    payload.pack(value, self.mode, self.send)
                except NotSendable as one:
                    what = "the graph's input" if number is None else f"the value of node {steps[number].node!r}"
                    sentence = f"{what} cannot go to host {trip.slice.host!r}: {one}"
                    raise _at(NotSendable(sentence), trip.slice.steps[0]) from wrong
            raise _at(wrong, trip.slice.steps[0]) from None


def _at(error: NotSendable, number: int) -> NotSendable:
    # For the engine: whose fault it is, and that no node has failed.
    error.step, error.told = number, True  # type: ignore[attr-defined]
    return error


def _thing(sent: Sent) -> Any:
    return sent.thing() if isinstance(sent.thing, weakref.ref) else sent.thing


def _version(naming: Any, thing: Any) -> Any:
    """What is another one when the code, the attributes or the parameters of a node are; None where nothing tells."""
    try:
        name = naming.name_of(thing, _PLAIN, _NOTHING).digest
    except Unnameable:
        return None
    held = getattr(thing, "__self__", thing)
    working = [
        (key, value if type(value) in _SCALARS else id(value))
        for key, value in getattr(held, "__dict__", {}).items()
        if key.startswith("_") and key != "_somatize_arguments"
    ]
    return name, working, tensors.versions(held), [tensors.versions(one) for one in vars_of(held)]


def vars_of(thing: Any) -> list[Any]:
    """The Modules among the attributes of a node."""
    return [value for value in getattr(thing, "__dict__", {}).values() if tensors.is_module(value)]


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
    }

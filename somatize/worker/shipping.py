"""What of a trip a worker has already: slices it knows, and nodes as they were when they were last sent."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from somatize import tensors
from somatize.elsewhere import HELD, Trip
from somatize.errors import GradientCut, NotSendable, Unnameable
from somatize.keys import Namer
from somatize.pieces import Marks
from somatize.plan import Plan
from somatize.slices import Slice

from . import payload
from .alongside import Alongside
from .far import Spec, cure_of_cut
from .wire import Pieces

_PLAIN = Marks()
_SCALARS = (str, bytes, int, float, bool, type(None))
_MOST = 256
"""Slices a worker is to remember; of more, those declared first are declared again when they come."""


class Sent(NamedTuple):
    """A node as a worker has it."""

    key: int
    thing: Any
    """A weak reference where there can be one, so that a node nobody has any more is dropped there too."""
    version: Any


class Declared(NamedTuple):
    """A slice as a worker knows it: by its number, with its nodes by their keys, and which values it holds already."""

    number: int
    keys: list[int]
    held: list[bool]


class Load(NamedTuple):
    """What is said of a trip, and the buffers that go along; what the worker will have then."""

    fields: dict[str, Any]
    buffers: list[Pieces]
    fresh: dict[int, Sent]
    shape: Any
    declared: Declared


class Shipping:
    """What was sent over one connection; it is forgotten with it."""

    def __init__(self, mode: str, send: tuple[str, ...]) -> None:
        self.mode = mode
        self.send = send
        self._alongside = Alongside(send) if send else None
        self._sent: dict[int, Sent] = {}
        self._declared: dict[Any, Declared] = {}
        self._count = 0
        self._drops: list[int] = []
        self._forgets: list[int] = []

    def load(self, trip: Trip, *, whole: bool = False) -> Load:
        """What a worker needs for a trip and does not have. Raises `NotSendable`, naming the node.

        With `whole` the slice is declared each time, for a worker that may have been replaced unseen.
        """
        shape = trip.program.key, trip.slice
        fields: dict[str, Any] = {"forward": trip.forward, "watched": trip.watched, "enters": trip.enters}
        if trip.compares is not None:
            fields["compares"] = trip.compares
        if trip.seed is not None:
            fields |= {"seed": f"{trip.seed}", "places": list(trip.places)}
        keys, fresh = self._keys(trip)
        if self._drops or self._forgets:
            self._let_go(fields)
        held = [value is HELD for value in trip.values]
        known = self._declared.get(shape)
        if known is None or known.keys != keys or known.held != held:
            known = Declared(known.number if known is not None else self._next(), keys, held)
            fields["declares"] = declaration(trip, keys, held)
        fields["slice"] = known.number
        if whole:
            fields |= {"code": [], "code_buffers": 0, **declaration(trip, keys, held)}
        if not fresh:
            return Load(fields, self._values(trip), {}, shape, known)
        code = self._code(trip, [thing for thing, _ in fresh.values()])
        fields["code"], fields["code_buffers"] = list(fresh), len(code)
        made = {key: self._noted(key, *thing) for key, thing in fresh.items()}
        return Load(fields, [*code, *self._values(trip)], made, shape, known)

    def sent(self, load: Load) -> None:
        """It was sent, so that the worker has it from now on."""
        if self._declared.get(load.shape) is not load.declared:
            if len(self._declared) >= _MOST and load.shape not in self._declared:
                self._forgets.append(self._declared.pop(next(iter(self._declared))).number)
            self._declared[load.shape] = load.declared
        for sent in load.fresh.values():
            at = id(_thing(sent))
            if at in self._sent:
                self._drops.append(self._sent[at].key)
            self._sent[at] = sent
        if "drops" in load.fields:
            del self._drops[: len(load.fields["drops"])]
            del self._forgets[: len(load.fields["forgets"])]

    def unsent(self, load: Load) -> None:
        """The worker could make nothing of it."""
        if self._declared.pop(load.shape, None) is not None:
            self._forgets.append(load.declared.number)
        fresh = {sent.key for sent in load.fresh.values()}
        self._sent = {at: sent for at, sent in self._sent.items() if sent.key not in fresh}

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _let_go(self, fields: dict[str, Any]) -> None:
        """What nobody has any more, or has changed since, is of no more use there; nor are the slices with it."""
        drops = list(self._drops)
        gone = set(drops)
        for shape, known in [each for each in self._declared.items() if not gone.isdisjoint(each[1].keys)]:
            self._forgets.append(known.number)
            del self._declared[shape]
        fields["drops"], fields["forgets"] = drops, list(self._forgets)

    def _keys(self, trip: Trip) -> tuple[list[int], dict[int, tuple[Any, Any]]]:
        """The key of each node at the worker; and those it has to be sent, with their versions, by their new keys."""
        program, steps = trip.program, trip.program.plan.steps
        if program.namer is None:
            program.namer = Namer()
        naming = program.namer.opened()
        alongside = self._alongside.version() if self._alongside is not None else None
        keys: list[int] = []
        fresh: dict[int, tuple[Any, Any]] = {}
        new: dict[int, int] = {}
        for number in trip.slice.steps:
            thing = program.implementations[steps[number].node].thing
            version = _version(naming, thing, alongside)
            if version is None:  # nothing tells whether it changed but what would be sent
                version = b"".join(map(bytes, (piece for pieces in self._code(trip, [thing]) for piece in pieces)))
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


class _Taken(NamedTuple):
    """A value that goes along, as it is called in a sentence; `reader` is a step that wants it with its gradient."""

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


def detached_replies(plan: Plan, one: Slice) -> list[bool]:
    """Of each step whose value comes back, whether it may lose its gradient: it was said, or no node learns by it.

    That of a frozen node leads to weights that do not learn, unless an unfrozen node at the same host feeds it.
    """
    settled: dict[int, bool] = {}
    for step in plan.steps:
        if step.marks.host == one.host:
            frozen = step.marks.frozen is not None
            settled[step.number] = frozen and all(settled.get(source, True) for source in step.inputs)
    return [settled[number] or bool(plan.steps[number].marks.detached) for number in one.returns]


def _at(error: NotSendable, number: int) -> NotSendable:
    # For the engine: whose fault it is, and that no node has failed.
    error.step, error.told = number, True  # type: ignore[attr-defined]
    return error


def _thing(sent: Sent) -> Any:
    return sent.thing() if isinstance(sent.thing, weakref.ref) else sent.thing


def _version(naming: Any, thing: Any, alongside: int | None) -> Any:
    """What is another one when the code, the attributes or the parameters of a node are; None where nothing tells."""
    try:
        name = naming.own(thing, _PLAIN), alongside
    except Unnameable:
        return None
    held = getattr(thing, "__self__", thing)
    attributes = getattr(held, "__dict__", None)
    if not attributes:
        return name
    working = [
        (key, value if type(value) in _SCALARS else id(value))
        for key, value in attributes.items()
        if key.startswith("_") and key != "_somatize_arguments"
    ]
    return name, working, tensors.versions(held), [tensors.versions(one) for one in vars_of(held)]


def vars_of(thing: Any) -> list[Any]:
    """The Modules among the attributes of a node."""
    return [value for value in getattr(thing, "__dict__", {}).values() if tensors.is_module(value)]


def declaration(trip: Trip, keys: list[int], held: list[bool]) -> dict[str, Any]:
    """A slice as a worker is told of it, once: what it is, with which nodes, and what comes and goes."""
    one = trip.slice
    return {
        "host": one.host,
        "spec": spec_of(trip),
        "keys": keys,
        "takes": [] if trip.items else [list(each) for each in zip(one.takes, held, strict=True)],
        "returns": list(one.returns),
        "detached": detached_replies(trip.program.plan, one),
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

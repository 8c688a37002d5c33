"""A plan bound to its implementations, and the agenda of a forward.

A `Program` is made once per plan, and is what the engine's loops read. An `Agenda` is made for one forward: the steps
to take, and counts of what each still waits for. Most forwards run every step once. Where results are kept, a step may
be recalled in place of being run, and then what is above it may not have to run at all; and where a kept result proves
damaged after all, it has to.

Nodes that wait for their device (``synchronise=True``) or are seeded are wrapped, in a program of their own, so that
the loops need not know of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from enum import Enum
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

from somatize.codecs import tensors
from somatize.dag.implementation import Implementation
from somatize.dag.plan import Plan, Step
from somatize.errors import DeviceMismatch, GraphError, NoItems, NotFrozen, SomatizeError
from somatize.watching.context import Ctx
from somatize.watching.forwards import Key
from somatize.watching.watchers import Forward

from . import seeds


def synchronised_implementations(
    plan: Plan, implementations: Mapping[str, Implementation]
) -> dict[str, Implementation]:
    """The implementations of a plan, those of placed nodes waiting for their device."""
    found = dict(implementations)
    for step in plan.steps:
        if step.marks.device is not None:
            patient = found[step.node] = copy(found[step.node])
            patient.runner = _Waiting(patient.runner, step.marks.device)
    return found


class _Waiting:
    """A runner that returns when its device is through."""

    __slots__ = ("_device", "_runner")

    def __init__(self, runner: Any, device: str) -> None:
        self._runner = runner
        self._device = device

    def forward(self, *given: Any) -> Any:
        value = self._runner.forward(*given)
        tensors.synchronise(self._device)
        return value


Source: TypeAlias = int | tuple[tuple[str, int], ...] | None
"""The input of a step: a slot, several slots by id, or None if the previous step hands its value on."""

INPUT = -1
"""The slot that holds the graph's own input: the last one."""


class Bound(NamedTuple):
    """A step with what it runs; `ctx` is None for an implementation that takes none."""

    number: int
    node: str
    runner: Any
    ctx: Ctx | None
    device: str | None


Moves: TypeAlias = tuple[Source, tuple[int, ...], int, str | None, tuple[int, str]]
"""The work of the sequential loops around a call that does not simply hand one value on.

Where its input lies, which slots are let go after it, the slot its value goes to (-1 where it is handed on and
never stored), its device; and its number and id.
"""

Line: TypeAlias = tuple[int, str, Any, Ctx | None, Moves | None]
"""A step as the watched loop unpacks it: number, node, runner, ctx, moves. Without moves it takes a ctx."""

Brief: TypeAlias = tuple[Any, Ctx | None, Moves | None]
"""A step as the unwatched loop does: runner, ctx, moves. A ctx knows its number."""


class Keeping(NamedTuple):
    """The arguments of a forward about keeping results."""

    store: Any
    refresh: tuple[str, ...] = ()
    write: bool = True
    seed: int | None = None
    """The seed of the nodes' random generators; it counts in every name."""


class Program:
    """The steps of a graph, ready to run in any number of threads; nothing in it belongs to one forward."""

    def __init__(self, plan: Plan, implementations: Mapping[str, Implementation]) -> None:
        self.plan = plan
        self.key = Key(tuple(step.node for step in plan.steps))
        """Shared by the program and its ctxs, so that neither keeps the other's graph alive."""
        self.running: list[Forward] = []
        """The watched forwards that run just now, for threads that have no context."""
        self.refusal = _refusal(plan)
        """The error that every forward raises before anything runs: its class and message."""
        self.named = _cached_and_above(plan)
        """The steps that need a name for something to be kept: the cached ones and all above them, in order."""
        self.keeps = bool(self.named)
        self.chain = all(step.inputs == ((step.number - 1,) if step.number else ()) for step in plan.steps)
        """Whether each step is fed by the one before alone, so that none ever runs beside another."""
        self.maps = any(step.marks.mapped is not None for step in plan.steps)
        self.hosts = {step.marks.host: step.node for step in reversed(plan.steps) if step.marks.host is not None}
        """The hosts its steps are to run on, each with the first of its nodes."""
        self.goes = bool(self.hosts)
        self.shared = readers_of_shared(plan)
        """The readers of each value that has several, which a one-shot iterator may not have."""
        roots = [step.node for step in plan.steps if not step.inputs]
        self.roots = roots if len(roots) > 1 else None
        """The readers of the graph's input, if it has several."""
        self.plain = not self.maps and not self.goes
        self.simple = self.plain and self.refusal is None
        """Whether, with nothing to keep, a forward calls its steps one after the other."""
        self.agenda: Agenda | None = None
        """The agenda of a forward in which every step runs; made on first use and copied for each forward."""
        self.slices: dict[Any, Any] = {}
        """Slices by the set of steps that run."""
        self.implementations = implementations
        self.marks = [step.marks for step in plan.steps]
        self._stores: dict[Any, Any] = {}
        self.namer: Any = None
        """Made where something is first to be kept; it remembers what it found of each node."""
        self.said: set[tuple[str, str]] = set()
        """Warnings already given about kept results, by node; each is given once."""
        self._synchronised: Program | None = None
        self._seeded: Program | None = None
        self.waits = False
        """Whether its placed nodes wait for their devices."""
        self.steps = [self._bind(step, implementations[step.node]) for step in plan.steps]
        lone_last = bool(plan.steps) and plan.leaves == (len(plan.steps) - 1,)
        self.leaf: Source = self._leaf()
        """The slots of the forward's result if every value is stored."""
        self.answer = None if lone_last or not plan.steps else self.leaf
        """The same for the sequential loops; None where it is the last value."""
        self.full: list[Line] = [self._line(step, lone_last) for step in plan.steps]
        """Every step with its moves, for watchers with `entering`."""
        self.lines: list[Line] = [_without_idle_moves(line) for line in self.full]
        self.brief: list[Brief] = [(runner, ctx, moves) for _, _, runner, ctx, moves in self.lines]
        self.stores = any(moves is not None and moves[:3] != _IDLE for *_, moves in self.full)
        self.unwatched = Forward()
        self.unwatched.key, self.unwatched.gate = self.key, None
        """The state shared by all unwatched outermost forwards."""
        self._empty = [None] * len(self.steps)

    def synchronised(self) -> Program:
        """This program with nodes that wait for their devices; made on first use."""
        if self._synchronised is None:
            self._synchronised = Program(self.plan, synchronised_implementations(self.plan, self.implementations))
            self._synchronised.waits = True
        return self._synchronised

    def seeded(self) -> Program:
        """This program with nodes that seed the random generators first; made on first use."""
        if self._seeded is None:
            made = self._seeded = Program(self.plan, seeds.seeded(self.plan, self.implementations))
            made.waits, made.said, made._stores = self.waits, self.said, self._stores
        return self._seeded

    def _bind(self, step: Step, implementation: Implementation) -> Bound:
        device = step.marks.device
        ctx = Ctx(step.node, device, step.number, self.key, self.running) if implementation.takes_ctx else None
        return Bound(step.number, step.node, implementation.runner, ctx, device)

    def _line(self, step: Step, lone_last: bool) -> Line:
        index, node, runner, ctx, device = self.steps[step.number]
        handed = index == 0 or self.plan.steps[index - 1].hands_on
        hands_on = step.hands_on or (lone_last and step.leaf)
        moves = (
            None if handed else self.source(index),
            () if handed else step.frees,
            -1 if hands_on else index,
            device,
            (index, node),
        )
        return index, node, runner, ctx, moves

    def _leaf(self) -> Source:
        leaves = self.plan.leaves
        if len(leaves) > 1:
            return tuple((self.plan.steps[leaf].node, leaf) for leaf in leaves)
        return leaves[0] if leaves else INPUT

    def source(self, index: int) -> Source:
        """The input of a step if every value is stored and none handed on."""
        step = self.plan.steps[index]
        if len(step.inputs) == 1:
            return step.inputs[0]
        return tuple(zip(step.names, step.inputs, strict=True)) or INPUT

    def slots(self, given: Any) -> list[Any]:
        """A place for each value of one forward, its input among them."""
        return [*self._empty, given]

    def store_at(self, path: Any) -> Any:
        """The store at a path, opened on first use and held open as long as this program."""
        from somatize.store.store import Store

        if path not in self._stores:
            self._stores[path] = Store(path)
        return self._stores[path]

    def refuse(self) -> None:
        """Raise the error of the plan, if it has one."""
        if self.refusal is not None:
            raise self.refusal[0](self.refusal[1])


_IDLE = (None, (), -1)


def _without_idle_moves(line: Line) -> Line:
    index, node, runner, ctx, moves = line
    idle = moves is not None and moves[:4] == (*_IDLE, None)
    return (index, node, runner, ctx, None) if idle and ctx is not None else line


def fetch(slots: Any, source: Source) -> Any:
    """The value at `source`: the very object, or a dict of several by id."""
    if isinstance(source, tuple):
        return {name: slots[slot] for name, slot in source}
    return slots[source]


def answered(slots: Any, source: Source) -> Any:
    """The result of a forward: the value of its leaf, or a dict of several by id.

    Raises `GraphError` where several leaves return one iterator.
    """
    found = fetch(slots, source)
    if isinstance(source, tuple) and len({id(value) for value in found.values()}) < len(found):
        leaves: dict[int, list[str]] = {}
        for name, value in found.items():
            leaves.setdefault(id(value), []).append(name)
        for value in found.values():
            names = leaves[id(value)]
            if len(names) > 1 and is_one_shot(value):
                kind = type(value).__name__
                raise GraphError(
                    f"the leaves {_listed(names)} returned one and the same {kind}, which can be read once: "
                    "let them return a list"
                )
    return found


def readers_of_shared(plan: Plan) -> dict[int, list[str]]:
    """The ids of the steps that read each step's value, where there are several."""
    readers: dict[int, list[str]] = {}
    for step in plan.steps:
        for source in step.inputs:
            readers.setdefault(source, []).append(step.node)
    return {source: nodes for source, nodes in readers.items() if len(nodes) > 1}


def is_one_shot(value: object) -> bool:
    """Whether reading a value uses it up: an iterator, or a file; not an object whose `__iter__` begins anew."""
    cls = type(value)
    if not hasattr(cls, "__next__"):
        return cls.__module__ == "tempfile" and hasattr(value, "file")
    begins = getattr(cls, "__iter__", None)
    return not isinstance(begins, FunctionType) or begins.__code__.co_code == _ITSELF


ANEW: set[type] = {int, float, bool, str, bytes, type(None), list, tuple, dict, set}
"""Types whose values can be read any number of times; `read_once` adds classes that are never collected."""

_HEAP_TYPE = 1 << 9
_ITSELF = (lambda self: self).__code__.co_code


def read_once(value: object, node: str, readers: list[str]) -> None:
    """Raises `GraphError` if the value of a node with these readers can be read by one of them only."""
    if is_one_shot(value):
        raise read_twice(value, f"node {node!r} returned", readers, "let it return")
    cls = type(value)
    if not cls.__flags__ & _HEAP_TYPE or cls.__module__ == "torch":
        ANEW.add(cls)


def read_input_once(value: object, roots: list[str]) -> None:
    """Raises `GraphError` if the input of a graph with these roots can be read by one of them only."""
    if is_one_shot(value):
        raise read_twice(value, "the graph was given", roots, "give it")


def read_twice(value: object, whence: str, readers: list[str], cure: str) -> GraphError:
    """The error of a one-shot iterator that several nodes read."""
    kind = type(value).__name__
    return GraphError(
        f"{whence} a one-shot iterator ({kind}), which {_listed(readers)} read: the first would leave nothing for the "
        f"others; {cure} a list, or make one {kind} in each of them"
    )


def _listed(nodes: list[str]) -> str:
    names = [repr(node) for node in nodes[:10]] + (["others"] if len(nodes) > 10 else [])
    return f"{', '.join(names[:-1])} and {names[-1]}"


def held_to(value: Any, node: str, device: str) -> None:
    """Raises `DeviceMismatch` if `value` holds a tensor that is not where its node was placed."""
    actual = tensors.elsewhere(value, device)
    if actual is not None:
        raise DeviceMismatch(
            f"node {node!r} was placed on {device!r} and returned a tensor on {actual!r}; "
            "move it to ctx.device in the node, or place the node elsewhere"
        )


def _cached_and_above(plan: Plan) -> list[int]:
    needed: set[int] = set()
    for step in reversed(plan.steps):
        if step.marks.cached is not None or step.number in needed:
            needed.add(step.number)
            needed.update(step.inputs)
    return sorted(needed)


def _refusal(plan: Plan) -> tuple[type[SomatizeError], str] | None:
    for step in plan.steps:
        if step.marks.mapped is not None and len(step.inputs) > 1:
            return NoItems, (
                f"node {step.node!r} is mapped and is fed by {len(step.inputs)} nodes, whose items are not clear: "
                "put a node before it that makes a list of what they give"
            )
    learner = unfrozen(plan)
    return None if learner is None else (NotFrozen, learner)


def unfrozen(plan: Plan) -> str | None:
    """The error for cached nodes that are not frozen or are fed by one that is not; None if there is none."""
    loose: dict[int, str] = {}
    for step in plan.steps:
        above = next((loose[source] for source in step.inputs if source in loose), None)
        if step.marks.frozen is None:
            loose[step.number] = step.node
        elif above is not None:
            loose[step.number] = above
        if step.marks.cached is not None and step.number in loose:
            learner = loose[step.number]
            what = "is not frozen itself" if learner == step.node else f"is fed by {learner!r}, which is not frozen"
            return (
                f"node {step.node!r} is cached and {what}: a result can be kept only if it and all above it no longer "
                f"learn; declare node {learner!r} .frozen() too"
            )
    return None


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
        """A copy for another forward; of this agenda nothing was taken, and nothing is to be recalled."""
        made = object.__new__(Agenda)
        made.plan, made.slots, made.kept, made.roles = self.plan, slots, self.kept, self.roles
        made._waiting, made._readers, made._done = self._waiting[:], self._readers[:], self._done[:]
        made.ready, made._after, made.due = self.ready[:], self._after[:], self.due[:]
        made._head, made._bundles = self._head, self._bundles
        return made

    def take(self) -> int:
        """Remove and return the first step, in the order of the plan, that can run."""
        return heapq.heappop(self.ready)

    def put_back(self, numbers: Sequence[int]) -> None:
        """Put back steps that were taken, to be taken later."""
        for number in numbers:
            self._put(number)

    def _put(self, number: int) -> None:
        heapq.heappush(self.due if number in self._bundles else self.ready, number)

    def done(self, number: int, value: Any) -> None:
        """Note the value of a step: release values without further readers, and make steps ready that waited for it."""
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
        """Note the value of the step that would be taken next."""
        if self.take() != number:
            raise ValueError(number)
        self.done(number, value)

    def missed(self, number: int) -> None:
        """Run a step that could not be recalled, and all it needs whose value is gone."""
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

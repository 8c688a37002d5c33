"""A slice run where it was sent: one node after the other, with the values it takes already there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns as clock
from typing import Any

from somatize.dag.implementation import Implementation
from somatize.dag.pieces import Mapped, Marks
from somatize.dag.plan import Plan, Step
from somatize.engine.program import INPUT, Bound, Program, Role, Source, fetch, read_once, synchronised_implementations
from somatize.engine.remote_calls import SHOWN, Landed
from somatize.engine.scheduler import Calls, Outcome, done, failed
from somatize.engine.seeds import seed_node, seeding
from somatize.errors import GradientCut, GraphError, NotSendable
from somatize.facts import Fact
from somatize.watching import watchers
from somatize.watching.watchers import HERE, Forward

from . import payload
from .relay import Relay
from .wire import Pieces


class Comparison:
    """Compares values before some steps read them, and at the end; steps and values go by their numbers at home.

    Only values of `values` are compared, before the steps of `readers`; and those that stay, or stayed (`held`), also
    at the end. One that cannot be is taken as changed where several steps read it (`shared`), else as it was.
    """

    def __init__(
        self, readers: Iterable[int], values: Iterable[int], shared: Iterable[int], held: Iterable[int]
    ) -> None:
        self.held = frozenset(held)
        self._readers = frozenset(readers)
        self._values = frozenset(values)
        self._shared = frozenset(shared)
        self._digests: dict[int, str | None] = {}
        self._when: dict[int, int] = {}
        self._begun = 0
        self.steps: list[int] = []
        """The steps that were given what had changed."""
        self.values: list[int] = []
        """The values that changed after they were there."""

    def there(self, number: int, value: Any) -> None:
        """Note a value that came or was made."""
        if number in self._values:
            self._digests[number], self._when[number] = _digest(value), self._begun

    def begins(self, step: int, given: Iterable[tuple[int, Any]]) -> None:
        """Compare the values `given` to a step that is about to run."""
        if step in self._readers and any(self._changed(number, value) for number, value in given):
            self.steps.append(step)
        self._begun += 1

    def ends(self, left: Iterable[tuple[int, Any]]) -> None:
        """No step of the slice reads these values any more; they are sent back or stay."""
        self.values += [number for number, value in left if self._changed(number, value)]

    def _changed(self, number: int, value: Any) -> bool:
        if number not in self._digests or self._when[number] == self._begun:  # nothing ran since
            return False
        before = self._digests[number]
        return number in self._shared if before is None else _digest(value) != before


def _digest(value: Any) -> str | None:
    from somatize.naming import as_it_is

    try:
        return as_it_is(value)
    except Exception:
        return None


Spec = dict[str, Any]
"""A slice as plain data: `takes` as ``[number, node]``; `steps` as ``[number, node, inputs, names, device, mapped]``,
where `mapped` is None, or a batch with 0 for one by one; `returns`, `holds`, and `waits` for `synchronise=True`;
`shared` as ``[number, readers]``, the ids of all that read a value which several do.
"""


Line = tuple[Bound, int, Source, tuple[int, ...]]
"""A step, its number at the client, its input, and the values to release after it."""


class FarProgram:
    """A slice bound to what its nodes run; it knows the numbers its steps have at home."""

    def __init__(self, spec: Spec, things: list[Any]) -> None:
        taken = spec["takes"]
        self.homes = [number for number, _ in taken] + [step[0] for step in spec["steps"]]
        self.takes = len(taken)
        here = {home: number for number, home in enumerate(self.homes)}
        wanted = tuple(here[home] for home in sorted({*spec["returns"], *spec["holds"]}))
        steps = [_step(number, node, (), (), Marks()) for number, (_, node) in enumerate(taken)]
        implementations = {node: Implementation(_given) for _, node in taken}
        for (home, node, inputs, names, device, batch), thing in zip(spec["steps"], things, strict=True):
            marks = Marks(device=device, mapped=None if batch is None else Mapped(batch or None))
            steps.append(_step(here[home], node, tuple(here.get(one, -1) for one in inputs), tuple(names), marks))
            implementations[node] = Implementation(thing)
        plan = Plan(tuple(steps), wanted)
        if spec["waits"]:
            implementations = synchronised_implementations(plan, implementations)
        self.program = Program(plan, implementations)
        self.lines = self._lines()
        self.shared = {here[number]: readers for number, readers in spec["shared"] if number in here}

    def read_by(self, number: int, slots: list[Any]) -> list[tuple[int, Any]]:
        """The values that a step reads, by their numbers at home."""
        inputs = self.program.plan.steps[number].inputs or (INPUT,)
        return [(INPUT if one == INPUT else self.homes[one], slots[one]) for one in inputs]

    def _lines(self) -> list[Line]:
        last: dict[int, int] = {}
        for step in self.program.plan.steps:
            last.update(dict.fromkeys(step.inputs, step.number))
        frees: dict[int, list[int]] = {}
        for source, reader in last.items():
            if source not in self.program.plan.leaves:
                frees.setdefault(reader, []).append(source)
        return [
            (step, self.homes[step.number], self.program.source(step.number), tuple(frees.get(step.number, ())))
            for step in self.program.steps[self.takes :]
        ]


REFUSED, CUT, WARNED = 0, 1, 2
"""Treatments of a returned value's gradient: an error, a silent cut, or one warning."""


class Replies:
    """The values of a slice that go back: their packing, and the error if one cannot be sent."""

    def __init__(self, said: dict[str, Any], mode: str) -> None:
        self._host, self._mode = said["host"], mode
        self._cut = dict(zip(said["returns"], said["cut"], strict=True))
        self._nodes = {step[0]: step[1] for step in said["spec"]["steps"]}
        self._warned: set[int] = set()
        self._warnings: list[list[Any]] = []

    def packed(self, values: Sequence[Any], steps: Sequence[int], modes: list[Any] | None) -> list[Pieces]:
        """The buffers of values of these steps, made in these modes of torch. Raises `NotSendable`."""
        grad = modes is None or bool(modes[0])
        silent = [self._cut[step] == CUT for step in steps]
        try:
            return payload.pack_values(values, silent, self._mode, grad=grad)
        except GradientCut:
            cut = [self._cut[step] != REFUSED for step in steps]
            packed = payload.pack_values(values, cut, self._mode, grad=grad)
        for value, step in zip(values, steps, strict=True):
            self._warn_of(value, step)
        return packed

    def _warn_of(self, value: Any, step: int) -> None:
        """Warn once that the result of a leaf loses its gradient, if it does."""
        if self._cut[step] == WARNED and step not in self._warned:
            try:
                payload.pack_one(value, False, self._mode)
            except GradientCut as cut:
                self._warned.add(step)
                node = self._nodes[step]
                sentence = (
                    f"what node {node!r} returned came back without its gradient, as {cut}: a backward() from here "
                    f"trains nothing there; {cure_of_cut(self._host)}"
                )
                self._warnings.append(["warning", node, "SomatizeWarning", sentence, f"<node {node}>", 1])

    def warnings(self) -> list[list[Any]]:
        """Warnings about the replies, each given once."""
        found, self._warnings = self._warnings, []
        return found

    def landed(
        self, ended: Landed, returns: list[int], modes: list[Any] | None, *, items: bool
    ) -> tuple[list[int], list[Pieces], BaseException | None, int]:
        """The steps whose values go back and these values packed; or the error of one that cannot, and its step."""
        back = [number for number in returns if number in ended.values]
        values = [ended.values[number] for number in back]
        if items:
            values = ended.done or []
            back = returns * len(values)
        try:
            return back, self.packed(values, back, modes), None, -1
        except BaseException as wrong:
            if ended.error is not None:  # which is what is said
                return [], [], None, -1
            error, at = self._unsendable(values, back, modes, wrong)
            packed = self.packed(values[: max(at, 0)], back[: max(at, 0)], modes) if items else []
            return [], packed, error, back[max(at, 0)] if items or at >= 0 else -1

    def _unsendable(
        self, values: Sequence[Any], steps: Sequence[int], modes: list[Any] | None, wrong: BaseException
    ) -> tuple[BaseException, int]:
        """The error and position of a value that cannot be sent; position -1 if it is none of them."""
        if not isinstance(wrong, Exception):
            return wrong, -1
        for place, (value, step) in enumerate(zip(values, steps, strict=True)):
            try:
                grad = modes is None or bool(modes[0])
                payload.pack_one(value, self._cut[step] != REFUSED, self._mode, grad=grad)
            except GradientCut as cut:
                sentence = f"what node {self._nodes[step]!r} returned would lose its gradient on the way back"
                return GradientCut(f"{sentence} from host {self._host!r}, as {cut}; {cure_of_cut(self._host)}"), place
            except NotSendable as one:
                return NotSendable(f"what the node returned cannot come back: {one}"), place
        return wrong, 0 if values else -1


def cure_of_cut(host: str) -> str:
    """The end of a `GradientCut` message: what can be done about it."""
    return f"run the forward in torch.no_grad(), detach the value, or declare the node .at({host!r}, detached=True)"


def _given(value: Any) -> Any:
    """Stands for a step elsewhere, whose value is there before anything runs."""
    return value


def _step(number: int, node: str, inputs: tuple[int, ...], names: tuple[str, ...], marks: Marks) -> Step:
    return Step(number, node, inputs, names, (), leaf=False, hands_on=False, marks=marks)


def run(
    far: FarProgram,
    values: dict[int, Any],
    relay: Relay,
    at: Callable[[int, str], None],
    *,
    watched: int,
    enters: bool,
    compares: Any = None,
    seed: str | None = None,
) -> Landed:
    """Run a slice; whatever its nodes raise is in the answer. With `seed` each seeds the random generators first.

    `values` are by the number at home, the graph's own input under `INPUT`; they are taken out of it, so that each
    lives as long as its last reader.
    """
    program = far.program
    forward = _forward(program, relay, watched=watched)
    forward.seed = int(seed) if seed is not None else None
    slots = program.slots(values.pop(INPUT, None))
    for number in range(far.takes):
        slots[number] = values.pop(far.homes[number])
    here = HERE.set(forward)
    if watched:
        program.running.append(forward)
    through: list[int] = []
    try:
        comparison = _comparison(far, slots, compares)
        with _seeding(forward.seed):
            fault = _go_through(far, slots, through, forward, relay, at, enters=enters, comparison=comparison)
        if comparison is not None:
            _end_comparison(comparison, far, slots, relay)
    except BaseException as error:  # an interrupt between two nodes
        fault = Landed({}, error)
    finally:
        forward.over = True
        relay.over()
        if watched:
            program.running.remove(forward)
        HERE.reset(here)
    found = {far.homes[leaf]: slots[leaf] for leaf in program.plan.leaves if leaf in through}
    return Landed(found) if fault is None else fault._replace(values=found)


def _go_through(
    far: FarProgram,
    slots: list[Any],
    through: list[int],
    forward: Forward,
    relay: Relay,
    at: Callable[[int, str], None],
    *,
    enters: bool,
    comparison: Comparison | None,
) -> Landed | None:
    """Call each node, noting those that returned in `through`; returns the first exception."""
    calls, start = _calls(far.program, forward), clock()
    for step, home, source, frees in far.lines:
        relay.runs(step.node)
        at(home, step.node)
        if enters:
            relay.add(["enter", step.node])
        forward.step = step.number
        if comparison is not None:
            comparison.begins(home, far.read_by(step.number, slots))
        if forward.seed is not None and far.program.marks[step.number].mapped is None:
            seed_node(forward.seed, step.node)
        outcome = calls.do(step, Role.RUN, fetch(slots, source))
        forward.step = -1
        if outcome.error is None and step.number in far.shared:
            try:
                read_once(outcome.value, step.node, far.shared[step.number])
            except GraphError as error:
                outcome = outcome._replace(error=error)
        if outcome.error is not None:
            _tell(forward, outcome, failed(step, outcome.began - start, outcome.took, outcome.error, outcome.place))
            told = forward.tell is not None
            return Landed({}, outcome.error, home, told=told, place=outcome.place)
        slots[step.number] = outcome.value
        through.append(step.number)
        if comparison is not None:
            comparison.there(home, outcome.value)
        if comparison is not None:
            comparison.ends([(far.homes[slot], slots[slot]) for slot in frees if far.homes[slot] in comparison.held])
        for slot in frees:
            slots[slot] = None
        if forward.tell is not None:
            _tell(forward, outcome, done(step, outcome, start))
    return None


def _comparison(far: FarProgram, slots: list[Any], compares: Any) -> Comparison | None:
    if compares is None:
        return None
    comparison = Comparison(*compares)
    for number in (*range(far.takes), INPUT):
        comparison.there(INPUT if number == INPUT else far.homes[number], slots[number])
    return comparison


def _end_comparison(comparison: Comparison, far: FarProgram, slots: list[Any], relay: Relay) -> None:
    comparison.ends([(far.homes[number], slots[number]) for number in far.program.plan.leaves])
    if comparison.steps or comparison.values:
        relay.add(["changed", comparison.steps, comparison.values])


def _tell(forward: Forward, outcome: Outcome, fact: Fact) -> None:
    for each in (*outcome.before, fact, *outcome.after):
        forward.say(each)


def run_items(
    far: FarProgram,
    items: list[Any],
    relay: Relay,
    at: Callable[[int, str], None],
    *,
    watched: int,
    seed: str | None = None,
    places: Sequence[int] = (),
) -> Landed:
    """Run the only, mapped node of a slice over some items; only its own facts are told.

    With `seed` the random generators are seeded before each item, or batch, as it is its place among all items.
    """
    from somatize.engine.items import Through
    from somatize.engine.steps import caller, seeding_items

    program = far.program
    forward = _forward(program, relay, watched=watched)
    bound = program.steps[-1]
    forward.share()
    forward.step = bound.number
    relay.runs(bound.node)
    at(far.homes[-1], bound.node)
    mapped = program.plan.steps[-1].marks.mapped
    begins = seeding_items(int(seed), bound.node, places) if seed is not None else None
    through = Through(bound.node, caller(bound), mapped.batch if mapped else None, None, None, begins)
    here = HERE.set(forward)
    try:
        with _seeding(int(seed) if seed is not None else None):
            return Landed({}, done=through.run(items))
    except BaseException as error:
        done = through.answers[: through.ran]
        return Landed({}, error, far.homes[-1], told=True, done=done, failed=max(1, through.failed))
    finally:
        forward.step, forward.over = -1, True
        relay.over()
        HERE.reset(here)


def _seeding(seed: int | None) -> AbstractContextManager[None]:
    return nullcontext() if seed is None else seeding(seed)


def _calls(program: Program, forward: Forward) -> Calls:
    if not program.maps:
        return Calls(forward)
    from somatize.engine.steps import Works  # which loads the store, and most slices do without

    return Works(program, forward, None)


def _forward(program: Program, relay: Relay, *, watched: int) -> Forward:
    forward = Forward()
    forward.key, forward.gate = program.key, None
    relay.shows = watched == SHOWN
    if watched:
        watchers.watch(forward, relay, None)
    return forward

"""A slice as it is run where it was sent: by the engine's own walk, with the values it takes already there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns as clock
from typing import Any, NamedTuple

from somatize import synchronising, watching
from somatize.branches import Walk
from somatize.calling import Calls, Outcome
from somatize.elsewhere import SHOWN
from somatize.ending import failed
from somatize.implementation import Implementation
from somatize.pieces import Mapped, Marks
from somatize.plan import Plan, Step
from somatize.program import Bound, Program
from somatize.watching import HERE, Forward

from .relay import Relay

Spec = dict[str, Any]
"""A slice as plain data: `takes` as ``[number, node]``; `steps` as ``[number, node, inputs, names, device, mapped]``,
where `mapped` is None, or a batch with 0 for one by one; `returns`, `holds`, and `waits` for `synchronise=True`.
"""


class Ended(NamedTuple):
    """How a slice ended: its values by number, or what was raised and where."""

    values: dict[int, Any]
    error: BaseException | None = None
    step: int = -1
    told: bool = False
    place: str = ""
    done: list[Any] | None = None
    failed: int = 1


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
            implementations = synchronising.waiting(plan, implementations)
        self.program = Program(plan, implementations)


def _given(value: Any) -> Any:
    """Stands for a step elsewhere, whose value is there before anything runs."""
    return value


def _step(number: int, node: str, inputs: tuple[int, ...], names: tuple[str, ...], marks: Marks) -> Step:
    return Step(number, node, inputs, names, (), leaf=False, hands_on=False, marks=marks)


class _FarWalk(Walk):
    """A walk that says where it is, and leaves what is raised as it is."""

    at: Callable[[int, str], None]
    fault: tuple[int, str] = (-1, "")

    def _call_here(self, step: Bound) -> Outcome:
        self.at(step.number, step.node)
        return super()._call_here(step)

    def _failed(self, outcome: Outcome, error: BaseException) -> None:
        self.fault = outcome.step, outcome.place
        step = self.program.steps[outcome.step]
        if self.forward.tell is not None:
            self._tell(outcome, failed(step, outcome.began - self.start, outcome.took, error, outcome.place))
        self._raise_or_note(step.number, error)


def run(
    far: FarProgram,
    given: Any,
    values: Mapping[int, Any],
    relay: Relay,
    at: Callable[[int, str], None],
    *,
    watched: int,
    enters: bool,
) -> Ended:
    """Run a slice; whatever its nodes raise is in the answer. `values` are by the number at home."""
    program = far.program
    forward = _forward(program, relay, watched=watched)
    start = clock()
    walk = _FarWalk(program, given, forward, 1, _calls(program, forward), start)
    walk.at = _saying(at, relay, far.homes, enters=enters)
    forward.share()
    for number in range(far.takes):
        walk.agenda.given(number, values[far.homes[number]])
    here = HERE.set(forward)
    if watched:
        program.running.append(forward)
    error: BaseException | None = None
    try:
        walk.run()
    except BaseException as raised:
        error = raised
    finally:
        forward.over = True
        relay.over()
        if watched:
            program.running.remove(forward)
        HERE.reset(here)
    done = {far.homes[leaf]: walk.slots[leaf] for leaf in program.plan.leaves if walk.agenda.is_done(leaf)}
    step, place = walk.fault
    return Ended(done, error, far.homes[step] if step >= 0 else -1, told=bool(watched) and step >= 0, place=place)


def run_items(
    far: FarProgram, items: list[Any], relay: Relay, at: Callable[[int, str], None], *, watched: int
) -> Ended:
    """Run the one mapped node of a slice over some items; only what it says itself is told."""
    from somatize.mapped import Through
    from somatize.working import caller

    program = far.program
    forward = _forward(program, relay, watched=watched)
    bound = program.steps[-1]
    forward.share()
    forward.step = bound.number
    _saying(at, relay, far.homes, enters=False)(bound.number, bound.node)
    mapped = program.plan.steps[-1].marks.mapped
    through = Through(bound.node, caller(bound), mapped.batch if mapped else None, None, None)
    here = HERE.set(forward)
    try:
        return Ended({}, done=through.run(items))
    except BaseException as error:
        done = through.answers[: through.ran]
        return Ended({}, error, far.homes[-1], told=True, done=done, failed=max(1, through.failed))
    finally:
        forward.step, forward.over = -1, True
        relay.over()
        HERE.reset(here)


def _calls(program: Program, forward: Forward) -> Calls:
    if not program.maps:
        return Calls(forward)
    from somatize.working import Works  # which loads the store, and most slices do without

    return Works(program, forward, None)


def _forward(program: Program, relay: Relay, *, watched: int) -> Forward:
    forward = Forward()
    forward.key, forward.gate = program.key, None
    relay.shows = watched == SHOWN
    if watched:
        watching.watch(forward, relay, None)
    return forward


def _saying(
    at: Callable[[int, str], None], relay: Relay, homes: list[int], *, enters: bool
) -> Callable[[int, str], None]:
    def say(number: int, node: str) -> None:
        relay.runs(node)
        at(homes[number], node)
        if enters:
            relay.add(["enter", node])

    return say

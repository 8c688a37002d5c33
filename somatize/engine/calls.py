"""One call of one node, its outcome, and the facts and the note that say how it ended."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from time import perf_counter_ns as clock
from typing import Any, NamedTuple

from somatize import facts
from somatize.dag.plan import Compared, Slice
from somatize.facts import Fact
from somatize.watching.watchers import Forward

from .program import Bound, Program, Role, held_to


def done(step: Bound, outcome: Outcome, start: int) -> Fact:
    """A node's forward returned, or its result was recalled. The sequential loop writes this fact itself."""
    took = f"{outcome.took // 1000}"
    if outcome.kind == "recalled":
        return {"fact": "recalled", "node": step.node, "bytes": f"{outcome.bytes}", "took_us": took}
    began = f"{(outcome.began - start) // 1000}"
    return _placed({"fact": "ran", "node": step.node, "began_us": began, "took_us": took}, step)


def failed(step: Bound, began: int, took: int, error: BaseException, place: str = "") -> Fact:
    """A node raised `error`; both durations in nanoseconds. `place` says which items it was at."""
    fact = {"fact": "failed", "node": step.node, "began_us": f"{began // 1000}", "took_us": f"{took // 1000}"}
    fact["why"] = facts.why(error) + (f", {place}" if place else "")
    return _placed(fact, step)


def left(host: str, began: int, took: int) -> Fact:
    """A slice went to `host` and came back; both durations in nanoseconds."""
    return {"fact": "left", "host": host, "began_us": f"{began // 1000}", "took_us": f"{took // 1000}"}


def finished(start: int) -> Fact:
    """The forward returned, which began at `start`. The sequential loop writes this fact itself."""
    return {"fact": "finished", "took_us": _since(start)}


def broken(forward: Forward, told: Fact | None, start: int, error: BaseException) -> None:
    """Tell that a node failed (if one did) and that the forward broke.

    An interrupt on the way is raised last, so that the record is whole.
    """
    interrupt: BaseException | None = None
    try:
        if told is not None:
            forward.say(told)
    except BaseException as raised:
        interrupt = raised
    forward.end({"fact": "broke", "took_us": _since(start), "why": facts.why(error)})
    if interrupt is not None:
        raise interrupt from error


def annotate(error: BaseException, program: Program, forward: Forward, step: int, place: str = "") -> None:
    """Note on `error` which node raised it: one note of ours, whichever forward it passes through.

    A note of an earlier forward is replaced; one of a forward that ran inside this node is carried on.
    """
    bound = program.steps[step]
    try:
        at = f"{place}, " if place else ""
        _write(error, forward, f"{at}in node {bound.node!r}, step {step + 1} of {len(program.steps)}")
    except Exception:  # a frozen exception, or notes that are no list: it is raised as it is
        return


def _write(error: BaseException, forward: Forward, place: str) -> None:
    notes = getattr(error, "__notes__", None)
    ours = [note for note in notes if isinstance(note, _Note)] if isinstance(notes, list) else []
    for note in ours:
        notes.remove(note)  # type: ignore[union-attr]
        if note.around is not None and note.around() is forward:
            place = f"{note}, of a graph run {place}"
    note = _Note(place)
    around = forward.parent.forward if forward.parent is not None else None
    note.around = weakref.ref(around) if around is not None else None
    error.add_note(note)


class _Note(str):
    """A note of ours, and the forward around the one that wrote it."""

    __slots__ = ("around",)
    around: weakref.ref[Forward] | None


def _placed(fact: Fact, step: Bound) -> Fact:
    if step.device is not None:
        fact["device"] = step.device
    return fact


def _since(start: int) -> str:
    return f"{max(1, (clock() - start) // 1000)}"


class Outcome(NamedTuple):
    """The outcome of one step; times in nanoseconds.

    `before` and `after` are facts told around the step's own; `bytes` is the size of what was recalled. `place` says
    which items a mapped node was at. `missed` is a step that was to be recalled and has to run. `host` is where the
    items of a mapped node were sent.
    """

    step: int
    value: Any
    began: int
    took: int
    error: BaseException | None = None
    kind: str = "ran"
    bytes: int = 0
    before: tuple[Fact, ...] = ()
    after: tuple[Fact, ...] = ()
    place: str = ""
    missed: bool = False
    host: str | None = None


def call(step: Bound, value: Any, clock: Callable[[], int]) -> Outcome:
    """Call a node, whatever it raises."""
    began = clock()
    try:
        value = step.runner.forward(value) if step.ctx is None else step.runner.forward(value, step.ctx)
        took = clock() - began
        if step.device is not None:
            held_to(value, step.node, step.device)
    except BaseException as error:
        return Outcome(step.number, None, began, clock() - began, error)
    return Outcome(step.number, value, began, took)


class Calls:
    """Carries out the steps of a forward that keeps nothing and maps nothing: each is a call."""

    def __init__(self, forward: Forward) -> None:
        self.clock: Callable[[], int] = clock if forward.tell is not None else int  # which looks nowhere

    @property
    def hits(self) -> set[int]:
        """The steps whose result need not be made."""
        return set()

    def prepare(self) -> None:
        """Called in the caller's thread before the first step runs, unless everything wanted is recalled."""

    def do(self, step: Bound, role: Role, value: Any) -> Outcome:  # noqa: ARG002  the others' is one of two
        """Carry out a step; an exception of the node is returned in the outcome, not raised."""
        return call(step, value, self.clock)

    def sends(self, one: Slice, slots: list[Any]) -> Compared | None:  # noqa: ARG002
        """The comparisons that a host has to make for steps that are about to be sent."""
        return None

    def landed(self, one: Slice, values: Mapping[int, Any], slots: list[Any]) -> None:
        """Steps came back from a host with the values of some of them."""

    def kept_far(self, number: int, value: Any) -> tuple[Any, Fact] | None:  # noqa: ARG002
        """Keep a host's result of a step: the value to hand on, and the fact."""
        return None

"""How a node and a forward end: the facts that say so, and the note on an exception."""

from __future__ import annotations

import weakref
from time import perf_counter_ns as clock

from somatize import facts
from somatize.facts import Fact
from somatize.watching.watchers import Forward

from .calling import Outcome
from .program import Bound, Program


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
        forward.wake()
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

"""The scheduler of a forward: calls of nodes and their outcomes as facts; threads, branches, items and hosts.

The caller's thread starts nodes, collects their outcomes and tells the engine's facts; the threads of a `Crew` run the
nodes. These live as long as the forward and are daemons of ours, no executor's, so that an interrupt can leave them
behind: a node that is running then ends unobserved, and none is started.
"""

from __future__ import annotations

import contextvars
import functools
import heapq
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter_ns as clock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from somatize import facts
from somatize.codecs import tensors
from somatize.dag.plan import Compared, Slice
from somatize.facts import Fact
from somatize.utils.interrupts import start
from somatize.watching.watchers import HERE, Branch, Forward

from .program import Agenda, Bound, Program, Role, answered, fetch, held_to, is_one_shot, read_twice
from .remote_calls import HELD

if TYPE_CHECKING:
    from .remote_calls import Back, Trip, Trips


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


_LOOKS_UP = 0.05
"""Seconds after which the caller's thread looks for a signal, at the latest."""

Job: TypeAlias = Callable[[], "Outcome | Back"]


class Crew:
    """Daemon threads, started as they are needed, each doing one job at a time.

    Up to so many are `busy` with nodes; any number is `away` with slices for hosts.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy = self.away = 0
        self._started = 0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Outcome | Back | RuntimeError] = SimpleQueue()

    def has_room(self) -> bool:
        """Whether one more node may run."""
        return self.busy < self.most

    def give(self, job: Job) -> None:
        """Have a node run."""
        self._start(job)
        self.busy += 1

    def send(self, job: Job) -> None:
        """Have a slice go to its host, or the items of a node."""
        self._start(job)
        self.away += 1

    def _start(self, job: Job) -> None:
        if self.busy + self.away == self._started:
            work = threading.Thread(
                target=_work, args=(self._jobs, self._outcomes), name="somatize-branch", daemon=True
            )
            # Not in this thread: starting a thread takes a lock, for which a signal handler that starts one would wait.
            if not start(partial(_start, work, self._outcomes)):
                work.start()
            self._started += 1
        self._jobs.put(job)

    def outcome(self) -> Outcome | Back:
        """Wait for the next job to end and return its outcome. Raises RuntimeError if no thread could be started."""
        outcome = None
        while outcome is None:
            try:
                outcome = self._outcomes.get(timeout=_LOOKS_UP)
            except Empty:  # Python sleeps through a signal that comes just as it begins to wait
                continue
        if isinstance(outcome, RuntimeError):
            raise outcome
        if isinstance(outcome, Outcome) and outcome.host is None:
            self.busy -= 1
        else:
            self.away -= 1
        return outcome

    def dismiss(self) -> None:
        """Let each thread end after its job; does not wait."""
        for _ in range(self._started + 1):  # one more may have been started as an interrupt came
            self._jobs.put(None)


def _start(work: threading.Thread, outcomes: SimpleQueue[Outcome | Back | RuntimeError]) -> None:
    try:
        work.start()
    except RuntimeError as error:  # no more threads can be started
        outcomes.put(error)


def _work(jobs: SimpleQueue[Job | None], outcomes: SimpleQueue[Outcome | Back | RuntimeError]) -> None:
    while (job := jobs.get()) is not None:
        outcome = job()
        del job  # it holds the node's input, which may be the last reference there is
        outcomes.put(outcome)
        del outcome


def walk(
    program: Program,
    given: Any,
    forward: Forward,
    threads: int,
    calls: Calls,
    start: int,
    trips: Trips | None = None,
) -> Any:
    """The plan, up to `threads` nodes at a time; `start` is when the forward began, for those who watch.

    Slices for hosts are `trips` in threads beside those, except where there is nothing to do meanwhile.
    """
    if type(program.leaf) is int and program.leaf in calls.hits:
        outcome = _recalled(program.steps[program.leaf], forward, calls, start)
        if not outcome.missed:
            return outcome.value
    calls.prepare()
    forward.share()
    return Walk(program, given, forward, threads, calls, start, trips).run()


def _recalled(step: Bound, forward: Forward, calls: Calls, start: int) -> Outcome:
    """Recall the value of the only leaf: no other step is needed."""
    forward.step = step.number
    try:
        outcome = calls.do(step, Role.RECALL, None)
    finally:
        forward.step = -1
    if outcome.missed:
        calls.hits.discard(step.number)
    elif forward.tell is not None:
        for fact in (*outcome.before, done(step, outcome, start)):
            forward.say(fact)
    return outcome


@dataclass
class Walk:
    """One walk of a plan: steps that are due, under way and done."""

    program: Program
    given: InitVar[Any]
    forward: Forward
    threads: int
    calls: Calls
    start: int
    trips: Trips | None = None

    def __post_init__(self, given: Any) -> None:
        self.slots = self.program.slots(given)
        self.errors: dict[int, BaseException] = {}

    def run(self) -> Any:
        """Walk to the end. Raises the exception of the first failed node in the plan's order."""
        whole = self.trips.whole() if self.trips is not None else None
        if self.trips is not None and whole is not None:
            return self._one_trip(self.trips, whole)
        self.crew = Crew(self.threads)
        self.agenda = self._due(self.calls.hits)
        self.modes = tensors.modes() if self.threads > 1 or self.trips is not None else None
        through = False
        try:
            if self.trips is not None and self.calls.hits:
                self._recall_all()
                self.trips.plan(self.agenda)
            while ((self.agenda.ready or self.agenda.due) and not self.errors) or self.crew.busy or self.crew.away:
                self._deal_out()
                if self.crew.busy or self.crew.away:
                    self._take(self.crew.outcome())
            through = True
        finally:
            try:
                self.crew.dismiss()
            except BaseException:  # an interrupt: no thread is left waiting for work
                self.crew.dismiss()
                raise
            if self.trips is not None:
                self.trips.end(abandoned=not through)
        if self.errors:
            raise self.errors[min(self.errors)]
        return answered(self.slots, self.program.leaf)

    def _one_trip(self, trips: Trips, one: Slice) -> Any:
        """All there is goes to one host: nothing has to be dealt out."""
        back = trips.go(trips.packed(one, self.slots, None))
        if back.landed.error is not None:
            self._failed_far(back, back.landed.error)
            raise back.landed.error
        if self.forward.tell is not None:
            self.forward.say(left(one.host, back.began - self.start, back.took))
        return answered(back.landed.values, self.program.leaf)

    def _due(self, hits: set[int]) -> Agenda:
        if hits:
            return Agenda(self.program.plan, self.slots, hits)
        if self.trips is not None:
            return self.trips.agenda(self.slots)
        if self.program.agenda is None:
            self.program.agenda = Agenda(self.program.plan, [])
        return self.program.agenda.copied(self.slots)

    def _recall_all(self) -> None:
        """Recall all kept results first: only then is it certain what has to run and which slices are needed."""
        runs = []
        while self.agenda.ready:
            number = self.agenda.take()
            if self.agenda.roles[number] is Role.RECALL:
                self._take(self._call_here(self.program.steps[number]))
            else:
                runs.append(number)
        self.agenda.put_back(runs)

    def _deal_out(self) -> None:
        """Start what can start. A node without others beside it runs in the caller's thread and context."""
        if self.trips is not None:
            self._send_out(self.trips)
        while self.agenda.ready and not self.errors and self.crew.has_room():
            number = self.agenda.take()
            step = self.program.steps[number]
            if self.forward.entering is not None and self.agenda.roles[number] is Role.RUN:
                self.forward.enter(step.node)
            if self.crew.most > 1 and (self.agenda.ready or self.crew.busy):
                self.crew.give(self._job(step))
            else:
                self._take(self._call_here(step))
                if self.trips is not None:
                    self._send_out(self.trips)

    def _send_out(self, trips: Trips) -> None:
        """Start every slice that can: before what runs here, which it then overlaps with."""
        lone = len(self.agenda.due) == 1 and not (self.agenda.ready or self.crew.busy or self.crew.away)
        while self.agenda.due and not self.errors:
            number = heapq.heappop(self.agenda.due)
            one = trips.headed(number)
            if one.alone:
                self._send_items(one.host, number, lone=lone)
            elif lone:
                self._took_trip(trips.go(self._packed(trips, one)))
            else:
                go = functools.partial(trips.go, self._packed(trips, one))
                self.crew.send(functools.partial(contextvars.copy_context().run, go))
                del go

    def _packed(self, trips: Trips, one: Slice) -> Trip:
        return trips.packed(one, self.slots, self.calls.sends(one, self.slots))

    def _send_items(self, host: str, number: int, *, lone: bool) -> None:
        step = self.program.steps[number]
        if self.forward.entering is not None:
            self.forward.enter(step.node, host)
        job = self._job(step)
        if lone:
            self._take(job())
        else:
            self.crew.send(job)

    # A node's input is a local of one call only, so that it is freed with its last reader.

    def _call_here(self, step: Bound) -> Outcome:
        self.forward.step = step.number
        try:
            return self.calls.do(step, self.agenda.roles[step.number], self._input(step))
        finally:
            self.forward.step = -1

    def _job(self, step: Bound) -> Job:
        do = functools.partial(self.calls.do, step, self.agenda.roles[step.number], self._input(step))
        context = contextvars.copy_context()
        branch = Branch(self.forward, step.number)
        return lambda: context.run(_call_in, branch, self.modes, do)

    def _input(self, step: Bound) -> Any:
        recalled = self.agenda.roles[step.number] is Role.RECALL
        return None if recalled else fetch(self.slots, self.program.source(step.number))

    def _take(self, outcome: Outcome | Back) -> None:
        if not isinstance(outcome, Outcome):
            self._took_trip(outcome)
        elif outcome.missed:
            self.agenda.missed(outcome.step)
        elif outcome.error is not None:
            self._failed(outcome, outcome.error)
        elif outcome.step in self.program.shared and is_one_shot(outcome.value):
            self._failed(outcome, self._read_twice(outcome.step, outcome.value))
        else:
            self.agenda.done(outcome.step, outcome.value)
            if self.forward.tell is not None:
                self._tell(outcome, done(self.program.steps[outcome.step], outcome, self.start))

    def _read_twice(self, number: int, value: Any) -> BaseException:
        node = self.program.steps[number].node
        return read_twice(value, f"node {node!r} returned", self.program.shared[number], "let it return")

    def _took_trip(self, back: Back) -> None:
        """A slice came back: its values are there, or one of its nodes failed, or its host did."""
        host, landed = back.slice.host, back.landed
        told = [left(host, back.began - self.start, back.took)] if landed.error is None else []
        self.calls.landed(back.slice, landed.values, self.slots)
        for number in back.slice.steps:
            value = landed.values.get(number, HELD)
            kept = self.calls.kept_far(number, value) if number in landed.values else None
            if kept is not None:
                value, fact = kept
                told.append({**fact, "host": host})
            if landed.error is None and number in self.program.shared and is_one_shot(value):
                landed = landed._replace(error=self._read_twice(number, value), step=number)
                back = back._replace(landed=landed)
            if landed.error is None:
                self.agenda.done(number, value)
        if self.forward.tell is not None:
            for fact in told:
                self.forward.say(fact)
        if landed.error is not None:
            self._failed_far(back, landed.error)
        elif self.trips is not None:
            self.trips.landed(back.slice)

    def _failed_far(self, back: Back, error: BaseException) -> None:
        step = self.program.steps[back.landed.step if back.landed.step >= 0 else back.slice.steps[0]]
        annotate(error, self.program, self.forward, step.number, back.landed.place)
        if self.forward.tell is not None and not back.landed.told:
            fact = failed(step, back.began - self.start, back.took, error, back.landed.place)
            self.forward.say({**fact, "host": back.slice.host})
        self._raise_or_note(step.number, error)

    def _failed(self, outcome: Outcome, error: BaseException) -> None:
        step = self.program.steps[outcome.step]
        annotate(error, self.program, self.forward, step.number, outcome.place)
        if self.forward.tell is not None:
            self._tell(outcome, failed(step, outcome.began - self.start, outcome.took, error, outcome.place))
        self._raise_or_note(step.number, error)

    def _raise_or_note(self, number: int, error: BaseException) -> None:
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            raise error
        self.errors[number] = error

    def _tell(self, outcome: Outcome, fact: Fact) -> None:
        told = [*outcome.before, fact, *outcome.after]
        if outcome.host is not None:
            told = [{**each, "host": outcome.host} for each in told]
            if outcome.error is None:
                told.insert(2, left(outcome.host, outcome.began - self.start, outcome.took))
        for each in told:
            self.forward.say(each)


def _call_in(branch: Branch, modes: Any, do: Callable[[], Outcome]) -> Outcome:
    HERE.set(branch)  # in a context of its own, which ends with this call
    try:
        with tensors.within(modes):
            return do()
    finally:
        branch.step = -1

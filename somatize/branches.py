"""`threads=N`: the branches of a fan-out at the same time.

The caller's thread deals out nodes, collects what became of them and tells the engine's facts; daemon threads,
which live as long as this forward, run the nodes. They are daemons of our own and no executor's, so that an interrupt
can leave them behind: what is running then ends unobserved, and nothing new starts.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import perf_counter_ns as clock
from typing import Any, NamedTuple

from . import tensors
from .agenda import Agenda
from .ending import annotate, failed, ran
from .program import Bound, Program, fetch, held_to
from .watching import HERE, Branch, Forward

_LOOKS_UP = 0.05
"""Seconds after which the caller's thread looks for a signal, at the latest."""


class Outcome(NamedTuple):
    """What became of one node; times in nanoseconds."""

    step: int
    value: Any
    began: int
    took: int
    error: BaseException | None


Job = Callable[[], Outcome]


def walk(program: Program, given: Any, forward: Forward, threads: int, start: int = 0) -> Any:
    """The plan, up to `threads` nodes at a time; `start` is when the forward began, for those who watch."""
    forward.share()
    return _Walk(program, given, forward, threads, start).run()


class _Walk:
    def __init__(self, program: Program, given: Any, forward: Forward, threads: int, start: int) -> None:
        self.program = program
        self.forward = forward
        self.start = start
        self.crew = _Crew(threads)
        self.slots = program.slots(given)
        self.agenda = Agenda(program.plan, self.slots)
        self.errors: dict[int, BaseException] = {}
        self.modes = tensors.modes()
        self.clock: Callable[[], int] = clock if forward.tell is not None else int  # which says 0, and looks nowhere

    def run(self) -> Any:
        try:
            while (self.agenda and not self.errors) or self.crew.busy:
                self._deal_out()
                if self.crew.busy:
                    self._take(self.crew.outcome())
        finally:
            self.crew.dismiss()
        if self.errors:
            raise self.errors[min(self.errors)]
        return fetch(self.slots, self.program.leaf)

    def _deal_out(self) -> None:
        """Start what can start. A node with nobody beside it runs here, in the caller's thread and context."""
        while self.agenda and not self.errors and self.crew.has_room():
            step = self.program.steps[self.agenda.take()]
            if self.forward.entering is not None:
                self.forward.enter(step.node)
            if self.agenda or self.crew.busy:
                self.crew.give(self._job(step))
            else:
                self._take(self._call_here(step))

    # A node's input is a local of the call that needs it and of no other, so that it ends with its last reader.

    def _call_here(self, step: Bound) -> Outcome:
        self.forward.step = step.number
        try:
            return _call(step, self._input(step), self.clock)
        finally:
            self.forward.step = -1

    def _job(self, step: Bound) -> Job:
        value = self._input(step)
        context = contextvars.copy_context()
        branch = Branch(self.forward, step.number)
        return lambda: context.run(_call_in, branch, self.modes, step, value, self.clock)

    def _input(self, step: Bound) -> Any:
        return fetch(self.slots, self.program.source(step.number))

    def _take(self, outcome: Outcome) -> None:
        step = self.program.steps[outcome.step]
        if outcome.error is not None:
            self._failed(step, outcome)
            return
        self.agenda.done(step.number, outcome.value)
        if self.forward.tell is not None:
            self.forward.say(ran(step, outcome.began - self.start, outcome.took))

    def _failed(self, step: Bound, outcome: Outcome) -> None:
        error = outcome.error
        assert error is not None  # for mypy: _take has looked
        annotate(error, self.program, self.forward, step.number)
        if self.forward.tell is not None:
            self.forward.say(failed(step, outcome.began - self.start, outcome.took, error))
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            raise error
        self.errors[step.number] = error


class _Crew:
    """Up to so many daemon threads, started as they are needed, each doing one job at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy = 0
        self._started = 0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()

    def has_room(self) -> bool:
        return self.busy < self.most

    def give(self, job: Job) -> None:
        if self.busy == self._started:
            work = threading.Thread(
                target=_work, args=(self._jobs, self._outcomes), name="somatize-branch", daemon=True
            )
            work.start()
            self._started += 1
        self.busy += 1
        self._jobs.put(job)

    def outcome(self) -> Outcome:
        outcome = None
        while outcome is None:
            try:
                outcome = self._outcomes.get(timeout=_LOOKS_UP)
            except Empty:  # Python sleeps through a signal that comes just as it begins to wait
                continue
        self.busy -= 1
        return outcome

    def dismiss(self) -> None:
        """Each thread ends when its job is done; nobody waits for that."""
        for _ in range(self._started):
            self._jobs.put(None)


def _work(jobs: SimpleQueue[Job | None], outcomes: SimpleQueue[Outcome]) -> None:
    while (job := jobs.get()) is not None:
        outcome = job()
        del job  # it holds the node's input, which may be the last reference there is
        outcomes.put(outcome)
        del outcome


def _call_in(branch: Branch, modes: Any, step: Bound, value: Any, clock: Callable[[], int]) -> Outcome:
    HERE.set(branch)  # in a context of its own, which ends with this call
    try:
        with tensors.within(modes):
            return _call(step, value, clock)
    finally:
        branch.step = -1


def _call(step: Bound, value: Any, clock: Callable[[], int]) -> Outcome:
    began = clock()
    try:
        value = step.runner.forward(value) if step.ctx is None else step.runner.forward(value, step.ctx)
        took = clock() - began
        if step.device is not None:
            held_to(value, step.node, step.device)
    except BaseException as error:
        return Outcome(step.number, None, began, clock() - began, error)
    return Outcome(step.number, value, began, took, None)

"""The walk by an agenda: for `threads=N`, and for plans in which nodes are recalled, kept or mapped.

The caller's thread deals out nodes, collects what became of them and tells the engine's facts; daemon threads,
which live as long as this forward, run the nodes. They are daemons of our own and no executor's, so that an interrupt
can leave them behind: what is running then ends unobserved, and nothing new starts.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from . import tensors
from .agenda import Agenda, Role
from .calling import Calls, Outcome
from .ending import annotate, done, failed
from .facts import Fact
from .program import Bound, Program, fetch
from .watching import HERE, Branch, Forward

_LOOKS_UP = 0.05
"""Seconds after which the caller's thread looks for a signal, at the latest."""

Job = Callable[[], Outcome]


def walk(program: Program, given: Any, forward: Forward, threads: int, calls: Calls, start: int) -> Any:
    """The plan, up to `threads` nodes at a time; `start` is when the forward began, for those who watch."""
    forward.share()
    return _Walk(program, given, forward, threads, calls, start).run()


class _Walk:
    def __init__(self, program: Program, given: Any, forward: Forward, threads: int, calls: Calls, start: int) -> None:
        self.program = program
        self.forward = forward
        self.start = start
        self.crew = _Crew(threads)
        self.slots = program.slots(given)
        self.calls = calls
        self.agenda = Agenda(program.plan, self.slots, calls.hits)
        self.errors: dict[int, BaseException] = {}
        self.modes = tensors.modes()

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
            if self.forward.entering is not None and self.agenda.roles[step.number] is Role.RUN:
                self.forward.enter(step.node)
            if self.crew.most > 1 and (self.agenda or self.crew.busy):
                self.crew.give(self._job(step))
            else:
                self._take(self._call_here(step))

    # A node's input is a local of the call that needs it and of no other, so that it ends with its last reader.

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

    def _take(self, outcome: Outcome) -> None:
        if outcome.missed:
            self.agenda.missed(outcome.step)
        elif outcome.error is not None:
            self._failed(outcome, outcome.error)
        else:
            self.agenda.done(outcome.step, outcome.value)
            if self.forward.tell is not None:
                self._tell(outcome, done(self.program.steps[outcome.step], outcome, self.start))

    def _failed(self, outcome: Outcome, error: BaseException) -> None:
        step = self.program.steps[outcome.step]
        annotate(error, self.program, self.forward, step.number, outcome.place)
        if self.forward.tell is not None:
            self._tell(outcome, failed(step, outcome.began - self.start, outcome.took, error, outcome.place))
        if not isinstance(error, Exception) or isinstance(error, MemoryError):
            raise error
        self.errors[step.number] = error

    def _tell(self, outcome: Outcome, fact: Fact) -> None:
        for told in (*outcome.before, fact, *outcome.after):
            self.forward.say(told)


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


def _call_in(branch: Branch, modes: Any, do: Job) -> Outcome:
    HERE.set(branch)  # in a context of its own, which ends with this call
    try:
        with tensors.within(modes):
            return do()
    finally:
        branch.step = -1

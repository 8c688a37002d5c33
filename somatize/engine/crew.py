"""The threads that run a forward's branches and carry its slices, and how their outcomes come back.

They live as long as the forward, and are daemons of our own and no executor's, so that an interrupt can leave them
behind: what is running then ends unobserved, and nothing new starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from somatize.utils.interrupts import start

from .calling import Outcome

if TYPE_CHECKING:
    from .trips import Back

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
            # Not here: as it is started a lock is taken, which a signal's handler that starts one would wait for.
            if not start(partial(_start, work, self._outcomes)):
                work.start()
            self._started += 1
        self._jobs.put(job)

    def outcome(self) -> Outcome | Back:
        """What came of the next job that ends; waits for it. Raises RuntimeError where no thread could be started."""
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
        """Each thread ends when its job is done; nobody waits for that."""
        for _ in range(self._started + 1):  # one more may have been started as an interrupt came
            self._jobs.put(None)


def _start(work: threading.Thread, outcomes: SimpleQueue[Outcome | Back | RuntimeError]) -> None:
    try:
        work.start()
    except RuntimeError as error:  # there cannot be another thread
        outcomes.put(error)


def _work(jobs: SimpleQueue[Job | None], outcomes: SimpleQueue[Outcome | Back | RuntimeError]) -> None:
    while (job := jobs.get()) is not None:
        outcome = job()
        del job  # it holds the node's input, which may be the last reference there is
        outcomes.put(outcome)
        del outcome

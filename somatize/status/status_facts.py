"""Facts of a Status: its tasks, log records and throughput, sent to watchers of its own.

A fact said inside a forward goes to that forward, another one to the record of the run. A watcher that raises is warned
about once and told nothing more.
"""

from __future__ import annotations

import contextvars
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from somatize.facts import Fact, said
from somatize.watching import forwards
from somatize.watching import watchers as watching

from .tasks import FAILED, OPEN, Task, TaskEndMessage

if TYPE_CHECKING:
    from .tasks import LogEntry
    from .throughput import Distant, Throughput

WRITTEN_AFTER = 250_000_000
"""Nanoseconds a task is open before it is also written down as such."""

_AT_MOST_EVERY = 1_000_000_000
_SHARE = 20
"""An unchanged open task is said again after a twentieth of its age, so that a lost one shows about how long it ran."""


class Speaking:
    """Says facts to the watchers of one Status; `level` is the lowest a log record needs, None for none at all."""

    def __init__(self, watchers: list[Any], level: int | None, clock: Callable[[], int]) -> None:
        self._watchers = [watcher for watcher in watchers if callable(watcher)]
        self.level = level
        self._clock = clock
        self._open: dict[Task, tuple[Any, ...] | None] = {}
        """The open tasks, with the last fact of each."""
        self._saying = threading.local()
        self._prefix = f"{os.getpid()}-{secrets.token_hex(4)}"  # a reader asks whether that process lives
        self._count = 0
        self.due: Callable[[], None] = _nothing

    # -- tasks

    def opened(self, task: Task) -> None:
        """Remember where a task was opened, and look at it again soon."""
        task.where = contextvars.copy_context()
        self._open[task] = None
        self.due()

    def ended(self, task: Task) -> None:
        """Say a task that has ended."""
        self._open.pop(task, None)
        where = task.where
        if where is not None:
            where.run(self._say, self._fact_of(task))

    def say_open(self) -> bool:
        """Say the tasks that have been open for a while; returns whether any are open."""
        now = self._clock()
        for task in list(self._open):
            age = now - task._began
            due = task._began + WRITTEN_AFTER if not task._said else task._said + _AT_MOST_EVERY
            if now < due:
                continue
            state = (task.name, task._done, task._total)
            where = task.where
            if self._open.get(task) == state and now < task._said + age // _SHARE:
                continue
            if task.state is OPEN and where is not None:
                self._open[task] = state
                task._said = now
                where.copy().run(self._say, self._fact_of(task))
        return bool(self._open)

    def _fact_of(self, task: Task) -> Fact:
        fields: dict[str, object] = {
            "fact": "task",
            "name": task.name,
            "state": task.state,
            "took_us": max(0, int(task.elapsed * 1e6)),
            "done": task.done,
            "total": task.total,
            "before": task._before or None,
            "parent": task.parent.name if task.parent is not None else None,
            "node": task.node,
            "host": task.host,
            "why": task.why if task.state is FAILED else None,
            "mark": task.mark,
            "id": self._identity(task),
        }
        return said({field: value for field, value in fields.items() if value is not None})

    def _identity(self, task: Task) -> str | None:
        """A key that distinguishes a repeatedly said task from others of its name."""
        if not task._said:
            return None
        if task._identity is None:
            self._count += 1
            task._identity = f"{self._prefix}-{self._count}"
        return task._identity

    # -- log records

    def log(self, record: logging.LogRecord, entry: LogEntry) -> None:
        """Say a log record, unless saying facts is what caused it."""
        if self.level is None or record.levelno < self.level or _is_timing(record) or self.is_cause():
            return
        fact: dict[str, object] = {
            "fact": "log",
            "level": record.levelname,
            "logger": record.name,
            "message": entry.message,
        }
        task, host = entry.task, entry.host
        if task is not None:
            fact["task"] = task.name
            host = host or task.host
            fact.update({"node": task.node} if task.node else {})
        if host:
            fact["host"] = host
        self._say(said(fact))

    def is_cause(self) -> bool:
        """Whether the current event was caused by telling a watcher."""
        if getattr(self._saying, "busy", False):
            return True
        name = threading.current_thread().name
        if name.startswith("somatize-") and name != "somatize-branch":
            return True
        place = watching.HERE.get()
        if place is not None and place.step < 0 and place.forward.tell is not None:
            return True
        return _within_watching()

    # -- throughput

    def marks(self) -> list[Any]:
        """The sinks that would get a fact now; they change where a step runs a forward."""
        return [watching.sink_here(watcher) for watcher in self._watchers]

    def throughput(self, stream: Throughput | Distant, **where: str) -> None:
        """Say the rates of a stream; for one at a host, also its node and host."""
        stats = stream.stats()
        fact = {"fact": "throughput", "stream": stream.stream, **vars(stats), **where}
        fact = {field: value for field, value in fact.items() if value is not None}
        marks = zip(stream.ended_in or (), stream.began_in or (), strict=False)
        fresh = any(after is not None and after is not before for after, before in marks)
        self._say(said(fact), in_forward=fresh or watching.forward_here() is not None)

    # -- saying

    def _say(self, fact: Fact, in_forward: bool | None = None) -> None:
        if in_forward is None:
            in_forward = watching.forward_here() is not None
        outer = getattr(self._saying, "busy", False)
        self._saying.busy = True
        try:
            for watcher in list(self._watchers):
                try:
                    _told(watcher, fact.copy(), in_forward)
                except Exception as error:
                    self._leave_out(watcher, error)
        finally:
            self._saying.busy = outer

    def _leave_out(self, watcher: Any, error: Exception) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            watching.warn_of(watcher, error, "by this Status")


def _is_timing(record: logging.LogRecord) -> bool:
    """Whether a record says that a task ended, which its own fact says."""
    return isinstance(record.args, tuple) and bool(record.args) and isinstance(record.args[0], TaskEndMessage)


def _told(watcher: Any, fact: Fact, in_forward: bool) -> None:
    of_the_run = None if in_forward else getattr(watcher, "say_of_run", None)
    (of_the_run or watcher)(fact)


def _within_watching() -> bool:
    """Whether a function that calls watchers is running in this thread."""
    # Looked for here, where a task or a log record is said, as a mark set while watchers are told would cost each fact.
    frame: FrameType | None = sys._getframe(2)
    of_watching, of_places = vars(watching), vars(forwards)
    while frame is not None:
        if frame.f_globals is of_watching or frame.f_globals is of_places:
            return True
        frame = frame.f_back
    return False


def _nothing() -> None:
    """Do nothing, if nobody waits."""

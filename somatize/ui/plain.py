"""Tasks as plain lines, for a file: few enough to read, often enough to know."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from somatize.status.tasks import Task
from somatize.utils.units import count, duration, rate

from .status_views import stream_words

if TYPE_CHECKING:
    from somatize.status import Status

_SLOWEST = 600.0
"""Seconds between two lines of one task at most."""


class Lines:
    """The lines that are due.

    Of each running task one after `every` seconds, the next after as long again as it has taken, ten minutes at most:
    a run of a day has some 150.
    """

    def __init__(self, status: Status, every: float) -> None:
        self._status = weakref.ref(status)
        self._every = every
        self._next: weakref.WeakKeyDictionary[Task, float] = weakref.WeakKeyDictionary()
        self._streams: dict[str, int] = {}

    def due(self) -> Iterator[str]:
        """One line for each task that has not been spoken of for a while, and for its streams beside it."""
        status = self._status()
        if status is None:
            return
        spoke = False
        for task, depth in list(_running(status.tasks)):
            elapsed = task.elapsed
            if elapsed >= self._next.get(task, self._every):
                self._next[task] = elapsed + min(max(self._every, elapsed), _SLOWEST)
                yield "  " * depth + going(task)
                spoke = True
        if spoke:
            yield from self._of_streams(status)

    def _of_streams(self, status: Status) -> Iterator[str]:
        for stream in status.throughputs:
            batches = stream.stats().batches
            words = stream_words(stream)
            if words is not None and self._streams.get(stream.stream) != batches:
                self._streams[stream.stream] = batches
                yield f"{stream.stream}: {words}"


def going(task: Task) -> str:
    """How far a task is."""
    words = [duration(task.elapsed)]
    if task.total is not None:
        percent = "" if task.percent is None else f" ({task.percent} %)"
        words.insert(0, f"{count(task.done)} of {count(task.total)}{percent}")
    elif task.done:
        words.insert(0, count(task.done))
    if task.rate is not None:
        words.append(rate(task.rate))
    if task.remaining is not None:
        words.append(f"{duration(task.remaining)} left")
    return f"{task.name}: {', '.join(words)}"


def sentence(task: Task) -> str:
    """How a task ended."""
    done = count(task.done) if task.done or task.total is not None else ""
    total = f" of {count(task.total)}" if task.total is not None and task.total != task.done else ""
    words = [f"{task.state} in {duration(task.elapsed)}", *([done + total] if done else [])]
    if task.mark:
        words.append(task.mark)
    return f"{task.name}: {', '.join(words)}{f': {task.why}' if task.why else ''}"


def _running(tasks: tuple[Task, ...]) -> Iterator[tuple[Task, int]]:
    pending = [(task, 0) for task in reversed(tasks)]
    while pending:
        task, depth = pending.pop()
        yield task, depth
        pending += [(child, depth + 1) for child in reversed(task.children)]

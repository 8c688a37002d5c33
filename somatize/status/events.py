"""What a Status sends to its listeners: something became of a task, or something was logged."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from .tasks import Task


class EventKind(Enum):
    """What became of a task."""

    STARTED = "started"
    UPDATED = "updated"
    FINISHED = "finished"
    FAILED = "failed"


class TaskEvent(NamedTuple):
    """A task started, went on, finished or failed; `task` is the task itself, as it is now."""

    kind: EventKind
    task: Task


class LogEntry(NamedTuple):
    """A log record as it is kept: text only, so that nothing it was made of stays alive.

    `when` is in seconds since the epoch. `task` is the one it was logged in, `host` where, if elsewhere.
    """

    level: int
    levelname: str
    logger: str
    message: str
    when: float
    task: Task | None = None
    traceback: str | None = None
    host: str | None = None


class LogEvent(NamedTuple):
    """A record was logged."""

    entry: LogEntry


Event: TypeAlias = TaskEvent | LogEvent

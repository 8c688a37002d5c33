"""What is going on in this process, as tasks, log records and throughput.

`Status` keeps the account, `TaskEvent` and `LogEvent` are what it sends to those who subscribe. It knows nothing of
how it is shown: that is `somatize.ui`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .events import EventKind, LogEntry, LogEvent, TaskEvent
    from .status import Status
    from .tasks import Task
    from .throughput import Throughput, ThroughputStats

__all__ = [
    "EventKind",
    "LogEntry",
    "LogEvent",
    "Status",
    "Task",
    "TaskEvent",
    "Throughput",
    "ThroughputStats",
]

_HOMES = {
    "EventKind": "events",
    "LogEntry": "events",
    "LogEvent": "events",
    "Status": "status",
    "Task": "tasks",
    "TaskEvent": "events",
    "Throughput": "throughput",
    "ThroughputStats": "throughput",
}
"""What is loaded when it is first asked for: who only wants the units in which things are told waits for none of it."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The activity of this process: tasks, log records and throughput.

`Status` keeps the account, `TaskEvent` and `LogEvent` are what it sends to those who subscribe. It knows nothing of
how it is shown: that is `somatize.ui`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from somatize.utils import names_of

if TYPE_CHECKING:
    from .logs import LogConfiguration, configure_logging
    from .status import Status
    from .tasks import EventKind, LogEntry, LogEvent, Task, TaskEvent
    from .throughput import Throughput, ThroughputStats

__all__ = [
    "EventKind",
    "LogConfiguration",
    "LogEntry",
    "LogEvent",
    "Status",
    "Task",
    "TaskEvent",
    "Throughput",
    "ThroughputStats",
    "configure_logging",
]

_HOMES = {
    "EventKind": "tasks",
    "LogEntry": "tasks",
    "LogConfiguration": "logs",
    "LogEvent": "tasks",
    "Status": "status",
    "Task": "tasks",
    "TaskEvent": "tasks",
    "Throughput": "throughput",
    "ThroughputStats": "throughput",
    "configure_logging": "logs",
}
"""Modules of lazily loaded names."""

__getattr__, __dir__ = names_of(__name__, _HOMES)

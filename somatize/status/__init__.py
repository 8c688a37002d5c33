"""What is going on in this process, as tasks, log records and throughput.

`Status` keeps the account, `TaskEvent` and `LogEvent` are what it sends to those who subscribe. It knows nothing of
how it is shown: that is `somatize.ui`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from somatize.utils.lazy_names import names_of

if TYPE_CHECKING:
    from .events import EventKind, LogEntry, LogEvent, TaskEvent
    from .log_configuration import LogConfiguration, configure_logging
    from .status import Status
    from .tasks import Task
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
    "EventKind": "events",
    "LogEntry": "events",
    "LogConfiguration": "log_configuration",
    "LogEvent": "events",
    "Status": "status",
    "Task": "tasks",
    "TaskEvent": "events",
    "Throughput": "throughput",
    "ThroughputStats": "throughput",
    "configure_logging": "log_configuration",
}
"""What is loaded when it is first asked for: who only wants the units in which things are told waits for none of it."""

__getattr__, __dir__ = names_of(__name__, _HOMES)

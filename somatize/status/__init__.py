"""What is going on in this process, as tasks, log records and throughput.

`Status` keeps the account, `TaskEvent` and `LogEvent` are what it sends to those who subscribe. It knows nothing of
how it is shown: that is `somatize.ui`.
"""

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

"""Messages during a trip, collected briefly and sent: facts, progress, log records, warnings, tasks."""

from __future__ import annotations

import logging
import secrets
import sys
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from somatize.facts import Fact, encodable
from somatize.status import Status
from somatize.status.status import relayed
from somatize.status.tasks import Event, EventKind, TaskEvent
from somatize.status.throughput import Throughput
from somatize.utils.interrupts import Ticker

if TYPE_CHECKING:
    from somatize.status.tasks import Task


_WIDEST = 2**53


class Showing:
    """The Status of node code in this process; the events of its tasks are sent to the client.

    The nodes of a slice are tasks of it too, so that a task knows its node; the client has those itself, so they are
    not sent.
    """

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._known: dict[Task, str] = {}
        self._status = relayed(self._heard, self._metered)
        self._sink: Any = None

    @property
    def status(self) -> Status:
        """The result of `ctx.status`; a new one if node code closed the last."""
        if self._status.closed:
            self._status, self._sink = relayed(self._heard, self._metered), None
        if self._sink is None:
            self._sink = self._status.opens(())
            self._sink.entering(self._relay.node)
        return self._status

    def entering(self, node: str) -> None:
        """Open the task of a node that is about to run."""
        if self._sink is not None:
            self._sink.entering(node)

    def tell(self, fact: dict[str, str]) -> None:
        """Take a fact about a node; tasks that its code left open end with it."""
        if self._sink is not None:
            self._sink.tell(fact)

    def over(self) -> None:
        """The slice has run."""
        for stream in self._status.throughputs:
            if isinstance(stream, Throughput):  # as all of them are here, where no other host is known
                stream.flush()
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.closed()
        self._known.clear()

    def here(self) -> str | None:
        """The key of the innermost open task at the client; None for the node itself."""
        task = self._status.current
        return self._known.get(task) if task is not None else None

    def _heard(self, event: Event) -> None:
        if not isinstance(event, TaskEvent) or self._is_of_the_slice(event.task):
            return
        task = event.task
        said: dict[str, Any] = {"event": event.kind.value, "done": _number(task.done), "total": _number(task.total)}
        said["name"] = encodable(task.name)
        if event.kind is EventKind.STARTED:
            self._count += 1
            self._known[task] = f"{self._prefix}-{self._count}"
            said["parent"] = self._known.get(task.parent) if task.parent is not None else None
            said["quiet"] = task.quiet
        elif event.kind is not EventKind.UPDATED:
            why = encodable(task.why) if task.why is not None else None
            said |= {"why": why, "mark": task.mark, "took_us": max(0, int(task.elapsed * 1e6))}
        said["id"] = self._known.get(task)
        if event.kind in (EventKind.FINISHED, EventKind.FAILED):
            self._known.pop(task, None)
        if said["id"] is not None and self._relay.active:
            self._relay.add(["task", task.node or self._relay.node, said])

    def _metered(self, whole: bool, stream: Throughput) -> None:
        stats = {name: value if type(value) is bool else _number(value) for name, value in vars(stream.stats()).items()}
        said = {"event": "throughput", "stream": encodable(stream.stream), "whole": whole, "stats": stats}
        if self._relay.active:
            self._relay.add(["task", self._relay.node, said])

    def _is_of_the_slice(self, task: Task) -> bool:
        sink = self._sink
        if sink is None:  # it is being opened
            return task.quiet and task.parent is None
        return task is sink.task or (task.quiet and task.parent is sink.task)


def _number(number: float | None) -> float | None:
    """A count as it travels: numbers of other libraries, and those that no frame holds, as floats."""
    if number is None or type(number) is float:
        return number
    return number if type(number) is int and abs(number) <= _WIDEST else float(number)


WITHIN = 0.02
"""Seconds that a message may wait for more."""

_MOST = 500
_IDLE = 25  # looks


class Relay:
    """Collects messages and hands them to `send` in lists, in order. To the engine, a watcher with a sink."""

    def __init__(self, send: Callable[[list[Any]], None]) -> None:
        self._send = send
        self._pending: list[Any] = []
        self._idle = 0
        self._sends = False
        self._ticker = Ticker(self._look, WITHIN)
        self.lock = threading.RLock()
        self.active = False
        """Whether a trip is here to receive messages."""
        self.node = ""
        """The node that runs now."""
        self.shows = False
        """Whether a status over there shows the tasks of node code."""
        self._showing: Showing | None = None

    def opens(self, graph: Any) -> Relay:  # noqa: ARG002  as every opener
        """The sink of a slice: the relay itself."""
        return self

    def tell(self, fact: Fact) -> None:
        """Queue a fact of this slice."""
        if self._showing is not None:
            self._showing.tell(fact)
        self.add(["fact", fact])

    @property
    def status(self) -> Status | None:
        """The result of `ctx.status` for node code, made on first use; None if nobody would see it."""
        if not self.shows:
            return None
        if self._showing is None:
            self._showing = Showing(self)
        return self._showing.status

    def runs(self, node: str) -> None:
        """A node is about to run."""
        self.node = node
        if self._showing is not None:
            self._showing.entering(node)

    def over(self) -> None:
        """The slice has run: tasks that are still open end."""
        if self._showing is not None:
            self._showing.over()

    def task_here(self) -> str | None:
        """The key of the innermost open task at the client, if there is one besides the node."""
        return self._showing.here() if self._showing is not None else None

    def progress(self, node: str, done: int, total: int | None) -> None:
        """Report the progress of a node; of several in a row the last one counts."""
        with self.lock:
            last = self._pending[-1] if self._pending else None
            if last is not None and last[:2] == ["progress", node]:
                last[2:] = [done, total]
                return
        self.add(["progress", node, done, total])

    def add(self, said: list[Any]) -> None:
        """Queue a message; it is sent within `WITHIN` seconds."""
        with self.lock:
            self._pending.append(said)
            if len(self._pending) >= _MOST:
                self._flush()
        self._ticker.due()

    def taken(self) -> list[Any]:
        """The messages still to send; the caller holds the lock until they are sent."""
        pending, self._pending = self._pending, []
        return pending

    def _flush(self) -> None:
        if self._pending and self.active and not self._sends:  # a signal handler may run in the middle of `send`
            self._sends = True
            try:
                self._send(self.taken())
            finally:
                self._sends = False

    def _look(self) -> bool:
        """Send what there is. A new message wakes the thread only if it found nothing for a while."""
        with self.lock:
            self._idle = 0 if self._pending and self.active else self._idle + 1
            try:
                self._flush()
            except Exception:  # the client is gone, and this process will end
                return False
            return self._idle < _IDLE


class Records(logging.Handler):
    """Sends log records along; those of no trip go to stderr."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record as plain attributes."""
        if not self._relay.active:
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                logging.lastResort.handle(record)
            return
        try:
            attributes = _attributes(record) | {"task": self._relay.task_here()}
            self._relay.add(["log", self._relay.node, attributes])
        except Exception:
            self.handleError(record)


def _attributes(record: logging.LogRecord) -> dict[str, Any]:
    kept = ("name", "levelno", "levelname", "pathname", "filename", "module", "lineno", "funcName")
    attributes = {name: getattr(record, name) for name in (*kept, "created", "msecs", "threadName", "processName")}
    attributes |= {"msg": record.getMessage(), "args": (), "process": record.process}
    if record.exc_info and record.exc_info[0] is not None:
        attributes["exc_text"] = logging.Formatter().formatException(record.exc_info)
    return attributes


def listen(relay: Relay) -> None:
    """Send log records and warnings of this process along with messages."""
    logging.getLogger().addHandler(Records(relay))
    shown = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if relay.active and file is None:
            relay.add(["warning", relay.node, category.__name__, str(message), filename, lineno])
        else:
            shown(message, category, filename, lineno, file or sys.stderr, line)

    warnings.showwarning = show
    warnings.simplefilter("default")  # the client decides which of them are shown

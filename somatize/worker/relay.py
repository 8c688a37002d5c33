"""What is said during a trip, gathered for a moment and sent: facts, nodes entered, progress, log records, warnings."""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from somatize.facts import Fact

if TYPE_CHECKING:
    from somatize.status import Status

    from .showing import Showing

WITHIN = 0.02
"""Seconds for which what is said may wait for more."""

_MOST = 500
_IDLE = 25  # looks


class Relay:
    """Gathers what is said and hands it to `send` in lists, in order. A watcher with a sink, for the engine."""

    def __init__(self, send: Callable[[list[Any]], None]) -> None:
        self._send = send
        self._pending: list[Any] = []
        self._armed = False
        self._idle = 0
        self._wake = threading.Semaphore(0)
        self.lock = threading.RLock()
        self.active = False
        """Whether a trip is here, so that somebody hears."""
        self.node = ""
        """The node that runs now."""
        self.shows = False
        """Whether a status over there shows the tasks of node code."""
        self._showing: Showing | None = None
        self._flusher: threading.Thread | None = None

    def opens(self, graph: Any) -> Relay:  # noqa: ARG002  as every opener
        """Its own sink, without what nobody asked for."""
        return self

    def tell(self, fact: Fact) -> None:
        """A fact of this slice; the last one of a forward is for the other side to tell."""
        if self._showing is not None:
            self._showing.tell(fact)
        self.add(["fact", fact])

    @property
    def status(self) -> Status | None:
        """What `ctx.status` gives node code, made when it is first asked for; None where nobody would see it."""
        if not self.shows:
            return None
        if self._showing is None:
            from .showing import Showing

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
        """What the task that is open here is known by over there, if there is one beside the node."""
        return self._showing.here() if self._showing is not None else None

    def progress(self, node: str, done: int, total: int | None) -> None:
        """How far a node is; of several in a row the last one counts."""
        with self.lock:
            last = self._pending[-1] if self._pending else None
            if last is not None and last[:2] == ["progress", node]:
                last[2:] = [done, total]
                return
        self.add(["progress", node, done, total])

    def add(self, said: list[Any]) -> None:
        """Say something soon."""
        with self.lock:
            self._pending.append(said)
            if len(self._pending) >= _MOST:
                self._flush()
            elif not self._armed:
                self._armed = True
                self._wake.release()
                if self._flusher is None:
                    self._flusher = threading.Thread(target=self._flush_soon, name="somatize-relay", daemon=True)
                    self._flusher.start()

    def taken(self) -> list[Any]:
        """What is still to be said; whoever takes it holds the lock until it is sent."""
        pending, self._pending = self._pending, []
        return pending

    def _flush(self) -> None:
        if self._pending:
            self._send(self.taken())

    def _flush_soon(self) -> None:
        try:
            while True:
                self._wake.acquire()
                while self._armed:
                    time.sleep(WITHIN)
                    self._look()
        except Exception:  # the other side is gone, and this process soon too
            return

    def _look(self) -> None:
        """Send what is there. Who says something wakes the thread that looks only if it found nothing for a while."""
        with self.lock:
            self._idle = 0 if self._pending and self.active else self._idle + 1
            self._armed = self._idle < _IDLE
            if self.active:
                self._flush()


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
    """Let log records and warnings of this process go along with what is said."""
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
    warnings.simplefilter("default")  # which of them are shown is for the other side to say

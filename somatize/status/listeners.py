"""Events of a Status, the listeners that are sent them, and the thread that sends what is due."""

from __future__ import annotations

import _thread
import logging
import os
import threading
import weakref
from collections.abc import Callable
from enum import Enum
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from somatize.errors import BadOption
from somatize.utils.interrupts import Wakeup, start
from somatize.watching.watchers import runs_later

if TYPE_CHECKING:
    from .tasks import Task


class EventKind(Enum):
    """The kind of a task event."""

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


PACE = 0.1
"""Seconds between two looks at what is due."""

_LINGERS = 5.0
"""Seconds a thread with nothing to do stays, so that a loop of short tasks does not start one for each."""


class Ticker:
    """Calls `tick` again and again from a daemon thread, from `due` on until it answers that nothing is left to do.

    `tick` is a bound method, held weakly: what it belongs to may be dropped meanwhile, and the thread then ends.
    """

    __slots__ = ("__weakref__", "_due", "_living", "_pid", "_tick", "_wake", "stopped")

    def __init__(self, tick: Callable[[], bool]) -> None:
        self._tick = weakref.WeakMethod(tick)
        self.stopped = False
        self.renew()

    def renew(self) -> None:
        """Begin anew, without a thread: in a forked child the parent's is not there."""
        self._living = _thread.allocate_lock()  # taken by the thread as long as it lives
        self._wake = Wakeup()
        self._due = False
        self._pid = os.getpid()

    def due(self) -> None:
        """There is something to do in a moment. Costs nothing while the thread knows already."""
        if self._due or self.stopped or self._pid != os.getpid():
            return
        self._due = True
        self._wake.set()
        if not self._living.locked():
            start(partial(_run, weakref.ref(self)))  # where none can be started, nothing is due any more

    def stop(self) -> None:
        """The thread ends at its next look; nobody waits for it."""
        self.stopped = True
        self._wake.set()

    def look(self) -> bool:
        """One look; returns whether there is more to do. For the thread, and for tests in its place."""
        tick: Any = self._tick()
        return tick is not None and not self.stopped and bool(tick())


def _run(reference: weakref.ref[Ticker]) -> None:
    ticker = reference()
    living = None if ticker is None else ticker._living
    del ticker
    while living is not None and living.acquire(blocking=False):
        try:
            _look_again_and_again(reference)
        finally:
            living.release()
        ticker = reference()
        if ticker is None or ticker.stopped or not ticker._due:
            return
        del ticker  # it was due as the thread ended


def _look_again_and_again(reference: weakref.ref[Ticker]) -> None:
    idle_since = monotonic()
    while True:
        ticker = reference()
        if ticker is None or ticker.stopped:
            return
        wake = ticker._wake
        if ticker.look():
            due, idle_since = True, monotonic()
        else:
            ticker._due = False
            due = ticker._due = ticker.look() or ticker._due  # what came between the look and the clearing
            if not due and monotonic() - idle_since > _LINGERS:
                return
        del ticker
        if due:
            sleep(PACE)
        elif wake.wait(1.0):
            idle_since = monotonic()
            sleep(PACE)


Listener: TypeAlias = Callable[[Event], object]

_log = logging.getLogger("somatize.status")


class Listeners:
    """The listeners of one Status.

    Each is called in the thread where the thing happened, so possibly by several at once. One that raises an
    `Exception` is logged with its traceback and unsubscribed; the others are still told. What a listener itself
    causes while it is told (a task, a log line) is told to nobody, as it would never end.
    """

    __slots__ = ("__weakref__", "_inside", "_lock", "everyone", "followers", "of_forwards")

    def __init__(self) -> None:
        self.everyone: tuple[_Subscription, ...] = ()
        self.followers: tuple[_Subscription, ...] = ()
        """Those of them who want updates; nobody reads a clock for others."""
        self.of_forwards: tuple[_Subscription, ...] = ()
        """Those who want the tasks of forwards and their nodes as well; for others none need be made."""
        self.renew()

    def renew(self) -> None:
        """Make the locks anew, in a forked child."""
        self._lock = threading.RLock()
        self._inside = threading.local()

    def subscribe(self, listener: Listener, *, updates: bool = True, forwards: bool = True) -> Callable[[], None]:
        """Send every event, or all but updates, to `listener` until what is returned is called, once or again.

        Raises `BadOption` for what nobody can call, or would have to await or go through.
        """
        if not callable(listener):
            raise BadOption(f"a listener is a callable that takes an event, not {listener!r}")
        if runs_later(listener):
            raise BadOption(f"a listener is called and no more, and {listener!r} is async or yields")
        entry = _Subscription(listener)
        with self._lock:
            self.everyone = (*self.everyone, entry)
            if updates:
                self.followers = (*self.followers, entry)
            if forwards:
                self.of_forwards = (*self.of_forwards, entry)
        listeners = weakref.ref(self)  # who holds this need not hold the others

        def leave() -> None:
            left = listeners()
            if left is not None:
                left._leave_out(entry)

        return leave

    def tell(self, event: Event) -> None:
        """Send `event` to everyone."""
        self._tell(event, self.everyone)

    def tell_task(self, kind: EventKind, task: Task) -> None:
        """Send what became of a task to those who want to know of such ones."""
        told = self.everyone if kind is not EventKind.UPDATED else self.followers
        if task.quiet and told is not self.of_forwards:
            told = tuple(one for one in told if one in self.of_forwards)
        if told:
            self._tell(TaskEvent(kind, task), told)

    def _tell(self, event: Event, listeners: tuple[_Subscription, ...]) -> None:
        if getattr(self._inside, "telling", False):
            return
        self._inside.telling = True
        try:
            for listener in listeners:
                try:
                    listener(event)
                except Exception:
                    self._raised(listener)
        finally:
            self._inside.telling = False

    def clear(self) -> None:
        """Nobody listens any more."""
        self.everyone = self.followers = self.of_forwards = ()

    def _raised(self, listener: _Subscription) -> None:
        self._leave_out(listener)
        _log.exception("the listener %r raised and is sent nothing more; the work goes on", listener)

    def _leave_out(self, listener: _Subscription) -> None:
        with self._lock:
            self.everyone = tuple(other for other in self.everyone if other is not listener)
            self.followers = tuple(other for other in self.followers if other is not listener)
            self.of_forwards = tuple(other for other in self.of_forwards if other is not listener)


class _Subscription:
    """One subscription: a function subscribed twice is told twice, and each can be taken back alone."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __call__(self, event: Event) -> object:
        return self._listener(event)

    def __repr__(self) -> str:
        return repr(self._listener)

"""Who is sent events, and what happens to a listener that raises."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from somatize.errors import BadOption
from somatize.watching.watchers import runs_later

from .events import Event, EventKind, TaskEvent

if TYPE_CHECKING:
    from .tasks import Task

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

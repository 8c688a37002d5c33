"""Tasks of a Status: a tree of what is being done, its events, and the listeners that are sent them.

A `Task` holds data, a `Tree` has the open tasks and their parents; views read them, `Listeners` are sent events.

A context (a thread, an asyncio task) remembers the tasks opened in it as a chain, innermost first. A task ended in
another context stays in the chain and is skipped when looking for a parent.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import math
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum
from operator import index
from time import perf_counter_ns
from types import EllipsisType, TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from somatize import facts
from somatize.errors import BadOption
from somatize.utils.units import duration
from somatize.watching.watchers import runs_later


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
        self.everyone: tuple[functools.partial[object], ...] = ()
        self.followers: tuple[functools.partial[object], ...] = ()
        """Listeners that want updates; only for them the clock is read."""
        self.of_forwards: tuple[functools.partial[object], ...] = ()
        """Those who want the tasks of forwards and their nodes as well."""
        self.renew()

    def renew(self) -> None:
        """Make the locks anew, in a forked child."""
        self._lock = threading.RLock()
        self._inside = threading.local()

    def subscribe(self, listener: Listener, *, updates: bool = True, forwards: bool = True) -> Callable[[], None]:
        """Send events to `listener`, all or without updates, until the returned function is called.

        Raises `BadOption` for what nobody can call, or would have to await or go through.
        """
        if not callable(listener):
            raise BadOption(f"a listener is a callable that takes an event, not {listener!r}")
        if runs_later(listener):
            raise BadOption(f"a listener is called and no more, and {listener!r} is async or yields")
        entry = functools.partial(listener)  # of its own: a function subscribed twice is called twice
        with self._lock:
            self.everyone = (*self.everyone, entry)
            if updates:
                self.followers = (*self.followers, entry)
            if forwards:
                self.of_forwards = (*self.of_forwards, entry)
        listeners = weakref.ref(self)  # the returned function does not keep the listeners alive

        def leave() -> None:
            left = listeners()
            if left is not None:
                left._leave_out(entry)

        return leave

    def tell(self, event: Event) -> None:
        """Send `event` to everyone."""
        self._tell(event, self.everyone)

    def tell_task(self, kind: EventKind, task: Task) -> None:
        """Send an event of a task to the listeners that want its kind."""
        if kind is not EventKind.UPDATED:
            told = self.of_forwards if task.quiet else self.everyone
        else:
            told = self.followers
            if task.quiet and told is not self.of_forwards:
                told = tuple(one for one in told if one in self.of_forwards)
        if told:
            self._tell(TaskEvent(kind, task), told)

    def _tell(self, event: Event, listeners: tuple[functools.partial[object], ...]) -> None:
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
        """Remove all listeners."""
        self.everyone = self.followers = self.of_forwards = ()

    def _raised(self, listener: functools.partial[object]) -> None:
        self._leave_out(listener)
        _log.exception("the listener %r raised and is sent nothing more; the work goes on", listener.func)

    def _leave_out(self, listener: functools.partial[object]) -> None:
        with self._lock:
            self.everyone = tuple(other for other in self.everyone if other is not listener)
            self.followers = tuple(other for other in self.followers if other is not listener)
            self.of_forwards = tuple(other for other in self.of_forwards if other is not listener)


OPEN, FINISHED, FAILED = "open", "finished", "failed"

_MOST = 1e300
"""A count beyond this is treated as unknown."""

_BEFORE = 100_000_000
"""A task counts as begun by then if something is reported done within so many nanoseconds."""

_LONGEST = 100 * 24 * 3600.0
"""An estimate beyond this many seconds says nothing, and is not given."""


class Task:
    """One thing that is being done; made by `Status.task`, not by hand.

    `state` is ``"open"``, ``"finished"`` or ``"failed"``, and `why` says of what it failed. `mark` tells what is
    unusual about its end: ``"left open"`` when its parent ended first, ``"broken off"`` when a loop was left. `node`
    and `host` are there where it happens in a node of a graph, or elsewhere. `parent` is the task it was opened in.

    `advance` may be called by any thread, and after the end, where it does nothing.
    """

    # The defaults stand on the class, because a loop may open very many tasks.
    state = OPEN
    why: str | None = None
    mark: str | None = None
    node: str | None = None
    host: str | None = None
    where: Any = None
    _ended = 0
    _done: float = 0
    _before: float = 0
    _children: dict[Task, None] | None = None
    _outer: Task | None = None
    _operators: int | None = None
    """The number of torch operators counted before a node began, where they are counted."""
    _told = 0
    _untold = False
    _said = 0
    _identity: str | None = None

    def __init__(
        self, tree: Tree, name: str, total: float | None, parent: Task | None, quiet: bool, began: int
    ) -> None:
        self._tree = tree
        self._began = began
        self._total = total
        self.name = name
        self.parent = parent
        self.quiet = quiet

    @property
    def done(self) -> float:
        """The amount done; it may exceed `total`."""
        return self._done

    @property
    def total(self) -> float | None:
        """The total amount, or None if unknown. May be set at any time."""
        return self._total

    @total.setter
    def total(self, total: float | None) -> None:
        self.update(total=total)

    @property
    def children(self) -> tuple[Task, ...]:
        """The tasks open in this one, in the order they were opened."""
        return tuple(self._children or ())

    @property
    def elapsed(self) -> float:
        """Seconds since it was opened, or that it took."""
        until = self._tree.clock() if self.state is OPEN else self._ended
        return max(0, until - self._began) / 1e9

    @property
    def rate(self) -> float | None:
        """The amount per second over the whole time; None if not yet known.

        What `update` says is done within the first tenth of a second was done before, as where a run is resumed, and is
        no part of it.
        """
        elapsed, done = self.elapsed, self._done - self._before
        rate = done / elapsed if done > 0 and elapsed > 0 else math.inf
        return rate if math.isfinite(rate) else None

    @property
    def remaining(self) -> float | None:
        """Seconds left at the present rate; None if unknown."""
        total, rate = self._total, self.rate
        if self.state != OPEN or total is None or rate is None or self._done > total:
            return None
        remaining = (total - self._done) / rate
        return remaining if remaining <= _LONGEST else None

    @property
    def percent(self) -> int | None:
        """The percentage done, rounded down; None if the total is unknown or exceeded.

        100 only when it has finished: the last item counted may still be at work, and a total may be wrong.
        """
        total = self._total
        if total is None or self._done > total:
            return None
        if self.state == FINISHED and self._done == total:
            return 100
        return min(99, math.floor(100 * self._done / total)) if total else 0

    def advance(self, amount: float = 1) -> None:
        """Add to the amount done; a negative amount subtracts, down to 0. Raises `BadOption` for no number."""
        if type(amount) is not int and type(amount) is not float:
            amount = checked_number("amount", amount)
        if self.state is not OPEN:
            return
        tree = self._tree
        with tree.lock:
            done = self._done + amount
            # nan and too large amounts change nothing
            self._done = done if 0 <= done < _MOST else 0 if done < 0 else self._done
        if tree.listeners.followers:
            tree.updated(self)

    def update(
        self,
        *,
        done: float | None = None,
        total: float | EllipsisType | None = ...,
        name: str | None = None,
    ) -> None:
        """Set how much is done, how much there is in all (None is unknown), or the name."""
        if self.state is not OPEN:
            return
        if done is not None:
            known = checked_number("done", done)
            if not self._done and self._tree.clock() - self._began < _BEFORE and 0 <= known < _MOST:
                self._before = known
            self._done = known if 0 <= known < _MOST else 0 if known < 0 else self._done
        if total is not ...:
            self._total = checked_total(total)
        if name is not None:
            self.name = str(name)
        if self._tree.listeners.followers:
            self._tree.updated(self)

    def finish(self) -> None:
        """End it as finished. A second end does nothing."""
        self._tree.end(self, EventKind.FINISHED)

    def fail(self, why: BaseException | str) -> None:
        """End it as failed, by an exception or a reason in words. A second end does nothing."""
        self._tree.end(self, EventKind.FAILED, why)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._tree.end(self, EventKind.FINISHED)
        else:
            self._tree.end(self, EventKind.FAILED, error)

    def __repr__(self) -> str:
        count = f"{self._done:g}" if self._total is None else f"{self._done:g} of {self._total:g}"
        return f"<Task {self.name!r} {self.state} {count}>"


def checked_total(total: object) -> float | None:
    """`total`, or None for what counts as unknown: None, a negative number, nan, infinity.

    Raises `BadOption` for what is no number: it is found where the task is opened, before any work.
    """
    if total is None:
        return None
    number = checked_number("total", total, ", or None where it is unknown")
    return number if 0 <= number < _MOST else None


def checked_number(what: str, given: object, otherwise: str = "") -> int | float:
    """`given` as a Python number. Raises `BadOption` if it is none."""
    if isinstance(given, str):
        raise BadOption(f"{what}={given!r} is text; give a number{otherwise}")
    try:
        return index(given)  # type: ignore[arg-type]
    except TypeError:
        pass
    try:
        return float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise BadOption(f"{what}={given!r}: it is a number{otherwise}") from error


THROTTLE = 100_000_000
"""The least time in nanoseconds between two updates of one task."""

_SMALL = 1 << 53

LEFT_OPEN = "left open"
BROKEN_OFF = "broken off"


_FINISHED = EventKind.FINISHED
_GONE = object()

CHAIN: ContextVar[Task | None] = ContextVar("somatize.tasks", default=None)
"""The task opened last in this context, of whichever Status; by its `_outer` the others follow."""


class Speaker(Protocol):
    """The interface that sends a tree's tasks as facts."""

    def opened(self, task: Task) -> None:
        """A task was opened."""

    def ended(self, task: Task) -> None:
        """A task has ended."""


class Tree:
    """The open tasks of one Status. `clock` gives nanoseconds; `due` schedules another look."""

    __slots__ = (
        "__weakref__",
        "alive",
        "clock",
        "due",
        "listeners",
        "lock",
        "roots",
        "speaker",
        "untold",
        "writes",
    )

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.clock = clock
        self.listeners = Listeners()
        self.roots: dict[Task, None] = {}
        self.untold: dict[Task, None] = {}
        self.speaker: Speaker | None = None
        self.due: Callable[[], None] = _nothing
        self.alive = True
        self.writes = True
        """Whether the end of a task is logged."""
        self.lock: Any = threading.RLock()  # reentrant, because a finaliser may run in the same thread

    def current(self) -> Task | None:
        """The innermost open task of this tree in this context."""
        task = CHAIN.get()
        while task is not None and (task._tree is not self or task.state is not OPEN):
            task = task._outer
        return task

    def open(self, name: str, total: float | None = None, parent: Task | None = None, quiet: bool = False) -> Task:
        """A new task within `parent`, or else within the current one, and current from here on."""
        outer = CHAIN.get()
        while outer is not None and outer.state is not OPEN:
            outer = outer._outer
        if parent is None and outer is not None:
            parent = outer if outer._tree is self else self.current()
        if total is not None and not (type(total) is int and 0 <= total <= _SMALL):
            total = checked_total(total)
        task = Task(self, name if type(name) is str else str(name), total, parent, quiet, self.clock())
        if parent is not None:
            task.node = parent.node
        task._outer = outer
        CHAIN.set(task)
        if self.alive:
            self._enter(task)
        return task

    def open_there(
        self, name: str, total: float | None, parent: Task, quiet: bool, host: str | None, node: str | None = None
    ) -> Task:
        """A task within `parent`, of its node unless `node` is given; it is current in no context."""
        total = None if total is None else checked_total(total)
        task = Task(self, name, total, parent, quiet, self.clock())
        task.node = node or parent.node
        task._outer = parent
        if host is not None:
            task.host = host
        if self.alive:
            self._enter(task)
        return task

    def _enter(self, task: Task) -> None:
        parent = task.parent
        if parent is None:
            self.roots[task] = None
        elif parent._children is not None:
            parent._children[task] = None
        else:
            self._children_of(parent)[task] = None
        if self.speaker is not None and not task.quiet:
            self.speaker.opened(task)
        if self.listeners.everyone:
            self.listeners.tell_task(EventKind.STARTED, task)

    def _children_of(self, parent: Task) -> dict[Task, None]:
        with self.lock:  # two first children at once would make two dicts
            if parent._children is None:
                parent._children = {}
            return parent._children

    def end(
        self,
        task: Task,
        kind: EventKind,
        why: BaseException | str | None = None,
        mark: str | None = None,
        took: int | None = None,
    ) -> None:
        """End `task`, and first all that is still open in it; `took` is its duration where that was measured."""
        if task.state is not OPEN:
            return
        if task._children:
            for child in reversed(_below(task)):
                self.end(child, kind, why, LEFT_OPEN)
        held = self.roots if task.parent is None else task.parent._children
        if held is not None and held.pop(task, _GONE) is _GONE and self.alive:
            return  # another thread is ending it
        task._ended = self.clock() if took is None else task._began + took
        task.state = FINISHED if kind is _FINISHED else FAILED
        if why is not None:
            task.why = facts.why(why) if isinstance(why, BaseException) else why
        task.mark = mark
        innermost = CHAIN.get()
        if innermost is not None and innermost.state is not OPEN:
            while innermost is not None and innermost.state is not OPEN:
                innermost = innermost._outer
            CHAIN.set(innermost)
        if self.alive:
            self._leave(task, kind)

    def _leave(self, task: Task, kind: EventKind) -> None:
        if task._untold:
            self._tell_update(task)
        if self.listeners.everyone:
            self.listeners.tell_task(kind, task)
        if not task.quiet:
            if self.speaker is not None:
                self.speaker.ended(task)
            level = logging.INFO if task.parent is None else logging.DEBUG
            if self.writes and _log.isEnabledFor(level):
                _log.log(level, "%s", TaskEndMessage(task))
        task.where = None

    def updated(self, task: Task) -> None:
        """Send an update of a task now, or soon if the last one was just sent."""
        if self.clock() - task._told >= THROTTLE:
            self._tell_update(task)
        elif not task._untold:
            task._untold = True
            self.untold[task] = None
            self.due()

    def _tell_update(self, task: Task) -> None:
        task._told = self.clock()
        task._untold = False
        self.untold.pop(task, None)
        self.listeners.tell_task(EventKind.UPDATED, task)

    def tell_updates(self) -> bool:
        """Tell the updates that were held back and are due; returns whether there are others."""
        now = self.clock()
        for task in list(self.untold):
            if task.state is not OPEN:
                self.untold.pop(task, None)
            elif now - task._told >= THROTTLE:
                self._tell_update(task)
        return bool(self.untold)

    def end_all(self, kind: EventKind, why: BaseException | None = None) -> None:
        """End all open tasks."""
        for task in reversed(list(self.roots)):
            self.end(task, kind, why, LEFT_OPEN)

    def close(self) -> None:
        """End all open tasks, and send no more events."""
        self.end_all(EventKind.FINISHED)
        self.alive = False
        self.listeners.clear()
        self.speaker = None
        self.due = _nothing

    def silence(self) -> None:
        """Reset in a forked child: new locks, no listeners, nothing shown."""
        self.lock = threading.RLock()
        self.listeners.renew()
        self.listeners.clear()
        self.speaker = None
        self.due = _nothing
        self.alive = False
        self.roots.clear()
        self.untold.clear()


def _below(task: Task) -> list[Task]:
    """All open descendants of a task, parents first; without recursion, as tasks may nest deep."""
    found: list[Task] = []
    pending = [task]
    while pending:
        children = pending.pop()._children or ()
        found += children
        pending += children
    return found


class TaskEndMessage:
    """The log message of a task that ended; formatted only if it is written."""

    __slots__ = ("task",)

    def __init__(self, task: Task) -> None:
        self.task = task

    def __str__(self) -> str:
        task = self.task
        total = "" if task.total is None else f" of {task.total:g}"
        count = f", {task.done:g}{total}" if task.done or task.total is not None else ""
        mark = f", {task.mark}" if task.mark else ""
        why = f": {task.why}" if task.why else ""
        return f"{task.name}: {task.state} in {duration(task.elapsed)}{count}{mark}{why}"


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, as it would run in this context, however many threads call it at once."""
    context = contextvars.copy_context()

    def run(*given: Any, **named: Any) -> Any:
        return context.copy().run(function, *given, **named)

    return run


def _nothing() -> None:
    """Do nothing, if nobody waits."""

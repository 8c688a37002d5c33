"""The tree of open tasks, and the events when one starts, progresses or ends.

A context (a thread, an asyncio task) remembers the tasks opened in it as a chain, the innermost first.
A task that has ended stays where it is in chains of other contexts and is passed over there: so one that is ended
elsewhere than it began is nobody's parent any more, and nothing has to be undone.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter_ns
from typing import Any, Protocol

from somatize import facts
from somatize.utils.units import duration

from .listeners import EventKind, Listeners
from .tasks import FAILED, FINISHED, OPEN, Entered, Task, checked_total, looked_at

THROTTLE = 100_000_000
"""Nanoseconds between two updates of one task that listeners are told."""

_SMALL = 1 << 53

LEFT_OPEN = "left open"
BROKEN_OFF = "broken off"

_log = logging.getLogger("somatize.status")

_FINISHED = EventKind.FINISHED
_GONE = object()

CHAIN: ContextVar[Task | Entered | None] = ContextVar("somatize.tasks", default=None)
"""The task opened or node entered last in this context, of whichever Status; by its `_outer` the others follow."""


class Speaker(Protocol):
    """The interface that sends a tree's tasks as facts."""

    def opened(self, task: Task) -> None:
        """A task was opened."""

    def ended(self, task: Task) -> None:
        """A task has ended."""


class Tree:
    """The open tasks of one Status. `clock` gives nanoseconds; `due` is asked to look again soon."""

    __slots__ = (
        "__weakref__",
        "alive",
        "clock",
        "due",
        "listeners",
        "lock",
        "looked",
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
        self.looked = False
        """Whether anybody ever looked at the tasks, and so may again."""
        self.writes = True
        """Whether the end of a task is logged."""
        self.lock: Any = threading.RLock()  # one that a finaliser in the same thread may take again

    def current(self) -> Task | None:
        """The innermost open task of this tree in this context."""
        task = CHAIN.get()
        while task is not None and (task._tree is not self or task.state is not OPEN):
            task = task._outer
        return task.made() if task is not None else None

    def open(self, name: str, total: float | None = None, parent: Task | None = None, quiet: bool = False) -> Task:
        """A new task within `parent`, or else within the current one, and current from here on."""
        outer = CHAIN.get()
        while outer is not None and outer.state is not OPEN:
            outer = outer._outer
        if parent is None and outer is not None:
            parent = outer.made() if outer._tree is self else self.current()
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

    def open_there(self, name: str, total: float | None, parent: Task, quiet: bool, host: str) -> Task:
        """A task that was opened at a host, within `parent`; it is current in no context here."""
        task = Task(self, name, checked_total(total), parent, quiet, self.clock())
        task.node = parent.node
        task.host = host
        if self.alive:
            self._enter(task)
        return task

    def open_node(self, node: str, forward: Task, host: str | None, began: int) -> Task:
        """A task for a node of `forward`, entered at `began`; nobody is told. Call it with the lock held."""
        task = Task(self, node, None, forward, True, began)
        task.node = node
        task.host = host
        task._outer = forward
        if self.alive:
            self._children_of(forward)[task] = None
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
        with self.lock:  # two that are the first would have one each
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
        """`task` ends, and before it whatever is still open in it; `took` is its time where that is known better."""
        if task.state is not OPEN:
            return
        if task._children:
            for child in reversed(_below(task)):
                self.end(child, kind, why, LEFT_OPEN)
        held = self.roots if task.parent is None else task.parent._children
        if held is not None and held.pop(task, _GONE) is _GONE and self.alive:
            return  # another thread ends it just now: whoever takes it out does
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

    def end_unseen(self, task: Task) -> None:
        """A quiet task ends that nobody was told of or looked at, so that nothing can be open in it."""
        if task.state is not OPEN:
            return
        task._ended = self.clock()
        task.state = FINISHED
        if task.parent is None:
            self.roots.pop(task, None)
        elif task.parent._children is not None:
            task.parent._children.pop(task, None)
        if CHAIN.get() is task:
            CHAIN.set(task._outer)

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
        """Something about an open task is new: listeners are told now, or in a moment if they were just told."""
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

    def look(self) -> tuple[Task, ...]:
        """The open tasks that are nobody's child, for somebody to look at."""
        self.looked = True
        return looked_at(self.roots)

    def everything(self) -> list[Task]:
        """Every open task."""
        roots = list(self.roots)
        return roots + [task for root in roots for task in _below(root)]

    def close(self, mark: str = LEFT_OPEN) -> None:
        """End what is open, and tell nobody from here on."""
        for task in reversed(list(self.roots)):
            self.end(task, EventKind.FINISHED, mark=mark)
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
    """All that is open in a task, each after what it is open in; without recursion, as tasks may nest deep."""
    found: list[Task] = []
    pending = [task]
    while pending:
        children = pending.pop()._children or ()
        found += children
        pending += children
    return found


class TaskEndMessage:
    """The sentence about a task that ended, made only if someone writes it."""

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

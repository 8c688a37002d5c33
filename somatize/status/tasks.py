"""A task: one thing that is being done, how far it is, and how long it takes.

A task holds data and asks a clock; views read it, listeners are told of it. Which tasks there are, and which is
whose child, is `somatize.status.task_tree`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import index
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from somatize.errors import BadOption

from .listeners import EventKind

if TYPE_CHECKING:
    from .forward_tasks import ForwardTasks
    from .task_tree import Tree

OPEN, FINISHED, FAILED = "open", "finished", "failed"

_MOST = 1e300
"""A count beyond this is none."""

_BEFORE = 100_000_000
"""Nanoseconds within which what is said to be done was done before the task began."""

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
    _shown: ForwardTasks | None = None
    """For an open forward, the object that makes tasks of its nodes."""
    _outer: Task | Entered | None = None
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
        if self._shown is not None:
            self._shown.look()
        children = self._children
        return looked_at(children) if children else ()

    def made(self) -> Task:
        """Itself, or of a forward the node that runs here; see `Entered`."""
        return self if self._shown is None else self._shown.here()

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
        """Seconds it will still take at this rate; None where nothing sensible can be said."""
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
        """So much more is done; a negative amount takes back, down to nothing. Raises `BadOption` for no number."""
        if type(amount) is not int and type(amount) is not float:
            amount = checked_number("amount", amount)
        if self.state is not OPEN:
            return
        tree = self._tree
        with tree.lock:
            done = self._done + amount
            self._done = (
                done if 0 <= done < _MOST else 0 if done < 0 else self._done
            )  # the last is for what is no count
        if tree.listeners.followers:
            tree.updated(self)

    def update(
        self,
        *,
        done: float | None = None,
        total: float | EllipsisType | None = ...,
        name: str | None = None,
    ) -> None:
        """Say anew how much is done, how much there is in all (None is unknown), or what it is called."""
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
        """It is done. A second end does nothing."""
        self._tree.end(self, EventKind.FINISHED)

    def fail(self, why: BaseException | str) -> None:
        """It failed, of an exception or a reason in words. A second end does nothing."""
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


class Entered:
    """A node that runs, in place of its task, which is made when somebody asks: mostly nobody does.

    It stands in the chain of its context as a task does.
    """

    state = OPEN
    operators: int | None = None
    """The number of torch operators counted before the task."""
    _made: Task | None = None

    def __init__(self, forward: Task, node: str, host: str | None, began: int) -> None:
        self.node = node
        self.host = host
        self.began = began
        self._outer = forward
        self._tree = forward._tree

    def made(self) -> Task:
        """Its task, made now if it was not."""
        return self._made or self._make()

    def _make(self) -> Task:
        tree = self._tree
        with tree.lock:
            if self._made is not None:
                return self._made
            made = self._made = tree.open_node(self.node, self._outer, self.host, self.began)
        if tree.listeners.everyone:
            tree.listeners.tell_task(EventKind.STARTED, made)
        if self.state is not OPEN:  # it ended while its task was made
            tree.end(made, EventKind.FINISHED)
        return made

    def over(self) -> Task | None:
        """It has ended: its task, if there is one."""
        self.state = FINISHED  # before it is looked, as `made` does it the other way round
        return self._made


def looked_at(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Tasks for somebody to look at: forwards among them are from now on shown."""
    given = tuple(tasks)
    for task in given:
        if task._shown is not None:
            task._shown.look()
    return given


def checked_total(total: object) -> float | None:
    """`total`, or None for what counts as unknown: None, a negative number, nan, infinity.

    Raises `BadOption` for what is no number: it is found where the task is opened, before any work.
    """
    if total is None:
        return None
    number = checked_number("total", total, ", or None where it is unknown")
    return number if 0 <= number < _MOST else None


def checked_number(what: str, given: object, otherwise: str = "") -> int | float:
    """`given` as a number of Python, which holds on to nothing. Raises `BadOption` for what is none."""
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

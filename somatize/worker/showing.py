"""Tasks that node code opens here, and streams it measures, shown where its forward runs."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from somatize.facts import encodable
from somatize.status.events import Event, EventKind, TaskEvent
from somatize.status.status import Status, relayed
from somatize.status.throughput import Throughput

if TYPE_CHECKING:
    from somatize.status.tasks import Task

    from .relay import Relay

_WIDEST = 2**53


class Showing:
    """The Status that node code is given in this process: what becomes of its tasks is said to the other side.

    The nodes of a slice are tasks of it too, so that a task knows its node; they are shown there anyway, and not said.
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
        """What `ctx.status` gives; a new one where node code closed the one before."""
        if self._status.closed:
            self._status, self._sink = relayed(self._heard, self._metered), None
        if self._sink is None:
            self._sink = self._status.opens(())
            self._sink.entering(self._relay.node)
        return self._status

    def entering(self, node: str) -> None:
        """A node of the slice is about to run."""
        if self._sink is not None:
            self._sink.entering(node)

    def tell(self, fact: dict[str, str]) -> None:
        """What became of a node: what its code left open ends with it."""
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
        """What the task that is open here is known by over there; None for the node itself."""
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

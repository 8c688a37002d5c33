"""Forwards as tasks of a Status, and their nodes as tasks in them.

As long as nobody looks, the sink is not told anything: where nodes are called one after another, the forward knows its
step. Once somebody looks, it is told everything.

These tasks come of facts that are recorded already, so they are quiet: listeners and views see them, they are neither
logged nor said as facts of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from somatize.facts import Fact
from somatize.watching import watchers

from .flops import COUNTING
from .tasks import CHAIN, OPEN, Entered, EventKind, Tree

if TYPE_CHECKING:
    from .tasks import Task


class StepQuery:
    """The current node of one forward, read on request."""

    __slots__ = ("_graph", "_names", "asleep", "forward")

    def __init__(self, forward: watchers.Forward, graph: Any) -> None:
        self.forward = forward
        self._graph = graph
        self._names: list[str] | None = None
        self.asleep = True
        """Whether nobody has looked yet, so that the sink is not told."""

    def step_here(self) -> int:
        """The step that runs in this context, or -1."""
        place = watchers.HERE.get()
        while place is not None and place.forward is not self.forward:
            place = place.parent
        return place.step if place is not None else -1

    def name(self, step: int) -> str | None:
        """The node of a step; None between nodes."""
        names = self._known()
        return names[step] if 0 <= step < len(names) else None

    def order(self, node: str) -> int:
        """The number of nodes that come before one."""
        try:
            return self._known().index(node)
        except ValueError:
            return 0

    def _known(self) -> list[str]:
        if self._names is None:
            try:
                self._names = [step.node for step in self._graph.plan().steps]
            except Exception:  # it was changed while it ran, and does not compile just now
                self._names = []
        return self._names

    def wake(self, sink: Any) -> bool:
        """Have the forward tell `sink` of all that follows; False if it does already."""
        if not self.asleep:
            return False
        self.asleep = False
        self.forward.rouse(sink)
        return True


class Metered(Protocol):
    """Takes the throughput of streams at hosts: a Status."""

    def _metered(self, host: str, node: str, said: Mapping[str, Any]) -> None: ...


class ForwardTasks:
    """The sink of one forward."""

    __slots__ = ("_asked", "_counting", "_forward", "_graph", "_nodes", "_there", "_tree", "status", "task")
    forgets = True
    library = True

    def __init__(self, status: Metered, tree: Tree, graph: Any) -> None:
        self.status = status
        task = self.task = tree.open("forward", len(graph), quiet=True)
        task._shown = self
        self._tree = tree
        self._graph = graph
        self._forward: watchers.Forward | None = None
        self._asked: StepQuery | None = None
        self._nodes: dict[str, Entered] = {}
        self._there: dict[str | None, Task] | None = None
        self._counting = COUNTING.get()

    # -- where nobody looks

    def sleeps(self, forward: watchers.Forward) -> bool:
        """Whether the sink need not be told, because nobody looks; a later viewer queries the forward."""
        tree = self._tree
        if self._counting is not None or tree.listeners.of_forwards or tree.looked or not tree.alive:
            return False
        self._forward = forward
        return True

    def _asking(self) -> StepQuery | None:
        """The object to query about a forward whose sink is not told."""
        if self._asked is None and self._forward is not None:
            self._asked = StepQuery(self._forward, self._graph)
        return self._asked

    def here(self) -> Task:
        """The task of the node that runs in this context, or else of the forward."""
        asked = self._asking()
        entered = self._at(asked, asked.step_here()) if asked is not None else None
        return entered.made() if entered is not None else self.task

    def look(self) -> None:
        """Make tasks of the running nodes, for a viewer."""
        asked = self._asking()
        if asked is not None:
            self._at(asked, asked.forward.step)
        for entered in list(self._nodes.values()):
            entered.made()

    def wake(self) -> None:
        """It is to be told of all that follows."""
        asked = self._asking()
        if asked is not None:
            asked.wake(self)

    def _at(self, asked: StepQuery, step: int) -> Entered | None:
        """The node of a step, which runs."""
        node = asked.name(step)
        if node is not None and node not in self._nodes:
            before = list(self._nodes)  # one after another: what is still here, was over when it was found
            self._nodes.setdefault(node, Entered(self.task, node, None, self._tree.clock()))
            for other in before:
                self._over(other)
            self.task._done = step
        asked.wake(self)
        return self._nodes.get(node) if node is not None else None

    def _over(self, node: str) -> None:
        entered = self._nodes.pop(node, None)
        made = entered.over() if entered is not None else None
        if made is not None:
            self._tree.end(made, EventKind.FINISHED)

    # -- told

    def entering(self, node: str, host: str | None = None) -> None:
        """A node is about to run, and is current in this context."""
        tree = self._tree
        entered = self._nodes[node] = Entered(self.task, node, host, tree.clock())
        CHAIN.set(entered)
        if self._counting is not None:
            entered.operators = self._counting.operators
        if tree.listeners.of_forwards:
            entered.made()

    def tell(self, fact: Fact) -> None:
        """Update the tasks from a fact about a node or the forward."""
        kind = fact["fact"]
        if kind == "ran":
            entered = self._nodes.get(fact["node"])
            if entered is None or entered._made is not None or self._looked_at():
                self._ended(fact, EventKind.FINISHED)
            else:
                self._ran(entered, fact)
        elif kind == "failed":
            self._ended(fact, EventKind.FAILED)
        elif kind == "recalled":
            self._ended(fact, EventKind.FINISHED, "recalled")
        elif kind == "items":
            self._went_through(fact)
        elif kind == "broke":
            self._tree.end(self.task, EventKind.FAILED, fact["why"], None, int(fact["took_us"]) * 1000)
        elif kind == "finished":
            self._tree.end(self.task, EventKind.FINISHED, None, None, int(fact["took_us"]) * 1000)

    def progress(self, node: str, done: int, total: int | None) -> None:
        """Set the progress that a node reports."""
        self.look()
        entered = self._nodes.get(node)
        if entered is not None:
            entered.made().update(done=done, total=total)

    def heard(self, host: str, node: str, said: dict[str, Any]) -> None:
        """Update from a worker: a task that node code opened there, or a stream."""
        if said["event"] == "throughput":
            self.status._metered(host, node, said)
            return
        tree = self._tree
        there = self._there = self._there or {}
        if said["event"] == "started":
            parent = self.task_of(node, said["parent"])
            there[said["id"]] = tree.open_there(said["name"], said["total"], parent, said["quiet"], host)
            return
        task = there.get(said["id"])
        if task is None:  # it ended with its node, or its forward began anew
            return
        if (task.done, task.total, task.name) != (said["done"], said["total"], said["name"]):
            task.update(done=said["done"], total=said["total"], name=said["name"])
        if said["event"] in ("finished", "failed"):
            del there[said["id"]]
            kind = EventKind.FAILED if said["event"] == "failed" else EventKind.FINISHED
            tree.end(task, kind, said["why"], said["mark"], said["took_us"] * 1000)

    def task_of(self, node: str, identity: str | None) -> Task:
        """The task of that identity at a host, or else of the node."""
        found = self._there.get(identity) if self._there else None
        return found or self._nodes.get(node, self.task).made()

    @property
    def over(self) -> bool:
        """Whether its task has ended."""
        return self.task.state is not OPEN

    def closed(self) -> None:
        """The forward is over, whatever was told of it."""
        task, asked = self.task, self._asked
        if self._forward is not None and task.state is OPEN and (asked is None or asked.asleep):
            task._done = task._total or 0
        if self._forward is not None and asked is None:
            self._tree.end_unseen(task)
        else:
            self._tree.end(task, EventKind.FINISHED)
        if self._nodes:
            for entered in self._nodes.values():
                entered.over()
            self._nodes.clear()
        task._shown = self._forward = self._asked = self._there = self._counting = self._graph = None

    def _looked_at(self) -> bool:
        return self._counting is not None or bool(self._tree.listeners.of_forwards)

    def _ran(self, entered: Entered, fact: Fact) -> None:
        """Count a node that ran unseen; nothing has to be undone."""
        del self._nodes[fact["node"]]
        made = entered.over()
        if made is not None:
            self._tree.end(made, EventKind.FINISHED, None, None, int(fact["took_us"]) * 1000)
        self.task._done += 1

    def _ended(self, fact: Fact, kind: EventKind, mark: str | None = None) -> None:
        tree, forward, node = self._tree, self.task, fact["node"]
        entered = self._nodes.pop(node, None)
        if entered is None:  # nobody entered it: it is told of, and over
            entered = Entered(forward, node, None, tree.clock())
        entered.host = fact.get("host", entered.host)
        task = entered.made()
        task.host = entered.host
        entered.over()
        took = int(fact["took_us"]) * 1000
        if self._counting is not None and entered.operators is not None:
            self._counting.node(entered.operators, took)
        tree.end(task, kind, fact["why"] if kind is EventKind.FAILED else None, mark, took)
        asked = self._asking()
        forward._done = forward._done + 1 if asked is None else asked.order(node) + 1
        if tree.listeners.followers:
            tree.updated(forward)

    def _went_through(self, fact: Fact) -> None:
        done = sum(int(fact[count]) for count in ("ran", "recalled", "failed"))
        self.progress(fact["node"], done, int(fact["items"]))

"""A forward that nobody looks at tells a Status nothing: what it would show is asked of the forward when it is wanted.

That holds for nodes called one after another; of those it is enough to know at which step the forward is. As soon as
somebody looks, the forward tells of all that follows.
"""

from __future__ import annotations

from typing import Any

from somatize.watching import watchers


class Asked:
    """Which node runs, asked of one forward of a graph."""

    __slots__ = ("_graph", "_names", "asleep", "forward")

    def __init__(self, forward: watchers.Forward, graph: Any) -> None:
        self.forward = forward
        self._graph = graph
        self._names: list[str] | None = None
        self.asleep = True
        """Whether nobody has looked yet, so that nothing is told."""

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
        """How many nodes come before one."""
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

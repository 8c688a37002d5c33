"""The second argument of a node's forward: where it was placed, and the door through which it says things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from somatize import facts
from somatize.errors import FactError

from . import watchers
from .quiet import QUIET


class Ctx:
    """What a node is told beside its input.

    It is made once with the plan and shared by all forwards; what differs per forward is looked up when asked.
    `node` is the id the node has in its graph, `step` its number in the plan, `device` the name that `.on` gave, or
    None.
    """

    __slots__ = ("_key", "_running", "device", "node", "step")

    def __init__(self, node: str, device: str | None, step: int = -1, key: object = None, running: Any = ()) -> None:
        """A ctx made by hand, to call a node's forward in a test, is watched by nobody."""
        self.node = node
        self.device = device
        self.step = step
        self._key = key
        self._running = running

    def tell(self, fact: Mapping[str, object]) -> None:
        """Say a fact to the watchers of this forward: ``ctx.tell({"fact": "loss", "value": loss})``.

        It is stamped with this node and told in order, before the node's own `ran`. Values become text as
        `somatize.facts.said` describes; with nobody watching nothing happens. Works in threads the node starts.
        A thread that has no context of this forward is heard if its graph is running just once. Raises `FactError` for
        one of the eight kinds, which only the engine tells, and for a dict without a kind.
        """
        kind = fact.get("fact") if isinstance(fact, Mapping) else None
        if isinstance(kind, str) and kind in facts.KINDS:
            raise FactError(f"{str.__str__(kind)!r} is told by the engine alone; node {self.node!r} has other kinds")
        place = self._place()
        if place is not None and place.forward.tell is not None:
            watchers.say_from_node(place, self.step, facts.said(fact, node=self.node))

    def progress(self, done: int, total: int | None = None) -> None:
        """Say how far the node is to the watchers that show it. It is no fact and is not stored."""
        place = self._place()
        if place is not None and place.forward.tell is not None:
            watchers.progress_from_node(place, self.step, self.node, done, total)

    @property
    def status(self) -> Any:
        """The status of the first watcher of this forward that has one; else one that does nothing."""
        place = self._place()
        offered = place.forward.status() if place is not None else None
        return QUIET if offered is None else offered

    def _place(self) -> watchers.Place | None:
        return watchers.place_of(self._key, self._running) if self._key is not None else None

    def __repr__(self) -> str:
        return f"Ctx(node={self.node!r}, device={self.device!r})"

"""What a worker has of the objects that it was sent: it takes over changes, and notices its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import payload
from .replica import Leaf, Replica
from .wire import Pieces


class Shared:
    """The worker's end of what `Shipping` is at the client."""

    def __init__(self, mode: str) -> None:
        self.replica = Replica(mode, (), -1)
        self._there: set[Leaf] = set()

    def things(self, keys: Iterable[int]) -> list[Any]:
        """What the nodes of these names run."""
        return [self.replica.thing(key) for key in keys]

    def has(self, keys: Iterable[int]) -> bool:
        """Whether all of these nodes are here."""
        return all(key in self.replica.entries for key in keys)

    def drop(self, names: Iterable[int]) -> None:
        """Forget objects that are gone at the client."""
        gone = set(names)
        for name in gone:
            self.replica.drop(name)
        if gone and self._there:
            self._there = {leaf for leaf in self._there if leaf[0] not in gone}

    def load(self, buffers: list[memoryview], sources: Mapping[str, str]) -> None:
        """Take over what the client sent. Raises `NotSendable` where a class or function is another one here."""
        payload.refuse_other_sources(sources)
        self._there -= self.replica.load(buffers)

    def look(self, keys: list[int]) -> bool:
        """Look what some nodes changed of what they have; gives whether that is other than at the last time."""
        state = self.replica.walk(keys)
        found = {leaf for leaf in self.replica.changed(state) if self.replica.is_known(leaf[0])}
        before = {leaf for leaf in self._there if leaf[0] in state}
        if found == before:
            return False
        self._there = (self._there - before) | found
        return True

    def there(self) -> list[list[Any]]:
        """The leaves that are other than the client has them, as plain data."""
        return [list(leaf) for leaf in sorted(self._there)]

    def pulled(self, asked: Mapping[str, Any]) -> tuple[list[Pieces], list[list[Any]]]:
        """The leaves of some nodes that changed here, and those asked for; and those that cannot be sent."""
        self.look(asked["roots"])
        state = self.replica.walk(asked["roots"])
        wanted = {leaf for leaf in self._there if leaf[0] in state}
        wanted |= {(name, leaf) for name, leaf in asked["leaves"] if name in state}
        if not wanted:
            return [], []
        delta = self.replica.delta(wanted, list(self.replica.entries), state)
        self.replica.agreed(delta)
        self._there -= delta.leaves.keys()
        return delta.buffers, [list(leaf) for leaf in sorted(wanted & self.replica.opaque)]

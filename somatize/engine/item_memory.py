"""What is kept of single items of a mapped node.

Answers that come quickly are written down together, as each wait for the disk takes longer than most of them: a
process that is killed has to make those of the last moment again, and nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from time import monotonic
from time import perf_counter_ns as clock
from typing import Any

from somatize.errors import SomatizeError, Unnameable
from somatize.naming import Looked, Name

from .cache import CLAIMS, Cache

_TOGETHER = 0.05
"""Seconds that an answer waits at most for the ones after it, if these come; a slower node's are written one by one."""
_MOST_BYTES = 4 << 20
_LITTLE = 64 << 10
"""Bytes up to which an answer waits for others."""


class ItemMemory:
    """What is kept of the items of one mapped node, in one forward.

    `beside` says whether what the node is made of, and its items, could be changed by others since it began.
    """

    def __init__(self, cache: Cache, number: int, beside: Callable[[], tuple[bool, bool]]) -> None:
        self._beside = beside
        self._looked: Looked | None = None
        self._cache = cache
        self._number = number
        self._step = cache.plan.steps[number]
        self._names: dict[str, Name] = {}
        self._order: list[str | None] = []
        self._places: dict[str, int] = {}
        self._refreshed = cache.refreshes(number)
        self._there: set[str] = set()  # what the store is known to hold, or is about to
        self._waiting: dict[str, tuple[str, bytes, Mapping[str, Any]]] = {}
        self._waiting_bytes = 0
        self._claimed: set[str] = set()
        self._written = monotonic()
        self.all_ran = True
        """Whether nothing was recalled."""
        self.kept_bytes = self.kept_took = self.kept = self.recalled_bytes = 0

    def name(self, item: Any) -> str | None:
        """What the answer to an item is called; None where it cannot be named, which is said."""
        try:
            given = self._cache.item(self._number, item)
            if self._looked is None:
                self._looked = self._cache.looked_at(self._number)
            place = len(self._order)
            name = self._cache.item_drawn(self._looked.name(given), self._number, place)
        except Unnameable as error:
            self._cache.unnamed.setdefault(self._number, f"{error}, in an item of node {self._step.node!r}")
            self._cache.say_unnamed(self._number)
            self._order.append(None)
            return None
        gradient = self._cache.gradient_of(item)
        if gradient is not None:
            self._cache.say_not_kept(self._number, gradient)
            self._order.append(None)
            return None
        self._names[name.digest] = name
        self._places[name.digest] = place
        self._order.append(name.digest)
        return name.digest

    def changed(self, items: list[tuple[str, Any]]) -> set[str]:
        """Those of the names whose items, or whose node, are not what they were named any more, which is said."""
        found, what = self._changed(items)
        if found:
            self._cache.say_not_kept(self._number, what)
        return found

    def _changed(self, items: list[tuple[str, Any]], *, given: bool = True) -> tuple[set[str], str]:
        if not self._cache.keeping:
            return set(), ""
        try:
            now: Looked | None = self._cache.looked_at(self._number)
        except Unnameable:
            now = None
        if now is None or self._looked is None or not now.same(self._looked):
            self._looked = now
            return {name for name, _ in items}, "the node changed after its items were named, and before they were run"
        found = {name for name, item in items if given and self._item_changed(name, item)}
        return found, "an item changed after it was named and before it was run, as if one object were used for several"

    def _item_changed(self, name: str, item: Any) -> bool:
        try:
            if self._looked is None:
                return True
            now = self._looked.name(self._cache.item(self._number, item))
            return self._cache.item_drawn(now, self._number, self._places[name]).digest != name
        except Unnameable:
            return True

    def _changed_meanwhile(self, name: str, item: Any) -> str | None:
        own, given = self._beside()
        if not (own or given) or not self._changed([(name, item)], given=given)[0]:
            return None
        return "the node, or one of its items, changed while other nodes ran beside it"

    def claim(self, names: list[str]) -> set[str]:
        """Those of the names that no other thread computes just now; they are the caller's until `settle`."""
        taken = CLAIMS.take([(self._cache.store, name) for name in names], self)
        return {name for name in names if (self._cache.store, name) in taken}

    def settle(self, names: set[str]) -> None:
        """They are computed, or given up: others are let at them as soon as they are written down."""
        self._claimed |= names
        if self._waiting_bytes > _MOST_BYTES or monotonic() - self._written > _TOGETHER:
            self.write()
        else:
            self._release(names.difference(self._waiting))

    def recall(self, name: str, *, waiting: bool = False) -> tuple[Any] | None:
        """The answer kept under a name; with `waiting`, after whoever computes it just now."""
        if waiting or name in self._waiting:
            self.write()  # nobody may wait for a thread that holds back what others wait for
        if waiting:
            CLAIMS.wait((self._cache.store, name))
        if self._refreshed and name not in self._there:
            return None
        found = self._cache.recall(name)
        if found is None:
            return None
        self._there.add(name)
        self.recalled_bytes += found.bytes
        self.all_ran = False
        return (found.value,)

    def keep(self, name: str, answer: Any, item: Any) -> Any:
        """Have an answer written down; gives what is to be handed on."""
        check = functools.partial(self._changed_meanwhile, name, item)
        kept = self._cache.keep(self._step, self._names[name], answer, {"item": True}, self._take, check)
        if kept is None:
            return self._cache.detached(answer, item)
        self._there.add(name)
        self.kept += 1
        self.kept_bytes += kept.bytes
        self.kept_took += kept.took
        return kept.value

    def copied(self, answer: Any) -> Any:
        """An answer for an item like another whose answer is not kept: a copy, so that whoever changes one has one."""
        return self._cache.copied(answer)

    def _take(self, name: str, data: bytes | memoryview, meta: Mapping[str, Any]) -> None:
        if len(data) > _LITTLE:
            self._cache.store.keep_bytes(name, data, meta)
        else:
            self._waiting[name] = (name, bytes(data), meta)
            self._waiting_bytes += len(data)

    def write(self) -> None:
        """Write down what waits. Where that fails it is said, and the answers are handed on as they are."""
        waiting, self._waiting = self._waiting, {}
        try:
            if waiting:
                began = clock()
                self._cache.store.keep_all(list(waiting.values()))
                self.kept_took += clock() - began
        except (SomatizeError, OSError) as error:
            self.kept -= len(waiting)
            self.kept_bytes -= self._waiting_bytes
            self._there.difference_update(waiting)
            node = self._step.node
            self._cache.say(node, f"results of items of node {node!r} could not be kept, and are handed on: {error}")
        finally:
            self._waiting_bytes, self._written = 0, monotonic()
            self._release(self._claimed)

    def _release(self, names: set[str]) -> None:
        CLAIMS.release([(self._cache.store, name) for name in names], self)
        self._claimed = self._claimed - names

    def keep_whole(self) -> None:
        """The names of all items under the name of the whole input, so that the next forward need not make them."""
        whole = self._cache.names.get(self._number)
        if whole is not None and self._there.issuperset(self._order):
            self._cache.keep(self._step, whole, list(self._order), {"items": len(self._order)})

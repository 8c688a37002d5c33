"""The items of a mapped node: gone through here, dealt out to the workers of a host, and recalled or kept one by one.

Quick answers are kept together, at most 50 ms of them, because each write takes longer than most of them; a process
that is killed computes those again and nothing else. Items may come from a generator and are not held, except for one
batch; answers are.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from time import perf_counter_ns as clock
from typing import TYPE_CHECKING, Any, TypeAlias

from somatize.errors import NoItems, SomatizeError, Unnameable
from somatize.naming import Looked, Name

from .remote_calls import Landed
from .result_cache import CLAIMS, Cache

if TYPE_CHECKING:
    from .remote_calls import Trips


_TOGETHER = 0.05
"""Seconds that an answer waits at most for the ones after it, if these come; a slower node's are written one by one."""
_MOST_BYTES = 4 << 20
_LITTLE = 64 << 10
"""Bytes up to which an answer waits for others."""


class ItemMemory:
    """Kept results of the items of one mapped node in one forward.

    `beside` says whether what the node is made of, and its items, could be changed by others since it began.
    """

    def __init__(self, cache: Cache, number: int, beside: Callable[[], tuple[bool, bool]]) -> None:
        self._beside = beside
        self._looked: Looked | None = None
        self.cache = cache
        self._number = number
        self._step = cache.plan.steps[number]
        self._names: dict[str, Name] = {}
        self._order: list[str | None] = []
        self._places: dict[str, int] = {}
        self._refreshed = cache.refreshes(number)
        self._there: set[str] = set()  # names that the store holds or is about to hold
        self._waiting: dict[str, tuple[str, bytes, Mapping[str, Any]]] = {}
        self._waiting_bytes = 0
        self._claimed: set[str] = set()
        self._written = monotonic()
        self.all_ran = True
        """Whether nothing was recalled."""
        self.kept_bytes = self.kept_took = self.kept = self.recalled_bytes = 0

    def name(self, item: Any) -> str | None:
        """The name of an item's result; None if it cannot be named, which is warned about once."""
        try:
            given = self.cache.item(self._number, item)
            if self._looked is None:
                self._looked = self.cache.looked_at(self._number)
            place = len(self._order)
            name = self.cache.item_drawn(self._looked.name(given), self._number, place)
        except Unnameable as error:
            self.cache.unnamed.setdefault(self._number, f"{error}, in an item of node {self._step.node!r}")
            self.cache.say_unnamed(self._number)
            self._order.append(None)
            return None
        gradient = self.cache.gradient_of(item)
        if gradient is not None:
            self.cache.say_not_kept(self._number, gradient)
            self._order.append(None)
            return None
        self._names[name.digest] = name
        self._places[name.digest] = place
        self._order.append(name.digest)
        return name.digest

    def changed(self, items: list[tuple[str, Any]]) -> set[str]:
        """The names whose items, or whose node, changed since they were named; a warning is given."""
        found, what = self._changed(items)
        if found:
            self.cache.say_not_kept(self._number, what)
        return found

    def _changed(self, items: list[tuple[str, Any]], *, given: bool = True) -> tuple[set[str], str]:
        if not self.cache.keeping:
            return set(), ""
        try:
            now: Looked | None = self.cache.looked_at(self._number)
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
            now = self._looked.name(self.cache.item(self._number, item))
            return self.cache.item_drawn(now, self._number, self._places[name]).digest != name
        except Unnameable:
            return True

    def _changed_meanwhile(self, name: str, item: Any) -> str | None:
        own, given = self._beside()
        if not (own or given) or not self._changed([(name, item)], given=given)[0]:
            return None
        return "the node, or one of its items, changed while other nodes ran beside it"

    def claim(self, names: list[str]) -> set[str]:
        """The names that no other thread is computing; they are the caller's to compute until `settle`."""
        taken = CLAIMS.take([(self.cache.place, name) for name in names], self)
        return {name for name in names if (self.cache.place, name) in taken}

    def settle(self, names: set[str]) -> None:
        """Release claimed names, computed or given up; others get them as soon as they are written."""
        self._claimed |= names
        if self._waiting_bytes > _MOST_BYTES or monotonic() - self._written > _TOGETHER:
            self.write()
        else:
            self._release(names.difference(self._waiting))

    def recall(self, name: str, *, waiting: bool = False) -> tuple[Any] | None:
        """The answer kept under a name; with `waiting`, after a thread that is computing it."""
        if waiting or name in self._waiting:
            self.write()  # write first: other threads may wait for what this one holds back
        if waiting:
            CLAIMS.wait((self.cache.place, name))
        if self._refreshed and name not in self._there:
            return None
        found = self.cache.recall(name)
        if found is None:
            return None
        self._there.add(name)
        self.recalled_bytes += found.bytes
        self.all_ran = False
        return (found.value,)

    def keep(self, name: str, answer: Any, item: Any) -> Any:
        """Keep an answer; returns the value to hand on."""
        check = functools.partial(self._changed_meanwhile, name, item)
        kept = self.cache.keep(self._step, self._names[name], answer, {"item": True}, self._take, check)
        if kept is None:
            return self.cache.detached(answer, item)
        self._there.add(name)
        self.kept += 1
        self.kept_bytes += kept.bytes
        self.kept_took += kept.took
        return kept.value

    def _take(self, name: str, data: bytes | memoryview, meta: Mapping[str, Any]) -> None:
        if len(data) > _LITTLE:
            self.cache.store.keep_bytes(name, data, meta)
        else:
            self._waiting[name] = (name, bytes(data), meta)
            self._waiting_bytes += len(data)

    def write(self) -> None:
        """Write the answers that wait. Where that fails a warning is given, and the answers are handed on."""
        waiting, self._waiting = self._waiting, {}
        try:
            if waiting:
                began = clock()
                self.cache.store.keep_all(list(waiting.values()))
                self.kept_took += clock() - began
        except (SomatizeError, OSError) as error:
            self.kept -= len(waiting)
            self.kept_bytes -= self._waiting_bytes
            self._there.difference_update(waiting)
            node = self._step.node
            self.cache.say(node, f"results of items of node {node!r} could not be kept, and are handed on: {error}")
        finally:
            self._waiting_bytes, self._written = 0, monotonic()
            self._release(self._claimed)

    def _release(self, names: set[str]) -> None:
        CLAIMS.release([(self.cache.place, name) for name in names], self)
        self._claimed = self._claimed - names

    def keep_whole(self) -> None:
        """The names of all items under the name of the whole input, so that the next forward need not make them."""
        whole = self.cache.names.get(self._number)
        if whole is not None and self._there.issuperset(self._order):
            self.cache.keep(self._step, whole, list(self._order), {"items": len(self._order)})


_Pending: TypeAlias = tuple[int, Any, str | None]
"""An item to be answered: its place, itself, and its name."""


class Partly(Exception):
    """Raised by a batch of which some items were answered before `error`: `answers` by position."""

    def __init__(self, error: BaseException, answers: dict[int, Any], failed: list[int]) -> None:
        self.error = error
        self.answers = answers
        self.failed = failed


class Through:
    """One pass of a mapped node through its items, and the counts of what happened."""

    def __init__(
        self,
        node: str,
        call: Callable[[Any], Any],
        batch: int | None,
        memory: ItemMemory | None,
        progress: Callable[[int, int | None], None] | None,
        begins: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        """`begins` is called before each `call`, with the places of the items it gets."""
        self.items = self.ran = self.recalled = self.failed = 0
        self.answers: list[Any] = []
        self.place = ""
        """The items the node was processing, for the note on an exception."""
        self._node = node
        self._call = call
        self._batch = batch
        self._memory = memory
        self._progress = progress
        self._begins = begins
        self._pending: list[_Pending] = []
        self._first: dict[str, int] = {}  # of each name, the first item that has it
        self._again: dict[int, str] = {}  # the items that have it too
        self._like: dict[str, list[tuple[int, Any]]] = {}  # those of them whose first was not called yet
        self._total: int | None = None

    def run(self, given: Any) -> list[Any]:
        """The answers in the order of the items. Raises the node's exception, with the counts so far."""
        for item in self._items(given):
            self._take(item)
            if len(self._pending) == (self._batch or 1):
                self._answer_pending()
        self._answer_pending()
        for index, name in self._again.items():
            self.answers[index] = self._repeated(name)
        return self.answers

    def _items(self, given: Any) -> Iterator[Any]:
        _refuse_parts(self._node, given)
        try:
            items = iter(given)
        except TypeError:
            what = type(given).__name__
            raise NoItems(f"node {self._node!r} is mapped and was given {what}, which has no items") from None
        try:
            self._total = len(given)
        except Exception:
            self._total = None
        while True:
            try:
                item = next(items)
            except StopIteration:
                return
            except BaseException:
                self.place = f"while item {self.items} was made"
                raise
            yield item
            del item

    def _take(self, item: Any) -> None:
        index = self.items
        self.items += 1
        self.answers.append(None)
        name = self._memory.name(item) if self._memory is not None else None
        if name is None or not self._remembered(index, item, name):
            self._pending.append((index, item, name))

    def _remembered(self, index: int, item: Any, name: str) -> bool:
        """Whether an item need not be computed: it equals an earlier one, or its answer is kept."""
        assert self._memory is not None
        if name in self._first:
            self._again[index] = name
            if name in self._like:
                self._like[name].append((index, item))
        else:
            found = self._memory.recall(name)
            if found is None:
                self._first[name] = index
                self._like[name] = []
                return False
            self.answers[index] = found[0]
        self.recalled += 1
        self._say_progress()
        return True

    def _answer_pending(self) -> None:
        pending, self._pending = self._pending, []
        if not pending:
            return
        names = [name for _, _, name in pending if name is not None]
        mine = self._memory.claim(names) if self._memory is not None and names else set()
        try:
            self._answer([one for one in pending if one[2] is None or one[2] in mine])
        finally:
            if self._memory is not None and mine:
                self._memory.settle(mine)
        self._answer_others([one for one in pending if one[2] is not None and one[2] not in mine])

    def _answer_others(self, pending: list[_Pending]) -> None:
        """Items another thread has: what it kept is used, and what it gave up is computed here after all."""
        for one in pending:
            index, _, name = one
            assert self._memory is not None
            assert name is not None  # for mypy: only named ones are here
            found = self._memory.recall(name, waiting=True)
            if found is not None:
                self.recalled += 1
                self.answers[index] = found[0]
            else:
                self._answer([one])

    def _answer(self, pending: list[_Pending]) -> None:
        if not pending:
            return
        pending, more = self._as_named(pending)
        first, last = pending[0][0], pending[-1][0]
        self.place = f"at item {first}" if first == last else f"at items {first} to {last}"
        try:
            if self._begins is not None:
                self._begins([index for index, _, _ in pending])
            if self._batch is None:
                answers = [self._call(pending[0][1])]
            else:
                answers = self._checked(self._call([item for _, item, _ in pending]), len(pending))
        except Partly as partly:
            self._answered([(pending[at], answer) for at, answer in partly.answers.items()])
            self.failed += len(partly.failed)
            first, last = pending[partly.failed[0]][0], pending[partly.failed[-1]][0]
            self.place = f"at item {first}" if first == last else f"at items {first} to {last}"
            raise partly.error from None
        except BaseException:
            self.failed += len(pending)
            raise
        self._answered(list(zip(pending, answers, strict=True)))
        self.place = ""
        self._say_progress()
        for one in more:
            self._answer([one])

    def _as_named(self, pending: list[_Pending]) -> tuple[list[_Pending], list[_Pending]]:
        """The items, without a name where they are not what they were named; and those that were like these."""
        named = [(name, item) for _, item, name in pending if name is not None]
        changed = self._memory.changed(named) if self._memory is not None and named else set()
        more: list[_Pending] = []
        for name, _ in named:
            like = self._like.pop(name, [])
            if name in changed:
                self._first.pop(name, None)
                more += [(index, item, None) for index, item in like if self._again.pop(index, None)]
        self.recalled -= len(more)
        return [(index, item, None if name in changed else name) for index, item, name in pending], more

    def _answered(self, pairs: list[tuple[_Pending, Any]]) -> None:
        for (index, item, name), answer in pairs:
            kept = self._memory.keep(name, answer, item) if self._memory is not None and name is not None else answer
            self.answers[index] = kept
        self.ran += len(pairs)

    def _checked(self, answers: Any, asked: int) -> list[Any]:
        try:
            given = list(answers)
        except TypeError:
            raise NoItems(
                f"node {self._node!r} was given {asked} items at once and answered with {type(answers).__name__}; "
                "it has to answer with as many"
            ) from None
        if len(given) != asked:
            raise NoItems(f"node {self._node!r} was given {asked} items at once and answered with {len(given)}")
        return given

    def _repeated(self, name: str) -> Any:
        assert self._memory is not None
        found = self._memory.recall(name)
        return found[0] if found is not None else self._memory.cache.copied(self.answers[self._first[name]])

    def _say_progress(self) -> None:
        if self._progress is not None:
            self._progress(self.ran + self.recalled, self._total)


def _refuse_parts(node: str, given: Any) -> None:
    """Raises `NoItems` for iterables whose elements are hardly meant as items, such as a text."""
    if isinstance(given, str | bytes | bytearray):
        parts = "characters" if isinstance(given, str) else "bytes, each a number"
        cure = f"[it] to go through one {type(given).__name__}, or list(it) to go through these"
    elif isinstance(given, Mapping):
        parts, cure = "keys", "list(it.values()) or list(it.items()), or list(it) to go through these"
    elif type(given).__name__ == "DataFrame" and hasattr(given, "columns"):
        parts, cure = "columns", "a list of its rows, or list(it) to go through these"
    else:
        return
    what = type(given).__name__
    raise NoItems(f"node {node!r} is mapped and was given a {what}, whose items would be its {parts}: give {cure}")


_AT_ONCE = 16
"""The number of items sent to a worker in one message, if not batched."""

_ROUNDS = 4
"""Messages per worker for which items are gathered before any is sent."""


class Dealing:
    """Deals items to one, or several, workers; each takes the next few when it is done with those before."""

    def __init__(self, trips: Trips, number: int, batch: int | None, *, exact: bool = False) -> None:
        """With `exact`, batches are never split, so that they are the same as without workers."""
        self._exact = exact and batch is not None
        self._places: Sequence[int] = ()
        self._trips = trips
        self._number = number
        self._at_once = batch or _AT_ONCE
        self._width = trips.width(number)
        self.window = self._at_once * _ROUNDS * self._width
        """The number of items looked up at once."""

    def begins(self, places: Sequence[int]) -> None:
        """Note the positions of the items that are asked for next."""
        self._places = places

    def answers(self, items: list[Any]) -> list[Any]:
        """The answers in the order of the items. Raises `Partly` where one fails, with those there are."""
        size = self._at_once
        if self._width > 1 and not self._exact:  # so that each worker has some
            size = max(1, min(size, -(-len(items) // self._width)))
        starts = deque(range(0, len(items), size))
        found: dict[int, Landed | BaseException] = {}
        stop = threading.Event()

        def deal(at: int) -> None:
            while starts and not stop.is_set():
                try:
                    start = starts.popleft()
                except IndexError:
                    return
                try:
                    sent = slice(start, start + size)
                    found[start] = self._trips.go_with_items(self._number, items[sent], self._places[sent], at)
                except BaseException as error:
                    found[start] = error
                landed = found[start]
                if isinstance(landed, BaseException) or landed.error is not None:
                    stop.set()

        helpers = [
            threading.Thread(target=contextvars.copy_context().run, args=(deal, at), daemon=True)
            for at in range(1, min(self._width, len(starts)))
        ]
        for helper in helpers:
            helper.start()
        deal(0)
        for helper in helpers:
            helper.join()
        return self._put_together(found, items, size)

    def _put_together(self, found: dict[int, Landed | BaseException], items: list[Any], size: int) -> list[Any]:
        answers: dict[int, Any] = {}
        first: tuple[BaseException, list[int]] | None = None
        for start in sorted(found):
            landed = found[start]
            if isinstance(landed, BaseException):
                first = first or (landed, list(range(start, min(start + size, len(items)))))
                continue
            done = landed.done or []
            answers.update(enumerate(done, start))
            if landed.error is not None and first is None:
                at = start + len(done)
                first = landed.error, list(range(at, min(at + landed.failed, len(items))))
        if first is not None:
            raise Partly(first[0], answers, first[1])
        return [answers[at] for at in range(len(items))]

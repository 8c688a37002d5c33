"""A mapped node goes through its items: one by one, or by so many at once; what is kept of an item is not made again.

Items may come from a generator, and are not held: only the answers are, and up to one batch of items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from somatize.errors import NoItems


class Memory(Protocol):
    """What is kept of single items; names are texts."""

    def name(self, item: Any) -> str | None:
        """What the answer to an item is called; None where it cannot be named."""

    def claim(self, names: list[str]) -> set[str]:
        """Those of the names that are the caller's to compute."""

    def settle(self, names: set[str]) -> None:
        """They are computed, or given up."""

    def recall(self, name: str, *, waiting: bool = False) -> tuple[Any] | None:
        """The answer kept under a name, alone in a tuple; with `waiting`, after whoever computes it just now."""

    def changed(self, items: list[tuple[str, Any]]) -> set[str]:
        """Those of the names whose items, given beside them, are not what they were named any more."""

    def keep(self, name: str, answer: Any, item: Any) -> Any:
        """Write an answer down; gives what is to be handed on."""

    def copied(self, answer: Any) -> Any:
        """An answer for an item that is like another one, of its own."""


_Pending: TypeAlias = tuple[int, Any, str | None]
"""An item to be answered: its place, itself, and its name."""


class Partly(Exception):
    """Some of the items asked for at once were answered before `error`: `answers` by their place among them."""

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
        memory: Memory | None,
        progress: Callable[[int, int | None], None] | None,
        begins: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        """`begins` is called before each `call`, with the places of the items it gets."""
        self.items = self.ran = self.recalled = self.failed = 0
        self.answers: list[Any] = []
        self.place = ""
        """Which items the node was at, for the note on what it raised."""
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
        """The answers in the order of the items. Raises what the node raises, with the counts as far as it came."""
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
        """Whether an item need not be made: it is like one before, or its answer is kept."""
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
        return found[0] if found is not None else self._memory.copied(self.answers[self._first[name]])

    def _say_progress(self) -> None:
        if self._progress is not None:
            self._progress(self.ran + self.recalled, self._total)


def _refuse_parts(node: str, given: Any) -> None:
    """Raises `NoItems` for what can be iterated, and whose parts hardly anybody means as items."""
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

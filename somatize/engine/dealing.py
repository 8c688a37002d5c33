"""The items of a mapped node dealt out from here to the workers of its host, a few at a time, and their order kept."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .elsewhere import Landed
from .mapped import Partly

if TYPE_CHECKING:
    from .trips import Trips

_AT_ONCE = 16
"""Items that go to a worker in one message, where they are not asked for in batches."""

_ROUNDS = 4
"""Messages per worker for which items are gathered before any is sent."""


class Dealing:
    """Deals items to one, or several, workers; each takes the next few when it is done with those before."""

    def __init__(self, trips: Trips, number: int, batch: int | None, *, exact: bool = False) -> None:
        """With `exact`, a batch is never split, so that each is the one that it would be here."""
        self._exact = exact and batch is not None
        self._places: Sequence[int] = ()
        self._trips = trips
        self._number = number
        self._at_once = batch or _AT_ONCE
        self._width = trips.width(number)
        self.window = self._at_once * _ROUNDS * self._width
        """How many items are asked for at once."""

    def begins(self, places: Sequence[int]) -> None:
        """Say the places of the items that are asked for next."""
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

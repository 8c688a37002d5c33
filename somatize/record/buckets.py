"""A curve that grows, kept in a fixed number of buckets: however long the run, it takes the same memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

CAPACITY = 1024
_NONE = math.nan


class Buckets:
    """The lowest and the highest number of each stretch of forwards; the stretches widen as the run grows.

    A bucket is `width` forwards. One in which nothing was said has `nan`s.
    """

    def __init__(self, highest: int = -1) -> None:
        """Begin empty; `highest` is the last forward that is known of, so that nothing need be widened for it."""
        self.width = 1
        while highest >= CAPACITY * self.width:
            self.width *= 2
        self.low = array("d", [_NONE]) * CAPACITY
        self.high = array("d", [_NONE]) * CAPACITY

    def put(self, forward: int, value: float) -> None:
        """A number was said in a forward. One that is not finite leaves no trace."""
        if value - value != 0.0:
            return
        while forward >= CAPACITY * self.width:
            self._widen()
        at = forward // self.width
        self._join(at, value, value)

    def extend(self, forwards: Sequence[int], values: Sequence[float]) -> None:
        """Several at once, as a stored column has them; quick where the forwards follow one another."""
        if not (isinstance(forwards, range) and len(forwards) and forwards.step == 1) or not _finite(values):
            for forward, value in zip(forwards, values, strict=True):
                self.put(forward, value)
            return
        while forwards[-1] >= CAPACITY * self.width:
            self._widen()
        first, width = forwards[0], self.width
        for at in range(first // width, forwards[-1] // width + 1):
            some = values[max(0, at * width - first) : (at + 1) * width - first]
            self._join(at, min(some), max(some))

    def _join(self, at: int, low: float, high: float) -> None:
        if not self.low[at] <= low:
            self.low[at] = low
        if not self.high[at] >= high:
            self.high[at] = high

    def _widen(self) -> None:
        """Two buckets become one."""
        low, high = self.low, self.high
        for at in range(CAPACITY // 2):
            low[at] = _least(low[2 * at], low[2 * at + 1])
            high[at] = -_least(-high[2 * at], -high[2 * at + 1])
        rest = array("d", [_NONE]) * (CAPACITY // 2)
        low[CAPACITY // 2 :] = rest
        high[CAPACITY // 2 :] = rest
        self.width *= 2

    def extents(self) -> list[tuple[int, float, float]]:
        """The first forward of each bucket in which something was said, its lowest and its highest number."""
        pairs = zip(self.low, self.high, strict=True)
        return [(at * self.width, low, high) for at, (low, high) in enumerate(pairs) if low == low]


def _least(one: float, other: float) -> float:
    return other if one != one or other < one else one


def _finite(values: Sequence[float]) -> bool:
    total = sum(values)
    return total - total == 0.0

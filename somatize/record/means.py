"""A centred rolling mean that stays within what was measured."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

_FEWEST, _SOME = 32, 16


class RollingMean:
    """Means of windows of `window` numbers, each centred on its place and shrinking towards both ends.

    No mean lies outside of the numbers it is made of, rounding and overflow notwithstanding. Made once in time linear
    in `numbers`; a mean then costs little however wide the window.
    """

    def __init__(self, numbers: Sequence[float], window: int) -> None:
        self._numbers = numbers if isinstance(numbers, array) else array("d", numbers)
        self._half = max(0, window // 2)
        # Blocks of about the root of a window: so few of them, and so few numbers beside them, make one.
        size = self._block = max(_FEWEST, math.isqrt(window))
        blocks = [self._numbers[at : at + size] for at in self._starts()] if self._half > 2 * size else []
        self._sums = array("d", map(_total, blocks))

    def _starts(self) -> range:
        return range(0, len(self._numbers) - self._block + 1, self._block)

    def at(self, place: int) -> float:
        """The mean around the number at `place`."""
        half = min(self._half, place, len(self._numbers) - 1 - place)
        low, high = place - half, place + half + 1
        count = high - low
        numbers = self._numbers
        mean = _total(self._sums_over(low, high)) / count
        if mean - mean != 0.0:  # the sum is beyond a float, the mean is not
            mean = math.fsum([number / count for number in numbers[low:high]])
        # Only rounding can take it out of the numbers, and hardly ever does: a few of them show that it did not.
        some = numbers[low : high : 1 + count // _SOME]
        some.append(numbers[high - 1])
        if min(some) <= mean <= max(some):
            return mean
        window = numbers[low:high]
        return min(max(mean, min(window)), max(window))

    def _sums_over(self, low: int, high: int) -> array[float]:
        """What a window has in all: the sums of whole blocks, and the numbers at its ends."""
        size = self._block
        if not self._sums or high - low < 3 * size:
            return self._numbers[low:high]
        first, end = -(-low // size), high // size
        return self._sums[first:end] + self._numbers[low : first * size] + self._numbers[end * size : high]


def _total(numbers: array[float]) -> float:
    """Their sum; infinite where it is beyond a float."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return math.inf

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
        numbers, size = self._numbers, self._block
        half = min(self._half, place, len(numbers) - 1 - place)
        low, high = place - half, place + half + 1
        if self._sums and high - low >= 3 * size:  # the sums of whole blocks, and the numbers at the ends
            first, end = -(-low // size), high // size
            window = self._sums[first:end] + numbers[low : first * size] + numbers[end * size : high]
        else:
            window = numbers[low:high]
        mean = _total(window) / (high - low)
        # Only rounding can take it out of the numbers, and hardly ever does: two of them show that it did not.
        one, other = numbers[low], numbers[high - 1]
        if one <= mean <= other or other <= mean <= one:
            return mean
        return self._within(mean, low, high)

    def _within(self, mean: float, low: int, high: int) -> float:
        """A mean that may lie outside of its numbers, put back."""
        numbers = self._numbers
        if mean - mean != 0.0:  # the sum is beyond a float, the mean is not
            mean = math.fsum([number / (high - low) for number in numbers[low:high]])
        some = numbers[low : high : 1 + (high - low) // _SOME]
        if min(some) <= mean <= max(some):
            return mean
        window = numbers[low:high]
        return min(max(mean, min(window)), max(window))


def _total(numbers: array[float]) -> float:
    """Their sum; infinite where it is beyond a float."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return math.inf

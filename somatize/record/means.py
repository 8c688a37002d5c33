"""A centred rolling mean that stays within what was measured, and where such a mean says something."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

_FEWEST, _SOME = 32, 16
_PAIRS = 4096


class RollingMean:
    """Means of windows of `window` numbers, each centred on its place.

    The windows at `first` to `last` are whole. Nearer to an end a window is cut off there, and its mean an estimate.

    No mean lies outside of the numbers it is made of, rounding and overflow notwithstanding. Made once in time linear
    in `numbers`; a mean then costs little however wide the window.
    """

    def __init__(self, numbers: Sequence[float], window: int) -> None:
        self._numbers = numbers if isinstance(numbers, array) else array("d", numbers)
        self._half = max(0, window // 2)
        self.first = self._half
        self.last = len(self._numbers) - 1 - self._half
        # Blocks of about the root of a window: so few of them, and so few numbers beside them, make one.
        size = self._block = max(_FEWEST, math.isqrt(window))
        blocks = [self._numbers[at : at + size] for at in self._starts()] if self._half > 2 * size else []
        self._sums = array("d", map(_total, blocks))

    def _starts(self) -> range:
        return range(0, len(self._numbers) - self._block + 1, self._block)

    def at(self, place: int) -> float:
        """The mean around the number at `place`."""
        numbers, size = self._numbers, self._block
        low, high = max(0, place - self._half), min(len(numbers), place + self._half + 1)
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


def is_stepped(numbers: Sequence[float]) -> bool:
    """Whether a series holds each of few values for a while, as a learning rate or an epoch does.

    That is so where at most a quarter of the numbers differ from the one before; a long series is sampled.
    """
    pairs = range(1, len(numbers), max(1, len(numbers) // _PAIRS))
    changes = sum(numbers[place] != numbers[place - 1] for place in pairs)
    return len(numbers) > 1 and changes <= len(pairs) // 4


def _total(numbers: array[float]) -> float:
    """Their sum; infinite where it is beyond a float."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return math.inf

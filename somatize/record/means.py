"""A centred rolling mean that stays within what was measured."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

_BLOCK = 256


class RollingMean:
    """Means of windows of `window` numbers, each centred on its place and shrinking towards both ends.

    No mean lies outside of the numbers it is made of, rounding and overflow notwithstanding. Made once in time linear
    in `numbers`; a mean then costs little however wide the window.
    """

    def __init__(self, numbers: Sequence[float], window: int) -> None:
        self._numbers = numbers if isinstance(numbers, array) else array("d", numbers)
        self._half = max(0, window // 2)
        blocks = [self._numbers[at : at + _BLOCK] for at in self._starts()] if self._half > 2 * _BLOCK else []
        self._sums, self._lows, self._highs = (array("d", map(of, blocks)) for of in (_total, min, max))

    def _starts(self) -> range:
        return range(0, len(self._numbers) - _BLOCK + 1, _BLOCK)

    def at(self, place: int) -> float:
        """The mean around the number at `place`."""
        half = min(self._half, place, len(self._numbers) - 1 - place)
        low, high = place - half, place + half + 1
        count = high - low
        total, lowest, highest = self._over(low, high)
        mean = total / count
        if mean - mean != 0.0:  # the sum is beyond a float, the mean is not
            mean = math.fsum([number / count for number in self._numbers[low:high]])
        return min(max(mean, lowest), highest)

    def _over(self, low: int, high: int) -> tuple[float, float, float]:
        """Sum, lowest and highest of a window: of whole blocks, and of the numbers at its ends."""
        if not self._sums or high - low < 3 * _BLOCK:
            numbers = self._numbers[low:high]
            return _total(numbers), min(numbers), max(numbers)
        first, end = -(-low // _BLOCK), high // _BLOCK
        rest = self._numbers[low : first * _BLOCK] + self._numbers[end * _BLOCK : high]
        return (
            _total(self._sums[first:end] + rest),
            min(self._lows[first:end] + rest),
            max(self._highs[first:end] + rest),
        )


def _total(numbers: array[float]) -> float:
    """Their sum; infinite where it is beyond a float."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return math.inf

"""A centred rolling mean that stays within what was measured."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

_BLOCK = 128
_Sum: TypeAlias = tuple[float, float, float]


class RollingMean:
    """Means of windows of `window` numbers, each centred on its place and shrinking towards both ends.

    No mean lies outside of the numbers it is made of, rounding and overflow notwithstanding. Made once in time linear
    in `numbers`; a mean then costs little however wide the window.
    """

    def __init__(self, numbers: Sequence[float], window: int) -> None:
        self._numbers = numbers if isinstance(numbers, array) else array("d", numbers)
        self._half = max(0, window // 2)
        wide = self._half > _BLOCK
        self._blocks = [_summed(self._numbers[at : at + _BLOCK]) for at in self._starts()] if wide else []

    def _starts(self) -> range:
        return range(0, len(self._numbers) - _BLOCK + 1, _BLOCK)

    def at(self, place: int) -> float:
        """The mean around the number at `place`."""
        half = min(self._half, place, len(self._numbers) - 1 - place)
        low, high = place - half, place + half + 1
        total, lowest, highest = _together(self._parts(low, high))
        count = high - low
        mean = total / count
        if mean - mean != 0.0:  # the sum is beyond a float, the mean is not
            mean = math.fsum([number / count for number in self._numbers[low:high]])
        return min(max(mean, lowest), highest)

    def _parts(self, low: int, high: int) -> list[_Sum]:
        if not self._blocks or high - low < 3 * _BLOCK:
            return [_summed(self._numbers[low:high])]
        first, end = -(-low // _BLOCK), high // _BLOCK
        ends = (self._numbers[low : first * _BLOCK], self._numbers[end * _BLOCK : high])
        return [*self._blocks[first:end], *(_summed(part) for part in ends if part)]


def _summed(numbers: array[float]) -> _Sum:
    """The sum of numbers, the lowest and the highest of them."""
    return _total(numbers), min(numbers), max(numbers)


def _together(parts: Sequence[_Sum]) -> _Sum:
    return _total(part[0] for part in parts), min(part[1] for part in parts), max(part[2] for part in parts)


def _total(numbers: Iterable[float]) -> float:
    """Their sum; infinite where it is beyond a float."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return math.inf

"""The smoothed lines of a figure: which series have one, over how many numbers, and where it is drawn."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from .columns import NUMBER, Series
from .downsample import without
from .means import RollingMean, is_stepped

if TYPE_CHECKING:
    from .strokes import Stretch


class Smoothing:
    """Over how many numbers the means of a figure are taken: `over`, 0 for no mean, None for a twentieth of a series.

    With None, a series that holds each of its values for a while has no mean. A figure of a part of what another shows
    has means of the same series as that; `like` is the other's. Where it is `live`, a mean goes on to the end of its
    series, as an estimate.
    """

    def __init__(self, over: int | None = None, like: Smoothing | None = None, *, live: bool = False) -> None:
        self.live = live
        self._over = over
        self._is_smoothed: dict[Hashable, bool] = {} if like is None else like._is_smoothed

    def means(self, key: Hashable, series: Series, stretches: Sequence[Stretch]) -> list[RollingMeans] | None:
        """Those of each stretch of a series, which `key` tells from the others of the figure; None for no mean."""
        if self._over == 0:
            return None
        means = [RollingMeans(one, self._window(series)) for one in stretches]
        if self._over is not None or self._is_smoothed.setdefault(key, not _is_stepped(means)):
            return means
        return None

    def _window(self, series: Series) -> int:
        """Odd, so that it has a middle."""
        wanted = series.kinds.count(NUMBER) // 20 if self._over is None else self._over
        return max(1, wanted) | 1


class RollingMeans:
    """The rolling mean over the numbers of a stretch, gaps left out of it."""

    def __init__(self, stretch: Stretch, window: int) -> None:
        self.stretch = stretch
        self.numbers = without(stretch.values, stretch.gaps)
        self._mean = RollingMean(self.numbers, window)

    def places(self) -> list[int]:
        """Where the mean is drawn: where windows are whole, every place, or every other one of a condensed stretch."""
        first, last = self._mean.first, self._mean.last
        if first > last:
            return []
        return self._within(self._drawn(), first, last) if first else list(self._drawn())

    def tail(self) -> list[int]:
        """The places from the last whole window on, of those that are drawn."""
        mean, end = self._mean, len(self.numbers) - 1
        return self._within(self.stretch.places, max(0, mean.last), end) if mean.last < end and end >= 0 else []

    def _within(self, places: Sequence[int], first: int, last: int) -> list[int]:
        """Those from the `first` number to the `last`, both counted without gaps, and these two among them."""
        low, high = self._place_of(first), self._place_of(last)
        return sorted({low, high, *places[bisect_left(places, low) : bisect_left(places, high)]})

    def _place_of(self, number: int) -> int:
        """Where in the stretch that number stands, gaps counted."""
        gaps = self.stretch.gaps
        return number + bisect_left(range(len(gaps)), number + 1, key=lambda at: gaps[at] - at)

    def _drawn(self) -> list[int]:
        places, values = self.stretch.places, self.stretch.values
        if len(places) == len(values):
            return places
        there = [values[at] == values[at] for at in places]
        beside = zip([False, *there], there, [*there[1:], False], strict=False)
        return [at for order, (at, near) in enumerate(zip(places, beside, strict=True)) if order % 2 or not all(near)]

    def of(self, places: Sequence[int]) -> list[float | None]:
        """The mean at each place; None in a gap."""
        gaps, mean, values = self.stretch.gaps, self._mean, self.stretch.values
        return [mean.at(at - bisect_left(gaps, at)) if values[at] == values[at] else None for at in places]


def _is_stepped(means: Sequence[RollingMeans]) -> bool:
    if len(means) == 1:
        return is_stepped(means[0].numbers)
    return is_stepped(array("d", chain.from_iterable(one.numbers for one in means)))

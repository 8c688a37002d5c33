"""Many points to few, so that the picture stays the same: which rows of a column are worth drawing."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

PER_BUCKET = 4
"""How many points a bucket keeps: its first, its lowest, its highest, its last."""


def kept(values: array[float], buckets: int, also: Iterable[int] = ()) -> list[int]:
    """The rows of `values` to draw, in order: all of them where few, else up to four for each of `buckets` stretches.

    Kept are the first and the last number and the lowest and the highest of every stretch, so every extreme is
    there; the rows in `also`; and between kept numbers with a gap (NaN) between them one row of that gap, so that
    a line over the rows breaks where the column does. Gaps at the ends are left out.
    """
    size = len(values)
    if size <= PER_BUCKET * buckets:
        return list(range(size))
    rows = set(also)
    for bucket in range(buckets):
        rows.update(_of_stretch(values, size * bucket // buckets, size * (bucket + 1) // buckets))
    return _with_gaps(values, sorted(rows))


def _of_stretch(values: array[float], low: int, high: int) -> tuple[int, ...]:
    stretch = values[low:high]
    total = sum(stretch)
    if total - total == 0.0:  # a finite sum has no NaN in it
        return low, low + stretch.index(min(stretch)), low + stretch.index(max(stretch)), high - 1
    rows = [low + place for place, value in enumerate(stretch) if value == value]
    if not rows:
        return ()
    lowest, highest = min(rows, key=values.__getitem__), max(rows, key=values.__getitem__)
    return rows[0], lowest, highest, rows[-1]


def _with_gaps(values: Sequence[float], chosen: list[int]) -> list[int]:
    """`chosen`, and one row of a gap between each two numbers that have one between them."""
    total = sum(values)
    if not chosen or total - total == 0.0:
        return chosen
    gaps = list(accumulate((value != value for value in values), initial=0))
    rows = [chosen[0]]
    for row in chosen[1:]:
        before = rows[-1]
        if values[before] == values[before] and values[row] == values[row] and gaps[row] > gaps[before + 1]:
            rows.append(next(gap for gap in range(before + 1, row) if values[gap] != values[gap]))
        rows.append(row)
    return rows

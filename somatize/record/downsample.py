"""Many points to few, so that the picture stays the same: which rows of a column are worth drawing."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

_AT_ONCE = 512
PER_BUCKET = 4
"""How many points a bucket keeps: its first, its lowest, its highest, its last."""


def kept(values: array[float], buckets: int, also: Iterable[int] = (), gaps: Sequence[int] | None = None) -> list[int]:
    """The rows of `values` to draw, in order: all of them where few, else up to four for each of `buckets` stretches.

    Kept are the first and the last number and the lowest and the highest of every stretch, so every extreme is
    there; the rows in `also`; and between kept numbers with a gap (NaN) between them one row of that gap, so that
    a line over the rows breaks where the column does. Gaps at the ends are left out. `gaps` are those of `values`,
    where they are known.
    """
    size = len(values)
    if size <= PER_BUCKET * buckets:
        return list(range(size))
    found = gaps_of(values) if gaps is None else gaps
    rows = set(also)
    for bucket in range(buckets):
        low, high = size * bucket // buckets, size * (bucket + 1) // buckets
        rows.update(_of_stretch(values, low, high, bisect_left(found, high) - bisect_left(found, low)))
    return _with_gaps(values, sorted(rows), found)


def gaps_of(values: array[float]) -> list[int]:
    """The rows that hold no number, in order."""
    found: list[int] = []
    for at in range(0, len(values), _AT_ONCE):
        stretch = values[at : at + _AT_ONCE]
        total = sum(stretch)
        if total - total != 0.0:  # a finite sum has no NaN in it
            found += [at + place for place, value in enumerate(stretch) if value != value]
    return found


def without(values: array[float], gaps: list[int]) -> array[float]:
    """The numbers of `values`, given where it holds none."""
    numbers, start = array("d"), 0
    for gap in gaps:
        numbers += values[start:gap]
        start = gap + 1
    return numbers + values[start:] if gaps else values


def _of_stretch(values: array[float], low: int, high: int, gaps: int) -> tuple[int, ...]:
    # As a list: each number is made an object once, and not for each of the ways through them.
    stretch = values[low:high].tolist()
    if not gaps:
        return low, low + stretch.index(min(stretch)), low + stretch.index(max(stretch)), high - 1
    rows = [low + place for place, value in enumerate(stretch) if value == value]
    if not rows:
        return ()
    lowest, highest = min(rows, key=values.__getitem__), max(rows, key=values.__getitem__)
    return rows[0], lowest, highest, rows[-1]


def _with_gaps(values: array[float], chosen: list[int], gaps: Sequence[int]) -> list[int]:
    """`chosen`, and one row of a gap between each two numbers that have one between them."""
    if not gaps or not chosen:
        return chosen
    rows = [chosen[0]]
    for row in chosen[1:]:
        before = rows[-1]
        following = bisect_right(gaps, before)
        if values[before] == values[before] and following < len(gaps) and gaps[following] < row:
            rows.append(gaps[following])
        rows.append(row)
    return rows

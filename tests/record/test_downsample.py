"""Many points to few: what must be kept is."""

import math
import sys
from array import array
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from somatize.record.traces import PER_BUCKET, RollingMean, RollingMeans, TraceSegment, downsampled, gaps_of, is_stepped

numbers = st.floats(allow_infinity=False, allow_nan=False)
columns = st.lists(numbers | st.just(math.nan), max_size=400).map(lambda values: array("d", values))


def is_gap(value):
    return value != value


@given(columns, st.integers(1, 20))
def test_what_is_kept(values, buckets):
    rows = downsampled(values, buckets)
    there = [row for row, value in enumerate(values) if not is_gap(value)]
    assert rows == sorted(set(rows))
    assert all(0 <= row < len(values) for row in rows)
    drawn = [values[row] for row in rows if not is_gap(values[row])]
    if there:
        assert {there[0], there[-1]} <= set(rows), "the first and the last number"
        assert (min(drawn), max(drawn)) == (min(values[row] for row in there), max(values[row] for row in there))
    else:
        assert not drawn


@given(columns, st.integers(1, 20))
def test_a_line_breaks_where_there_is_a_gap_and_nowhere_else(values, buckets):
    rows = downsampled(values, buckets)
    numbers_kept = [row for row in rows if not is_gap(values[row])]
    for left, right in pairwise(numbers_kept):
        gap = any(is_gap(value) for value in values[left:right])
        broken = any(left < row < right for row in rows)
        assert gap == broken


@given(columns, st.integers(1, 20))
def test_few_stay_as_they_are_and_many_become_few(values, buckets):
    rows = downsampled(values, buckets)
    if len(values) <= PER_BUCKET * buckets:
        assert rows == list(range(len(values)))
    else:
        assert len(rows) <= 2 * PER_BUCKET * buckets  # with a row for a gap after each


@given(columns, st.integers(1, 20), st.data())
def test_rows_that_are_asked_for_are_kept(values, buckets, data):
    also = data.draw(st.lists(st.integers(0, max(0, len(values) - 1)), max_size=5)) if values else []
    assert set(also) <= set(downsampled(values, buckets, also))


def test_every_stretch_keeps_its_extremes():
    values = array("d", [math.sin(n / 5) + (30 if n == 777 else 0) for n in range(1000)])
    rows = set(downsampled(values, 10))
    for bucket in range(10):
        stretch = range(bucket * 100, bucket * 100 + 100)
        assert {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)} <= rows


@settings(max_examples=60)
@given(st.lists(numbers, min_size=1, max_size=900), st.integers(0, 900))
@example([sys.float_info.max] * 3, 4)
def test_a_rolling_mean_stays_within_its_window(values, window):
    mean = RollingMean(values, window)
    for place in range(0, len(values), 7):
        around = values[max(0, place - window // 2) : place + window // 2 + 1]
        assert min(around) <= mean.at(place) <= max(around)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=900), st.integers(0, 901))
def test_a_rolling_mean_is_the_mean(values, window):
    mean = RollingMean([float(value) for value in values], window)
    for place in range(0, len(values), 5):
        around = values[max(0, place - window // 2) : place + window // 2 + 1]
        assert math.isclose(mean.at(place), math.fsum(around) / len(around), abs_tol=1e-12)


def test_the_windows_of_a_rolling_mean_are_whole_half_a_window_from_its_ends():
    mean = RollingMean([float(n) for n in range(50)], 21)
    assert (mean.first, mean.last) == (10, 39)
    assert (mean.at(10), mean.at(39)) == (10.0, 39.0)
    assert (mean.at(0), mean.at(49)) == (5.0, 44.0), "the half that is there"


@pytest.mark.parametrize(
    ("values", "stepped"),
    [
        ([0.1] * 50 + [0.01] * 50 + [0.001] * 50, True),
        ([n // 50 for n in range(10_000)], True),
        ([n // 4 for n in range(80)], True),
        ([3.0] * 20, True),
        ([7.0], False),
        ([], False),
        ([n / 100 for n in range(100)], False),
        ([n % 2 for n in range(1000)], False),
        ([n * n % 7 for n in range(30_000)], False),
    ],
    ids=["lr", "epoch", "short", "constant", "one", "none", "ramp", "right or wrong", "noise"],
)
def test_a_series_that_holds_its_values_is_told_from_one_that_is_noisy(values, stepped):
    assert is_stepped(array("d", values)) is stepped


def test_a_rolling_mean_of_numbers_whose_sum_is_beyond_a_float():
    assert RollingMean([1.7e308] * 9, 5).at(4) == 1.7e308
    assert RollingMean([1.7e308, 1e308, 1.5e308], 3).at(1) == pytest.approx(1.4e308)


@settings(max_examples=150)
@given(
    st.lists(st.one_of(st.integers(-9, 9).map(float), st.just(math.nan)), max_size=300),
    st.integers(0, 90),
    st.integers(1, 9),
)
def test_a_mean_is_drawn_where_its_windows_are_whole_and_its_tail_to_the_last_number(values, window, buckets):
    column = array("d", values)
    gaps = gaps_of(column)
    means = RollingMeans(
        TraceSegment(range(len(column)), column, downsampled(column, buckets, gaps=gaps), gaps), window
    )
    there = [place for place, value in enumerate(values) if value == value]
    half, order = window // 2, {place: number for number, place in enumerate(there)}
    whole = there[half : len(there) - half] if len(there) > 2 * half else []
    drawn = means.places()
    assert drawn == sorted(set(drawn))
    numbers = [place for place in drawn if place in order]
    assert (numbers[:1], numbers[-1:]) == (whole[:1], whole[-1:])
    assert all(place in whole for place in numbers)
    for place, mean in zip(drawn, means.of(drawn), strict=True):
        around = [values[at] for at in there[max(0, order.get(place, 0) - half) :][: 2 * half + 1]]
        assert mean is None if place not in order else math.isclose(mean, sum(around) / len(around), abs_tol=1e-9)
    tail = means.tail()
    if half and there:
        assert tail[-1] == there[-1]
        assert tail[0] == there[max(0, len(there) - 1 - half)]
    else:
        assert tail == []

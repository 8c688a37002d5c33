"""Numbers as people read them, at the places where they change their unit and beyond what makes sense."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from somatize.figures.theme import share
from somatize.utils.units import count, duration, rate, scaled


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1e-12, "0 µs"), (2e-7, "0.2 µs"), (1.25e-5, "12.5 µs"),
        (0, "0 µs"), (850e-6, "850 µs"), (0.9996e-3, "1 ms"), (0.9996, "1 s"), (59.94, "59.9 s"), (59.96, "1:00"),
        (3599.6, "1:00:00"), (86399.6, "1 d 00:00"), (12345 * 86400, "12,345 d 00:00"),
        (-1, "-1 s"), (-0.0005, "-500 µs"), (1e300, "1e+300 s"), (math.nan, "-"), (-math.inf, "-"),
    ],
)  # fmt: skip
def test_a_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"), (1_234_567, "1,234,567"), (2**53 + 1, "9,007,199,254,740,993"), (0.5, "0.5"), (12.345, "12.3"),
        (999.6, "1,000"), (1234.5, "1,234"), (-1234.5, "-1,234"), (math.nan, "nan"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_a_count(number: float, words: str) -> None:
    assert count(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 B"), (999.4, "999 B"), (999.6, "1 kB"), (999_600, "1 MB"), (-5e6, "-5 MB"), (3e18, "3 EB"),
        (math.nan, "nan B"),
    ],
)  # fmt: skip
def test_a_number_with_its_unit(number: float, words: str) -> None:
    assert scaled(number, "B") == words


def test_what_is_slower_than_one_a_second_is_said_by_how_long_one_takes() -> None:
    assert [rate(speed) for speed in (12.3, 0.25, 1e-4, 0)] == ["12.3/s", "4 s each", "2:46:40 each", "0/s"]


@given(st.floats(0, 1), st.integers(0, 3))
def test_a_share_is_none_or_all_only_where_it_is(part: float, digits: int) -> None:
    words = share(part, digits)
    assert (float(words.strip("<>%")) == 0) == (part == 0)
    assert (words == f"{100:.{digits}f}%") == (part == 1)
    assert abs(float(words.strip("<>%")) / 100 - part) <= 1.01 * 10.0 ** -(digits + 2)


@pytest.mark.parametrize(
    ("part", "digits", "words"),
    [
        (0, 0, "0%"), (0.004, 0, "<1%"), (0.005, 0, "<1%"), (0.5, 0, "50%"), (0.9949, 0, "99%"), (0.996, 0, ">99%"),
        (1, 0, "100%"), (1, 1, "100.0%"), (0.99996, 1, ">99.9%"), (0.0004, 1, "<0.1%"), (1.2, 0, "120%"),
    ],
)  # fmt: skip
def test_a_share(part: float, digits: int, words: str) -> None:
    assert share(part, digits) == words

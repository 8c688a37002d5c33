"""Values as a table's cell says them: with the unit that fits, and nothing where there is nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache

from somatize.figures.theme import share
from somatize.utils.units import duration, scaled

__all__ = ["ago", "clock", "count", "listed", "number", "share", "size", "took"]

_DAY = 86400.0
_WHOLE = 1e12


@lru_cache
def took(us: float | None) -> str:
    """A duration given in microseconds."""
    return "" if us is None else duration(us / 1e6)


def size(number: float | None) -> str:
    """A size in bytes."""
    return "" if number is None else scaled(number, "B")


def count(number: float | None) -> str:
    """A whole number, nothing for zero: in a column of counts, what is there is to be seen."""
    return f"{number:,.0f}" if number else ""


def clock(when: float | None) -> str:
    """An instant in the time of this machine: the hour of what is less than a day old, the date of what is older."""
    return "" if when is None else _clock(int(when), int(time.time()))


@lru_cache
def _clock(when: int, now: int) -> str:
    there = time.localtime(when)
    return time.strftime("%H:%M:%S" if 0 <= now - when < _DAY else "%Y-%m-%d %H:%M", there)


def ago(when: float | None) -> str:
    """How long ago an instant was, in one unit."""
    if when is None:
        return ""
    seconds = max(0.0, time.time() - when)
    for size, unit in ((_DAY, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def number(said: object) -> str:
    """A number, or the text of one, in five digits; what is no number as it is."""
    if said is None:
        return ""
    try:
        value = float(str(said))
    except ValueError:
        return str(said)
    return f"{value:,.0f}" if value.is_integer() and abs(value) < _WHOLE else f"{value:#.5g}"


def listed(words: Iterable[object]) -> str:
    """Several words in one cell."""
    return ", ".join(map(str, words))

"""Numbers as people read them: durations, counts and rates in units that fit."""

from __future__ import annotations

import math

_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_LONGEST = 1e12


def duration(seconds: float, *, words: bool = False) -> str:
    """``850 µs``, ``12.3 ms``, ``4.56 s``; from a minute on ``12:07``, ``3:04:05``, ``2 d 03:04``.

    With `words`, for axes and prose, ``12 min 7 s``, ``3 h 4 min``, ``2 d 3 h``.
    """
    if not math.isfinite(seconds):
        return "-"
    if seconds < 0:
        return f"-{duration(-seconds, words=words)}"
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.3g} µs" if seconds >= 1e-8 else "0 µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < (60 if words else 59.95):
        return f"{seconds:.3g} s"
    whole = round(seconds)
    minutes, hours, days = whole // 60 % 60, whole // 3600 % 24, whole // 86400
    if words:
        parts = ((days, "d"), (hours, "h"), (0 if days else minutes, "min"), (0 if days or hours else whole % 60, "s"))
        return " ".join(f"{part:,} {name}" for part, name in parts if part)
    if seconds > _LONGEST:
        return f"{seconds:.3g} s"
    if days:
        return f"{days:,} d {hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def count(number: float) -> str:
    """A whole number in full, with its thousands apart; another one in three digits, or in all before its point."""
    if not math.isfinite(number):
        return str(number)
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"


def scaled(number: float, unit: str = "") -> str:
    """Three digits and a letter: ``1.23 G``; with a unit, ``1.23 GFLOP/s``."""
    for size, letter in _STEPS:
        if abs(number) >= size * 0.9995:
            return f"{number / size:.3g} {letter}{unit}"
    return f"{number:.3g} {unit}".rstrip()


def rate(per_second: float) -> str:
    """``12.3/s``; slower than one a second, the time that one takes: ``4.5 s each``."""
    if 0 < per_second < 0.9995:
        return f"{duration(1 / per_second)} each"
    return f"{scaled(per_second)}/s"

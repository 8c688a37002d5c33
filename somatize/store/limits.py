"""What a person says of sizes and spans of time, as numbers; and a limit on kept values, held."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from . import kept

if TYPE_CHECKING:
    from .opened import Opened

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kMGTP]?)(i?)B?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_LOOK_AGAIN = 64


def bytes_of(size: int | str) -> int:
    """A size in bytes: a whole number, or a text such as ``"20GB"`` or ``"1.5 GiB"``. Raises ValueError."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None:
        raise ValueError(f"{size!r} is no size; give bytes as a whole number, or a text such as '20GB' or '1.5 GiB'")
    number, power, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[power.lower()])


def seconds_of(span: float | timedelta | None, what: str) -> float | None:
    """A span in seconds, from seconds or a timedelta; None stays None. Raises ValueError."""
    if span is None:
        return None
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"{what}={span!r}: it is a span of time, in seconds or as a timedelta, zero or more")
    return float(seconds)


class Limit:
    """Holds what is kept in a store below so many bytes, the least recently used going first.

    It counts what this process keeps, and looks at the store itself when that passes the limit, and every so often, as
    other processes keep things too.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.RLock()
        self._looking = False
        self._total = most + 1  # not known yet
        self._since = 0

    def kept(self, opened: Opened, size: int) -> None:
        """So many bytes more were kept."""
        self._total += size
        self._since += 1
        if self._total <= self.most and self._since < _LOOK_AGAIN:
            return
        with self._lock:
            if not self._looking:  # else a signal's handler keeps something in the middle of this
                self._looking = True
                try:
                    self._hold(opened)
                finally:
                    self._looking = False

    def _hold(self, opened: Opened) -> None:
        self._since = 0
        self._total = sum(entry.bytes for entry in kept.entries(opened))
        if self._total > self.most:
            gone = kept.forget(
                opened, lambda all: kept.to_prune(all, max_bytes=self.most, older_than=None, unused_for=None)
            )
            self._total -= sum(entry.bytes for entry in gone)

"""When kept values were last used, noted in memory and written in batches: a recall must not wait for the disk."""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from somatize.errors import NotWritten

if TYPE_CHECKING:
    from .environment import Reading, Writing
    from .opened import Opened

_BATCH = 256
_TIME = struct.Struct("<d")


class Used:
    """What was used in this process and is not written down yet: times by the key of a name (without its kind)."""

    def __init__(self) -> None:
        self._times: dict[bytes, float] = {}

    def note(self, opened: Opened, key: bytes) -> None:
        """It is used now."""
        self._times[key] = time.time()
        if len(self._times) % _BATCH == 0:
            with suppress(NotWritten):  # it stays noted, until the disk has room
                self.write(opened)

    def write(self, opened: Opened) -> None:
        """Write down what is noted; where nothing may be written, let it go."""
        times, self._times = self._times, {}  # in one step, so that no lock is needed
        if times and opened.writable:
            try:
                opened.values.write(lambda txn: _put_all(txn, times))
            except BaseException:
                self._times = {**times, **self._times}
                raise

    def noted(self) -> dict[bytes, float]:
        """What is not written down yet."""
        return self._times.copy()


def _put_all(txn: Writing, times: dict[bytes, float]) -> None:
    for key, when in times.items():
        txn.put(b"u" + key, _TIME.pack(when))


def last_used(reading: Reading, key: bytes, default: float) -> float:
    """When a name was last used, as far as that was written down."""
    held = reading.get(b"u" + key)
    return max(default, float(_TIME.unpack(held)[0])) if held is not None and len(held) == _TIME.size else default

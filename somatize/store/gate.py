"""What lets transactions of one process run side by side, and a change of the map, or a fork, alone."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import Any

_LOOKS = 0.0005
"""Seconds between two looks of who waits. Nobody is told: that would take a lock that a signal's handler waits for."""
_INSIDE = nullcontext()


class Gate:
    """Lets transactions of this process run side by side, and a change of the map run alone.

    Each thread has a lock of its own, which it has while it is inside; so that an interrupt leaves it in one step. Of
    whoever is inside a handler of a signal may go in again.
    """

    def __init__(self) -> None:
        self.door = threading.RLock()
        """Held by the one who is to be alone."""
        self._locks: dict[int, Any] = {}
        self._alone: int | None = None

    def one_of_many(self) -> AbstractContextManager[Any]:
        """What is held while one is inside, beside others. It only counts where `lets_in` says so, asked within."""
        me = get_ident()
        mine = self._locks.get(me)
        if mine is None:
            mine = self._locks.setdefault(me, threading.Lock())
        return _INSIDE if mine.locked() else mine

    def lets_in(self, held: AbstractContextManager[Any]) -> bool:
        """Whether who holds that may go on; else it must be let go of, and tried again after `wait`."""
        # Who is inside already passes: it would else wait for itself.
        return self._alone is None or held is _INSIDE or self._alone == get_ident()

    def wait(self) -> None:
        """Wait a moment for whoever is alone."""
        time.sleep(_LOOKS)

    def has_me(self) -> bool:
        """Whether this thread is inside."""
        mine = self._locks.get(get_ident())
        return mine is not None and mine.locked()

    def shut(self, patience: float) -> bool:
        """Let nobody in until `open`, and wait until nobody else is inside; False if that takes too long.

        Call it with the `door` held, and `open` whatever comes of it.
        """
        me, until = get_ident(), time.monotonic() + patience
        self._alone = me
        while self._others(me):
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOKS)
        return not self.has_me()

    def _others(self, me: int) -> bool:
        return any(lock.locked() for thread, lock in list(self._locks.items()) if thread != me)

    def open(self) -> None:
        """Let everybody in again."""
        self._alone = None

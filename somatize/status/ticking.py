"""What is due in a moment, done by one background thread that is there only while something is."""

from __future__ import annotations

import _thread
import os
import weakref
from collections.abc import Callable
from functools import partial
from time import monotonic, sleep
from typing import Any

from somatize.utils.interrupts import Wakeup, start

PACE = 0.1
"""Seconds between two looks at what is due."""

_LINGERS = 5.0
"""Seconds a thread with nothing to do stays, so that a loop of short tasks does not start one for each."""


class Ticker:
    """Calls `tick` again and again from a daemon thread, from `due` on until it answers that nothing is left to do.

    `tick` is a bound method, held weakly: what it belongs to may be dropped meanwhile, and the thread then ends.
    """

    __slots__ = ("__weakref__", "_due", "_living", "_pid", "_tick", "_wake", "stopped")

    def __init__(self, tick: Callable[[], bool]) -> None:
        self._tick = weakref.WeakMethod(tick)
        self.stopped = False
        self.renew()

    def renew(self) -> None:
        """Begin anew, without a thread: in a forked child the parent's is not there."""
        self._living = _thread.allocate_lock()  # taken by the thread as long as it lives
        self._wake = Wakeup()
        self._due = False
        self._pid = os.getpid()

    def due(self) -> None:
        """There is something to do in a moment. Costs nothing while the thread knows already."""
        if self._due or self.stopped or self._pid != os.getpid():
            return
        self._due = True
        self._wake.set()
        if not self._living.locked():
            start(partial(_run, weakref.ref(self)))  # where none can be started, nothing is due any more

    def stop(self) -> None:
        """The thread ends at its next look; nobody waits for it."""
        self.stopped = True
        self._wake.set()

    def look(self) -> bool:
        """One look; returns whether there is more to do. For the thread, and for tests in its place."""
        tick: Any = self._tick()
        return tick is not None and not self.stopped and bool(tick())


def _run(reference: weakref.ref[Ticker]) -> None:
    ticker = reference()
    living = None if ticker is None else ticker._living
    del ticker
    while living is not None and living.acquire(blocking=False):
        try:
            _look_again_and_again(reference)
        finally:
            living.release()
        ticker = reference()
        if ticker is None or ticker.stopped or not ticker._due:
            return
        del ticker  # it was due as the thread ended


def _look_again_and_again(reference: weakref.ref[Ticker]) -> None:
    idle_since = monotonic()
    while True:
        ticker = reference()
        if ticker is None or ticker.stopped:
            return
        wake = ticker._wake
        if ticker.look():
            due, idle_since = True, monotonic()
        else:
            ticker._due = False
            due = ticker._due = ticker.look() or ticker._due  # what came between the look and the clearing
            if not due and monotonic() - idle_since > _LINGERS:
                return
        del ticker
        if due:
            sleep(PACE)
        elif wake.wait(1.0):
            idle_since = monotonic()
            sleep(PACE)

"""What is due in a moment, done by one background thread that is there only while something is."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

PACE = 0.1
"""Seconds between two looks at what is due."""

_LINGERS = 5.0
"""Seconds a thread with nothing to do stays, so that a loop of short tasks does not start one for each."""


class Ticker:
    """Calls `tick` again and again from a daemon thread, from `due` on until it answers that nothing is left to do.

    `tick` is a bound method, held weakly: what it belongs to may be dropped meanwhile, and the thread then ends.
    """

    __slots__ = ("__weakref__", "_lock", "_pid", "_running", "_tick", "_wake", "stopped")

    def __init__(self, tick: Callable[[], bool]) -> None:
        self._tick = weakref.WeakMethod(tick)
        self.stopped = False
        self.renew()

    def renew(self) -> None:
        """Begin anew, without a thread: in a forked child the parent's is not there."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._running = False
        self._pid = os.getpid()

    def due(self) -> None:
        """There is something to do in a moment. Costs nothing while the thread knows already."""
        if self._wake.is_set() or self.stopped or self._pid != os.getpid():
            return
        self._wake.set()
        with self._lock:
            if self._running:
                return
            self._running = True
        try:
            threading.Thread(target=_run, args=(weakref.ref(self),), name="somatize-status", daemon=True).start()
        except RuntimeError:  # the interpreter is on its way out, or there are no threads left: then nothing is due
            self._running = False

    def stop(self) -> None:
        """The thread ends at its next look; nobody waits for it."""
        self.stopped = True
        self._wake.set()

    def look(self) -> bool:
        """One look; returns whether there is more to do. For the thread, and for tests in its place."""
        tick: Any = self._tick()
        return tick is not None and not self.stopped and bool(tick())

    def leave(self) -> bool:
        """The thread has been idle: whether it may end."""
        with self._lock:
            if self._wake.is_set() and not self.stopped:
                return False
            self._running = False
            return True


def _run(reference: weakref.ref[Ticker]) -> None:
    idle_since = monotonic()
    pause = threading.Event()
    while True:
        ticker = reference()
        if ticker is None or ticker.stopped:
            return
        wake = ticker._wake
        if ticker.look():
            idle_since = monotonic()
        else:
            wake.clear()
            if ticker.look():  # what came between the look and the clearing
                wake.set()
            elif monotonic() - idle_since > _LINGERS and ticker.leave():
                return
        del ticker
        if wake.is_set():
            pause.wait(PACE)
        elif wake.wait(1.0):
            idle_since = monotonic()
            pause.wait(PACE)

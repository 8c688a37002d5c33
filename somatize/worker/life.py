"""How a worker ends: with the one who started it, even in the middle of a node."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Callable


class Life:
    """What hangs on the descriptor that this process is sent work by: when its other end is gone, so is this process.

    A thread watches it. Node code may keep the interpreter from that thread for long, in one call of C: while a slice
    runs, the system itself therefore ends this process, and what it started, at the first sign from there, since
    nothing is sent until the slice has been answered.
    """

    def __init__(self, reading: int, computing: Callable[[], bool]) -> None:
        self._reading = reading
        self._computing = computing
        self._calm = fcntl.fcntl(reading, fcntl.F_GETFL)
        self._armed = self._calm | (os.O_ASYNC if self._signals() else 0)
        threading.Thread(target=self._watch, name="somatize-life", daemon=True).start()

    def _signals(self) -> bool:
        try:
            fcntl.fcntl(self._reading, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self._reading, fcntl.F_SETOWN, -os.getpid() if os.getpgrp() == os.getpid() else os.getpid())
        except (AttributeError, OSError):  # another system than Linux
            return False
        return True

    def arm(self) -> None:
        """A slice begins."""
        fcntl.fcntl(self._reading, fcntl.F_SETFL, self._armed)

    def calm(self) -> None:
        """A slice has run; what is sent from now on is the next."""
        fcntl.fcntl(self._reading, fcntl.F_SETFL, self._calm)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._reading, 0)  # tells only that the other end is gone
        poll.poll()
        end_soon(0.0 if self._computing() else 1.0)


def end_soon(seconds: float) -> None:
    """End this process, and what it started where it has a group of its own."""
    time.sleep(seconds)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)

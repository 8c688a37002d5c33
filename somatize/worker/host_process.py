"""The process of a worker: its standard streams as node code finds them, and its end with the client's.

It imports nothing of a graph, so that a worker's streams are set apart before anything else is imported.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable


class Life:
    """Ends this process when the other end of the descriptor that brings its work is closed.

    A thread watches it. Node code may keep the interpreter from that thread for long, in one call of C: while a slice
    runs, the system itself therefore ends this process, and what it started, at the first sign on `pipe`: one that
    nothing is written to, if the client gave one. Without it that is `reading`, to which nothing is sent until the
    slice has been answered; but the sign of what was sent last may be late, on a busy machine.
    """

    def __init__(self, reading: int, computing: Callable[[], bool], pipe: int | None = None) -> None:
        self._reading = reading
        self._pipe = reading if pipe is None else pipe
        self._computing = computing
        self._calm = fcntl.fcntl(self._pipe, fcntl.F_GETFL)
        self._armed = self._calm | (os.O_ASYNC if self._signals() else 0)
        threading.Thread(target=self._watch, name="somatize-life", daemon=True).start()

    def _signals(self) -> bool:
        try:
            fcntl.fcntl(self._pipe, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self._pipe, fcntl.F_SETOWN, -os.getpid() if os.getpgrp() == os.getpid() else os.getpid())
        except (AttributeError, OSError):  # another system than Linux
            return False
        return True

    def arm(self) -> None:
        """Note that a slice begins."""
        fcntl.fcntl(self._pipe, fcntl.F_SETFL, self._armed)

    def calm(self) -> None:
        """Note that a slice has run; what is sent from now on belongs to the next."""
        fcntl.fcntl(self._pipe, fcntl.F_SETFL, self._calm)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._reading, 0)  # tells only that the other end is gone
        poll.poll()
        end_soon(0.0 if self._computing() else 1.0)


def end_soon(seconds: float) -> None:
    """End this process, and its process group if it leads one."""
    time.sleep(seconds)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


HIGH = 100
"""The lowest number of this process' own descriptors, out of the way of those that node code opens."""

_spare = -1
_three = select.poll()
for _number in (0, 1, 2):
    _three.register(_number, 0)


def set_streams_apart() -> None:
    """Make stdin empty and send stdout to stderr, for Python and for the descriptors."""
    global _spare
    _spare = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, HIGH)
    _empty()
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


def flush_streams() -> None:
    """Flush the standard streams, so that a node's output is sent before its answer."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # node code closed one, or put something else in its place
        with contextlib.suppress(Exception):
            sys.stderr.flush()


def reopen_streams() -> None:
    """Reopen standard streams that a node closed."""
    if _spare < 0:
        return
    found = _three.poll(0)
    if found:
        _open_again({number for number, state in found if state & select.POLLNVAL})
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(getattr(sys, name), "closed", False):
            made = open(number, mode, buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, made)
            setattr(sys, f"__{name}__", made)


def _open_again(closed: set[int]) -> None:
    if 2 in closed:
        os.dup2(_spare, 2)
    if 1 in closed:
        os.dup2(2, 1)
    if 0 in closed:
        _empty()


def _empty() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing:
        os.dup2(nothing, 0)
        os.close(nothing)
    os.set_inheritable(0, True)

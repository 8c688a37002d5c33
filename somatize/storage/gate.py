"""What lets transactions of one process run side by side, and a change of the map, or a fork, alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Lets transactions of this process run side by side, and a change of the map run alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}
        self._closed = False

    @contextmanager
    def one_of_many(self) -> Iterator[None]:
        """Be inside for the length of the `with`, beside others."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Be inside until `leave`, beside others; in the same thread."""
        me = threading.get_ident()
        with self._lock:
            # Who is inside already passes: it would else wait for itself.
            while self._closed and me not in self._inside:
                self._condition.wait()
            self._inside[me] = self._inside.get(me, 0) + 1

    def leave(self) -> None:
        """Be inside once less."""
        me = threading.get_ident()
        with self._lock:
            left = self._inside[me] - 1
            if left:
                self._inside[me] = left
                return
            del self._inside[me]
            if self._closed:  # nobody else waits for those inside
                self._condition.notify_all()

    def has_me(self) -> bool:
        """Whether this thread is inside."""
        return threading.get_ident() in self._inside

    def shut(self, patience: float) -> bool:
        """Wait until nobody is inside, and let nobody in until `open`."""
        until = time.monotonic() + patience
        with self._condition:
            while self._closed and time.monotonic() < until:
                self._condition.wait(until - time.monotonic())
            self._closed = True
            while set(self._inside) - {threading.get_ident()} and time.monotonic() < until:
                self._condition.wait(max(0.0, until - time.monotonic()))
            return not self._inside

    def shut_at_once(self) -> bool:
        """`shut`, if that takes no waiting; False, and nothing is changed, if it does."""
        with self._condition:
            if self._closed or self._inside:
                return False
            self._closed = True
            return True

    def open(self) -> None:
        """Let everybody in again."""
        with self._condition:
            self._closed = False
            self._condition.notify_all()

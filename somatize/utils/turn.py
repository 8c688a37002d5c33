"""Whose turn it is at a worker: one trip at a time."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from somatize.errors import WorkerError


class Turn:
    """A lock that is refused to the thread that has it, which would wait for itself.

    It is one of C's, taken by ``with turn.once():``, so that an interrupt cannot come between taking and holding it.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._lock: Any = threading.RLock()

    def once(self) -> AbstractContextManager[Any]:
        """The lock. Raises `WorkerError` where this thread has it."""
        if self.is_mine():
            raise WorkerError(
                f"host {self._host!r} is at work for this very thread: whoever is told of its work, a watcher or a "
                "listener, cannot send it more through the same broker; do it after the forward, or through another"
            )
        lock: AbstractContextManager[Any] = self._lock
        return lock

    def is_mine(self) -> bool:
        """Whether this thread has it."""
        return bool(self._lock._is_owned())

    def is_taken(self) -> bool:
        """Whether any thread has it."""
        if self.is_mine():
            return True
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return False
        return True

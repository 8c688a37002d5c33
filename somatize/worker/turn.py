"""Whose turn it is at a worker: one trip at a time."""

from __future__ import annotations

import threading
from types import TracebackType

from somatize.errors import WorkerError


class Turn:
    """A lock that knows the thread it was given to: one that asks for it again would wait for ever, and is refused."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._thread: int | None = None

    def is_mine(self) -> bool:
        """Whether this thread has it."""
        return self._thread == threading.get_ident()

    def is_taken(self) -> bool:
        """Whether any thread has it."""
        return self._lock.locked()

    def __enter__(self) -> None:
        if self.is_mine():
            raise WorkerError(
                f"host {self._host!r} is at work for this very thread: whoever is told of its work, a watcher or a "
                "listener, cannot send it more through the same broker; do it after the forward, or through another"
            )
        self._lock.acquire()
        self._thread = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread = None
        self._lock.release()

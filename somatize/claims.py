"""Who computes what just now in this process, so that two threads that want one result compute it once."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable


class Claims:
    """Names that threads of this process are computing. For names of any hashable kind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Hashable, _Held] = {}

    def take(self, names: Iterable[Hashable]) -> set[Hashable]:
        """Those of `names` that are the caller's to compute now; whoever takes one must `release` it.

        A name another thread has is left out: `wait` for it, then look again. One that this very thread has already (a
        graph that runs within the node that computes it) is not waited for and not taken twice.
        """
        thread = threading.get_ident()
        taken: set[Hashable] = set()
        with self._lock:
            for name in names:
                if name not in self._held:
                    self._held[name] = _Held(thread)
                    taken.add(name)
        return taken

    def release(self, names: Iterable[Hashable]) -> None:
        """Computed or given up: whoever waits looks again."""
        with self._lock:
            released = [self._held.pop(name, None) for name in names]
        for held in released:
            if held is not None:
                held.over.set()

    def wait(self, name: Hashable) -> bool:
        """Until another thread that has `name` releases it. False if there is none to wait for."""
        with self._lock:
            held = self._held.get(name)
        if held is None or held.thread == threading.get_ident():
            return False
        held.over.wait()
        return True


class _Held:
    __slots__ = ("over", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.over = threading.Event()

"""Who computes what just now in this process, so that two threads that want one result compute it once."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable
from threading import get_ident

from somatize.utils.interrupts import Wakeup

_LOOKS = 0.1
"""Seconds after which who waits looks whether the other is still there."""


class Claims:
    """Names that threads of this process are computing. For names of any hashable kind.

    No lock is taken: a signal's handler may come in the middle of anything here.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, _Held] = {}

    def take(self, names: Iterable[Hashable], owner: object = None) -> set[Hashable]:
        """Those of `names` that are the caller's to compute now; whoever takes one must `release` it.

        A name another thread has is left out: `wait` for it, then look again. One that this very thread has already (a
        graph that runs within the node that computes it) is not waited for and not taken twice. With an `owner`, names
        are given up when that is gone, as after an interrupt.
        """
        taken: set[Hashable] = set()
        for name in names:
            mine = _Held(owner)
            held = self._held.setdefault(name, mine)
            if held is not mine and held.is_left():
                self._give_up(name, held)
                held = self._held.setdefault(name, mine)
            if held is mine:
                taken.add(name)
        return taken

    def release(self, names: Iterable[Hashable], owner: object = None) -> None:
        """Computed or given up: whoever waits looks again. With an `owner`, what is not its own stays."""
        for name in names:
            held = self._held.get(name)
            if held is not None and (owner is None or (held.owner is not None and held.owner() is owner)):
                self._give_up(name, held)

    def _give_up(self, name: Hashable, held: _Held) -> None:
        self._held.pop(name, None)
        held.over.set()

    def wait(self, name: Hashable) -> bool:
        """Until another thread that has `name` releases it. False if there is none to wait for."""
        held = self._held.get(name)
        if held is None or held.thread == get_ident():
            return False
        while self._held.get(name) is held and not held.is_left():
            held.over.wait(_LOOKS)
        held.over.set()  # for the others that wait
        return True


class Owner:
    """Whose names are given up when it is gone."""

    __slots__ = ("__weakref__",)


class _Held:
    __slots__ = ("over", "owner", "thread")

    def __init__(self, owner: object) -> None:
        self.thread = get_ident()
        self.over = Wakeup()
        self.owner = None if owner is None else weakref.ref(owner)

    def is_left(self) -> bool:
        return self.owner is not None and self.owner() is None

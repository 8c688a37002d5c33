"""Forwards told by hand: facts of the engine's kinds said one by one, as when a run is played back."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

from somatize import watching
from somatize.facts import Fact
from somatize.storage.schema import BROKE, INTERRUPTED, LOST, OK

_INTERRUPTS = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "CancelledError"})
_MOST = 64
_LONGEST = 2**63 - 1


class HandSink(Protocol):
    """What a forward told by hand needs of its sink."""

    token: Any

    def tell(self, fact: Fact, /) -> object:
        """Take a fact of this forward."""

    def closed(self) -> None:
        """All was told."""


S = TypeVar("S", bound=HandSink)

_CLOSED_LAST: ContextVar[dict[int, tuple[Any, Any]]] = ContextVar("somatize.by_hand")
"""Of each `ByHand`, the forward that closed last in this context."""


class ByHand(Generic[S]):
    """Keeps forwards told by hand apart: one per thread, and per forward whose watcher passes its facts on."""

    def __init__(self, open_sink: Callable[[], S]) -> None:
        # By reference: the one it belongs to must not be held by its own method.
        self._open = weakref.WeakMethod(open_sink)
        self._going_on: dict[tuple[int, int], S] = {}
        self.used = False
        """Whether anything was ever told by hand."""

    def going_on(self) -> S | None:
        """The forward that is told by hand here and has not ended."""
        return self._going_on.get(_here()[0]) if self._going_on else None

    def closed_last(self) -> S | None:
        """The one that closed last in this context."""
        found, sink = _CLOSED_LAST.get({}).get(id(self), (None, None))
        return sink if found is not None and found() is self else None

    def tell(self, fact: Fact) -> None:
        """Tell a fact to the forward that goes on here, or to a new one."""
        key, token = _here()
        sink = self._going_on.get(key)
        if sink is None:
            open_sink = self._open()
            if open_sink is None:
                return
            self.used = True
            self._forget_the_dead()
            sink = self._going_on[key] = open_sink()
            sink.token = weakref.ref(token) if token is not None else None
        sink.tell(fact)
        if fact["fact"] in ("finished", "broke"):
            del self._going_on[key]
            sink.closed()
            known = {at: one for at, one in _CLOSED_LAST.get({}).items() if one[0]() is not None}
            _CLOSED_LAST.set({**known, id(self): (weakref.ref(self), sink)})

    def _forget_the_dead(self) -> None:
        """Let go of forwards whose end was never told by hand, as by a filter that leaves it out."""
        if len(self._going_on) >= _MOST:
            for key, sink in list(self._going_on.items()):
                if sink.token is not None and sink.token() is None:
                    del self._going_on[key]
                    sink.closed()


def _here() -> tuple[tuple[int, int], Any]:
    """What tells the forward that says facts by hand here from any other, and that forward."""
    token = watching.forward_here()
    return (id(token) if token is not None else 0, threading.get_ident()), token


def ending(last: Fact) -> tuple[int, int, str | None]:
    """The state a forward ended in by its last fact, its duration in microseconds, and why it broke."""
    kind, took_us = last.get("fact"), duration(last)
    if kind == "finished":
        return OK, took_us, None
    if kind != "broke":
        return LOST, took_us, None
    why = last.get("why", "")
    return _broken(why), took_us, why


def duration(last: Fact) -> int:
    """How many microseconds a forward took by its last fact; 0 where that does not say so."""
    took = last.get("took_us", "")
    return min(int(took), _LONGEST) if took.isdecimal() else 0


def _broken(why: str) -> int:
    """Whether an exception broke a forward, or something that is none interrupted it."""
    name = why.partition(":")[0]
    current = sys.exc_info()[1]
    if current is not None and type(current).__name__ == name:
        return BROKE if isinstance(current, Exception) else INTERRUPTED
    return INTERRUPTED if name in _INTERRUPTS else BROKE

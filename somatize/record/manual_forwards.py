"""Forwards told by hand: facts of the engine's kinds said one by one, as when a run is played back."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable
from threading import get_ident
from typing import Any, Generic, Protocol, TypeVar

from somatize.errors import FactError
from somatize.facts import Fact, check, why
from somatize.store.record_format import BROKE, INTERRUPTED, LOST, OK
from somatize.watching import watchers

_INTERRUPTS = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "CancelledError"})
_LONGEST = 2**63 - 1


class HandSink(Protocol):
    """The methods of its sink that a manual forward uses."""

    token: Any

    def tell(self, fact: Fact, /) -> object:
        """Take a fact of this forward."""

    def closed(self) -> None:
        """All was told."""


S = TypeVar("S", bound=HandSink)


class ByHand(Generic[S]):
    """The forwards told by hand that go on: one per thread or task, and per forward whose watcher passes its facts on.

    One is begun by the first fact of the engine's kinds. It ends with `finished` or `broke`; else it is lost as soon
    as a real forward begins where it is told, or the forward whose facts were passed on is over.
    """

    def __init__(self, open_sink: Callable[[], S]) -> None:
        # By reference: the one it belongs to must not be held by its own method.
        self._open = weakref.WeakMethod(open_sink)
        self._going_on: dict[Hashable, S] = {}
        self._passed_on: set[Hashable] = set()
        self.used = False
        """Whether anything was ever told by hand."""

    def going_on(self) -> S | None:
        """The open forward that is told by hand here."""
        return self._going_on.get(_here()[0]) if self._going_on else None

    def tell(self, fact: Fact) -> None:
        """Tell a fact to the open forward, or to a new one. Raises `FactError` unless the fact is complete."""
        try:
            check(fact)
        except FactError as error:
            raise FactError(f"{error}. The engine's kinds are not for other facts: give yours another kind") from None
        open_sink = self._open()
        if open_sink is None:
            return
        key, token = _here()
        self._end_the_dead()
        sink = self._going_on.get(key)
        if sink is None:
            self.used = True
            sink = self._going_on[key] = open_sink()
            sink.token = weakref.ref(token) if token is not None else None
            place = watchers.HERE.get()
            if place is not None and place.step < 0:  # a watcher says what it is told of the forward around it
                self._passed_on.add(key)
            else:
                self._passed_on.discard(key)
        sink.tell(fact)
        if fact["fact"] in ("finished", "broke"):
            self._going_on.pop(key, None)
            watcher = open_sink.__self__  # type: ignore[attr-defined]
            watchers.remember(watcher, sink, watchers.HERE.get(), closed=True)
            sink.closed()

    def real_one_begins(self) -> None:
        """End the forward told by hand, because one of the engine begins."""
        self._end_the_dead()
        place = watchers.HERE.get()
        key = _here()[0]
        if place is None or key not in self._passed_on:
            sink = self._going_on.pop(key, None)
            if sink is not None:
                sink.closed()

    def _end_the_dead(self) -> None:
        """End forwards whose end was never told by hand, as by a filter that leaves it out."""
        for key, sink in list(self._going_on.items()):
            if sink.token is not None and _is_over(sink.token()) and self._going_on.pop(key, None) is not None:
                sink.closed()


def _here() -> tuple[Hashable, Any]:
    """A key of the forward, task or thread that says facts by hand here, and that forward or task.

    The watchers of one forward are told by one thread at a time, but not always by the same.
    """
    token = watchers.forward_here()
    if token is not None:
        return id(token), token
    task = watchers.task_here()
    return (get_ident(), id(task)), task


def _is_over(token: Any) -> bool:
    """Whether a forward or a task is, or is gone."""
    if token is None or not isinstance(token, watchers.Forward):
        return token is None or bool(token.done())
    return token.over and token.tell is watchers.told_nothing  # it was closed; its end may be being told before


def ending(last: Fact) -> tuple[int, int, str | None]:
    """The state a forward ended in by its last fact, its duration in microseconds, and why it broke."""
    kind, took_us = last.get("fact"), duration(last)
    if kind == "finished":
        return OK, took_us, None
    if kind != "broke":
        # An interrupt may come before anybody was told the end; it is what ends the forward then.
        current = sys.exception()
        if current is None:
            return LOST, took_us, None
        return BROKE if isinstance(current, Exception) else INTERRUPTED, took_us, why(current)
    said = last.get("why", "")
    return _broken(said), took_us, said


def duration(last: Fact) -> int:
    """The duration of a forward in microseconds by its last fact; 0 if unknown."""
    took = last.get("took_us", "")
    return min(int(took), _LONGEST) if took.isdecimal() else 0


def _broken(why: str) -> int:
    """Whether an exception broke a forward, or something that is none interrupted it."""
    name = why.partition(":")[0]
    current = sys.exc_info()[1]
    if current is not None and type(current).__name__ == name:
        return BROKE if isinstance(current, Exception) else INTERRUPTED
    return INTERRUPTED if name in _INTERRUPTS else BROKE

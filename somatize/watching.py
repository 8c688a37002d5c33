"""Who is told what: watchers, their sinks, and which forward a fact belongs to.

A watcher is a callable that is told facts. One that must tell forwards apart (a Recorder, a Live, a Status)
offers ``opens(graph) -> Sink`` instead, and gets a sink for each forward. See `Sink` for what a sink may offer.

The rules a watcher can rely on:

- It gets a dict of its own, and during one forward it is never called by two threads at once.
- One that raises does not stop the work: a `WatcherWarning` shows its traceback once, it is told nothing more of
  that forward, and the others still are. The same holds for everything else a sink offers.
- ``KeyboardInterrupt``, ``SystemExit`` and their like pass through, after the others got the same fact. What
  `opens` refuses with an error of this library is raised too: nothing has run yet, so nothing is lost.
"""

from __future__ import annotations

import inspect
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import BuiltinMethodType
from typing import Any, NamedTuple, Protocol, TypeAlias

from .errors import FactWarning, SomatizeError, WatcherWarning, WatchingError
from .facts import Fact, Watcher


class Sink(Protocol):
    """Where the facts of one forward go; all but `tell` may be absent, and then costs nothing.

    - ``tell(fact)`` is told each fact, in order; the dict is the sink's own.
    - ``entering(node, host=None)`` is called before a node runs.
    - ``progress(node, done, total)`` is called as a node says how far it is; `total` may be None.
    - ``closed()`` is called once, after the last fact; also on a sink that raised, and is told nothing more.
    - ``status`` is what `ctx.status` gives to node code.
    - ``forgets``, where true, says that no late facts are meant for it, so that no context has to remember it.

    Only `tell` carries facts: the others are never stored as such. A context remembers the sink that opened or
    closed last in it for each watcher, so a closed sink should hold no more than late facts need.
    """

    def tell(self, fact: Fact, /) -> object:
        """Be told one fact of this forward."""


class Opener(Protocol):
    """A watcher that wants a sink for each forward."""

    def opens(self, graph: Any, /) -> Sink:
        """Give the sink of a forward of `graph` that starts now, in the caller's thread."""


Watching: TypeAlias = Watcher | Opener | list[Any] | tuple[Any, ...] | None
"""What `watching=` takes: a callable, a Recorder or its like, or a list or tuple of them, nested as you like."""

_ACCEPTED = "watching= takes a callable, a Recorder, or a list or tuple of them"


class Place:
    """Where in which forward a thread is: what a fact said now is stamped with and filed under.

    `step` is the index of the node that runs here, or -1 between nodes; `key` says of which program.
    """

    parent: Place | None = None
    key: object = None
    step: int = -1

    @property
    def forward(self) -> Forward:
        """The forward this place is in."""
        raise NotImplementedError


class Forward(Place):
    """One forward that runs: the watchers it tells, and its place in the caller's thread.

    One is made for every forward there is, so it has no constructor and its defaults stand on the class. Whoever
    makes one sets `key` and `gate`.
    """

    tell: Watcher | None = None
    """Tells every watcher; None when nobody watches. A watcher alone is told directly, unguarded."""
    doors: tuple[_Door, ...] = ()
    """The watchers one by one; empty for a plain callable alone."""
    raised: tuple[_Door, ...] = ()
    """Those that raised: they are told nothing more, but closed with the others."""
    entering: Callable[..., object] | None = None
    gate: threading.RLock | None
    """There from the moment a second thread may tell this forward's watchers."""
    late: list[Fact] | None = None
    over: bool = False

    @property
    def forward(self) -> Forward:
        """Itself."""
        return self

    def share(self) -> None:
        """From now on, whoever tells this forward's watchers takes the gate first."""
        if self.gate is None:
            with _SHARING:
                self.gate = self.gate or threading.RLock()

    def say(self, fact: Fact) -> None:
        """Tell every watcher, guarded: the way for all but the engine's own loop."""
        if self.gate is None:
            self._say(fact)
            return
        with self.gate:
            late, self.late = self.late or [], None
            _each(self._say, [*late, fact])

    def end(self, fact: Fact) -> None:
        """Tell the last fact. Whatever a lingering thread says from here on is late, and it is warned."""
        self.over = True  # before the gate is looked at, as in `say_from_node`
        self.say(fact)

    def _say(self, fact: Fact) -> None:
        if self.tell is not None:
            try:
                self.tell(fact)
            except Exception as error:
                self.refuse(error)

    def refuse(self, error: Exception) -> None:
        """The only watcher there is raised: it is told nothing more of this forward."""
        _warn(self.doors[0].watcher if self.doors else self.tell, error)
        self.raised, self.doors = self.doors, ()
        self.tell = _nobody
        self.entering = None

    def fan_out(self, fact: Fact) -> None:
        """`tell` where several watch: each gets a dict of its own, whatever the others do."""
        interrupt: BaseException | None = None
        for door in self.doors:
            try:
                door.tell(fact.copy())
            except Exception as error:
                self._leave_out(door, error)
            except BaseException as error:
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def enter(self, *where: str) -> None:
        """A node is about to run, here or at the host named after it; for those who want to know, one at a time."""
        if self.gate is None:
            self._enter(where)
        else:
            with self.gate:
                self._enter(where)

    def _enter(self, where: tuple[str, ...]) -> None:
        if self.entering is not None:
            try:
                self.entering(*where)
            except Exception as error:
                self.refuse(error)

    def enter_all(self, *where: str) -> None:
        """`entering`, guarded, for whoever has it."""
        self._offer("entering", *where)

    def progress(self, node: str, done: int, total: int | None) -> None:
        """Say how far a node is to whoever wants to know; under the gate."""
        self._offer("progress", node, done, total)

    def _offer(self, method: str, *said: object) -> None:
        for door in self.doors:
            offered = getattr(door.sink, method, None)
            if offered is not None:
                try:
                    offered(*said)
                except Exception as error:
                    self._leave_out(door, error)

    def _leave_out(self, door: _Door, error: Exception) -> None:
        if door in self.doors:
            _warn(door.watcher, error)
            self.raised += (door,)
            self.doors = tuple(other for other in self.doors if other is not door)
            if not self.doors:
                self.tell = _nobody

    def status(self) -> Any:
        """The status that the first watcher with one offers, or None."""
        for door in self.doors:
            offered = getattr(door.sink, "status", None)
            if offered is not None:
                return offered
        return None

    def run(self) -> str | None:
        """The run that the first watcher with one records, or None."""
        for door in self.doors:
            run = getattr(door.watcher, "run", None)
            if isinstance(run, str):
                return run
        return None

    def sink_of(self, watcher: object) -> Any:
        """The sink this forward has from `watcher`, or None."""
        for door in self.doors:
            if door.watcher is watcher:
                return door.sink
        return None

    def close(self) -> None:
        """The last fact was told: the sinks are closed, and the context remembers them."""
        _each(self._close, [door for door in (*self.doors, *self.raised) if door.sink is not None])

    def _close(self, door: _Door) -> None:
        _remember(door, self.parent)
        closed = getattr(door.sink, "closed", None)
        try:
            if closed is not None:
                closed()
        except Exception as error:
            _warn(door.watcher, error)


class Branch(Place):
    """The place of one node that runs in a thread of its own, beside others of the same forward."""

    def __init__(self, forward: Forward, step: int) -> None:
        self.parent = forward.parent
        self.key = forward.key
        self.step = step
        self._forward = forward

    @property
    def forward(self) -> Forward:
        """The forward it is a branch of."""
        return self._forward


class _Door(NamedTuple):
    watcher: Any
    tell: Watcher
    sink: Any  # None for a plain callable


class _Last(NamedTuple):
    """The sink of a watcher that opened or closed last in a context, and where that was."""

    watcher: Callable[[], Any]
    sink: Any
    within: Place | None
    step: int


HERE: ContextVar[Place | None] = ContextVar("somatize.here", default=None)
"""The innermost forward that runs in this context."""

_LAST: ContextVar[dict[int, _Last]] = ContextVar("somatize.last", default={})  # noqa: B039  never changed in place
_SHARING = threading.Lock()
_REMEMBERED = 64


def watch(forward: Forward, watching: Watching, graph: Any) -> None:
    """Let `forward` tell whoever is given in `watching`, opening sinks for those who want one.

    Raises `WatchingError` for anything else, before any sink is opened.
    """
    kind = type(watching)
    if kind is BuiltinMethodType:  # the append of a list, print: nothing more to ask
        forward.tell = watching  # type: ignore[assignment]
        return
    if kind is list or kind is tuple or not hasattr(watching, "opens") or isinstance(watching, type):
        watchers = list(_flat(watching))
        if watchers == [watching] and not hasattr(watching, "opens"):
            forward.tell = watching  # type: ignore[assignment]
            return
    else:
        watchers = [watching]
    try:
        for watcher in watchers:
            forward.doors += _open(watcher, graph)
    except BaseException:  # an error of this library, or an interrupt
        forward.close()
        raise
    doors = forward.doors
    for door in doors:
        if door.sink is not None:
            _remember(door, forward.parent)
    if len(doors) == 1:
        forward.tell = doors[0].tell
        forward.entering = getattr(doors[0].sink, "entering", None)
    elif doors:
        forward.tell = forward.fan_out
        if any(hasattr(door.sink, "entering") for door in doors):
            forward.entering = forward.enter_all


def watchers_in(watching: Watching) -> list[Any]:
    """The watchers given in `watching`, one by one. Raises `WatchingError`."""
    return list(_flat(watching)) if watching is not None else []


def sink_here(watcher: object) -> Any:
    """The sink of `watcher` that a fact said to it, here and now, belongs to; None if this context knows none.

    Inside a node it is the one that last opened or closed within that node, else that of the node's own
    forward, else the same question of the forward around it; elsewhere the one that closed last in this context.
    """
    last = _LAST.get().get(id(watcher))
    if last is not None and last.watcher() is not watcher:
        last = None
    place = HERE.get()
    while place is not None:
        if last is not None and last.within is place and last.step == place.step:
            return last.sink
        own = place.forward.sink_of(watcher)
        if own is not None:
            return own
        place = place.parent
    return last.sink if last is not None else None


def forward_here() -> object | None:
    """What tells the innermost forward that runs in this context from any other, or None outside of one."""
    place = HERE.get()
    return place.forward if place is not None else None


def place_of(key: object, running: list[Forward]) -> Place | None:
    """The innermost place in this context that runs the program of `key`.

    A thread that node code started without its context has none: there, the only forward of that program
    that is `running` is meant, if there is just one.
    """
    place = HERE.get()
    if place is None:
        return running[0] if len(running) == 1 else None
    while place is not None and place.key is not key:
        place = place.parent
    return place


def say_from_node(place: Place, step: int, fact: Fact) -> None:
    """Tell the watchers of the forward at `place` what the node at `step` says, from whichever thread.

    The engine tells its own facts without a gate while it is alone, so the order below matters: the gate is
    there before the step is looked at, and the engine leaves the step before it looks for a gate. A fact said
    by a thread that outlived its node waits for the engine's next one.
    """
    forward = place.forward
    forward.share()
    with forward.gate:  # type: ignore[union-attr]
        if forward.over:
            _warn_late(fact)
        elif place.step == step:
            forward.say(fact)
        else:
            forward.late = forward.late or []
            forward.late.append(fact)


def progress_from_node(place: Place, step: int, node: str, done: int, total: int | None) -> None:
    """Say how far the node at `step` is, by the same rules; once the node has ended nobody wants to know."""
    forward = place.forward
    forward.share()
    with forward.gate:  # type: ignore[union-attr]
        if place.step == step and not forward.over:
            forward.progress(node, done, total)


def _flat(watching: Any) -> Iterator[Any]:
    seen: set[int] = set()
    pending = [watching]
    while pending:
        watcher = pending.pop()
        if isinstance(watcher, list | tuple) and not callable(watcher):
            if id(watcher) in seen:
                continue
            seen.add(id(watcher))
            pending.extend(reversed(watcher))
        elif hasattr(watcher, "opens") and not isinstance(watcher, type):
            if id(watcher) not in seen:  # a recorder named twice still writes one record
                seen.add(id(watcher))
                yield watcher
        else:
            _callable(watcher)
            yield watcher


def _callable(watcher: Any) -> None:
    if isinstance(watcher, type) and hasattr(watcher, "opens"):
        raise WatchingError(f"{_ACCEPTED}; this is the class {watcher.__name__}: give an instance of it")
    if not callable(watcher):
        raise WatchingError(f"{_ACCEPTED}, not {watcher!r}")
    code = getattr(watcher, "__code__", None)
    if _is_async(watcher) if code is None else code.co_flags & 0x280:  # CO_COROUTINE | CO_ASYNC_GENERATOR
        raise WatchingError(f"{_ACCEPTED}; {watcher!r} is async, and nobody would await it")


def _is_async(watcher: Any) -> bool:
    while hasattr(watcher, "func"):  # a partial is what its function is
        watcher = watcher.func
    return any(inspect.iscoroutinefunction(called) for called in (watcher, getattr(type(watcher), "__call__", None)))  # noqa: B004  it is the function that is asked


def _open(watcher: Any, graph: Any) -> tuple[_Door, ...]:
    if not hasattr(watcher, "opens"):
        return (_Door(watcher, watcher, None),)
    try:
        sink = watcher.opens(graph)
        return (_Door(watcher, sink.tell, sink),)
    except SomatizeError:
        raise
    except Exception as error:
        _warn(watcher, error)
        return ()


def _remember(door: _Door, within: Place | None) -> None:
    # Copied and not changed in place: contexts that were copied from this one must not see it.
    last, key = _LAST.get(), id(door.watcher)
    before = last.get(key)
    if before is not None and before.watcher() is door.watcher:
        if before.sink is door.sink and before.within is within:
            return  # it opened here, and nothing of this watcher did since
        reference = before.watcher
    else:
        before, reference = None, _reference(door.watcher)
    entry = _Last(reference, door.sink, within, within.step if within is not None else -1)
    if not last or (before is not None and len(last) == 1):
        _LAST.set({key: entry})
        return
    last = {other: one for other, one in last.items() if other != key}
    if len(last) >= _REMEMBERED:
        last = {other: one for other, one in last.items() if one.watcher() is not None}
        if len(last) >= _REMEMBERED:
            del last[next(iter(last))]
    _LAST.set({**last, key: entry})


def _reference(watcher: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(watcher)
    except TypeError:
        return lambda: watcher


def _nobody(fact: Fact) -> None:
    """Told in place of a watcher that raised."""


def warn_of(watcher: object, error: Exception, nothing_more: str) -> None:
    """Warn that `watcher` raised, and is told nothing more of, or by, what `nothing_more` says."""
    try:
        shown = "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # an exception may raise when it is looked at
        shown = f"Traceback: {type(error).__name__}, which cannot be shown"
    _say_aloud(
        f"the watcher {_named(watcher)} raised and is told nothing more {nothing_more}; the work goes on.\n{shown}",
        WatcherWarning,
    )


def _warn(watcher: object, error: Exception) -> None:
    warn_of(watcher, error, "of this forward")


def _warn_late(fact: Fact) -> None:
    _say_aloud(
        f"node {fact.get('node')!r} said {fact['fact']!r} after its forward had ended; nobody was told",
        FactWarning,
    )


def _each(call: Callable[[Any], object], things: list[Any]) -> None:
    """`call` each of the things; an interrupt on the way is raised when all had their turn, the first if several."""
    interrupt: BaseException | None = None
    for thing in things:
        try:
            call(thing)
        except BaseException as error:
            interrupt = interrupt or error
    if interrupt is not None:
        raise interrupt


def _named(watcher: object) -> str:
    name = getattr(watcher, "__qualname__", None)
    return str(name) if name else f"of type {type(watcher).__name__}"


def _say_aloud(sentence: str, category: type[Warning]) -> None:
    # Where warnings are errors, the work still goes on: the sentence then goes to stderr.
    try:
        warnings.warn(sentence, category, stacklevel=5)
    except category:
        print(f"{category.__name__}: {sentence}", file=sys.stderr)  # noqa: T201

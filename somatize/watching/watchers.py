"""Watchers and their sinks: delivery of facts, and which forward a fact belongs to.

A watcher is a callable that is told facts. One that must tell forwards apart (a Recorder, a Live, a Status)
offers ``opens(graph) -> Sink`` instead, and gets a sink for each forward. See `Sink` for what a sink may offer.

The rules a watcher can rely on:

- It gets a dict of its own, and during one forward it is never called by two threads at once.
- One that raises does not stop the work: a `WatcherWarning` shows its traceback once, it is told nothing more of
  that forward, and the others still are. The same holds for everything else a sink offers.
- ``KeyboardInterrupt``, ``SystemExit`` and their like pass through, after the others got the same fact; so does any
  exception that a signal's handler (a time limit) raises in a Recorder, a Live or a Status. What
  `opens` refuses with an error of this library is raised too: nothing has run yet, so nothing is lost.
"""

from __future__ import annotations

import inspect
from types import BuiltinMethodType
from typing import Any, Protocol, TypeAlias

from somatize.errors import SomatizeError, WatchingError
from somatize.facts import Fact, Watcher
from somatize.utils.notices import warn_late, warn_of, warn_of_sink

from .attribution import Several, addressed, sink_here
from .forwards import HERE, Branch, Door, Forward, Place, from_outside, remember, task_here, told_nothing

__all__ = [
    "HERE",
    "Branch",
    "Forward",
    "Opener",
    "Place",
    "Several",
    "Sink",
    "Watching",
    "addressed",
    "forward_here",
    "place_of",
    "progress_from_node",
    "remember",
    "runs_later",
    "say_from_node",
    "sink_here",
    "task_here",
    "told_nothing",
    "warn_of",
    "watch",
    "watchers_in",
]


class Sink(Protocol):
    """The receiver of the facts of one forward; all methods but `tell` are optional and then cost nothing.

    - ``tell(fact)`` is told each fact, in order; the dict is the sink's own.
    - ``entering(node, host=None)`` is called before a node runs.
    - ``place``, where it is there and one node is called after another, is set to the forward instead: its ``node``
      says which one runs, to whoever asks.
    - ``progress(node, done, total)`` is called as a node says how far it is; `total` may be None.
    - ``heard(host, node, said)`` is called with what became of a task that node code at a host opened, or of a stream.
    - ``closed()`` is called once, after the last fact; also on a sink that raised, and is told nothing more.
    - ``over``, where it is there, says whether `closed` did its work. Where a Ctrl-C came on the way and it is False,
      `closed` is called once more.
    - ``status`` is what `ctx.status` gives to node code.
    - ``library``, where true, says that it is one of the library's own: what is raised in it came from outside, as from
      a signal's handler, and passes through.
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
"""The argument `watching=`: a callable, a Recorder or the like, or a nested list or tuple of them."""

_SEVERAL = (list, tuple)
_ACCEPTED = "watching= takes a callable, a Recorder, or a list or tuple of them"


def watch(forward: Forward, watching: Watching, graph: Any, *, plain: bool = False) -> None:
    """Let `forward` tell the watchers in `watching`, opening sinks for those that want one.

    In a `plain` forward one node is called after another: a sink with a `place` can ask which of them runs.
    Raises `WatchingError` for anything else than watchers, before any sink is opened.
    """
    kind = type(watching)
    if kind is BuiltinMethodType:  # the append of a list, print: nothing more to ask
        forward.tell = watching  # type: ignore[assignment]
        return
    if kind is list or kind is tuple or not hasattr(watching, "opens") or isinstance(watching, type):
        watchers = _flat(watching)
        if len(watchers) == 1 and watchers[0] is watching and not hasattr(watching, "opens"):
            forward.tell = watching
            return
    else:
        _watch_one(forward, watching, graph, plain)
        return
    try:
        for watcher in watchers:
            _open(forward, watcher, graph)
    except BaseException:  # an error of this library, or an interrupt
        forward.close()
        raise
    doors = forward.doors
    if forward.parent is not None:  # elsewhere a forward is known by the place it is, until it closes
        for door in doors:
            if door.remembered:
                remember(door.watcher, door.sink, forward.parent, closed=False)
    _tell(forward, plain=plain)


def _watch_one(forward: Forward, watcher: Any, graph: Any, plain: bool) -> None:
    """`watch` for one who wants a sink, which is what most forwards have; it is what it costs to record one."""
    _open(forward, watcher, graph)
    doors = forward.doors
    if not doors:
        return
    door = doors[0]
    if door.remembered and forward.parent is not None:
        remember(door.watcher, door.sink, forward.parent, closed=False)
    _tell(forward, plain=plain)


def _tell(forward: Forward, *, plain: bool) -> None:
    doors = forward.doors
    if len(doors) == 1:
        door = doors[0]
        forward.tell = door.tell
        if plain and hasattr(door.sink, "place"):
            door.sink.place = forward
        else:
            forward.entering = getattr(door.sink, "entering", None)
    elif doors:
        forward.tell, forward.several = forward.fan_out, True
        wanted = []
        for door in doors:
            if plain and hasattr(door.sink, "place"):
                door.sink.place = forward
            elif hasattr(door.sink, "entering"):
                wanted.append(door)
        if wanted:
            forward.entering = forward.enter_all if len(wanted) > 1 else forward.enter_only(wanted[0])


def watchers_in(watching: Watching) -> list[Any]:
    """The watchers given in `watching`, one by one. Raises `WatchingError`."""
    return _flat(watching) if watching is not None else []


def forward_here() -> object | None:
    """A key of the innermost forward that runs in this context, or None outside of one."""
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
    """Tell the watchers of the forward at `place` a fact of the node at `step`, from any thread.

    The engine tells its own facts without a gate while it is alone, so the order below matters: the gate is
    there before the step is looked at, and the engine leaves the step before it looks for a gate. A fact said
    by a thread that outlived its node waits for the engine's next one.
    """
    forward = place.forward
    forward.share()
    with forward.gate:  # type: ignore[union-attr]
        if forward.over:
            warn_late(fact)
        elif place.step == step:
            forward.say(fact)
        else:
            forward.late = forward.late or []
            forward.late.append(fact)


def progress_from_node(place: Place, step: int, node: str, done: int, total: int | None) -> None:
    """Report the progress of the node at `step` from any thread; ignored once the node has ended."""
    forward = place.forward
    forward.share()
    with forward.gate:  # type: ignore[union-attr]
        if place.step == step and not forward.over:
            forward.progress(node, done, total)


def _flat(watching: Any) -> list[Any]:
    found: list[Any] = []
    seen: set[int] = set()
    pending = [watching]
    while pending:
        watcher = pending.pop()
        if type(watcher) is BuiltinMethodType:
            found.append(watcher)
        elif isinstance(watcher, _SEVERAL) and not callable(watcher):
            if id(watcher) not in seen:
                seen.add(id(watcher))
                pending.extend(reversed(watcher))
        elif hasattr(watcher, "opens") and not isinstance(watcher, type):
            if id(watcher) not in seen:  # a recorder named twice still writes one record
                seen.add(id(watcher))
                found.append(watcher)
        else:
            _callable(watcher)
            found.append(watcher)
    return found


def _callable(watcher: Any) -> None:
    if isinstance(watcher, type) and hasattr(watcher, "opens"):
        raise WatchingError(f"{_ACCEPTED}; this is the class {watcher.__name__}: give an instance of it")
    if not callable(watcher):
        raise WatchingError(f"{_ACCEPTED}, not {watcher!r}")
    if runs_later(watcher):
        raise WatchingError(f"{_ACCEPTED}; {watcher!r} is async or yields, and a call alone would run nothing of it")


_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def runs_later(watcher: Any) -> bool:
    """Whether a call only makes something to await or to go through."""
    code = getattr(watcher, "__code__", None)
    if code is not None:
        return bool(code.co_flags & _LATER)
    while hasattr(watcher, "func"):  # a partial is what its function is
        watcher = watcher.func
    called = (watcher, getattr(type(watcher), "__call__", None))  # noqa: B004  it is the function that is asked
    return any(getattr(getattr(one, "__code__", None), "co_flags", 0) & _LATER for one in called)


def _open(forward: Forward, watcher: Any, graph: Any) -> None:
    """Add the door of a watcher to `forward`, here, because an interrupt would lose a returned value."""
    opens = getattr(watcher, "opens", None)
    if opens is None:
        forward.doors += (Door(watcher, watcher, None, None, False),)
        return
    sink: Any = _open
    try:
        sink = opens(graph)
        closed = getattr(sink, "closed", None)
        forward.doors += (Door(watcher, sink.tell, sink, closed, not getattr(sink, "forgets", False)),)
    except SomatizeError:
        raise
    except BaseException as error:
        own = not getattr(watcher, "library", sink is _open and from_outside(error, opens))
        if own and isinstance(error, Exception):
            warn_of_sink(watcher, error)
            return
        if getattr(sink, "over", True) is False:
            sink.closed()
        raise

"""Forwards that run, where in them a thread is, and which sinks a context knows."""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from threading import get_ident
from types import BuiltinMethodType
from typing import Any

from somatize.errors import RecordLost, SomatizeError
from somatize.facts import Fact, Watcher
from somatize.utils.interrupts import from_handler
from somatize.utils.notices import warn_of_sink


class Key:
    """Stands for a program, by identity, where the program itself would keep its graph alive."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: tuple[str, ...]) -> None:
        self.nodes = nodes
        """The nodes of its steps."""


class Place(ABC):
    """The position of a thread in a forward: facts said now are stamped with it and stored under it.

    `step` is the index of the node that runs here, or -1 between nodes; `key` says of which program.
    """

    parent: Place | None = None
    key: Key
    step: int = -1

    @property
    def node(self) -> str | None:
        """The node that runs here just now; None between nodes."""
        step = self.step
        return self.key.nodes[step] if step >= 0 else None

    @property
    @abstractmethod
    def forward(self) -> Forward:
        """The forward this place is in."""


class Forward(Place):
    """One forward that runs: the watchers it tells, and its place in the caller's thread.

    One is made for every forward there is, so it has no constructor and its defaults stand on the class. Whoever
    makes one sets `key` and `gate`.
    """

    tell: Watcher | None = None
    """Tells all watchers; None without any. A single watcher is told directly, unguarded."""
    doors: tuple[Door, ...] = ()
    """The watchers one by one; empty for a plain callable alone."""
    raised: tuple[Door, ...] = ()
    """Watchers that raised: they are told nothing more, but closed with the others."""
    entering: Callable[..., object] | None = None
    gate: threading.RLock | None
    """There from the moment a second thread may tell this forward's watchers."""
    late: list[Fact] | None = None
    seed: int | None = None
    """The seed of the random generators before each node, if any."""
    over: bool = False
    several: bool = False
    """Whether `tell` is `fan_out`."""

    @property
    def forward(self) -> Forward:
        """Itself."""
        return self

    def share(self) -> None:
        """Take the gate before telling watchers from now on."""
        if self.gate is None:
            # Whoever comes first gives it, without a lock that a signal's handler would wait for.
            self.gate = self.__dict__.setdefault("shared", threading.RLock())

    def say(self, fact: Fact) -> None:
        """Tell every watcher, guarded: the way for all but the engine's own loop."""
        if self.gate is None:
            self._say(fact)
            return
        with self.gate:
            late, self.late = self.late or [], None
            each(self._say, [*late, fact])

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

    def refuse(self, error: Exception, call: Any = None) -> None:
        """Stop telling the only watcher, which raised.

        Raises what came from outside, as from a signal's handler: that is not the watcher's.
        """
        call = call or self.tell  # as it was called, whoever wrapped it
        if self.several or self.raised:  # then what was called is this forward's own
            raise error
        if self.doors[0].passes(error, call) if self.doors else from_outside(error, call):
            raise error
        warn_of_sink(self.doors[0].watcher if self.doors else self.tell, error)
        self.raised, self.doors = self.doors, ()
        self.tell = told_nothing
        self.entering = None

    def fan_out(self, fact: Fact) -> None:
        """`tell` where several watch: each gets a dict of its own, whatever the others do."""
        interrupt: BaseException | None = None
        doors = self.doors
        for door in doors:
            try:
                door.tell(fact if door is doors[-1] else fact.copy())
            except BaseException as error:
                if not isinstance(error, Exception) or door.passes(error):
                    interrupt = interrupt or error
                else:
                    self._leave_out(door, error)
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
                self.refuse(error, self.entering)

    def enter_all(self, *where: str) -> None:
        """Call `entering` of every watcher that has it, guarded."""
        self._offer("entering", *where)

    def enter_only(self, door: Door) -> Callable[..., object]:
        """`enter_all` where one of several watchers has it."""
        entering = door.sink.entering

        def enter(*where: str) -> None:
            try:
                entering(*where)
            except Exception as error:
                self.entering = None
                self._leave_out(door, error, entering)

        return enter

    def progress(self, node: str, done: int, total: int | None) -> None:
        """Report the progress of a node to the watchers that want it; under the gate."""
        self._offer("progress", node, done, total)

    def heard(self, host: str, node: str, said: dict[str, Any]) -> None:
        """Report a task of node code at a host to the watchers that show tasks; under the gate."""
        self._offer("heard", host, node, said)

    def _offer(self, method: str, *said: object) -> None:
        for door in self.doors:
            offered = getattr(door.sink, method, None)
            if offered is not None:
                try:
                    offered(*said)
                except Exception as error:
                    self._leave_out(door, error, offered)

    def _leave_out(self, door: Door, error: Exception, call: Any = None) -> None:
        if door.passes(error, call):
            raise error
        if door in self.doors:
            warn_of_sink(door.watcher, error)
            self.raised += (door,)
            self.doors = tuple(other for other in self.doors if other is not door)
            if not self.doors:
                self.tell = told_nothing

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
        interrupt: BaseException | None = None
        for door in self.doors + self.raised:
            try:
                if door.remembered:
                    remember(door.watcher, door.sink, self.parent, closed=True)
                if door.closed is not None:
                    door.closed()
            except BaseException as error:
                if not isinstance(error, Exception) or door.passes(error, door.closed):
                    interrupt = interrupt or error
                else:
                    warn_of_sink(door.watcher, error)
        if self.tell is not None:
            # They may hold this forward, which would then be garbage to collect.
            self.tell, self.entering = told_nothing, None
        if interrupt is not None:
            raise interrupt

    def left_by(self, error: BaseException) -> None:
        """An exception leaves the forward: the sinks are closed that an interrupt kept from it, if they know of it."""
        for door in self.doors + self.raised:
            if door.closed is not None and getattr(door.sink, "over", True) is False:
                try:
                    door.closed()
                except Exception as refused:
                    if type(refused) is not type(error):  # else it is what leaves the forward already
                        warn_of_sink(door.watcher, refused)


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


class Door:
    """One watcher of a forward, how it is told, and its sink if it has one."""

    __slots__ = ("closed", "remembered", "sink", "tell", "watcher")

    def __init__(
        self, watcher: Any, tell: Watcher, sink: Any, closed: Callable[[], object] | None, remembered: bool
    ) -> None:
        self.watcher = watcher
        self.tell = tell
        self.sink = sink
        """None for a plain callable."""
        self.closed = closed
        self.remembered = remembered
        """Whether a context is to know it, for facts said later."""

    def passes(self, error: Exception, call: Any = None) -> bool:
        """Whether an exception that left a call of the watcher (of `tell` unless named) came from outside."""
        if getattr(self.sink, "library", False):
            return not isinstance(error, SomatizeError) or isinstance(error, RecordLost)
        return from_outside(error, call or self.tell)


class Closings:
    """The forwards of one watcher that closed lately, in whatever context; shared by all its `Last`."""

    __slots__ = ("__weakref__", "order", "recent", "watcher")

    def __init__(self, watcher: Callable[[], Any]) -> None:
        self.watcher = watcher
        """Gives the watcher, or None when it is gone."""
        self.order = itertools.count().__next__
        self.recent: deque[tuple[Last, Last | None]] = deque(maxlen=_RECENT)
        """The entries that contexts learned as forwards closed in them, with what each knew before."""


class Scope:
    """One context, told apart from its copies, in which forwards of a watcher closed."""

    __slots__ = ("_token", "base", "depth", "of_job", "spoke", "task", "thread")

    def __init__(self, base: Last | None) -> None:
        self._token = _mark(None)
        self.thread = get_ident()
        task = task_here()
        self.task = None if task is None else weakref.ref(task)
        self.spoke = False
        """Whether facts were said in this context, so that no other says them for it."""
        self.depth: int = 0 if base is None else base.scope.depth + 1
        self.base = base if self.depth < _DEPTH else None
        """The entry of the context that this one was copied from."""
        run = getattr(threading.current_thread(), "_target", None)
        self.of_job = base is None and getattr(run, "__module__", None) == "concurrent.futures.thread"
        """Whether it is that of an executor's thread, whose jobs have no contexts of their own."""

    def is_here(self) -> bool:
        """Whether this is the context: a token can be taken back only in the very context it was made in."""
        try:
            _take_back(self._token)
        except (ValueError, RuntimeError):
            return False
        self._token = _mark(None)
        return True


class Last:
    """The sink of a watcher that opened or closed last in a context, and where that was.

    One is made for every forward, so it has no constructor, and its defaults stand on the class: see `remember`.
    """

    closings: Closings
    scope: Scope
    order: int
    sink: Any
    """None where a fact was said that could belong to several forwards."""
    within: Place | None = None
    step: int = -1
    origin: Last | None = None
    """The previous entry of this context, as long as the forward is open."""
    awaited: frozenset[int] = frozenset()
    """The threads that waited for something as a job of an executor closed it."""
    replaced = False
    """Whether another context took the forward for its own, by saying a fact of it."""

    @classmethod
    def made(cls, closings: Closings, sink: Any, within: Place | None, before: Last | None) -> Last:
        """The entry that follows `last` in this context."""
        entry = cls()
        entry.closings, entry.sink, entry.order = closings, sink, closings.order()
        if within is not None:
            entry.within, entry.step = within, within.step
        entry.scope = before.scope if before is not None and before.scope.is_here() else Scope(before)
        return entry


HERE: ContextVar[Place | None] = ContextVar("somatize.here", default=None)
"""The innermost forward that runs in this context."""

LAST: ContextVar[dict[int, Last]] = ContextVar("somatize.last", default={})  # noqa: B039  never changed in place
"""By watcher id: the sink that opened or closed last in this context."""
_PROBE: ContextVar[None] = ContextVar("somatize.probe")
_mark, _take_back = _PROBE.set, _PROBE.reset
_REMEMBERED = 64
_RECENT = 1024
"""The number of closings of a watcher that other contexts know."""
_DEPTH = 32
"""Through how many copies a context is followed."""
_CLOSINGS: dict[int, Closings] = {}
"""Closings by watcher id; removed by a weak reference when the watcher is gone."""


def known_here(watcher: object) -> Last | None:
    """The entry of a watcher's forwards in this context."""
    last = LAST.get().get(id(watcher))
    return last if last is not None and last.closings.watcher() is watcher else None


def closings_of(watcher: Any) -> Closings | None:
    """The closings of a watcher, if any of its forwards closed or opened within a node."""
    found = _CLOSINGS.get(id(watcher))
    return found if found is not None and found.watcher() is watcher else None


def remember(watcher: Any, sink: Any, within: Place | None, *, closed: bool) -> None:
    """Let this context know that a sink opened or closed, within that place."""
    known, key = LAST.get(), id(watcher)
    before = known.get(key)
    if before is not None and within is None and closed and len(known) == 1 and before.sink is not sink:
        # What most forwards do, written out: it is a part of what it costs to record one.
        closings, scope = before.closings, before.scope
        if closings.watcher() is watcher and scope.is_here():
            entry = Last()
            entry.closings, entry.scope, entry.sink, entry.order = closings, scope, sink, closings.order()
            if scope.of_job:
                entry.awaited = _waiting()
            closings.recent.append((entry, before))
            LAST.set({key: entry})
            return
    before = known_here(watcher)
    if before is not None and before.sink is sink and before.within is within:
        if closed:  # it opened here, and nothing of this watcher did since
            before.order = before.closings.order()
            before.closings.recent.append((before, before.origin))
            before.origin = None
        return
    closings = before.closings if before is not None else _begun(watcher)
    entry = Last.made(closings, sink, within, before)
    if closed and entry.scope.of_job:
        entry.awaited = _waiting()
    if closed:
        closings.recent.append((entry, before))
    else:
        entry.origin = before
    put(entry, watcher)


def _waiting() -> frozenset[int]:
    """The threads that wait for another thread or for their event loop."""
    return frozenset(
        thread
        for thread, frame in sys._current_frames().items()
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in (("threading", "wait"), ("selectors", "select"))
    )


def put(entry: Last, watcher: object) -> None:
    """Let this context know `entry` of a watcher."""
    # Copied and not changed in place: contexts that were copied from this one must not see it.
    last, key = LAST.get(), id(watcher)
    if len(last) == 1 and key in last:
        LAST.set({key: entry})
        return
    # What is known of watchers that are gone would be copied for every forward.
    last = {other: one for other, one in last.items() if other != key and one.closings.watcher() is not None}
    if len(last) >= _REMEMBERED:
        del last[next(iter(last))]
    LAST.set({**last, key: entry})


def _begun(watcher: Any) -> Closings:
    found = closings_of(watcher)
    if found is not None:
        return found
    key = id(watcher)

    def gone(reference: weakref.ref[Any]) -> None:
        known = _CLOSINGS.get(key)
        if known is not None and known.watcher is reference:
            del _CLOSINGS[key]

    try:
        reference: Callable[[], Any] = weakref.ref(watcher, gone)
    except TypeError:
        return Closings(lambda: watcher)
    # Of two threads that come here at once, both get what the first of them put there.
    made = _CLOSINGS.setdefault(key, Closings(reference))
    if made.watcher() is not watcher:  # of one that had this id before
        made = _CLOSINGS[key] = Closings(reference)
    return made


def task_here() -> Any:
    """The asyncio task that runs here, if one does."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return None
    return asyncio.current_task()


def from_outside(error: BaseException, call: Any) -> bool:
    """Whether an exception that was caught around `call` is none of its own: from a signal's handler, or thrown here.

    What came before or after the call has a traceback that does not go through its code, where that is known.
    """
    if type(call) is BuiltinMethodType and type(call.__self__) is list:
        return not isinstance(error, MemoryError)
    call = getattr(call, "__func__", call)
    code = getattr(call, "__code__", None) or getattr(getattr(type(call), "__call__", None), "__code__", None)  # noqa: B004
    if from_handler(error):
        return True
    if code is None or error.__traceback__ is None:
        return False
    within = error.__traceback__.tb_next
    if within is None:  # no frame began: the call was refused, or a thread was thrown the exception
        return not isinstance(error, TypeError | RecursionError | MemoryError)
    return within.tb_frame.f_code is not code


def told_nothing(fact: Fact) -> None:
    """Told in place of a watcher that raised."""


def each(call: Callable[[Any], object], things: list[Any]) -> None:
    """`call` each of the things; an interrupt on the way is raised when all had their turn, the first if several."""
    interrupt: BaseException | None = None
    for thing in things:
        try:
            call(thing)
        except BaseException as error:
            interrupt = interrupt or error
    if interrupt is not None:
        raise interrupt

"""Attribution of facts said by hand: which forward of a watcher each belongs to.

Inside a node it is the forward that last opened or closed within that node, else the node's own. Elsewhere it is the
one that closed last in this context, or in one copied from it. A context is not told that it was copied, so what
closed later elsewhere is judged by what its context knew before: see `_elsewhere`. Where several could be meant,
none is.
"""

from __future__ import annotations

import sys
import threading
import weakref
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from .forwards import HERE, LAST, Closings, Last, Place, Scope, closings_of, known_here, put


@dataclass(frozen=True)
class Several:
    """A fact could be meant for any of these forwards, by their sinks."""

    sinks: tuple[Any, ...]


def sink_here(watcher: object) -> Any:
    """The sink of `watcher` that a fact said to it, here and now, belongs to; None if that is not known of any."""
    found = _found(watcher, known_here(watcher), going_on=False)[0]
    return None if isinstance(found, Several) else found


def closed_last_here(watcher: object) -> Any:
    """The sink that closed last of all, if it did so in this very context and outside of nodes; else None."""
    last = LAST.get().get(id(watcher))
    if last is None or HERE.get() is not None:
        return None
    closings = last.closings
    if closings.watcher() is not watcher or not closings.recent or closings.recent[-1][0] is not last:
        return None
    scope = last.scope
    if not scope.spoke:
        scope.spoke = scope.is_here()
    return last.sink


def addressed(watcher: object, *, going_on: bool = False) -> Any:
    """The `sink_here` of a fact being said, or `Several`; the next fact said here goes to the same forward.

    With `going_on`, forwards of the watcher are open somewhere. Of a fact that could be meant for several it is told
    once, and the next ones of this context belong to none of them.
    """
    last = known_here(watcher)
    found, chosen = _found(watcher, last, going_on=going_on)
    if isinstance(found, Several):
        _settle(watcher, last, None, None)
    elif chosen is not None:
        _settle(watcher, last, found, chosen)
    elif last is not None and last.sink is found and not last.scope.spoke:
        last.scope.spoke = last.scope.is_here()
    return found


def _settle(watcher: object, before: Last | None, sink: Any, chosen: Last | None) -> None:
    """Let this context have spoken of a forward that closed in another one, or of none."""
    closings = before.closings if before is not None else closings_of(watcher)
    if closings is None:
        return
    entry = Last.made(closings, sink, HERE.get(), before)
    entry.scope.spoke = True
    if chosen is not None:
        chosen.replaced = True
    closings.recent.append((entry, before))
    put(entry, watcher)


def _found(watcher: object, last: Last | None, *, going_on: bool) -> tuple[Any, Last | None]:
    """The sink, None or `Several`; and what another context knows of it, if it closed there."""
    place = HERE.get()
    while place is not None:
        within = last if last is not None and last.within is place and last.step == place.step else None
        own = within.sink if within is not None else place.forward.sink_of(watcher)
        if own is not None:
            return _inside(watcher, place, within, own)
        place = place.parent
    return _elsewhere(watcher, last, going_on=going_on)


def _inside(watcher: object, place: Place, last: Last | None, own: Any) -> tuple[Any, Last | None]:
    """The forward meant inside a node, which may have run others in copied contexts."""
    closings = closings_of(watcher)
    if closings is None or not any(entry.within is place for entry, _ in closings.recent):
        return own, None
    if closings.recent[-1][0] is last:
        return own, None
    later = _Later(closings, last)
    found = [one for one in later.leaves if one.within is place and one.step == place.step and not one.scope.spoke]
    if not found:
        return own, None
    if len(found) == 1 and (last is None or later.follows(found[0], last)):
        return found[0].sink, found[0]
    return Several(_sinks(own, found)), None


def _elsewhere(watcher: object, last: Last | None, *, going_on: bool) -> tuple[Any, Last | None]:
    """The forward meant outside of nodes.

    - One that closed last in this very context, where none closed later elsewhere that could be meant.
    - What closed later in a context copied from this one, if it is the only such context, is not known to speak for
      itself, and was not copied from another copy of this one.
    - What closed later in a context that knows nothing of this one, if an executor's job closed it while this thread
      waited, the job is over, and nobody else ever spoke. A thread or a task that lives speaks for itself.
    - Where this context knows none, the only one there is.
    """
    closings = last.closings if last is not None else closings_of(watcher)
    own = None if last is None else last.sink
    if closings is None or not closings.recent or (last is not None and closings.recent[-1][0].order <= last.order):
        return own, None
    later = _Later(closings, last)
    if last is None:
        return _only_one([one for one in later.leaves if not one.scope.spoke], later, going_on=going_on)
    here = last.scope.is_here()
    copied = [one for one in later.leaves if later.follows(one, last) and (here or not one.scope.spoke)]
    if own is None and copied:
        return _only_one(copied, later, going_on=False)
    others = [
        one
        for one in later.leaves
        if not later.follows(one, last) and _may_be_over(one.scope) and not later.is_of_another(one, last.scope)
    ]
    if not copied and not others and not later.cut:
        return own, None
    found = copied + others
    if len(found) == 1 and not later.cut and found[0].sink is not None:
        one = found[0]
        if copied and here and not later.lives_on(one, last) and not _may_know(watcher, last):
            return one.sink, one
        awaited = last.scope.thread in one.awaited and _is_idle(one.scope)
        if others and awaited and later.is_one_job(one) and later.only_speaker_is(last.scope):
            return one.sink, one
    return Several(_sinks(own, found)), None


def _only_one(found: list[Last], later: _Later, *, going_on: bool) -> tuple[Any, Last | None]:
    """The forward meant where this context knows none: the only one there is."""
    if not found:
        return None, None
    one = found[0]
    if len(found) == 1 and one.sink is not None and not going_on and not later.is_several_jobs(one):
        return one.sink, one
    return Several(_sinks(None, found)), None


class _Later:
    """Forwards that closed in other contexts since this one knew `last`, and how these contexts follow each other."""

    def __init__(self, closings: Closings, last: Last | None) -> None:
        since = -1 if last is None else last.order
        known = list(closings.recent)
        at = len(known)  # mostly few closed since, of many that are known
        while at and known[at - 1][0].order > since:
            at -= 1
        records = known[max(0, at - 64) :]  # threads that close at once may be out of order
        self._known = known
        self._before = dict(records)
        entries = [
            entry
            for entry, _ in records
            # A copy knows of a context what that one knew when it was copied.
            if entry.order > since and (last is None or entry.scope is not last.scope)
        ]
        self.cut = last is not None and len(known) == closings.recent.maxlen and known[0][0].order > since
        """Whether more closed than is known."""
        if self.cut and all(entry.scope.spoke for entry in entries):
            self.cut = False
        self._entries = entries
        followed = {before for _, before in records if before is not None}
        latest = {entry.scope: entry for entry in entries}
        self.leaves = [entry for entry in latest.values() if entry not in followed and not entry.replaced]
        """For each context, or line of copies, the forward that closed last."""

    def _line(self, entry: Last) -> dict[Last, None]:
        """The earlier forwards known to its context, in order, as far as known."""
        line: dict[Last, None] = {}
        known = self._before.get(entry, entry.scope.base)
        while known is not None and known not in line:
            line[known] = None
            known = self._before.get(known, known.scope.base)
        return line

    def follows(self, entry: Last, last: Last) -> bool:
        """Whether the context of `entry` is a copy of one that knew `last`."""
        return last in self._line(entry)

    def is_of_another(self, entry: Last, scope: Scope) -> bool:
        """Whether its context is a copy of one that speaks for itself and is not `scope`."""
        of = next((one.scope for one in self._line(entry) if one.scope is not entry.scope), scope)
        return of is not scope and of.spoke

    def is_one_job(self, entry: Last) -> bool:
        """Whether a job of an executor closed it, whose context is no copy, and none closed another since."""
        anew = all(known.scope is entry.scope for known in self._line(entry))
        return anew and _is_of_executor(entry.scope) and not self.is_several_jobs(entry)

    def is_several_jobs(self, entry: Last) -> bool:
        """Whether several forwards closed in its context, which jobs of an executor share that have no own."""
        scope = entry.scope
        alike = [one for one in self._entries if one.scope is scope and one.sink is not entry.sink]
        return bool(alike) and scope.base is None and _is_of_executor(scope)

    def lives_on(self, entry: Last, last: Last) -> bool:
        """Whether a context between `last` and `entry` may say facts of its own."""
        line = list(self._line(entry))
        return any(
            (scope.task is not None and not _is_done(scope))
            or (scope.spoke and scope.task is None and scope.thread != get_ident() and _lives(scope.thread))
            for scope in {one.scope for one in [entry, *line[: line.index(last)]]} - {last.scope}
        )

    def only_speaker_is(self, scope: Scope) -> bool:
        """Whether facts were said in no other context."""
        return {entry.scope for entry, _ in self._known if entry.scope.spoke} <= {scope}


def _sinks(own: Any, found: list[Last]) -> tuple[Any, ...]:
    several = [own, *(one.sink for one in found)]
    return tuple(dict.fromkeys(sink for sink in several if sink is not None))


def _may_know(watcher: object, last: Last) -> bool:
    """Whether another task of this loop could know `last`, so that what followed it may be that task's."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return False
    key = id(watcher)
    scopes = [entry.scope for entry, _ in list(last.closings.recent)]
    know_other = {scope.task() for scope in scopes if scope.task is not None} | {asyncio.current_task()}
    for task in asyncio.all_tasks() - know_other:
        context = _context_of(task)
        if context is None or context.get(LAST, {}).get(key) is last:
            return True
    return False


def _context_of(task: Any) -> Any:
    """The context of an asyncio task that waits; None where Python does not say."""
    if hasattr(task, "get_context"):  # since 3.12
        return task.get_context()
    callbacks = getattr(getattr(task, "_fut_waiter", None), "_callbacks", None) or []
    return callbacks[0][1] if len(callbacks) == 1 else None


def _may_be_over(scope: Scope) -> bool:
    """Whether other contexts may say facts for this one: its thread or task is over, or it is an executor's job."""
    if scope.spoke and not _is_of_executor(scope):  # of which the next job may say nothing
        return False
    if scope.task is not None:
        return _is_done(scope)
    if scope.thread == get_ident():
        return False
    executor = _executor_of(scope.thread)
    # A job does not wait for its neighbours.
    return not _lives(scope.thread) if executor is None else executor is not _executor_of(get_ident())


def _is_done(scope: Scope) -> bool:
    task = scope.task() if scope.task is not None else None
    return task is None or bool(task.done())


def _lives(thread: int) -> bool:
    return _thread(thread) is not None


def _thread(ident: int) -> threading.Thread | None:
    return next((one for one in threading.enumerate() if one.ident == ident), None)


def _is_of_executor(scope: Scope) -> bool:
    return scope.task is None and _executor_of(scope.thread) is not None


def _executor_of(thread: int) -> Any:
    """The executor whose thread this is; None for any other, and for one that ended."""
    # An executor does not say which threads are its own; they are told by what they run.
    found = _thread(thread)
    if getattr(getattr(found, "_target", None), "__module__", None) != "concurrent.futures.thread":
        return None
    executor = next(iter(getattr(found, "_args", ())), None)
    return executor() if isinstance(executor, weakref.ref) and executor() is not None else executor


def _is_idle(scope: Scope) -> bool:
    """Whether the executor's thread it is in runs no job's code: it hands over an answer, or waits for the next job."""
    # An executor says nothing of its threads; a future of its would have to be in our hands.
    frame = sys._current_frames().get(scope.thread)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in ("asyncio", "concurrent", "threading"):
            return False
        frame = frame.f_back
    return True

"""Waiting between threads that stays correct when a signal handler, a finaliser or an interrupt comes at any bytecode.

A handler runs in the middle of whatever its thread is doing, so it must not wait for that thread: not for a lock that
it has taken, and not for one inside of `threading.Event`, `Condition` or `queue.Queue`. `Wakeup` waits on a lock of the
interpreter alone, which is taken and given back in one step; `Alone` puts off what a handler asks for in the middle of
something; and what must not be left half done is done by a `ServiceThread`, where no handler runs.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from io import FileIO
from time import monotonic, sleep
from types import CodeType
from typing import Any, TypeVar

from somatize.errors import WorkerError

T = TypeVar("T")

_LOOKS = 0.2
"""The interval in seconds at which a waiting thread checks that its work is being done."""


class Descriptor(FileIO):
    """An open file descriptor, closed when this object is collected, as after an interrupt."""

    def __del__(self) -> None:
        self.close()  # not as `FileIO` does, which warns


class Wakeup:
    """An event for one waiting thread, cleared by waiting; safe in signal handlers."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the waiting thread, or the next one that waits. Never blocks."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it is set

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set and clear it; False after `timeout` seconds."""
        return self._lock.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))


class Flag:
    """An event that stays set until it is cleared, for one waiting thread; safe in signal handlers and finalisers."""

    __slots__ = ("_wakeup", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._wakeup = Wakeup()

    def set(self) -> None:
        """Set it and wake the waiting thread. Never blocks."""
        self.is_set = True
        self._wakeup.set()

    def clear(self) -> None:
        """Clear it. A `set` that comes meanwhile holds."""
        self.is_set = False
        self._wakeup.wait(0)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set; False after `timeout` seconds."""
        return self.is_set or self._wakeup.wait(seconds) or self.is_set


def from_handler(error: BaseException) -> bool:
    """Whether an exception was raised in a signal's handler, whatever code that came in the middle of."""
    codes = _codes_of_handlers()
    within = error.__traceback__
    while within is not None:
        if within.tb_frame.f_code in codes:
            return True
        within = within.tb_next
    return False


def in_handler() -> bool:
    """Whether a signal's handler called this."""
    # Python has no other way to tell; checked only where the wait would never end.
    codes, frame = _codes_of_handlers(), sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code in codes:
            return True
    return False


def _codes_of_handlers() -> set[CodeType]:
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = [getattr(getattr(one, "__func__", one), "__code__", None) for one in handlers]
    return {code for code in codes if code is not None}


class Alone:
    """Runs pieces of work one at a time, in the calling thread; a nested call is postponed.

    What is asked for in the middle of another piece by the same thread, as by a signal's handler, is done right after
    it: it does not wait for what it interrupted, and does not find it half done.
    """

    def __init__(self, lock: AbstractContextManager[Any] | None = None) -> None:
        """With `lock`, which its owner may take again, also beside whoever else takes that."""
        self.lock: AbstractContextManager[Any] = threading.RLock() if lock is None else lock
        self.busy = 0
        """The thread that does something just now, with the lock held."""
        self.after: list[Callable[[], object]] = []
        """Calls requested in the middle of the work, made after it."""

    def alone(self, work: Callable[[], object]) -> bool:
        """Do a piece of work; False if it was put off."""
        if self.after and not self.busy:
            self._catch_up()
        me = _thread.get_ident()
        try:
            with self.lock:
                if self.busy:
                    self.after.append(work)
                    return False
                self.busy = me  # no call since the lock was taken, so no handler can run in between
                try:
                    work()
                finally:
                    self.busy = 0
        finally:
            if self.after and not self.busy:
                self._catch_up()
        return True

    def _catch_up(self) -> None:
        while self.after:
            try:
                work = self.after.pop(0)
            except IndexError:
                return  # another thread was quicker
            self.alone(work)

    def is_mine(self) -> bool:
        """Whether this thread is in the middle of a piece of work, so that a signal handler must not wait for it."""
        return self.busy == _thread.get_ident()


def start(work: Callable[[], object]) -> bool:
    """Run `work` in a daemon thread; False where none can be started, as at the interpreter's end.

    Unlike `threading.Thread.start` it waits for nothing and takes no lock.
    """
    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:
        return False
    return True


class ServiceThread:
    """Runs pieces of work one at a time in a daemon thread, while the callers wait.

    The thread starts when there is something to do and ends when there was nothing for `lingers` seconds. Where none
    can be started, and where a piece of work asks for another, that is done at once by who asks.
    """

    def __init__(self, lingers: float = 0.0) -> None:
        self._lingers = lingers
        self._jobs: deque[Callable[[], None]] = deque()
        self._wakeup = Wakeup()
        self._working = _thread.allocate_lock()  # taken by the thread as long as it lives
        self._thread = 0
        self._stopped = False

    def run(self, work: Callable[[], T], undo: Callable[[T], object] | None = None, *, certain: bool = False) -> T:
        """Run `work` in the service thread, return its result and raise its exception.

        An interrupt withdraws work that did not begin unless it is `certain`, else it is raised when that is done; a
        second one is raised at once. `undo` is then called with what the work gave, which nobody is there to take.
        """
        if _thread.get_ident() == self._thread or sys.is_finalizing():
            return work()
        answer: list[T] = []
        refusal: list[BaseException] = []
        abandoned: list[None] = []
        ended: list[None] = []
        done = Wakeup()

        def job() -> None:
            try:
                answer.append(work())
            except BaseException as error:
                refusal.append(error)
            if abandoned:
                _undo(answer, undo)
            ended.append(None)
            done.set()

        try:
            self._jobs.append(job)
            self._wakeup.set()
            self._begin()
            while not ended and not done.wait(_LOOKS):
                self._begin()  # a thread may be thrown an exception before it begins
        except BaseException:
            abandoned.append(None)
            if certain or not self._withdraw(job):
                while not ended:
                    self._begin()
                    done.wait(_LOOKS)
                _undo(answer, undo)
            raise
        if refusal:
            try:
                raise refusal[0]
            finally:
                refusal.clear()  # it holds this frame
        return answer[0]

    def stop(self) -> None:
        """The thread ends when it has done what there is to do; more work starts it anew."""
        self._stopped = True
        self._wakeup.set()

    def _withdraw(self, job: Callable[[], None]) -> bool:
        try:
            self._jobs.remove(job)
        except ValueError:
            return False  # it began
        return True

    def _begin(self) -> None:
        if not self._working.locked() and not start(self._work):
            self._work(lingers=False)

    def _work(self, *, lingers: bool = True) -> None:
        while True:
            if not self._working.acquire(blocking=False):
                return  # another does it, and looks again before it ends
            try:
                self._thread, self._stopped = _thread.get_ident(), False
                while self._do_next() or (lingers and not self._stopped and self._wakeup.wait(self._lingers)):
                    pass
            finally:
                self._thread = 0
                self._working.release()
            if not self._jobs:
                return

    def _do_next(self) -> bool:
        try:
            job = self._jobs.popleft()
        except IndexError:
            return False
        job()
        return True


def _undo(answer: list[T], undo: Callable[[T], object] | None) -> None:
    try:
        made = answer.pop()
    except IndexError:
        return  # it is undone by the other of the two threads, or there is nothing to undo
    if undo is not None:
        undo(made)


class TripLock:
    """A lock that raises an error in the thread that holds it, which would wait for itself.

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


PACE = 0.1
"""Seconds between two looks at what is due."""

_LINGERS = 5.0
"""Seconds a thread with nothing to do stays, so that a loop of short tasks does not start one for each."""


class Ticker:
    """Calls `tick` each `pace` seconds from a daemon thread, from `due` on until it answers that nothing is left to do.

    `tick` is a bound method, held weakly: what it belongs to may be dropped meanwhile, and the thread then ends.
    """

    __slots__ = ("__weakref__", "_due", "_living", "_pace", "_pid", "_tick", "_wake", "stopped")

    def __init__(self, tick: Callable[[], bool], pace: float = PACE) -> None:
        self._tick = weakref.WeakMethod(tick)
        self._pace = pace
        self.stopped = False
        self.renew()

    def renew(self) -> None:
        """Begin anew, without a thread: in a forked child the parent's is not there."""
        self._living = _thread.allocate_lock()  # taken by the thread as long as it lives
        self._wake = Wakeup()
        self._due = False
        self._pid = os.getpid()

    def due(self) -> None:
        """Schedule a look. Costs nothing while one is scheduled already."""
        if self._due or self.stopped or self._pid != os.getpid():
            return
        self._due = True
        self._wake.set()
        if not self._living.locked():
            start(partial(_run, weakref.ref(self)))  # where none can be started, nothing is due any more

    def stop(self) -> None:
        """Let the thread end at its next look; does not wait."""
        self.stopped = True
        self._wake.set()

    def look(self) -> bool:
        """One look; returns whether there is more to do. For the thread, and for tests in its place."""
        tick: Any = self._tick()
        return tick is not None and not self.stopped and bool(tick())


def _run(reference: weakref.ref[Ticker]) -> None:
    ticker = reference()
    living = None if ticker is None else ticker._living
    del ticker
    while living is not None and living.acquire(blocking=False):
        try:
            _look_again_and_again(reference)
        finally:
            living.release()
        ticker = reference()
        if ticker is None or ticker.stopped or not ticker._due:
            return
        del ticker  # work became due as the thread ended


def _look_again_and_again(reference: weakref.ref[Ticker]) -> None:
    idle_since = monotonic()
    while True:
        ticker = reference()
        if ticker is None or ticker.stopped:
            return
        wake, pace = ticker._wake, ticker._pace
        if ticker.look():
            due, idle_since = True, monotonic()
        else:
            ticker._due = False
            due = ticker._due = ticker.look() or ticker._due  # for what came between the look and the clearing
            if not due and monotonic() - idle_since > _LINGERS:
                return
        del ticker
        if due:
            sleep(pace)
        elif wake.wait(1.0):
            idle_since = monotonic()
            sleep(pace)

"""The Status a user holds: what is going on in this process, each part by delegation."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self, TypeAlias, TypeVar

from somatize.errors import BadOption
from somatize.watching import watchers as watching

from .events import LogEntry
from .forwards import ForwardTasks
from .listening import Listener
from .log_configuration import LogConfiguration, configure_logging
from .logs import Listening, Logs
from .options import Options
from .status_facts import Speaking
from .task_tree import Tree, carried
from .tasks import Task, looked_at
from .throughput import Distant, Throughput
from .ticking import Ticker
from .tracking import Track

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")


class Status:
    """What is going on in this process: its tasks, log records and throughput.

    Constructed, it works; `close`, the end of a ``with`` block, or dropping it puts everything back. Given as
    ``watching=`` to a forward, it shows the forward and its nodes as tasks. Threads may share it. In a forked child,
    and unpickled elsewhere, it is a copy that works, that nobody sees, and that holds nothing of what it is a copy of.
    """

    library = True

    def __init__(
        self,
        *,
        log_history: int | None = 200,
        window: int | None = 50,
        profile_flops: bool | None = True,
        loggers: Iterable[str] | None = ("somatize",),
        warnings: bool | None = False,
        watching: watching.Watching = None,
        log_facts: int | str | None = "INFO",
        clock: Callable[[], int] | None = None,
        **unknown: Never,
    ) -> None:
        """Begin, with the handlers on its loggers.

        `log_history` is how many log records are kept, `window` over how many batches rates are taken. With
        `profile_flops` the arithmetic of some batches of each stream is counted, which may slow those by half and more,
        the first of all by the seconds that torch's compiler takes to load; rates leave them out.
        Records of `loggers` are taken, ``""`` being the root, and `warnings` too if asked. `watching` takes who is to
        be told tasks, throughput, and log records from `log_facts` on, as facts; None is for no log records. `clock`
        gives nanoseconds. Any other option that is None has its default.

        Raises `BadOption` for an option there is not, with the nearest, and for a value that none can be.
        """
        options = Options.of(
            {
                "log_history": log_history,
                "window": window,
                "profile_flops": profile_flops,
                "loggers": loggers,
                "warnings": warnings,
                "watching": watching,
                "log_facts": log_facts,
                "clock": clock,
                **unknown,
            }
        )
        self._begin(options, alive=True)

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> Self:
        """A Status with the options of a mapping, as a configuration file gives them; None is for the defaults.

        Raises `BadOption`.
        """
        if options is None:
            return cls()
        if not isinstance(options, Mapping):
            raise BadOption(f"options are a mapping of names to values, not {options!r}")
        Options.of(options)
        return cls(**options)

    def _begin(self, options: Options, alive: bool) -> None:
        self._options = options
        self._tree = Tree(options.clock)
        self._logs = Logs(options.log_history, self._tree.current, self._tree.listeners)
        self._logs.find = _finding(weakref.ref(self))
        self._throughputs: dict[str, Throughput] = {}
        self._distant: dict[tuple[str, str], Distant] = {}
        self._relaying: Metered | None = None
        self._speaking: Speaking | None = None
        self._listening: Listening | None = None
        self._ticker = Ticker(self._tick)
        self._display: Any = None
        self._configured: list[LogConfiguration] = []
        _ALL.add(self)
        if not alive:
            self._tree.silence()
            return
        watchers = watching.watchers_in(options.watching)
        if watchers:
            self._speak(watchers, options)
        self._tree.due = self._ticker.due
        self._listening = Listening(self._logs, options.loggers, options.warnings)

    def _speak(self, watchers: list[Any], options: Options) -> None:
        speaking = self._speaking = Speaking(watchers, options.lowest(), options.clock)
        speaking.due = self._ticker.due
        self._tree.speaker = speaking
        self._logs.say = speaking.log

    # -- tasks

    def task(self, name: str, total: float | None = None) -> Task:
        """Open a task, within the one that is open in this context; ``with`` it, or `finish` it or `fail` it.

        `total` is how much there is to do, None where that is unknown. Costs a few microseconds.
        """
        if self._listening is not None:
            self._listening.put_back()
        return self._tree.open(name, total)

    def track(self, items: Iterable[T], name: str = "items", total: float | None = None) -> Track[T]:
        """`items`, and the loop over them as a task; `total` where their length is unknown or another."""
        self._put_back_handlers()
        return Track(self._tree, items, name, total)

    def carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` for a pool or a thread: what it opens there is a child of the task that is open here, now.

        ``pool.map(status.carried(work), shards)``. It takes all context variables along, so that facts said there
        find their forward as well.
        """
        return carried(function)

    @property
    def current(self) -> Task | None:
        """The innermost task that is open in this context."""
        return self._tree.current()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks open just now that are nobody's child; the others are their `children`."""
        return self._tree.look()

    @property
    def logs(self) -> tuple[LogEntry, ...]:
        """The last log records, the oldest first."""
        return tuple(self._logs.kept)

    def configure_logging(self, level: int | str = "INFO", console: Any = None) -> LogConfiguration:
        """As `somatize.status.configure_logging`, and take the root's records, until the answer or this is closed.

        A Status that is closed, or a copy, takes no records.
        """
        take = self._listening.take if self._listening is not None else None
        configured = configure_logging(level, console, take=take)
        self._configured = [one for one in self._configured if not one.closed] + [configured]
        return configured

    # -- throughput

    def throughput(self, stream: str) -> Throughput:
        """The meter of a stream of batches; the same one for the same name."""
        stream = str(stream)
        found = self._throughputs.get(stream)
        if found is None:
            with self._tree.lock:
                made = Throughput(self._tree, stream, self._options.window, self._options.profile_flops)
                if self._speaking is not None:
                    made.tell, made.before = self._speaking.throughput, self._speaking.marks
                elif self._relaying is not None:
                    made.tell, made.glance = partial(self._relaying, True), partial(self._relaying, False)
                found = self._throughputs.setdefault(stream, made)
        return found

    @property
    def throughputs(self) -> tuple[Throughput | Distant, ...]:
        """Every stream there is; one that node code at a host measures is called by its name and the host's."""
        return (*self._throughputs.values(), *self._distant.values())

    def _metered(self, host: str, node: str, said: Mapping[str, Any]) -> None:
        """How a stream at a host goes; `whole` where a window of it is full."""
        stream = self._distant.get((host, said["stream"]))
        if stream is None:
            stream = self._distant[host, said["stream"]] = Distant(f"{said['stream']} ({host})")
        stream.heard(said["stats"])
        if said["whole"] and self._speaking is not None:
            self._speaking.throughput(stream, node=node, host=host)

    # -- who is told

    def subscribe(self, listener: Listener, *, updates: bool = True, forwards: bool = True) -> Callable[[], None]:
        """Send each `TaskEvent` and `LogEvent` to `listener`; returns what takes that back.

        It is called where the thing happens, in whichever thread. Updates of one task are sent ten times a second at
        most, the last one always; with `updates=False` none is, which costs a loop nothing. With `forwards=False` it is
        sent nothing of the tasks of forwards and their nodes, which then cost less. One that raises is logged and
        unsubscribed. Raises `BadOption` for what is no callable, or would have to be awaited.
        """
        taken_back = self._tree.listeners.subscribe(listener, updates=updates, forwards=forwards)
        if forwards:
            looked_at(self._tree.everything())
        return taken_back

    def opens(self, graph: Any) -> ForwardTasks:
        """The sink of a forward of `graph`: it and its nodes become tasks."""
        self._put_back_handlers()
        return ForwardTasks(self, self._tree, graph)

    @property
    def status(self) -> Status:
        """Itself."""
        return self

    def display(self, **options: Any) -> Any:
        """Show tasks and logs as they go, where standard output goes: see `somatize.ui.Display`, and its options.

        Ends with this Status, or by its own `close`, or as a context manager.
        """
        from importlib import import_module

        if self._display is not None:
            self._display.close()
        # By name: the views stand above what they show, and are looked for only here.
        self._display = import_module("somatize.ui").Display(self, **options)
        return self._display

    # -- ending

    @property
    def closed(self) -> bool:
        """Whether nobody sees it any more: it was closed, or it is a copy in another process."""
        return not self._tree.alive

    def close(self) -> None:
        """Put everything back: tasks still open are ended and marked, handlers taken away, nobody told any more."""
        display, self._display = self._display, None
        try:
            if display is not None:
                display.close()
        finally:
            for throughput in self._throughputs.values():
                throughput.finish()
            for configured in self._configured:
                configured.close()
            listening, self._listening = self._listening, None
            if listening is not None:
                try:
                    self._tree.close()
                finally:
                    self._ticker.stop()
                    listening.close()
            self._logs.say = None

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # No finaliser of `weakref`: the process would hold it, it the listeners, and they very often this Status.
        if getattr(self, "_listening", None) is not None and not is_finalizing():
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _put_back_handlers(self) -> None:
        if self._listening is not None:
            self._listening.put_back()

    def _tick(self) -> bool:
        more = self._tree.tell_updates()
        if self._speaking is not None:
            more = self._speaking.say_open() or more
        return more

    def _forked(self) -> None:
        """What becomes of it in a forked child; the parent's goes on."""
        self._tree.silence()
        self._ticker.renew()
        self._ticker.stopped = True
        self._logs.forget()
        for throughput in self._throughputs.values():
            throughput._forget()
        if self._listening is not None:
            self._listening.close()
        self._begin(Options(**self._travelling()), alive=False)

    def _travelling(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self._options).items() if name in _TRAVEL}

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (self._travelling(),)

    def __repr__(self) -> str:
        closed = ", seen by nobody" if self.closed else ""
        return f"<Status: {len(self._tree.roots)} tasks open{closed}>"


Metered: TypeAlias = "Callable[[bool, Throughput], None]"
"""Told how a stream goes, and whether a window of it is full or this is a look in between."""


def relayed(listener: Listener, metered: Metered) -> Status:
    """A Status that is shown elsewhere: it takes no log records, and all else is said to `listener` and `metered`."""
    status = Status(loggers=())
    status._tree.writes = False
    status._relaying = metered
    status.subscribe(listener)
    return status


def _finding(reference: weakref.ref[Status]) -> Callable[[str, str | None], Task | None]:
    def find(node: str, identity: str | None) -> Task | None:
        """The task of a record that came back from a host, in the forward that runs here."""
        status, place = reference(), watching.HERE.get()
        if status is None:
            return None
        sink = place.forward.sink_of(status) if place is not None else None
        return sink.task_of(node, identity) if sink is not None else status._tree.current()

    return find


_TRAVEL = ("log_history", "window", "profile_flops")
_ALL: weakref.WeakSet[Status] = weakref.WeakSet()


def _copy(options: dict[str, Any]) -> Status:
    copy = Status.__new__(Status)
    copy._begin(Options(**options), alive=False)
    return copy


def _in_child() -> None:
    for status in list(_ALL):
        status._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

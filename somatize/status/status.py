"""`Status`: the tasks, log records and throughput of this process, each by delegation."""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from operator import length_hint
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic, Never, Self, TypeAlias, TypeVar

from somatize.errors import BadOption, nearest
from somatize.facts import Fact
from somatize.utils import Closable
from somatize.utils.interrupts import Ticker
from somatize.watching import watchers as watching

from .flops import COUNTING
from .logs import Listening, LogConfiguration, Logs, configure_logging
from .status_facts import Speaking
from .tasks import BROKEN_OFF, CHAIN, OPEN, EventKind, Listener, LogEntry, Task, Tree, carried
from .throughput import Distant, Throughput

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Options:
    """The options of a Status; see there."""

    log_history: int = 200
    window: int = 50
    profile_flops: bool = True
    loggers: Iterable[str] = ("somatize",)
    warnings: bool = False
    watching: watching.Watching = None
    log_facts: int | str | None = "INFO"
    clock: Callable[[], int] = perf_counter_ns

    def __post_init__(self) -> None:
        self._whole("log_history", 0)
        self._whole("window", 1)
        for name in ("profile_flops", "warnings"):
            if not isinstance(getattr(self, name), bool):
                raise BadOption(f"{name}={getattr(self, name)!r}: it is True or False")
        if not callable(self.clock):
            raise BadOption(f"clock={self.clock!r}: it is called and gives nanoseconds, as time.perf_counter_ns does")
        object.__setattr__(self, "loggers", self._names())
        self.lowest()

    def _whole(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or value < least:
            raise BadOption(f"{name}={value!r}: it is a whole number, {least} or more")

    def _names(self) -> tuple[str, ...]:
        if isinstance(self.loggers, str):
            raise BadOption(f'loggers={self.loggers!r} is one text; give a tuple of names: loggers=("{self.loggers}",)')
        names = tuple(self.loggers)
        for name in names:
            if not isinstance(name, str):
                raise BadOption(f'loggers holds {name!r}; it takes names as for logging.getLogger, "" for the root')
        return names

    def lowest(self) -> int | None:
        """The level from which a log record is said as a fact, as a number; None for none."""
        level = self.log_facts
        if level is None or (isinstance(level, int) and not isinstance(level, bool)):
            return level
        known = logging.getLevelNamesMapping()
        if level not in known:
            raise BadOption(f"log_facts={level!r} is no level of logging{nearest(str(level).upper(), list(known))}")
        return known[level]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options in a mapping. Raises `BadOption` for one that there is not, with the nearest."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                offered = nearest(str(name), known) or f"; there are {', '.join(known)}"
                raise BadOption(f"a Status has no option {name!r}{offered}")
        return cls(**{name: value for name, value in given.items() if value is not None or name == "log_facts"})


T = TypeVar("T")


class Track(Generic[T]):
    """An iterable that shows the loop over it as a task, from its first item to its end.

    Each loop is a task of its own. A loop that is left early lets go of its iterator, which ends the task, also
    where this iterable is held on to. `next` and `close` work on it as on a generator.
    """

    def __init__(self, tree: Tree, items: Iterable[T], name: str, total: float | None) -> None:
        self._tree = tree
        self._items = items
        self._name = name
        self._total = total
        self._own: Generator[T, None, None] | None = None

    def __iter__(self) -> Iterator[T]:
        return self._own if self._own is not None else self._walk()

    def __next__(self) -> T:
        if self._own is None:
            self._own = self._walk()
        return next(self._own)

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def close(self) -> None:
        """Break off what `next` began."""
        if self._own is not None:
            self._own.close()

    def _walk(self) -> Generator[T, None, None]:
        tree = self._tree
        listeners = tree.listeners
        task = tree.open(self._name, _length(self._items) if self._total is None else self._total)
        mark: str | None = BROKEN_OFF
        try:
            for item in self._items:
                yield item
                task._done += 1
                if listeners.followers and task.state is OPEN:
                    tree.updated(task)
            mark = None
        except GeneratorExit:
            raise
        except BaseException as error:  # raised by the iterable; exceptions of the loop's body do not pass here
            tree.end(task, EventKind.FAILED, error)
            raise
        finally:
            tree.end(task, EventKind.FINISHED, mark=mark)


def _length(items: object) -> int | None:
    # A length that raises counts as unknown, and a wrong one is corrected as the loop goes on.
    try:
        return length_hint(items, -1) if not hasattr(items, "__len__") else len(items)
    except Exception:
        return None


class ForwardTasks:
    """The sink of one forward of a Status: the forward and its nodes become tasks.

    These tasks come of facts that are recorded already, so they are quiet: listeners and views see them, they are
    neither logged nor said as facts of their own.
    """

    __slots__ = ("_counting", "_nodes", "_there", "_tree", "status", "task")
    forgets = True
    library = True

    def __init__(self, status: Status, tree: Tree, graph: Any) -> None:
        self.status = status
        self.task = tree.open("forward", len(graph), quiet=True)
        self._tree = tree
        self._nodes: dict[str, Task] = {}
        self._there: dict[str | None, Task] | None = None
        self._counting = COUNTING.get()

    def entering(self, node: str, host: str | None = None) -> None:
        """Open the task of a node that is about to run, or runs again; and make it current in this context."""
        task = self._nodes.get(node)
        if task is None:
            task = self._nodes[node] = self._tree.open_there(node, None, self.task, True, host, node)
        elif host is not None:
            task.host = host
        CHAIN.set(task)
        if self._counting is not None:
            task._operators = self._counting.operators

    def tell(self, fact: Fact) -> None:
        """Update the tasks from a fact about a node or the forward."""
        kind = fact["fact"]
        if kind == "ran":
            self._ended(fact, EventKind.FINISHED)
        elif kind == "failed":
            self._ended(fact, EventKind.FAILED)
        elif kind == "recalled":
            self._ended(fact, EventKind.FINISHED, "recalled")
        elif kind == "items":
            done = sum(int(fact[count]) for count in ("ran", "recalled", "failed"))
            self.progress(fact["node"], done, int(fact["items"]))
        elif kind == "broke":
            self._tree.end(self.task, EventKind.FAILED, fact["why"], None, int(fact["took_us"]) * 1000)
        elif kind == "finished":
            self._tree.end(self.task, EventKind.FINISHED, None, None, int(fact["took_us"]) * 1000)

    def progress(self, node: str, done: int, total: int | None) -> None:
        """Set the progress that a node reports."""
        task = self._nodes.get(node)
        if task is not None:
            task.update(done=done, total=total)

    def heard(self, host: str, node: str, said: dict[str, Any]) -> None:
        """Update from a worker: a task that node code opened there, or a stream."""
        if said["event"] == "throughput":
            self.status._metered(host, node, said)
            return
        tree = self._tree
        there = self._there = self._there or {}
        if said["event"] == "started":
            parent = self.task_of(node, said["parent"])
            there[said["id"]] = tree.open_there(said["name"], said["total"], parent, said["quiet"], host)
            return
        task = there.get(said["id"])
        if task is None:  # it ended with its node
            return
        if (task.done, task.total, task.name) != (said["done"], said["total"], said["name"]):
            task.update(done=said["done"], total=said["total"], name=said["name"])
        if said["event"] in ("finished", "failed"):
            del there[said["id"]]
            kind = EventKind.FAILED if said["event"] == "failed" else EventKind.FINISHED
            tree.end(task, kind, said["why"], said["mark"], said["took_us"] * 1000)

    def task_of(self, node: str, identity: str | None) -> Task:
        """The task of that identity at a host, or else of the node."""
        found = self._there.get(identity) if self._there else None
        return found or self._nodes.get(node, self.task)

    @property
    def over(self) -> bool:
        """Whether its task has ended."""
        return self.task.state is not OPEN

    def closed(self) -> None:
        """End the task of the forward if no fact ended it."""
        self._tree.end(self.task, EventKind.FINISHED)
        self._nodes.clear()
        self._there = self._counting = None

    def _ended(self, fact: Fact, kind: EventKind, mark: str | None = None) -> None:
        tree, forward, node = self._tree, self.task, fact["node"]
        task = self._nodes.pop(node, None)
        if task is None:  # told as over without `entering`, such as a recalled node
            task = tree.open_there(node, None, forward, True, None, node)
        if "host" in fact:
            task.host = fact["host"]
        took = int(fact["took_us"]) * 1000
        if self._counting is not None and task._operators is not None:
            self._counting.node(task._operators, took)
        tree.end(task, kind, fact["why"] if kind is EventKind.FAILED else None, mark, took)
        forward._done += 1
        if tree.listeners.followers:
            tree.updated(forward)


class Status(Closable):
    """The activity of this process: its tasks, log records and throughput.

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
        """The open tasks that have no parent; others are in their `children`."""
        return tuple(self._tree.roots)

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
        """Update a stream at a host; `whole` if its window is full."""
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
        sent nothing of the tasks of forwards and their nodes. One that raises is logged and
        unsubscribed. Raises `BadOption` for what is no callable, or would have to be awaited.
        """
        return self._tree.listeners.subscribe(listener, updates=updates, forwards=forwards)

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
        """Whether it was closed, or is a copy in another process."""
        return not self._tree.alive

    def __exit__(self, *exception: object) -> None:
        if isinstance(exception[1], BaseException):
            self._tree.end_all(EventKind.FAILED, exception[1])
        self.close()

    def close(self) -> None:
        """Undo everything: open tasks are ended and marked, handlers and listeners removed.

        Where an exception leaves the ``with`` block of this, open tasks fail by it.
        """
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
        # Not `weakref.finalize`: it would hold the listeners, which mostly refer to this Status.
        if getattr(self, "_listening", None) is not None and not is_finalizing():
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
        """Reset in a forked child; the parent continues."""
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

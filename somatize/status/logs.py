"""Log records of this process: the handler that collects them, and `configure_logging`.

`logging` is one for the whole process, so what is done to it must be undone exactly: a `Listening` adds one handler to
each logger it was given and takes away only that one, whoever else came or went meanwhile. It changes no level and
no propagation. Two things in `logging` would take notice of a handler more, and are kept from it here:

- `basicConfig` without `force` does nothing where the root has a handler, and scripts set up what is the root's first.
  The root's list of handlers therefore leaves ours out of its length and places; going through it still meets them.
- `logging.lastResort` prints what nobody handles. Where ours are the only handlers a record passes, one of them
  hands it on to it.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from somatize.errors import BadOption, nearest
from somatize.utils import Closable

from .tasks import CHAIN, Listeners, LogEntry, LogEvent, Task

_formatter = logging.Formatter()
_WARNINGS = "py.warnings"
_new = tuple.__new__


class Logs:
    """The last log records, and the listeners of new ones."""

    __slots__ = ("__weakref__", "_current", "_listeners", "find", "kept", "say")

    def __init__(self, history: int, current: Callable[[], Task | None], listeners: Listeners) -> None:
        self.kept: deque[LogEntry] = deque(maxlen=history)
        self.say: Callable[[logging.LogRecord, LogEntry], object] | None = None
        self.find: Callable[[str, str | None], Task | None] | None = None
        """Finds the task of a record from a host, by node and the host's key of the task."""
        self._current = current
        self._listeners = listeners

    def forget(self) -> None:
        """Drop the records and the listeners."""
        self.kept.clear()
        self.say = self.find = None

    def take(self, record: logging.LogRecord) -> None:
        """Keep a record, as text, and tell of it."""
        try:
            message = record.getMessage()
        except Exception as error:  # the handlers that write it complain about it; here it is still shown
            message = f"{_shown(record.msg)} with {_shown(record.args)}: {type(error).__name__}: {_shown(error, str)}"
        error_info, traceback = record.exc_info, record.exc_text
        if error_info and error_info[0] is not None:
            traceback = _formatter.formatException(error_info)
        elsewhere = getattr(record, "elsewhere", None)
        if type(elsewhere) is tuple and self.find is not None:  # it came back from a worker
            host, task = getattr(record, "host", None), self.find(*elsewhere)
        else:
            host, task = None, None if CHAIN.get() is None else self._current()
        fields = record.levelno, record.levelname, record.name, message, record.created, task, traceback, host
        entry = _new(LogEntry, fields)  # the same as LogEntry(*fields), without its call
        self.kept.append(entry)
        if self._listeners.everyone:
            self._listeners.tell(LogEvent(entry))
        if self.say is not None:
            self.say(record, entry)


class Listening:
    """The handlers of one Status, on the loggers it was given."""

    def __init__(self, logs: Logs, loggers: Iterable[str], route_warnings: bool = False) -> None:
        names = dict.fromkeys((*loggers, _WARNINGS) if route_warnings else loggers)
        self._logs = weakref.ref(logs)
        self._handlers = [StatusHandler(logs, _logger(name)) for name in names]
        self._each_once()
        self._warnings = _Warnings() if route_warnings else None
        self.put_back()

    def _each_once(self) -> None:
        once = _Once() if len(self._handlers) > 1 else None  # a record may pass several of them
        for handler in self._handlers:
            handler.once = once

    def take(self, logger: logging.Logger) -> Callable[[], None]:
        """Take the records of one more logger, until what this returns is called."""
        logs = self._logs()
        if logs is None or any(handler.logger is logger for handler in self._handlers):
            return _gone
        handler = StatusHandler(logs, logger)
        self._handlers = [*self._handlers, handler]
        self._each_once()
        handler.attach()

        def leave() -> None:
            self._handlers = [other for other in self._handlers if other is not handler]
            handler.detach()

        return leave

    def put_back(self) -> None:
        """Add the handlers that a configuration made meanwhile has taken away. Cheap where it has not."""
        for handler in self._handlers:
            if handler not in handler.logger.handlers:
                handler.attach()

    def close(self) -> None:
        """Take away the handlers of this one, and no others."""
        for handler in self._handlers:
            handler.detach()
        if self._warnings is not None:
            self._warnings.restore()
            self._warnings = None


class StatusHandler(logging.Handler):
    """Hands each record to the logs of one Status, for as long as those are there.

    It takes no lock, as it writes to nothing, and no filters: it is nobody's to configure.
    """

    def __init__(self, logs: Logs, logger: logging.Logger) -> None:
        super().__init__()
        self._logs: Callable[[], Logs | None] = weakref.ref(logs)
        self.once: _Once | None = None
        self.logger = logger

    def handle(self, record: logging.LogRecord) -> bool:
        """Keep a record, and pass it to the last resort if no other handler would take it."""
        logs = self._logs()
        if logs is not None and (self.once is None or self.once.first(record)):
            try:
                logs.take(record)
            except Exception:
                self.handleError(record)
        for handler in self.logger.handlers:  # mostly one of the first handlers answers
            if type(handler) is not StatusHandler:
                return True
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and _nobody_else(record, self):
            last.handle(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """As `handle`, for code that calls `emit` directly."""
        self.handle(record)

    def attach(self) -> None:
        """Go onto the logger, before its other handlers: what one of these does to a record, or raises, comes after."""
        with logging_lock():
            if self.logger.parent is None and not isinstance(self.logger.handlers, _RootHandlers):
                self.logger.handlers = _RootHandlers(self.logger.handlers)
            if self not in self.logger.handlers:
                self.logger.handlers.insert(0, self)

    def detach(self) -> None:
        """Remove the handler, and leave the rest of the logger's list as it is now."""
        self._logs = _gone  # code that kept a copy of the list may put it back
        self.logger.removeHandler(self)
        if isinstance(self.logger.handlers, _RootHandlers):
            with logging_lock():
                handlers = [*self.logger.handlers]
                if not any(isinstance(handler, StatusHandler) for handler in handlers):
                    self.logger.handlers = handlers


class _RootHandlers(list[logging.Handler]):
    """The root's list of handlers; iteration includes those of a Status, length and indexing do not."""

    # `logging.basicConfig` and many libraries configure nothing where the root has a handler: with a plain one a script
    # would lose its own output. logging offers no other place that sees what is propagated: filters of the root are
    # not asked, and a record factory sees what no handler's level lets pass.

    def __len__(self) -> int:
        return len(self._others())

    def __getitem__(self, place: Any) -> Any:
        return self._others()[place]

    def _others(self) -> list[logging.Handler]:
        return [handler for handler in self if not isinstance(handler, StatusHandler)]


class _Once:
    """Whether a record is met for the first time in its thread; a record passes all its handlers in one.

    A handler it passes on its way may log too, so a few are remembered.
    """

    def __init__(self) -> None:
        self._seen = threading.local()

    def first(self, record: logging.LogRecord) -> bool:
        last = getattr(self._seen, "last", ())
        if any(seen() is record for seen in last):
            return False
        self._seen.last = (weakref.ref(record), *last[:7])
        return True


class _Warnings:
    """Logs warnings as long as any Status wants it, unless `logging.captureWarnings` does so already.

    It does not call `captureWarnings` itself: code that calls it meanwhile would lose that with the last Status.
    """

    _wanted = 0
    _route: _Route | None = None
    _lock = threading.RLock()

    def __init__(self) -> None:
        with _Warnings._lock:
            if not _Warnings._wanted and logging._warnings_showwarning is None:  # type: ignore[attr-defined]
                _Warnings._route = warnings.showwarning = _Route(warnings.showwarning)
            _Warnings._wanted += 1

    def restore(self) -> None:
        with _Warnings._lock:
            _Warnings._wanted -= 1
            route = _Warnings._route
            if _Warnings._wanted or route is None:
                return
            _Warnings._route, route.open = None, False
            if warnings.showwarning is route:
                warnings.showwarning = route.before
            elif logging._warnings_showwarning is route:  # type: ignore[attr-defined]
                logging._warnings_showwarning = route.before  # type: ignore[attr-defined]


class _Route:
    """Shows a warning as a log record; once that is undone, as it was shown before."""

    def __init__(self, before: Callable[..., None]) -> None:
        self.before = before
        self.open = True

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        if file is None and self.open:
            text = warnings.formatwarning(message, category, filename, lineno, line)
            logging.getLogger(_WARNINGS).warning("%s", text)
        else:
            self.before(message, category, filename, lineno, file, line)


def _nobody_else(record: logging.LogRecord, asking: StatusHandler) -> bool:
    """Whether the handlers a record passes are all a Status', and `asking` is the first of them."""
    first: logging.Handler | None = None
    logger: Any = logging.root.manager.loggerDict.get(record.name, asking.logger)
    while logger is not None:
        for handler in logger.handlers:
            if type(handler) is not StatusHandler:
                return False
            if first is None:
                first = handler
        logger = logger.parent if logger.propagate else None
    return first is asking


def is_written(name: str, level: int) -> bool:
    """Whether a record of that logger and level would be written by a handler that is no Status' own."""
    logger: Any = _logger(name)
    if not logger.isEnabledFor(level):
        return False
    while logger is not None:
        if any(not isinstance(handler, StatusHandler) and level >= handler.level for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _logger(name: str) -> logging.Logger:
    if not name or name == "root":
        return logging.root
    known = logging.root.manager.loggerDict.get(name)
    return known if isinstance(known, logging.Logger) else logging.getLogger(name)


def _gone() -> None:
    """The replacement target for records of a handler that was closed."""


def _shown(thing: object, how: Callable[[object], str] = repr) -> str:
    try:
        return how(thing)
    except Exception:
        return f"<{type(thing).__name__}>"


def logging_lock() -> Any:
    return getattr(logging, "_lock", None) or nullcontext()


_IN_ORDER: list[LogConfiguration] = []
"""The configurations in force, oldest first."""


def configure_logging(
    level: int | str = "INFO",
    console: Any = None,
    *,
    take: Callable[[logging.Logger], Callable[[], None]] | None = None,
) -> LogConfiguration:
    """Set the root logger's level, and write its records to a console by Rich, until the answer is closed.

    `console` is a console of Rich or a stream, None for standard error, False for none. Handlers of the root that write
    to standard output or error are set aside meanwhile, so that no record is written twice; others stay as they are.
    Called again, it is the last call that counts; closing it brings back what was before. `take` is asked to take the
    root's records as well, and returns what ends that.

    Raises `BadOption` for a level there is not and for what is no console.
    """
    return LogConfiguration(_level(level), _handler(console), take)


class LogConfiguration(Closable):
    """The changes made by `configure_logging`; `close`, or the end of a ``with`` block, undoes them."""

    def __init__(
        self,
        level: int,
        handler: logging.Handler | None,
        take: Callable[[logging.Logger], Callable[[], None]] | None,
    ) -> None:
        self._level = level
        self._handler = handler
        self._aside: list[logging.Handler] = []
        with logging_lock():
            root = logging.root
            self._level_before, self._before = root.level, list(root.handlers)
            root.setLevel(level)
            if handler is not None:
                self._aside = [other for other in self._before if _writes_to_console(other)]
                for other in self._aside:
                    root.removeHandler(other)
                root.addHandler(handler)
            _IN_ORDER.append(self)
        self._leave = take(logging.root) if take is not None else None

    @property
    def closed(self) -> bool:
        """Whether it was undone."""
        return self not in _IN_ORDER

    def close(self) -> None:
        """Undo it, but for what others changed meanwhile. A second time does nothing."""
        with logging_lock():
            if self.closed:
                return
            place = _IN_ORDER.index(self)
            _IN_ORDER.remove(self)
            if place < len(_IN_ORDER):
                self._leave_to(_IN_ORDER[place])
            else:
                self._restore()
            if self._handler is not None:
                logging.root.removeHandler(self._handler)
                self._handler.close()
        if self._leave is not None:
            self._leave()

    def _leave_to(self, later: LogConfiguration) -> None:
        """Undo the changes of this one below a later one, which stays."""
        later._level_before, later._before = self._level_before, self._before
        later._aside = [*self._aside, *(handler for handler in later._aside if handler is not self._handler)]

    def _restore(self) -> None:
        root, there = logging.root, list(logging.root.handlers)
        if self._handler is not None and self._handler not in there:  # others configured the root anew
            return
        if root.level == self._level:
            root.setLevel(self._level_before)
        back = [handler for handler in self._before if handler in there or handler in self._aside]
        root.handlers[:] = [*back, *(handler for handler in there if handler not in back)]


def _level(level: int | str) -> int:
    if isinstance(level, int) and not isinstance(level, bool):
        return level
    known = logging.getLevelNamesMapping()
    if isinstance(level, str) and level.upper() in known:
        return known[level.upper()]
    raise BadOption(f"level={level!r} is no level of logging{nearest(str(level).upper(), list(known))}")


def _handler(console: Any) -> logging.Handler | None:
    if console is False:
        return None
    # By name: what paints stands above what it shows.
    handler: logging.Handler | None = import_module("somatize.ui.rich_backend").log_handler(console)
    if handler is None:
        raise BadOption(
            f"console={console!r}: it is a rich.console.Console or a stream, None for standard error, False for none"
        )
    return handler


def _writes_to_console(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    return stream is not None and any(
        stream is known for known in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    )

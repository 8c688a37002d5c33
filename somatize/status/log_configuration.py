"""`configure_logging`: what most scripts set up by hand, in one call, and how that is undone."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from somatize.errors import BadOption, nearest

from .logs import logging_lock

_IN_ORDER: list[LogConfiguration] = []
"""Those that are not undone, the first made first."""


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


class LogConfiguration:
    """What `configure_logging` set up; `close`, or the end of a ``with`` block, undoes it."""

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
        """One that was made later goes on, and brings back what was before this one."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


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

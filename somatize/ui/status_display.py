"""The display of a Status: live lines at the bottom of a terminal, plain lines in a file, an output in a notebook.

On a terminal the cursor moves over the display's own lines only, and no mode is switched: whenever the process ends,
the terminal is as it was, at worst with the last lines left.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO
from uuid import uuid4

from somatize.figures import notebook
from somatize.status.logs import is_written
from somatize.status.tasks import EventKind, Task, TaskEvent
from somatize.utils.units import count, duration, rate

from .rich_backend import Group, Text, console_for, html, literal, painted
from .status_views import LogView, StatusView, throughput_words

if TYPE_CHECKING:
    from somatize.status import Status


_LONGEST = 4096


class Region:
    """The lines at the bottom, and the streams whose output goes above them unchanged."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.lock = threading.RLock()
        self._drawn = 0
        self._proxies: list[_Above] = []
        self._handlers: list[tuple[logging.StreamHandler[Any], Any]] = []
        self.open = True
        _REGIONS.add(self)

    def begin(self) -> None:
        """From now on, what goes to standard output or error, if they are terminals, goes above the lines."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if _is_terminal(stream) and not isinstance(stream, _Above):
                proxy = _Above(stream, self, name)
                self._proxies.append(proxy)
                setattr(sys, name, proxy)
        for reference in list(logging._handlerList):  # type: ignore[attr-defined]
            handler = reference()
            if isinstance(handler, logging.StreamHandler):
                self._lead_above(handler)

    def _lead_above(self, handler: logging.StreamHandler[Any]) -> None:
        for proxy in self._proxies:
            if getattr(handler, "stream", None) is proxy.stream and "stream" in vars(handler):
                handler.stream = proxy
                self._handlers.append((handler, proxy))

    def draw(self, lines: list[str]) -> None:
        """Draw these lines in place of the last ones."""
        with self.lock:
            if self.open and (lines or self._drawn):
                self._write(self._over() + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
                self._drawn = len(lines)

    def above(self, stream: TextIO, text: str) -> None:
        """Write `text` above the lines; they are there again at the next draw."""
        with self.lock:
            try:
                self.erase()
            except (OSError, ValueError):  # nothing can be drawn any more, which is not the matter of who prints
                self._give_back()
            stream.write(text)
            stream.flush()

    def erase(self) -> None:
        """Take the lines away."""
        with self.lock:
            if self._drawn:
                self._write(self._over() + "\x1b[J")
                self._drawn = 0

    def close(self) -> None:
        """Remove the lines, and restore the streams that are still redirected."""
        with self.lock:
            if not self.open:
                return
            try:
                self.erase()
            finally:
                self._give_back()

    def _give_back(self) -> None:
        self.open = False
        for proxy in self._proxies:
            proxy.finish()
            if getattr(sys, proxy.name) is proxy:
                setattr(sys, proxy.name, proxy.stream)
        for reference in list(logging._handlerList):  # type: ignore[attr-defined]
            handler = reference()
            stream = getattr(handler, "stream", None)
            if isinstance(stream, _Above) and stream in self._proxies:
                handler.stream = stream.stream

    def forked(self) -> None:
        """In a forked child: the parent draws, and the child's output passes unchanged."""
        self.lock = threading.RLock()
        self._drawn = 0
        if self.open:
            self._give_back()

    def _over(self) -> str:
        return f"\r\x1b[{self._drawn}A" if self._drawn else ""

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class _Above:
    """A stream whose lines appear above a region; all but writing is the stream's own."""

    def __init__(self, stream: TextIO, region: Region, name: str) -> None:
        self.stream = stream
        self.name = name
        self._region = region
        self._begun = ""

    def write(self, text: str) -> int:
        region = self._region
        if not region.open:
            return self.stream.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with region.lock:
            whole, newline, rest = (self._begun + text).rpartition("\n")
            self._begun = rest if len(rest) < _LONGEST else _latest(rest)
            if newline:
                region.above(self.stream, whole + newline)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """A line that was begun waits for its end: where it would be, the region is drawn."""
        self.stream.flush()

    def finish(self) -> None:
        begun, self._begun = self._begun, ""
        if begun:
            self.stream.write(begun)
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Any:
        return iter(self.stream)


def _latest(begun: str) -> str:
    """The current text of a line that another program overwrites, such as a progress bar."""
    return begun[begun.rfind("\r", 0, -1) + 1 :]


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except Exception:
        return False


_REGIONS: weakref.WeakSet[Region] = weakref.WeakSet()


def _before_fork() -> None:
    # Nothing is half written, and no buffer of a stream is locked, at the moment of the fork.
    for region in list(_REGIONS):
        region.lock.acquire()


def _in_parent() -> None:
    for region in list(_REGIONS):
        try:
            region.lock.release()
        except RuntimeError:  # made while another thread forked
            continue


def _in_child() -> None:
    for region in list(_REGIONS):
        region.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


_SLOWEST = 600.0
"""Seconds between two lines of one task at most."""


class Lines:
    """The lines that are due.

    Of each running task one after `every` seconds, the next after as long again as it has taken, ten minutes at most:
    a run of a day has some 150.
    """

    def __init__(self, status: Status, every: float) -> None:
        self._status = weakref.ref(status)
        self._every = every
        self._next: weakref.WeakKeyDictionary[Task, float] = weakref.WeakKeyDictionary()
        self._streams: dict[str, int] = {}

    def due(self) -> Iterator[str]:
        """One line for each task that has not been spoken of for a while, and for its streams beside it."""
        status = self._status()
        if status is None:
            return
        spoke = False
        for task, depth in list(_running(status.tasks)):
            elapsed = task.elapsed
            if elapsed >= self._next.get(task, self._every):
                self._next[task] = elapsed + min(max(self._every, elapsed), _SLOWEST)
                yield "  " * depth + progress_words(task)
                spoke = True
        if spoke:
            yield from self._of_streams(status)

    def _of_streams(self, status: Status) -> Iterator[str]:
        for stream in status.throughputs:
            stats = stream.stats()
            words = throughput_words(stats)
            if words is not None and self._streams.get(stream.stream) != stats.batches:
                self._streams[stream.stream] = stats.batches
                yield f"{stream.stream}: {words}"


def progress_words(task: Task) -> str:
    """The progress of a task, in words."""
    words = [duration(task.elapsed)]
    if task.total is not None:
        percent = "" if task.percent is None else f" ({task.percent} %)"
        words.insert(0, f"{count(task.done)} of {count(task.total)}{percent}")
    elif task.done:
        words.insert(0, count(task.done))
    if task.rate is not None:
        words.append(rate(task.rate))
    if task.remaining is not None:
        words.append(f"{duration(task.remaining)} left")
    return f"{task.name}: {', '.join(words)}"


def end_words(task: Task) -> str:
    """The end of a task, in words."""
    done = count(task.done) if task.done or task.total is not None else ""
    total = f" of {count(task.total)}" if task.total is not None and task.total != task.done else ""
    words = [f"{task.state} in {duration(task.elapsed)}", *([done + total] if done else [])]
    if task.mark:
        words.append(task.mark)
    return f"{task.name}: {', '.join(words)}{f': {task.why}' if task.why else ''}"


def _running(tasks: tuple[Task, ...]) -> Iterator[tuple[Task, int]]:
    pending = [(task, 0) for task in reversed(tasks)]
    while pending:
        task, depth = pending.pop()
        yield task, depth
        pending += [(child, depth + 1) for child in reversed(task.children)]


_log = logging.getLogger("somatize.ui")

_FLICKER = 0.1
_ENDED = 20
"""Lines about tasks that have ended which a notebook keeps showing."""


class Display:
    """Shows a Status until it is closed; made by `Status.display`, and a context manager.

    On a terminal, running tasks and streams are drawn at its bottom ten times a second, and what is printed or logged
    meanwhile goes above. Where output is a file, a pipe or a CI's log, lines are written: each root task when it ends,
    and how far the running ones are every `every` seconds, seldomer the longer they take. In a notebook one output is
    refreshed. With `logs`, the last so many log records are shown too, where they have no handler of their own.

    Where ``RANK`` is set and not 0 nothing is shown, unless `all_ranks`. `live` forces the terminal's way, or the
    file's; `file` is where it goes instead of standard output.
    """

    def __init__(
        self,
        status: Status,
        *,
        file: TextIO | None = None,
        live: bool | None = None,
        all_ranks: bool = False,
        logs: int = 0,
        every: float = 10.0,
        refresh: bool = True,
    ) -> None:
        """Begin to show; `refresh=False` draws only when `draw` is called."""
        self._way: Any = None
        self._status = weakref.ref(status)
        self._stop = threading.Event()
        self._unsubscribe = _nothing
        if not all_ranks and os.environ.get("RANK", "0").strip() not in ("", "0"):
            return
        stream = file if file is not None else sys.stdout
        view = _View(status, logs)
        if live is None and file is None and notebook.kernel() is not None:
            self._way = _InNotebook(view)
        elif live or (live is None and _can_move(stream)):
            self._way = _OnTerminal(view, stream)
        else:
            self._way = _InFile(status, stream, every)
        self._unsubscribe = status.subscribe(_TaskEndLine(self._way), updates=False, forwards=False)
        atexit.register(self.close)
        if refresh:
            threading.Thread(
                target=_refresh, args=(weakref.ref(self), self._stop, self._way.pace), name="somatize-view", daemon=True
            ).start()

    def draw(self) -> None:
        """Show how things are now. What goes wrong in it is logged, and ends the display, not the work."""
        if self._way is None:
            return
        if self._status() is None:
            self.close()
            return
        try:
            self._way.draw()
        except Exception:
            self._broke()

    def close(self) -> None:
        """Show no more, and leave the terminal as it was; a second call does nothing."""
        way, self._way = self._way, None
        if way is None:
            return
        self._stop.set()
        self._unsubscribe()
        atexit.unregister(self.close)
        try:
            way.close()
        except Exception:
            _log.exception("the display could not be closed properly")

    def _broke(self) -> None:
        way, self._way = self._way, None
        self._stop.set()
        self._unsubscribe()
        try:
            if way is not None:
                way.give_up()
        except Exception:
            _log.exception("the display could not be closed properly")
        finally:
            _log.exception("the display broke and shows nothing more; the work goes on")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _View:
    """The content of a display, rendered anew on each refresh."""

    def __init__(self, status: Status, logs: int) -> None:
        self.status = weakref.ref(status)  # a display must not keep its Status from being dropped
        self._logs = logs

    def now(self, rows: int | None = None) -> Any:
        status = self.status()
        if status is None:
            return None
        parts: list[Any] = [StatusView(status, min_age=_FLICKER, rows=rows)]
        if self._logs and status.logs:
            parts.append(LogView(status, rows=self._logs))
        return Group(*parts)


class _OnTerminal:
    pace = 0.1
    in_a_cell = False

    def __init__(self, view: _View, stream: TextIO) -> None:
        self._view = view
        self._console = console_for(stream)
        self._region = Region(stream)
        self._region.begin()

    def draw(self) -> None:
        height = max(1, self._console.height - 3)
        view = self._view.now(height - 2)
        self._region.draw(painted(view, self._console)[:height] if view is not None else [])

    def ended(self, words: str) -> None:
        region = self._region
        region.above(region.stream, literal(words, self._console.encoding) + "\n")

    def close(self) -> None:
        self._region.close()

    def give_up(self) -> None:
        self._region.close()


class _InFile:
    pace = 1.0
    in_a_cell = False

    def __init__(self, status: Status, stream: TextIO, every: float) -> None:
        self._lines = Lines(status, every)
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    def draw(self) -> None:
        for line in self._lines.due():
            self._write(line)

    def ended(self, words: str) -> None:
        self._write(words)

    def _write(self, line: str) -> None:
        self._stream.write(literal(line, self._encoding) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing was changed."""

    def give_up(self) -> None:
        """Nothing was changed."""


class _InNotebook:
    pace = 0.25
    in_a_cell = True

    def __init__(self, view: _View) -> None:
        self._view = view
        self._id = uuid4().hex
        self._ended: list[str] = []
        self._shown: tuple[str, str] | None = None
        self._lock = threading.RLock()

    def draw(self) -> None:
        with self._lock:  # drawn by its thread and, for the last time, by whoever closes it
            self._draw()

    def _draw(self) -> None:
        view = self._view.now()
        lines = [Text(literal(line), style="dim") for line in self._ended[-_ENDED:]]
        bundle = html(Group(*lines, view) if view is not None else Group(*lines), 100)
        if bundle != self._shown:
            text, page = bundle
            notebook.show({"text/plain": text, "text/html": page}, self._id, again=self._shown is not None)
            self._shown = bundle

    def ended(self, words: str) -> None:
        self._ended.append(words)

    def close(self) -> None:
        self.draw()

    def give_up(self) -> None:
        """Nothing was changed."""


class _TaskEndLine:
    """A listener that has a line written for each root task that ends, where no log line says so already.

    The tasks of forwards are not among them: a training loop has one for each batch.
    """

    def __init__(self, way: Any) -> None:
        self._way = weakref.ref(way)

    def __call__(self, event: Any) -> None:
        if not isinstance(event, TaskEvent) or event.kind not in (EventKind.FINISHED, EventKind.FAILED):
            return
        task, way = event.task, self._way()
        if way is None or task.quiet or task.parent is not None:
            return
        if task.elapsed < _FLICKER and event.kind is EventKind.FINISHED:
            return
        if way.in_a_cell or not is_written("somatize.status", logging.INFO):
            way.ended(end_words(task))


def _refresh(reference: weakref.ref[Display], stop: threading.Event, pace: float) -> None:
    while not stop.wait(pace):
        display = reference()
        if display is None:
            return
        display.draw()
        del display


def _can_move(stream: Any) -> bool:
    """Whether `stream` is a terminal on which a cursor can move up."""
    try:
        terminal = bool(stream.isatty())
    except Exception:
        return False
    return terminal and os.environ.get("TERM", "dumb") not in ("dumb", "unknown") and not os.environ.get("CI")


def _nothing() -> None:
    """Nothing to undo."""

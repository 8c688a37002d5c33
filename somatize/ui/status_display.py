"""The display of a Status: live lines at the bottom of a terminal, plain lines in a file, an output in a notebook.

On a terminal the cursor moves over the display's own lines only, and no mode is changed: if the process is killed, at
worst the last lines stay. Rich's `Live` is not used because it hides the cursor, which a killed process leaves hidden,
and interprets what others print.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO
from uuid import uuid4

from somatize.figures import notebook
from somatize.status.logs import is_written
from somatize.status.tasks import EventKind, Task, TaskEvent
from somatize.utils import Closable
from somatize.utils.units import count, duration, rate

from .rich_backend import Group, Text, console_for, has_cursor, html, is_terminal, literal, painted
from .status_views import LogView, StatusView, throughput_words

if TYPE_CHECKING:
    from somatize.status import Status


_LONGEST = 4096
"""Characters of an unfinished line that are kept whole; of a longer one, what follows its last carriage return."""


class Region:
    """Lines at the bottom of a terminal, and the redirected streams whose output is written above them unchanged."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.lock = threading.RLock()
        self._drawn = 0
        self._proxies: list[_Above] = []
        self.open = True
        _REGIONS.add(self)

    def begin(self) -> None:
        """Redirect standard output and error, where they are terminals, and logging handlers that write to them."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if is_terminal(stream) and not isinstance(stream, _Above):
                proxy = _Above(stream, self, name)
                self._proxies.append(proxy)
                setattr(sys, name, proxy)
        for handler in _stream_handlers():
            for proxy in self._proxies:
                if handler.stream is proxy.stream and "stream" in vars(handler):
                    handler.stream = proxy

    def draw(self, lines: list[str]) -> None:
        """Replace the lines that were drawn last."""
        with self.lock:
            if self.open and (lines or self._drawn):
                self._write(self._over() + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
                self._drawn = len(lines)

    def above(self, stream: TextIO, text: str) -> None:
        """Write `text` in place of the lines, which the next `draw` writes below it."""
        with self.lock:
            try:
                self.erase()
            except (OSError, ValueError):  # the terminal is closed: not an error of the code that prints
                self._give_back()
            stream.write(text)
            stream.flush()

    def erase(self) -> None:
        """Remove the lines."""
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
        for handler in _stream_handlers():
            stream = handler.stream
            if isinstance(stream, _Above) and stream in self._proxies:
                handler.stream = stream.stream

    def forked(self) -> None:
        """Restore the streams in a forked child; its parent goes on drawing."""
        self.lock = threading.RLock()
        self._drawn = 0
        if self.open:
            self._give_back()

    def _over(self) -> str:
        return f"\r\x1b[{self._drawn}A" if self._drawn else ""

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    """Every handler that writes to a stream; logging has no public list of handlers."""
    found = [reference() for reference in list(logging._handlerList)]  # type: ignore[attr-defined]
    return [handler for handler in found if isinstance(handler, logging.StreamHandler) and hasattr(handler, "stream")]


class _Above:
    """A stream whose complete lines are written above a region; other attributes are the stream's own."""

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
        """Flush complete lines; an unfinished one is kept, as the region is drawn in its place."""
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


_REGIONS: weakref.WeakSet[Region] = weakref.WeakSet()


def _before_fork() -> None:
    # So that the child inherits no half-written line and no locked buffer of a stream.
    for region in list(_REGIONS):
        region.lock.acquire()


def _in_parent() -> None:
    for region in list(_REGIONS):
        try:
            region.lock.release()
        except RuntimeError:  # a region that was made while another thread forked
            continue


def _in_child() -> None:
    for region in list(_REGIONS):
        region.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


_SLOWEST = 600.0
"""The longest interval between two lines of one task, in seconds."""


class TaskProgressLines:
    """Progress of running tasks as lines of text.

    A task has its first line after `every` seconds, then intervals as long as it has run so far, of at least `every`
    seconds and at most ten minutes: about 150 lines a day.
    """

    def __init__(self, status: Status, every: float) -> None:
        self._status = weakref.ref(status)
        self._every = every
        self._next: weakref.WeakKeyDictionary[Task, float] = weakref.WeakKeyDictionary()
        self._streams: dict[str, int] = {}

    def due(self) -> Iterator[str]:
        """A line for each task whose interval is over; after any, one for each stream that went on."""
        status = self._status()
        if status is None:
            return
        said = False
        for task, depth in list(_running(status.tasks)):
            elapsed = task.elapsed
            if elapsed >= self._next.get(task, self._every):
                self._next[task] = elapsed + min(max(self._every, elapsed), _SLOWEST)
                yield "  " * depth + progress_words(task)
                said = True
        if said:
            yield from self._of_streams(status)

    def _of_streams(self, status: Status) -> Iterator[str]:
        for stream in status.throughputs:
            stats = stream.stats()
            words = throughput_words(stats)
            if words is not None and self._streams.get(stream.stream) != stats.batches:
                self._streams[stream.stream] = stats.batches
                yield f"{stream.stream}: {words}"


def progress_words(task: Task) -> str:
    """The progress of a task: its count, time, rate and remaining time."""
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
    """The end of a task: its state, time, count and error."""
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
"""Seconds that a task runs before it is shown."""
_ENDED = 20
"""Lines about ended tasks that a notebook keeps."""


class Display(Closable):
    """Shows a Status until it is closed; made by `Status.display`, and a context manager.

    On a terminal, running tasks and streams are drawn at its bottom ten times a second, and other output is written
    above them. Where output is a file, a pipe or a CI's log, lines are written: one when a root task ends, and progress
    of running tasks every `every` seconds, less often the longer they take. In a notebook one output is refreshed.
    With `logs`, the last so many log records are shown too, where they have no handler of their own.

    Where ``RANK`` is set and not 0 nothing is shown, unless `all_ranks`. `live` forces the terminal's way, or the
    file's; `file` is written to instead of standard output.
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
        self._unsubscribe: Callable[[], object] = lambda: None
        if not all_ranks and os.environ.get("RANK", "0").strip() not in ("", "0"):
            return
        stream = file if file is not None else sys.stdout
        view = _View(status, logs)
        if live is None and file is None and notebook.kernel() is not None:
            self._way = _InNotebook(view)
        elif live or (live is None and has_cursor(stream) and not os.environ.get("CI")):
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
        """Show the current state. An error is logged and ends the display, not the work."""
        if self._way is None:
            return
        if self._status() is None:
            self.close()
            return
        try:
            self._way.draw()
        except Exception:
            self._finish(broken=True)
            _log.exception("the display broke and shows nothing more; the work goes on")

    def close(self) -> None:
        """End the display and restore the terminal; a second call does nothing."""
        self._finish(broken=False)

    def _finish(self, *, broken: bool) -> None:
        way, self._way = self._way, None
        if way is None:
            return
        self._stop.set()
        self._unsubscribe()
        atexit.unregister(self.close)
        try:
            way.close(broken=broken)
        except Exception:
            _log.exception("the display could not be closed properly")


class _View:
    """The content of a display, rendered anew on each refresh."""

    def __init__(self, status: Status, logs: int) -> None:
        self.status = weakref.ref(status)  # a display must not keep its Status alive
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

    def close(self, *, broken: bool) -> None:  # noqa: ARG002
        self._region.close()


class _InFile:
    pace = 1.0
    in_a_cell = False

    def __init__(self, status: Status, stream: TextIO, every: float) -> None:
        self._lines = TaskProgressLines(status, every)
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    def draw(self) -> None:
        for line in self._lines.due():
            self.ended(line)

    def ended(self, words: str) -> None:
        self._stream.write(literal(words, self._encoding) + "\n")
        self._stream.flush()

    def close(self, *, broken: bool) -> None:
        """Do nothing: every line is written already."""


class _InNotebook:
    pace = 0.25
    in_a_cell = True

    def __init__(self, view: _View) -> None:
        self._view = view
        self._id = uuid4().hex
        self._ended: list[str] = []
        self._shown: tuple[str, str] | None = None
        self._lock = threading.RLock()  # the refreshing thread draws, and the thread that closes it

    def draw(self) -> None:
        with self._lock:
            view = self._view.now()
            lines = [Text(literal(line), style="dim") for line in self._ended[-_ENDED:]]
            bundle = html(Group(*lines, view) if view is not None else Group(*lines), 100)
            if bundle != self._shown:
                text, page = bundle
                notebook.show({"text/plain": text, "text/html": page}, self._id, again=self._shown is not None)
                self._shown = bundle

    def ended(self, words: str) -> None:
        self._ended.append(words)

    def close(self, *, broken: bool) -> None:
        if not broken:
            self.draw()


class _TaskEndLine:
    """A listener that writes a line for each root task that ends, unless a log line does.

    Tasks of forwards are left out: a training loop has one for each batch.
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

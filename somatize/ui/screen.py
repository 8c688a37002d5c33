"""A run followed on a terminal: on the whole screen, or line by line where output is a file."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self, TextIO

from somatize.figures.theme import counted
from somatize.record.run_follower import DIED, ENDED, RECORDED, Followed
from somatize.record.run_info import progress_words
from somatize.record.run_state import ForwardCounts, Log, Standing
from somatize.utils.units import count, duration, rate

from .rich_backend import console_for, literal, painted
from .run_view import RunView, at, died, how_ended, pace
from .text_plot import short_text

_MOST = 20
"""The most log records that are written at once; the others are counted."""
_QUIET = 6
"""An unchanged state is written again after so many intervals."""


class RunProgressLines:
    """The progress of a followed run as lines of text: new log records and errors, and its state every so often."""

    def __init__(self, followed: Followed, every: float, clock: Callable[[], float] = time.time) -> None:
        self._followed = followed
        self._every = every
        self._clock = clock
        self._waited_for = ""
        self._standing: Standing | None = None
        self._state = ""
        self._logs = 0
        self._broken = -1
        self._next = 0.0
        self._said: tuple[float, str] = (0.0, "")

    def due(self) -> Iterator[str]:
        """The lines about what happened since the last call."""
        followed, standing = self._followed, self._followed.standing
        if standing is None:
            if followed.waits_for != self._waited_for:
                yield f"waiting: {followed.waits_for}"
            self._waited_for, self._standing = followed.waits_for, None
            return
        if standing is not self._standing:
            yield from self._begins(standing)
        yield from self._happened(standing)
        yield from self._stands(standing)
        if followed.state != self._state and followed.state != RECORDED:
            yield self._timed(self.ending())
        self._state = followed.state

    def ending(self) -> str:
        """One line on how the run ended, or how it stands."""
        followed, standing = self._followed, self._followed.standing
        if standing is None:
            return followed.waits_for
        forwards, *otherwise = _counted(standing.count)
        if followed.state == DIED:
            words = ", ".join([f"{forwards} on record", *otherwise])
            return f"{standing.run}: {died(followed, self._clock())}; {words}"
        if followed.state == ENDED:
            how, why = how_ended(followed)
            return f"{standing.run}: {how} after {', '.join([forwards, *otherwise])}{why}"
        return f"{standing.run}: {_how(followed, standing, self._clock())}"

    def _begins(self, standing: Standing) -> Iterator[str]:
        followed = self._followed
        which = f", the newest of {followed.runs:,} runs" if followed.run is None and followed.runs > 1 else ""
        yield self._timed(f"following run {standing.run}{which}")
        self._standing, self._state = standing, RECORDED
        self._logs, self._next = max(0, standing.said - _MOST), 0.0
        self._broken = -1

    def _happened(self, standing: Standing) -> Iterator[str]:
        """New log records and broken forwards, by time."""
        new = standing.said - self._logs
        self._logs = standing.said
        if new > _MOST:
            yield self._timed(f"and {new - _MOST:,} log records more")
        found = [(log.when, self._log(log)) for log in list(standing.logs)[-min(new, _MOST) :] if new]
        for one in standing.broken:
            if one.forward > self._broken:
                found.append((one.when, f"{at(one.when, self._clock())} forward {one.forward:,} broke: {one.why}"))
                self._broken = one.forward
        yield from (words for _, words in sorted(found, key=lambda pair: pair[0]))

    def _log(self, log: Log) -> str:
        fact = log.fact
        where = f"@{fact['host']} " if fact.get("host") else ""
        source = fact.get("task") or fact.get("node")
        name = f"{source}: " if source else ""
        return f"{at(log.when, self._clock())} {fact.get('level', '')} {where}{name}{fact.get('message', '')}"

    def _stands(self, standing: Standing) -> Iterator[str]:
        now = self._clock()
        if now < self._next:
            return
        words = _how(self._followed, standing, now)
        if self._followed.state == RECORDED or not self._said[1]:
            key = f"{standing.count} {standing.going_on} {[one.done for one in standing.tasks.values()]}"
            if key != self._said[1] or now - self._said[0] >= _QUIET * self._every:
                self._said = now, key
                yield self._timed(f"{standing.run}: {words}")
        self._next = now + self._every

    def _timed(self, words: str) -> str:
        now = self._clock()
        return f"{at(now, now)} {words}"


def _counted(counts: ForwardCounts) -> list[str]:
    """The number of forwards, and of those that broke, were interrupted or lost."""
    named = ((counts.broke, "broke"), (counts.interrupted, "interrupted"), (counts.lost, "lost"))
    return [counted(counts.forwards, "forward"), *(f"{number:,} {word}" for number, word in named if number)]


def _how(followed: Followed, standing: Standing, now: float) -> str:
    """The state of a run, in one line."""
    words = _counted(standing.count)
    speed = pace(followed, standing, now)
    words += [rate(speed)] if speed is not None else []
    words += [f"{curve.name} {short_text(curve.last[1])}" for curve in standing.curves[1:] if curve.last is not None]
    if followed.state == RECORDED:
        for task in standing.open_tasks(followed.alive):
            total = f"/{count(task.total)}" if task.total else ""
            left = f", {duration(task.remaining)} left" if task.remaining is not None else ""
            words.append(f"{task.fact.get('name', '')} {count(task.done)}{total}{left}")
        for one in standing.going_on[:3]:
            inside = f"in {', '.join(one.inside)}" if one.inside else "between nodes"
            spent = progress_words(one.progress) if one.progress else f"for {duration(max(0.0, now - one.since))}"
            words.append(f"forward {one.forward:,} {inside} {spent}")
    return ", ".join(words)


_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[2J\x1b[?25h\x1b[?1049l"  # cleared first: tmux keeps lines of an alternate screen that was resized
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_REDRAW = b"\x0c"


class Screen:
    """The alternate screen of a terminal, and its keyboard without echo and line buffering; a context manager.

    Ctrl-C raises KeyboardInterrupt, SIGTERM, SIGHUP and SIGQUIT raise SystemExit, Ctrl-Z suspends the process. The
    terminal is restored at the end of the ``with`` and while the process is suspended. For the main thread only, as it
    handles signals.

    Rich's `Live` is not used: it keeps unwritten output in its console, so that a signal at the wrong moment leaves the
    terminal as it is; it neither reads keys nor handles signals; and it writes the whole screen each time.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn: list[str] = []
        self._keys = _keyboard()
        self._mode: Any = None
        self._handlers: dict[int, Any] = {}
        self._wake = (-1, -1)
        self._woken_before = -1
        self.changed = True
        """Whether every line must be written: at first, and after the terminal was resized or the process suspended."""

    def size(self) -> tuple[int, int]:
        """The number of columns and lines."""
        try:
            return os.get_terminal_size(self._stream.fileno())
        except OSError:
            return 80, 24

    def draw(self, lines: list[str]) -> None:
        """Show these lines from the top; only lines that changed are written."""
        before, anew = ([], True) if self.changed else (self._drawn, False)
        self.changed = False
        moved = [
            f"\x1b[{row};1H{line}\x1b[0m\x1b[K"
            for row, line in enumerate(lines, start=1)
            if anew or row > len(before) or line != before[row - 1]
        ]
        if anew or len(lines) < len(before):
            moved.append(f"\x1b[{len(lines) + 1};1H\x1b[J" * (len(lines) < self.size()[1]))
        if moved:
            self._write("".join(moved))
        self._drawn = lines

    def wait(self, seconds: float) -> str:
        """Wait for keys for at most so long, and return them; empty if a signal came first, or nothing.

        Suspends the process if Ctrl-Z was pressed. A closed terminal reads as ``q``.
        """
        watched = [self._wake[0], *([self._keys] if self._keys is not None else [])]
        ready, _, _ = select.select(watched, [], [], max(0.0, seconds))
        if self._wake[0] in ready:
            numbers = os.read(self._wake[0], 1024)  # a byte for each signal
            self.changed |= signal.SIGWINCH in numbers
            if signal.SIGTSTP in numbers:
                self._suspend()
                return ""
        if self._keys is None or self._keys not in ready:
            return ""
        pressed = os.read(self._keys, 1024)
        if _REDRAW in pressed:
            self.changed = True
        return pressed.decode("utf-8", "replace") if pressed else "q"

    def __enter__(self) -> Self:
        self._take_signals()
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import termios

        try:
            self._give_back()
        except (OSError, termios.error):  # the terminal is closed
            pass
        finally:
            self._give_signals()
            if self._keys is not None and self._keys != 0:
                os.close(self._keys)

    def _take(self) -> None:
        import termios
        import tty

        if self._keys is not None:
            self._mode = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys, termios.TCSADRAIN)
        self._write(_ENTER)
        self.changed = True

    def _give_back(self) -> None:
        import termios

        mode, self._mode = self._mode, None
        if mode is not None and self._keys is not None:
            termios.tcsetattr(self._keys, termios.TCSAFLUSH, mode)
        self._write(_LEAVE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    # -- signals

    def _take_signals(self) -> None:
        reading, writing = self._wake = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)  # as Python demands of what its signal handlers write to
        self._woken_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._handle(signal.SIGWINCH, _noted)
        self._handle(signal.SIGTSTP, _noted)
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._handle(number, _ended)

    def _handle(self, number: int, handler: Any) -> None:
        self._handlers[number] = signal.signal(number, handler)

    def _give_signals(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woken_before)
        for fd in self._wake:
            os.close(fd)

    def _suspend(self) -> None:
        """Restore the terminal, stop as Ctrl-Z does, and take the terminal again on continuing."""
        self._give_back()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._take()


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: `wait` reads the signal from the pipe, as a stream must not be written to within its own write."""


def _ended(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    sys.exit(128 + number)


def _keyboard() -> int | None:
    """The descriptor that keys are read from: standard input, or the terminal if that is redirected."""
    try:
        if os.isatty(0):
            return 0
        return os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


_TICK = 1.0
"""Seconds after which a view is drawn again though nothing new was written, as it shows elapsed times."""
_LOOKS = 0.5
_QUITS = frozenset("qQ\x04")


def on_screen(followed: Followed, stream: TextIO, *, every: float = _LOOKS, until_end: bool = False) -> str:
    """Show a run on the whole of a terminal until ``q`` is pressed or, with `until_end`, the run ends.

    Looks for new records `every` seconds, shows the last warning at the bottom, and returns a line on how the run
    stands. The terminal is restored whatever is raised.
    """
    console = console_for(stream, ascii_only=not speaks_utf8(stream, os.environ))
    view = RunView(followed, footer="q quits")
    drawn = 0.0
    with _warned() as warned, Screen(stream) as screen:
        while True:
            new = followed.look()
            now = time.monotonic()
            view.note = next(reversed(warned), "")
            if new or screen.changed or (followed.state == RECORDED and now - drawn >= _TICK):
                console.size = screen.size()
                screen.draw(painted(view, console, console.height))
                drawn = now
            if (until_end and is_over(followed)) or _QUITS & set(screen.wait(every)):
                break
    return literal(RunProgressLines(followed, every).ending(), console.encoding)


def in_lines(followed: Followed, stream: TextIO, *, every: float = 10.0, until_end: bool = True) -> None:
    """Write the progress of a run as lines: events as they are found, and its state every `every` seconds.

    Returns at the end of the run, or never without `until_end`.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    progress = RunProgressLines(followed, every)
    while True:
        followed.look()
        stream.writelines(literal(line, encoding) + "\n" for line in progress.due())
        stream.flush()
        if until_end and is_over(followed):
            return
        time.sleep(min(every, 2 * _LOOKS))


def is_over(followed: Followed) -> bool:
    """Whether the run exists and has no live writer."""
    return followed.state in (DIED, ENDED)


def speaks_utf8(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a terminal shows more than ASCII: both the stream and the locale are UTF-8.

    Python sets LC_CTYPE to C.UTF-8 where the locale is plain C; that is not counted.
    """
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    asked = {name: environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")}
    if asked["LC_CTYPE"] == "C.UTF-8" and asked["LANG"] in ("", "C", "POSIX"):
        asked["LC_CTYPE"] = ""
    said = next((value for value in asked.values() if value), "")
    return encoding == "utf8" and "utf8" in said.lower().replace("-", "")


@contextmanager
def _warned() -> Iterator[dict[str, None]]:
    """Collect the texts of warnings, each once, instead of printing them over the screen."""
    said: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: said.update({str(message): None})
        yield said

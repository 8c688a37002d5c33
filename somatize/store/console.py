"""The output of a process: passed on to where it went, and its lines kept for the record.

A helper process, which runs this file, reads what descriptors 1 and 2 are connected to meanwhile. So the output of C
code counts, a process that holds the interpreter's lock never waits for itself, and what was written before a crash
or SIGKILL is kept: the last lines are in a file beside the journal. The file imports only the standard library.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHUNK, _LINE, _SHOWN = 1 << 16, 500, 160
"""The bytes read at once, and the characters kept of a line, and of one of the last lines."""
_EVERY, _BUDGET = 1.0, 2000
"""The seconds between two facts of a stream, and the characters of one; what is beyond them is counted."""
_LAST, _FATAL = 10, 6
"""The number of lines that are kept as the last ones, and of those from ``Fatal Python error`` on."""
_ROUNDS, _UNSENT = 32, 1 << 18
_PATIENCE = 5.0
_DRAIN = 0.5
"""How long a reader waits for the helper of a dead process to read the rest."""
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f]")


def last_lines(path: Path) -> str:
    """The last lines that a process wrote, from the file of its `Console`; empty without one."""
    try:
        with path.open("rb") as file:
            end = time.monotonic() + _DRAIN
            while time.monotonic() < end:  # the helper holds the lock until it has read all
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.005)
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def with_output(why: str, lines: str) -> str:
    """Why a process ended, with the last lines that it wrote."""
    said = f"last output: {lines}" if lines else ""
    return "\n".join(filter(None, (why, said)))


class Console:
    """Stands between this process and its output from now until `close`.

    `tell` is called with each fact, in a thread. A terminal stays one to the process, by a pseudo-terminal. If the
    two descriptors are the same file, both are one stream, ``"output"``, so that their order is kept. What a notebook
    or a test has in place of ``sys.stdout`` and ``sys.stderr`` is read too. A forked child writes to its parent's.
    Raises OSError if the helper cannot be started.
    """

    def __init__(self, path: Path, tell: Callable[[Mapping[str, Any]], object]) -> None:
        self._pid, self._path, self._tell = os.getpid(), path, tell
        self._closing = False
        self._lock, self._told = threading.RLock(), threading.Event()
        self._replaced: list[tuple[int, int, os.stat_result]] = []  # a descriptor, what it was, what it is
        self._echoes: list[tuple[str, Any]] = []
        _flush()
        sources: list[tuple[int, int, str]] = []  # what the helper reads, what it writes to, the stream
        connected: list[tuple[int, int]] = []
        try:
            self._connect(sources, connected)
            self._echo(sources)
            self._start(sources)
            for fd, sink in connected:
                os.dup2(sink, fd)
        except BaseException:
            self._restore()
            raise
        finally:
            for source, _, _ in sources:
                os.close(source)
            for sink in {sink for _, sink in connected}:
                os.close(sink)

    def _connect(self, sources: list[tuple[int, int, str]], connected: list[tuple[int, int]]) -> None:
        """Make a pipe or a pseudo-terminal for each output; `connected` has what is to be in its place."""
        for fd, stream in ((1, "stdout"), (2, "stderr")):
            try:
                original = os.dup(fd)
            except OSError:
                continue  # closed
            if self._replaced and os.path.samestat(os.fstat(self._replaced[0][1]), os.fstat(fd)):
                sources[0], sink = (*sources[0][:2], "output"), connected[0][1]
            else:
                source, sink = _terminal(fd) if os.isatty(fd) else os.pipe()
                sources.append((source, original, stream))
            self._replaced.append((fd, original, os.fstat(sink)))
            connected.append((fd, sink))

    def _echo(self, sources: list[tuple[int, int, str]]) -> None:
        """Put a copying stream in place of a ``sys.stdout`` or ``sys.stderr`` that is not descriptor 1 or 2."""
        for fd, name in ((1, "stdout"), (2, "stderr")):
            stream = getattr(sys, name)
            if stream is not None and _descriptor(stream) != fd:
                source, sink = os.pipe()
                sources.append((source, -1, name))
                self._echoes.append((name, Echo(stream, sink)))
                setattr(sys, name, self._echoes[-1][1])

    def _start(self, sources: list[tuple[int, int, str]]) -> None:
        import subprocess

        if not sys.executable or getattr(sys, "frozen", False):  # it would start the application again
            raise OSError("this process has no interpreter of its own to start a helper with")
        control, self._control = os.pipe()
        with self._path.open("wb") as tail:
            fcntl.flock(tail, fcntl.LOCK_EX)
            self._helper = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, json.dumps([control, tail.fileno(), sources])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[control, tail.fileno(), *{fd for one in sources for fd in one[:2] if fd >= 0}],
                start_new_session=True,  # no Ctrl-C
            )
        os.close(control)
        self._thread = threading.Thread(target=self._relay, name="somatize-console", daemon=True)
        self._thread.start()

    def _relay(self) -> None:
        """Tell the facts that the helper makes."""
        assert self._helper.stdout is not None
        for line in self._helper.stdout:
            try:
                self._tell(json.loads(line))
            except Exception:  # noqa: S112  nobody is there to be told, and what is printed must go on
                continue
        self._helper.stdout.close()
        self._restore()  # also if the helper died: else whatever prints would raise
        self._told.set()
        self._helper.wait()  # which goes on while a child writes

    def _restore(self) -> None:
        with self._lock:
            while self._replaced:
                fd, original, now = self._replaced.pop()
                try:
                    if os.path.samestat(os.fstat(fd), now):  # else another took its place since
                        os.dup2(original, fd)
                except OSError:
                    pass  # closed since
                os.close(original)
            while self._echoes:
                name, echo = self._echoes.pop()
                if getattr(sys, name) is echo:
                    setattr(sys, name, echo.stream)
                sink, echo.sink = echo.sink, -1
                os.close(sink)

    def close(self) -> str:
        """Connect the outputs to what they were again, wait until all is told, and return the last lines."""
        if self._pid != os.getpid() or self._closing:
            return ""
        self._closing = True
        _flush()
        self._restore()
        os.close(self._control)
        self._told.wait(_PATIENCE)
        lines = last_lines(self._path)
        self._path.unlink(missing_ok=True)
        return lines


class Echo:
    """A stream that also writes to a descriptor."""

    def __init__(self, stream: Any, sink: int) -> None:
        self.stream, self.sink = stream, sink

    def write(self, text: str) -> Any:
        """Write to both."""
        if self.sink >= 0:
            os.write(self.sink, text.encode("utf-8", "replace"))
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # None, gone or closed


def _descriptor(stream: Any) -> int:
    try:
        return int(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return -1


def _terminal(like: int) -> tuple[int, int]:
    """A pseudo-terminal with the settings and size of another; what is written to it comes out as it is."""
    source, sink = os.openpty()
    with suppress(termios.error):
        settings = termios.tcgetattr(like)
        settings[tty.OFLAG] &= ~termios.OPOST
        settings[tty.LFLAG] &= ~termios.ECHO
        termios.tcsetattr(sink, termios.TCSANOW, settings)
        _same_size(like, source)
    return source, sink


def _same_size(like: int, other: int) -> None:
    size, known = (fcntl.ioctl(fd, termios.TIOCGWINSZ, b"\0" * 8) for fd in (like, other))
    if size != known:
        fcntl.ioctl(other, termios.TIOCSWINSZ, size)


# -- in the helper


class Lines:
    """The lines of all streams: passed on as facts at a limited rate, and the last of them kept in a file."""

    def __init__(self, tail: int) -> None:
        self._tail = tail
        self._count = 0
        self._last: deque[tuple[int, str]] = deque(maxlen=_LAST)
        self._fatal: list[tuple[int, str]] = []
        self._skips = False
        """Whether these are the lines of a thread that did not crash."""
        self._partial: dict[str, bytes] = {}
        self._batch: dict[str, list[str]] = {}
        self._left: dict[str, int] = {}

    def add(self, stream: str, data: bytes) -> None:
        """Add output of a stream."""
        *whole, rest = (self._partial.get(stream, b"") + data).split(b"\n")
        for raw in whole:
            self._line(stream, _plain(raw))
        self._partial[stream] = rest if len(rest) <= 8 * _LINE else rest[rest.rfind(b"\r") + 1 :][-8 * _LINE :]
        self._write()

    def _line(self, stream: str, line: str) -> None:
        self._count += 1
        if line.startswith("Fatal Python error"):
            self._fatal = [(self._count, line)]
        elif self._fatal and line.startswith(("Thread 0x", "Extension modules: ")):
            self._skips = True
        elif line.startswith("Current thread 0x"):
            self._skips = False
        if line.strip() and not self._skips:
            if 0 < len(self._fatal) < _FATAL and self._fatal[-1][0] != self._count:
                self._fatal.append((self._count, line))
            self._last.append((self._count, line))
        elif not line.strip():
            self._skips = False
        batch = self._batch.setdefault(stream, [])
        if sum(map(len, batch)) + len(line) <= _BUDGET:
            batch.append(line)
        else:
            self._left[stream] = self._left.get(stream, 0) + 1

    def _write(self) -> None:
        """Write the last lines to the file: from a crash on, if one is near."""
        near = [one for one in self._fatal if one[0] > self._count - 200] or [(0, "")]
        lines = [line for _, line in sorted({*near, *(one for one in self._last if one >= near[0])}) if line.strip()]
        lines += [line for raw in self._partial.values() if (line := _plain(raw)).strip()]
        data = "\n".join(line[:_SHOWN] for line in lines).encode()
        with suppress(OSError):  # a full disk; output goes on
            os.pwrite(self._tail, data, 0)
            os.ftruncate(self._tail, len(data))

    def facts(self, *, ended: bool = False) -> list[dict[str, Any]]:
        """A fact of each stream with the lines since the last one; when it `ended`, also what has no line end."""
        if ended:
            for stream, raw in self._partial.items():
                if raw:
                    self._line(stream, _plain(raw))
            self._partial.clear()
        found = [
            {"fact": "console", "stream": stream}
            | ({"text": "\n".join(self._batch[stream])} if stream in self._batch else {})
            | ({"left_out": self._left[stream]} if stream in self._left else {})
            for stream in dict.fromkeys([*self._batch, *self._left])
        ]
        self._batch.clear()
        self._left.clear()
        return found

    def leave_out(self, facts: list[dict[str, Any]]) -> None:
        """Count the lines of facts that were not sent."""
        for fact in facts:
            count = fact["text"].count("\n") + 1 if "text" in fact else 0
            count += fact.get("left_out", 0)
            self._left[fact["stream"]] = self._left.get(fact["stream"], 0) + count


def _plain(raw: bytes) -> str:
    """A line as it stood on a terminal at last: without colours, and what was overwritten after a carriage return."""
    line = raw.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
    return _CONTROL.sub("", line)[:_LINE]


def main(control: int, tail: int, sources: list[tuple[int, int, str]]) -> None:
    """Pass output on until nothing can write to it any more; record it until `control` is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    lines, waiting = Lines(tail), select.poll()
    sender = Sender()
    known = {source: (target, stream) for source, target, stream in sources}
    for fd in (control, *known):
        waiting.register(fd, select.POLLIN)
    recording, due, rounds = True, time.monotonic() + _EVERY, 0
    while known:
        ready = [fd for fd, _ in waiting.poll(max(0.0, due - time.monotonic()) * 1000 if recording else None)]
        for fd in ready:
            if fd != control and not _pass(fd, *known[fd], lines if recording else None):
                waiting.unregister(fd)
                os.close(fd)
                del known[fd]
        rounds += control in ready  # a child may go on writing: what was there before the end is read by then
        stops = not known or ready == [control] or rounds > _ROUNDS
        if recording and (stops or time.monotonic() >= due):
            recording = not stops
            lines.leave_out(sender.send(lines.facts(ended=not recording), 0.0 if recording else _PATIENCE))
            due = time.monotonic() + _EVERY
            if not recording:  # `close` waits for this, and whoever reads what a dead process wrote
                waiting.unregister(control)
                fcntl.flock(tail, fcntl.LOCK_UN)
                os.close(1)


def _pass(source: int, target: int, stream: str, lines: Lines | None) -> bool:
    """Pass on what is there; False at the end, or if the target takes no more."""
    try:
        data = os.read(source, _CHUNK)
        if lines is not None and data:
            lines.add(stream, data)
        if target >= 0 and os.isatty(source):
            _same_size(target, source)
        rest = memoryview(data if target >= 0 else b"")
        while rest:
            try:
                rest = rest[os.write(target, rest) :]
            except BlockingIOError:
                select.select([], [target], [])
    except OSError:
        return False
    return bool(data)


class Sender:
    """Sends facts to the process without waiting for it, since it may hold its lock and wait for this helper."""

    def __init__(self) -> None:
        self._rest = b""
        os.set_blocking(1, False)

    def send(self, facts: list[dict[str, Any]], patience: float = 0.0) -> list[dict[str, Any]]:
        """Send facts after what could not be sent before; returns those for which there is no room."""
        refused = facts if len(self._rest) > _UNSENT else []
        if not refused:
            self._rest += b"".join(json.dumps(fact).encode() + b"\n" for fact in facts)
        while self._rest:
            try:
                self._rest = self._rest[os.write(1, self._rest) :]
            except BlockingIOError:
                if not select.select([], [1], [], patience)[1]:
                    break
            except OSError:
                self._rest = b""  # the process is dead
        return refused


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))

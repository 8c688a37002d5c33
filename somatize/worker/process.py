"""A worker's process on this machine, or the `ssh` to another: started, listened to, and ended for certain."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import importlib.util
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from somatize.errors import BadWorker
from somatize.utils.interrupts import Descriptor

from .payload import MODES

_PIPE = 1 << 20
_NOTHING = bytes(4)
_LAST_LINES = 30
_LONGEST_LINE = 1 << 16


class Worker:
    """How to start a worker; nothing is started until work is sent to it."""

    def __init__(
        self,
        argv: Sequence[str],
        mode: str,
        send: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | None,
        timeout: float | None,
    ) -> None:
        self.argv = argv
        self.mode = mode
        self.send = send
        self.env = env
        self.cwd = cwd
        self.timeout = timeout

    @classmethod
    def spawn(
        cls,
        argv: Sequence[str],
        *,
        mode: str = "network",
        send: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Any = None,
        timeout: float | None = None,
    ) -> Worker:
        """A worker that the command `argv` starts: ``[sys.executable, "-m", "somatize.worker"]``, also through ssh.

        With the mode ``"network"`` code travels, that of the modules in `send` by value too, which node code there can
        also import; with ``"project"`` only names and state do, and the worker imports the classes itself. `env` is
        added to this environment. `timeout` is how many seconds a trip may take, for hosts that hang. Raises
        `BadWorker` for what cannot be.
        """
        if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
            raise BadWorker(f"argv={argv!r}: it is a list of texts, a command and its arguments")
        if mode not in MODES:
            raise BadWorker(f"mode={mode!r}: it is 'network' or 'project'")
        if isinstance(send, str):
            raise BadWorker(f"send={send!r}: it is a list of modules, as [{send!r}]")
        send = tuple(send)
        if send and mode == "project":
            raise BadWorker(
                f"mode='project' and send={list(send)!r}: in that mode no code travels, and a worker imports from its "
                "own checkout; give it the way there, with env={'PYTHONPATH': ...} or cwd=, or use mode='network'"
            )
        for name in send:
            if not _is_module(name):
                raise BadWorker(f"send={list(send)!r}: there is no module {name!r} here")
        if env is not None and not all(isinstance(word, str) for pair in dict(env).items() for word in pair):
            raise BadWorker(f"env={env!r}: it is a dict of texts")
        if timeout is not None and not (isinstance(timeout, int | float) and 0 < timeout < inf):
            raise BadWorker(f"timeout={timeout!r}: it is a number of seconds")
        return cls(tuple(argv), mode, send, env, None if cwd is None else str(cwd), timeout)

    def __repr__(self) -> str:
        return f"Worker.spawn({list(self.argv)!r}, mode={self.mode!r})"


class Process:
    """A program with pipes for its stdin, stdout and stderr, in a group of its own.

    So a terminal's Ctrl-C reaches it only through the one who started it. What it writes to stderr is shown here with
    the host's name before each line.
    """

    def __init__(self, host: str, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> None:
        self._owner = os.getpid()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        self._file.truncate(mmap.PAGESIZE)
        self._page = mmap.mmap(self._file.fileno(), mmap.PAGESIZE)
        page = self._file.fileno()
        pipe, holds = os.pipe()
        self._life = Descriptor(holds, "wb")  # nothing is written: it is closed when this process ends
        environment = {**os.environ, **(env or {})}
        environment |= {"SOMATIZE_WORKER_PAGE": f"{page}", "SOMATIZE_WORKER_LIFE": f"{pipe}"}
        try:
            self.popen = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
                cwd=cwd,
                process_group=0,
                pass_fds=(page, pipe),
            )
        except (OSError, ValueError) as wrong:
            self._file.close()
            self._life.close()
            raise BadWorker(f"host {host!r}: {argv[0]!r} cannot be started: {wrong}") from wrong
        finally:
            os.close(pipe)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        self.writing, self.reading = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        for end in (self.writing, self.reading):
            with contextlib.suppress(OSError):
                fcntl.fcntl(end, getattr(fcntl, "F_SETPIPE_SZ", 1031), _PIPE)
        self.heard = Heard(host, self.popen.stderr.fileno(), self.is_alive)
        _PROCESSES.add(self)

    def is_alive(self) -> bool:
        """Whether the program still runs."""
        return self.popen.poll() is None

    def at(self) -> int:
        """The step the worker was last at, or -1 where it did not say."""
        return int(struct.unpack_from("<q", self._page, 0)[0]) - 1

    def forget_at(self) -> None:
        """Reset the step for a new slice."""
        struct.pack_into("<q", self._page, 0, 0)

    def interrupt(self) -> None:
        """Interrupt the work; only for a process that runs Python itself."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill it and its children at once; does nothing in a forked child of the process that started it."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            self.popen.kill()

    def hang_up(self) -> None:
        """Close its stdin, so that a worker ends by itself."""
        if self.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self.popen.stdin.close()
        self._life.close()

    def ended(self, within: float) -> str | None:
        """The exit status, if the process ends within so many seconds; else None."""
        try:
            return ending(self.popen.wait(within))
        except subprocess.TimeoutExpired:
            return None

    def end(self, within: float) -> str:
        """Wait for its end, killing it if it takes too long; says how it ended. What it said is shown."""
        try:
            self.popen.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()
            self.popen.wait()
        self.hang_up()
        self.kill()  # its children that live on
        self.heard.drain()
        self.heard.stop()
        for stream in (self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()
        if not self._file.closed:
            self._file.close()
        return ending(self.popen.returncode)

    def forked(self) -> None:
        """In a child of this process: let go, so that the worker's life hangs on this process alone."""
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._life.close()
        self.popen.returncode = 0


_PROCESSES: weakref.WeakSet[Process] = weakref.WeakSet()


def _forked() -> None:
    for process in list(_PROCESSES):
        process.forked()


os.register_at_fork(after_in_child=_forked)


def ending(code: int) -> str:
    """The exit status of a process, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


class Heard:
    """Forwards the stderr of a process line by line, and remembers the last lines."""

    def __init__(self, host: str, reading: int, alive: Any) -> None:
        self._prefix = f"[{host}] "
        self._reading = reading
        self._alive = alive
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._rest = b""
        self._busy = threading.RLock()
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._read, name="somatize-stderr", daemon=True)
        self._thread.start()

    def last(self) -> str:
        """The last lines, as the end of a sentence."""
        return "\n".join(["; its last words:", *(f"  {line}" for line in self._last)]) if self._last else ""

    def show(self, noise: str) -> None:
        """Show output that came over the connection."""
        self._take(noise.encode() + b"\n" * (not noise.endswith("\n")))

    def drain(self, within: float = 0.1) -> None:
        """Wait until the output so far is shown."""
        if self._waiting():
            until = time.monotonic() + within
            while self._thread.is_alive() and self._waiting() and time.monotonic() < until:
                time.sleep(0.0005)
        with self._busy:
            return

    def _waiting(self) -> bool:
        try:
            return fcntl.ioctl(self._reading, termios.FIONREAD, _NOTHING) != _NOTHING
        except OSError:
            return False

    def stop(self) -> None:
        """Read no more; a child process that lives on may hold the other end."""
        if self._thread.is_alive():
            os.write(self._stopped, b"x")
        self._thread.join(1)
        with contextlib.suppress(OSError):
            os.close(self._stop)
            os.close(self._stopped)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        while True:
            ready = dict(poll.poll(100 if self._rest else None))
            with self._busy:
                if not ready:
                    self._take(b"\n")  # an unfinished line
                    continue
                try:
                    came = os.read(self._reading, 1 << 16) if self._reading in ready else b""
                except OSError:
                    came = b""
                if came:
                    self._take(came)
                    continue
                if self._rest:
                    self._take(b"\n")
                break
        self._reap()

    def _reap(self) -> None:
        """Reap the process, which is probably ending, so that it does not stay a zombie."""
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        for _ in range(100):
            if not self._alive() or poll.poll(10):
                return

    def _take(self, came: bytes) -> None:
        *lines, self._rest = (self._rest + came).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        texts = [line.decode(errors="backslashreplace") for line in lines]
        self._last.extend(text[:1000] for text in texts if text.strip())
        try:
            sys.stderr.write("".join(f"{self._prefix}{text}\n" for text in texts))
            sys.stderr.flush()
        except Exception:  # nowhere to show it
            return


def _is_module(name: object) -> bool:
    if not isinstance(name, str):
        return False
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False

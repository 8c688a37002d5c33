"""The command as a process of its own: on a terminal, in a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

_LEFT_OUT = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
_PLAIN = {key: value for key, value in os.environ.items() if key not in _LEFT_OUT}
ENVIRONMENT = {**_PLAIN, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8"}
COMMAND = [sys.executable, "-m", "somatize"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal of so many columns and rows in which the command runs."""

    def __init__(self, *words: object, columns: int = 80, rows: int = 24, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**ENVIRONMENT, **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.seen = ""

    def until(self, words: str) -> str:
        """Read until these words were shown."""
        while words not in self.seen:
            self.seen += os.read(self._master, 65536).decode("utf-8", "replace")
        return self.seen

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def interrupts(self) -> None:
        """Press Ctrl-C until it ends: one that comes as Python begins to wait for a key is only seen after it."""
        while self._process.poll() is None:
            self.types("\x03")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1)

    def ends(self) -> int:
        """Read what comes until it ended, and give its exit code."""
        try:
            while piece := os.read(self._master, 65536):
                self.seen += piece.decode("utf-8", "replace")
        except OSError:
            pass  # how Linux says that nobody has the other end any more
        os.close(self._master)
        return self._process.wait(timeout=30)

    @property
    def lines(self) -> list[str]:
        """What was shown, without colours."""
        return ESCAPES.sub("", self.seen).replace("\r", "").splitlines()


def shown(*words: object, columns: int = 80, rows: int = 24, **environment: str) -> list[str]:
    """The lines that the command shows on a terminal."""
    terminal = Terminal(*words, columns=columns, rows=rows, **environment)
    assert terminal.ends() == 0, terminal.seen
    return terminal.lines


def piped(*words: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command with its output in a pipe."""
    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, env={**ENVIRONMENT, **environment}, timeout=60, cwd=cwd
    )

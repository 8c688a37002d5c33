"""The whole of a terminal, taken for a while and given back as it was, however that while ends."""

from __future__ import annotations

import os
import select
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Self, TextIO

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[?25h\x1b[?1049l"
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_REDRAW = b"\x0c"


class Screen:
    """A terminal of which every line is drawn here, while a person may press keys.

    Within the ``with`` the terminal shows its other screen, without a cursor, and keys arrive at once and unseen;
    Ctrl-C still interrupts, Ctrl-Z stops and what was there is seen meanwhile. After it all is as it was, also when
    it ends by SIGTERM or because the terminal is gone. For the main thread only: it takes signals.
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
        """Whether the screen must be drawn anew: at first, and when it was resized or left meanwhile."""

    def size(self) -> tuple[int, int]:
        """Its columns and lines, now."""
        try:
            return os.get_terminal_size(self._stream.fileno())
        except OSError:
            return 80, 24

    def draw(self, lines: list[str]) -> None:
        """Show these lines from the top; only those that changed are written."""
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
        """Return the keys that were pressed, within that time or as soon as there are some; empty for none.

        Returns early when the screen must be drawn anew. A terminal that is gone reads as ``q``.
        """
        watched = [self._wake[0], *([self._keys] if self._keys is not None else [])]
        ready, _, _ = select.select(watched, [], [], max(0.0, seconds))
        if self._wake[0] in ready:
            os.read(self._wake[0], 1024)
        if self._keys is None or self._keys not in ready:
            return ""
        pressed = os.read(self._keys, 1024)
        if _REDRAW in pressed:
            self.changed = True
        return pressed.decode("utf-8", "replace") if pressed else "q"

    # -- taken and given back

    def __enter__(self) -> Self:
        self._take_signals()
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._give_back()
        except OSError:  # the terminal is gone
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
        self._handle(signal.SIGWINCH, self._resized)
        self._handle(signal.SIGTSTP, self._stopped)
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

    def _resized(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.changed = True

    def _stopped(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Ctrl-Z: give the terminal back, stop, and take it again when this goes on."""
        self._give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._stopped)
        self._take()


def _ended(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    sys.exit(128 + number)


def _keyboard() -> int | None:
    """Where keys come from: standard input, or the terminal itself where that is something else."""
    try:
        if os.isatty(0):
            return 0
        return os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None

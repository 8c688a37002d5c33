"""Some lines at the bottom of a terminal that are drawn again and again, under whatever else is written there.

It moves up over its own lines and no further, hides no cursor and switches no mode: whenever the process ends, the
terminal is as it was, with the last lines left to read at worst.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from typing import Any, TextIO

_LONGEST = 4096


class Region:
    """The lines, and the streams they are kept apart from: what is printed goes above them, as it was written."""

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
        """Take the lines away, and give the streams back to whoever still has the ones made here."""
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
        """In a forked child: the parent draws, and what the child prints it prints as it is."""
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
    """Of a line that is written over and over, as by another progress bar, how it is now."""
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

"""A run followed until somebody has seen enough: on the whole of a terminal, or line by line."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from somatize.record.run_follower import DIED, ENDED, RECORDED, Followed

from .rich_backend import console_for, literal, painted
from .run_lines import Sentences
from .run_view import RunView
from .screen import Screen

_TICK = 1.0
"""Seconds after which a view is drawn again though nothing new was written: it says how long things take."""
_LOOKS = 0.5
_QUITS = frozenset("qQ\x04")


def on_screen(followed: Followed, stream: TextIO, *, every: float = _LOOKS, until_end: bool = False) -> str:
    """Show a run on the whole of a terminal until ``q`` is pressed, or until it ends; gives how it stood then.

    Looks for what is new `every` seconds. What is warned of meanwhile is shown at the bottom. The terminal is given
    back as it was, whatever is raised.
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
    return literal(Sentences(followed, every).ending(), console.encoding)


def in_lines(followed: Followed, stream: TextIO, *, every: float = 10.0, until_end: bool = True) -> None:
    """Write how a run goes in plain lines: what happens when it happens, and every `every` seconds how it stands.

    Ends with the run, if `until_end`, else never.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    sentences = Sentences(followed, every)
    while True:
        followed.look()
        stream.writelines(literal(line, encoding) + "\n" for line in sentences.due())
        stream.flush()
        if until_end and is_over(followed):
            return
        time.sleep(min(every, 2 * _LOOKS))


def is_over(followed: Followed) -> bool:
    """Whether there is a run that nobody records any more."""
    return followed.state in (DIED, ENDED)


def speaks_utf8(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a terminal shows more than ASCII: the stream is of UTF-8 and so is the locale that was asked for.

    Python writes UTF-8 where the locale is plain C too, and then says so in LC_CTYPE: that is not counted.
    """
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    asked = {name: environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")}
    if asked["LC_CTYPE"] == "C.UTF-8" and asked["LANG"] in ("", "C", "POSIX"):
        asked["LC_CTYPE"] = ""
    said = next((value for value in asked.values() if value), "")
    return encoding == "utf8" and "utf8" in said.lower().replace("-", "")


@contextmanager
def _warned() -> Iterator[dict[str, None]]:
    """What is warned of within it, each once, instead of being written over what is drawn."""
    said: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: said.update({str(message): None})
        yield said

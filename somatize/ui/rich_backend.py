"""The interface to Rich, and the only module that imports it; text that a terminal can show.

Names, log lines and errors may hold markup, escape sequences, tabs, and characters that a terminal cannot encode or
that have no width. `literal` escapes them before Rich gets them.
"""

from __future__ import annotations

import logging
import os
import time
import unicodedata
from collections.abc import Sequence
from io import StringIO
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, OverflowMethod, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

__all__ = [
    "Console",
    "ConsoleOptions",
    "Group",
    "ProgressBar",
    "RenderResult",
    "RenderableType",
    "Table",
    "Text",
    "cell_len",
]


def log_handler(console: Any) -> logging.Handler | None:
    """A handler that writes to a console or stream, or to standard error if that is None; None for other objects."""
    from rich.logging import RichHandler

    if console is None:
        console = Console(stderr=True)
    elif callable(getattr(console, "write", None)) and not isinstance(console, Console):
        console = Console(file=console)
    if not isinstance(console, Console):
        return None

    class LogHandler(RichHandler):
        def emit(self, record: logging.LogRecord) -> None:
            """Write the record; to a file or pipe as one line, which Rich would wrap at 80 characters."""
            if self.console.is_terminal or self.console.is_jupyter:
                super().emit(record)
                return
            try:
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
                line = Text(f"{when} {record.levelname:8} {self.format(record)}")
                self.console.print(line, soft_wrap=True, highlight=False)
            except Exception:
                self.handleError(record)

    return LogHandler(console=console, show_path=False)


LONGEST = 4000
"""Characters of one text that are shown; no terminal is as wide."""


def literal(words: object, encoding: str = "utf-8") -> str:
    """`words` as one line in which each character that cannot be shown is escaped."""
    text = str(words)
    if len(text) > LONGEST:
        text = text[:LONGEST] + "..."
    if not (text.isascii() and text.isprintable()):
        text = "".join(character if _shows(character) else _escape(character) for character in text)
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def _shows(character: str) -> bool:
    return character.isprintable() and (
        character.isascii() or unicodedata.category(character) not in ("Cf", "Mn", "Me")
    )


def _escape(character: str) -> str:
    if unicodedata.category(character) in ("Mn", "Me"):  # an accent: it has no width, but is shown
        return character
    return {"\n": " ⏎ ", "\t": "  "}.get(character) or character.encode("unicode_escape").decode()


def cut(words: str, width: int) -> str:
    """`words` shortened to `width` in the middle, as both ends of a name distinguish it."""
    if cell_len(words) <= width:
        return words
    head, tail = words, words[-(max(0, width - 3) // 3) :] if width > 5 else ""
    while head and cell_len(head) + 3 + cell_len(tail) > width:
        head = head[:-1]
    return f"{head}...{tail}" if width > 2 else "..."[:width]


def overflow(options: ConsoleOptions) -> OverflowMethod:
    """How a line that is too wide ends: ASCII has no ellipsis."""
    return "crop" if options.ascii_only else "ellipsis"


def text_line(words: object, options: ConsoleOptions, style: str = "") -> Text:
    """`words` as one line that is never wrapped, escaped by `literal`."""
    return Text(literal(words, options.encoding), style=style, no_wrap=True, overflow=overflow(options))


def filled(body: RenderableType, foot: Sequence[Text]) -> RenderableType:
    """A layout as high as it is given room for: `body` cropped or padded, and the lines of `foot` at the bottom."""
    from rich.layout import Layout

    layout = Layout()
    layout.split_column(Layout(body), Layout(Group(*foot), size=len(foot)))
    return layout


def painted(view: Any, console: Console, height: int | None = None) -> list[str]:
    """A renderable as lines with escape sequences, each narrower than the console; `height` lines if that is given."""
    with console.capture() as captured:
        console.print(view, width=max(1, console.width - 1), height=height, no_wrap=True, crop=True)
    encoding = console.encoding
    text = captured.get().encode(encoding, "backslashreplace").decode(encoding)
    return [line.rstrip(" ") for line in text.split("\n")[:-1]]


def is_terminal(stream: Any) -> bool:
    """Whether `stream` is a terminal; an object without a working ``isatty`` is none."""
    try:
        return bool(stream.isatty())
    except Exception:
        return False


def has_cursor(stream: Any) -> bool:
    """Whether `stream` is a terminal on which the cursor can be moved."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def console_for(stream: IO[str], width: int | None = None, *, ascii_only: bool = False) -> Console:
    """A console for `stream` without markup, emoji and highlighting; with `ascii_only` it writes only ASCII."""
    file: Any = _AsciiOnly(stream) if ascii_only else stream
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


class _AsciiOnly:
    """A stream with the encoding ASCII; other attributes are the stream's own."""

    encoding = "ascii"

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def html(view: Any, width: int) -> tuple[str, str]:
    """A renderable as plain text and as HTML, for a notebook."""
    console = Console(
        file=StringIO(), record=True, width=width, force_terminal=True, force_jupyter=False, color_system="standard"
    )
    console.print(view)
    page = console.export_html(inline_styles=True, code_format="{code}", clear=False)
    return console.export_text(), f'<pre style="line-height:1.25;white-space:pre;overflow-x:auto">{page}</pre>'

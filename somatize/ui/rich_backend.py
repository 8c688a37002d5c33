"""The interface to Rich, and the only module that imports it; text that a terminal can show.

Names, log lines and errors may hold anything: markup, escape sequences, tabs, characters a terminal cannot encode or
gives no width. They become `literal` text before Rich sees them.
"""

from __future__ import annotations

import logging
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
    """A handler that writes log records to a console, a stream, or where it is None to standard error; else None."""
    from rich.logging import RichHandler

    if console is None:
        console = Console(stderr=True)
    elif callable(getattr(console, "write", None)) and not isinstance(console, Console):
        console = Console(file=console)
    if not isinstance(console, Console):
        return None

    class LogHandler(RichHandler):
        def emit(self, record: logging.LogRecord) -> None:
            """As Rich does, but in a file or a pipe as one line: there it would break it after 80 letters."""
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
"""Characters of one text that are looked at; no line is as wide."""


def literal(words: object, encoding: str = "utf-8") -> str:
    """`words` as one line that shows each character or an escape for it; whatever Rich would make of it."""
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
    if unicodedata.category(character) in ("Mn", "Me"):  # an accent over the letter before: it has no width, and shows
        return character
    return {"\n": " ⏎ ", "\t": "  "}.get(character) or character.encode("unicode_escape").decode()


def cut(words: str, width: int) -> str:
    """`words`, shortened in the middle where they are wider: the ends tell things apart."""
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
    """A renderable as lines with their escape sequences, none wider than the console less one column.

    With `height` it is told to be so many lines high.
    """
    with console.capture() as captured:
        console.print(view, width=max(1, console.width - 1), height=height, no_wrap=True, crop=True)
    encoding = console.encoding
    text = captured.get().encode(encoding, "backslashreplace").decode(encoding)
    return [line.rstrip(" ") for line in text.split("\n")[:-1]]


def console_for(stream: IO[str], width: int | None = None, *, ascii_only: bool = False) -> Console:
    """A console that knows what `stream` can show; with `ascii_only` it is held to ASCII whatever its encoding."""
    file: Any = _AsciiOnly(stream) if ascii_only else stream
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


class _AsciiOnly:
    """A stream that says it is of ASCII; all else is the stream's own."""

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

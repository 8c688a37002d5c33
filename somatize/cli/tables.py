"""Rows as a table that fits the terminal.

What there is no room for goes in the order in which the columns say they are worth: first text is cut in its middle,
then whole columns are left out. Where output is no terminal nothing is cut, as it is some other program that reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from somatize.ui.rich_backend import Console, Table, Text, cell_len, console_for, cut, literal

Row = Mapping[str, Any]

_GAP = 2
_AT_ONCE = 4096
"""Rows that are laid out together where a program reads: the first of a million should not wait for the last."""

_PAINTED = {
    "red": ("broke", "lost", "failed", "ERROR", "CRITICAL"),
    "yellow": ("interrupted", "WARNING"),
    "cyan": ("open", "recording"),
}
_STYLES = {word: style for style, words in _PAINTED.items() for word in words}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head, what it says of a row, and what it is worth where there is little room.

    Those of the least `worth` come first. With `least`, its text may be cut down to so many columns: a name in its
    middle, as its ends tell it apart, a `sentence` at its end; one that is `folded` goes on below itself, and stands
    in the last column. One in which nothing is said is left out, unless it is worth 0.
    """

    head: str
    says: Callable[[Row], str]
    worth: int = 0
    right: bool = True
    least: int | None = None
    sentence: bool = False
    folded: bool = False
    style: str = ""


@dataclass(frozen=True, slots=True)
class _Filled:
    column: Column
    cells: list[str]
    width: int

    @property
    def least(self) -> int:
        return self.width if self.column.least is None else min(self.width, self.column.least)

    def style(self, words: str) -> str:
        return self.column.style or _STYLES.get(words, "")

    def wide(self, width: int) -> _Filled:
        return _Filled(self.column, self.cells, width)

    def aligned(self, words: str) -> str:
        if words.isascii() and len(words) <= self.width:
            return words.rjust(self.width) if self.column.right else words.ljust(self.width)
        words = _begun(words, self.width) if self.column.sentence else cut(words, self.width)
        blank = " " * (self.width - cell_len(words))
        return blank + words if self.column.right else words + blank


def print_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Print rows on standard output, fitted where that is a terminal."""
    console = console_for(sys.stdout)
    if not sys.stdout.isatty():
        _print_all(rows, _said(rows, columns), console.encoding)
        return
    chosen = fitted(rows, columns, console.width, console.encoding)
    console.print(_painted([(one.aligned(one.column.head), "bold") for one in chosen]), soft_wrap=True)
    for row in range(len(rows)):
        *cells, last = [(one.cells[row], one) for one in chosen]
        first, *more = _folded(*last, console)
        painted = [(one.aligned(words), one.style(words)) for words, one in [*cells, (first, last[1])]]
        console.print(_painted(painted), soft_wrap=True)
        for words in more:
            console.print(" " * (console.width - last[1].width) + words, soft_wrap=True, style=last[1].style(last[0]))


def fitted(rows: Sequence[Row], columns: Sequence[Column], width: int, encoding: str) -> list[_Filled]:
    """The columns that say something and that there is room for, filled, and each as wide as it may be."""
    return _chosen(_filled(rows, _said(rows, columns), encoding), width)


def _said(rows: Sequence[Row], columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.worth == 0 or any(map(column.says, rows))]


def _folded(words: str, last: _Filled, console: Console) -> list[str]:
    """The lines of a cell in the last column."""
    if not last.column.folded or cell_len(words) <= last.width:
        return [words]
    return [line.plain.rstrip() for line in Text(words).wrap(console, last.width, overflow="fold")]


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print what things are called and what they are; on a terminal, what is long goes on below its beginning."""
    stream = sys.stdout
    console = console_for(stream)
    encoding = console.encoding
    if not stream.isatty():
        wide = max((len(name) for name, _ in pairs), default=0)
        for name, says in pairs:
            stream.write(f"{shown(name, encoding):{wide}}  {shown(says, encoding)}".rstrip() + "\n")
        return
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(style="bold", max_width=console.width // 3, no_wrap=True, overflow="ellipsis")
    table.add_column(overflow="fold")
    for name, says in pairs:
        table.add_row(Text(shown(name, encoding)), Text(shown(says, encoding)))
    console.print(table)


def shown(words: str, encoding: str) -> str:
    """Words as one cell: a line, with what the terminal cannot encode in letters that it can."""
    if words.isascii() and words.isprintable() and len(words) < _AT_ONCE:
        return words
    return literal(words.replace("µ", "u") if "µ" in words and not _encodes("µ", encoding) else words, encoding)


def _encodes(letter: str, encoding: str) -> bool:
    try:
        return bool(letter.encode(encoding))
    except UnicodeEncodeError:
        return False


def _filled(rows: Sequence[Row], columns: Sequence[Column], encoding: str) -> list[_Filled]:
    filled = []
    for column in columns:
        cells = [shown(column.says(row), encoding) for row in rows]
        filled.append(_Filled(column, cells, max([cell_len(column.head), *map(_width, cells)])))
    return filled


def _begun(words: str, width: int) -> str:
    """The beginning of a sentence that is wider."""
    if cell_len(words) <= width:
        return words
    words = words[:width]
    while words and cell_len(words) > width - 3:
        words = words[:-1]
    return f"{words}..."[:width]


def _width(words: str) -> int:
    return len(words) if words.isascii() else cell_len(words)


def _chosen(filled: Sequence[_Filled], width: int) -> list[_Filled]:
    """The columns that there is room for, each as wide as it may be, in their order."""
    room = width + _GAP
    kept: list[_Filled] = []
    for one in sorted(filled, key=lambda one: one.column.worth):
        if not kept or one.least + _GAP <= room:
            kept.append(one)
            room -= one.least + _GAP
    widths = {}
    folded = [one for one in kept if one.column.folded and one.least < one.width]
    for one in sorted(kept, key=folded.__contains__):  # what is left goes to those that were cut, the worthiest first
        share = room // 2 if folded and one not in folded else room  # but half of it is for what goes on below itself
        widths[one.column] = one.least + min(one.width - one.least, max(share, 0))
        room -= widths[one.column] - one.least
    if room < 0:
        widths[kept[0].column] = max(1, width)
    return [one.wide(widths[one.column]) for one in filled if one.column in widths]


def _print_all(rows: Sequence[Row], columns: Sequence[Column], encoding: str) -> None:
    """Print a table for a program: nothing is cut, and columns widen as the rows come."""
    widths = [0] * len(columns)
    for first in range(0, len(rows), _AT_ONCE):
        filled = _filled(rows[first : first + _AT_ONCE], columns, encoding)
        widths = [max(width, one.width) for width, one in zip(widths, filled, strict=True)]
        chosen = [one.wide(width) for one, width in zip(filled, widths, strict=True)]
        heads = [] if first else [_line(one.aligned(one.column.head) for one in chosen)]
        sys.stdout.write("\n".join([*heads, *_lines(chosen), ""]))


def _lines(chosen: Sequence[_Filled]) -> list[str]:
    columns = [[one.aligned(words) for words in one.cells] for one in chosen]
    return [_line(cells) for cells in zip(*columns, strict=True)]


def _line(cells: Any) -> str:
    return (" " * _GAP).join(cells).rstrip()


def _painted(cells: Sequence[tuple[str, str]]) -> Text:
    line = Text()
    for number, (words, style) in enumerate(cells):
        line.append(" " * _GAP if number else "")
        line.append(words, style=style)
    line.rstrip()
    return line

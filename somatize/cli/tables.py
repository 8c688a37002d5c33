"""Rows as a table that fits the terminal.

What there is no room for goes in the order in which the columns say they are worth: first text is cut in its middle,
then whole columns are left out. Where output is no terminal nothing is cut, as it is some other program that reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from somatize.ui.painting import Console, Table, Text, cell_len, console_for, cut, literal

Row = Mapping[str, Any]

_GAP = 2
_TROUBLE = frozenset({"broke", "lost", "failed", "ERROR", "CRITICAL"})
_DOUBT = frozenset({"interrupted", "WARNING"})
_GOING = frozenset({"open", "recording"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head, what it says of a row, and what it is worth where there is little room.

    Those of the least `worth` come first. With `least`, its text may be cut down to so many columns. One in which
    nothing is said is left out, unless it is worth 0.
    """

    head: str
    says: Callable[[Row], str]
    worth: int = 0
    right: bool = True
    least: int | None = None


@dataclass(frozen=True, slots=True)
class _Filled:
    column: Column
    cells: list[str]
    width: int

    @property
    def least(self) -> int:
        return self.width if self.column.least is None else min(self.width, self.column.least)


def print_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Print rows on standard output, fitted where that is a terminal."""
    stream = sys.stdout
    console = console_for(stream)
    width = console.width if stream.isatty() else None
    filled = _filled(rows, columns, console.encoding)
    shown = chosen(filled, width)
    paint = _painter(console) if console.is_terminal else _write
    _print(shown, len(rows), paint)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print what things are called and what they are; on a terminal, what is long goes on below its beginning."""
    stream = sys.stdout
    console = console_for(stream)
    encoding = console.encoding
    if not stream.isatty():
        wide = max((_width(name) for name, _ in pairs), default=0)
        for name, says in pairs:
            stream.write(f"{shown(name, encoding):{wide}}  {shown(says, encoding)}".rstrip() + "\n")
        return
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(style="bold", max_width=console.width // 3, no_wrap=True, overflow="ellipsis")
    table.add_column(overflow="fold")
    for name, says in pairs:
        table.add_row(Text(shown(name, encoding)), Text(shown(says, encoding)))
    console.print(table)


def fitted(rows: Sequence[Row], columns: Sequence[Column], width: int | None, encoding: str = "utf-8") -> list[str]:
    """The lines of a table without colours, none wider than `width`."""
    lines: list[str] = []
    _print(chosen(_filled(rows, columns, encoding), width), len(rows), lambda cells: lines.append(_joined(cells)))
    return lines


def _filled(rows: Sequence[Row], columns: Sequence[Column], encoding: str) -> list[_Filled]:
    filled = []
    for column in columns:
        cells = [shown(column.says(row), encoding) for row in rows]
        if column.worth == 0 or any(cells):
            filled.append(_Filled(column, cells, max([cell_len(column.head), *map(_width, cells)])))
    return filled


def shown(words: str, encoding: str) -> str:
    """Words as one cell: a line, with what the terminal cannot encode in letters that it can."""
    return literal(words.replace("µ", "u") if "µ" in words and not _encodes("µ", encoding) else words, encoding)


def _encodes(letter: str, encoding: str) -> bool:
    try:
        return bool(letter.encode(encoding))
    except UnicodeEncodeError:
        return False


def _width(words: str) -> int:
    return len(words) if words.isascii() else cell_len(words)


def chosen(filled: Sequence[_Filled], width: int | None) -> list[_Filled]:
    """The columns that there is room for, each as wide as it may be, in their order."""
    if width is None:
        return list(filled)
    room = width + _GAP
    kept: list[_Filled] = []
    for one in sorted(filled, key=lambda one: one.column.worth):
        if not kept or one.least + _GAP <= room:
            kept.append(one)
            room -= one.least + _GAP
    widths = {}
    for one in kept:  # what is left goes to those that were cut, the worthiest first
        widths[one.column.head] = one.least + min(one.width - one.least, max(room, 0))
        room -= widths[one.column.head] - one.least
    if room < 0:
        widths[kept[0].column.head] = max(1, width)
    return [_Filled(one.column, one.cells, widths[one.column.head]) for one in filled if one in kept]


_Cell = tuple[str, str]
"""Words as wide as their column, and how they are painted."""


def _print(shown: Sequence[_Filled], rows: int, paint: Callable[[list[_Cell]], object]) -> None:
    paint([(_aligned(one, one.column.head), "bold") for one in shown])
    for row in range(rows):
        paint([(_aligned(one, one.cells[row]), _style(one.cells[row])) for one in shown])


def _aligned(one: _Filled, words: str) -> str:
    room = one.width - _width(words)
    if room < 0:
        words = cut(words, one.width)
        room = one.width - _width(words)
    return " " * room + words if one.column.right else words + " " * room


def _style(words: str) -> str:
    first = words.partition(":")[0]
    if first in _TROUBLE:
        return "red"
    return "yellow" if first in _DOUBT else "cyan" if first in _GOING else ""


def _joined(cells: list[_Cell]) -> str:
    return (" " * _GAP).join(words for words, _ in cells).rstrip()


def _write(cells: list[_Cell]) -> None:
    sys.stdout.write(_joined(cells) + "\n")


def _painter(console: Console) -> Callable[[list[_Cell]], object]:
    def paint(cells: list[_Cell]) -> None:
        line = Text()
        for number, (words, style) in enumerate(cells):
            line.append(words if not number else " " * _GAP)
            if number:
                line.append(words, style=style)
            else:
                line.stylize(style)
        line.rstrip()
        console.print(line, soft_wrap=True)

    return paint

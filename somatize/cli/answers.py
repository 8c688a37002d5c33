"""Output of subcommands: tables for people, JSON or CSV for programs.

A table that is wider than the terminal is fitted by the priorities of its columns: first text is shortened, then
columns are left out. Where output is no terminal nothing is cut, as another program reads it.

JSON and CSV have the values as the readers return them. In JSON ``nan``, ``inf`` and ``-inf`` are texts, as in facts;
in CSV None is empty, and a list or a mapping is written as JSON.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from io import StringIO
from typing import Any, TypeAlias, TypeVar

import click

from somatize.figures.theme import share
from somatize.ui.rich_backend import LONGEST, Console, Table, Text, cell_len, console_for, cut, literal, overflow
from somatize.utils.units import duration, scaled

from .exit_codes import say

__all__ = ["ago", "clock", "count", "listed", "number", "share", "size", "took"]

_DAY = 86400.0
_WHOLE = 1e12


@lru_cache
def took(us: float | None) -> str:
    """A duration given in microseconds."""
    return "" if us is None else duration(us / 1e6)


def size(number: float | None) -> str:
    """A size in bytes."""
    return "" if number is None else scaled(number, "B")


def count(number: float | None) -> str:
    """A whole number; empty for zero, so that other counts in a column stand out."""
    return f"{number:,.0f}" if number else ""


def clock(when: float | None) -> str:
    """An instant in local time; with the date where it is a day old or older."""
    return "" if when is None else _clock(int(when), int(time.time()))


@lru_cache
def _clock(when: int, now: int) -> str:
    there = time.localtime(when)
    return time.strftime("%H:%M:%S" if 0 <= now - when < _DAY else "%Y-%m-%d %H:%M", there)


def ago(when: float | None) -> str:
    """The time since an instant, in one unit."""
    if when is None:
        return ""
    seconds = max(0.0, time.time() - when)
    for size, unit in ((_DAY, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def number(said: object) -> str:
    """A number, or the text of one, in five digits; other text unchanged."""
    if said is None:
        return ""
    try:
        value = float(str(said))
    except ValueError:
        return str(said)
    return f"{value:,.0f}" if value.is_integer() and abs(value) < _WHOLE else f"{value:#.5g}"


def listed(words: Iterable[object]) -> str:
    """Several values in one cell."""
    return ", ".join(map(str, words))


Row = Mapping[str, Any]

_GAP = 2
_ROWS_AT_ONCE = 1024
"""Rows that are laid out and written together."""

_PAINTED = {
    "red": ("broke", "lost", "failed", "ERROR", "CRITICAL"),
    "yellow": ("interrupted", "WARNING"),
    "cyan": ("open", "recording"),
}
_STYLES = {word: style for style, words in _PAINTED.items() for word in words}


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table: its head, the text of its cell for a row, and its priority where the table is too wide.

    Columns of the least `worth` get room first. A column with `least` may be shortened to that width: in the middle, as
    both ends of a name distinguish it; at the end if it is a `sentence`; a `folded` one, which must be the last, is
    wrapped. A column whose cells are all empty is left out, unless its `worth` is 0.
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
class _Cells:
    """The cells of a column, and its width."""

    column: TextColumn
    cells: list[str]
    width: int

    @property
    def least(self) -> int:
        return self.width if self.column.least is None else min(self.width, self.column.least)

    def padded(self, words: str) -> str:
        blank = " " * (self.width - _width(words))
        return blank + words if self.column.right else words + blank

    def text(self, words: str) -> Text:
        column = self.column
        shown = words if column.sentence or column.folded else cut(words, self.width)
        return Text(shown, style=column.style or _STYLES.get(words, ""))


def print_table(rows: Sequence[Row], columns: Sequence[TextColumn]) -> None:
    """Print rows on standard output: fitted to a terminal, in full where a program reads."""
    console = console_for(sys.stdout)
    if not sys.stdout.isatty():
        _print_all(rows, _used(rows, columns), console.encoding)
        return
    for table in terminal_tables(rows, columns, console):
        console.print(table)


def terminal_tables(rows: Sequence[Row], columns: Sequence[TextColumn], console: Console) -> Iterator[Table]:
    """The rows as tables to be printed below each other, no wider than the console; the first has the heads.

    Rich's own fitting neither leaves columns out by priority nor shortens in the middle, so widths are set here.
    """
    shown = _fitted(_filled(rows, _used(rows, columns), console.encoding), console.width)
    ellipsis = overflow(console.options)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        width = sum(one.width + _GAP for one in shown)  # with the gap after the last, which is cropped when printed
        table = Table(box=None, padding=(0, _GAP, 0, 0), width=width, show_header=not first, header_style="bold")
        for one in shown:
            folded = one.column.folded
            table.add_column(
                Text(cut(one.column.head, one.width)),
                justify="right" if one.column.right else "left",
                width=one.width,
                no_wrap=not folded,
                overflow="fold" if folded else ellipsis,
            )
        for cells in zip(*(map(one.text, one.cells[first : first + _ROWS_AT_ONCE]) for one in shown), strict=True):
            table.add_row(*cells)
        yield table


def _used(rows: Sequence[Row], columns: Sequence[TextColumn]) -> list[TextColumn]:
    return [column for column in columns if column.worth == 0 or any(map(column.says, rows))]


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and their values; on a terminal, a long value is wrapped below its beginning."""
    stream = sys.stdout
    console = console_for(stream)
    encoding = console.encoding
    if not stream.isatty():
        wide = max((len(name) for name, _ in pairs), default=0)
        for name, says in pairs:
            stream.write(f"{cell_text(name, encoding):{wide}}  {cell_text(says, encoding)}".rstrip() + "\n")
        return
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(style="bold", max_width=console.width // 3, no_wrap=True, overflow=overflow(console.options))
    table.add_column(overflow="fold")
    for name, says in pairs:
        table.add_row(Text(cell_text(name, encoding)), Text(cell_text(says, encoding)))
    console.print(table)


def cell_text(words: str, encoding: str) -> str:
    """Words as one line of characters that the terminal can show; others are escaped."""
    if words.isascii() and words.isprintable() and len(words) < LONGEST:
        return words
    return literal(words.replace("µ", "u") if "µ" in words and not _encodes("µ", encoding) else words, encoding)


def _encodes(letter: str, encoding: str) -> bool:
    try:
        return bool(letter.encode(encoding))
    except UnicodeEncodeError:
        return False


def _filled(rows: Sequence[Row], columns: Sequence[TextColumn], encoding: str) -> list[_Cells]:
    filled = []
    for column in columns:
        cells = [cell_text(column.says(row), encoding) for row in rows]
        filled.append(_Cells(column, cells, max([cell_len(column.head), *map(_width, cells)])))
    return filled


def _width(words: str) -> int:
    return len(words) if words.isascii() else cell_len(words)


def _fitted(filled: Sequence[_Cells], width: int) -> list[_Cells]:
    """The columns that fit `width`, in their order, each as wide as it may be."""
    room = width + _GAP
    kept: list[_Cells] = []
    for one in sorted(filled, key=lambda one: one.column.worth):
        if not kept or one.least + _GAP <= room:
            kept.append(one)
            room -= one.least + _GAP
    widths = {}
    folded = [one for one in kept if one.column.folded and one.least < one.width]
    for one in sorted(kept, key=folded.__contains__):  # the rest goes to shortened columns by worth, folded ones last
        share = room // 2 if folded and one not in folded else room  # half of it is kept for the folded column
        widths[one.column] = one.least + min(one.width - one.least, max(share, 0))
        room -= widths[one.column] - one.least
    if room < 0:
        widths[kept[0].column] = max(1, width)
    return [replace(one, width=widths[one.column]) for one in filled if one.column in widths]


def _print_all(rows: Sequence[Row], columns: Sequence[TextColumn], encoding: str) -> None:
    """Print a table for a program: nothing is cut, and columns widen as rows come, so that the first is not late."""
    widths = [0] * len(columns)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        filled = _filled(rows[first : first + _ROWS_AT_ONCE], columns, encoding)
        widths = [max(width, one.width) for width, one in zip(widths, filled, strict=True)]
        shown = [replace(one, width=width) for one, width in zip(filled, widths, strict=True)]
        lines: list[Sequence[str]] = [] if first else [[one.padded(one.column.head) for one in shown]]
        lines += zip(*([one.padded(words) for words in one.cells] for one in shown), strict=True)
        sys.stdout.writelines((" " * _GAP).join(line).rstrip() + "\n" for line in lines)


F = TypeVar("F", bound=Callable[..., Any])
Pages: TypeAlias = Callable[[], Iterable[Sequence[Row]]]
"""Returns rows in batches; each call reads them from the start."""

_AROUND = 4
"""Lines of a terminal beside a table's rows: its head, a note below it, the prompt."""
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Characters that a terminal interprets, or that reorder or hide their neighbours."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Writes the result of a subcommand in the format that was asked for."""

    json: bool = False
    csv: bool = False

    @property
    def is_table(self) -> bool:
        """Whether it is written for people."""
        return not (self.json or self.csv)

    def room(self) -> int | None:
        """The number of rows that fit the terminal; None if output is no terminal, or is for a program."""
        if not self.is_table or not sys.stdout.isatty():
            return None
        return max(5, console_for(sys.stdout).height - _AROUND)

    def rows(
        self, rows: Sequence[Row], columns: Sequence[TextColumn], fields: Sequence[str], *, none: str = ""
    ) -> None:
        """Write rows; `fields` are the heads of a CSV without rows, and `none` is printed instead of an empty table."""
        if not self.is_table:
            self.pages(
                lambda: (rows[at : at + _ROWS_AT_ONCE] for at in range(0, len(rows), _ROWS_AT_ONCE)), heads=fields
            )
        elif rows:
            print_table(rows, columns)
        else:
            say(none or "there is nothing to show")

    def some(
        self,
        rows: Sequence[Row],
        columns: Sequence[TextColumn],
        fields: Sequence[str],
        *,
        of: str,
        none: str,
        every: bool,
        last: int | None = None,
        first: bool = False,
        more: str = "--last N, --all",
    ) -> None:
        """Write the `last` rows; without it, on a terminal and unless `every`, the last or `first` that fit it.

        A note below them says how many there are, and that the options `more` show them.
        """
        most = last if last is not None else None if every else self.room()
        most = len(rows) if most is None else min(most, len(rows))
        self.rows(rows[:most] if first else rows[len(rows) - most :], columns, fields, none=none)
        if most < len(rows):
            self.note(f"the {'first' if first else 'last'} {most:,} of {len(rows):,} {of}; more: {more}")

    def pages(self, pages: Pages, *, fields: Sequence[str] = (), heads: Sequence[str] = ()) -> None:
        """Write rows for a program in batches.

        Each row has these `fields`. If they are not known, a CSV reads the rows twice, first for all of their fields;
        `heads` are those of a CSV without rows.
        """
        if self.json:
            _json_rows(pages())
        else:
            _csv_rows(pages, fields or _fields_of(pages) or heads)

    def done(self, row: Row, words: str) -> None:
        """Report what was done: a sentence for people, a row for programs."""
        self.rows([row], (), tuple(row)) if not self.is_table else self.say(words)

    def say(self, words: str) -> None:
        """Print a line if output is a table."""
        if self.is_table:
            _line(words, "")

    def note(self, words: str) -> None:
        """Print a line below a table if output is a terminal."""
        if self.is_table and sys.stdout.isatty():
            _line(words, "dim")


def _line(words: str, style: str) -> None:
    console = console_for(sys.stdout)
    console.print(Text(cell_text(words, console.encoding), style=style), soft_wrap=not sys.stdout.isatty())


def answering(function: F) -> F:
    """Add ``--json`` and ``--csv`` to a command, and pass it an `Answer`."""

    @click.option("--json", "as_json", is_flag=True, help="Write JSON: values as the readers give them.")
    @click.option("--csv", "as_csv", is_flag=True, help="Write CSV, with a line of heads.")
    @wraps(function)
    def answers(*arguments: Any, as_json: bool, as_csv: bool, **options: Any) -> Any:
        if as_json and as_csv:
            raise click.UsageError("--json and --csv: an answer is written in one way.")
        return function(*arguments, answer=Answer(as_json, as_csv), **options)

    return answers  # type: ignore[return-value]


def write_json(value: object) -> None:
    """Write one value as JSON."""
    sys.stdout.write(_json()(value) + "\n")


def _json_rows(pages: Iterable[Sequence[Row]]) -> None:
    """Write an array with a line for each row, so that a reader can start before the end."""
    encode = _json()
    before = "["
    for rows in pages:
        if rows:
            sys.stdout.write(f"{before}\n" + ",\n".join(map(encode, rows)))
            before = ","
    sys.stdout.write("\n]\n" if before == "," else "[]\n")


def _json() -> Callable[[object], str]:
    """A JSON encoder whose output standard output can encode."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    encode = json.JSONEncoder(ensure_ascii=plain, allow_nan=False, default=str).encode

    def made(value: object) -> str:
        try:
            text = encode(value)
        except ValueError:
            text = encode(_told(value))
        # JSON may hold control characters and direction marks unescaped, which a terminal would interpret.
        return text if text.isascii() and "\x7f" not in text else _OBEYED.sub(_as_json_escape, text)

    return made


def _as_json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _told(value: object) -> object:
    """The same value with ``nan`` and infinities as text, which JSON has no numbers for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {key: _told(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_told(held) for held in value]
    return value


def _fields_of(pages: Pages) -> list[str]:
    """Every field that any row has."""
    found: dict[str, None] = {}
    for rows in pages():
        for row in rows:
            if row.keys() - found.keys():
                found.update(dict.fromkeys(row))
    return list(found)


def _csv_rows(pages: Pages, names: Sequence[str]) -> None:
    """Write CSV; on a terminal, control characters are escaped."""
    encode = _json()
    on_terminal = sys.stdout.isatty()
    _csv_page([list(map(_escaped, names)) if on_terminal else names])
    for rows in pages():
        cells = ([_csv_cell(row.get(name), encode) for name in names] for row in rows)
        _csv_page([_escaped(cell) for cell in row] for row in cells) if on_terminal else _csv_page(cells)


def _escaped(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), cell)


def _csv_page(lines: Iterable[Iterable[object]]) -> None:
    page = StringIO()
    csv.writer(page, lineterminator="\n").writerows(lines)
    sys.stdout.write(page.getvalue())


def _csv_cell(value: object, encode: Callable[[object], str]) -> object:
    return encode(value) if isinstance(value, list | tuple | dict) else value

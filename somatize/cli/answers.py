"""How an answer is written: a table for people, JSON or CSV for programs.

Both have the values as the readers give them. In JSON a number that is none (``nan``, ``inf``, ``-inf``) is that text,
as it is in a fact; in CSV nothing stands for None, and a list or a mapping is written as JSON.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from io import StringIO
from typing import Any, TypeAlias, TypeVar

import click

from .exit_codes import say
from .tables import Column, Row, print_table, shown

F = TypeVar("F", bound=Callable[..., Any])
Pages: TypeAlias = Callable[[], Iterable[Sequence[Row]]]
"""Rows, many at a time; each call goes through them from the start."""

_AROUND = 4
"""Lines of a terminal beside a table's rows: its head, what is said below, the prompt."""
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""What a terminal obeys, or what turns round or hides what stands beside it."""
_AT_ONCE = 1024
"""Rows that are written together."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How the answer of this call is to be written."""

    json: bool = False
    csv: bool = False

    @property
    def is_table(self) -> bool:
        """Whether people read it."""
        return not (self.json or self.csv)

    def room(self) -> int | None:
        """How many rows fit the terminal; None where output is none, or is for a program."""
        if not self.is_table or not sys.stdout.isatty():
            return None
        from somatize.ui.rich_backend import console_for

        return max(5, console_for(sys.stdout).height - _AROUND)

    def rows(self, rows: Sequence[Row], columns: Sequence[Column], fields: Sequence[str], *, none: str = "") -> None:
        """Write rows; `fields` heads a CSV that has none, and `none` is said in place of an empty table."""
        if not self.is_table:
            self.pages(lambda: (rows[at : at + _AT_ONCE] for at in range(0, len(rows), _AT_ONCE)), heads=fields)
        elif rows:
            print_table(rows, columns)
        else:
            say(none or "there is nothing to show")

    def pages(self, pages: Pages, *, fields: Sequence[str] = (), heads: Sequence[str] = ()) -> None:
        """Write rows for a program, as they come.

        Each has just these `fields`; where that is not known, `heads` are those of a CSV without rows, and the rows of
        one are gone through twice, as only the last may have what the last column is for.
        """
        if self.json:
            _json_rows(pages())
        else:
            _csv_rows(pages, fields or _fields_of(pages) or heads)

    def done(self, row: Row, words: str) -> None:
        """What was done: a sentence for people, a row for programs."""
        self.rows([row], (), tuple(row)) if not self.is_table else self.say(words)

    def say(self, words: str) -> None:
        """A line that belongs to a table."""
        if self.is_table:
            _line(words, "")

    def note(self, words: str) -> None:
        """A line below a table, for who reads it on a terminal."""
        if self.is_table and sys.stdout.isatty():
            _line(words, "dim")


def _line(words: str, style: str) -> None:
    from somatize.ui.rich_backend import Text, console_for

    console = console_for(sys.stdout)
    console.print(Text(shown(words, console.encoding), style=style), soft_wrap=not sys.stdout.isatty())


def answering(function: F) -> F:
    """Give a command ``--json`` and ``--csv``, and hand it an `Answer`."""

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
    """An array with a line for each row, so that a long one can be read as it comes."""
    encode = _json()
    before = "["
    for rows in pages:
        if rows:
            sys.stdout.write(f"{before}\n" + ",\n".join(map(encode, rows)))
            before = ","
    sys.stdout.write("\n]\n" if before == "," else "[]\n")


def _json() -> Callable[[object], str]:
    """What makes JSON of a value, in letters that standard output can encode."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    encode = json.JSONEncoder(ensure_ascii=plain, allow_nan=False, default=str).encode

    def made(value: object) -> str:
        try:
            text = encode(value)
        except ValueError:
            text = encode(_told(value))
        # What JSON may hold as it is, but a terminal obeys or shows turned round: written as the escape it also has.
        return text if text.isascii() and "\x7f" not in text else _OBEYED.sub(_as_json_escape, text)

    return made


def _as_json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _told(value: object) -> object:
    """The same value, with the text of each number that JSON has none for."""
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
    """Write CSV: in a pipe each text as it is, on a terminal an escape for what that would obey."""
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

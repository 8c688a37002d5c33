"""Tables as CSV, which needs no other library."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from somatize.figures.theme import counted
from somatize.record.asked import Place

from .exported import Exported
from .files import checked, whole
from .table import Column, Table
from .tables import Asked, read
from .text_columns import Kind

_QUOTED = re.compile(r'[",\r\n]|^$|^\s|\s$')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_csv(
    store: Place,
    run: str | None,
    path: str | os.PathLike[str],
    of: str = "forwards",
    *,
    last: int | None = None,
    since: int | None = None,
) -> Exported:
    """Write a table of a run as CSV: `of` is forwards, facts, nodes, logs, tasks or throughput, or runs of a store.

    UTF-8 with a line of names, as RFC 4180 has it but for lines that end with a newline alone. Said values are the
    very texts that were said, also ``nan`` and 9007199254740993; durations are microseconds, instants ISO 8601 in
    UTC, lists JSON. What is absent is nothing between commas, an empty text is ``""``. Reads as much as the reader of
    that name does, facts twice, with a block of them in memory; the file is whole or not there.

    Raises `ExportError`, `UnknownRun` and `WhichRun`, and leaves what was at `path`.
    """
    checked(path)
    asked = Asked(store, run, of, last, since)
    (rows, empty), left_out = read(asked, lambda table: whole(path, lambda beside: _write(table, beside)))
    if empty:
        texts = counted(empty, "empty text")
        left_out += (f'{texts} written as "", which some readers (Python\'s csv, pandas) take for absent',)
    return Exported(Path(path), {of: rows}, left_out)


def _write(table: Table, path: Path) -> tuple[int, int]:
    """Write it, and say how many rows there are and how many texts in them are empty."""
    columns = [column for column in table.columns if not column.words]
    rows = empty = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(_quoted(column.name) for column in columns) + "\n")
        for some in table.raw():
            written = [_cells(column, some[column.place]) for column in columns]
            file.writelines(",".join(cells) + "\n" for cells in zip(*written, strict=True))
            rows += len(some[0])
            empty += sum(column.count('""') for column in written)
    return rows, empty


def _cells(column: Column, values: Sequence[Any]) -> list[str]:
    if column.kind in _SHOWN and not column.said:
        show = _SHOWN[column.kind]
        return ["" if value is None else show(value) for value in values]
    if column.kind is Kind.NAME:
        known = {name: "" if name is None else _quoted(name) for name in set(values)}
        return [known[name] for name in values]
    return ["" if one is None else repr(one) if isinstance(one, float) else _quoted(one) for one in values]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _instant(us: int) -> str:
    second, part = divmod(us, 1_000_000)
    return f"{_second(second)}.{part:06}Z"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def _names(names: Iterable[str]) -> str:
    return _quoted(json.dumps(list(names), ensure_ascii=False))


_SHOWN: dict[Kind, Callable[[Any], str]] = {
    Kind.WHOLE: str,
    Kind.NUMBER: repr,
    Kind.TRUTH: str,
    Kind.INSTANT: _instant,
    Kind.NAMES: _names,
}

"""``somatize kept``: the results a store keeps, so that nobody computes them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import words
from .answers import Answer, answering
from .arguments import Reader, RunName, all_option, path_argument
from .stores import reading
from .tables import Column

FIELDS = ("name", "when", "used", "bytes", "meta")


@click.command(cls=Reader, examples=("kept runs/", "kept runs/ --node tokenize", "kept runs/ --by size"))
@path_argument
@click.option("--node", help="Only what is kept of this node.")
@click.option("--run", type=RunName(), help="Only what forwards of this run kept.")
@click.option(
    "--by",
    type=click.Choice(("used", "size", "kept")),
    default="used",
    show_default=True,
    help="In a table: the last used, the largest or the last kept first.",
)
@all_option
@answering
def kept(path: Path, node: str | None, run: str | None, by: str, every: bool, answer: Answer) -> None:
    """The results that a store keeps: of which node, how large, when they were last used.

    Price: the entries are read, the values are not.
    """
    with reading(path) as store:
        rows = [row_of(entry) for entry in store.kept(node=node, run=run)]
    key = {"used": "used", "size": "bytes", "kept": "when"}[by]
    if answer.is_table:
        rows.sort(key=lambda row: row[key], reverse=True)
    room = None if every else answer.room()
    shown = rows if room is None else rows[:room]
    answer.rows(shown, columns(), FIELDS, none=f"{path} keeps nothing{' of that' * bool(node or run)}")
    if rows:
        first = f"the first {len(shown):,} of " if len(shown) < len(rows) else ""
        answer.note(f"{first}{len(rows):,} kept, {words.size(sum(row['bytes'] for row in rows))} in all")


def row_of(entry: Any) -> dict[str, Any]:
    """A kept value as a row."""
    return dict(entry._asdict())


def columns() -> list[Column]:
    """What a table says of kept values."""
    return [
        Column("node", lambda row: str(row["meta"].get("node", "")), 0, right=False, least=10),
        Column("bytes", lambda row: words.size(row["bytes"]), 1),
        Column("used", lambda row: words.ago(row["used"]), 2),
        Column("kept", lambda row: words.clock(row["when"]), 3),
        Column("run", lambda row: str(row["meta"].get("run") or ""), 4, right=False, least=10),
        Column("name", lambda row: row["name"], 5, right=False, least=12),
    ]

"""``somatize facts``, ``nodes`` and ``fleet``: what was told of a forward, and where the time went."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from . import words
from .answers import Answer, answering
from .arguments import Reader, all_option, last_option, path_argument, run_argument, since_option
from .stores import reading, run_named
from .tables import Column, Row

_OWN_COLUMN = frozenset({"fact", "node", "began_us", "took_us", "host"})
_NODE_FIELDS = ("node", "ran", "recalled", "failed", "took_us", "hosts", "devices", "mean_us")
_HOST_FIELDS = ("host", "slices", "trip", "ran", "waiting", "failures", "workers", "busy", "memory", "cores")
_FROM_THE_END = re.compile(r"-\d+")
_MARK = "\0"


class _Facts(Reader):
    """A command to which a negative number is a number, not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        before = ["", *args]
        marked = [
            f"{_MARK}{word}" if _FROM_THE_END.fullmatch(word) and word_before not in ("--last", "--since") else word
            for word_before, word in zip(before, args, strict=False)
        ]
        return super().parse_args(ctx, marked)


class _Number(click.ParamType):  # type: ignore[type-arg]
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(str(value).removeprefix(_MARK))
        except ValueError:
            self.fail(f"{value!r} is no forward's number; the first is 0, the last -1", param, ctx)


@click.command(
    cls=_Facts,
    examples=(
        "facts runs/ tuesday",
        "facts runs/ tuesday 12",
        "facts runs/ tuesday -2",
        "facts runs/ tuesday --last 5",
    ),
)
@path_argument
@run_argument
@click.argument("forward", metavar="[N]", type=_Number(), default=-1)
@last_option("forwards: their facts, one after the other")
@since_option
@all_option
@answering
def facts(
    path: Path, run: str | None, forward: int, last: int | None, since: int | None, every: bool, answer: Answer
) -> None:
    """All that was told of forward N of a run, in order.

    N counts from 0, and from the end as -1, -2; without it, the last forward is shown.

    Price: one record is opened, well under a millisecond; with --last or --since, each of those forwards' records.
    """
    from somatize import record
    from somatize.record.paged import Pages

    with reading(path) as store:
        name = run_named(store, run)
        if not answer.is_table and (last is not None or since is not None):
            answer.pages(Pages(store, name, last, since).facts, heads=("fact",))
            return
        told = record.facts(store, name, forward, last=last, since=since)
    room = None if every else answer.room()
    shown = told if room is None else told[-room:]
    columns = [
        Column("fact", lambda row: row["fact"], 0, right=False),
        Column("node", lambda row: row.get("node", ""), 2, right=False, least=10),
        Column("began", lambda row: _span(row, "began_us"), 5),
        Column("took", lambda row: _span(row, "took_us"), 3),
        Column("host", lambda row: row.get("host", ""), 4, right=False, least=6),
        Column("says", _says, 1, right=False, least=16, folded=True),
    ]
    answer.rows(shown, columns, ("fact",), none=f"run {name!r}: nothing was told")
    if len(shown) < len(told):
        answer.note(f"the last {len(shown):,} of {len(told):,} facts; more: --all")


def _span(row: Row, field: str) -> str:
    said = row.get(field, "")
    return words.took(int(said)) if said.isascii() and said.isdigit() else said


def _says(row: Row) -> str:
    """What a fact has beyond the columns; of most one thing, which then needs no name."""
    rest = {field: said for field, said in row.items() if field not in _OWN_COLUMN}
    if set(rest) <= {"value"} or set(rest) <= {"why"}:
        return "".join(rest.values())
    return " ".join(f"{field}={said}" for field, said in rest.items())


@click.command(cls=Reader, examples=("nodes runs/ tuesday", "nodes runs/ tuesday --last 100", "nodes runs/ --json"))
@path_argument
@run_argument
@last_option("forwards")
@all_option
@answering
def nodes(path: Path, run: str | None, last: int | None, every: bool, answer: Answer) -> None:
    """Where the time of a run went, by node, the one that took longest first.

    Price: every fact of the run is read, some ten seconds for a million forwards; --last bounds it.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        rows = record.nodes(store, name, last)
    room = None if every else answer.room()
    shown = rows if room is None else rows[:room]
    total = sum(row["took_us"] for row in rows)
    columns = [
        Column("node", lambda row: row["node"], 0, right=False, least=12),
        Column("took", lambda row: words.took(row["took_us"]), 1),
        Column("share", lambda row: words.share(row["took_us"] / total) if total else "", 2),
        Column("mean", lambda row: words.took(row["mean_us"]), 3),
        Column("ran", lambda row: words.count(row["ran"]), 5),
        Column("recalled", lambda row: words.count(row["recalled"]), 6),
        Column("failed", lambda row: words.count(row["failed"]), 4, style="red"),
        Column("hosts", lambda row: words.listed(row["hosts"]), 7, right=False, least=6),
        Column("devices", lambda row: words.listed(row["devices"]), 8, right=False, least=6),
    ]
    answer.rows(shown, columns, _NODE_FIELDS, none=f"run {name!r}: no node ran yet")
    if len(shown) < len(rows):
        answer.note(f"the first {len(shown):,} of {len(rows):,} nodes; more: --all")


@click.command(cls=Reader, examples=("fleet runs/ tuesday", "fleet runs/ tuesday --json"))
@path_argument
@run_argument
@answering
def fleet(path: Path, run: str | None, answer: Answer) -> None:
    """What each host did for a run: slices that went there, how long they were away, how long nodes ran of it.

    Price: every fact of the run is read.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        rows = record.fleet(store, name)
    columns = [
        Column("host", lambda row: row["host"], 0, right=False, least=8),
        Column("slices", lambda row: words.count(row["slices"]), 4),
        Column("away", lambda row: words.took(row["trip"]) if row["slices"] else "", 2),
        Column("ran", lambda row: words.took(row["ran"]), 1),
        Column("waiting", lambda row: words.took(row["waiting"]) if row["slices"] else "", 3),
        Column("failed", lambda row: words.count(row["failures"]), 5, style="red"),
        Column("workers", lambda row: words.count(row["workers"]), 7),
        Column("busy", _busy, 6),
        Column("memory", lambda row: "" if row["memory"] is None else words.share(row["memory"]), 8),
    ]
    answer.rows(rows, columns, _HOST_FIELDS)


def _busy(row: Row) -> str:
    return "" if row["busy"] is None else f"{row['busy']:.3g} of {row['cores']}"

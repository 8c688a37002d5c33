"""``somatize facts``, ``nodes``, ``fleet``, ``logs``, ``tasks`` and ``throughput``: tables of the facts of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from somatize.facts import whole_number
from somatize.utils.units import count, scaled

from . import answers
from .answers import Answer, Row, TextColumn, answering
from .arguments import (
    ReadingCommand,
    all_option,
    last_option,
    path_argument,
    reading,
    run_argument,
    run_named,
    since_option,
)

_OWN_COLUMN = frozenset({"fact", "node", "began_us", "took_us", "host"})
_NODE_FIELDS = ("node", "ran", "recalled", "failed", "took_us", "hosts", "devices", "mean_us")
_HOST_FIELDS = ("host", "slices", "trip", "ran", "waiting", "failures", "workers", "busy", "memory", "cores")
_FROM_THE_END = re.compile(r"-\d+")
_MARK = "\0"


class _Facts(ReadingCommand):
    """A command that reads a negative number as an argument, not as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Mark negative numbers before click parses the command line."""
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
    """The facts of forward N of a run, in order.

    N counts from 0, and from the end as -1, -2; without it, the last forward is shown.

    Price: one record is opened, well under a millisecond; with --last or --since, each of those forwards' records.
    """
    from somatize import record
    from somatize.record.forward_reader import Pages

    with reading(path) as store:
        name = run_named(store, run)
        if not answer.is_table and (last is not None or since is not None):
            answer.pages(Pages(store, name, last, since).facts, heads=("fact",))
            return
        told = record.facts(store, name, forward, last=last, since=since)
    columns = [
        TextColumn("fact", lambda row: row["fact"], 0, right=False),
        TextColumn("node", lambda row: row.get("node", ""), 2, right=False, least=10),
        TextColumn("began", lambda row: _span(row, "began_us"), 5),
        TextColumn("took", lambda row: _span(row, "took_us"), 3),
        TextColumn("host", lambda row: row.get("host", ""), 4, right=False, least=6),
        TextColumn("says", _says, 1, right=False, least=16, folded=True),
    ]
    none = f"run {name!r}: nothing was told"
    answer.some(told, columns, ("fact",), of="facts", none=none, every=every, more="--all")


def _span(row: Row, field: str) -> str:
    said = row.get(field, "")
    known = whole_number(said)
    return said if known is None else answers.took(known)


def _says(row: Row) -> str:
    """The fields of a fact that have no column of their own; a single one without its name."""
    rest = {field: said for field, said in row.items() if field not in _OWN_COLUMN}
    if set(rest) <= {"value"} or set(rest) <= {"why"}:
        return "".join(rest.values())
    return " ".join(f"{field}={said}" for field, said in rest.items())


@click.command(
    cls=ReadingCommand, examples=("nodes runs/ tuesday", "nodes runs/ tuesday --last 100", "nodes runs/ --json")
)
@path_argument
@run_argument
@last_option("forwards")
@all_option
@answering
def nodes(path: Path, run: str | None, last: int | None, every: bool, answer: Answer) -> None:
    """The time that each node of a run took, the longest first.

    Price: every fact of the run is read, some ten seconds for a million forwards; --last bounds it.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        rows = record.nodes(store, name, last)
    total = sum(row["took_us"] for row in rows)
    columns = [
        TextColumn("node", lambda row: row["node"], 0, right=False, least=12),
        TextColumn("took", lambda row: answers.took(row["took_us"]), 1),
        TextColumn("share", lambda row: answers.share(row["took_us"] / total) if total else "", 2),
        TextColumn("mean", lambda row: answers.took(row["mean_us"]), 3),
        TextColumn("ran", lambda row: answers.count(row["ran"]), 5),
        TextColumn("recalled", lambda row: answers.count(row["recalled"]), 6),
        TextColumn("failed", lambda row: answers.count(row["failed"]), 4, style="red"),
        TextColumn("hosts", lambda row: answers.listed(row["hosts"]), 7, right=False, least=6),
        TextColumn("devices", lambda row: answers.listed(row["devices"]), 8, right=False, least=6),
    ]
    none = f"run {name!r}: no node ran yet"
    answer.some(rows, columns, _NODE_FIELDS, of="nodes", none=none, every=every, first=True, more="--all")


@click.command(cls=ReadingCommand, examples=("fleet runs/ tuesday", "fleet runs/ tuesday --json"))
@path_argument
@run_argument
@answering
def fleet(path: Path, run: str | None, answer: Answer) -> None:
    """The work of each host for a run: slices sent there, their time from sending to return, and the time nodes ran.

    Price: every fact of the run is read.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        rows = record.fleet(store, name)
    columns = [
        TextColumn("host", lambda row: row["host"], 0, right=False, least=8),
        TextColumn("slices", lambda row: answers.count(row["slices"]), 4),
        TextColumn("away", lambda row: answers.took(row["trip"]) if row["slices"] else "", 2),
        TextColumn("ran", lambda row: answers.took(row["ran"]), 1),
        TextColumn("waiting", lambda row: answers.took(row["waiting"]) if row["slices"] else "", 3),
        TextColumn("failed", lambda row: answers.count(row["failures"]), 5, style="red"),
        TextColumn("workers", lambda row: answers.count(row["workers"]), 7),
        TextColumn("busy", _busy, 6),
        TextColumn("memory", lambda row: "" if row["memory"] is None else answers.share(row["memory"]), 8),
    ]
    answer.rows(rows, columns, _HOST_FIELDS)


def _busy(row: Row) -> str:
    return "" if row["busy"] is None else f"{row['busy']:.3g} of {row['cores']}"


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LOG_FIELDS = ("forward", "level", "logger", "message", "task", "node", "host")
_STATES = ("open", "finished", "failed", "lost")
_TASK_FIELDS = (
    "forward", "name", "state", "took_us", "done", "total", "parent", "node", "host", "why", "mark",
)  # fmt: skip
_STREAM_FIELDS = (
    "forward", "stream", "samples", "batches", "samples_per_s", "batches_per_s", "flops_per_s", "waiting",
    "flops_exact",
)  # fmt: skip


def _number(row: Row) -> str:
    return "" if row["forward"] is None else str(row["forward"])


@click.command(cls=ReadingCommand, examples=("logs runs/ tuesday", "logs runs/ tuesday --level warning --last 20"))
@path_argument
@run_argument
@click.option("--level", type=click.Choice(_LEVELS, case_sensitive=False), help="Only records of this level and above.")
@last_option("records")
@all_option
@answering
def logs(path: Path, run: str | None, level: str | None, last: int | None, every: bool, answer: Answer) -> None:
    """The log records of a run, those of its workers too.

    They are there where a Status took them: Status(watching=recorder, loggers=["train"]).

    Price: every fact of the run is read.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        rows: list[Row] = [*record.logs(store, name, level and level.upper())]
    columns = [
        TextColumn("forward", _number, 3),
        TextColumn("level", lambda row: row["level"] or "", 0, right=False),
        TextColumn("logger", lambda row: row["logger"] or "", 4, right=False, least=8),
        TextColumn("task", lambda row: row["task"] or "", 5, right=False, least=8),
        TextColumn("node", lambda row: row["node"] or "", 2, right=False, least=8),
        TextColumn("host", lambda row: row["host"] or "", 3, right=False, least=6),
        TextColumn("message", lambda row: row["message"] or "", 1, right=False, least=20, folded=True),
    ]
    none = f"run {name!r}: no log record{' of that level' * bool(level)}"
    answer.some(rows, columns, _LOG_FIELDS, of="records", none=none, every=every, last=last)


@click.command(cls=ReadingCommand, examples=("tasks runs/ tuesday", "tasks runs/ tuesday --state failed --state lost"))
@path_argument
@run_argument
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only those in this state.")
@last_option("tasks")
@all_option
@answering
def tasks(path: Path, run: str | None, states: tuple[str, ...], last: int | None, every: bool, answer: Answer) -> None:
    """The tasks of a run: how far each came, how it ended, and which were lost with their process.

    Price: every fact of the run is read.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        rows: list[Row] = [row for row in record.tasks(store, name) if not states or row["state"] in states]
    columns = [
        TextColumn("task", lambda row: row["name"] or "", 0, right=False, least=12),
        TextColumn("state", lambda row: row["state"] or "", 1, right=False),
        TextColumn("done", _done, 3),
        TextColumn("took", lambda row: answers.took(row["took_us"]), 4),
        TextColumn("forward", _number, 6),
        TextColumn("node", lambda row: row["node"] or "", 7, right=False, least=8),
        TextColumn("host", lambda row: row["host"] or "", 5, right=False, least=6),
        TextColumn("why", lambda row: row["why"] or row["mark"] or "", 2, right=False, least=20, folded=True),
    ]
    none = f"run {name!r}: no {'such ' * bool(states)}task"
    answer.some(rows, columns, _TASK_FIELDS, of="tasks", none=none, every=every, last=last)


def _done(row: Row) -> str:
    if row["total"] is None:
        return count(row["done"]) if row["done"] else ""
    return f"{count(row['done'] or 0)}/{count(row['total'])}"


@click.command(
    cls=ReadingCommand, examples=("throughput runs/ tuesday", "throughput runs/ tuesday --stream train --csv")
)
@path_argument
@run_argument
@click.option("--stream", help="Only this stream.")
@last_option("rows")
@all_option
@answering
def throughput(path: Path, run: str | None, stream: str | None, last: int | None, every: bool, answer: Answer) -> None:
    """The throughput of the streams of a run: samples and operations a second, and the share of waiting for data.

    Price: every fact of the run is read.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        rows: list[Row] = [*record.throughput(store, name, stream)]
    columns = [
        TextColumn("stream", lambda row: row["stream"] or "", 0, right=False, least=8),
        TextColumn("forward", _number, 6),
        TextColumn("batches", lambda row: answers.count(row["batches"]), 4),
        TextColumn("samples", lambda row: answers.count(row["samples"]), 3),
        TextColumn("samples/s", lambda row: _scaled(row["samples_per_s"]), 1),
        TextColumn("batches/s", lambda row: _scaled(row["batches_per_s"]), 5),
        TextColumn(
            "FLOP/s",
            lambda row: ("" if row["flops_exact"] else "~ ") * bool(row["flops_per_s"]) + _scaled(row["flops_per_s"]),
            2,
        ),
        TextColumn("waiting", lambda row: "" if row["waiting"] is None else answers.share(row["waiting"]), 2),
    ]
    none = f"run {name!r}: no stream"
    answer.some(rows, columns, _STREAM_FIELDS, of="rows", none=none, every=every, last=last)


def _scaled(number: float | None) -> str:
    return "" if number is None else scaled(number)

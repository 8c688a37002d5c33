"""``somatize logs``, ``tasks`` and ``throughput``: what a Status said, while a run was recorded."""

from __future__ import annotations

from pathlib import Path

import click

from somatize.utils.units import count, scaled

from . import words
from .answers import Answer, answering
from .arguments import Reader, all_option, last_option, path_argument, run_argument
from .stores import reading, run_named
from .tables import Column, Row

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


def _last_of(rows: list[Row], last: int | None, every: bool, answer: Answer) -> list[Row]:
    most = last if last is not None else None if every else answer.room()
    return rows if most is None else rows[len(rows) - min(most, len(rows)) :]


def _note(answer: Answer, shown: int, all_: int, what: str) -> None:
    if shown < all_:
        answer.note(f"the last {shown:,} of {all_:,} {what}; more: --last N, --all")


def _number(row: Row) -> str:
    return "" if row["forward"] is None else str(row["forward"])


@click.command(cls=Reader, examples=("logs runs/ tuesday", "logs runs/ tuesday --level warning --last 20"))
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
    shown = _last_of(rows, last, every, answer)
    columns = [
        Column("forward", _number, 3),
        Column("level", lambda row: row["level"] or "", 0, right=False),
        Column("logger", lambda row: row["logger"] or "", 4, right=False, least=8),
        Column("task", lambda row: row["task"] or "", 5, right=False, least=8),
        Column("node", lambda row: row["node"] or "", 2, right=False, least=8),
        Column("host", lambda row: row["host"] or "", 3, right=False, least=6),
        Column("message", lambda row: row["message"] or "", 1, right=False, least=20, folded=True),
    ]
    answer.rows(shown, columns, _LOG_FIELDS, none=f"run {name!r}: no log record{' of that level' * bool(level)}")
    _note(answer, len(shown), len(rows), "records")


@click.command(cls=Reader, examples=("tasks runs/ tuesday", "tasks runs/ tuesday --state failed --state lost"))
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
    shown = _last_of(rows, last, every, answer)
    columns = [
        Column("task", lambda row: row["name"] or "", 0, right=False, least=12),
        Column("state", lambda row: row["state"] or "", 1, right=False),
        Column("done", _done, 3),
        Column("took", lambda row: words.took(row["took_us"]), 4),
        Column("forward", _number, 6),
        Column("node", lambda row: row["node"] or "", 7, right=False, least=8),
        Column("host", lambda row: row["host"] or "", 5, right=False, least=6),
        Column("why", lambda row: row["why"] or row["mark"] or "", 2, right=False, least=20, folded=True),
    ]
    answer.rows(
        shown, columns, _TASK_FIELDS, none=f"run {name!r}: no such task" if states else f"run {name!r}: no task"
    )
    _note(answer, len(shown), len(rows), "tasks")


def _done(row: Row) -> str:
    if row["total"] is None:
        return count(row["done"]) if row["done"] else ""
    return f"{count(row['done'] or 0)}/{count(row['total'])}"


@click.command(cls=Reader, examples=("throughput runs/ tuesday", "throughput runs/ tuesday --stream train --csv"))
@path_argument
@run_argument
@click.option("--stream", help="Only this stream.")
@last_option("rows")
@all_option
@answering
def throughput(path: Path, run: str | None, stream: str | None, last: int | None, every: bool, answer: Answer) -> None:
    """How the streams of a run went: samples and operations a second, and how long was waited for data.

    Price: every fact of the run is read.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        rows: list[Row] = [*record.throughput(store, name, stream)]
    shown = _last_of(rows, last, every, answer)
    columns = [
        Column("stream", lambda row: row["stream"] or "", 0, right=False, least=8),
        Column("forward", _number, 6),
        Column("batches", lambda row: words.count(row["batches"]), 4),
        Column("samples", lambda row: words.count(row["samples"]), 3),
        Column("samples/s", lambda row: _scaled(row["samples_per_s"]), 1),
        Column("batches/s", lambda row: _scaled(row["batches_per_s"]), 5),
        Column(
            "FLOP/s",
            lambda row: ("" if row["flops_exact"] else "~ ") * bool(row["flops_per_s"]) + _scaled(row["flops_per_s"]),
            2,
        ),
        Column("waiting", lambda row: "" if row["waiting"] is None else words.share(row["waiting"]), 2),
    ]
    answer.rows(shown, columns, _STREAM_FIELDS, none=f"run {name!r}: no stream")
    _note(answer, len(shown), len(rows), "rows")


def _scaled(number: float | None) -> str:
    return "" if number is None else scaled(number)

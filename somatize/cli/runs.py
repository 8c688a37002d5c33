"""``somatize runs`` and ``somatize forwards``: what was recorded, counted and listed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import words
from .answers import Answer, answering
from .arguments import INSTANT, Reader, all_option, last_option, path_argument, run_argument, since_option
from .stores import reading, run_named
from .tables import Column, Row

if TYPE_CHECKING:
    from somatize.record.paged import Pages

_RUN_FIELDS = ("run", "forwards", "broke", "interrupted", "lost", "took_us", "first", "last")
_FORWARD_FIELDS = ("forward", "state", "nodes", "took_us", "when")
_STATES = ("ok", "broke", "interrupted", "open", "lost")
_TROUBLE = ("broke", "interrupted", "lost")
_NAME = 38
"""Columns that a run's name has before anything but counts stands beside it: it is there to be typed."""

_MOST_REASONS = 200
"""Forwards that are opened to say why they broke; each is a fetch."""


@click.command(cls=Reader, examples=("runs runs/", "runs runs/ --since 2h", "runs runs/ --json | jq '.[].run'"))
@path_argument
@last_option("runs")
@click.option("--since", type=INSTANT, help="Runs written to since then: 2h, 30min, 3d ago, or 2026-01-31 14:00.")
@all_option
@answering
def runs(path: Path, last: int | None, since: float | None, every: bool, answer: Answer) -> None:
    """The runs of a store, in the order they were begun: how many forwards, how they ended, how long they took.

    Price: totals are read, no forward is; a thousand runs take some 10 ms.
    """
    from somatize import record

    with reading(path) as store:
        rows = record.runs(store, last=last, since=since)
        being = recorded_now(store)
    room = None if every or last is not None else answer.room()
    shown = rows if room is None else rows[-room:]
    columns = [
        Column("run", lambda row: row["run"], 0, right=False, least=_NAME),
        Column("", lambda row: "recording" if row["run"] in being else "", 3, right=False),
        Column("forwards", lambda row: f"{row['forwards']:,}", 1),
        Column("not ok", _trouble, 2, right=False, style="red"),
        Column("took", lambda row: words.took(row["took_us"]), 5),
        Column("began", lambda row: words.clock(row["first"]), 6),
        Column("last", lambda row: words.ago(row["last"]), 4),
    ]
    answer.rows(shown, columns, _RUN_FIELDS, none=f"{path} holds no run yet" if since is None else "no run since then")
    if rows:
        answer.note(_of(len(shown), len(rows), "run"))


def recorded_now(store: Any) -> set[str]:
    """The names of the runs that a living recorder has open."""
    from somatize.store.view import View, look

    def of(view: View) -> set[str]:
        being = {tail.run for tail in view.tails if view.is_alive(tail.writer)}
        return {info.name for run, info in view.runs() if run in being} if being else set()

    return look(store.opened, of)


def _trouble(row: Row) -> str:
    return ", ".join(f"{row[state]:,} {state}" for state in _TROUBLE if row[state])


def _of(shown: int, all_: int, what: str) -> str:
    if shown == all_:
        return f"{all_:,} {what}{'s' * (all_ != 1)}"
    return f"the last {shown:,} of {all_:,} {what}s; more: --last N, --all"


@click.command(
    cls=Reader,
    examples=(
        "forwards runs/ tuesday",
        "forwards runs/ tuesday --state broke --state lost",
        "forwards runs/ tuesday --csv > tuesday.csv",
    ),
)
@path_argument
@run_argument
@last_option("forwards")
@since_option
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only those that ended so.")
@all_option
@answering
def forwards(
    path: Path,
    run: str | None,
    last: int | None,
    since: int | None,
    states: tuple[str, ...],
    every: bool,
    answer: Answer,
) -> None:
    """The forwards of a run by number: state, nodes, time, and every field that was summarised.

    On a terminal the last ones that fit it, and of those that broke or never ended also why, or where.

    Price: a scan of columns, a few seconds for a million forwards; less with --last or --since.
    """
    from somatize import record
    from somatize.record.paged import Pages

    room = None if every or last is not None or since is not None else answer.room()
    with reading(path) as store:
        name = run_named(store, run)
        if not answer.is_table:
            _write(Pages(store, name, last, since), states, answer)
            return
        rows = record.forwards(store, name, last=room if room is not None and not states else last, since=since)
        found = [row for row in rows if not states or row["state"] in states]
        shown = found if room is None else found[-room:]
        reasons = _reasons(store, name, shown)
        total = len(found) if states else _total(store, name) if room is not None else len(rows)
    answer.rows(shown, _forward_columns(rows, reasons), _FORWARD_FIELDS, none=f"run {name!r}: no such forward")
    if shown:
        answer.note(_of(len(shown), total, "forward"))


def _write(pages: Pages, states: Sequence[str], answer: Answer) -> None:
    """The rows for a program, as they are read."""
    wanted = states or _STATES
    answer.pages(
        lambda: ([row for row in rows if row["state"] in wanted] for rows in pages.rows()), fields=pages.fields
    )


def _total(store: Any, name: str) -> int:
    from somatize import record

    return next((int(row["forwards"]) for row in record.runs(store) if row["run"] == name), 0)


def _forward_columns(rows: list[dict[str, Any]], reasons: dict[int, str]) -> list[Column]:
    fields = [field for field in (rows[0] if rows else ()) if field not in _FORWARD_FIELDS]
    return [
        Column("forward", lambda row: str(row["forward"]), 0),
        Column("state", lambda row: row["state"], 1, right=False),
        Column("nodes", lambda row: str(row["nodes"]), 6),
        Column("took", lambda row: words.took(row["took_us"]), 2),
        *(
            Column(field.removesuffix(".value"), lambda row, field=field: words.number(row[field]), 4)  # type: ignore[misc]
            for field in fields
        ),
        Column("when", lambda row: words.clock(row["when"]), 5),
        Column(
            "why", lambda row: reasons.get(row["forward"], ""), 3, right=False, least=40, sentence=True, style="dim"
        ),
    ]


def _reasons(store: Any, name: str, rows: list[dict[str, Any]]) -> dict[int, str]:
    """Of forwards that broke, what was raised; of those that never ended, where they are or were."""
    from somatize import record

    reasons: dict[int, str] = {}
    for row in [row for row in rows if row["state"] in ("broke", "interrupted")][-_MOST_REASONS:]:
        told = record.facts(store, name, row["forward"])
        reasons[row["forward"]] = next((fact.get("why", "") for fact in told if fact["fact"] == "broke"), "")
    if any(row["state"] in ("open", "lost") for row in rows):
        for row in record.unfinished(store, name):
            if row["inside"]:
                reasons[row["forward"]] = f"in {', '.join(row['inside'])}"
    return reasons

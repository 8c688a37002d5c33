"""``somatize curve``: a said number over the forwards of a run."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from somatize.errors import nearest

from . import words
from .answers import Answer, answering
from .arguments import Reader, all_option, last_option, path_argument, run_argument, since_option
from .exit_codes import ABSENT, Refused
from .stores import reading, run_named
from .tables import Column, Row, shown

_HIGHEST = 16
"""Lines of a plot."""
_SAID = ("took_us", "nodes")

_AT_ONCE = 4096
"""Points of which rows are made together."""

Points = list[tuple[int, float]]


@click.command(
    cls=Reader,
    examples=(
        "curve runs/ tuesday",
        "curve runs/ tuesday --of val.accuracy --last 1000",
        "curve runs/ tuesday --of ran.took_us --csv > took.csv",
    ),
)
@path_argument
@run_argument
@click.option(
    "--of",
    default="loss",
    show_default=True,
    metavar="FACT",
    help="Which number: loss means its loss.value, ran.took_us another field of a fact; took_us and nodes are the"
    " forward's own.",
)
@last_option("forwards")
@since_option
@all_option
@answering
def curve(
    path: Path,
    run: str | None,
    of: str,
    last: int | None,
    since: int | None,
    every: bool,
    answer: Answer,
) -> None:
    """A number that was said, over the forwards of a run: drawn on a terminal, else a row per point.

    Price: a scan of columns where the number was summarised (a few seconds for a million points), else a fetch of
    every record; which it was is said below the plot.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        points = record.curve(store, name, of, last=last, since=since)
        if not points:
            _refuse_unsaid(store, name, of)
        costs = record.curve_costs(store, name, of, last=last, since=since) if answer.room() else ""
    if answer.room() is not None and not every and points:
        _draw(points, of, answer)
        answer.note(_price(costs, of))
        return
    if not answer.is_table:
        answer.pages(partial(_rows, points), fields=("forward", "value"))
        return
    columns = [
        Column("forward", lambda row: str(row["forward"]), 0),
        Column(of, lambda row: repr(row["value"]), 1),
    ]
    rows = [row for some in _rows(points) for row in some]
    answer.rows(rows, columns, ("forward", "value"), none=f"run {name!r}: no {of} in that stretch")


def _rows(points: Points) -> Iterator[list[Row]]:
    for at in range(0, len(points), _AT_ONCE):
        yield [{"forward": forward, "value": value} for forward, value in points[at : at + _AT_ONCE]]


def _refuse_unsaid(store: Any, name: str, of: str) -> None:
    """Refuse what no forward of the run ever said, naming what was said: a typo must not read as an idle run."""
    from somatize import record

    rows = record.forwards(store, name, last=1)
    if not rows:
        return
    told = record.facts(store, name)
    known = {field.removesuffix(".value") for field in rows[0] if "." in field}
    known |= {_path(fact["fact"], field) for fact in told for field, said in fact.items() if _is_number(said)}
    if of.removesuffix(".value") in known or of in _SAID:
        return
    said = ", ".join(sorted(known)) or "nothing"
    raise Refused(
        f"run {name!r} has no number said as {of!r}; its last forward has {said}{nearest(of, sorted(known))}", ABSENT
    )


def _path(fact: str, field: str) -> str:
    return fact if field == "value" else f"{fact}.{field}"


def _is_number(said: str) -> bool:
    try:
        float(said)
    except ValueError:
        return False
    return True


def _draw(points: Points, of: str, answer: Answer) -> None:
    from somatize.figures.theme import unit
    from somatize.ui.rich_backend import console_for
    from somatize.ui.text_plot import TextPlot

    finite = [(forward, value) for forward, value in points if math.isfinite(value)]
    if finite:
        low, high, last = min(finite, key=_value), max(finite, key=_value), finite[-1]
        clocked = of.endswith("_us")
        name, size = unit(high[1]) if clocked else ("", 1.0)
        height = min(_HIGHEST, answer.room() or _HIGHEST)
        extents = [(forward, value, value) for forward, value in finite]
        console = console_for(sys.stdout)
        console.print(TextPlot(extents, height, unit=size, suffix=shown(name, console.encoding)))
        told = words.took if clocked else words.number
        answer.say(
            f"last {told(last[1])} at {last[0]:,}, lowest {told(low[1])} at {low[0]:,},"
            f" highest {told(high[1])} at {high[0]:,}"
        )
    if len(finite) < len(points):
        odd = [(forward, value) for forward, value in points if not math.isfinite(value)]
        where = words.listed(f"{value!r} at {forward:,}" for forward, value in odd[:3])
        answer.say(f"not drawn: {where}{f' and {len(odd) - 3:,} more' if len(odd) > 3 else ''}")


def _value(point: tuple[int, float]) -> float:
    return point[1]


def _price(costs: str, of: str) -> str:
    if costs == "scan":
        return "read by one scan of columns; --all lists the points"
    name = of.removesuffix(".value")
    return f"read by a fetch of each record; Recorder(summarising=[{name!r}]) makes it a scan; --all lists the points"

"""``somatize curve``, ``page``, ``sweep``, ``graph``, ``watch`` and ``export``: runs drawn, followed and exported."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from somatize.errors import NoStore, nearest

from . import answers
from .answers import Answer, Row, TextColumn, answering, cell_text
from .arguments import (
    ReadingCommand,
    all_option,
    last_option,
    path_argument,
    reading,
    run_argument,
    run_named,
    since_option,
    store_around,
    what_it_is,
)
from .exit_codes import ABSENT, OF_RUN, Refused, printable, say

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure
    from somatize.record.export import Exported


_HIGHEST = 16
"""Lines of a plot."""
_SAID = ("took_us", "nodes")
_NO_FACTS = (*_SAID, "forward", "time", "elapsed")

_POINTS_AT_ONCE = 4096
"""Points that are turned into rows together."""

Points = list[tuple[Any, float]]

x_option = click.option(
    "--x",
    default="forward",
    show_default=True,
    metavar="X",
    help="Over what: time, elapsed (without the gaps between launches) or a number that was said, such as epoch.",
)


@click.command(
    cls=ReadingCommand,
    examples=(
        "curve runs/ tuesday",
        "curve runs/ tuesday --of val.accuracy --last 1000",
        "curve runs/ tuesday --x epoch",
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
@x_option
@last_option("forwards")
@since_option
@all_option
@answering
def curve(
    path: Path,
    run: str | None,
    of: str,
    x: str,
    last: int | None,
    since: int | None,
    every: bool,
    answer: Answer,
) -> None:
    """A number that was said, over the forwards of a run: drawn on a terminal, else a row per point.

    With --x it is over time, in seconds since 1970 where it is a row, or over another number, interpolated between two
    forwards that said that; points before its first and after its last are left out.

    Price: a scan of columns where the number was summarised (a few seconds for a million points), else a fetch of
    every record; which it was is said below the plot.
    """
    from somatize import record

    with reading(path) as store:
        name = run_named(store, run)
        points = record.curve(store, name, of, last=last, since=since, x=x)
        if not points:
            _refuse_unsaid(store, name, of)
        costs = record.curve_costs(store, name, of, last=last, since=since, x=x) if answer.room() else ""
    if answer.room() is not None and not every and points:
        _draw(points, of, x, answer)
        answer.note(_price(costs, of, x))
        return
    field = x if x == "forward" else "x"
    if not answer.is_table:
        answer.pages(partial(_rows, points, field), fields=(field, "value"))
        return
    columns = [
        TextColumn(x, lambda row: str(row[field]), 0),
        TextColumn(of, lambda row: repr(row["value"]), 1),
    ]
    rows = [row for some in _rows(points, field) for row in some]
    answer.rows(rows, columns, (field, "value"), none=f"run {name!r}: no {of} in that stretch")


def _rows(points: Points, field: str) -> Iterator[list[Row]]:
    for at in range(0, len(points), _POINTS_AT_ONCE):
        yield [{field: x, "value": value} for x, value in points[at : at + _POINTS_AT_ONCE]]


def _refuse_unsaid(store: Any, name: str, of: str) -> None:
    """Raise `Refused` for a number that the run never recorded, and list those it did: it may be a typo."""
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


def _place(x: str) -> Callable[[Any], str]:
    """How a point's x is written."""
    if x == "time":
        return lambda at: f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    if x == "elapsed":
        return lambda at: answers.took(1e6 * at)
    return lambda at: f"{at:,}" if isinstance(at, int) else f"{at:,.6g}"


def _draw(points: Points, of: str, x: str, answer: Answer) -> None:
    from somatize.figures.theme import unit
    from somatize.ui.rich_backend import console_for
    from somatize.ui.text_plot import TextPlot

    place = _place(x)
    finite = [(forward, value) for forward, value in points if math.isfinite(value)]
    if finite:
        low, high, last = min(finite, key=_value), max(finite, key=_value), finite[-1]
        clocked = of.endswith("_us")
        name, size = unit(high[1]) if clocked else ("", 1.0)
        height = min(_HIGHEST, answer.room() or _HIGHEST)
        extents = [(at, value, value) for at, value in sorted(finite, key=_x)]
        console = console_for(sys.stdout)
        console.print(TextPlot(extents, height, unit=size, suffix=cell_text(name, console.encoding), place=place))
        told = answers.took if clocked else answers.number
        answer.say(
            f"last {told(last[1])} at {place(last[0])}, lowest {told(low[1])} at {place(low[0])},"
            f" highest {told(high[1])} at {place(high[0])}"
        )
    if len(finite) < len(points):
        odd = [(forward, value) for forward, value in points if not math.isfinite(value)]
        where = answers.listed(f"{value!r} at {place(at)}" for at, value in odd[:3])
        answer.say(f"not drawn: {where}{f' and {len(odd) - 3:,} more' if len(odd) > 3 else ''}")


def _x(point: tuple[Any, float]) -> Any:
    return point[0]


def _value(point: tuple[Any, float]) -> float:
    return point[1]


def _price(costs: str, of: str, x: str) -> str:
    if costs == "scan":
        return "read by one scan of columns; --all lists the points"
    names = list(dict.fromkeys(name.removesuffix(".value") for name in (of, x) if name not in _NO_FACTS))
    return f"read by a fetch of each record; Recorder(summarising={names}) makes it a scan; --all lists the points"


@click.command(
    cls=ReadingCommand,
    examples=(
        "page runs/ tuesday -o tuesday.html",
        "page runs/ tuesday --of loss --of val.accuracy",
    ),
)
@path_argument
@run_argument
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("page.html"),
    show_default=True,
    metavar="FILE",
    help="Where the page is written.",
)
@click.option("--of", multiple=True, metavar="FACT", help="What its curves are of, as for curve. May be repeated.")
@x_option
@click.option("--force", is_flag=True, help="Write it though FILE is there and is no page of somatize.")
def page(path: Path, run: str | None, out: Path, of: tuple[str, ...], x: str, *, force: bool) -> None:
    """A run as one page that opens in any browser.

    The page has the figures, the graph, the tables and what the run says of itself. It needs no network, and follows
    the reader's choice of light or dark. A page that is there is replaced, whole or not at all; another file is not.

    Needs plotly: pip install 'somatize[viz]'. Price: every fact of the run is read, about a second for 100,000
    forwards.
    """
    from somatize.errors import NotReplaced
    from somatize.figures import plotly_backend
    from somatize.record import page as write

    plotly_backend.require()
    with reading(path) as store:
        try:
            made = write(store, run_named(store, run), out, of=of or None, x=x, replace=force)
        except NotReplaced as error:
            raise Refused(str(error).replace("say replace=True", "give --force")) from error
    click.echo(printable(str(made)))


@click.command(
    cls=ReadingCommand,
    examples=(
        "watch runs/",
        "watch runs/ tuesday --of loss --of val.accuracy",
        "watch runs/ --every 60 --keep-on > progress.log",
    ),
)
@path_argument
@run_argument
@click.option("--of", multiple=True, metavar="NAME", help="What is drawn, as for curve. May be repeated.")
@click.option(
    "--every",
    type=click.FloatRange(0.05, 86_400),
    metavar="SECONDS",
    help="How often it is looked at (0.5), and in lines how often it is said how the run stands (10).",
)
@click.option(
    "--until-end/--keep-on", default=None, help="Whether it ends with the run; if not said, it does in lines only."
)
@click.option("--lines", is_flag=True, help="Write lines though the output is a terminal.")
def watch(
    path: Path, run: str | None, of: tuple[str, ...], every: float | None, until_end: bool | None, *, lines: bool
) -> None:
    """A live view of a run that another process records.

    Shows how many forwards there are and how fast, the loss, where the time goes, hosts, the forward that is open and
    the nodes it is in, open tasks, what broke and why, log records, and whether the process still lives. PATH need not
    be a store yet, nor RUN a run: it waits for them. Without RUN the newest run is shown, and the next when that
    starts.

    On a terminal, q or Ctrl-C quits; it is drawn in ASCII where LANG is not of UTF-8. Where the output is a file or a
    pipe it is written in lines, and ends with the run. Where the run is over, the exit code says how it ended.

    Price: one look at the columns of the run, then only what is new; next to nothing while nothing is written.
    """
    from somatize.record.run_follower import Followed
    from somatize.ui.rich_backend import has_cursor
    from somatize.ui.screen import in_lines, on_screen

    if store_around(path):
        raise NoStore(what_it_is(path))  # nobody makes a store there
    with Followed(path, run, of) as followed:
        try:
            followed.look()  # what can be no store is refused before the screen is taken
        except NoStore as error:
            raise NoStore(what_it_is(path)) from error
        if lines or not has_cursor(sys.stdout):
            in_lines(followed, sys.stdout, every=every or 10.0, until_end=until_end is not False)
        else:
            try:
                click.echo(on_screen(followed, sys.stdout, every=every or 0.5, until_end=bool(until_end)))
            except KeyboardInterrupt:
                return  # the way out of a view, as q is
        end = followed.end
    if end is not None:
        click.get_current_context().exit(OF_RUN.get(end.state, 0))


_MARK = "<!doctype html><!-- a figure of somatize -->"
"""The beginning of a figure as a file."""
out_option = click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    required=True,
    help="Where the figure is written, as HTML with all it needs.",
)
force_option = click.option("--force", is_flag=True, help="Write it though FILE is there and is no figure.")
theme_option = click.option("--theme", type=click.Choice(["light", "dark"]), help="If not said, it fits any page.")


def _write_figure(figure: Figure, out: Path, *, force: bool) -> None:
    """Write a figure as HTML; of files that are there only figures are replaced without `force`."""
    from somatize.figures import plotly_backend
    from somatize.utils.atomic_files import write_atomically

    if out.is_file() and not force:
        with out.open("rb") as file:
            if file.read(len(_MARK)) not in (_MARK.encode(), b""):
                raise Refused(f"{out} is there and is no figure; it was left as it is: give --force")
    html = _MARK + plotly_backend.html(figure, alone=True).removeprefix("<!doctype html>")
    write_atomically(out, lambda beside: beside.write_text(html, encoding="utf-8", errors="backslashreplace"))
    click.echo(printable(str(out)))


@click.command(
    cls=ReadingCommand,
    examples=(
        "sweep runs/ --of val.accuracy --max -o sweep.html",
        "sweep runs/ --of loss --where 'run ~ \"tuesday/*\"' -o sweep.html",
    ),
)
@path_argument
@click.option("--of", default="loss", show_default=True, metavar="NUMBER", help="The number that is compared.")
@click.option("--max", "mode", flag_value="max", help="Its largest value in each run, and the best run bold.")
@click.option("--min", "mode", flag_value="min", help="Its smallest value in each run, and the best run bold.")
@click.option("--where", metavar="CONDITION", help="Only those runs: config.lr < 0.01 and state == finished.")
@theme_option
@out_option
@force_option
def sweep(
    path: Path, of: str, mode: str | None, where: str | None, theme: str | None, out: Path, *, force: bool
) -> None:
    """A number of many runs over the configuration keys that differ, as a figure.

    Lines through the keys above, a small plot per key below. Without --max and --min it is the last value of each run.

    Needs plotly: pip install 'somatize[viz]'. Price: totals are read; a number that was not summarised is read from
    every record.
    """
    from somatize import record

    with reading(path) as store:
        _write_figure(record.sweep(store, of, where=where, mode=mode, theme=theme), out, force=force)


@click.command(cls=ReadingCommand, examples=("graph runs/ tuesday -o graph.html",))
@path_argument
@run_argument
@click.option("--which", type=int, default=-1, help="Of several graphs the first is 0; the last is drawn if not said.")
@theme_option
@out_option
@force_option
def graph(path: Path, run: str | None, which: int, theme: str | None, out: Path, *, force: bool) -> None:
    """The graph of a run as a figure: time, runs, recalls and failures of each node on its box.

    Needs plotly: pip install 'somatize[viz]'. Price: every fact of the run is read.
    """
    from somatize import record

    with reading(path) as store:
        _write_figure(record.graph(store, run_named(store, run), which=which, theme=theme), out, force=force)


_BY_END = {".csv": "csv", ".parquet": "parquet", ".json": "trace", ".json.gz": "trace"}
_TABLES = ("forwards", "facts", "nodes", "logs", "tasks", "throughput", "runs")


_TAKES = {
    "csv": ("last", "of", "since"),
    "parquet": ("last", "of", "since"),
    "trace": ("forward", "last"),
    "tensorboard": ("last", "since", "step"),
    "mlflow": ("last", "since", "step"),
}
"""The options of each format."""


@click.command(
    cls=ReadingCommand,
    examples=(
        "export runs/ tuesday -o tuesday.csv",
        "export runs/ tuesday --of facts -o facts.parquet",
        "export runs/ tuesday --last 20 -o trace.json",
        "export runs/ tuesday --to tensorboard -o logs/",
        "export runs/ tuesday --to mlflow -o http://127.0.0.1:5000",
    ),
)
@path_argument
@run_argument
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to; a directory or an address for some.")
@click.option("--to", "form", type=click.Choice(list(_TAKES)), help="The format, where FILE's ending does not say it.")
@click.option("--of", type=click.Choice(_TABLES), help="csv, parquet: which table; forwards if it is left out.")
@click.option("--forward", type=int, multiple=True, metavar="N", help="trace: this one, -1 the last; may be repeated.")
@last_option("forwards")
@since_option
@click.option("--step", metavar="X", help="tensorboard, mlflow: what a step is, as --x of curve.")
@answering
def export(path: Path, run: str | None, output: str, form: str | None, answer: Answer, **options: Any) -> None:
    """Write a run as a table, as a trace for Perfetto, or to TensorBoard or MLflow.

    What the format cannot hold is said on standard error. FILE is replaced, and only when the new one is whole.

    Price: what the reader of that name reads, in bounded memory; a trace of the last forward, if nothing else is
    asked for.
    """
    from somatize.record import export as exporters

    form = form or _format_of(output)
    given = {option: value for option, value in options.items() if value not in (None, ())}
    for option in given:
        if option not in _TAKES[form]:
            known = ", ".join(f"--{one}" for one in _TAKES[form])
            raise click.UsageError(f"--{option} is not for {form}; it takes {known}")
    write: Callable[..., Exported] = getattr(exporters, f"to_{form}")
    with reading(path) as store:
        name = None if options["of"] == "runs" else run_named(store, run)
        done = write(store, name, output, **given)
    for sentence in done.left_out:
        say(f"left out: {sentence}")
    answer.done({"path": output, **done.wrote, "left_out": list(done.left_out)}, f"{done.words} to {output}")


def _format_of(output: str) -> str:
    found = next((form for end, form in _BY_END.items() if output.lower().endswith(end)), None)
    if found is None:
        known = ", ".join(f"{end} is {form}" for end, form in _BY_END.items())
        raise click.UsageError(f"the ending of {output} says no format ({known}); say --to")
    return found

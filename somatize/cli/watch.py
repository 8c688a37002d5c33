"""`somatize watch`: a live view of a run that is being recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from somatize.errors import NoStore

from .arguments import Reader, path_argument, run_argument
from .stores import store_around, what_it_is


@click.command(
    cls=Reader,
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
    pipe it is written in lines, and ends with the run.

    Price: one look at the columns of the run, then only what is new; next to nothing while nothing is written.
    """
    from somatize.record.run_follower import Followed
    from somatize.ui.following import in_lines, on_screen

    if store_around(path):
        raise NoStore(what_it_is(path))  # nobody makes a store there
    with Followed(path, run, of) as followed:
        try:
            followed.look()  # what can be no store is refused before the screen is taken
        except NoStore as error:
            raise NoStore(what_it_is(path)) from error
        if lines or not _is_terminal():
            in_lines(followed, sys.stdout, every=every or 10.0, until_end=until_end is not False)
            return
        try:
            click.echo(on_screen(followed, sys.stdout, every=every or 0.5, until_end=bool(until_end)))
        except KeyboardInterrupt:
            return  # the way out of a view, as q is


def _is_terminal() -> bool:
    import os

    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")

"""``somatize page``: a run as one page that opens in any browser."""

from __future__ import annotations

from pathlib import Path

import click

from .arguments import Reader, path_argument, run_argument
from .exit_codes import Refused, shown
from .stores import reading, run_named


@click.command(
    cls=Reader,
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
@click.option("--force", is_flag=True, help="Write it though FILE is there and is no page of somatize.")
def page(path: Path, run: str | None, out: Path, of: tuple[str, ...], *, force: bool) -> None:
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
            made = write(store, run_named(store, run), out, of=of or None, replace=force)
        except NotReplaced as error:
            raise Refused(str(error).replace("say replace=True", "give --force")) from error
    click.echo(shown(str(made)))

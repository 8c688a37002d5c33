"""A run as one page: everything there is to see of it in a file that opens in any browser, without a network."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from somatize.errors import ExportError, NotReplaced
from somatize.figures import plotly_backend
from somatize.figures.recorded import recorded
from somatize.store.lines import RunLines
from somatize.store.view import View, look

from . import page_parts as parts
from .asked import Place, lines_of, opened_at
from .column_reader import columns_of
from .columns import BROKE, INTERRUPTED, Columns
from .digest import Digest, digest
from .drawn import Picture, progress_picture
from .figures import Names, several
from .hosts_figure import machines_picture
from .node_turns import OneForward, Total, one_forward
from .one_forward import timeline_picture
from .page_figures import Figures
from .reader import run_row
from .run_info import about_of
from .streams import alike
from .time_spent import spent_picture

MARK = b"<!doctype html><!-- a page of somatize -->"
"""What a page begins with: by it a page may take the place of one, and of nothing else."""
_CURVES, _GRAPHS = 6, 8


def page(
    store: Place,
    run: str | None = None,
    path: str | os.PathLike[str] = "page.html",
    *,
    of: Names | None = None,
    replace: bool = False,
) -> Path:
    """Write a run to `path` as one page: its figures, its graphs, its tables, and what it says of itself.

    The page needs nothing beside it and no network; it follows the reader's choice of light or dark. `of` is what its
    curves are of, as for `progress`; None means what was summarised, or the loss. It is there whole or not at all, and
    takes the place of a page that was there; of another file only with `replace`. Reads every fact of the run once:
    about a second for 100,000 forwards. Gives the path.

    Raises `NotReplaced` for a file that is no such page, `ExportError` for one in no directory, and `UnknownRun`,
    `WhichRun`, `FigureError`, `ExtraMissing`.
    """
    plotly_backend.require()
    target = Path(path)
    _check(target, replace=replace)
    return _written(target, _Page(store, run, None if of is None else several("of", of)).html())


def _check(target: Path, *, replace: bool) -> None:
    """Raise unless the page may be written there."""
    if target.is_dir():
        raise NotReplaced(f"{target} is a directory; name the file that the page is to be")
    if not target.parent.is_dir():
        raise ExportError(f"{target} cannot be written: there is no directory {target.parent}")
    if replace or not target.exists():
        return
    with target.open("rb") as file:
        if file.read(len(MARK)) != MARK and target.stat().st_size:
            raise NotReplaced(f"{target} is there and is no page of somatize; it was left as it is: say replace=True")


def _written(target: Path, html: str) -> Path:
    """The page on the disk, whole: made beside its place and moved there."""
    try:
        handle, making = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".making", dir=target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(html)
        mask = os.umask(0)
        os.umask(mask)
        Path(making).chmod(0o666 & ~mask)
        Path(making).replace(target)
    except BaseException:
        Path(making).unlink(missing_ok=True)
        raise
    return target


class _Page:
    """A page that is being made."""

    def __init__(self, store: Place, run: str | None, of: Sequence[str] | None) -> None:
        self.figures = Figures()
        self.sections: list[tuple[str, str, str]] = []
        """Of each part its anchor, its title and what is in it."""
        with opened_at(store) as opened:
            self.place = opened.path.name
            self.row, self.about, self.digest, names = look(opened, lambda view: _read(view, run))
            self.run: str = self.row["run"]
            self.columns = columns_of(store, self.run, of or names, unsaid=True)
            alike([self.columns])
            self._figures(store)
        self._words()

    def _figures(self, store: Place) -> None:
        add, columns, run = self.figures.add, self.columns, self.run
        progress = add("progress", lambda look: progress_picture([columns], theme=look, title=f"run {run}"))
        self._part("progress", "Progress", _figure(progress))
        total = Total(run, len(columns), int(sum(us for us in columns.took_us if us == us)), self.digest.spent)
        spent = add("spent", lambda look: spent_picture(total, theme=look))
        self._part("time", "Where the time went", _figure(spent))
        if len(columns):
            self._part("forward", "One forward", self._timelines(store))
        graphs = [_figure(name) for name in self._graphs()]
        if graphs:
            self._part("graph", "The graph" if len(graphs) == 1 else "The graphs", "".join(graphs))
        if len(self.digest.hosts) > 1:
            hosts = add("hosts", lambda look: machines_picture(run, self.digest.hosts, theme=look))
            self._part("hosts", "Hosts", _figure(hosts) + parts.hosts_table(self.digest.hosts))

    def _timelines(self, store: Place) -> str:
        """The last forward, the slowest, and the last that broke, one of which is shown."""
        buttons: list[str] = []
        places: list[str] = []
        for number, words in _told_apart(self.columns).items():
            one = one_forward(store, self.run, number)
            name = self.figures.add(f"forward-{number}", partial(_timeline, one))
            first = not places
            checked, hidden = (" checked", "") if first else ("", " hidden")
            buttons.append(
                f'<label><input type="radio" name="forward" value="{name}"{checked}> {words}, {number:,}</label>'
            )
            places.append(f'<div class="figure" data-of="forward" data-figure="{name}"{hidden}></div>')
        return f'<fieldset class="choice" data-for="forward">{"".join(buttons)}</fieldset>{"".join(places)}'

    def _graphs(self) -> list[str]:
        """The graphs that were run, as far as the record describes them."""
        names = []
        for place, described in enumerate(self.about["graphs"][:_GRAPHS]):
            try:
                names.append(self.figures.add(f"graph-{place}", partial(recorded, described)))
            except (KeyError, TypeError, ValueError):
                continue  # of another version's record, or damaged: the rest of the page says what there is
        return names

    def _words(self) -> None:
        found, columns = self.digest, self.columns
        broken = parts.broken_table(columns, found.whys)
        if broken:
            self._part("broken", "What did not end well", broken)
        if found.tasks or found.streams:
            self._part("tasks", "Tasks", parts.streams_table(found) + parts.tasks_table(found))
        if found.logs:
            self._part("logs", "Log records", parts.logs_table(found))
        if found.spent:
            self._part("nodes", "Nodes", parts.nodes_table(found.spent))
        if len(columns):
            self._part("forwards", "The last forwards", parts.forwards_table(columns, found.whys))
        self._part("about", "About", parts.about_part(self.about))

    def _part(self, anchor: str, title: str, inside: str) -> None:
        self.sections.append((anchor, title, inside))

    def html(self) -> str:
        """The whole page."""
        own = files(__package__)
        style, script = ((own / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
        run = parts.text(self.run, 300)
        nav = "".join(f'<a href="#{anchor}">{escape(title)}</a>' for anchor, title, _ in self.sections)
        body = "".join(
            f'<section id="{anchor}"><h2>{escape(title)}</h2>{inside}</section>'
            for anchor, title, inside in self.sections
        )
        made = time.strftime("%Y-%m-%d %H:%M:%S %z")
        return (
            f'{MARK.decode()}\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
            f"<title>run {run}</title><style>{style}</style></head>\n<body><header><h1>{run}</h1>"
            f"<p>a run of the store {parts.text(self.place, 100)}</p>"
            f"{parts.cards(self.row, self.columns, self.about)}<nav>{nav}</nav></header>\n<main>{body}</main>\n"
            "<noscript><p>The figures are drawn by a script in this page, which is switched off here.</p></noscript>"
            f"<footer>made by somatize {escape(_version())}, {made}</footer>\n"
            f'<script type="application/json" id="figures">{self.figures.script()}</script>\n'
            f"<script>{plotly_backend.script()}</script>\n<script>{script}</script></body></html>\n"
        )


def _read(view: View, run: str | None) -> tuple[dict[str, Any], dict[str, Any], Digest, list[str]]:
    """The run's totals, what it says of itself, what its facts say, and what was summarised."""
    lines: RunLines = lines_of(view, run)
    row = run_row(lines)
    row["forwards"] += row["holes"]
    row["lost"] += row["holes"]
    names = [name.removesuffix(".value") for name in lines.summarised_fields()]
    return row, about_of(lines), digest(lines), names[:_CURVES] or ["loss"]


def _told_apart(columns: Columns) -> dict[int, str]:
    """The forwards of which there is a timeline, and what each is."""
    found: dict[int, str] = {columns.forwards[len(columns) - 1]: "the last forward"}
    slowest = max(range(len(columns)), key=lambda row: us if (us := columns.took_us[row]) == us else -1.0)
    found.setdefault(columns.forwards[slowest], "the slowest")
    ended_badly = [row for row, state in enumerate(columns.states) if state in (BROKE, INTERRUPTED)]
    if ended_badly:
        found.setdefault(columns.forwards[ended_badly[-1]], "the last that broke")
    return found


def _timeline(one: OneForward, look: str) -> Picture:
    return timeline_picture(one, theme=look)


def _figure(name: str) -> str:
    return f'<div class="figure" data-figure="{name}"></div>'


def _version() -> str:
    """That of the package, which is loaded: asked of it by name, as it knows of workers and this band does not."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)

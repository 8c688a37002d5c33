"""A run as one HTML page that opens in any browser without a network: its figures, tables and metadata."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from somatize.errors import ExportError, NotReplaced
from somatize.facts import Fact
from somatize.figures import plotly_backend, theme
from somatize.figures.graph_drawing import recorded
from somatize.figures.theme import counted, share, took
from somatize.store import record_format
from somatize.store.record_format import unpack
from somatize.store.run_reader import RunLines, StoreSnapshot, lines_of, look
from somatize.utils.units import scaled

from .column_reader import columns_of
from .figures import Names, several
from .forward_reader import Place, opened_at
from .hosts import HERE, Hosts, machines_picture, processors
from .node_turns import OneForward, Total, one_forward
from .progress_figure import Picture, progress_picture
from .reader import ENDINGS, NodeTally, Spent, run_row, stretches
from .run_columns import BROKE, INTERRUPTED, LOST, OPEN, STATES, Columns, alike
from .run_info import LOG_FIELDS, about_of, stats_of, tasks_of
from .time_figures import spent_picture, timeline_picture

_RARE = ("log", "task", "throughput", "machine", "left", "broke")
_LOGS, _TASKS = 200, 5000


class Digest(NamedTuple):
    """Data of a page collected in one pass: node totals, host rows, tasks, last logs, last throughput.

    `whys` says why forwards broke.
    """

    spent: list[Spent]
    hosts: list[dict[str, Any]]
    tasks: list[dict[str, Any]]
    logs: list[dict[str, Any]]
    said: int
    streams: list[dict[str, Any]]
    whys: dict[int, str]


def digest(lines: RunLines) -> Digest:
    """Reads every fact of a run once."""
    return _Pass().over(lines)


class _Pass:
    def __init__(self) -> None:
        self.tally = NodeTally(apart=_RARE)
        self.hosts = Hosts()
        self.tasks: deque[tuple[int | None, Fact]] = deque(maxlen=_TASKS)
        self.logs: tuple[deque[dict[str, Any]], ...] = (deque(maxlen=_LOGS), deque(maxlen=_LOGS))
        """Those of the run itself, and those of its forwards."""
        self.said = 0
        self.streams: dict[str, Fact] = {}
        self.whys: dict[int, str] = {}

    def over(self, lines: RunLines) -> Digest:
        self._take(None, list(unpack(lines.bodies(record_format.OWN) or [])))
        for stretch in stretches(lines):
            for number, body in self.tally.not_counted(stretch):
                for forward, facts in lines.unpacked(number, [body]):
                    self._take(forward, facts)
        for spent in self.tally.by_node.values():
            for (where, ending), (count, us) in spent.turns.items():
                self.hosts.worked(where.host or HERE, ending, us, count)
        tasks = tasks_of(lines, self.tasks)
        streams = [stats_of(fact) for fact in self.streams.values()]
        logs = [*self.logs[0], *self.logs[1]]
        return Digest(self.tally.spent(), self.hosts.rows(), tasks, logs, self.said, streams, self.whys)

    def _take(self, forward: int | None, facts: Sequence[Fact]) -> None:
        self.hosts.went(facts)
        for fact in facts:
            kind = fact.get("fact", "")
            if kind in _RARE:
                self._take_rare(forward, kind, fact)
            elif kind in ENDINGS:
                self.tally.take([fact])

    def _take_rare(self, forward: int | None, kind: str, fact: Fact) -> None:
        if kind == "log":
            self.said += 1
            self.logs[forward is not None].append(
                {"forward": forward, **{field: fact.get(field) for field in LOG_FIELDS}}
            )
        elif kind == "task":
            self.tasks.append((forward, fact))
        elif kind == "throughput":
            self.streams[fact.get("stream", "")] = fact
        elif kind == "broke" and forward is not None:
            self.whys[forward] = fact.get("why", "")


LOOKS = ("light", "dark")
_BARE = {"paper_bgcolor": "rgba(0,0,0,0)"}


@dataclass
class Figures:
    """Figures by the names they have in a page."""

    held: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, draw: Callable[[str], Picture | tuple[list[dict[str, Any]], dict[str, Any]]]) -> str:
        """Draw one for each look; gives its name."""
        made: dict[str, dict[str, Any]] = {}
        for shade in LOOKS:
            picture = draw(shade)
            data, layout = (picture.data, picture.layout) if isinstance(picture, Picture) else picture
            made[shade] = {"data": data, "layout": {**layout, **_BARE}}
        if made["light"]["data"] == made["dark"]["data"]:
            made = {"data": made["light"].pop("data"), **made}
            made["dark"].pop("data")
        self.held[name] = made
        return name

    def script(self) -> str:
        """All of them as JSON that can stand in a page."""
        try:
            words = json.dumps(self.held, default=list, separators=(",", ":"), allow_nan=False)
        except ValueError:
            words = json.dumps(_finite(self.held), separators=(",", ":"))
        return words.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """The same, with nothing where there is no finite number: JSON has none such."""
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else [_finite(held) for held in value]


_SAID_MOST = 400
_NODES, _TASK_ROWS, _ENDED_BADLY = 200, 200, 50
_BAD = frozenset({"broke", "interrupted", "lost", "failed", "ERROR", "CRITICAL"})


class Cell(NamedTuple):
    """A table cell: its text, and whether it is a number, an error, or long."""

    words: str
    kind: str = ""


def text(words: object, most: int = _SAID_MOST) -> str:
    """Words as a page shows them: these very letters, and not endlessly many."""
    return escape(theme.cut(theme.plain(words), most))


def number(words: object) -> Cell:
    """A cell at whose right the digits stand."""
    return Cell("" if words is None else str(words), "number")


def table(titles: Sequence[str], rows: Iterable[Iterable[Cell | str]]) -> str:
    """Rows with their titles, without columns in which nothing stands; empty without rows."""
    made = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    shown = [place for place in range(len(titles)) if any(row[place].words for row in made)]
    if not shown:
        return ""
    right = [any("number" in row[place].kind for row in made) for place in shown]
    head = "".join(
        f'<th scope="col"{" class=number" * is_right}>{escape(titles[place])}</th>'
        for place, is_right in zip(shown, right, strict=True)
    )
    body = "".join(f"<tr>{''.join(_cell(row[place]) for place in shown)}</tr>" for row in made)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: Cell) -> str:
    kind = " ".join([cell.kind, "bad" * (cell.words in _BAD)]).strip()
    return f'<td class="{kind}">{text(cell.words)}</td>' if kind else f"<td>{text(cell.words)}</td>"


def when(seconds: float | None) -> str:
    """A time, in the time zone of the process that makes the page."""
    return "" if not seconds else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def cards(run: Mapping[str, Any], columns: Columns, about: Mapping[str, Any]) -> str:
    """The headline numbers."""
    span = (run["last"] or 0.0) - (run["first"] or 0.0)
    rate = (run["forwards"] - 1) / span if span > 0 and run["forwards"] > 1 else 0.0
    speed = (f"{rate:,.0f} a second" if rate >= 100 else f"{rate:.3g} a second") if rate else ""
    if len(segments := columns.segments()) > 1:  # nobody knows how long nothing ran between them
        speed = f"by {len(segments)} writers"
    shown = [("forwards", f"{run['forwards']:,}", speed, "")]
    endings = [ending for ending in ("broke", "interrupted", "lost") if run[ending] or ending == "broke"]
    shown += [(ending, f"{run[ending]:,}", "", "bad" if run[ending] else "good") for ending in endings]
    shown.append(("took in all", took(run["took_us"]), f"over {took(span * 1e6)}" if span > 0 else "", ""))
    shown += [_last_said(columns, place) for place, series in enumerate(columns.series) if series.kinds.strip(b"\0")]
    first, last = when(run["first"]), when(run["last"])
    shown.append(("first", first[11:] or "never", first[:10], ""))
    shown.append(("last", last[11:] or "never", last[:10], ""))
    shown.append(("host", str(about.get("host", "")), f"process {about.get('pid', '?')}", ""))
    return f'<dl class="cards">{"".join(map(_card, shown))}</dl>'


def _card(shown: tuple[str, str, str, str]) -> str:
    title, words, beside, kind = shown
    small = f" <small>{text(beside)}</small>" if beside else ""
    return f'<div><dt>{text(title, 40)}</dt><dd class="{kind}">{text(words, 60)}{small}</dd></div>'


def _last_said(columns: Columns, place: int) -> tuple[str, str, str, str]:
    series = columns.series[place]
    row = next(row for row in range(len(columns) - 1, -1, -1) if series.kinds[row])
    value = series.values[row]
    words = f"{value:.6g}" if value == value else "no finite number"
    return series.name, words, f"said last, in forward {columns.forwards[row]:,}", ""


# -- tables


def nodes_table(spent: Sequence[Spent]) -> str:
    """The table of nodes."""
    whole = sum(one.us for one in spent) or 1
    rows: list[list[Cell | str]] = [
        [
            Cell(one.node, "wide"),
            number(took(one.us)),
            number(share(one.us / whole, 1)),
            number("" if one.mean_us is None else took(one.mean_us)),
            *(number(f"{one.count(ending):,}" if one.count(ending) else "") for ending in ENDINGS),
            ", ".join(dict.fromkeys(str(where) for where, _ in one.turns)),
        ]
        for one in spent[:_NODES]
    ]
    titles = ("node", "took", "share", "each", *ENDINGS, "where")
    return table(titles, rows) + _and_more(len(spent), _NODES, "nodes")


def hosts_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of hosts; empty if nothing was sent to any."""
    if len(rows) < 2:
        return ""
    return table(
        ("host", "slices", "there and back", "worked", "waited", "failed", "processors", "memory"),
        [
            [
                row["host"],
                number(f"{row['slices']:,}" if row["host"] != HERE else ""),
                number(took(row["trip"]) if row["host"] != HERE else ""),
                number(took(row["ran"])),
                number(took(row["waiting"]) if row["host"] != HERE else ""),
                number(f"{row['failures']:,}"),
                number(processors(row)),
                number("" if row["memory"] is None else share(row["memory"])),
            ]
            for row in rows
        ],
    )


def forwards_table(columns: Columns, whys: Mapping[int, str], last: int = 20) -> str:
    """The last forwards."""
    return _forwards(columns, range(max(0, len(columns) - last), len(columns))[::-1], whys)


def broken_table(columns: Columns, whys: Mapping[int, str]) -> str:
    """The forwards that did not end well, the last first; empty if all did."""
    rows = [row for row, state in enumerate(columns.states) if state in (BROKE, INTERRUPTED, LOST, OPEN)]
    return _forwards(columns, rows[::-1][:_ENDED_BADLY], whys) + _and_more(len(rows), _ENDED_BADLY, "of them")


def _forwards(columns: Columns, rows: Iterable[int], whys: Mapping[int, str]) -> str:
    said = [series.name for series in columns.series]
    return table(
        ("forward", "state", "took", *said, "why"),
        [
            [
                number(f"{columns.forwards[row]:,}"),
                STATES[columns.states[row]],
                number(took(us) if (us := columns.took_us[row]) == us else ""),
                *(
                    number(f"{value:.6g}" if (value := series.values[row]) == value else "")
                    for series in columns.series
                ),
                Cell(columns.whys.get(row, "") or whys.get(columns.forwards[row], ""), "wide"),
            ]
            for row in rows
        ],
    )


def tasks_table(digest: Digest) -> str:
    """The table of tasks, latest last."""
    tasks = digest.tasks
    return _and_more(len(tasks), _TASK_ROWS, "tasks before these") + table(
        ("task", "state", "took", "done", "of", "in", "why"),
        [
            [
                Cell(str(row["name"] or ""), "wide"),
                str(row["state"] or ""),
                number("" if row["took_us"] is None else took(row["took_us"])),
                number("" if row["done"] is None else f"{row['done']:,}"),
                number("" if row["total"] is None else f"{row['total']:,}"),
                ", ".join(str(row[field]) for field in ("parent", "node", "host") if row[field]),
                Cell(str(row["why"] or row["mark"] or ""), "wide"),
            ]
            for row in tasks[-_TASK_ROWS:]
        ],
    )


def logs_table(digest: Digest) -> str:
    """The last log records."""
    return _and_more(digest.said, len(digest.logs), "log records before these") + table(
        ("forward", "level", "logger", "message", "in"),
        [
            [
                number("" if row["forward"] is None else f"{row['forward']:,}"),
                str(row["level"] or ""),
                str(row["logger"] or ""),
                Cell(str(row["message"] or ""), "wide"),
                ", ".join(str(row[field]) for field in ("task", "node", "host") if row[field]),
            ]
            for row in digest.logs
        ],
    )


def streams_table(digest: Digest) -> str:
    """The table of streams, with the last throughput of each."""
    fields = ("batches", "samples", "samples_per_s", "batches_per_s", "flops_per_s", "waiting")
    return table(
        ("stream", *(field.replace("_per_s", " a second") for field in fields)),
        [
            [
                str(row["stream"]),
                *(number(_of_stream(row, field)) for field in fields),
            ]
            for row in digest.streams
        ],
    )


def _of_stream(row: Mapping[str, Any], field: str) -> str:
    value = row[field]
    if value is None:
        return ""
    if field == "waiting":
        return share(value)
    about = "about " if field == "flops_per_s" and not row["flops_exact"] else ""
    return about + (f"{value:,}" if isinstance(value, int) else scaled(value))


def _and_more(there: int, shown: int, what: str) -> str:
    return f'<p class="note">and {there - shown:,} more {escape(what)}</p>' if there > shown else ""


# -- about


def about_part(about: Mapping[str, Any]) -> str:
    """The provenance of the run."""
    git = about.get("git") or {}
    words = [git.get("commit", ""), f"on {git['branch']}" if git.get("branch") else ""]
    words += ["with changes"] * bool(git.get("dirty"))
    versions = about.get("versions") or {}
    said = [
        ("command", " ".join(map(str, about.get("argv", [])))),
        ("directory", about.get("cwd", "")),
        ("git", " ".join(word for word in words if word)),
        ("Python", f"{about.get('python', '')} at {about.get('executable', '')}" if about.get("python") else ""),
        ("platform", about.get("platform", "")),
        ("host", about.get("host", "")),
        ("user", about.get("user", "")),
        ("began", when(about.get("began"))),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("writers", counted(len(about["writers"]), "time") + " opened" if len(about["writers"]) > 1 else ""),
        *((str(name), _plainly(value)) for name, value in about.get("about", {}).items()),
        *((str(fact.get("fact")), _plainly(_without_kind(fact))) for fact in _own(about)),
    ]
    shown = "".join(f"<dt>{text(name, 60)}</dt><dd>{text(words, 4000)}</dd>" for name, words in said if words)
    diff = git.get("diff")
    more = f"<details><summary>changes since that commit</summary><pre>{escape(diff)}</pre></details>" if diff else ""
    return f'<dl class="about">{shown}</dl>{more}'


def _own(about: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Facts of the run itself that have no other place in the page."""
    kinds = ("log", "task", "throughput", "machine")
    return [fact for fact in about.get("facts", []) if fact.get("fact") not in kinds][:50]


def _without_kind(fact: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fact.items() if key != "fact"}


def _plainly(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_plainly(held)}" for key, held in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plainly, value))
    return str(value)


MARK = b"<!doctype html><!-- a page of somatize -->"
"""The first bytes of a page: a page may overwrite a page, and no other file."""
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
        """By section: its anchor, its title and its content."""
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
            self._part("hosts", "Hosts", _figure(hosts) + hosts_table(self.digest.hosts))

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
        broken = broken_table(columns, found.whys)
        if broken:
            self._part("broken", "What did not end well", broken)
        if found.tasks or found.streams:
            self._part("tasks", "Tasks", streams_table(found) + tasks_table(found))
        if found.logs:
            self._part("logs", "Log records", logs_table(found))
        if found.spent:
            self._part("nodes", "Nodes", nodes_table(found.spent))
        if len(columns):
            self._part("forwards", "The last forwards", forwards_table(columns, found.whys))
        self._part("about", "About", about_part(self.about))

    def _part(self, anchor: str, title: str, inside: str) -> None:
        self.sections.append((anchor, title, inside))

    def html(self) -> str:
        """The whole page."""
        own = files(__package__)
        style, script = ((own / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
        run = text(self.run, 300)
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
            f"<p>a run of the store {text(self.place, 100)}</p>"
            f"{cards(self.row, self.columns, self.about)}<nav>{nav}</nav></header>\n<main>{body}</main>\n"
            "<noscript><p>The figures are drawn by a script in this page, which is switched off here.</p></noscript>"
            f"<footer>made by somatize {escape(_version())}, {made}</footer>\n"
            f'<script type="application/json" id="figures">{self.figures.script()}</script>\n'
            f"<script>{plotly_backend.script()}</script>\n<script>{script}</script></body></html>\n"
        )


def _read(view: StoreSnapshot, run: str | None) -> tuple[dict[str, Any], dict[str, Any], Digest, list[str]]:
    """The run's totals, its provenance, the digest of its facts, and its summarised fields."""
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
    """The version of the package, looked up by name because this layer may not import it."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)

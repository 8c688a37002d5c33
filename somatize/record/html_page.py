"""A run as one HTML page that opens in any browser without a network: its figures, tables and metadata."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from html import escape
from importlib.resources import files
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any, NamedTuple, TypeAlias

from somatize.errors import NotReplaced
from somatize.facts import Fact
from somatize.figures import plotly_backend, theme
from somatize.figures.graph_drawing import recorded
from somatize.figures.theme import counted, share, took
from somatize.store import record_format
from somatize.store.node_tally import ENDINGS, NodeTally, Spent, stretches
from somatize.store.record_format import unpack
from somatize.store.run_reader import RunLines, StoreSnapshot, lines_of, look
from somatize.store.run_summary import FINISHED, RUNNING, flat
from somatize.utils.atomic_files import checked_path, write_atomically
from somatize.utils.units import scaled

from .column_reader import columns_of
from .figures import Names, several, spent_picture, timeline_picture
from .forward_reader import Place, opened_at
from .hosts import HERE, Hosts, machines_picture, processors
from .node_turns import OneForward, Total, one_forward
from .progress_figure import Picture, progress_picture
from .reader import curve_costs
from .run_columns import AXES, BROKE, INTERRUPTED, LOST, OPEN, STATES, Columns, alike
from .run_info import LOG_FIELDS, about_of, stats_of, tasks_of, unfinished_of, unfinished_words
from .run_query import run_row

_RARE = ("log", "task", "throughput", "machine", "left", "broke")
_LOGS, _TASKS = 200, 5000


class Digest(NamedTuple):
    """The data of a page: node totals, host rows, tasks, last logs (of `said`), last throughput.

    `whys` has the errors of forwards that broke.
    """

    spent: list[Spent]
    hosts: list[dict[str, Any]]
    tasks: list[dict[str, Any]]
    logs: list[dict[str, Any]]
    said: int
    streams: list[dict[str, Any]]
    whys: dict[int, str]


def digest(lines: RunLines) -> Digest:
    """Read every fact of a run once."""
    return _DigestPass().over(lines)


class _DigestPass:
    def __init__(self) -> None:
        self.tally = NodeTally(apart=_RARE)
        self.hosts = Hosts()
        self.tasks: deque[tuple[int | None, Fact]] = deque(maxlen=_TASKS)
        self.logs: tuple[deque[dict[str, Any]], ...] = (deque(maxlen=_LOGS), deque(maxlen=_LOGS))
        """Log records of the run itself, and those of its forwards."""
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


Draw: TypeAlias = Callable[[str], Picture | tuple[list[dict[str, Any]], dict[str, Any]]]
"""Draws a figure for a look."""
LOOKS = ("light", "dark")
_BARE = {"paper_bgcolor": "rgba(0,0,0,0)"}


@dataclass
class Figures:
    """Figures by name, each for a light and a dark page."""

    held: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, draw: Draw) -> None:
        """Draw a figure for both looks, which share its data if that is equal."""
        made: dict[str, dict[str, Any]] = {}
        for shade in LOOKS:
            picture = draw(shade)
            data, layout = (picture.data, picture.layout) if isinstance(picture, Picture) else picture
            made[shade] = {"data": data, "layout": {**layout, **_BARE}}
        if made["light"]["data"] == made["dark"]["data"]:
            made = {"data": made["light"].pop("data"), **made}
            made["dark"].pop("data")
        self.held[name] = made

    def script(self) -> str:
        """All of them as JSON that is safe in a script element."""
        try:
            words = json.dumps(self.held, default=list, separators=(",", ":"), allow_nan=False)
        except ValueError:
            words = json.dumps(_finite(self.held), separators=(",", ":"))
        return words.replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    """The value with null for numbers that are not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else [_finite(held) for held in value]


_LONGEST = 400
_NODES, _TASK_ROWS, _ENDED_BADLY, _FORWARDS = 200, 200, 50, 20
_BAD = frozenset({"broke", "interrupted", "lost", "failed", "ERROR", "CRITICAL"})


def text(words: object, most: int = _LONGEST) -> str:
    """Words escaped for HTML, without control characters, and cut if they are longer than `most`."""
    return escape(theme.cut(theme.plain(words), most))


def _titles(words: str) -> list[tuple[str, str]]:
    """Titles separated by commas, each with its class: ``took#`` is a column of numbers, ``why*`` a wide one."""
    kinds = {"#": "number", "*": "wide"}
    return [(title.rstrip("#*"), kinds.get(title[-1], "")) for title in words.split(",")]


def table(titles: Sequence[tuple[str, str]], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table without its empty columns; empty if there are no rows. None is an empty cell."""
    made = [["" if words is None else str(words) for words in row] for row in rows]
    shown = [place for place in range(len(titles)) if any(row[place] for row in made)]
    if not shown:
        return ""
    head = "".join(
        f'<th scope="col"{" class=number" * (titles[place][1] == "number")}>{escape(titles[place][0])}</th>'
        for place in shown
    )
    body = "".join(f"<tr>{''.join(_cell(row[place], titles[place][1]) for place in shown)}</tr>" for row in made)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(words: str, kind: str) -> str:
    kind = " ".join([kind, "bad" * (words in _BAD)]).strip()
    return f'<td class="{kind}">{text(words)}</td>' if kind else f"<td>{text(words)}</td>"


def _and_more(there: int, shown: int, what: str) -> str:
    return f'<p class="note">and {there - shown:,} more {escape(what)}</p>' if there > shown else ""


def _count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _took(us: float | None) -> str:
    return "" if us is None or us != us else took(us)


def _where(row: Mapping[str, Any], *fields: str) -> str:
    return ", ".join(str(row[name]) for name in fields if row[name])


def when(seconds: float | None) -> str:
    """A time, in the time zone of the process that makes the page."""
    return "" if not seconds else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def cards(run: Mapping[str, Any], columns: Columns, about: Mapping[str, Any]) -> str:
    """The headline numbers."""
    span = (run["last"] or 0.0) - (run["first"] or 0.0)
    rate = (run["forwards"] - 1) / span if span > 0 and run["forwards"] > 1 else 0.0
    speed = (f"{rate:,.0f} a second" if rate >= 100 else f"{rate:.3g} a second") if rate else ""
    if len(segments := columns.segments()) > 1:  # the time between two writers is not the run's
        speed = f"by {len(segments)} writers"
    state = str(about.get("state", ""))
    look = {FINISHED: "good", RUNNING: "", "": ""}.get(state, "bad")
    shown = [("state", state, theme.brief(about.get("why")), look), ("forwards", f"{run['forwards']:,}", speed, "")]
    endings = [ending for ending in ("broke", "interrupted", "lost") if run[ending] or ending == "broke"]
    shown += [(ending, f"{run[ending]:,}", "", "bad" if run[ending] else "good") for ending in endings]
    shown.append(("took in all", took(run["took_us"]), f"over {took(span * 1e6)}" if span > 0 else "", ""))
    shown += [_last_value(columns, place) for place, series in enumerate(columns.series) if series.kinds.strip(b"\0")]
    first, last = when(run["first"]), when(run["last"])
    shown.append(("first", first[11:] or "never", first[:10], ""))
    shown.append(("last", last[11:] or "never", last[:10], ""))
    shown.append(("host", str(about.get("host", "")), f"process {about.get('pid', '?')}", ""))
    return "".join(map(_card, shown))


def _card(shown: tuple[str, str, str, str]) -> str:
    title, words, beside, kind = shown
    small = f" <small>{text(beside)}</small>" if beside else ""
    return f'<div><dt>{text(title, 40)}</dt><dd class="{kind}">{text(words, 60)}{small}</dd></div>'


def _last_value(columns: Columns, place: int) -> tuple[str, str, str, str]:
    series = columns.series[place]
    row = next(row for row in range(len(columns) - 1, -1, -1) if series.kinds[row])
    value = series.values[row]
    words = f"{value:.6g}" if value == value else "no finite number"
    return series.name, words, f"said last, in forward {columns.forwards[row]:,}", ""


# -- tables


def nodes_table(spent: Sequence[Spent]) -> str:
    """The table of nodes."""
    whole = sum(one.us for one in spent) or 1
    rows = [
        (
            one.node,
            took(one.us),
            share(one.us / whole, 1),
            _took(one.mean_us),
            *(_count(one.count(ending) or None) for ending in ENDINGS),
            ", ".join(dict.fromkeys(str(where) for where, _ in one.turns)),
        )
        for one in spent[:_NODES]
    ]
    titles = _titles("node*,took#,share#,each#,ran#,recalled#,failed#,where")
    return table(titles, rows) + _and_more(len(spent), _NODES, "nodes")


def hosts_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of hosts; slices are sent to all but this one."""
    return table(
        _titles("host,slices#,there and back#,worked#,waited#,failed#,processors#,memory#"),
        [
            (
                row["host"],
                _count(row["slices"]) if (there := row["host"] != HERE) else "",
                took(row["trip"]) if there else "",
                took(row["ran"]),
                took(row["waiting"]) if there else "",
                _count(row["failures"]),
                processors(row),
                "" if row["memory"] is None else share(row["memory"]),
            )
            for row in rows
        ],
    )


def forwards_table(columns: Columns, rows: Iterable[int], whys: Mapping[int, str]) -> str:
    """Some forwards by their rows in `columns`; `whys` are causes by number."""
    return table(
        [*_titles("forward#,state,took#"), *((series.name, "number") for series in columns.series), ("why", "wide")],
        [
            (
                f"{columns.forwards[row]:,}",
                STATES[columns.states[row]],
                _took(columns.took_us[row]),
                *("" if (value := series.values[row]) != value else f"{value:.6g}" for series in columns.series),
                columns.whys.get(row, "") or whys.get(columns.forwards[row], ""),
            )
            for row in rows
        ],
    )


def broken_table(columns: Columns, whys: Mapping[int, str]) -> str:
    """The forwards that did not end well, the last first; empty if all did."""
    rows = [row for row, state in enumerate(columns.states) if state in (BROKE, INTERRUPTED, LOST, OPEN)]
    shown = forwards_table(columns, rows[::-1][:_ENDED_BADLY], whys)
    return shown + _and_more(len(rows), _ENDED_BADLY, "of them")


def tasks_table(tasks: Sequence[Mapping[str, Any]]) -> str:
    """The table of tasks, latest last."""
    return _and_more(len(tasks), _TASK_ROWS, "tasks before these") + table(
        _titles("task*,state,took#,done#,of#,in,why*"),
        [
            (
                row["name"],
                row["state"],
                _took(row["took_us"]),
                _count(row["done"]),
                _count(row["total"]),
                _where(row, "parent", "node", "host"),
                row["why"] or row["mark"],
            )
            for row in tasks[-_TASK_ROWS:]
        ],
    )


def logs_table(digest: Digest) -> str:
    """The last log records."""
    return _and_more(digest.said, len(digest.logs), "log records before these") + table(
        _titles("forward#,level,logger,message*,in"),
        [
            (
                _count(row["forward"]),
                row["level"],
                row["logger"],
                row["message"],
                _where(row, "task", "node", "host"),
            )
            for row in digest.logs
        ],
    )


def streams_table(streams: Sequence[Mapping[str, Any]]) -> str:
    """The table of streams, with the last throughput of each."""
    fields = ("batches", "samples", "samples_per_s", "batches_per_s", "flops_per_s", "waiting")
    titles = [("stream", ""), *((field.replace("_per_s", " a second"), "number") for field in fields)]
    return table(titles, [(row["stream"], *(_of_stream(row, field) for field in fields)) for row in streams])


def _of_stream(row: Mapping[str, Any], field: str) -> str:
    value = row[field]
    if value is None:
        return ""
    if field == "waiting":
        return share(value)
    about = "about " if field == "flops_per_s" and not row["flops_exact"] else ""
    return about + (f"{value:,}" if isinstance(value, int) else scaled(value))


# -- about


def about_part(about: Mapping[str, Any]) -> str:
    """The provenance of the run."""
    git, versions = about.get("git") or {}, about.get("versions") or {}
    commit = [
        git.get("commit"),
        f"on {git['branch']}" if git.get("branch") else "",
        "with changes" * bool(git.get("dirty")),
    ]
    said = [
        ("command", " ".join(map(str, about.get("argv", [])))),
        ("directory", about.get("cwd", "")),
        ("git", " ".join(filter(None, commit))),
        ("Python", f"{about.get('python', '')} at {about.get('executable', '')}" if about.get("python") else ""),
        ("platform", about.get("platform", "")),
        ("host", about.get("host", "")),
        ("user", about.get("user", "")),
        ("began", when(about.get("began"))),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("tags", ", ".join(about.get("tags", []))),
        ("note", about.get("note") or ""),
        ("writers", counted(len(about["writers"]), "time") + " opened" if len(about["writers"]) > 1 else ""),
        *((str(name), _plainly(value)) for name, value in flat(about["config"]).items()),
        *_own_facts(about),
    ]
    shown = "".join(f"<dt>{text(name, 60)}</dt><dd>{text(words, 4000)}</dd>" for name, words in said if words)
    diff = git.get("diff")
    more = f"<details><summary>changes since that commit</summary><pre>{escape(diff)}</pre></details>" if diff else ""
    return f'<dl class="about">{shown}</dl>{more}'


def _own_facts(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Facts of the run itself that no other part of the page shows: kind and fields."""
    shown_elsewhere = ("log", "task", "throughput", "machine")
    own = (fact for fact in about.get("facts", []) if fact.get("fact") not in shown_elsewhere)
    for fact in islice(own, 50):
        yield str(fact.get("fact")), _plainly({key: value for key, value in fact.items() if key != "fact"})


def _plainly(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_plainly(held)}" for key, held in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plainly, value))
    return str(value)


# -- the page

MARK = b"<!doctype html><!-- a page of somatize -->"
"""The first bytes of a page: a page may overwrite a page, and no other file."""
_CURVES, _GRAPHS = 6, 8


def page(
    store: Place,
    run: str | None = None,
    path: str | os.PathLike[str] = "page.html",
    *,
    of: Names | None = None,
    x: str = "forward",
    replace: bool = False,
) -> Path:
    """Write a run to `path` as one HTML page: its figures, its graphs, its tables and its metadata.

    The page needs no other file and no network; it follows the reader's choice of light or dark. `of` names its
    curves, as for `progress`; None means the summarised fields, or the loss. `x` is their axis. The file is replaced
    atomically; one that is no page is replaced only with `replace`. Reads every fact of the run once: about a second
    for 100,000 forwards. Returns the path.

    Raises `NotReplaced` for a file that is no such page, `ExportError` for one in no directory, and `UnknownRun`,
    `WhichRun`, `UnknownName`, `FigureError`, `ExtraMissing`.
    """
    plotly_backend.require()
    target = Path(path)
    _check(target, replace=replace)
    html = _Page(store, run, None if of is None else several("of", of), x).html()
    write_atomically(target, lambda beside: beside.write_text(html, encoding="utf-8", errors="backslashreplace"))
    return target


def _check(target: Path, *, replace: bool) -> None:
    """Raise unless the page may be written there."""
    if target.is_dir():
        raise NotReplaced(f"{target} is a directory; name the file that the page is to be")
    checked_path(target)
    if replace or not target.exists():
        return
    with target.open("rb") as file:
        if file.read(len(MARK)) != MARK and target.stat().st_size:
            raise NotReplaced(f"{target} is there and is no page of somatize; it was left as it is: say replace=True")


class _Page:
    """The sections of a page, and the figures in them."""

    def __init__(self, store: Place, run: str | None, of: Sequence[str] | None, x: str) -> None:
        self.figures = Figures()
        self.sections: list[tuple[str, str, str]] = []
        """By section: its anchor, its title and its content."""
        with opened_at(store) as opened:
            self.place = opened.path.name
            self.row, self.about, self.digest, names = look(opened, lambda view: _read(view, run))
            self.run: str = self.row["run"]
            self.columns = columns_of(store, self.run, of or names, unsaid=True)
            alike([self.columns])
            drawn = self.columns
            if x != "forward":
                if x not in AXES:
                    curve_costs(store, self.run, x)  # raises if it was never said
                drawn = columns_of(store, self.run, of or names, unsaid=True, x=x)
                alike([drawn])
            drawn.describe(self.about)
            self._add_figures(store, drawn)
        self._add_tables()

    def _add(self, anchor: str, title: str, inside: str) -> None:
        if inside:
            self.sections.append((anchor, title, inside))

    def _figure(self, name: str, draw: Draw) -> str:
        self.figures.add(name, draw)
        return f'<div class="figure" data-figure="{name}"></div>'

    def _add_figures(self, store: Place, drawn: Columns) -> None:
        columns, run, found = self.columns, self.run, self.digest
        title = f"run {run}"
        progress = self._figure("progress", lambda look: progress_picture([drawn], theme=look, title=title))
        self._add("progress", "Progress", progress)
        total = Total(run, len(columns), int(sum(us for us in columns.took_us if us == us)), found.spent)
        self._add("time", "Where the time went", self._figure("spent", lambda look: spent_picture(total, theme=look)))
        if len(columns):
            self._add("forward", "One forward", self._timelines(store))
        graphs = list(self._graphs())
        self._add("graph", "The graph" if len(graphs) == 1 else "The graphs", "".join(graphs))
        if len(found.hosts) > 1:
            hosts = self._figure("hosts", lambda look: machines_picture(run, found.hosts, theme=look))
            self._add("hosts", "Hosts", hosts + hosts_table(found.hosts))

    def _timelines(self, store: Place) -> str:
        """The last forward, the slowest, and the last that broke, one of which is shown."""
        buttons: list[str] = []
        places: list[str] = []
        for number, words in _told_apart(self.columns).items():
            name = f"forward-{number}"
            self.figures.add(name, partial(_timeline, one_forward(store, self.run, number)))
            checked, hidden = ("", " hidden") if places else (" checked", "")
            buttons.append(
                f'<label><input type="radio" name="forward" value="{name}"{checked}> {words}, {number:,}</label>'
            )
            places.append(f'<div class="figure" data-of="forward" data-figure="{name}"{hidden}></div>')
        return f'<fieldset class="choice" data-for="forward">{"".join(buttons)}</fieldset>{"".join(places)}'

    def _graphs(self) -> Iterator[str]:
        """The graphs that were run, as far as the record describes them."""
        for place, described in enumerate(self.about["graphs"][:_GRAPHS]):
            # A record that another version wrote, or a damaged one, may have none: the rest of the page is there.
            with suppress(KeyError, TypeError, ValueError):
                yield self._figure(f"graph-{place}", partial(recorded, described))

    def _add_tables(self) -> None:
        found, columns = self.digest, self.columns
        self._add("broken", "What did not end well", broken_table(columns, found.whys))
        self._add("tasks", "Tasks", streams_table(found.streams) + tasks_table(found.tasks))
        self._add("logs", "Log records", logs_table(found))
        self._add("nodes", "Nodes", nodes_table(found.spent))
        last = range(max(0, len(columns) - _FORWARDS), len(columns))[::-1]
        self._add("forwards", "The last forwards", forwards_table(columns, last, found.whys))
        self._add("about", "About", about_part(self.about))

    def html(self) -> str:
        """The whole page: the template with its parts, which are escaped."""
        own = files(__package__)
        template, style, script = ((own / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
        return Template(template).substitute(
            run=text(self.run, 300),
            store=text(self.place, 100),
            style=style,
            cards=cards(self.row, self.columns, self.about),
            links="".join(f'<a href="#{anchor}">{escape(title)}</a>' for anchor, title, _ in self.sections),
            sections="".join(
                f'<section id="{anchor}"><h2>{escape(title)}</h2>{inside}</section>'
                for anchor, title, inside in self.sections
            ),
            version=escape(_version()),
            made=time.strftime("%Y-%m-%d %H:%M:%S %z"),
            figures=self.figures.script(),
            plotly=plotly_backend.script(),
            script=script,
        )


def _read(view: StoreSnapshot, run: str | None) -> tuple[dict[str, Any], dict[str, Any], Digest, list[str]]:
    """The run's totals, its provenance, the digest of its facts, and its summarised fields."""
    lines: RunLines = lines_of(view, run)
    row = run_row(lines)
    row["forwards"] += row["holes"]
    row["lost"] += row["holes"]
    names = [name.removesuffix(".value") for name in lines.summarised_fields()]
    found = digest(lines)
    for one in unfinished_of(lines):
        found.whys.setdefault(one["forward"], unfinished_words(one))
    return row, about_of(lines), found, names[:_CURVES] or ["loss"]


def _told_apart(columns: Columns) -> dict[int, str]:
    """The forwards that have a timeline, and why."""
    found: dict[int, str] = {columns.forwards[len(columns) - 1]: "the last forward"}
    slowest = max(range(len(columns)), key=lambda row: us if (us := columns.took_us[row]) == us else -1.0)
    found.setdefault(columns.forwards[slowest], "the slowest")
    ended_badly = [row for row, state in enumerate(columns.states) if state in (BROKE, INTERRUPTED)]
    if ended_badly:
        found.setdefault(columns.forwards[ended_badly[-1]], "the last that broke")
    return found


def _timeline(one: OneForward, look: str) -> Picture:
    return timeline_picture(one, theme=look)


def _version() -> str:
    """The version of the package, looked up by name because this layer may not import it."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)

"""``somatize runs``, ``forwards`` and ``about``: the runs of a store, their forwards and their metadata."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from somatize.figures.theme import brief, counted

from . import answers
from .answers import Answer, Row, TextColumn, answering, print_pairs, write_json
from .arguments import (
    INSTANT,
    ReadingCommand,
    RunName,
    all_option,
    last_option,
    path_argument,
    reading,
    run_argument,
    run_named,
    since_option,
)

if TYPE_CHECKING:
    from somatize.record.forward_reader import Pages


_MOST_VERSIONS = 30
_MOST_FACTS = 20
_OWN_COMMAND = frozenset({"task", "log", "throughput"})


@click.command(cls=ReadingCommand, examples=("about runs/ tuesday", "about runs/ tuesday --json | jq .git"))
@path_argument
@run_argument
@answering
def about(path: Path, run: str | None, answer: Answer) -> None:
    """The metadata of a run: command, directory, commit, versions, writers, graphs.

    In CSV a row per value, its place written with dots. Price: no forward is read.
    """
    from somatize import record

    with reading(path) as store:
        said = record.about(store, run_named(store, run))
    if answer.json:
        write_json(said)
    elif answer.csv:
        answer.rows([{"key": key, "value": value} for key, value in _flat(said, "")], (), ("key", "value"))
    else:
        print_pairs([(what, says) for what, says in _told(said) if says])


def _flat(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Each value that is no mapping or list, with its path."""
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if parts is None or not value:
        yield place, value
        return
    for key, part in parts:
        yield from _flat(part, f"{place}.{key}" if place else str(key))


def _told(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "run", said["run"]
    yield "began", f"{answers.clock(said.get('began'))} ({answers.ago(said.get('began'))})" if said.get("began") else ""
    yield "command", shlex.join(map(str, said.get("argv", ())))
    yield "in", str(said.get("cwd", ""))
    yield "on", " ".join(filter(None, (said.get("user", ""), "at" * bool(said.get("user")), said.get("host", ""))))
    yield "python", f"{said.get('python', '')} on {said.get('platform', '')}" if "python" in said else ""
    yield "commit", _commit(said.get("git"))
    yield "with", _versions(said.get("versions") or {})
    ended = f" ({answers.ago(said['ended'])})" if said.get("ended") else ""
    yield "state", f"{said.get('state', '')}{ended}{f': {why}' if (why := said.get('why')) else ''}"
    yield "tags", answers.listed(said.get("tags", ()))
    yield "note", said.get("note", "")
    yield from ((f"config.{key}", _plain(value)) for key, value in _flat(said.get("config", {}), "") if key)
    for number, graph in enumerate(said.get("graphs", ())):
        yield "graph" if not number else "", _graph(graph)
    for number, writer in enumerate(said.get("writers", ())):
        yield "writer" if not number else "", _writer(writer)
    others = [fact for fact in said.get("facts", ()) if fact.get("fact") not in _OWN_COMMAND]
    for number, fact in enumerate(others[-_MOST_FACTS:]):
        yield "said" if not number else "", " ".join(f"{key}={value}" for key, value in fact.items())


def _commit(git: Mapping[str, Any] | None) -> str:
    if not git:
        return ""
    dirty = ", with changes that are not in it" if git.get("dirty") else ""
    return f"{git.get('commit', '')[:12]} on {git.get('branch') or 'no branch'}{dirty}"


def _versions(versions: Mapping[str, str]) -> str:
    named = [f"{name} {version}" for name, version in versions.items()]
    return answers.listed(named[:_MOST_VERSIONS]) + (
        f" and {len(named) - _MOST_VERSIONS} more" * (len(named) > _MOST_VERSIONS)
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else answers.listed(value) if isinstance(value, list) else str(value)


def _graph(graph: Mapping[str, Any]) -> str:
    names = [node["id"] for node in graph["nodes"]]
    return f"{len(names)} nodes, {len(graph['edges'])} edges: {answers.listed(names)}"


def _writer(writer: Mapping[str, Any]) -> str:
    alive = f"{writer.get('state', 'gone')}{f' ({why})' if (why := brief(writer.get('why'))) else ''}"
    began = answers.clock(writer.get("began"))
    return f"process {writer.get('pid', '?')} at {writer.get('host', '?')}, {alive}, opened {began}"


_RUN_FIELDS = (
    *("run", "forwards", "broke", "interrupted", "lost", "took_us", "first", "last"),
    *("state", "why", "ended", "launches", "tags", "note"),
)
_FORWARD_FIELDS = ("forward", "state", "nodes", "took_us", "when")
_STATES = ("ok", "broke", "interrupted", "open", "lost")
_TROUBLE = ("broke", "interrupted", "lost")
_NAME = 38
"""The least width of a run's name, which users copy and type."""

_MOST_REASONS = 200
"""The most forwards that are fetched for their errors."""


@click.command(
    cls=ReadingCommand,
    examples=(
        "runs runs/",
        "runs runs/ --since 2h",
        "runs runs/ --where 'state == failed and config.lr < 0.01' --sort -loss.last --columns config.lr,loss.last",
        "runs runs/ --json | jq '.[].run'",
    ),
)
@path_argument
@last_option("runs")
@click.option("--since", type=INSTANT, help="Runs written to since then: 2h, 30min, 3d ago, or 2026-01-31 14:00.")
@click.option(
    "--where", metavar="CONDITION", help="Only those: config.lr < 0.01 and state == failed and tags has good."
)
@click.option("--sort", multiple=True, metavar="COLUMN", help="By this column; - before it descends. May be repeated.")
@click.option("--columns", metavar="NAMES", help="More columns, with commas: config.lr,loss.last,loss.min.")
@all_option
@answering
def runs(
    path: Path,
    last: int | None,
    since: float | None,
    where: str | None,
    sort: tuple[str, ...],
    columns: str | None,
    every: bool,
    answer: Answer,
) -> None:
    """The runs of a store, in the order they were begun: how they ended, how many forwards, how long they took.

    A condition compares columns, keys of configurations (config.lr) and numbers (loss.last, loss.min, loss.max) by
    ==, !=, <, <=, >, >=, ~ (a pattern with *) and has, joined by and, or, not.

    Price: totals are read, no forward is; a thousand runs take some 10 ms.
    """
    from somatize import record

    wanted = [name.strip() for name in (columns or "").split(",") if name.strip()]
    for name in wanted:
        if not name.startswith("config.") and not name.endswith(_OF_NUMBER) and name not in _RUN_FIELDS:
            raise click.BadParameter(
                f"{name!r} is no column: it is config.KEY, of a number NAME.last, NAME.min or NAME.max, or one of "
                f"{', '.join(_RUN_FIELDS)}",
                param_hint="--columns",
            )
    with reading(path) as store:
        rows = record.runs(
            store,
            last=last,
            since=since,
            where=where,
            sort=sort or None,
            of=[name.rpartition(".")[0] for name in wanted if name.endswith(_OF_NUMBER)],
            config=["*"] if not answer.is_table else [name for name in wanted if name.startswith("config.")],
        )
    room = None if every or last is not None else answer.room()
    shown = rows if room is None else rows[-room:] if not sort else rows[:room]
    usual = {"run", "state", "forwards", "last", "tags", "why"}
    answer.rows(
        shown,
        [
            TextColumn("run", lambda row: row["run"], 0, right=False, least=_NAME),
            TextColumn("state", lambda row: row["state"], 1, right=False),
            *(
                TextColumn(name.removeprefix("config."), lambda row, name=name: _cell(name, row.get(name)), 1)  # type: ignore[misc]
                for name in wanted
                if name not in usual
            ),
            TextColumn("forwards", lambda row: f"{row['forwards']:,}", 1),
            TextColumn("not ok", _trouble, 2, right=False, style="red"),
            TextColumn("took", lambda row: answers.took(row["took_us"]), 5),
            TextColumn("began", lambda row: answers.clock(row["first"]), 6),
            TextColumn("last", lambda row: answers.ago(row["last"]), 4),
            TextColumn("tags", lambda row: answers.listed(row["tags"]), 3, right=False),
            TextColumn("why", lambda row: brief(row["why"]), 7, right=False, least=20, sentence=True, style="dim"),
        ],
        tuple(dict.fromkeys([*_RUN_FIELDS, *(name for row in rows for name in row)])),
        none=f"{path} holds no run yet" if since is None and where is None else "no such run",
    )
    if rows:
        answer.note(_of(len(shown), len(rows), "run"))


def _cell(name: str, value: Any) -> str:
    """A value in a table of runs: of a configuration as it was given, a number in five digits."""
    if value is None:
        return ""
    return _plain(value) if name.startswith("config.") else answers.number(value)


_OF_NUMBER = (".last", ".min", ".max", ".last_at", ".min_at", ".max_at", ".odd")


@click.command(
    cls=ReadingCommand, examples=("best runs/ val.accuracy --max", "best runs/ loss --min --where 'tags has good'")
)
@path_argument
@click.argument("of")
@click.option("--max", "mode", flag_value="max", help="The largest value wins.")
@click.option("--min", "mode", flag_value="min", help="The smallest value wins.")
@click.option("--where", metavar="CONDITION", help="Only among those runs: config.lr < 0.01 and state == finished.")
@answering
def best(path: Path, of: str, mode: str | None, where: str | None, answer: Answer) -> None:
    """The run and forward with the largest or smallest value of a number, and the configuration of the run.

    Price: totals are read; a number that was not summarised is read from every record.
    """
    from somatize import record

    if mode is None:
        raise click.UsageError("Say what wins: --max or --min.")
    with reading(path) as store:
        found = record.best(store, of, mode=mode, where=where)
    if answer.json:
        write_json(found)
    elif answer.csv:
        answer.rows([{"key": key, "value": value} for key, value in _flat(found, "")], (), ("key", "value"))
    else:
        pairs = [("run", found["run"]), ("forward", f"{found['forward']:,}"), (of, answers.number(found["value"]))]
        print_pairs(pairs + [(f"config.{key}", _plain(value)) for key, value in found["config"].items()])


@click.command(
    cls=ReadingCommand, examples=("compare runs/ tuesday friday", "compare runs/ a b c --all --csv > all.csv")
)
@path_argument
@click.argument("run", nargs=-1, required=True, type=RunName())
@click.option("--all", "every", is_flag=True, help="Also what is equal.")
@answering
def compare(path: Path, run: tuple[str, ...], every: bool, answer: Answer) -> None:
    """The differences between runs: ends, configuration, versions, commit, graph, numbers, and times of nodes.

    Price: totals, and the last 200 forwards of each run.
    """
    from somatize import record

    with reading(path) as store:
        names = [run_named(store, one) for one in run]
        rows = record.compare(store, names, only_changed=not every)
    if not answer.is_table:
        rows = [
            {"kind": row["kind"], "name": row["name"], **dict(zip(names, row["values"], strict=True))} for row in rows
        ]
        answer.rows(rows, (), ("kind", "name", *names))
        return
    columns = [
        TextColumn("", lambda row: row["kind"], 0, right=False),
        TextColumn("", lambda row: row["name"], 0, right=False, least=20),
        *(
            TextColumn(name, lambda row, at=at: _compared(row, row["values"][at]), 1, right=False, least=16)  # type: ignore[misc]
            for at, name in enumerate(names)
        ),
    ]
    answer.rows(rows, columns, (), none="nothing differs")


def _compared(row: Row, value: Any) -> str:
    if value is None:
        return "-"
    if row["kind"] == "time":
        return answers.took(value)
    return answers.number(value) if isinstance(value, float) and row["kind"] == "number" else _plain(value)


def recorded_now(store: Any) -> set[str]:
    """The names of the runs that a live process records."""
    from somatize.store.run_reader import StoreSnapshot, look

    def of(view: StoreSnapshot) -> set[str]:
        being = {tail.run for tail in view.tails if view.is_alive(tail.writer)}
        return {info.name for run, info in view.runs() if run in being} if being else set()

    return look(store.opened, of)


def _trouble(row: Row) -> str:
    return ", ".join(f"{row[state]:,} {state}" for state in _TROUBLE if row[state])


def _of(shown: int, all_: int, what: str) -> str:
    if shown == all_:
        return counted(all_, what)
    return f"the last {shown:,} of {all_:,} {what}s; more: --last N, --all"


@click.command(
    cls=ReadingCommand,
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
    from somatize.record.forward_reader import Pages

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
    """Write the rows for a program as they are read."""
    wanted = states or _STATES
    answer.pages(
        lambda: ([row for row in rows if row["state"] in wanted] for rows in pages.rows()), fields=pages.fields
    )


def _total(store: Any, name: str) -> int:
    from somatize import record

    return next((int(row["forwards"]) for row in record.runs(store) if row["run"] == name), 0)


def _forward_columns(rows: list[dict[str, Any]], reasons: dict[int, str]) -> list[TextColumn]:
    fields = [field for field in (rows[0] if rows else ()) if field not in _FORWARD_FIELDS]
    return [
        TextColumn("forward", lambda row: str(row["forward"]), 0),
        TextColumn("state", lambda row: row["state"], 1, right=False),
        TextColumn("nodes", lambda row: str(row["nodes"]), 6),
        TextColumn("took", lambda row: answers.took(row["took_us"]), 2),
        *(
            TextColumn(field.removesuffix(".value"), lambda row, field=field: answers.number(row[field]), 4)  # type: ignore[misc]
            for field in fields
        ),
        TextColumn("when", lambda row: answers.clock(row["when"]), 5),
        TextColumn(
            "why", lambda row: reasons.get(row["forward"], ""), 3, right=False, least=40, sentence=True, style="dim"
        ),
    ]


def _reasons(store: Any, name: str, rows: list[dict[str, Any]]) -> dict[int, str]:
    """The errors of broken forwards, and where unfinished ones are or were."""
    from somatize import record
    from somatize.record.run_info import unfinished_words

    reasons: dict[int, str] = {}
    for row in [row for row in rows if row["state"] in ("broke", "interrupted")][-_MOST_REASONS:]:
        told = record.facts(store, name, row["forward"])
        reasons[row["forward"]] = next((fact.get("why", "") for fact in told if fact["fact"] == "broke"), "")
    if any(row["state"] in ("open", "lost") for row in rows):
        for row in record.unfinished(store, name):
            reasons[row["forward"]] = unfinished_words(row)
    return reasons

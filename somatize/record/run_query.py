"""Questions about runs: a table of them, the best one, and what differs between some.

They are answered from totals and summaries, which commits keep: no record is opened. Only a number that was not
summarised is read from its facts, which costs a scan of each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from statistics import fmean, pstdev
from typing import Any, TypeAlias

from somatize.errors import RecordError, UnknownName, nearest
from somatize.store import record_format
from somatize.store.lmdb_environment import BadValue
from somatize.store.node_tally import micro
from somatize.store.run_reader import RunLines, StoreSnapshot, lines_of, look
from somatize.store.run_summary import flat, total_of
from somatize.utils.notices import warn_of_record

from . import reader
from .forward_reader import Place, check_range, opened_at
from .run_filter import Condition
from .run_info import about_of

Where: TypeAlias = str | Callable[[Mapping[str, Any]], bool] | None
CONFIG = "config."
_CLOSE, _SAMPLE = 0.1, 200
"""The share by which times and numbers have to differ, and the number of last forwards whose spread is taken."""


def runs(
    store: Place,
    *,
    last: int | None = None,
    since: float | None = None,
    where: Where = None,
    sort: str | Iterable[str] | None = None,
    of: Iterable[str] = (),
    config: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """A row per run, in the order they were begun, from totals: the forwards are not looked at.

    `forwards` counts all of them, `broke`, `interrupted` and `lost` those that ended so; `took_us` is their sum.
    `first` and `last` are when the first and the last forward was written down, in seconds since 1970, None before
    there is one. `state` is ``"running"``, ``"finished"``, ``"failed"``, ``"interrupted"`` or ``"killed"``; `why` the
    reason, or None, and `ended` when; `launches` counts how often it was begun; `tags` and `note` mark it. Of each
    number that is summarised or named in `of` there are ``loss.last``, ``loss.min`` and ``loss.max``, the forwards of
    these (``loss.max_at``), and ``loss.odd``, the count of values that were no finite number, if there were any.
    Of a run that another process records they are as of its last commit, a quarter of a second ago at most.
    `config` names the keys that are columns too, as ``config.optim.lr``; it takes patterns such as ``"optim.*"``.

    `where` is a function of a row or a condition (`somatize.record.run_filter`), and `sort` a column or several, ``-``
    before those that descend; both know every key and every summarised number, asked for or not. ``last=N`` gives the
    last N of these rows, ``since=t`` those written to at or after that time. A number in `of` that is not summarised
    costs a scan of the run. Raises `BadFilter`, and `RecordError` for a column to sort by that no run has; warns of
    names in `where`, `of` and `config` that no run has.
    """
    check_range(last, None)
    chosen = condition_of(where)
    asked = _names(of)
    columns_of = _names(config, "config")
    # Without a condition nobody sees the keys of configurations.
    rows = whole_rows(store, asked, configured=bool(columns_of or sort) or where is not None)
    for name in asked:
        _warn_unknown(rows, f"{name.removesuffix('.value')}.last", f"of= names {name!r}, which was said in no run")
    for name in columns_of:
        if not set("*?[") & set(name):
            key = f"{CONFIG}{name.removeprefix(CONFIG)}"
            _warn_unknown(rows, key, f"config= names {name!r}, which no run has")
    rows = [row for row in rows if since is None or (row["last"] or 0.0) >= since]
    rows = chosen(rows)
    for column in reversed([sort] if isinstance(sort, str) else list(sort or ())):
        _sort(rows, column)
    if last is not None:
        rows = rows[len(rows) - min(last, len(rows)) :]
    if not (columns_of or sort) and where is None:
        return rows
    patterns = [f"{CONFIG}{name.removeprefix(CONFIG)}" for name in columns_of]
    columns = {name: None for row in rows for name in row if name.startswith(CONFIG) and _is_asked(name, patterns)}
    missing = [name for name in patterns if not set("*?[") & set(name)]
    return [
        {name: value for name, value in row.items() if not name.startswith(CONFIG)}
        | {name: row.get(name) for name in dict.fromkeys([*missing, *columns])}
        for row in rows
    ]


def _warn_unknown(rows: list[dict[str, Any]], column: str, sentence: str) -> None:
    if rows and not any(column in row for row in rows):
        start = column.partition(".")[0] if column.startswith(CONFIG) else ""
        known = sorted({name for row in rows for name in row if name.startswith(start)})
        warn_of_record(sentence + nearest(column, known))


def _is_asked(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _names(given: Iterable[str], what: str = "of") -> list[str]:
    if isinstance(given, str):
        raise TypeError(f"{what}= is a list of names, as {what}=[{given!r}]")
    return list(given)


def condition_of(where: Where) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """A function that gives those of some rows that are meant."""
    if where is None:
        return lambda rows: rows
    if isinstance(where, str):
        return Condition(where).chosen
    if not callable(where):
        raise TypeError(f"where= is a condition as text or a function of a row, not {where!r}")
    return lambda rows: [row for row in rows if where(row)]


def _sort(rows: list[dict[str, Any]], column: str) -> None:
    name = column.removeprefix("-")
    if rows and not any(name in row for row in rows):
        known = sorted({key for row in rows for key in row})
        raise RecordError(f"sort= names {name!r}, which no run has{nearest(name, known)}")
    there = [row for row in rows if not _is_missing(row.get(name))]
    kinds = {type(row[name]) for row in there}
    plain = kinds <= {int, float, bool} or len(kinds) == 1
    there.sort(key=lambda row: row[name] if plain else str(row[name]), reverse=column.startswith("-"))
    rows[:] = there + [row for row in rows if _is_missing(row.get(name))]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


# -- rows


def whole_rows(store: Place, of: Iterable[str], *, configured: bool = True) -> list[dict[str, Any]]:
    """The rows of all runs; if `configured`, with every key of their configurations."""

    def work(view: StoreSnapshot) -> tuple[list[dict[str, Any]], dict[str, int]]:
        return _rows(view, configured=configured)

    with opened_at(store) as opened:
        rows, holes = look(opened, work)
        if holes:  # looked at once more, as what another process is about to write would pass for them
            _, again = look(opened, work)
            for row in rows:
                missing = min(holes.get(row["run"], 0), again.get(row["run"], 0))
                row["forwards"] += missing
                row["lost"] += missing
    for name in (asked.removesuffix(".value") for asked in of):
        for row in rows:
            if f"{name}.last" not in row:
                try:
                    total = total_of(reader.curve(store, row["run"], of=name))
                except UnknownName:
                    continue
                _add_number(row, _columns_of(name), total)
    return rows


def _rows(view: StoreSnapshot, *, configured: bool) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """A row per run, and of each the numbers that were given out and are not, or not yet, written down."""
    going_on = {tail.run for tail in view.tails}
    for key, _ in view.reading.items(b"o"):
        if key[:1] != b"o":
            break
        going_on.add(record_format.run_of(key))
    rows: list[dict[str, Any]] = []
    holes: dict[str, int] = {}
    for run, name, totals in view.totals():
        stored = None if run in going_on else _stored(view, run)
        if stored is None or stored["end"] is None:
            lines = RunLines(view, run)
            row = run_row(lines)
            missing = row.pop("holes")
            _add_summary(row, vars(lines.summary(exact=False)), configured=configured)
        else:
            _, known, broke, interrupted, lost, took, first, last, highest, _ = totals
            row = _run_row(name, known, broke, interrupted, lost, took, first, last)
            missing = highest + 1 - known
            _add_summary(row, stored, configured=configured)
        rows.append(row)
        if missing:
            holes[row["run"]] = missing
    return rows, holes


def _stored(view: StoreSnapshot, run: int) -> dict[str, Any] | None:
    """The map of a `RunSummary` as it is stored: a listing reads thousands, and makes no object of each."""
    key = record_format.run_prefix(b"e", run)
    sealed = view.reading.get(key)
    try:
        known: dict[str, Any] | None = None if sealed is None else record_format.unpack_map(key, sealed)
    except BadValue:
        return None
    return known


def _add_summary(row: dict[str, Any], summary: dict[str, Any], *, configured: bool) -> None:
    state, why, when, launches = summary["end"]
    row["state"] = state
    row["why"] = why or None
    row["ended"] = when / 1e6 if when else None
    row["launches"] = launches
    row["tags"] = summary["tags"]
    row["note"] = summary["note"] or None
    for path, total in summary["numbers"].items():
        _add_number(row, _columns_of(path), total)
    if configured:
        for key, value in summary["config"].items():
            row[f"{CONFIG}{key}"] = value


@lru_cache(4096)
def _columns_of(path: str) -> tuple[str, ...]:
    name = path.removesuffix(".value")
    return tuple(f"{name}.{what}" for what in ("last", "last_at", "min", "min_at", "max", "max_at", "odd"))


def _add_number(row: dict[str, Any], columns: tuple[str, ...], total: Sequence[Any]) -> None:
    """Add the columns of the totals of a number, a `NumberTotal` or its fields."""
    said, odd, last, last_at, low, low_at, high, high_at = total
    if not said:
        return
    row[columns[0]], row[columns[1]] = last, last_at
    if low_at >= 0:
        row[columns[2]], row[columns[3]], row[columns[4]], row[columns[5]] = low, low_at, high, high_at
    if odd:
        row[columns[6]] = odd


def run_row(lines: RunLines) -> dict[str, Any]:
    """The totals of one run; its `holes` are numbers that were given out and are not, or not yet, written down."""
    name, rows, broke, interrupted, lost, took, first, last, _, _ = lines.info
    more = lines.counted()
    if more.rows:
        rows, broke, interrupted = rows + more.rows, broke + more.broke, interrupted + more.interrupted
        lost, took, last = lost + more.lost, took + more.took_us, max(last, more.last)
        first = min(first, more.first) if first else more.first
    row = _run_row(name, rows, broke, interrupted, lost, took, first, last)
    return {**row, "holes": lines.highest() + 1 - rows}


def _run_row(
    name: str, rows: int, broke: int, interrupted: int, lost: int, took: int, first: int, last: int
) -> dict[str, Any]:
    return {
        "run": name,
        "forwards": rows,
        "broke": broke,
        "interrupted": interrupted,
        "lost": lost,
        "took_us": took,
        "first": first / 1e6 if rows else None,
        "last": last / 1e6 if rows else None,
    }


# -- the best


def best(store: Place, of: str = "loss", *, mode: str, where: Where = None) -> dict[str, Any]:
    """The run and forward with the largest (``mode="max"``) or smallest (``"min"``) value of a number.

    A dict with `run`, `forward`, `value` and `config`, flat. NaN and infinity never win; of equal values the run that
    was begun first, then the first forward. Raises `UnknownName` where no run that is meant said a finite one.
    """
    if mode not in ("max", "min"):
        raise RecordError(f"mode={mode!r}: it is 'max' or 'min'")
    of, chosen = of.removesuffix(".value"), condition_of(where)
    rows = chosen(whole_rows(store, [of]))
    there = [row for row in rows if f"{of}.{mode}" in row]
    if not there:
        known = {name.removesuffix(".last") for row in rows for name in row if name.endswith(".last")}
        raise UnknownName(f"no finite {of!r} was said in any of {len(rows)} runs{nearest(of, sorted(known))}")
    sign = -1 if mode == "max" else 1
    row = min(there, key=lambda row: sign * row[f"{of}.{mode}"])
    config = {name.removeprefix(CONFIG): value for name, value in row.items() if name.startswith(CONFIG)}
    return {"run": row["run"], "forward": row[f"{of}.{mode}_at"], "value": row[f"{of}.{mode}"], "config": config}


# -- what differs


def compare(store: Place, run: Iterable[str], *, only_changed: bool = True) -> list[dict[str, Any]]:
    """The differences between runs: a row ``{"kind", "name", "values"}`` per thing, its values in the order of `run`.

    The kinds are ``"end"``, ``"config"``, ``"version"``, ``"code"`` (the git commit), ``"graph"``, ``"number"`` (last,
    smallest and largest of those that are summarised) and ``"time"`` (mean microseconds of a node's run in the last 200
    forwards). Of the graph there are a node's class and marks, what feeds it (``"fit: fed by"``), and a digest of its
    own code (``"fit: code"``: of its function, or its class's methods, not of what these call). Numbers and times are
    listed, the most different first, where they differ by more than 10 % and by more than each run's own spread over
    its last 200 forwards. With ``only_changed=False`` all are listed.
    Raises `UnknownRun`.
    """
    names = _names(run, "run")
    if len(names) < 2:
        raise RecordError(f"run={names!r}: give two runs or more")
    with opened_at(store) as opened:
        known = [look(opened, lambda view, name=name: about_of(lines_of(view, name))) for name in names]  # type: ignore[misc]
    rows = _plain_rows(known, only_changed=only_changed)
    return rows + _numbers(store, names, only_changed=only_changed) + _times(store, names, only_changed=only_changed)


def _plain_rows(known: list[dict[str, Any]], *, only_changed: bool) -> list[dict[str, Any]]:
    # A process that died at once noted neither versions nor its commit: that is no difference.
    gathered = [one for one in known if "versions" in one]
    tables: list[tuple[str, list[dict[str, Any]], Callable[[dict[str, Any]], dict[str, Any]]]] = [
        ("end", known, lambda one: {"state": one.get("state"), "why": one.get("why")}),
        ("config", known, lambda one: flat(one["config"])),
        ("version", gathered, lambda one: {"python": one.get("python"), **(one.get("versions") or {})}),
        ("code", gathered, lambda one: _commit(one.get("git") or {})),
        ("graph", known, _graph),
    ]
    rows: list[dict[str, Any]] = []
    for kind, compared, table_of in tables:
        counted = [table_of(one) for one in compared]
        names = dict.fromkeys(name for table in counted for name in table)
        rows += [
            {"kind": kind, "name": name, "values": [table_of(one).get(name) for one in known]}
            for name in names
            if not only_changed or _differs([table.get(name) for table in counted])
        ]
    # Bytecode differs between versions of Python, and what feeds a node says nothing where there is none.
    versions = {str(one.get("python")).rpartition(".")[0] for one in known}
    details = (_FED, _CODE) if len(versions) == 1 else (_FED,)
    return [row for row in rows if row["kind"] != "graph" or _is_whole(row, details)]


def _is_whole(row: dict[str, Any], details: tuple[str, ...]) -> bool:
    """Whether a row of the graph is of a node, or of a detail that every run has."""
    name, values = row["name"], row["values"]
    return not name.endswith((_FED, _CODE)) or (name.endswith(details) and None not in values)


def _commit(git: Mapping[str, Any]) -> dict[str, Any]:
    return {"commit": git.get("commit"), "changed since": git.get("dirty")} if git else {}


_FED, _CODE = ": fed by", ": code"


def _graph(one: Mapping[str, Any]) -> dict[str, Any]:
    """Of the graph that a run had last each node's class and marks, what feeds it, and the digest of its code."""
    last = one["graphs"][-1] if one["graphs"] else {"nodes": [], "edges": []}
    marks, found = last.get("marks", {}), {}
    for node in last["nodes"]:
        id = node["id"]
        found[id] = " ".join([node["class"], *(mark for mark, said in marks.items() if id in said)])
        found[f"{id}{_FED}"] = ", ".join(before for before, after in last["edges"] if after == id)
        found[f"{id}{_CODE}"] = one["node_code"].get(id)
    return found


def _differs(values: list[Any]) -> bool:
    return any(value != values[0] for value in values[1:])


def _numbers(store: Place, names: list[str], *, only_changed: bool) -> list[dict[str, Any]]:
    rows = {row["run"]: row for row in whole_rows(store, ())}
    known = {name.removesuffix(".last"): None for run in names for name in rows[run] if name.endswith(".last")}
    found = []
    for number in known:
        spreads = [_spread(store, run, number) for run in names if f"{number}.last" in rows[run]]
        for what in ("last", "min", "max"):
            values = [rows[run].get(f"{number}.{what}") for run in names]
            found.append(
                (_share(values, max(spreads)), {"kind": "number", "name": f"{number}.{what}", "values": values})
            )
    return _ordered(found, only_changed=only_changed)


def _spread(store: Place, run: str, of: str) -> float:
    values = [value for _, value in reader.curve(store, run, of=of, last=_SAMPLE) if math.isfinite(value)]
    return pstdev(values) if len(values) > 1 else 0.0


def _times(store: Place, names: list[str], *, only_changed: bool) -> list[dict[str, Any]]:
    samples: list[dict[str, list[int]]] = []
    for run in names:
        took: dict[str, list[int]] = {}
        for fact in reader.facts(store, run, last=_SAMPLE):
            if fact.get("fact") == "ran":
                took.setdefault(fact["node"], []).append(micro(fact, "took_us"))
        samples.append(took)
    found = []
    for node in dict.fromkeys(node for took in samples for node in took):
        values = [fmean(took[node]) if node in took else None for took in samples]
        spread = max(pstdev(took[node]) for took in samples if node in took)
        found.append((_share(values, spread), {"kind": "time", "name": node, "values": values}))
    return _ordered(found, only_changed=only_changed)


def _share(values: list[float | None], spread: float) -> float:
    """By what part of the largest the values differ; 0 where that is within their spread, 1 where one is missing."""
    there = [value for value in values if value is not None and math.isfinite(value)]
    if len(there) < len(values):
        return 1.0 if there else 0.0
    apart, largest = max(there) - min(there), max(map(abs, there))
    return apart / largest if largest and apart > spread else 0.0


def _ordered(found: list[tuple[float, dict[str, Any]]], *, only_changed: bool) -> list[dict[str, Any]]:
    found.sort(key=lambda one: -one[0])
    return [row for share, row in found if share > _CLOSE or not only_changed]

"""What was recorded, read back: rows as plain dicts, curves as points, facts as they were told.

A reader takes a Store, or the path of one that exists; with no `run` the only one there is. It sees all that was
said in this process before the call, and what returned in another one. It keeps nothing open, changes nothing and
blocks no writer. One record that is damaged is named in a `RecordWarning` and skipped.

`last=N` means the last N forwards of the run, `since=n` those from number n on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from somatize.errors import UnknownForward
from somatize.facts import Fact
from somatize.store import schema
from somatize.store.lmdb_environment import BadValue
from somatize.store.record_format import field_path, last_said, number, unpack
from somatize.store.run_reader import Line, RunLines, Stored, StoreSnapshot, look

from .forward_reader import Place, all_rows, check_range, first_of, lines_of, opened_at, path_in
from .node_totals import NodeTally, Spent

T = TypeVar("T")
_NUMBERS = ("took_us", "nodes")


def runs(store: Place, *, last: int | None = None, since: float | None = None) -> list[dict[str, Any]]:
    """A row per run, in the order they were begun, from totals: the forwards are not looked at.

    `forwards` counts all of them, `broke`, `interrupted` and `lost` those that ended so; `took_us` is their sum.
    `first` and `last` are when the first and the last forward was written down, in seconds since 1970, None before
    there is one. `last=N` gives the last N runs, `since=t` those written to at or after that time.
    """
    check_range(last, None)
    with opened_at(store) as opened:
        rows, holes = look(opened, _run_rows)
        if holes:  # looked at once more, as what another process is about to write would pass for them
            _, again = look(opened, _run_rows)
            for row in rows:
                missing = min(holes.get(row["run"], 0), again.get(row["run"], 0))
                row["forwards"] += missing
                row["lost"] += missing
    rows = [row for row in rows if since is None or (row["last"] or 0.0) >= since]
    return rows if last is None else rows[len(rows) - min(last, len(rows)) :]


def _run_rows(view: StoreSnapshot) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """A row per run, and of each the numbers that were given out and are not, or not yet, written down."""
    going_on = {tail.run for tail in view.tails}
    for key, _ in view.reading.items(b"o"):
        if key[:1] != b"o":
            break
        going_on.add(schema.run_of(key))
    rows: list[dict[str, Any]] = []
    holes: dict[str, int] = {}
    for run, name, totals in view.totals():
        if run in going_on:
            row = run_row(RunLines(view, run))
            missing = row.pop("holes")
        else:
            _, known, broke, interrupted, lost, took, first, last, highest, _ = totals
            row = _run_row(name, known, broke, interrupted, lost, took, first, last)
            missing = highest + 1 - known
        rows.append(row)
        if missing:
            holes[row["run"]] = missing
    return rows, holes


def run_row(lines: RunLines) -> dict[str, Any]:
    """The row of one run; its `holes` are numbers that were given out and are not, or not yet, written down."""
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


def forwards(
    store: Place, run: str | None = None, *, last: int | None = None, since: int | None = None
) -> list[dict[str, Any]]:
    """A row per forward, by number: `forward`, `state`, `nodes`, `took_us`, each summarised field, `when`.

    `nodes` counts those that ran, were recalled or failed. `took_us` is None until the forward ended, a summarised
    field (such as ``loss.value``) is the text that was said last, or None. `when` is when the row was written
    down, in seconds since 1970. A number that was given out and never written down reads as `lost`.
    """
    check_range(last, since)
    with opened_at(store) as opened:
        return all_rows(opened, run, last, since)


def facts(
    store: Place, run: str | None = None, forward: int = -1, *, last: int | None = None, since: int | None = None
) -> list[Fact]:
    """The facts of one forward, as a watcher was told them, then those said after it; -1 is the last forward.

    With `last` or `since`, those of all these forwards, one after the other. Raises `UnknownForward`.
    """
    check_range(last, since)
    with opened_at(store) as opened:
        if last is None and since is None:
            return look(opened, lambda view: _facts_of(lines_of(view, run), forward))
        return look(opened, lambda view: _facts_from(lines_of(view, run), last, since))


def _facts_of(lines: RunLines, forward: int) -> list[Fact]:
    highest = lines.highest()
    wanted = forward if forward >= 0 else highest + 1 + forward
    if not 0 <= wanted <= highest:
        held = f"forwards 0 to {highest}" if highest >= 0 else "no forwards yet"
        raise UnknownForward(f"run {lines.name!r} holds {held}, and no forward {forward}")
    lines.only(wanted, wanted)
    try:
        return list(unpack(lines.bodies(wanted) or []))
    except (BadValue, ValueError):
        lines.skip(wanted)
        return []


def _facts_from(lines: RunLines, last: int | None, since: int | None) -> list[Fact]:
    found = sorted(lines.facts(first_of(lines, last, since)), key=lambda one: one[0])
    return [fact for _, told in found for fact in told]


def nodes(store: Place, run: str | None = None, last: int | None = None) -> list[dict[str, Any]]:
    """A row per node, the one that took longest first, over the whole run or its last N forwards.

    `ran`, `recalled` and `failed` count how its turns ended, `took_us` sums all of them and `mean_us` is the mean
    of those that ran, None where none did: what was recalled or failed does not count in it. `hosts` and `devices`
    list where it was. Times of branches that ran at once, and of a forward within a node, add up to more than the clock
    showed. Reads every fact it covers.
    """
    check_range(last, None)
    with opened_at(store) as opened:
        return look(opened, lambda view: _node_rows(lines_of(view, run), last))


def _node_rows(lines: RunLines, last: int | None) -> list[dict[str, Any]]:
    return [_node_row(spent) for spent in NodeTally().over(lines, first_of(lines, last, None)).spent()]


def _node_row(spent: Spent) -> dict[str, Any]:
    places = list(spent.turns)
    return {
        "node": spent.node,
        "ran": spent.count("ran"),
        "recalled": spent.count("recalled"),
        "failed": spent.count("failed"),
        "took_us": spent.us,
        "hosts": list(dict.fromkeys(where.host for where, _ in places if where.host)),
        "devices": list(dict.fromkeys(where.device for where, _ in places if where.device)),
        "mean_us": spent.mean_us,
    }


def curve(
    store: Place, run: str | None = None, of: str = "loss", *, last: int | None = None, since: int | None = None
) -> list[tuple[int, float]]:
    """The points of a said number over the forwards of a run: ``(forward, value)``, by number.

    ``"loss"`` means its ``loss.value``, ``"ran.took_us"`` the field of any fact, ``"val.loss"`` the `loss` of `val`
    facts or else the value of `val.loss` facts; ``"took_us"`` and ``"nodes"`` are those of the forward. One that was
    said several times in a forward counts once, with its last value; a forward without it, or with what is no number,
    is left out. It is the same whether it was summarised or not. Where a run was resumed and steps were done again,
    each forward has its own number: nothing is replaced. Raises `UnknownName` for what nothing in the run said; the
    loss may be missing.

    Values are floats: a whole number beyond 2**53 is rounded, and one beyond 1.8e308 is infinite; `facts` has the text.
    """
    check_range(last, since)
    with opened_at(store) as opened:
        return look(opened, lambda view: _points_of(lines_of(view, run), of, last, since))


def curve_costs(
    store: Place, run: str | None = None, of: str = "loss", *, last: int | None = None, since: int | None = None
) -> str:
    """What `curve` with the same arguments does: one ``"scan"`` of columns, or a ``"fetch"`` of each record's facts."""
    check_range(last, since)
    if of in _NUMBERS:
        return "scan"
    with opened_at(store) as opened:
        return look(opened, lambda view: _costs(lines_of(view, run), of, last, since))


def _points_of(lines: RunLines, of: str, last: int | None, since: int | None) -> list[tuple[int, float]]:
    path = path_in(lines, of)
    return _points(lines, path, last, since)


def _costs(lines: RunLines, of: str, last: int | None, since: int | None) -> str:
    path = path_in(lines, of)
    return "scan" if lines.summarised(path, first_of(lines, last, since)) else "fetch"


def _points(lines: RunLines, of: str, last: int | None, since: int | None) -> list[tuple[int, float]]:
    first = first_of(lines, last, since)
    points: list[tuple[int, float]] = []
    for block in lines.blocks(first):
        found = _block_points(lines, block, of)
        points += found if block.forwards[0] >= first else [point for point in found if point[0] >= first]
    points += [
        (line.forward, value)
        for line in lines.lines.values()
        if line.forward >= first and (value := _value_of(lines, line, of)) is not None
    ]
    # Sorting what is in order already, or nearly so, costs next to nothing.
    points.sort(key=lambda point: point[0])
    return points


def _block_points(lines: RunLines, block: Stored, of: str) -> list[tuple[int, float]]:
    try:
        if of in _NUMBERS:
            values = block.chunk.integers(of)
            return [(forward, float(v)) for forward, v in zip(block.forwards, values, strict=True) if v >= 0]
        path = field_path(of)
        if path in block.chunk:
            return _patched(lines, block, path, _column_points(block, path))
    except BadValue as error:
        lines.damaged(block, error)
        if of in _NUMBERS:
            return []
    return _scanned_points(lines, block, field_path(of))


def _column_points(block: Stored, path: str) -> list[tuple[int, float]]:
    mask, values = block.chunk.numbers(path)
    if mask is None:
        return list(zip(block.forwards, values, strict=True))
    return list(zip((forward for forward, bit in zip(block.forwards, mask, strict=True) if bit), values, strict=True))


def _patched(lines: RunLines, block: Stored, path: str, points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The same points, put right by what was said late and is not committed yet."""
    held = block.forwards
    late = {
        n: texts[path] for n, texts in lines.late.items() if path in texts and held[0] <= n <= held[-1] and n in held
    }
    if not late:
        return points
    kept = [point for point in points if point[0] not in late]
    return kept + [(forward, value) for forward, text in late.items() if (value := number(text)) is not None]


def _scanned_points(lines: RunLines, block: Stored, path: str) -> list[tuple[int, float]]:
    values = ((forward, _number_said(told, path)) for forward, told in lines.block_facts(block))
    return [(forward, value) for forward, value in values if value is not None]


def _value_of(lines: RunLines, line: Line, of: str) -> float | None:
    if of == "took_us":
        return float(line.took_us) if line.took_us >= 0 else None
    if of == "nodes":
        return float(line.nodes)
    path = field_path(of)
    if lines.has_column(line.forward, path):
        return number(line.texts[path]) if path in line.texts else None
    try:
        return _number_said(unpack(lines.bodies(line.forward) or []), path)
    except (BadValue, ValueError):
        lines.skip(line.forward)
        return None


def _number_said(told: Iterable[Fact], path: str) -> float | None:
    text = last_said(told, path)
    return None if text is None else number(text)

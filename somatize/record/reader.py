"""Readers of what was recorded: rows, curves, facts, totals of nodes; replay, and a tail that follows a run.

A reader takes a Store, or the path of one that exists; with no `run` the only one there is. It sees all that was
said in this process before the call, and what returned in another one. It keeps nothing open, changes nothing and
blocks no writer. One record that is damaged is named in a `RecordWarning` and skipped.

`last=N` means the last N forwards of the run, `since=n` those from number n on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, TypeVar

from somatize.errors import UnknownForward
from somatize.facts import Fact
from somatize.store.lmdb_environment import BadValue
from somatize.store.node_tally import NodeTally, Spent
from somatize.store.open_store import Opened
from somatize.store.record_format import OWN, field_path, last_said, number, unpack
from somatize.store.run_reader import Line, RunLines, Stored, StoreSnapshot, first_of, lines_of, look, path_in

from .column_reader import columns_of, x_values
from .forward_reader import Pages, Place, all_rows, check_range, opened_at, told_in
from .run_columns import AXES, LOST, OPEN

T = TypeVar("T")
_NUMBERS = ("took_us", "nodes")


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
    store: Place,
    run: str | None = None,
    of: str = "loss",
    *,
    last: int | None = None,
    since: int | None = None,
    x: str = "forward",
) -> list[tuple[Any, float]]:
    """The points of a said number over the forwards of a run: ``(forward, value)``, by number.

    ``"loss"`` means its ``loss.value``, ``"ran.took_us"`` the field of any fact, ``"val.loss"`` the `loss` of `val`
    facts or else the value of `val.loss` facts; ``"took_us"`` and ``"nodes"`` are those of the forward. One that was
    said several times in a forward counts once, with its last value; a forward without it, or with what is no number,
    is left out. It is the same whether it was summarised or not. Where a run was resumed and steps were done again,
    each forward has its own number: nothing is replaced. Raises `UnknownName` for what nothing in the run said; the
    loss may be missing.

    With `x` the points are ``(x, value)``, still in the order of forwards: ``"time"`` in seconds since 1970, when the
    forward was written down; ``"elapsed"`` in seconds without the gaps between launches; or the name of a number, such
    as ``"epoch"`` or ``"loss.step"``. Between two forwards of one writer that said the number, x is interpolated by the
    number of the forward; points before the first and after the last are left out.

    Values are floats: a whole number beyond 2**53 is rounded, and one beyond 1.8e308 is infinite; `facts` has the text.
    """
    check_range(last, since)
    with opened_at(store) as opened:
        points = look(opened, lambda view: _points_of(lines_of(view, run), of, last, since))
    if x == "forward":
        return points
    at = x_values(store, run, x)
    return [(at[n], value) for n, value in points if n < len(at) and at[n] == at[n]]  # NaN: it has no x


def curve_costs(
    store: Place,
    run: str | None = None,
    of: str = "loss",
    *,
    last: int | None = None,
    since: int | None = None,
    x: str = "forward",
) -> str:
    """The cost of `curve` with the same arguments: a ``"scan"`` of columns, or a ``"fetch"`` of each record's facts."""
    check_range(last, since)
    if x not in AXES and curve_costs(store, run, x) == "fetch":
        return "fetch"
    if of in _NUMBERS:
        return "scan"
    with opened_at(store) as opened:
        return look(opened, lambda view: _costs(lines_of(view, run), of, last, since))


def _points_of(lines: RunLines, of: str, last: int | None, since: int | None) -> list[tuple[Any, float]]:
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
    """The points, corrected by facts that were said late and are not committed yet."""
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


_PAUSE = 0.1


def tail(
    store: Place, run: str | None = None, *, since: int = 0, wait: float | None = None
) -> Iterator[dict[str, Any]]:
    """The records of a run as they arrive: each forward's row, with its `facts`, once it ended.

    A forward that is open is waited for, and those after it; so they come by number. It ends when the run's
    recorders are closed or dead and all was given, or, if `wait` is given, after so many seconds in which nothing
    came. Looks at the store ten times a second, and only at what grew.
    """
    following, quiet = since, time.monotonic()
    with opened_at(store) as opened:
        name = look(opened, lambda view: lines_of(view, run).name)
        while True:
            living = look(opened, lambda view: _is_written(view, name))
            for row in _ended(opened, store, name, following):
                yield row
                following, quiet = row["forward"] + 1, time.monotonic()
            if not living or (wait is not None and time.monotonic() - quiet >= wait):
                return
            time.sleep(_PAUSE)


def _is_written(view: StoreSnapshot, run: str) -> bool:
    """Whether a recorder has the run open: it then has a journal, and lives."""
    return any(view.is_alive(tail.writer) for tail in view.tails_of(lines_of(view, run).run))


def _ended(opened: Opened, store: Place, run: str, following: int) -> Iterator[dict[str, Any]]:
    for rows in Pages(store, run, None, following).rows():
        some = list(takewhile(lambda row: row["state"] != "open", rows))
        told = told_in(opened, run, [row["forward"] for row in some])
        yield from ({**row, "facts": facts} for row, (_, facts) in zip(some, told, strict=True))
        if len(some) < len(rows):
            return


def replay(store: Place, run: str | None = None, *, to: Callable[[Fact], Any], forward: int | None = None) -> int:
    """Tell a watcher the facts of one forward, or of all by number, each as a dict of its own; how many there were.

    A watcher that opens sinks (a Recorder) gets them by hand, and makes a record per forward of them; of one that was
    lost or is open it makes one without an end. A watcher with a `say_of_run` (a Recorder, a Live) is first told what
    was said of the run as a whole. What it raises passes through, and ends the replay.
    """
    count = 0
    if forward is not None:
        return _tell(to, facts(store, run, forward), ended=True)
    say_of_run, retold = getattr(to, "say_of_run", None), getattr(to, "retold", None)
    if say_of_run is not None:
        for fact in _own(store, run):
            say_of_run(fact)
            count += 1
    for told, state, writer in _records(store, run):
        if retold is not None:
            retold(told, state, writer)
            count += len(told)
        else:
            count += _tell(to, told, ended=state not in (LOST, OPEN))
    return count


def _tell(to: Any, told: Sequence[Fact], *, ended: bool) -> int:
    """Tell the facts of a forward; one that never ended must not be taken for the beginning of the next."""
    sink = to.opens(None) if not ended and hasattr(to, "opens") else None
    for fact in told:
        (to if sink is None else sink.tell)(fact)
    if sink is not None:
        sink.closed()
    return len(told)


def _own(store: Place, run: str | None) -> list[Fact]:
    def work(lines: Any) -> list[Fact]:
        return [fact for part in lines.own({}) for _, told in lines.unpacked(OWN, [part.body]) for fact in told]

    with opened_at(store) as opened:
        return look(opened, lambda view: work(lines_of(view, run)))


def _records(store: Place, run: str | None) -> Iterator[tuple[list[Fact], int, int]]:
    """The facts, state and writer of each forward."""
    columns = columns_of(store, run, [])
    with opened_at(store) as opened:
        told = told_in(opened, columns.run, columns.forwards)
        for (_, facts_of_it), state, writer in zip(told, columns.states, columns.writers, strict=True):
            yield facts_of_it, state, writer

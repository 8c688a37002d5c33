"""What a Status said, read back: tasks, log records, and how streams went.

A fact said inside of a forward lies in that forward; one said outside of any in the record of the run itself. The
readers give both, with the number of the forward or None.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from somatize.errors import RecordError, nearest
from somatize.facts import Fact
from somatize.store import schema
from somatize.store.record_format import unpack
from somatize.store.run_reader import RunLines, look

from .forward_reader import Place, lines_of, opened_at
from .run_info import writers_of

_Said = tuple[int | None, Fact]
LOG_FIELDS = ("level", "logger", "message", "task", "node", "host")
"""The fields of a row of `logs`, after the forward."""


def tasks(store: Place, run: str | None = None) -> list[dict[str, Any]]:
    """A row per task that was said, in the order they were last said within each record, those not over at the end.

    `state` is ``"finished"``, ``"failed"``, ``"open"``, or ``"lost"`` where its process died; `took_us` is until then.
    `why` is there for one that failed, and `mark` says if it was left open or broken off. Reads every fact of the run.
    """
    with opened_at(store) as opened:
        return look(opened, lambda view: _tasks(lines_of(view, run)))


def logs(store: Place, run: str | None = None, level: int | str | None = None) -> list[dict[str, Any]]:
    """A row per log record that was said, from `level` on: a name or number of `logging`. Reads every fact."""
    lowest = _level(level)
    rows = _rows(store, run, "log", lambda fact: {field: fact.get(field) for field in LOG_FIELDS})
    return [row for row in rows if lowest is None or _number_of(row["level"]) >= lowest]


def throughput(store: Place, run: str | None = None, stream: str | None = None) -> list[dict[str, Any]]:
    """A row per time a stream's `stats` were said, of all streams or of one. Reads every fact of the run."""
    rows = _rows(store, run, "throughput", stats_of)
    if stream is None:
        return rows
    known = {row["stream"] for row in rows}
    if stream not in known:
        raise RecordError(f"no stream {stream!r} was said{nearest(stream, sorted(map(str, known)))}")
    return [row for row in rows if row["stream"] == stream]


def _rows(store: Place, run: str | None, kind: str, row: Callable[[Fact], dict[str, Any]]) -> list[dict[str, Any]]:
    with opened_at(store) as opened:
        said = look(opened, lambda view: list(said_in(lines_of(view, run), kind)))
    return [{"forward": forward, **row(fact)} for forward, fact in said]


def said_in(lines: RunLines, kind: str) -> Iterator[_Said]:
    """Every fact of a kind, each with its forward: those of the run itself first."""
    own = unpack(lines.bodies(schema.OWN) or [])
    yield from ((None, fact) for fact in own if fact.get("fact") == kind)
    for forward, told in lines.facts():
        yield from ((forward, fact) for fact in told if fact.get("fact") == kind)


def _tasks(lines: RunLines) -> list[dict[str, Any]]:
    return tasks_of(lines, said_in(lines, "task"))


def tasks_of(lines: RunLines, facts: Iterable[tuple[int | None, Fact]]) -> list[dict[str, Any]]:
    """What `tasks` gives of these facts of tasks, each with its forward, and of those that are open."""
    latest: dict[object, _Said] = {}
    for said in facts:
        key = said[1].get("id") or object()
        latest.pop(key, None)
        latest[key] = said
    for told in lines.open_tasks():
        latest[told.fact["id"]] = (None if told.forward == schema.OWN else told.forward), told.fact
    alive: set[str] | None = None
    rows = []
    for forward, fact in latest.values():
        row = _task(forward, fact)
        if row["state"] == "open":
            if alive is None:
                alive = {str(one.get("pid")) for one in writers_of(lines) if one.get("alive")}
            row["state"] = "open" if fact.get("id", "").partition("-")[0] in alive else "lost"
        rows.append(row)
    return rows


def _task(forward: int | None, fact: Fact) -> dict[str, Any]:
    return {
        "forward": forward,
        "name": fact.get("name"),
        "state": fact.get("state"),
        "took_us": _number(fact.get("took_us")),
        "done": _number(fact.get("done")),
        "total": _number(fact.get("total")),
        "parent": fact.get("parent"),
        "node": fact.get("node"),
        "host": fact.get("host"),
        "why": fact.get("why"),
        "mark": fact.get("mark"),
    }


def stats_of(fact: Fact) -> dict[str, Any]:
    """What a fact of a stream says, as `throughput` gives it."""
    numbers = ("samples", "batches", "samples_per_s", "batches_per_s", "flops_per_s", "waiting")
    exact = {"True": True, "False": False}.get(fact.get("flops_exact", ""))
    row: dict[str, Any] = {"stream": fact.get("stream")}
    row.update({field: _number(fact.get(field)) for field in numbers})
    return row | {"flops_exact": exact}


def _number(text: str | None) -> float | int | None:
    try:
        return None if text is None else int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return None


def _level(level: int | str | None) -> int | None:
    if level is None or (isinstance(level, int) and not isinstance(level, bool)):
        return level
    known = logging.getLevelNamesMapping()
    if level not in known:
        raise RecordError(f"level={level!r} is no level of logging{nearest(str(level).upper(), list(known))}")
    return known[level]


def _number_of(level: str | None) -> int:
    """The number of a level by its name; one that only the recording process knew counts as the highest."""
    known = logging.getLevelNamesMapping()
    if level in known:
        return known[level]
    digits = (level or "").rpartition(" ")[2]  # "Level 35", as logging names what has no name
    return int(digits) if digits.isdigit() else logging.CRITICAL

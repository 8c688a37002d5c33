"""Which tables there are of a run, and how each is read for an exporter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from somatize.errors import ExportError, nearest
from somatize.record import reader, status_reader
from somatize.record.asked import Place, check_range, lines_of, opened_at
from somatize.store.lines import RunLines
from somatize.store.view import look
from somatize.utils.notices_part import held_back, warn

from .streamed import facts_table, forwards_table, logs_table
from .table import Table, Wanted, surveyed
from .text_columns import Kind

T = TypeVar("T")


class Asked(NamedTuple):
    """What an exporter was asked for."""

    store: Place
    run: str | None
    of: str
    last: int | None
    since: int | None


def read(asked: Asked, write: Callable[[Table], T]) -> tuple[T, tuple[str, ...]]:
    """What `write` makes of a table, and what could not be read of it, in sentences; these are warned about too.

    `write` may be called again where the store is read without locks. Raises `ExportError`, before anything is read,
    for a table there is not or a stretch that it cannot be asked for.
    """
    _check(asked)
    with held_back() as sentences:
        made = _STREAMED[asked.of](asked, write) if asked.of in _STREAMED else write(_LISTED[asked.of](asked))
    left_out = tuple(dict.fromkeys(sentences))
    for sentence in left_out:
        warn(sentence)
    return made, left_out


def _check(asked: Asked) -> None:
    check_range(asked.last, asked.since)
    if asked.of not in TABLES:
        raise ExportError(f"there is no table of {asked.of!r}{nearest(str(asked.of), list(TABLES))}; {_there_are()}")
    if asked.of == "runs" and asked.run is not None:
        raise ExportError(f"the table of runs is of a whole store, not of the run {asked.run!r}; give None")
    if asked.since is not None and asked.of not in ("forwards", "facts"):
        raise ExportError(f"a table of {asked.of} cannot be asked for with since=; of forwards and facts it can")
    if asked.last is not None and asked.of not in ("forwards", "facts", "nodes"):
        raise ExportError(f"a table of {asked.of} cannot be asked for with last=; of forwards, facts and nodes it can")


def _there_are() -> str:
    return f"there are {', '.join(TABLES[:-1])} and {TABLES[-1]}"


def _forwards(asked: Asked, write: Callable[[Table], T]) -> T:
    with opened_at(asked.store) as opened:
        # Journals are not read at one instant; `reader.forwards` says why there are two looks.
        seen = look(opened, lambda view: lines_of(view, asked.run).highest())
        return look(
            opened, lambda view: write(forwards_table(lines_of(view, asked.run), seen, asked.last, asked.since))
        )


def _looked(asked: Asked, table: Callable[[RunLines], Table], write: Callable[[Table], T]) -> T:
    with opened_at(asked.store) as opened:
        return look(opened, lambda view: write(table(lines_of(view, asked.run))))


def _facts(asked: Asked, write: Callable[[Table], T]) -> T:
    return _looked(asked, lambda lines: facts_table(lines, asked.last, asked.since), write)


def _logs(asked: Asked, write: Callable[[Table], T]) -> T:
    return _looked(asked, logs_table, write)


def _nodes(asked: Asked) -> Table:
    counts = [Wanted(name, Kind.WHOLE) for name in ("ran", "recalled", "failed")]
    wanted = [Wanted("node", Kind.NAME), *counts, Wanted("took_us", Kind.WHOLE, "us")]
    wanted += [Wanted("hosts", Kind.NAMES), Wanted("devices", Kind.NAMES), Wanted("mean_us", Kind.NUMBER, "us")]
    return _listed(asked, wanted, reader.nodes(asked.store, asked.run, asked.last))


def _tasks(asked: Asked) -> Table:
    wanted = [
        Wanted("forward", Kind.WHOLE),
        Wanted("name", Kind.TEXT),
        Wanted("state", Kind.NAME),
        Wanted("took_us", Kind.WHOLE, "us", said=True),
        Wanted("done", said=True),
        Wanted("total", said=True),
        Wanted("parent", Kind.TEXT),
        Wanted("node", Kind.NAME),
        Wanted("host", Kind.NAME),
        Wanted("why", Kind.TEXT),
        Wanted("mark", Kind.TEXT),
    ]
    return _listed(asked, wanted, status_reader.tasks(asked.store, asked.run))


def _throughput(asked: Asked) -> Table:
    rates = ("samples_per_s", "batches_per_s", "flops_per_s", "waiting")
    wanted = [
        Wanted("forward", Kind.WHOLE),
        Wanted("stream", Kind.NAME),
        Wanted("samples", Kind.WHOLE, said=True),
        Wanted("batches", Kind.WHOLE, said=True),
        *(Wanted(name, Kind.NUMBER, said=True) for name in rates),
        Wanted("flops_exact", Kind.TRUTH),
    ]
    return _listed(asked, wanted, status_reader.throughput(asked.store, asked.run))


def _runs(asked: Asked) -> Table:
    counts = [Wanted(name, Kind.WHOLE) for name in ("forwards", "broke", "interrupted", "lost")]
    wanted = [Wanted("run", Kind.TEXT), *counts, Wanted("took_us", Kind.WHOLE, "us")]
    wanted += [Wanted("first", Kind.INSTANT), Wanted("last", Kind.INSTANT)]
    return _listed(asked, wanted, reader.runs(asked.store))


def _listed(asked: Asked, wanted: Sequence[Wanted], rows: Sequence[dict[str, Any]]) -> Table:
    """The table of rows that a reader gave."""
    made = [tuple(_value(one, row[one.name]) for one in wanted) for row in rows]
    run = None if asked.of == "runs" else _name_of(asked)
    return Table(asked.of, run, surveyed(wanted, made), lambda: iter(made))


def _name_of(asked: Asked) -> str:
    with opened_at(asked.store) as opened:
        return look(opened, lambda view: lines_of(view, asked.run).name)


def _value(one: Wanted, value: Any) -> Any:
    if value is None:
        return None
    if one.kind is Kind.INSTANT:
        return round(value * 1e6)
    return repr(value) if one.said else value


_STREAMED: dict[str, Callable[[Asked, Callable[[Table], Any]], Any]] = {
    "forwards": _forwards,
    "facts": _facts,
    "logs": _logs,
}
_LISTED: dict[str, Callable[[Asked], Table]] = {
    "nodes": _nodes,
    "tasks": _tasks,
    "throughput": _throughput,
    "runs": _runs,
}
TABLES = (*_STREAMED, *_LISTED)
"""What there is a table of."""

"""Stored facts told again, and a run followed record by record as it is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from somatize.facts import Fact
from somatize.store.open_store import Opened
from somatize.store.run_reader import StoreSnapshot, look
from somatize.store.schema import OWN

from .column_reader import columns_of
from .forward_reader import Pages, Place, lines_of, opened_at, told_in
from .reader import facts
from .run_columns import LOST, OPEN

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
    lost or is open it makes one without an end. A watcher with a `note` (a Recorder, a Live) is first told what was
    said of the run as a whole. What it raises passes through, and ends the replay.
    """
    count = 0
    if forward is not None:
        return _tell(to, facts(store, run, forward), ended=True)
    note, retold = getattr(to, "note", None), getattr(to, "retold", None)
    if note is not None:
        for fact in _own(store, run):
            note(fact)
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

"""Stored facts told again, as the engine told them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from somatize.facts import Fact
from somatize.store.schema import OWN
from somatize.store.view import look

from .asked import Place, lines_of, opened_at
from .column_reader import columns_of
from .columns import LOST, OPEN
from .paged import told_in
from .reader import facts


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
    """Of each forward its facts, its state and its writer."""
    columns = columns_of(store, run, [])
    with opened_at(store) as opened:
        told = told_in(opened, columns.run, columns.forwards)
        for (_, facts_of_it), state, writer in zip(told, columns.states, columns.writers, strict=True):
            yield facts_of_it, state, writer

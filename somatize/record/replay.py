"""Stored facts told again, as the engine told them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from somatize.facts import Fact

from .asked import Place
from .reader import facts, forwards


def replay(store: Place, run: str | None = None, *, to: Callable[[Fact], Any], forward: int | None = None) -> int:
    """Tell a watcher the facts of one forward, or of all by number, each as a dict of its own; how many there were.

    A watcher that opens sinks (a Recorder) gets them by hand, and makes a record per forward of them. What it raises
    passes through, and ends the replay.
    """
    count = 0
    for told in _records(store, run, forward):
        for fact in told:
            to(fact)
            count += 1
    return count


def _records(store: Place, run: str | None, forward: int | None) -> Iterator[list[Fact]]:
    if forward is not None:
        yield facts(store, run, forward)
        return
    rows = forwards(store, run)
    for row in rows:
        yield facts(store, run, row["forward"])

"""A run followed from another process, record by record, as they are written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from somatize.store.opened import Opened
from somatize.store.view import View, look

from .asked import Place, lines_of, opened_at
from .paged import Pages, told_in

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


def _is_written(view: View, run: str) -> bool:
    """Whether a recorder has the run open: it then has a journal, and lives."""
    return any(view.is_alive(tail.writer) for tail in view.tails_of(lines_of(view, run).run))


def _ended(opened: Opened, store: Place, run: str, following: int) -> Iterator[dict[str, Any]]:
    for rows in Pages(store, run, None, following).rows():
        some = list(takewhile(lambda row: row["state"] != "open", rows))
        told = told_in(opened, run, [row["forward"] for row in some])
        yield from ({**row, "facts": facts} for row, (_, facts) in zip(some, told, strict=True))
        if len(some) < len(rows):
            return

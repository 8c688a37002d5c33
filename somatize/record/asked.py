"""What readers are asked for: which store, which run, which stretch of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from somatize.errors import UnknownName, UnknownRun, WhichRun, nearest
from somatize.facts import KINDS
from somatize.store.lines import RunLines
from somatize.store.opened import Opened, acquire, release
from somatize.store.packing import parted_path
from somatize.store.recovery import find_run
from somatize.store.store import Store
from somatize.store.view import View

Place: TypeAlias = Store | str | os.PathLike[str]
"""A Store, or the path of one that exists."""
_LISTED = 20


@contextmanager
def opened_at(store: Place) -> Iterator[Opened]:
    """The store that is meant; one given by its path must exist, and is let go of after."""
    if isinstance(store, Store):
        yield store.opened
        return
    if not isinstance(store, str | os.PathLike):
        raise TypeError(f"a store is given as a Store or as its path, not as {store!r}")
    opened = acquire(Path(os.path.realpath(store)))
    try:
        yield opened
    finally:
        release(opened)


def lines_of(view: View, name: str | None) -> RunLines:
    """The run that is meant: the one of that name, or the only one there is. Raises `UnknownRun` and `WhichRun`."""
    if name is not None:
        run = find_run(view.reading, name) if isinstance(name, str) and name else None
        if run is None:
            known = [info.name for _, info in view.runs()]
            raise UnknownRun(f"there is no run {name!r} in {view.opened.path}{nearest(str(name), known)}")
        return RunLines(view, run)
    runs = list(view.runs())
    if not runs:
        raise WhichRun(f"{view.opened.path} holds no run yet")
    if len(runs) > 1:
        names = ", ".join(repr(info.name) for _, info in runs[:_LISTED])
        more = f" and {len(runs) - _LISTED} more" if len(runs) > _LISTED else ""
        raise WhichRun(f"{view.opened.path} holds several runs, say which: {names}{more}")
    return RunLines(view, runs[0][0])


def path_in(lines: RunLines, name: str) -> str:
    """The path that a name means in a run: of ``took_us`` and ``nodes`` the name itself. Raises `UnknownName`.

    The loss, which is what is meant where nothing is said, may never have been said; nor may a field of the engine's
    facts, and anything in a run that has no forward yet.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of a number is a text such as 'loss', not {name!r}")
    if name in ("took_us", "nodes"):
        return name
    path = lines.path_of(name)
    kind, field = parted_path(path)
    if path == "loss.value" or path in lines.summarised_fields():
        return path
    if kind in KINDS and field in KINDS[kind].__annotations__:
        return path
    if lines.highest() < 0 or lines.was_said(path):
        return path
    known = lines.names()
    last = ", ".join(sorted(lines.said_last())[:_LISTED]) or "nothing"
    raise UnknownName(
        f"run {lines.name!r} has no number said as {name!r}; its last forward has {last}{nearest(name, known)}"
    )


def check_range(last: int | None, since: int | None) -> None:
    """Raise unless both are None, or whole numbers of zero or more."""
    for name, value in (("last", last), ("since", since)):
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name}= is a whole number, not {value!r}")
        if value < 0:
            raise ValueError(f"{name}= counts from zero; {value} is negative")


def first_of(lines: RunLines, last: int | None, since: int | None) -> int:
    """The number of the first forward of the stretch that is meant; `lines` then has nothing before it."""
    first = since or 0
    if last is not None:
        first = max(first, lines.highest() + 1 - last)
    if first:
        lines.only(first)
    return first

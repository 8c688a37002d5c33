"""The store at a PATH and the run of a name, as a command line means them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from somatize.errors import NoStore, StoreReadOnly, UnknownRun, WhichRun

if TYPE_CHECKING:
    from somatize.store.store import Store

_FORMAT = "FORMAT"
_LOOKED_AT = 1000
_NAMED = 3


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[Store]:
    """The store at `path`, to be read; nothing is made there. Raises `NoStore`, saying what is there instead."""
    from somatize.store.store import Store

    place = Path(path)
    if not is_store(place):
        raise NoStore(what_it_is(place))
    with Store(place) as store:
        yield store


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Store]:
    """The store at `path`, to be changed. Raises `StoreReadOnly` before anything is asked or done."""
    with reading(path) as store:
        if not store.opened.writable:
            raise StoreReadOnly(f"{path} may only be read: its files or directory are not writable")
        yield store


def is_store(path: Path) -> bool:
    """Whether there is a store at a place, be it damaged."""
    try:
        return (path / _FORMAT).is_file()
    except OSError:
        return False


def store_around(path: Path) -> Path | None:
    """The store that a place lies inside of, if there is anything at that place."""
    return next((one for one in path.absolute().parents if is_store(one)), None) if path.exists() else None


def what_it_is(path: Path) -> str:
    """A sentence on a place that is no store: what it is, and what to do."""
    around = store_around(path)
    if around is not None:
        return f"{path} lies inside of the store {around}; give that"
    if path.is_dir():
        return _about_directory(path)
    if path.exists():
        return f"{path} is a file; a store is a directory, made by Store({str(path.with_suffix(''))!r})"
    return f"there is nothing at {path}{_near(path)}; a store is the directory that was given to Store(...)"


def _about_directory(path: Path) -> str:
    try:
        names = sorted(islice((one.name for one in path.iterdir()), _LOOKED_AT))
    except OSError as error:
        return f"{path} is a directory that cannot be listed: {error.strerror}"
    if not names:
        return f"{path} is an empty directory: nothing was recorded there, or somewhere else"
    stores = [name for name in names if is_store(path / name)]
    if stores:
        return f"{path} is a directory of stores and none itself; give one of them: {_listed(path, stores)}"
    return (
        f"{path} is a directory but no store: it has no file {_FORMAT}, and holds "
        f"{_some(names)}; give the directory that was given to Store(...)"
    )


def _listed(path: Path, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(str(path / name) for name in names[:_NAMED]) + more


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(repr, names[:_NAMED])) + more


def _near(path: Path) -> str:
    try:
        beside = [one.name for one in islice(path.absolute().parent.iterdir(), _LOOKED_AT) if one.is_dir()]
    except OSError:
        return f", nor is there {path.parent}" if not path.parent.exists() else ""
    close = get_close_matches(path.name, beside, n=1, cutoff=0.6)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def names_of(store: Store) -> list[str]:
    """The names of the runs, in the order they were begun."""
    from somatize.store.view import look

    return look(store.opened, lambda view: [info.name for _, info in view.runs()])


def run_named(store: Store, run: str | None) -> str:
    """The run that is meant: the one of that name, or the only one. Raises `UnknownRun` and `WhichRun`."""
    from somatize.store.recovery import find_run
    from somatize.store.view import look

    if run and look(store.opened, lambda view: find_run(view.reading, run)) is not None:
        return run
    known = names_of(store)
    if run is not None:
        raise UnknownRun(f"there is no run {run!r} in {store.path}{_alike(run, known)}{_list_them(store.path, known)}")
    if len(known) == 1:
        return known[0]
    raise WhichRun(_which(store.path, known))


def _which(path: Path, known: list[str]) -> str:
    if not known:
        return f"{path} holds no run yet"
    newest = ", ".join(map(repr, known[-_NAMED:]))
    first = "the last of them are " if len(known) > _NAMED else ""
    return f"{path} holds {len(known):,} runs, say which: {first}{newest}{_list_them(path, known)}"


def _alike(run: str, known: list[str]) -> str:
    """The names that a mistyped one may stand for: those it is a part of, else the one that looks most like it."""
    near = [name for name in known if run.casefold() in name.casefold()][-_NAMED:] if run else []
    near = near or get_close_matches(run, known, n=1, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _list_them(path: Path, known: list[str]) -> str:
    return f" (somatize runs {quote(str(path))})" if known else ""

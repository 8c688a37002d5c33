"""Warnings given while work goes on, on stderr where warnings are errors."""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from somatize.errors import FactWarning, RecordWarning, WatcherWarning


def warn_of(watcher: object, error: Exception, nothing_more: str) -> None:
    """Warn that `watcher` raised and is no longer told `nothing_more`."""
    try:
        shown = "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # formatting an exception may raise
        shown = f"Traceback: {type(error).__name__}, which cannot be shown"
    _say_aloud(
        f"the watcher {_named(watcher)} raised and is told nothing more {nothing_more}; the work goes on.\n{shown}",
        WatcherWarning,
    )


def warn_of_sink(watcher: object, error: Exception) -> None:
    """Warn that `watcher` raised and is not told the rest of this forward."""
    warn_of(watcher, error, "of this forward")


def warn_late(fact: Mapping[str, str]) -> None:
    """Warn of a fact that a node said after its forward had ended."""
    _say_aloud(
        f"node {fact.get('node')!r} said {fact['fact']!r} after its forward had ended; nobody was told",
        FactWarning,
    )


def warn_not_drawn(shown: str, error: Exception) -> None:
    """Warn that a live view cannot be drawn any more."""
    _say_aloud(
        f"{shown} is drawn no more, as that raised {type(error).__name__}: {error}. What it is told is still counted, "
        "and the work goes on",
        WatcherWarning,
    )


def _named(watcher: object) -> str:
    name = getattr(watcher, "__qualname__", None)
    return str(name) if name else f"of type {type(watcher).__name__}"


def _say_aloud(sentence: str, category: type[Warning]) -> None:
    # Where warnings are errors, the work still goes on: the sentence then goes to stderr.
    try:
        warnings.warn(sentence, category, stacklevel=5)
    except category:
        print(f"{category.__name__}: {sentence}", file=sys.stderr)  # noqa: T201


_here = threading.local()


def warn_of_record(sentence: str) -> None:
    """Warn; a caller who makes errors of warnings must not lose a record or a row to it."""
    held: list[str] | None = getattr(_here, "held", None)
    if held is not None:
        held.append(sentence)
        return
    try:
        warnings.warn(sentence, RecordWarning, stacklevel=3)
    except RecordWarning:
        pass


@contextmanager
def held_back() -> Iterator[list[str]]:
    """Collect the warnings of this thread instead of giving them."""
    before = getattr(_here, "held", None)
    held: list[str] = []
    _here.held = held
    try:
        yield held
    finally:
        _here.held = before

"""Sentences said aloud while the work goes on: as warnings, or on stderr where warnings are errors."""

from __future__ import annotations

import sys
import traceback
import warnings

from somatize.errors import FactWarning, WatcherWarning
from somatize.facts import Fact


def warn_of(watcher: object, error: Exception, nothing_more: str) -> None:
    """Warn that `watcher` raised, and is told nothing more of, or by, what `nothing_more` says."""
    try:
        shown = "".join(traceback.format_exception(error)).rstrip()
    except Exception:  # an exception may raise when it is looked at
        shown = f"Traceback: {type(error).__name__}, which cannot be shown"
    _say_aloud(
        f"the watcher {_named(watcher)} raised and is told nothing more {nothing_more}; the work goes on.\n{shown}",
        WatcherWarning,
    )


def warn(watcher: object, error: Exception) -> None:
    """Warn that `watcher` raised, and is told nothing more of this forward."""
    warn_of(watcher, error, "of this forward")


def warn_late(fact: Fact) -> None:
    """Warn of what a node said when its forward had ended."""
    _say_aloud(
        f"node {fact.get('node')!r} said {fact['fact']!r} after its forward had ended; nobody was told",
        FactWarning,
    )


def warn_not_drawn(shown: str, error: Exception) -> None:
    """Warn that what shows itself while the work goes on cannot be drawn any more."""
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

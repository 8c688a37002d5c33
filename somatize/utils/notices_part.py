"""Warnings about records, said where nobody can catch them, and held back while it is not sure that they are true."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from somatize.errors import RecordWarning

_here = threading.local()


def warn(sentence: str) -> None:
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
    """What is warned about in this thread meanwhile, instead of being said."""
    before = getattr(_here, "held", None)
    held: list[str] = []
    _here.held = held
    try:
        yield held
    finally:
        _here.held = before

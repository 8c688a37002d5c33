"""Access to the optional C module, built from ``somatize/store/native/``, for ordinary cases of recording and reading.

It is never needed: Python does the same, more slowly, and does everything that C declines. A module with another
`VERSION` is ignored. ``SOMATIZE_PURE=1`` in the environment disables it.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Protocol

from somatize.facts import KINDS, Fact

from .record_format import parted_path

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized
    from contextlib import AbstractContextManager
    from types import ModuleType


VERSION = 4
"""The version of `_speedups` that this module calls."""


class Pen(Protocol):
    """Appends ordinary entries to a writer's journal (`fd`, of `size` bytes), with the lock of the gate held."""

    fd: int
    size: int

    def record(self, pending: Any, facts: list[Fact], open: set[Any], /) -> bool:
        """Write the record of a finished forward and remove it from `open`; False, unchanged, if it declines."""

    def late(self, number: int | None, given: object, /) -> bool:
        """Write a fact said after the forward of that number; False, unchanged, if it declines."""

    def close(self) -> None:
        """Decline everything from now on; with the lock of the gate held."""


class PlainPen:
    """The `Pen` without C: declines everything."""

    def __init__(self) -> None:
        self.fd = -1
        self.size = 0

    def record(self, pending: Any, facts: list[Fact], open: set[Any], /) -> bool:  # noqa: ARG002
        """Decline."""
        return False

    def late(self, number: int | None, given: object, /) -> bool:  # noqa: ARG002
        """Decline."""
        return False

    def close(self) -> None:
        """Do nothing."""


def _built() -> ModuleType | None:
    if os.environ.get("SOMATIZE_PURE", "0") not in ("", "0"):
        return None
    try:
        from . import _speedups
    except ImportError:
        return None
    return _speedups if _speedups.VERSION == VERSION else None


MODULE: Any = _built()
"""The module, or None."""


def lock() -> AbstractContextManager[object]:
    """A reentrant lock."""
    made: AbstractContextManager[object] = threading.RLock() if MODULE is None else MODULE.Lock()
    return made


def pen(gate: Any, fields: Sequence[str], most: int, waiting: Sized) -> Pen:
    """The pen of one writer, whose journals have at most `most` bytes; it declines while entries are `waiting`."""
    if MODULE is None:
        return PlainPen()
    made: Pen = MODULE.Pen(
        gate.count, gate.flags, tuple(map(parted_path, fields)), frozenset(KINDS), most, waiting, gate.lock
    )
    return made

"""The ordinary case of recording, done in C where the module for that was built from ``somatize/store/native/``.

It is never needed: whatever it does, Python does too, more slowly, and it declines all that is out of the ordinary. A
build of other sources than these is left alone. ``SOMATIZE_PURE=1`` in the environment keeps it out of use.
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


VERSION = 3
"""Of `_speedups`, as it is called from here."""


class Pen(Protocol):
    """Appends entries to a writer's journal, of which it has `fd` and `size`, with the lock of the gate held."""

    fd: int
    size: int

    def record(self, pending: Any, facts: list[Fact], open: set[Any], /) -> bool:
        """Write the record of a forward that finished, and take it out of those that are open; False if it declines."""

    def late(self, number: int | None, given: object, /) -> bool:
        """Write a fact said after the forward of that number, of what was said; False if it declines."""

    def close(self) -> None:
        """Decline from now on; with the lock of the gate held."""


class PlainPen:
    """Declines everything, so that Python does it."""

    def __init__(self) -> None:
        self.fd = -1
        self.size = 0

    def record(self, pending: Any, facts: list[Fact], open: set[Any], /) -> bool:  # noqa: ARG002
        """Nothing is written."""
        return False

    def late(self, number: int | None, given: object, /) -> bool:  # noqa: ARG002
        """Nothing is written."""
        return False

    def close(self) -> None:
        """There is nothing to let go of."""


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
    """A lock that its owner may take again."""
    made: AbstractContextManager[object] = threading.RLock() if MODULE is None else MODULE.Lock()
    return made


def pen(gate: Any, fields: Sequence[str], most: int, waiting: Sized) -> Pen:
    """A pen that appends to the journals of one writer, of `most` bytes each, as long as nothing is `waiting`."""
    if MODULE is None:
        return PlainPen()
    made: Pen = MODULE.Pen(
        gate.count, gate.flags, tuple(map(parted_path, fields)), frozenset(KINDS), most, waiting, gate.lock
    )
    return made

"""A run's record of itself, written while the run goes on and without making it wait."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import msgpack

from somatize.errors import RecorderClosed, RecordLost
from somatize.store.writer import Writer
from somatize.utils.interrupts import Wakeup, in_handler, start

from . import provenance

_PATIENCE = 30.0
_HASTE = 0.5


class Teller:
    """Says of a run where and by what it is made: what is known at once, at once; the rest from a thread."""

    def __init__(self, writer: Writer, about: dict[str, Any], *, diff: bool) -> None:
        writer.tells(msgpack.packb(provenance.plain({**provenance.of_process(), "about": about})))
        self._pid = os.getpid()
        self._told = Wakeup()
        tell = partial(_tell_code, writer, self._told, diff=diff)
        thread = threading.Thread(target=tell, name="somatize-about", daemon=True)
        # Not started here: that takes a lock which a signal's handler, that opens a recorder too, would wait for.
        if provenance.knows_code(diff=diff) or not start(partial(_start, thread, tell)):
            tell()

    def wait(self) -> None:
        """Return when all is said; a signal's handler, which is in haste, waits for half a second at most."""
        if self._pid == os.getpid():
            self._told.wait(_HASTE if in_handler() else _PATIENCE)
            self._told.set()


def _start(thread: threading.Thread, tell: Callable[[], object]) -> None:
    try:
        thread.start()
    except RuntimeError:  # as the interpreter ends
        tell()


def _tell_code(writer: Writer, told: Wakeup, *, diff: bool) -> None:
    try:
        found = provenance.of_code(diff=diff)
        writer.tells(msgpack.packb(provenance.plain(found)))
    except (RecorderClosed, RecordLost):
        pass  # closed by the end of the process, which does not wait for git
    finally:
        told.set()


class Graphs:
    """Says what each graph is that a recorder is given, once for each version of it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._told: set[str] = set()
        self._seen: dict[int, weakref.ref[Any]] = {}

    def tell(self, graph: Any) -> None:
        """Write it down, unless that was done; a graph that was changed since is another version."""
        # A graph has a new program after each change; it is made at its first forward.
        version = getattr(graph, "_program", None) or graph
        if version is None:
            return
        seen = self._seen.get(id(version))
        if seen is not None and seen() is version:
            return
        self._describe(graph, version)

    def _describe(self, graph: Any, version: Any) -> None:
        try:
            self._seen[id(version)] = weakref.ref(version)
            name, described = provenance.of_graph(graph)
        except (AttributeError, TypeError):
            return  # told by hand, or by something that is no graph
        if name not in self._told:
            self._told.add(name)
            self._writer.tells(msgpack.packb({f"graph {name}": described}))

"""A run's record of itself, written while the run goes on and without making it wait."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

import msgpack

from somatize.errors import RecorderClosed, RecordLost
from somatize.storage.writer import Writer

from . import provenance

_PATIENCE = 30.0


class Teller:
    """Says of a run where and by what it is made: what is known at once, at once; the rest from a thread."""

    def __init__(self, writer: Writer, about: dict[str, Any], *, diff: bool) -> None:
        writer.tells(msgpack.packb(provenance.plain({**provenance.of_process(), "about": about})))
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        if provenance.knows_code(diff=diff):
            _tell_code(writer, diff=diff)
            return
        self._thread = threading.Thread(
            target=_tell_code, args=(writer,), kwargs={"diff": diff}, name="somatize-about", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Return when all is said."""
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(_PATIENCE)


def _tell_code(writer: Writer, *, diff: bool) -> None:
    found = provenance.of_code(diff=diff)
    try:
        writer.tells(msgpack.packb(provenance.plain(found)))
    except (RecorderClosed, RecordLost):
        pass  # closed by the end of the process, which does not wait for git


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

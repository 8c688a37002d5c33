"""Journal entries made into rows: what a committer stores and what a reader sees before that are the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgpack

from . import journal
from .journal import Entry
from .schema import OPEN, OWN


class Row:
    """What is known of one forward from some stretch of a journal.

    `started` says that the stretch holds its first entry; `ended` that it holds its last. A row that did neither is
    facts said after a forward whose row is stored, or a further part of one that was open then.
    """

    __slots__ = (
        "at",
        "bodies",
        "ended",
        "forward",
        "inside",
        "nodes",
        "started",
        "state",
        "texts",
        "took_us",
        "when",
        "writer",
    )

    def __init__(self, forward: int, writer: int, at: int) -> None:
        self.forward = forward
        self.writer = writer
        self.at = at
        self.state = OPEN
        self.nodes = 0
        self.took_us = journal.NO_TIME
        self.when = 0
        self.texts: dict[str, str] = {}
        self.bodies: list[bytes] = []
        self.inside: list[str] = []
        self.started = False
        self.ended = False

    @property
    def body(self) -> bytes:
        """Its packed facts, in the order they were told."""
        return self.bodies[0] if len(self.bodies) == 1 else b"".join(self.bodies)


class Gathered:
    """The rows of a stretch of one writer's journal, by forward, and what it says about its run."""

    def __init__(self, writer: int, fields: Sequence[str], generation: int = 0) -> None:
        self.writer = writer
        self.fields = fields
        self._position = generation << 40
        self.rows: dict[int, Row] = {}
        self.about: dict[str, Any] = {}
        self.damaged: list[tuple[int, int]] = []
        self.read_to = 0

    def take(self, found: Iterable[Entry | tuple[int, int]]) -> Gathered:
        """Take in the entries that follow, in their order."""
        for one in found:
            if not isinstance(one, Entry):
                self.damaged.append(one)
                continue
            self.read_to = one.at + journal.ENTRY_HEAD + len(one.summary) + len(one.body)
            if one.kind == journal.ABOUT:
                self.about.update(msgpack.unpackb(one.body))
            else:
                self._row(one)
        return self

    def _row(self, one: Entry) -> None:
        row = self.rows.get(one.forward)
        if row is None:
            row = self.rows[one.forward] = Row(one.forward, self.writer, self._position | one.at)
        row.bodies.append(one.body)
        if one.summary:
            self._summary(row, msgpack.unpackb(one.summary))
        if one.kind == journal.LATE:
            if not row.when or one.forward == OWN:
                row.when = one.when
            return
        row.when = one.when
        row.nodes += one.nodes
        row.started |= one.kind == journal.RECORD or one.state == OPEN
        if one.kind != journal.PART:
            row.ended, row.state, row.took_us, row.inside = True, one.state, one.took_us, []

    def _summary(self, row: Row, summary: list[Any]) -> None:
        for field, text in zip(self.fields, summary, strict=False):
            if text is not None:
                row.texts[field] = text
        if len(summary) > len(self.fields):
            row.inside = summary[len(self.fields)]

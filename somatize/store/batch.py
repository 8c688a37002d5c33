"""The records a writer wrote since the last commit, as it still has them in memory.

The committing thread stores these without reading the journal back, which costs a few times less where that is not
done in C (`speedups`; there a batch holds nothing). It is a shortcut and no more: a batch holds what the journal holds
between two places. Where it does not, because it grew too large on a slow disk, or because something else was said than
records and facts about them, it is not `whole`, and the journal is read.
"""

from __future__ import annotations

from typing import Any

from .packing import MARK, Texts

MOST_BYTES = 6 << 20
"""Bytes of facts held in memory; a commit that comes too late for them reads the journal."""
_LONG = 64 << 10

Position = tuple[int, int]
"""A place in a writer's journals: the generation, and bytes of that."""

FORWARD, STATE, NODES, TOOK_US, WHEN, TEXTS, BODY = range(7)
Line = list[Any]
"""One record, as a list of these seven: it is made once per forward, and turned into columns by a single `zip`."""


class Batch:
    """The records from `start` to `end`, and the facts said meanwhile about forwards that were committed before.

    A record is appended to `lines` in place, by who sees to `open` and `most`. `late` holds forward, place, time,
    facts and summary; `about` the packed maps that say what the run is.
    """

    __slots__ = ("about", "end", "late", "lines", "most", "open", "start")

    def __init__(self, start: Position) -> None:
        self.start = self.end = start
        self.lines: list[Line] = []
        self.late: list[tuple[int, int, int, bytes, bytes]] = []
        self.about: list[bytes] = []
        self.most = start[1] + MOST_BYTES
        """The size of the journal from which on it holds too much."""
        self.open = True
        """Whether it holds all that was written so far, and takes more."""

    @property
    def whole(self) -> bool:
        """Whether it holds all that the journal has between its ends."""
        return self.open and self.start[0] == self.end[0] and self.end[1] <= self.most

    def add_old(self, late: tuple[int, int, int, bytes, bytes], size: int) -> None:
        """A fact was said about a forward of an earlier batch; the journal has `size` bytes now."""
        if self.open:
            self.late.append(late)
            if size > self.most:
                self.give_up()

    def add_about(self, about: bytes) -> None:
        """Something was said about the run."""
        if self.open:
            self.about.append(about)

    def add_late(self, line: Line, texts: Texts, body: bytes) -> None:
        """A fact was said about a record of this batch."""
        if MARK in body:
            self.give_up()  # it may be of an open task, which is no part of the record
            return
        line[BODY] = whole = line[BODY] + body
        if texts is not None:
            before = line[TEXTS]
            line[TEXTS] = texts if before is None else [
                text if text is not None else old for text, old in zip(texts, before, strict=True)
            ]  # fmt: skip
        if len(whole) > _LONG:
            self.give_up()  # adding to a long text over and over costs more than reading the journal

    def give_up(self) -> None:
        """From now on it is the journal that is read, and nothing is held."""
        self.open = False
        self.lines.clear()
        self.late.clear()
        self.about.clear()

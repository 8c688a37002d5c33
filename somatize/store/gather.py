"""Journal entries made into rows: what a committer stores and what a reader sees before that are the same rows."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import msgpack

from . import journal, speedups
from .batch import Batch, Line
from .blocks import MOST_BYTES, MOST_ROWS, Block
from .journal import ABOUT, ENTRY_HEAD, LATE, NO_TIME, PART, RECORD, UNSIZED
from .open_tasks import OpenTasks
from .packing import MARK
from .schema import OPEN, OWN

_NOTHING = b"\xc0"
_SHORT = 4096
_SIZE = struct.Struct("<I")


class Row:
    """What is known of one forward from some stretch of a journal.

    `started` says that the stretch holds its first entry; `ended` that it holds its last. A row that did neither is
    facts said after a forward whose row is stored, or a further part of one that was open then. `crc` is that of
    its facts, end to end, and `at` the place of its first entry among all that its writer wrote.

    The defaults stand on the class because tens of thousands of rows are made a second.
    """

    state = OPEN
    nodes = 0
    took_us = NO_TIME
    started = False
    ended = False

    def __init__(self, forward: int, at: int, when: int, body: bytes, summary: bytes) -> None:
        self.forward = forward
        self.at = at
        self.when = when
        self.summary = summary
        self.crc = crc32(body)
        self._body = body
        self._rest: list[bytes] | None = None

    @property
    def body(self) -> bytes:
        """Its packed facts, in the order they were told."""
        return self._body if self._rest is None else b"".join((self._body, *self._rest))

    def add(self, body: bytes, summary: bytes) -> None:
        """More facts of the same forward."""
        self.crc = crc32(body, self.crc)
        if len(self._body) < _SHORT:
            self._body += body
        else:
            self._rest = self._rest or []
            self._rest.append(body)
        if summary:
            self.summary = _merged(self.summary, summary) if self.summary else summary

    def texts(self, fields: Sequence[str]) -> dict[str, str]:
        """The summarised fields that were said."""
        values = msgpack.unpackb(self.summary) if self.summary else ()
        return {
            field: repr(text) if type(text) is float else text
            for field, text in zip(fields, values, strict=False)
            if text is not None
        }

    def inside(self, fields: Sequence[str]) -> list[str]:
        """The nodes it was in when it was last written down, if it went on then."""
        values = msgpack.unpackb(self.summary) if self.summary else ()
        return list(values[len(fields)]) if len(values) > len(fields) else []


def _merged(first: bytes, second: bytes) -> bytes:
    old, new = msgpack.unpackb(first), msgpack.unpackb(second)
    count = max(len(old), len(new))
    pairs = zip(old + [None] * (count - len(old)), new + [None] * (count - len(new)), strict=True)
    merged: bytes = msgpack.packb([text if text is not None else before for before, text in pairs])
    return merged


def summaries(rows: Sequence[Row]) -> list[list[Any] | None]:
    """The unpacked summary of each row, or None: one pass over all of them."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(b"".join([row.summary or _NOTHING for row in rows]))
    return list(unpacker)


class Gathered:
    """The rows of a stretch of one writer's journal, by forward, and what it says about its run.

    `base` is where the stretch begins in its file, `read_to` where its last whole entry ends, 0 if there is none.
    """

    def __init__(self, writer: int, fields: Sequence[str], generation: int = 0) -> None:
        self.writer = writer
        self.fields = fields
        self.rows: dict[int, Row] = {}
        self.lines: list[Line] = []
        self.blocks: list[Block] = []
        self.about: dict[str, Any] = {}
        self.damaged: list[tuple[int, int]] = []
        self.read_to = 0
        self.tasks = OpenTasks()
        self._position = generation << 40

    def take(self, buffer: bytes, base: int, turn: Callable[[], object] | None = None) -> Gathered:
        """Take in the entries that follow, in their order; `turn` is called every few dozen of them."""
        rows, unpack, at, end = self.rows, journal.ENTRY.unpack_from, 0, len(buffer)
        position = self._position + base
        while at + ENTRY_HEAD <= end:
            size, crc, kind, state, summed, nodes, forward, when, took = unpack(buffer, at)
            begin = at
            at += UNSIZED + size
            if at > end or crc32(buffer[begin + UNSIZED : at]) != crc or kind > ABOUT or kind < RECORD:
                at = journal.next_whole(buffer, begin)
                if at < 0:
                    break
                self.damaged.append((base + begin, at - begin))
                continue
            middle = begin + ENTRY_HEAD + summed
            body = buffer[middle:at]
            if kind != RECORD and MARK in body:
                body = self.tasks.take(forward, when, body)
            summary = buffer[begin + ENTRY_HEAD : middle] if summed else b""
            self.read_to = base + at
            row = rows.get(forward)
            if kind == ABOUT:
                self.about.update(msgpack.unpackb(body))
                continue
            if row is not None:
                row.add(body, summary)
            else:
                row = rows[forward] = Row(forward, position + begin, when, body, summary)
                if kind == RECORD or state == OPEN:
                    row.started = True
            if kind != LATE:
                row.nodes += nodes
                row.when = when
                if kind != PART:
                    row.ended, row.state, row.took_us = True, state, took
            if turn is not None and not forward & 31:
                turn()
        return self

    def take_to_store(self, buffer: bytes, base: int, turn: Callable[[], object] | None = None) -> None:
        """`take` for who stores the rows: those that are complete in the stretch are `blocks`, where that is quick."""
        end = 0
        if speedups.MODULE is not None:
            found, odd, end = speedups.MODULE.rows(buffer, len(self.fields), MOST_ROWS, MOST_BYTES)
            self.blocks += [Block.of_columns(words, said, body, self.fields) for words, said, body in found]
            for at in odd:
                self.take(buffer[at : at + UNSIZED + _SIZE.unpack_from(buffer, at)[0]], base + at)
        if end:
            self.read_to = base + end
        if end < len(buffer):
            self.take(buffer[end:], base + end, turn)

    def take_batch(self, batch: Batch) -> None:
        """Take in what a writer still has in memory, instead of a stretch of its journal."""
        self.lines = batch.lines
        for about in batch.about:
            self.about.update(msgpack.unpackb(about))
        for forward, at, when, said, summary in batch.late:
            body = self.tasks.take(forward, when, said) if MARK in said else said
            if forward in self.rows:
                self.rows[forward].add(body, summary)
            else:
                self.rows[forward] = Row(forward, at, when, body, summary)

    def complete(self) -> list[Line]:
        """The rows that are wholly in this stretch, as lines; by number, if all of them are a batch's."""
        rows = [row for row in self.rows.values() if row.started and row.ended and row.forward != OWN]
        found = [
            [row.forward, row.state, row.nodes, row.took_us, row.when, texts and texts[: len(self.fields)], row.body]
            for row, texts in zip(rows, summaries(rows), strict=True)
        ]
        return found + self.lines

"""Rows of forwards: read from journal entries, cut into blocks; and open tasks.

An open task is reported again and again, and only its last fact counts. That fact is stored apart from records, under
the `id` of the task, until the end of the task is reported.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import msgpack

from somatize.facts import Fact

from . import journal, record_format, speedups
from .journal import ABOUT, ENTRY_HEAD, LATE, NO_TIME, PART, RECORD, UNSIZED
from .lmdb_environment import BadValue, ReadTransaction, WriteTransaction
from .record_format import MARK, OPEN, OWN, Chunk, pack_chunk, pack_integers, pack_texts, unpack

KIND = b"t"


class TaskFact(NamedTuple):
    """The last fact of an open task: its forward (`record_format.OWN` for none), its time in µs, and the fact."""

    forward: int
    when: int
    fact: Fact


class OpenTasks:
    """The tasks in a stretch of a journal: those open at its end (`told`), and those that ended in it."""

    __slots__ = ("ended", "told")

    def __init__(self) -> None:
        self.told: dict[str, TaskFact] = {}
        self.ended: set[str] = set()

    def extract(self, forward: int, when: int, body: bytes) -> bytes:
        """Note the facts of open tasks among packed facts; returns the other facts, packed."""
        try:
            facts = list(unpack([body]))
        except ValueError:
            return body  # damaged: reported when it is read
        kept = [fact for fact in facts if not self._extracts(forward, when, fact)]
        return body if len(kept) == len(facts) else b"".join(map(msgpack.packb, kept))

    def _extracts(self, forward: int, when: int, fact: Fact) -> bool:
        identity = fact.get("id")
        if fact.get("fact") != "task" or not identity:
            return False
        if fact.get("state") != "open":
            self.told.pop(identity, None)
            self.ended.add(identity)
            return False
        self.ended.discard(identity)
        self.told[identity] = TaskFact(forward, when, fact)
        return True


def task_key(run: int, identity: str) -> bytes:
    """The key of an open task."""
    return record_format.run_prefix(KIND, run) + blake2b(identity.encode(), digest_size=16).digest()


def store_open_tasks(txn: WriteTransaction, run: int, tasks: OpenTasks) -> None:
    """Store the last facts of open tasks, and delete those of tasks that ended."""
    for identity in tasks.ended:
        txn.delete(task_key(run, identity))
    for identity, told in tasks.told.items():
        key = task_key(run, identity)
        txn.put(key, record_format.pack_map(key, told))


def stored_open_tasks(reading: ReadTransaction, run: int) -> Iterable[TaskFact]:
    """The open tasks of a run among committed facts; damaged ones are left out (`check` reports them)."""
    prefix = record_format.run_prefix(KIND, run)
    for key, sealed in reading.items(prefix):
        if not key.startswith(prefix):
            return
        try:
            yield TaskFact(*record_format.unpack_map(key, sealed))
        except BadValue:
            continue


def open_tasks_after(committed: Iterable[TaskFact], tails: Iterable[OpenTasks]) -> list[TaskFact]:
    """The open tasks by time: the committed ones, updated by the journals."""
    found = {told.fact["id"]: told for told in committed}
    for tail in tails:
        for identity in tail.ended:
            found.pop(identity, None)
        found.update(tail.told)
    return sorted(found.values(), key=lambda told: told.when)


Position = tuple[int, int]
"""A position in the journals of a writer: the generation, and an offset in bytes."""

FORWARD, STATE, NODES, TOOK_US, WHEN, TEXTS, BODY = range(7)
Line = list[Any]
"""One record, as a list of these seven values, so that a single `zip` makes columns of many."""


MOST_ROWS = 2048
MOST_BYTES = 512 << 10
UNKNOWN = -1
"""The code of an unknown duration in a column."""
_NUMBERS = ("forward", "state", "nodes", "took_us", "when", "end", "crc")
_ENDS = 5

Words: TypeAlias = "array[int]"
"""Signed integers of 64 bits."""


class Block:
    """The columns and the packed facts of consecutive rows of one writer."""

    def __init__(
        self, numbers: Mapping[str, Words], fields: Mapping[str, list[str | float | None]], body: bytes
    ) -> None:
        self.numbers = numbers
        self.fields = fields
        self.body = body

    @classmethod
    def of(cls, lines: Sequence[Line], fields: Sequence[str]) -> Block:
        """A block of the given records."""
        forwards, states, nodes, took, whens, said, bodies = zip(*lines, strict=True)
        known = [UNKNOWN if us == NO_TIME else us for us in took] if NO_TIME in took else took
        columns = (forwards, states, nodes, known, whens, accumulate(map(len, bodies)), map(crc32, bodies))
        numbers = {name: array("q", values) for name, values in zip(_NUMBERS, columns, strict=True)}
        texts: dict[str, list[str | float | None]] = {
            field: [None if one is None else one[index] for one in said] for index, field in enumerate(fields)
        }
        return cls(numbers, texts, b"".join(bodies))

    @classmethod
    def of_columns(
        cls,
        words: Sequence[bytes],
        said: Sequence[list[str | float | None]],
        body: bytes,
        fields: Sequence[str],
    ) -> Block:
        """A block of columns as machine words, the values of each summarised field, and the packed facts."""
        numbers = {name: array("q", column) for name, column in zip(_NUMBERS, words, strict=True)}
        return cls(numbers, dict(zip(fields, said, strict=True)), body)

    @classmethod
    def stored(cls, chunk: Chunk, body: bytes) -> Block:
        """A stored block; raises `BadValue`."""
        numbers = {name: array("q", chunk.integers(name)) for name in _NUMBERS}
        fields = {name: chunk.said(name) for name in chunk.names if name not in _NUMBERS}
        return cls(numbers, fields, body)

    def __len__(self) -> int:
        return len(self.numbers["forward"])

    def lines(self, fields: Sequence[str]) -> Iterable[Line]:
        """Its rows, as `of` takes them."""
        columns = [self.numbers[name] for name in _NUMBERS[:_ENDS]]
        ends = self.numbers["end"]
        said = zip(*(self.fields[field] for field in fields), strict=True) if fields else ([] for _ in ends)
        before = 0
        for numbers, texts, end in zip(zip(*columns, strict=True), said, ends, strict=True):
            yield [*numbers, texts, self.body[before:end]]
            before = end

    def followed_by(self, other: Block) -> Block:
        """The concatenation of this block and another."""
        numbers = {name: self.numbers[name] + other.numbers[name] for name in _NUMBERS}
        numbers["end"] = self.numbers["end"] + array("q", [len(self.body) + end for end in other.numbers["end"]])
        fields = {
            name: self.fields.get(name, [None] * len(self)) + other.fields.get(name, [None] * len(other))
            for name in {**self.fields, **other.fields}
        }
        return Block(numbers, fields, self.body + other.body)

    def packed(self) -> bytes:
        """Its columns, packed as a chunk."""
        columns = {name: pack_integers(values) for name, values in self.numbers.items()}
        columns.update({name: pack_texts(values) for name, values in self.fields.items()})
        return pack_chunk(len(self), columns)


def cut(lines: list[Line], fields: Sequence[str]) -> Iterable[Block]:
    """Blocks of the given records, of at most `MOST_ROWS` rows and, but for single rows, `MOST_BYTES` bytes."""
    ends = list(accumulate([len(line[BODY]) for line in lines]))
    start = 0
    while start < len(lines):
        before = ends[start - 1] if start else 0
        end = max(start + 1, min(start + MOST_ROWS, bisect_right(ends, before + MOST_BYTES)))
        yield Block.of(lines[start:end], fields)
        start = end


_NOTHING = b"\xc0"
_SHORT = 4096
_SIZE = struct.Struct("<I")


class JournalRow:
    """The entries of one forward in a stretch of a journal.

    `started`: the stretch has its first entry; `ended`: the last. If neither is set, the row continues a stored or
    still-open forward. `crc` is the checksum of all its facts, `at` the position of its first entry among everything
    its writer wrote.

    The defaults are class attributes because tens of thousands of rows are made a second.
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
        """Its packed facts, in order."""
        return self._body if self._rest is None else b"".join((self._body, *self._rest))

    def add(self, body: bytes, summary: bytes) -> None:
        """Add facts of the same forward."""
        self.crc = crc32(body, self.crc)
        if len(self._body) < _SHORT:
            self._body += body
        else:
            self._rest = self._rest or []
            self._rest.append(body)
        if summary:
            self.summary = _merged(self.summary, summary) if self.summary else summary

    def texts(self, fields: Sequence[str]) -> dict[str, str]:
        """The texts of the summarised fields that have one."""
        values = msgpack.unpackb(self.summary) if self.summary else ()
        return {
            field: repr(text) if type(text) is float else text
            for field, text in zip(fields, values, strict=False)
            if text is not None
        }

    def inside(self, fields: Sequence[str]) -> record_format.Inside:
        """The nodes that were running when its last part was written; empty once it ended."""
        values = msgpack.unpackb(self.summary) if self.summary else ()
        return list(values[len(fields)]) if len(values) > len(fields) else []


def _merged(first: bytes, second: bytes) -> bytes:
    old, new = msgpack.unpackb(first), msgpack.unpackb(second)
    count = max(len(old), len(new))
    pairs = zip(old + [None] * (count - len(old)), new + [None] * (count - len(new)), strict=True)
    merged: bytes = msgpack.packb([text if text is not None else before for before, text in pairs])
    return merged


def summaries(rows: Sequence[JournalRow]) -> list[list[Any] | None]:
    """The unpacked summary of each row, or None."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(b"".join([row.summary or _NOTHING for row in rows]))
    return list(unpacker)


class JournalRows:
    """The rows of a stretch of one writer's journal, by forward, and the run metadata in it.

    `read_to` is the offset in the file at which its last valid entry ends, 0 if there is none.
    """

    def __init__(self, writer: int, fields: Sequence[str], generation: int = 0) -> None:
        self.writer = writer
        self.fields = fields
        self.rows: dict[int, JournalRow] = {}
        self.blocks: list[Block] = []
        self.about: dict[str, Any] = {}
        self.damaged: list[tuple[int, int]] = []
        self.read_to = 0
        self.tasks = OpenTasks()
        self._position = generation << 40

    def read(self, buffer: bytes, base: int, turn: Callable[[], object] | None = None) -> JournalRows:
        """Read entries; `base` is the offset of the buffer in its file. `turn` is called every few dozen entries."""
        rows, unpack, at, end = self.rows, journal.ENTRY.unpack_from, 0, len(buffer)
        position = self._position + base
        while at + ENTRY_HEAD <= end:
            size, crc, kind, state, summed, nodes, forward, when, took = unpack(buffer, at)
            begin = at
            at += UNSIZED + size
            if at > end or crc32(buffer[begin + UNSIZED : at]) != crc or kind > ABOUT or kind < RECORD:
                at = journal.next_valid_entry(buffer, begin)
                if at < 0:
                    break
                self.damaged.append((base + begin, at - begin))
                continue
            middle = begin + ENTRY_HEAD + summed
            body = buffer[middle:at]
            if kind != RECORD and MARK in body:
                body = self.tasks.extract(forward, when, body)
            summary = buffer[begin + ENTRY_HEAD : middle] if summed else b""
            self.read_to = base + at
            row = rows.get(forward)
            if kind == ABOUT:
                self.about.update(msgpack.unpackb(body))
                continue
            if row is not None:
                row.add(body, summary)
            else:
                row = rows[forward] = JournalRow(forward, position + begin, when, body, summary)
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

    def read_blocks(self, buffer: bytes, base: int, turn: Callable[[], object] | None = None) -> None:
        """`read`, but in C complete records become `blocks` at once; only the other entries become rows."""
        end = 0
        if speedups.MODULE is not None:
            found, odd, end = speedups.MODULE.rows(buffer, len(self.fields), MOST_ROWS, MOST_BYTES)
            self.blocks += [Block.of_columns(words, said, body, self.fields) for words, said, body in found]
            for at in odd:
                self.read(buffer[at : at + UNSIZED + _SIZE.unpack_from(buffer, at)[0]], base + at)
        if end:
            self.read_to = base + end
        if end < len(buffer):
            self.read(buffer[end:], base + end, turn)

    def heard(self) -> int:
        """When the last of its rows was written, in µs since 1970; 0 if there are none."""
        blocks = (max(block.numbers["when"]) for block in self.blocks)
        return max((*(row.when for row in self.rows.values()), *blocks), default=0)

    def complete(self) -> list[Line]:
        """The rows that started and ended in this stretch, as lines."""
        rows = [row for row in self.rows.values() if row.started and row.ended and row.forward != OWN]
        return [
            [row.forward, row.state, row.nodes, row.took_us, row.when, texts and texts[: len(self.fields)], row.body]
            for row, texts in zip(rows, summaries(rows), strict=True)
        ]


def find_chunk(txn: Any, run: int, forward: int, span: int, writer: int | None = None) -> bytes | None:
    """The key of the chunk that has a forward, of one writer or of any; None if there is none."""
    start = record_format.block_key(b"c", run, max(0, forward - span), 0)
    prefix = record_format.run_prefix(b"c", run)
    for key, value in txn.items(start):
        first, by = record_format.block_of(key) if key.startswith(prefix) else (forward + 1, 0)
        if first > forward:
            return None
        if (writer is None or by == writer) and forward in Chunk(value).integers("forward"):
            return bytes(key)
    return None

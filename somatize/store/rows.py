"""Rows of forwards: made of journal entries and cut into blocks; and the tasks that are open.

An open task is said again and again, and only its last fact counts. So that fact is kept apart from records, under the
task's `id`, until the task's end is said.
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
    """The last fact of an open task: its forward (`record_format.OWN` for none), when in µs, and the fact."""

    forward: int
    when: int
    fact: Fact


class OpenTasks:
    """The tasks in a stretch of a journal: those open at its end, and those that ended in it."""

    __slots__ = ("ended", "told")

    def __init__(self) -> None:
        self.told: dict[str, TaskFact] = {}
        self.ended: set[str] = set()

    def extract(self, forward: int, when: int, body: bytes) -> bytes:
        """Packed facts, which are given back without those of open tasks."""
        try:
            facts = list(unpack([body]))
        except ValueError:
            return body  # damaged: it is for a reader to say so
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
    """Put what is said of open tasks in the place of what was said before, and take away those that ended."""
    for identity in tasks.ended:
        txn.delete(task_key(run, identity))
    for identity, told in tasks.told.items():
        key = task_key(run, identity)
        txn.put(key, record_format.pack_map(key, told))


def stored_open_tasks(reading: ReadTransaction, run: int) -> Iterable[TaskFact]:
    """The tasks of a run that are open as far as is committed; a damaged one is left out, for `check` to name."""
    prefix = record_format.run_prefix(KIND, run)
    for key, sealed in reading.items(prefix):
        if not key.startswith(prefix):
            return
        try:
            yield TaskFact(*record_format.unpack_map(key, sealed))
        except BadValue:
            continue


def open_tasks_after(committed: Iterable[TaskFact], tails: Iterable[OpenTasks]) -> list[TaskFact]:
    """The tasks that are open, with what journals say beyond what is committed."""
    found = {told.fact["id"]: told for told in committed}
    for tail in tails:
        for identity in tail.ended:
            found.pop(identity, None)
        found.update(tail.told)
    return sorted(found.values(), key=lambda told: told.when)


Position = tuple[int, int]
"""A place in a writer's journals: the generation, and bytes of that."""

FORWARD, STATE, NODES, TOOK_US, WHEN, TEXTS, BODY = range(7)
Line = list[Any]
"""One record, as a list of these seven: it is made once per forward, and turned into columns by a single `zip`."""


MOST_ROWS = 2048
MOST_BYTES = 512 << 10
UNKNOWN = -1
"""Stands in a column for a duration that is not known."""
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
        """A block of complete records."""
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
        """A block of columns as the machine holds them, what was said of each field, and the facts."""
        numbers = {name: array("q", column) for name, column in zip(_NUMBERS, words, strict=True)}
        return cls(numbers, dict(zip(fields, said, strict=True)), body)

    @classmethod
    def stored(cls, chunk: Chunk, body: bytes) -> Block:
        """A block as it was stored; raises `BadValue`."""
        numbers = {name: array("q", chunk.integers(name)) for name in _NUMBERS}
        fields = {name: chunk.said(name) for name in chunk.names if name not in _NUMBERS}
        return cls(numbers, fields, body)

    def __len__(self) -> int:
        return len(self.numbers["forward"])

    def lines(self, fields: Sequence[str]) -> Iterable[Line]:
        """Its rows one by one; the reverse of `of`."""
        columns = [self.numbers[name] for name in _NUMBERS[:_ENDS]]
        ends = self.numbers["end"]
        said = zip(*(self.fields[field] for field in fields), strict=True) if fields else ([] for _ in ends)
        before = 0
        for numbers, texts, end in zip(zip(*columns, strict=True), said, ends, strict=True):
            yield [*numbers, texts, self.body[before:end]]
            before = end

    def followed_by(self, other: Block) -> Block:
        """Both, as one."""
        numbers = {name: self.numbers[name] + other.numbers[name] for name in _NUMBERS}
        numbers["end"] = self.numbers["end"] + array("q", [len(self.body) + end for end in other.numbers["end"]])
        fields = {
            name: self.fields.get(name, [None] * len(self)) + other.fields.get(name, [None] * len(other))
            for name in {**self.fields, **other.fields}
        }
        return Block(numbers, fields, self.body + other.body)

    def packed(self) -> bytes:
        """The chunk of its columns."""
        pack_words = pack_integers if speedups.MODULE is None else speedups.MODULE.words
        columns = {name: pack_words(values) for name, values in self.numbers.items()}
        columns.update({name: pack_texts(values) for name, values in self.fields.items()})
        return pack_chunk(len(self), columns)


def cut(lines: list[Line], fields: Sequence[str]) -> Iterable[Block]:
    """Complete records as blocks, none of them too large."""
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
    """One forward as far as a stretch of a journal tells.

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


def summaries(rows: Sequence[JournalRow]) -> list[list[Any] | None]:
    """The unpacked summary of each row, or None: one pass over all of them."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(b"".join([row.summary or _NOTHING for row in rows]))
    return list(unpacker)


class JournalRows:
    """The rows of a stretch of one writer's journal, by forward, and what it says about its run.

    `base` is where the stretch begins in its file, `read_to` where its last whole entry ends, 0 if there is none.
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
        """Take in the entries that follow, in their order; `turn` is called every few dozen of them."""
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
        """`read` for who stores the rows: those that are complete in the stretch are `blocks`, where that is quick."""
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

    def complete(self) -> list[Line]:
        """The rows that are wholly in this stretch, as lines."""
        rows = [row for row in self.rows.values() if row.started and row.ended and row.forward != OWN]
        return [
            [row.forward, row.state, row.nodes, row.took_us, row.when, texts and texts[: len(self.fields)], row.body]
            for row, texts in zip(rows, summaries(rows), strict=True)
        ]


def find_chunk(txn: Any, run: int, forward: int, span: int, writer: int | None = None) -> bytes | None:
    """The key of the chunk that may hold a forward of a writer."""
    start = record_format.block_key(b"c", run, max(0, forward - span), 0)
    prefix = record_format.run_prefix(b"c", run)
    for key, value in txn.items(start):
        first, by = record_format.block_of(key) if key.startswith(prefix) else (forward + 1, 0)
        if first > forward:
            return None
        if (writer is None or by == writer) and forward in Chunk(value).integers("forward"):
            return bytes(key)
    return None

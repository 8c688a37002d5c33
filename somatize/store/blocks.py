"""The columns and the packed facts of consecutive rows of one writer: what is stored together."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias
from zlib import crc32

from . import speedups
from .batch import BODY, Line
from .columns import Chunk, pack_chunk, pack_integers, pack_texts
from .journal import NO_TIME

MOST_ROWS = 2048
MOST_BYTES = 512 << 10
UNKNOWN = -1
"""Stands in a column for a duration that is not known."""
_NUMBERS = ("forward", "state", "nodes", "took_us", "when", "end", "crc")
_ENDS = 5

Words: TypeAlias = "array[int]"
"""Of 64 bits, with a sign."""


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

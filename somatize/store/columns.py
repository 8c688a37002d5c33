"""Columns of rows as bytes: a chunk is some columns of some rows, each readable without the others.

Numbers stand as machine words. The text of a said value stands as a word only where the word's `repr` is that
text, for each value of the column; else the texts stand there themselves. So what is read is always the very text
that was said, and a curve of floats needs no parsing. A value that is absent (None) is not an empty text.

Words are little-endian.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgpack

from .environment import BadValue, Buffer

_HEAD = struct.Struct("<II")  # the directory's length and checksum
_ABSENT = "?"
T = TypeVar("T")


def pack_chunk(rows: int, columns: Mapping[str, tuple[str, bytes]]) -> bytes:
    """A chunk of encoded columns: a directory, then the columns one after the other."""
    directory: dict[str, tuple[str, int, int, int]] = {}
    at = 0
    for name, (kind, body) in columns.items():
        directory[name] = (kind, at, len(body), zlib.crc32(body))
        at += len(body)
    head = msgpack.packb([rows, directory])
    return b"".join([_HEAD.pack(len(head), zlib.crc32(head)), head, *(body for _, body in columns.values())])


class Chunk:
    """A packed chunk, of which columns are decoded when asked for."""

    __slots__ = ("_body", "_directory", "rows")

    def __init__(self, packed: Buffer) -> None:
        """Raises `BadValue` if the directory does not carry its checksum."""
        if len(packed) < _HEAD.size:
            raise BadValue("a chunk is cut off")
        size, crc = _HEAD.unpack_from(packed)
        head = packed[_HEAD.size : _HEAD.size + size]
        if len(head) < size or zlib.crc32(head) != crc:
            raise BadValue("a chunk's directory does not carry its checksum")
        self.rows, self._directory = msgpack.unpackb(head)
        self._body = memoryview(packed)[_HEAD.size + size :]

    def __contains__(self, name: str) -> bool:
        return name in self._directory

    @property
    def names(self) -> list[str]:
        """The columns there are."""
        return list(self._directory)

    def raw(self, name: str) -> tuple[str, bytes]:
        """An encoded column; raises `BadValue` if it does not carry its checksum."""
        kind, at, size, crc = self._directory[name]
        body = bytes(self._body[at : at + size])
        if len(body) < size or zlib.crc32(body) != crc:
            raise BadValue(f"the column {name!r} does not carry its checksum")
        return kind, body

    def integers(self, name: str) -> Sequence[int]:
        """A column of numbers."""
        return integers(*self.raw(name), self.rows)

    def texts(self, name: str, start: int = 0) -> list[str | None]:
        """A column of texts from a row on, None where one is absent."""
        return texts(*self.raw(name), self.rows, start)

    def said(self, name: str, start: int = 0) -> list[str | float | None]:
        """`texts`, but a float for a text that is its `repr`, where the column stands so: what `pack_texts` takes."""
        kind, body = self.raw(name)
        mask, kind, body = _masked(kind, body, self.rows)
        if kind != "d":
            return [*self.texts(name, start)]
        floats = _array("d", body)[_before(mask, start) :].tolist()
        return floats if mask is None else _spread(mask[start:], floats)

    def numbers(self, name: str) -> tuple[bytes | None, Sequence[float]]:
        """A column of texts as the numbers they are; see `numbers`."""
        return numbers(*self.raw(name), self.rows)


def pack_integers(values: Sequence[int]) -> tuple[str, bytes]:
    """Encode whole numbers of 64 bits, in the fewest bytes of a few ways."""
    first, last = values[0], values[-1]
    if last - first == len(values) - 1 and list(values) == list(range(first, last + 1)):
        return "r", first.to_bytes(8, "little", signed=True)
    low, high = min(values), max(values)
    if low == high:
        return "=", low.to_bytes(8, "little", signed=True)
    if low < 0 or high >= 2**63:
        return "q", _words("q", values)
    code = "B" if high < 2**8 else "H" if high < 2**16 else "I" if high < 2**32 else "Q"
    return code, _words(code, values)


def integers(kind: str, body: bytes, rows: int) -> Sequence[int]:
    """Decode what `pack_integers` encoded."""
    if kind == "r":
        first = int.from_bytes(body, "little", signed=True)
        return range(first, first + rows)
    if kind == "=":
        return [int.from_bytes(body, "little", signed=True)] * rows
    return _array(kind, body).tolist()


def pack_texts(values: Sequence[str | float | None]) -> tuple[str, bytes]:
    """Encode texts, as words if that loses nothing. A float stands for the text that is its `repr`."""
    present = [value for value in values if value is not None]
    kind, body = _pack_present(present)
    if len(present) == len(values):
        return kind, body
    return _ABSENT + kind, bytes(value is not None for value in values) + body


def texts(kind: str, body: bytes, rows: int, start: int = 0) -> list[str | None]:
    """Decode what `pack_texts` encoded, from a row on."""
    mask, kind, body = _masked(kind, body, rows)
    before = _before(mask, start)
    present: Iterable[str]
    if kind == "d":
        present = map(repr, _array("d", body)[before:])
    elif kind == "q":
        present = map(str, _array("q", body)[before:])
    else:
        present = msgpack.unpackb(body)[before:]
    return list(present) if mask is None else _spread(mask[start:], present)


def numbers(kind: str, body: bytes, rows: int) -> tuple[bytes | None, Sequence[float]]:
    """The numbers of a column of texts, and which rows have one (None for all of them)."""
    mask, kind, body = _masked(kind, body, rows)
    if kind == "d":
        return mask, _array("d", body).tolist()
    if kind == "q":
        return mask, list(map(float, _array("q", body)))
    parsed = [number(text) for text in msgpack.unpackb(body)]
    if None in parsed:
        have = iter([value is not None for value in parsed])
        mask = bytes(next(have) for _ in range(rows)) if mask is None else bytes(bit and next(have) for bit in mask)
    return mask, [value for value in parsed if value is not None]


def number(text: str) -> float | None:
    """The number that a said text is, or None: of what Python reads as a float, only what is written as one."""
    try:
        return None if "_" in text or text[:1].isspace() or text[-1:].isspace() else float(text)
    except ValueError:
        return None


def _masked(kind: str, body: bytes, rows: int) -> tuple[bytes | None, str, bytes]:
    return (body[:rows], kind[1:], body[rows:]) if kind.startswith(_ABSENT) else (None, kind, body)


def _before(mask: bytes | None, start: int) -> int:
    """How many values there are before a row."""
    return start if mask is None else sum(mask[:start])


def _spread(mask: bytes, present: Iterable[T]) -> list[T | None]:
    following = iter(present)
    return [next(following) if bit else None for bit in mask]


def _pack_present(said: list[str | float]) -> tuple[str, bytes]:
    kinds = set(map(type, said))
    if kinds == {float}:
        return "d", _words("d", said)
    values = [repr(one) if isinstance(one, float) else one for one in said]
    for code, make, show in (("q", int, str), ("d", float, repr)):
        try:
            words = array(code, map(make, values))
        except (ValueError, OverflowError):
            continue
        if list(map(show, words)) == values:
            return code, _bytes(words)
    return "t", msgpack.packb(values)


def _words(code: str, values: Iterable[Any]) -> bytes:
    return _bytes(array(code, values))


def _bytes(words: array[Any]) -> bytes:
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def _array(code: str, body: bytes) -> array[Any]:
    words = array(code)
    words.frombytes(body)
    if sys.byteorder == "big":
        words.byteswap()
    return words

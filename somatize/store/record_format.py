"""The format of records, version 1: keys and values in LMDB, packed facts, and columns of rows.

========================================  =====================================================
``n`` digest of a run's name              the run's number
``r`` run                                 `RunInfo`: totals, so that listing runs reads nothing else
``v`` run, writer                         nothing; the writers of a run
``w`` writer                              `WriterInfo`: its metadata, and how far its journals are committed
``c`` run, first forward, writer          a chunk: the columns of a block of rows (`Chunk`)
``b`` run, first forward, writer          the packed facts of those rows, one after the other
``p`` run, forward, writer, position      packed facts that came in parts, or after their row was stored
``o`` run, forward                        a forward that was open when it was stored
``l`` run, forward                        the nodes that were running in a lost forward
``a`` run, writer                         metadata of the run, as given by a writer
``t`` run, digest of a task's id          the last fact of an open task (`rows.OpenTasks`)
``e`` run                                 its summary: end, tags, configuration, numbers (`run_summary`)
``i``                                     the number the next run gets; numbers are never used again
========================================  =====================================================

Numbers in keys are big-endian, so that keys sort as numbers do. Every value begins with its CRC-32, which covers
the key too; a chunk has one per column, and in it one per row for the packed facts.

Numbers are stored as little-endian machine words. A column of texts is stored as words only if the `repr` of each word
is the text; otherwise as texts. So reading returns the exact texts, and a curve of floats needs no parsing. An absent
value (None) differs from an empty text.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import msgpack

from somatize.facts import KINDS, Fact, encodable, said, text

from .lmdb_environment import BadValue, Buffer

OK, BROKE, INTERRUPTED, LOST, OPEN = 1, 2, 3, 4, 5
STATES = {OK: "ok", BROKE: "broke", INTERRUPTED: "interrupted", LOST: "lost", OPEN: "open"}

OWN = 2**64 - 1
"""The forward number of the facts of a run as a whole."""

OF_RUN = (b"v", b"c", b"b", b"p", b"o", b"l", b"a", b"t", b"e")
"""The kinds of keys of one run; its number follows the kind."""

NEXT_RUN = b"i"
_RUN = struct.Struct(">I")
_RUN_WRITER = struct.Struct(">IQ")
_RUN_FORWARD = struct.Struct(">IQ")
_BLOCK = struct.Struct(">IQQ")
_PART = struct.Struct(">IQQQ")
_CRC = struct.Struct("<I")
_TOTALS = struct.Struct("<QQQQQQQqQ")
_SEALED = struct.Struct("<IQQQQQQQqQ")
_WRITER = struct.Struct("<IIQB")


class RunInfo(NamedTuple):
    """A run's name and totals over the rows in its chunks. Times are µs since 1970."""

    name: str
    rows: int = 0
    broke: int = 0
    interrupted: int = 0
    lost: int = 0
    took_us: int = 0
    first: int = 0
    last: int = 0
    highest: int = -1
    span: int = 0
    """The largest difference of the last and first number of a block: how far back a search has to begin."""


class WriterInfo(NamedTuple):
    """A writer; its journals are committed before `generation`, and that one up to `offset` bytes."""

    run: int
    generation: int
    offset: int
    closed: bool
    about: dict[str, Any]


def name_key(name: str) -> bytes:
    """The key of a run's number, by the run's name."""
    return b"n" + blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def run_key(run: int) -> bytes:
    """The key of a run's totals."""
    return b"r" + _RUN.pack(run)


def writer_key(writer: int) -> bytes:
    """The key of a writer."""
    return b"w" + writer.to_bytes(8, "big")


def run_writer_key(kind: bytes, run: int, writer: int) -> bytes:
    """A key of kind ``v`` or ``a``."""
    return kind + _RUN_WRITER.pack(run, writer)


def forward_key(kind: bytes, run: int, forward: int) -> bytes:
    """A key of kind ``o`` or ``l``, or the prefix of the keys ``p`` of a forward."""
    return kind + _RUN_FORWARD.pack(run, forward)


def block_key(kind: bytes, run: int, first: int, writer: int) -> bytes:
    """A key of kind ``c`` or ``b``."""
    return kind + _BLOCK.pack(run, first, writer)


def part_key(run: int, forward: int, writer: int, position: int) -> bytes:
    """A key of kind ``p``."""
    return b"p" + _PART.pack(run, forward, writer, position)


def run_prefix(kind: bytes, run: int) -> bytes:
    """The prefix of all keys of one kind and one run."""
    return kind + _RUN.pack(run)


def run_of(key: Buffer) -> int:
    """The run in a key of any kind but ``n`` and ``w``."""
    return int.from_bytes(key[1:5], "big")


def block_of(key: bytes) -> tuple[int, int]:
    """The first forward and the writer in a key of kind ``c`` or ``b``."""
    _, first, writer = _BLOCK.unpack_from(key, 1)
    return first, writer


def forward_of(key: bytes) -> int:
    """The forward in a key of kind ``o``, ``l`` or ``p``."""
    return int(_RUN_FORWARD.unpack_from(key, 1)[1])


def writer_of(key: bytes) -> int:
    """The writer in a key of kind ``v``, ``a`` or ``p``."""
    return int.from_bytes(key[13:21] if key[:1] == b"p" else key[5:13], "big")


def position_of(key: bytes) -> int:
    """The position in a key of kind ``p``."""
    return int.from_bytes(key[21:29], "big")


def seal(key: bytes, value: bytes) -> bytes:
    """A value with its checksum before it."""
    return _CRC.pack(crc32(value, crc32(key))) + value


def unseal(key: bytes, sealed: Buffer) -> bytes:
    """The value without its checksum; raises `BadValue` if that does not match the value and the key."""
    value = bytes(sealed[4:])
    if len(sealed) < 4 or _CRC.unpack_from(sealed)[0] != crc32(value, crc32(key)):
        raise BadValue(f"the value under {key!r} does not carry its checksum")
    return value


def pack_map(key: bytes, value: Any) -> bytes:
    """A sealed msgpack value."""
    return seal(key, msgpack.packb(value))


def unpack_map(key: bytes, sealed: Buffer) -> Any:
    """The inverse of `pack_map`; raises `BadValue`."""
    return msgpack.unpackb(unseal(key, sealed), strict_map_key=False)


def pack_run(key: bytes, info: RunInfo) -> bytes:
    """A sealed `RunInfo`."""
    return seal(key, _TOTALS.pack(*info[1:]) + info.name.encode("utf-8"))


def unpack_run(key: bytes, sealed: Buffer) -> RunInfo:
    """A `RunInfo`; raises `BadValue`."""
    name, (_, *totals) = unpack_totals(key, sealed)
    return RunInfo(name, *totals)


def unpack_totals(key: bytes, sealed: Buffer) -> tuple[str, tuple[int, ...]]:
    """The name and the packed totals (checksum first) of a `RunInfo`, for listings of thousands of runs."""
    whole = bytes(sealed)
    totals = _SEALED.unpack_from(whole) if len(whole) >= _SEALED.size else (-1,)
    if totals[0] != crc32(whole[4:], crc32(key)):
        raise BadValue(f"the value under {key!r} does not carry its checksum")
    return whole[_SEALED.size :].decode(), totals


def pack_writer(key: bytes, info: WriterInfo) -> bytes:
    """A sealed `WriterInfo`."""
    return seal(key, _WRITER.pack(info.run, info.generation, info.offset, info.closed) + msgpack.packb(info.about))


def unpack_writer(key: bytes, sealed: Buffer) -> WriterInfo:
    """A `WriterInfo`; raises `BadValue`."""
    value = unseal(key, sealed)
    run, generation, offset, closed = _WRITER.unpack_from(value)
    return WriterInfo(run, generation, offset, bool(closed), msgpack.unpackb(value[_WRITER.size :]))


Texts = list[str | float | None] | None
"""The text of each summarised field, None for an absent one; None altogether if all are absent.

A float stands for the text that is its `repr`, so that a column of floats is packed without formatting and parsing.
"""
COUNTED = frozenset({"ran", "recalled", "failed"})
"""The kinds of facts that count as a node turn."""
MARK = b"\xa2id"
"""Bytes that every packed fact of an open task contains: the key ``id``."""
WHOLE_UP_TO = 256 << 10
"""The length in characters at which a text of a fact is cut; the cut text says how long it was."""
_LOOK_CLOSER = 512 << 10
_KIND = itemgetter("fact")
_OURS = frozenset({*KINDS, "throughput", "machine", "log", "task"})
"""The kinds of facts whose fields the library defines."""
_SHAPES, _LONGEST = 64, 4096
Shape = tuple[int, list[tuple[int, int, str]]]
"""For a sequence of kinds: the number of node turns, and (index of the fact, index of the column, field) of each
summarised field."""


def field_path(name: str) -> str:
    """The full path of the name of a curve or column: ``loss`` means ``loss.value``."""
    if not name.isascii():
        name = encodable(name)  # as facts are stored
    return name if "." in name else f"{name}.value"


def readings(name: str) -> tuple[str, ...]:
    """The paths that a name can mean: ``val.loss`` is the `loss` of `val` facts, or the value of `val.loss` facts."""
    path = field_path(name)
    if "." not in name or path.endswith(".value") or parted_path(path)[0] in _OURS:
        return (path,)
    return path, f"{path}.value"


def parted_path(path: str) -> tuple[str, str]:
    """The kind and the field of a full path."""
    kind, _, field = path.rpartition(".")
    return kind, field


def last_said(told: Iterable[Fact], path: str) -> str | None:
    """The last text of a field, such as ``loss.value``, among facts; None if there is none."""
    kind, field = parted_path(path)
    text = None
    for fact in told:
        if fact.get("fact") == kind and field in fact:
            text = fact[field]
    return text


class Packer:
    """Packs facts and extracts the summarised fields. Not thread-safe."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._pack: Callable[[Any], bytes] = msgpack.Packer().pack
        self._unsaid: list[str | float | None] = [None] * len(fields)
        self._wanted: dict[str, list[tuple[int, str]]] = {}
        for index, path in enumerate(fields):
            kind, field = parted_path(path)
            self._wanted.setdefault(kind, []).append((index, field))
        self._shapes: dict[tuple[str | None, ...], Shape] = {}

    def pack(self, facts: list[Fact]) -> tuple[bytes, int, Texts]:
        """The packed facts, the number of node turns in them, and the last text of each summarised field."""
        texts: Texts = None
        try:
            nodes, wanted = self._shapes[tuple(map(_KIND, facts))]
        except KeyError:
            nodes, wanted = self._shape(facts)
        for place, index, field in wanted:
            if field in facts[place]:
                texts = texts or self._unsaid.copy()
                told = facts[place][field]
                texts[index] = told if type(told) is str else text(told)
        try:
            packed = self._pack(facts)
        except (TypeError, ValueError, OverflowError):
            packed = msgpack.packb([said(fact) for fact in facts])
        if len(packed) > _LOOK_CLOSER:
            packed = self._shortened(facts)
        count = len(facts)
        return packed[1 if count < 16 else 3 if count < 65536 else 5 :], nodes, texts

    def _shape(self, facts: list[Fact]) -> Shape:
        """The shape of facts, cached by their kinds: most forwards of a run have the same."""
        kinds = [fact.get("fact") for fact in facts]
        nodes = sum(kind in COUNTED for kind in kinds)
        wanted = [
            (place, index, field)
            for place, kind in enumerate(kinds)
            for index, field in self._wanted.get(kind or "", ())
        ]
        if len(kinds) <= _LONGEST and len(self._shapes) < _SHAPES:
            self._shapes[tuple(kinds)] = (nodes, wanted)
        return nodes, wanted

    def pack_one(self, fact: Fact, given: Mapping[str, Any]) -> tuple[bytes, bytes, Texts]:
        """One packed fact, its packed summary, and its summarised fields; `given` has the values before conversion."""
        packed = self._pack(fact)
        if len(packed) > _LOOK_CLOSER:
            packed = self._shortened([fact])[1:]
        fields = self._wanted.get(fact["fact"])
        if fields is None:
            return packed, b"", None
        texts = self._unsaid.copy()
        for index, field in fields:
            if field in fact:
                value = given.get(field)
                # A NaN as text: other bits of a NaN are lost in a text, and the curve must not depend on the way.
                texts[index] = value if type(value) is float and value == value else fact[field]
        if texts == self._unsaid:
            return packed, b"", None
        return packed, self._pack(texts), texts

    def summary(self, texts: Texts, inside: Inside | None = None) -> bytes:
        """The packed summary of an entry: the texts and, for an open forward, the running nodes."""
        if inside is not None:
            return self._pack([*(texts or self._unsaid), inside])
        return self._pack(texts) if texts is not None else b""

    def _shortened(self, facts: list[Fact]) -> bytes:
        packed: bytes = msgpack.packb([shortened(said(fact)) for fact in facts])
        self._pack = msgpack.Packer().pack  # it keeps the largest buffer it ever needed
        return packed


class Progress(NamedTuple):
    """How far a node of an open forward was when that was last written; kept as state, not as history.

    `total` is None where nobody said it. `took_us` and `since` are of what was said of it in the forward: the time
    from the first saying to the last, and `done` at the first.
    """

    node: str
    done: int
    total: int | None
    took_us: int
    since: int

    @property
    def rate(self) -> float | None:
        """How many are done a second; None before two were said."""
        return (self.done - self.since) / (self.took_us / 1e6) if self.took_us and self.done > self.since else None

    @property
    def remaining(self) -> float | None:
        """Seconds until all are done at that rate; None if unknown."""
        return None if self.total is None or not self.rate else max(0, self.total - self.done) / self.rate


Inside = list[str | list[Any]]
"""The running nodes of an open forward: a name, or where the node said how far it is the values of a `Progress`."""


def nodes_of(inside: Inside) -> list[str]:
    """The names of the running nodes."""
    return [one if isinstance(one, str) else one[0] for one in inside]


def progress_of(inside: Inside) -> list[Progress]:
    """How far those are that said it."""
    return [Progress(*one) for one in inside if not isinstance(one, str)]


def shortened(fact: Fact) -> Fact:
    """The fact with texts that are too long cut."""
    if all(len(text) <= WHOLE_UP_TO for text in fact.values()):
        return fact
    return {key: text if len(text) <= WHOLE_UP_TO else _cut(text) for key, text in fact.items()}


def _cut(text: str) -> str:
    return f"{text[:WHOLE_UP_TO]}… <cut: {len(text)} characters in all>"


def unpack(bodies: Iterable[bytes]) -> Iterator[Fact]:
    """The facts in packed bodies, in order. Raises ValueError for anything else."""
    for body in bodies:
        unpacker = msgpack.Unpacker(max_buffer_size=0, strict_map_key=True)
        unpacker.feed(body)
        for fact in unpacker:
            if type(fact) is not dict:
                raise ValueError("what was packed is no fact")
            yield fact


_HEAD = struct.Struct("<II")  # the length and the checksum of the directory
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
    """A packed chunk; columns are decoded on access."""

    __slots__ = ("_body", "_directory", "rows")

    def __init__(self, packed: Buffer) -> None:
        """Raises `BadValue` if the checksum of the directory does not match."""
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
        """The names of its columns."""
        return list(self._directory)

    def raw(self, name: str) -> tuple[str, bytes]:
        """An encoded column; raises `BadValue` if its checksum does not match."""
        kind, at, size, crc = self._directory[name]
        body = bytes(self._body[at : at + size])
        if len(body) < size or zlib.crc32(body) != crc:
            raise BadValue(f"the column {name!r} does not carry its checksum")
        return kind, body

    def integers(self, name: str) -> Sequence[int]:
        """A column of numbers."""
        return integers(*self.raw(name), self.rows)

    def texts(self, name: str, start: int = 0) -> list[str | None]:
        """A column of texts from a row on, None for absent ones."""
        return texts(*self.raw(name), self.rows, start)

    def said(self, name: str, start: int = 0) -> list[str | float | None]:
        """`texts`, but as floats if the column is stored as floats; `pack_texts` takes the result."""
        kind, body = self.raw(name)
        mask, kind, body = _masked(kind, body, self.rows)
        if kind != "d":
            return [*self.texts(name, start)]
        floats = _array("d", body)[_before(mask, start) :].tolist()
        return floats if mask is None else _spread(mask[start:], floats)

    def numbers(self, name: str) -> tuple[bytes | None, Sequence[float]]:
        """A column of texts as numbers; see `numbers`."""
        return numbers(*self.raw(name), self.rows)


def pack_integers(values: Sequence[int]) -> tuple[str, bytes]:
    """Encode integers of 64 bits: as a range, a constant, or words of the fewest bytes."""
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
    """The number that a text denotes, or None. Underscores and blanks, which `float` accepts, are refused."""
    try:
        return None if "_" in text or text[:1].isspace() or text[-1:].isspace() else float(text)
    except ValueError:
        return None


def _masked(kind: str, body: bytes, rows: int) -> tuple[bytes | None, str, bytes]:
    return (body[:rows], kind[1:], body[rows:]) if kind.startswith(_ABSENT) else (None, kind, body)


def _before(mask: bytes | None, start: int) -> int:
    """The number of values before a row."""
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

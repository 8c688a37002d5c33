"""Facts as they are stored: packed one after the other, and beside them what a column needs to know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgpack

from somatize.facts import KINDS, Fact, encodable, said, text

Texts = list[str | float | None] | None
"""The text of each summarised field, None where it was not said; None altogether where none was.

A float stands for the text that is its `repr`: a column of them is packed without writing and reading each.
"""
COUNTED = frozenset({"ran", "recalled", "failed"})
"""The kinds that count as a node having its turn."""
MARK = b"\xa2id"
"""What the packed fact of a task that was ever said to be open holds: the key ``id``."""
WHOLE_UP_TO = 256 << 10
"""Characters up to which a text of a fact is kept whole. A longer one is cut there and says how long it was."""
_LOOK_CLOSER = 512 << 10
_KIND = itemgetter("fact")
_OURS = frozenset({*KINDS, "throughput", "machine", "log", "task"})
"""The kinds of which the library says the fields."""
_SHAPES, _LONGEST = 64, 4096
Shape = tuple[int, list[tuple[int, int, str]]]
"""What a sequence of kinds holds: how many nodes had their turn, and the places of what is summarised: of the fact, of
the column, and the name in the fact."""


def field_path(name: str) -> str:
    """The full path of what a curve or a column is asked for by: ``loss`` is its ``loss.value``."""
    name = encodable(name)  # as it stands in the facts
    return name if "." in name else f"{name}.value"


def readings(name: str) -> tuple[str, ...]:
    """The paths that a name may mean: ``val.loss`` is the `loss` of `val` facts, or the value of `val.loss` facts."""
    path = field_path(name)
    if path != encodable(name) or path.endswith(".value") or parted_path(path)[0] in _OURS:
        return (path,)
    return path, f"{path}.value"


def parted_path(path: str) -> tuple[str, str]:
    """The kind and the name that a full path is made of."""
    kind, _, field = path.rpartition(".")
    return kind, field


def last_said(told: Iterable[Fact], path: str) -> str | None:
    """What was said last of a field, such as ``loss.value``, among facts."""
    kind, field = parted_path(path)
    text = None
    for fact in told:
        if fact.get("fact") == kind and field in fact:
            text = fact[field]
    return text


class Packer:
    """Packs facts, and picks out the summarised fields. Not for two threads at once."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._pack: Callable[[Any], bytes] = msgpack.Packer().pack
        self._unsaid: list[str | float | None] = [None] * len(fields)
        self._wanted: dict[str, list[tuple[int, str]]] = {}
        for index, path in enumerate(fields):
            kind, field = parted_path(path)
            self._wanted.setdefault(kind, []).append((index, field))
        self._shapes: dict[tuple[str | None, ...], Shape] = {}

    def pack(self, facts: list[Fact]) -> tuple[bytes, int, Texts]:
        """The packed facts, how many nodes had their turn in them, and the text said last of each summarised field."""
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
        """Looked at closely once for each sequence of kinds: most forwards of a run tell the same."""
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
        """One packed fact, its packed summary, and its summarised fields; `given` is what the fact was made of."""
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
                # A NaN is its text: what else its bits say, a text does not, and the curve is to be the same from both.
                texts[index] = value if type(value) is float and value == value else fact[field]
        if texts == self._unsaid:
            return packed, b"", None  # none of them is in it
        return packed, self._pack(texts), texts

    def summary(self, texts: Texts, inside: list[str] | None = None) -> bytes:
        """The packed summary of an entry: the texts, and the nodes a forward is in that goes on."""
        if inside is not None:
            return self._pack([*(texts or self._unsaid), inside])
        return self._pack(texts) if texts is not None else b""

    def _shortened(self, facts: list[Fact]) -> bytes:
        packed: bytes = msgpack.packb([shortened(said(fact)) for fact in facts])
        self._pack = msgpack.Packer().pack  # it keeps the largest buffer it ever needed
        return packed


def shortened(fact: Fact) -> Fact:
    """The same fact, each text of it cut at a character if it is too long to keep."""
    if all(len(text) <= WHOLE_UP_TO for text in fact.values()):
        return fact
    return {key: text if len(text) <= WHOLE_UP_TO else _cut(text) for key, text in fact.items()}


def _cut(text: str) -> str:
    return f"{text[:WHOLE_UP_TO]}… <cut: {len(text)} characters in all>"


def unpack(bodies: Iterable[bytes]) -> Iterator[Fact]:
    """The facts in packed bodies, in order. Raises ValueError for what is no packed fact."""
    for body in bodies:
        unpacker = msgpack.Unpacker(max_buffer_size=0, strict_map_key=True)
        unpacker.feed(body)
        for fact in unpacker:
            if type(fact) is not dict:
                raise ValueError("what was packed is no fact")
            yield fact

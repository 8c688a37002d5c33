"""Facts as they are stored: packed one after the other, and beside them what a column needs to know of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgpack

from somatize.facts import Fact, said

COUNTED = frozenset({"ran", "recalled", "failed"})
"""The kinds that count as a node having its turn."""
WHOLE_UP_TO = 256 << 10
"""Characters up to which a text of a fact is kept whole. A longer one is cut there and says how long it was."""
_LOOK_CLOSER = 512 << 10


def field_path(name: str) -> str:
    """The full path of what a curve or a column is asked for by: ``loss`` is its ``loss.value``."""
    return name if "." in name else f"{name}.value"


class Packer:
    """Packs facts, and picks out the summarised fields. Not for two threads at once."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._packer = msgpack.Packer()
        self._count = len(fields)
        self._wanted: dict[str, list[tuple[int, str]]] = {}
        for index, path in enumerate(fields):
            kind, _, field = path.rpartition(".")
            self._wanted.setdefault(kind, []).append((index, field))

    def pack(self, facts: list[Fact], inside: list[str] | None = None) -> tuple[bytes, int, bytes]:
        """The packed facts, how many nodes had their turn in them, and the packed summary."""
        nodes = 0
        wanted = self._wanted
        texts: list[Any] | None = None
        for fact in facts:
            kind = fact.get("fact")
            if kind in COUNTED:
                nodes += 1
            if kind in wanted:
                for index, field in wanted[kind]:
                    if field in fact:
                        texts = texts or [None] * self._count
                        texts[index] = fact[field]
        if inside is not None:
            texts = [*(texts or [None] * self._count), inside]
        return self._packed(facts), nodes, self._packer.pack(texts) if texts is not None else b""

    def _packed(self, facts: list[Fact]) -> bytes:
        count = len(facts)
        try:
            packed: bytes = self._packer.pack(facts)
        except (TypeError, ValueError, OverflowError):
            facts = [said(fact) for fact in facts]
            packed = msgpack.packb(facts)
        if len(packed) > _LOOK_CLOSER:
            packed = msgpack.packb([shortened(fact) for fact in facts])
            self._packer = msgpack.Packer()  # it keeps the largest buffer it ever needed
        return packed[1 if count < 16 else 3 if count < 65536 else 5 :]


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

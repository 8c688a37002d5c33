"""What nodes did, counted. Most facts say that a node had its turn, and these are counted as they lie, packed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgpack

from somatize.facts import Fact
from somatize.storage.lines import RunLines

_AT_ONCE = 1 << 20
"""Bytes of facts that are looked at in one go: a forward is quickly counted, and slowly begun with."""
_FAILED = b"\xa6failed"
ENDINGS = ("ran", "recalled", "failed")
"""How a node's turn ends."""


class Where(NamedTuple):
    """A host and a device, each empty where none was said."""

    host: str = ""
    device: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in self if part) or "here"


@dataclass
class Spent:
    """What one node did: per place and ending, how often and how long in all, in microseconds."""

    node: str
    turns: dict[tuple[Where, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, where: Where, ending: str, us: int, turns: int = 1) -> None:
        """One turn more, or so many that took so long together."""
        count, total = self.turns.get((where, ending), (0, 0))
        self.turns[where, ending] = count + turns, total + us

    def count(self, *endings: str) -> int:
        """How many turns ended so; all of them if no ending is named."""
        return sum(count for (_, ending), (count, _) in self.turns.items() if not endings or ending in endings)

    @property
    def us(self) -> int:
        """How long all turns took."""
        return sum(total for _, total in self.turns.values())


class Tally:
    """What each node did, by node, in the order in which they were told of first."""

    def __init__(self) -> None:
        self.by_node: dict[str, Spent] = {}

    def over(self, lines: RunLines, since: int = 0) -> Tally:
        """Count the turns of each forward of a run from `since` on."""
        for stretch in stretches(lines, since):
            odd = [row for row in stretch if _FAILED in row[1]]
            failing = {forward for forward, _ in odd}
            if not self.take_packed([body for forward, body in stretch if forward not in failing]):
                odd = stretch
            for forward, body in odd:
                for _, told in lines.unpacked(forward, [body]):
                    self.take(told)
        return self

    def take(self, told: Iterable[Fact]) -> None:
        """Count the turns among these facts."""
        for fact in told:
            ending, node = fact.get("fact", ""), fact.get("node")
            if ending in ENDINGS and node is not None:
                self._of(node).add(where_of(fact), ending, micro(fact, "took_us"))

    def take_packed(self, bodies: Sequence[bytes]) -> bool:
        """Count the turns in packed facts; False, and nothing is counted, where these have to be unpacked.

        What it can count is what the engine tells of turns, among facts of short texts. Several times as fast as
        unpacking.
        """
        if not bodies:
            return True
        found = _turns_in(bodies)
        if found is None:
            return False
        for fact, took in found:
            self._of(fact["node"]).add(where_of(fact), fact["fact"], sum(map(int, took)), len(took))
        return True

    def spent(self) -> list[Spent]:
        """The nodes, the one that took longest first."""
        return sorted(self.by_node.values(), key=lambda one: (-one.us, one.node))

    def _of(self, node: str) -> Spent:
        spent = self.by_node.get(node)
        if spent is None:
            spent = self.by_node[node] = Spent(node)
        return spent


def stretches(lines: RunLines, since: int = 0) -> Iterator[list[tuple[int, bytes]]]:
    """The forwards of a run with their packed facts, as many at a time as can be held."""
    stretch: list[tuple[int, bytes]] = []
    size = 0
    for forward, bodies in lines.packed(since):
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        stretch.append((forward, body))
        size += len(body)
        if size > _AT_ONCE:
            yield stretch
            stretch, size = [], 0
    if stretch:
        yield stretch


def where_of(fact: Fact) -> Where:
    """Where a fact says that its node was."""
    return Where(fact.get("host", ""), fact.get("device", ""))


def micro(fact: Fact, name: str) -> int:
    """A field of microseconds; 0 where it is none."""
    text = fact.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


# -- packed facts
#
# What may be counted are facts of ASCII texts, but for names. A byte of such a text is never one that begins the next
# text or fact, and in UTF-8 never stands before one that continues a character; so in what was packed these patterns
# end where its texts do. What they find one behind the other are the facts that unpacking gives, if it is all there is.

_TEXT = rb"(?:[\xa0-\xbf]|\xd9)[\x00-\x7f]*+"
_DIGITS = rb"[\xa1-\xb4][0-9]++"
_TURN = rb"[\x84-\x86]\xa4fact(?:\xa3ran|\xa8recalled)\xa4node[\xa0-\xbf\xd9][^\xa5\xa8]*+"
_TOOK = rb"(?:\xa8began_us|\xa5bytes)%s\xa7took_us[\xa1-\xb4]([0-9]++)" % _DIGITS
_PLACE = rb"(?:(?:\xa4host|\xa6device)%s)*+" % _TEXT
_OTHER = rb"(?:[\x81-\x8f]\xa4fact(?!\xa3ran|\xa8recalled|\xa6failed)(?:%s)++)" % _TEXT
_FACT = re.compile(rb"((%s)%s(%s)|%s)" % (_TURN, _TOOK, _PLACE, _OTHER))
_MOST = 64
"""Turns of a forward for which a pattern of the whole of it is made, and other facts between two of them."""

_Turn: TypeAlias = tuple[bytes, bytes]
"""A packed fact less its times: what stands before them, and what behind."""


def _turns_in(bodies: Sequence[bytes]) -> list[tuple[Fact, Sequence[bytes]]] | None:
    """Each different fact of a turn, less its times, with how long each of them took; None where it is not so plain."""
    packed = b"".join(bodies)
    took = _taken_alike(bodies[0], packed) or _taken(packed)
    try:
        return None if took is None else [(_without_times(*turn), us) for turn, us in took]
    except ValueError:
        return None


def _taken_alike(first: bytes, packed: bytes) -> list[tuple[_Turn, Sequence[bytes]]] | None:
    """How long turns took, where those of every forward are those of the first, in that order, as they mostly are."""
    turns = [(before, behind) for _, before, _, behind in _FACT.findall(first) if before]
    if not 0 < len(turns) <= _MOST:
        return None
    between = _OTHER + b"{0,%d}+" % _MOST
    alike = [re.escape(before) + _TOOK + re.escape(behind) + between for before, behind in turns]
    found = re.findall(b"(%s%s)" % (between, b"".join(alike)), packed)
    if sum(len(whole) for whole, *_ in found) != len(packed):
        return None
    return list(zip(turns, list(zip(*found, strict=True))[1:], strict=True))


def _taken(packed: bytes) -> list[tuple[_Turn, Sequence[bytes]]] | None:
    """How long the turns of each kind took, in whatever order they are told."""
    took: dict[_Turn, list[bytes]] = {}
    size = 0
    for whole, before, us, behind in _FACT.findall(packed):
        size += len(whole)
        if before:
            took.setdefault((before, behind), []).append(us)
    return list(took.items()) if size == len(packed) else None


def _without_times(before: bytes, behind: bytes) -> Fact:
    """A fact less its two times. Raises ValueError if these bytes are none."""
    fact: Fact = msgpack.unpackb(bytes([before[0] - 2]) + before[1:] + behind)
    return fact

"""Totals of the turns of nodes: how often each ran, was recalled or failed, where, and for how long.

They are counted in packed facts where these are plain, several times as fast as by unpacking them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgpack

from somatize.facts import Fact

from .open_store import hold
from .run_reader import RunLines, StoreSnapshot, lines_of, look
from .store import Store

_AT_ONCE = 1 << 20
"""Bytes of facts that are looked at in one go: a forward is quickly counted, and slowly begun with."""
PackedForwards: TypeAlias = list[tuple[int, bytes]]
"""Forwards with their packed facts."""
ENDINGS = ("ran", "recalled", "failed")
"""The ends of a node's turn."""


class Where(NamedTuple):
    """A host and a device, each empty where none was said."""

    host: str = ""
    device: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in self if part) or "here"


@dataclass
class Spent:
    """Totals of one node: count and time in microseconds, by place and ending."""

    node: str
    turns: dict[tuple[Where, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, where: Where, ending: str, us: int, turns: int = 1) -> None:
        """One turn more, or so many that took so long together."""
        count, total = self.turns.get((where, ending), (0, 0))
        self.turns[where, ending] = count + turns, total + us

    def count(self, *endings: str) -> int:
        """The number of turns with an ending; all turns if none is named."""
        return sum(count for (_, ending), (count, _) in self.turns.items() if not endings or ending in endings)

    @property
    def us(self) -> int:
        """The total time of all turns."""
        return sum(total for _, total in self.turns.values())

    @property
    def mean_us(self) -> float | None:
        """The mean time of a run; recalled and failed turns do not count. None if it never ran."""
        ran = [turns for (_, ending), turns in self.turns.items() if ending == "ran"]
        count = sum(count for count, _ in ran)
        return sum(total for _, total in ran) / count if count else None


class NodeTally:
    """Totals by node, in the order in which nodes first appear.

    Forwards in which a fact of one of the kinds `apart` was told are none that it counts packed.
    """

    def __init__(self, apart: tuple[str, ...] = ()) -> None:
        self.by_node: dict[str, Spent] = {}
        marks = [_packed(kind) for kind in (*apart, "failed")]
        self._apart = re.compile(b"|".join(map(re.escape, marks)))
        self._patterns = _Patterns(marks)

    def over(self, lines: RunLines, since: int = 0) -> NodeTally:
        """Count the turns of each forward of a run from `since` on."""
        for stretch in stretches(lines, since):
            for forward, body in self.not_counted(stretch):
                for _, told in lines.unpacked(forward, [body]):
                    self.take(told)
        return self

    def not_counted(self, stretch: PackedForwards) -> PackedForwards:
        """Count the turns of a stretch, and give the forwards of it that have to be unpacked: they are not counted."""
        is_apart = self._apart.search
        if not is_apart(stretch[0][1]) and self.take_packed([body for _, body in stretch]):
            return []
        odd = [row for row in stretch if is_apart(row[1])]
        numbers = {forward for forward, _ in odd}
        counted = self.take_packed([body for forward, body in stretch if forward not in numbers])
        return odd if counted else stretch

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
        found = self._patterns.turns_in(bodies)
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


class RunTurns(NamedTuple):
    """The turns of the nodes of a run, by node, with the count and the total time of its forwards."""

    run: str
    forwards: int
    us: int
    nodes: dict[str, Spent]

    @property
    def node_us(self) -> int:
        """The time of all turns."""
        return sum(spent.us for spent in self.nodes.values())


def turns_in(store: Store | str | os.PathLike[str], run: str | None) -> RunTurns:
    """The turns of a run, of the only one if it is not named. Reads every fact. Raises `UnknownRun`, `WhichRun`."""
    held = store if isinstance(store, Store) else hold(Path(os.path.realpath(store)))

    def work(view: StoreSnapshot) -> RunTurns:
        lines = lines_of(view, run)
        more = lines.counted()
        forwards, us = lines.info.rows + more.rows, lines.info.took_us + more.took_us
        return RunTurns(lines.name, forwards, us, NodeTally().over(lines).by_node)

    return look(held.opened, work)


def stretches(lines: RunLines, since: int = 0) -> Iterator[PackedForwards]:
    """The forwards of a run with their packed facts, as many at a time as can be held."""
    stretch: PackedForwards = []
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
    """The place of a node's turn: host and device."""
    return Where(fact.get("host", ""), fact.get("device", ""))


def micro(fact: Fact, name: str) -> int:
    """A field of microseconds; 0 where it is none."""
    text = fact.get(name, "")
    return int(text) if len(text) <= 18 and text.isascii() and text.isdigit() else 0  # `facts.whole_number`, inlined


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
_MOST = 64
"""Turns of a forward for which a pattern of the whole of it is made, and other facts between two of them."""

_Turn: TypeAlias = tuple[bytes, bytes]
"""A packed fact less its times: what stands before them, and what behind."""


class _Patterns:
    """Finds turns in packed facts by their bytes, if none of them is of a kind in `marks`."""

    def __init__(self, marks: Sequence[bytes]) -> None:
        unlike = b"|".join(re.escape(mark) for mark in (*marks, *map(_packed, ("ran", "recalled"))))
        self._other = rb"(?:[\x81-\x8f]\xa4fact(?!%s)(?:%s)++)" % (unlike, _TEXT)
        self._fact = re.compile(rb"((%s)%s(%s)|%s)" % (_TURN, _TOOK, _PLACE, self._other))

    def turns_in(self, bodies: Sequence[bytes]) -> list[tuple[Fact, Sequence[bytes]]] | None:
        """Each different fact of a turn, less its times, with how long each of them took; None if not so plain."""
        packed = b"".join(bodies)
        took = self._alike(bodies[0], packed) or self._any(packed)
        try:
            return None if took is None else [(_without_times(*turn), us) for turn, us in took]
        except ValueError:
            return None

    def _alike(self, first: bytes, packed: bytes) -> list[tuple[_Turn, Sequence[bytes]]] | None:
        """The durations of turns, if every forward has the turns of the first in that order; else None."""
        turns = [(before, behind) for _, before, _, behind in self._fact.findall(first) if before]
        if not 0 < len(turns) <= _MOST:
            return None
        between = self._other + b"{0,%d}+" % _MOST
        alike = [re.escape(before) + _TOOK + re.escape(behind) + between for before, behind in turns]
        found = re.findall(b"(%s%s)" % (between, b"".join(alike)), packed)
        if not found:
            return None
        wholes, *took = zip(*found, strict=True)
        return list(zip(turns, took, strict=True)) if sum(map(len, wholes)) == len(packed) else None

    def _any(self, packed: bytes) -> list[tuple[_Turn, Sequence[bytes]]] | None:
        """The durations of turns by kind, in any order."""
        took: dict[_Turn, list[bytes]] = {}
        size = 0
        for whole, before, us, behind in self._fact.findall(packed):
            size += len(whole)
            if before:
                took.setdefault((before, behind), []).append(us)
        return list(took.items()) if size == len(packed) else None


def _packed(kind: str) -> bytes:
    """A short text as msgpack has it."""
    return bytes([0xA0 | len(kind)]) + kind.encode()


def _without_times(before: bytes, behind: bytes) -> Fact:
    """A fact less its two times. Raises ValueError if these bytes are none."""
    fact: Fact = msgpack.unpackb(bytes([before[0] - 2]) + before[1:] + behind)
    return fact

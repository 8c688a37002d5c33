"""All that the facts of a run say that a page of it shows, from one pass over them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgpack

from somatize.facts import Fact
from somatize.storage import schema
from somatize.storage.lines import RunLines
from somatize.storage.packing import unpack

from .fleet import HERE, Hosts
from .status_reader import LOG_FIELDS, stats_of, tasks_of
from .turns import ENDINGS, Spent, Where

_RARE = ("log", "task", "throughput", "machine", "left", "broke")
_MARKS = [bytes([0xA0 | len(kind)]) + kind.encode() for kind in _RARE]
_PLAIN = 4
"""Fields of a fact that says no more than that a node ran, and how long."""
_AT_ONCE = 1 << 20
"""Bytes of facts that are unpacked in one go."""
_LOGS, _TASKS = 200, 5000


class Digest(NamedTuple):
    """What nodes did, each host's row, tasks, the last of all `said` log records, and how each stream went last.

    `whys` says why forwards broke.
    """

    spent: list[Spent]
    hosts: list[dict[str, Any]]
    tasks: list[dict[str, Any]]
    logs: list[dict[str, Any]]
    said: int
    streams: list[dict[str, Any]]
    whys: dict[int, str]


def digest(lines: RunLines) -> Digest:
    """Reads every fact of a run once."""
    return _Pass().over(lines)


class _Pass:
    def __init__(self) -> None:
        self.spent: dict[str, Spent] = {}
        self.hosts = Hosts()
        self.tasks: deque[tuple[int | None, Fact]] = deque(maxlen=_TASKS)
        self.logs: tuple[deque[dict[str, Any]], ...] = (deque(maxlen=_LOGS), deque(maxlen=_LOGS))
        """Those of the run itself, and those of its forwards."""
        self.said = 0
        self.streams: dict[str, Fact] = {}
        self.whys: dict[int, str] = {}

    def over(self, lines: RunLines) -> Digest:
        for forward, facts in _facts(lines):
            self._take(forward, facts)
        for spent in self.spent.values():
            for (where, ending), (count, us) in spent.turns.items():
                self.hosts.worked(where.host or HERE, ending, us, count)
        tasks = tasks_of(lines, self.tasks)
        streams = [stats_of(fact) for fact in self.streams.values()]
        ordered = sorted(self.spent.values(), key=lambda one: (-one.us, one.node))
        return Digest(ordered, self.hosts.rows(), tasks, [*self.logs[0], *self.logs[1]], self.said, streams, self.whys)

    def _take(self, forward: int | None, facts: Sequence[Fact]) -> None:
        plain: dict[str, list[str]] = {}
        for fact in facts:
            # Most facts say no more than that a node ran, and how long, and there are many: first of all these.
            if len(fact) == _PLAIN and fact.get("fact") == "ran" and "began_us" in fact:
                node = fact["node"]
                if node in plain:
                    plain[node].append(fact["took_us"])
                else:
                    plain[node] = [fact["took_us"]]
                continue
            kind = fact.get("fact", "")
            if kind in ENDINGS:
                where = Where(fact.get("host", ""), fact.get("device", ""))
                self._turns(fact.get("node", ""), where, kind, [fact.get("took_us", "")])
            elif kind in _RARE:
                self._take_rare(forward, kind, fact)
        for node, took in plain.items():
            self._turns(node, Where(), "ran", took)

    def _turns(self, node: str, where: Where, ending: str, took: Sequence[str]) -> None:
        spent = self.spent.get(node)
        if spent is None:
            spent = self.spent[node] = Spent(node)
        count, us = spent.turns.get((where, ending), (0, 0))
        spent.turns[where, ending] = count + len(took), us + _sum(took)

    def _take_rare(self, forward: int | None, kind: str, fact: Fact) -> None:
        if kind == "log":
            self.said += 1
            self.logs[forward is not None].append(
                {"forward": forward, **{field: fact.get(field) for field in LOG_FIELDS}}
            )
        elif kind == "task":
            self.tasks.append((forward, fact))
        elif kind == "throughput":
            self.streams[fact.get("stream", "")] = fact
        elif kind == "broke":
            if forward is not None:
                self.whys[forward] = fact.get("why", "")
        else:
            self.hosts.told(fact.get("host", HERE), kind, fact)


def _sum(took: Sequence[str]) -> int:
    try:
        return sum(map(int, took))
    except ValueError:
        return sum(int(text) for text in took if text.isdecimal())


def _facts(lines: RunLines) -> Iterator[tuple[int | None, list[Fact]]]:
    """The facts of the run itself and of its forwards.

    Forwards in which nothing is told but what nodes did are given many at once, as those of none: a forward is quickly
    unpacked, and slowly begun with.
    """
    yield None, list(unpack(lines.bodies(schema.OWN) or []))
    packed: list[tuple[int, bytes]] = []
    size = 0
    for forward, bodies in lines.packed():
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        packed.append((forward, body))
        size += len(body)
        if size > _AT_ONCE:
            yield from _told_apart(lines, packed)
            packed, size = [], 0
    yield from _told_apart(lines, packed)


def _told_apart(lines: RunLines, packed: list[tuple[int, bytes]]) -> Iterator[tuple[int | None, list[Fact]]]:
    """Each forward in which something rare is told, and all others together."""
    whole = b"".join([body for _, body in packed])
    marks = [mark for mark in _MARKS if mark in whole]
    if not marks:
        yield None, _together([body for _, body in packed])
        return
    plain: list[bytes] = []
    for forward, body in packed:
        if any(mark in body for mark in marks):
            yield from lines.unpacked(forward, [body])
        else:
            plain.append(body)
    yield None, _together(plain)


def _together(bodies: list[bytes]) -> list[Fact]:
    """Facts of many forwards; where one of these cannot be read, all but that."""
    try:
        return _unpacked(b"".join(bodies))
    except ValueError:
        return [fact for body in bodies for fact in _readable(body)]


def _unpacked(body: bytes) -> list[Fact]:
    unpacker = msgpack.Unpacker(max_buffer_size=0, strict_map_key=True)
    unpacker.feed(body)
    found: list[Fact] = list(unpacker)
    if set(map(type, found)) - {dict}:
        raise ValueError("what was packed is no fact")
    return found


def _readable(body: bytes) -> list[Fact]:
    try:
        return list(unpack([body]))
    except ValueError:
        return []

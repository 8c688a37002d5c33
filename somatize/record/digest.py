"""All that the facts of a run say that a page of it shows, from one pass over them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from somatize.facts import Fact
from somatize.store import schema
from somatize.store.lines import RunLines
from somatize.store.packing import unpack

from .fleet import HERE, Hosts
from .node_totals import ENDINGS, Spent, Tally, stretches
from .status_reader import LOG_FIELDS, stats_of, tasks_of

_RARE = ("log", "task", "throughput", "machine", "left", "broke")
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
        self.tally = Tally(apart=_RARE)
        self.hosts = Hosts()
        self.tasks: deque[tuple[int | None, Fact]] = deque(maxlen=_TASKS)
        self.logs: tuple[deque[dict[str, Any]], ...] = (deque(maxlen=_LOGS), deque(maxlen=_LOGS))
        """Those of the run itself, and those of its forwards."""
        self.said = 0
        self.streams: dict[str, Fact] = {}
        self.whys: dict[int, str] = {}

    def over(self, lines: RunLines) -> Digest:
        self._take(None, list(unpack(lines.bodies(schema.OWN) or [])))
        for stretch in stretches(lines):
            for number, body in self.tally.not_counted(stretch):
                for forward, facts in lines.unpacked(number, [body]):
                    self._take(forward, facts)
        for spent in self.tally.by_node.values():
            for (where, ending), (count, us) in spent.turns.items():
                self.hosts.worked(where.host or HERE, ending, us, count)
        tasks = tasks_of(lines, self.tasks)
        streams = [stats_of(fact) for fact in self.streams.values()]
        logs = [*self.logs[0], *self.logs[1]]
        return Digest(self.tally.spent(), self.hosts.rows(), tasks, logs, self.said, streams, self.whys)

    def _take(self, forward: int | None, facts: Sequence[Fact]) -> None:
        self.hosts.went(facts)
        for fact in facts:
            kind = fact.get("fact", "")
            if kind in _RARE:
                self._take_rare(forward, kind, fact)
            elif kind in ENDINGS:
                self.tally.take([fact])

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
        elif kind == "broke" and forward is not None:
            self.whys[forward] = fact.get("why", "")

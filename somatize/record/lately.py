"""What nodes and hosts did lately: over the last forwards that were looked at, and no further back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from somatize.facts import Fact

from .node_totals import ENDINGS, Spent, Where, micro

_FORWARDS, _FACTS = 250, 20_000
"""Of how many forwards, or facts of nodes, one half of the window is made."""


@dataclass
class HostSpent:
    """What one host did: slices sent to it, how long they took there and back, how long its nodes worked of that."""

    slices: int = 0
    trip_us: int = 0
    ran_us: int = 0
    failures: int = 0

    def add(self, other: HostSpent) -> None:
        """Both together."""
        self.slices += other.slices
        self.trip_us += other.trip_us
        self.ran_us += other.ran_us
        self.failures += other.failures


@dataclass
class _Half:
    forwards: int = 0
    facts: int = 0
    nodes: dict[str, Spent] = field(default_factory=dict)
    hosts: dict[str, HostSpent] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return self.forwards >= _FORWARDS or self.facts >= _FACTS


class Lately:
    """A window over the last forwards, 250 to 500 of them; of large graphs fewer."""

    def __init__(self) -> None:
        self._before, self._now = _Half(), _Half()
        self.home: dict[str, str] = {}
        """The host that each node last ran at, of those that ran at one."""

    def take(self, told: Sequence[Fact]) -> None:
        """The facts of one more forward, or some of them."""
        if self._now.full:
            self._before, self._now = self._now, _Half()
        half, ended = self._now, False
        for fact in told:
            kind, host = fact.get("fact", ""), fact.get("host", "")
            if kind in ENDINGS:
                self._turn(fact, kind, host)
            elif kind == "left":
                spent = half.hosts.setdefault(host, HostSpent())
                spent.slices += 1
                spent.trip_us += micro(fact, "took_us")
            elif kind in ("finished", "broke"):
                ended = True
        half.forwards += ended

    def _turn(self, fact: Fact, kind: str, host: str) -> None:
        half, node, took = self._now, fact.get("node", ""), micro(fact, "took_us")
        half.facts += 1
        half.nodes.setdefault(node, Spent(node)).add(Where(host, fact.get("device", "")), kind, took)
        if host:
            self.home[node] = host
            spent = half.hosts.setdefault(host, HostSpent())
            spent.ran_us += took
            spent.failures += kind == "failed"

    @property
    def forwards(self) -> int:
        """How many forwards it holds."""
        return self._before.forwards + self._now.forwards

    def nodes(self) -> list[Spent]:
        """What each node did, the one that took longest first."""
        found: dict[str, Spent] = {}
        for half in (self._before, self._now):
            for node, spent in half.nodes.items():
                whole = found.setdefault(node, Spent(node))
                for (where, ending), (count, us) in spent.turns.items():
                    known, total = whole.turns.get((where, ending), (0, 0))
                    whole.turns[where, ending] = known + count, total + us
        return sorted(found.values(), key=lambda one: (-one.us, one.node))

    def hosts(self) -> dict[str, HostSpent]:
        """What each host did, the one waited for longest first."""
        found: dict[str, HostSpent] = {}
        for half in (self._before, self._now):
            for host, spent in half.hosts.items():
                found.setdefault(host, HostSpent()).add(spent)
        return dict(sorted(found.items(), key=lambda one: (-one[1].trip_us, one[0])))

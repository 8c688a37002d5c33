"""What hosts did for a run: how often something went there, how long that took, and how long they worked of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from somatize.facts import Fact
from somatize.store.lines import RunLines
from somatize.store.view import look

from .asked import Place, lines_of, opened_at
from .node_totals import micro

HERE = "here"
"""What the place that has no host is called."""

_WORKED = ("ran", "failed", "recalled")


def fleet(store: Place, run: str | None = None) -> list[dict[str, Any]]:
    """A row per host, ``"here"`` first and the busiest next: what it did, and how its machine was last.

    `slices` went there and came back, in `trip` microseconds in all; its nodes `ran` for so many, also in slices that
    did not come back, and what of the trips they did not run was `waiting`: the way, and whatever was prepared.
    `failures` are nodes that failed there. `workers` said last how they are, those started anew in place of the ones
    before; `busy` (processors kept busy) is theirs together, `memory` (the share of the machine's that is in use) and
    `cores` those of one; None where none did. What ran here has no trips. Reads every fact of the run.
    """
    return fleet_in(store, run)[1]


def fleet_in(store: Place, run: str | None) -> tuple[str, list[dict[str, Any]]]:
    """The run's name, and a row per host."""

    def work(lines: RunLines) -> tuple[str, list[dict[str, Any]]]:
        return lines.name, fleet_of(told for _, told in lines.facts(0))

    with opened_at(store) as opened:
        return look(opened, lambda view: work(lines_of(view, run)))


def fleet_of(told: Iterable[Sequence[Fact]]) -> list[dict[str, Any]]:
    """A row per host of these forwards."""
    hosts = Hosts()
    for facts in told:
        hosts.went(facts)
        for fact in facts:
            if fact.get("fact") in _WORKED:
                hosts.worked(fact.get("host", HERE), fact["fact"], micro(fact, "took_us"))
    return hosts.rows()


class Hosts:
    """Hosts as facts tell of them, put together into rows."""

    def __init__(self) -> None:
        self._rows = {HERE: _row(HERE)}
        self._returned: dict[str, int] = {}
        """Of each host how long nodes ran in slices that came back."""
        self._machines: dict[str, dict[str, Fact]] = {}
        self._known: set[tuple[str, str]] = set()

    def worked(self, host: str, kind: str, us: int, turns: int = 1) -> None:
        """Nodes had their turns there."""
        row = self._of(host)
        row["ran"] += us
        row["failures"] += turns * (kind == "failed")

    def went(self, facts: Sequence[Fact]) -> None:
        """Take what one forward was told of its slices and of machines."""
        ran: dict[str, int] = {}
        heard: set[tuple[str, str]] = set()
        for fact in facts:
            kind, host = fact.get("fact", ""), fact.get("host", HERE)
            if kind in _WORKED:
                ran[host] = ran.get(host, 0) + micro(fact, "took_us")
            elif kind == "left":
                row = self._of(host)
                row["slices"] += 1
                row["trip"] += micro(fact, "took_us")
                self._returned[host] = self._returned.get(host, 0) + ran.pop(host, 0)
            elif kind == "machine":
                self._hears(host, fact, heard)

    def _hears(self, host: str, fact: Fact, heard: set[tuple[str, str]]) -> None:
        """A machine says how it is; a new one takes the place of those of its host that are silent in this forward."""
        self._of(host)
        one = host, fact.get("id", "")
        heard.add(one)
        there = self._machines.setdefault(host, {})
        if one not in self._known:
            self._known.add(one)
            for gone in [id for id in there if (host, id) not in heard]:
                del there[gone]
        there[one[1]] = fact

    def _of(self, host: str) -> dict[str, Any]:
        if host not in self._rows:
            self._rows[host] = _row(host)
        return self._rows[host]

    def rows(self) -> list[dict[str, Any]]:
        """What `fleet` gives."""
        for host, said in self._machines.items():
            self._rows[host] |= _latest(list(said.values()))
        for host, row in self._rows.items():
            row["waiting"] = max(0, row["trip"] - self._returned.get(host, 0))
        here, *others = self._rows.values()
        return [here, *sorted(others, key=lambda row: (-row["trip"], row["host"]))]


def _row(host: str) -> dict[str, Any]:
    counts = {"slices": 0, "trip": 0, "ran": 0, "waiting": 0, "failures": 0, "workers": 0}
    return {"host": host, **counts, "busy": None, "memory": None, "cores": None}


def _latest(said: list[Fact]) -> dict[str, Any]:
    busy = [_number(fact["busy"]) for fact in said if "busy" in fact]
    memory = [_number(fact["memory"]) for fact in said if "memory" in fact]
    shares = [share for share in memory if share <= 1]  # version 0.1 said how many bytes the worker held
    return {
        "workers": len(said),
        "busy": round(sum(busy), 3) if busy else None,
        "memory": max(shares) if shares else None,
        "cores": micro(said[-1], "cores"),
    }


def processors(row: Mapping[str, Any]) -> str:
    """How many processors a host's workers kept busy, of how many; empty where none said."""
    if row["cores"] is None:
        return ""
    return f"{row['cores']}" if row["busy"] is None else f"{row['busy']:.3g} of {row['cores']}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0

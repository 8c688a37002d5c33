"""Turns of nodes from facts: totals by place over many forwards, or the sequence in one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from somatize.facts import Fact
from somatize.store.node_tally import ENDINGS, NodeTally, Spent, Where, micro
from somatize.store.run_reader import RunLines, first_of, lines_of, look

from .column_reader import ForwardRange, columns_of
from .forward_reader import Place, check_range, opened_at
from .reader import facts
from .run_columns import STATES


class Total(NamedTuple):
    """A run, or its last forwards: how many, how long they took in all, and what nodes did in them."""

    run: str
    forwards: int
    us: int
    spent: list[Spent]


def spent_in(store: Place, run: str | None, last: int | None) -> Total:
    """Totals of nodes in a run, or in its last forwards. Reads every fact it covers."""
    check_range(last, None)

    def work(lines: RunLines) -> tuple[str, int, list[Spent]]:
        first = first_of(lines, last, None)
        return lines.name, first, NodeTally().over(lines, first).spent()

    with opened_at(store) as opened:
        name, first, found = look(opened, lambda view: work(lines_of(view, run)))
    columns = columns_of(store, name, [], ForwardRange(first))
    return Total(name, len(columns), int(sum(us for us in columns.took_us if us == us)), found)


@dataclass
class NodeTurn:
    """A node's turn, or a slice's way to a host and back, in one forward; times from the start of the forward.

    `known` says that its beginning was told. `inside` is the round trip that a turn on a host belongs to, `fact` what
    was told of it.
    """

    name: str
    ending: str
    where: Where
    began: float
    took: float
    known: bool = True
    why: str = ""
    inside: NodeTurn | None = None
    fact: Fact = field(default_factory=dict)

    @property
    def end(self) -> float:
        """When it was over."""
        return self.began + self.took


class OneForward(NamedTuple):
    """One forward as it was recorded."""

    run: str
    number: int
    state: str
    took: float | None
    why: str
    turns: list[NodeTurn]
    inside: Sequence[str] = ()
    """The nodes it was in when that was last written down, if it is open or lost."""


def one_forward(store: Place, run: str | None, forward: int) -> OneForward:
    """A forward of a run with its turns; -1 is the last. Raises `UnknownForward`."""
    if not isinstance(forward, int) or isinstance(forward, bool):
        raise TypeError(f"forward= is a whole number, -1 for the last; not {forward!r}")
    with opened_at(store) as opened:
        name, number, inside = look(opened, lambda view: _named(lines_of(view, run), forward))
    told = facts(store, name, number if number >= 0 else forward)
    columns = columns_of(store, name, [], ForwardRange(number, number))
    took = columns.took_us[0] if len(columns) and columns.took_us[0] == columns.took_us[0] else None
    state = STATES[columns.states[0]] if len(columns) else "lost"
    why = next((fact.get("why", "") for fact in told if fact.get("fact") == "broke"), "")
    return OneForward(name, number, state, took, why, turns_of(told), inside if state in ("open", "lost") else ())


def _named(lines: RunLines, forward: int) -> tuple[str, int, list[str]]:
    highest = lines.highest()
    number = forward if forward >= 0 else highest + 1 + forward
    return lines.name, number, lines.inside(number) if 0 <= number <= highest else []


def lanes_of(stretches: Iterable[tuple[float, float]]) -> list[int]:
    """For each stretch of time the first lane in which it begins after those before it ended."""
    free: list[float] = []
    lanes = []
    for began, ended in stretches:
        lane = next((lane for lane, until in enumerate(free) if until <= began), len(free))
        free[lane : lane + 1] = [ended]
        lanes.append(lane)
    return lanes


def turns_of(told: Sequence[Fact]) -> list[NodeTurn]:
    """The turns of one forward by when they began, each slice's after the round trip they arrived under."""
    turns: list[NodeTurn] = []
    end: dict[str, float] = {}
    for fact in told:
        kind, host = fact.get("fact", ""), fact.get("host", "")
        if kind not in (*ENDINGS, "left"):
            continue
        # When a kept result was recalled is not told: it is drawn after what came before it.
        known = "began_us" in fact
        began = float(micro(fact, "began_us")) if known else end.get(host, 0.0)
        where = Where(host, fact.get("device", ""))
        name = host if kind == "left" else fact.get("node", "")
        turn = NodeTurn(name, kind, where, began, float(micro(fact, "took_us")), known, fact.get("why", ""), fact=fact)
        turns.append(turn)
        if kind != "left":
            end[host] = turn.end
    _place_slices(turns)
    order = {id(turn): place for place, turn in enumerate(turns)}
    return sorted(turns, key=lambda turn: _place_of(turn, order))


def _place_of(turn: NodeTurn, order: dict[int, int]) -> tuple[float, int, bool, float, int]:
    trip = turn.inside or turn
    return trip.began, order[id(trip)], turn.inside is not None, turn.began, order[id(turn)]


def _place_slices(turns: list[NodeTurn]) -> None:
    """Move turns at a host, which have the clock of their slice, to the middle of the round trip."""
    for host in {turn.where.host for turn in turns if turn.ending == "left"}:
        there = [turn for turn in turns if turn.where.host == host]
        first = there[0].ending == "left"
        for trip, members in _trips(there if first else there[::-1]):
            if [(turn.began, turn.took) for turn in members] == [(trip.began, trip.took)]:
                members[0].inside = trip  # items that were sent out are told by the clock here
                continue
            slack = trip.took - max((turn.end for turn in members), default=trip.took)
            for turn in members:
                turn.began += trip.began + max(0.0, slack) / 2
                turn.inside = trip


def _trips(there: Sequence[NodeTurn]) -> list[tuple[NodeTurn, list[NodeTurn]]]:
    """Each round trip with the turns that follow it."""
    trips: list[tuple[NodeTurn, list[NodeTurn]]] = []
    for turn in there:
        if turn.ending == "left":
            trips.append((turn, []))
        elif trips:
            trips[-1][1].append(turn)
    return trips

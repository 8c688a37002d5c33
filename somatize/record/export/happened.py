"""What happened in a forward, laid out in time for a trace."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, TypeAlias

from somatize.facts import KINDS, Fact
from somatize.record.node_totals import micro
from somatize.record.node_turns import Turn, turns_of

from .chosen import Chosen
from .saying import Saying
from .tracks import HERE, Arrow, Drawn, Span, Track

_Whose: TypeAlias = tuple[str | None, str | None]
"""A node and a host."""

_UNTOLD = "not told; drawn after what was told before it"


class Happening:
    """Lays forwards out, one after the other, on what is `drawn`."""

    def __init__(self, run: str, drawn: Drawn, saying: Saying) -> None:
        self.run = run
        self.drawn = drawn
        self.saying = saying

    def add(self, one: Chosen) -> None:
        """A forward with all that was told of it; it ends when it was written down."""
        turns = turns_of(one.told)
        known = max([turn.end for turn in turns], default=0.0)
        took = float(one.took) if one.took is not None else known
        began = one.when - took
        self._add_forward(one, began, took)
        items = _items_of(one.told)
        spans = {id(turn.fact): self._span(turn, one.number, began, items.get(_whose(turn.fact), {})) for turn in turns}
        self._add_trips(turns, spans)
        self._add_kept(one, spans, began)
        self._add_inside(one, began + known)
        for place, fact in said_at(one.told, spans, began, began + took):
            self.saying.add(fact, place, one.number)

    def _add_forward(self, one: Chosen, began: float, took: float) -> None:
        name = f"forward {one.number}" + (f" ({one.state})" if one.state != "ok" else "")
        args: dict[str, Any] = {"run": self.run, "forward": one.number, "state": one.state, "nodes": one.nodes}
        if one.took is None:
            args["took_us"] = "not told: it did not end; drawn as far as its facts go"
        why = next((fact.get("why", "") for fact in one.told if fact.get("fact") == "broke"), "")
        args |= {"why": why} if why else {}
        args |= {"inside": ", ".join(one.inside)} if one.inside else {}
        bad = one.state in ("broke", "interrupted", "lost")
        self._add(Span(Track(HERE, "forwards"), name, "forward", began, began + took, args, bad=bad))

    def _add_inside(self, one: Chosen, at: float) -> None:
        """The nodes that a forward was in and never came out of, as far as is known."""
        args = {"forward": one.number, "took_us": "not told; the forward was in it when last written down"}
        for node in one.inside:
            name = f"{node} ({one.state})"
            self._add(Span(Track(HERE, "nodes"), name, "inside", at, at, dict(args), bad=one.state == "lost"))

    def _add(self, span: Span) -> Span:
        self.drawn.spans.append(span)
        return span

    def _span(self, turn: Turn, forward: int, began: float, items: dict[str, Any]) -> Span:
        args: dict[str, Any] = {"forward": forward, **_fields(turn.fact), **items}
        if not turn.known:
            args["began_us"] = _UNTOLD
        at, ended = began + turn.began, began + turn.end
        if turn.ending == "left":
            return self._add(Span(Track(HERE, "trips"), f"to {turn.name}", "left", at, ended, args))
        name = turn.name + ("" if turn.ending == "ran" else f" ({turn.ending})")
        track = Track(turn.where.host or HERE, "nodes")
        return self._add(Span(track, name, turn.ending, at, ended, args, bad=turn.ending == "failed"))

    def _add_trips(self, turns: list[Turn], spans: dict[int, Span]) -> None:
        """From each round trip an arrow to what ran first of it."""
        inside = [turn for turn in turns if turn.inside is not None]
        for _, members in groupby(inside, key=lambda turn: id(turn.inside)):
            first = min(members, key=lambda turn: turn.began)
            assert first.inside is not None
            trip, there = spans[id(first.inside.fact)], spans[id(first.fact)]
            self.drawn.arrows.append(Arrow(trip, there))

    def _add_kept(self, one: Chosen, spans: dict[int, Span], began: float) -> None:
        """What was written down of a node after its turn; of one whose turn is told later, there."""
        turns = {_whose(fact): spans[id(fact)] for fact in reversed(one.told) if id(fact) in spans}
        for fact in one.told:
            if id(fact) in spans:
                turns[_whose(fact)] = spans[id(fact)]
            elif fact.get("fact") == "kept":
                turn = turns.get(_whose(fact))
                at = turn.ended if turn is not None else began
                args = {"forward": one.number, **_fields(fact), "began_us": "not told; drawn after its node"}
                track = Track(fact.get("host") or HERE, "nodes")
                self._add(Span(track, f"{fact.get('node', '')} (kept)", "kept", at, at + micro(fact, "took_us"), args))


def _whose(fact: Fact) -> _Whose:
    return fact.get("node"), fact.get("host")


def _fields(fact: Fact) -> dict[str, Any]:
    """The fields of a fact of the engine, counts as numbers."""
    return {name: int(text) if _is_count(text) else text for name, text in fact.items() if name not in ("fact", "node")}


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _items_of(told: list[Fact]) -> dict[_Whose, dict[str, Any]]:
    """The counts that each mapped node told, for the words beside its turn."""
    found = {}
    for fact in told:
        if fact.get("fact") == "items":
            counts = _fields(fact)
            found[_whose(fact)] = {
                f"items_{name}": counts[name] for name in ("ran", "recalled", "failed") if name in counts
            }
            found[_whose(fact)] |= {"items": counts["items"]} if "items" in counts else {}
    return found


def said_at(told: list[Fact], spans: dict[int, Span], began: float, ended: float) -> Iterator[tuple[float, Fact]]:
    """Each fact that was said, and a moment for it, as no fact tells one.

    What a node said is spread evenly over its turn, in order; else it lies at the end of what was told before.
    """
    waiting: dict[_Whose, list[Fact]] = {}
    now = began
    for fact in told:
        kind, whose = fact.get("fact", ""), _whose(fact)
        if kind not in KINDS:
            if whose[0] is not None:
                waiting.setdefault(whose, []).append(fact)
            else:
                yield now, fact
            continue
        if kind in ("finished", "broke"):
            now = ended
        elif id(fact) in spans:
            span = spans[id(fact)]
            now = max(now, span.ended)
            said = waiting.pop(whose, [])
            step = (span.ended - span.began) / (len(said) + 1)
            yield from ((span.began + step * turn, one) for turn, one in enumerate(said, start=1))
    yield from ((now, fact) for said in waiting.values() for fact in said)

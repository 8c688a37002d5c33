"""What a forward said as numbers, under the names that `curve` takes: what trackers keep of a run."""

from __future__ import annotations

from collections.abc import Iterator

from somatize.facts import KINDS, Fact
from somatize.record.node_totals import ENDINGS, micro
from somatize.store.columns import number

from .losses import Losses
from .stored import Forward

_STAMPS = frozenset({"fact", "node", "host"})
_LOGGED = frozenset({"level", "logger", "message"})
"""Of a log record, what `texts_of` says."""


def points_of(forward: Forward, losses: Losses) -> Iterator[tuple[str, float]]:
    """The numbers of a forward, in the order they were said: name and value.

    ``took_us`` is how long it took and ``node/<id>/took_us`` how long a node's turn did; a fact's number has the name
    by which `curve` finds it: ``loss`` for its ``value``, else ``kind.field``. What is no number is counted.
    """
    if forward.took_us is not None:
        yield "took_us", float(forward.took_us)
    for fact in forward.facts:
        kind = fact.get("fact", "")
        if kind not in KINDS:
            yield from _said(kind, fact, losses)
        elif kind in ENDINGS:
            losses.add("turn", "when in its forward it began, where it was and how it ended is not kept")
            yield f"node/{fact['node']}/took_us", float(micro(fact, "took_us"))
        elif kind not in ("finished", "broke"):
            losses.add("fact", "kept, items and left are no number of a forward")


def _said(kind: str, fact: Fact, losses: Losses) -> Iterator[tuple[str, float]]:
    for field, text in fact.items():
        if field in _STAMPS:
            if field != "fact":
                losses.add("origin", "which node or host said a number, its name does not tell")
            continue
        value = number(text)
        if value is None:
            if kind != "log" or field not in _LOGGED:
                losses.add("said text", "no number")
            continue
        if len(text) > 15 and text.lstrip("-").isdigit() and int(text) != value:
            losses.add("whole number", "rounded to float64")
        yield name_of(kind, field), value


def name_of(kind: str, field: str) -> str:
    """The name by which `curve` finds a field of a fact."""
    return kind if field == "value" and "." not in kind else f"{kind}.{field}"


def texts_of(forward: Forward) -> Iterator[tuple[str, str]]:
    """What is for reading: why it broke, why nodes failed, and what was logged; a name and the text."""
    for fact in forward.facts:
        kind = fact.get("fact")
        if kind == "broke":
            yield "why", fact["why"]
        elif kind == "failed":
            yield f"why/{fact['node']}", fact["why"]
        elif kind == "log":
            yield "log", f"{fact.get('level', '')} {fact.get('logger', '')}: {fact.get('message', '')}"

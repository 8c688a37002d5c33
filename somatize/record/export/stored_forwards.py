"""Forwards of a run as exporters to trackers read them: each with its facts and its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from somatize.facts import KINDS, Fact
from somatize.record import reader
from somatize.record.forward_reader import Place, lines_of, opened_at
from somatize.record.node_totals import ENDINGS, micro
from somatize.store.lmdb_environment import BadValue
from somatize.store.record_format import number, unpack
from somatize.store.run_reader import RunLines, look

from .output import LossCounts

_AT_ONCE = 2048
"""Forwards whose facts are in memory at once."""


class StoredForward(NamedTuple):
    """A forward as it was recorded; `took_us` is None if it did not end, `when_us` in microseconds since 1970."""

    number: int
    state: str
    took_us: int | None
    when_us: int | None
    facts: list[Fact]


def run_name(store: Place, run: str | None) -> str:
    """The run that is meant. Raises `UnknownRun` and `WhichRun`."""
    with opened_at(store) as opened:
        return look(opened, lambda view: lines_of(view, run).name)


def forwards_of(
    store: Place, run: str, *, last: int | None = None, since: int | None = None
) -> Iterator[StoredForward]:
    """The forwards there are now, by number, the facts of a stretch at a time. A damaged one is named and has none."""
    rows = reader.forwards(store, run, last=last, since=since)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        told = _facts_between(store, run, some[0]["forward"], some[-1]["forward"])
        for row in some:
            number, when = row["forward"], row["when"]
            when_us = None if when is None else round(when * 1e6)
            yield StoredForward(number, row["state"], row["took_us"], when_us, told.get(number, []))


def _facts_between(store: Place, run: str, first: int, last: int) -> dict[int, list[Fact]]:
    with opened_at(store) as opened:
        return look(opened, lambda view: _facts_in(lines_of(view, run), first, last))


def _facts_in(lines: RunLines, first: int, last: int) -> dict[int, list[Fact]]:
    found: dict[int, list[Fact]] = {}
    for block in lines.blocks(first):
        if block.forwards[0] > last:
            break
        found.update((one, told) for one, told in lines.block_facts(block) if first <= one <= last)
    for forward in lines.lines:
        if first <= forward <= last:
            try:
                found[forward] = list(unpack(lines.bodies(forward) or []))
            except (BadValue, ValueError):
                lines.skip(forward)
    return found


_STAMPS = frozenset({"fact", "node", "host"})
_LOGGED = frozenset({"level", "logger", "message"})
"""Of a log record, what `texts_of` says."""


def points_of(forward: StoredForward, losses: LossCounts) -> Iterator[tuple[str, float]]:
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


def _said(kind: str, fact: Fact, losses: LossCounts) -> Iterator[tuple[str, float]]:
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
        yield series_name(kind, field), value


def series_name(kind: str, field: str) -> str:
    """The name by which `curve` finds a field of a fact."""
    return kind if field == "value" and "." not in kind else f"{kind}.{field}"


def texts_of(forward: StoredForward) -> Iterator[tuple[str, str]]:
    """What is for reading: why it broke, why nodes failed, and what was logged; a name and the text."""
    for fact in forward.facts:
        kind = fact.get("fact")
        if kind == "broke":
            yield "why", fact["why"]
        elif kind == "failed":
            yield f"why/{fact['node']}", fact["why"]
        elif kind == "log":
            yield "log", f"{fact.get('level', '')} {fact.get('logger', '')}: {fact.get('message', '')}"

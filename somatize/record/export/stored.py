"""The forwards of a run as exporters to other tools read them: one after the other, each with its facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from somatize.facts import Fact
from somatize.record import reader
from somatize.record.asked import Place, lines_of, opened_at
from somatize.store.environment import BadValue
from somatize.store.lines import RunLines
from somatize.store.packing import unpack
from somatize.store.view import look

_AT_ONCE = 2048
"""Forwards whose facts are in memory at once."""


class Forward(NamedTuple):
    """A forward as it was recorded; `took_us` is None if it did not end, `when_us` in microseconds since 1970."""

    number: int
    state: str
    took_us: int | None
    when_us: int | None
    facts: list[Fact]


def name_of(store: Place, run: str | None) -> str:
    """The run that is meant. Raises `UnknownRun` and `WhichRun`."""
    with opened_at(store) as opened:
        return look(opened, lambda view: lines_of(view, run).name)


def forwards_of(store: Place, run: str, *, last: int | None = None, since: int | None = None) -> Iterator[Forward]:
    """The forwards there are now, by number, the facts of a stretch at a time. A damaged one is named and has none."""
    rows = reader.forwards(store, run, last=last, since=since)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        told = _facts_between(store, run, some[0]["forward"], some[-1]["forward"])
        for row in some:
            number, when = row["forward"], row["when"]
            when_us = None if when is None else round(when * 1e6)
            yield Forward(number, row["state"], row["took_us"], when_us, told.get(number, []))


def _facts_between(store: Place, run: str, first: int, last: int) -> dict[int, list[Fact]]:
    with opened_at(store) as opened:
        return look(opened, lambda view: _facts_in(lines_of(view, run), first, last))


def _facts_in(lines: RunLines, first: int, last: int) -> dict[int, list[Fact]]:
    found: dict[int, list[Fact]] = {}
    for block in lines.blocks(first):
        if block.forwards[0] > last:
            break
        found.update((number, told) for number, told in lines.block_facts(block) if first <= number <= last)
    for number in lines.lines:
        if first <= number <= last:
            try:
                found[number] = list(unpack(lines.bodies(number) or []))
            except (BadValue, ValueError):
                lines.skip(number)
    return found

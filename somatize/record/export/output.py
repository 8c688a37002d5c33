"""Common parts of exporters: the forwards they read, the values of texts, counts of what was left out.

A fact holds texts. A text counts as a number only if the number is written exactly so: ``1.50`` may be a version, and
no float64 is ``9007199254740993``.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from somatize.errors import ExportError
from somatize.facts import KINDS, Fact
from somatize.figures.theme import counted
from somatize.record.column_reader import x_values
from somatize.record.forward_reader import Pages, Place, opened_at, told_in
from somatize.record.run_columns import GAP
from somatize.store.node_tally import ENDINGS, micro
from somatize.store.open_store import Opened
from somatize.store.record_format import number
from somatize.store.run_reader import lines_of, look

Value: TypeAlias = int | float | bool | str


def value_of(text: str) -> Value:
    """The int64, float64 or bool that is written exactly as `text`, else the text itself."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and (kind is float or -(2**63) <= value < 2**63):
            return value
    return _TRUTHS.get(text, text)


_TRUTHS = {"True": True, "False": False}


def values_of(texts: list[str]) -> list[Value]:
    """`value_of` of each text; several times as fast where all are integers, or all are floats."""
    for code, kind in (("q", int), ("d", float)):
        try:
            values: list[Value] = [*array(code, map(kind, texts))]
        except (ValueError, OverflowError):
            continue
        if list(map(str, values)) == texts:
            return values
    return list(map(value_of, texts))


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export to another tool's format.

    `path` is the file or directory, None if there is none. `wrote` has counts by kind: ``{"forwards": 1000}``.
    `left_out` has a sentence, with a count, for each thing that the format could not hold; it is empty if nothing was
    lost.
    """

    path: Path | None
    wrote: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The counts in words: ``3 forwards, 1 span``."""
        counted = [f"{count:,} {what.removesuffix('s') if count == 1 else what}" for what, count in self.wrote.items()]
        return ", ".join(counted) or "nothing"

    def __str__(self) -> str:
        where = f" to {self.path}" if self.path is not None else ""
        return "\n".join([f"{self.words}{where}", *(f"left out: {sentence}" for sentence in self.left_out)])


class LossCounts:
    """Counts of what an export left out or changed, by kind and reason."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, what: str, why: str, count: int = 1) -> None:
        """Count some more: `what` is a noun in the singular, `why` a reason that fits one and many."""
        self._counts[what, why] += count

    def sentences(self) -> tuple[str, ...]:
        """A sentence for each kind and reason, in the order in which they were first counted."""
        return tuple(f"{counted(count, what)}: {why}" for (what, why), count in self._counts.items() if count)


class StoredForward(NamedTuple):
    """A forward as it was recorded; `took_us` is None if it did not end, `when_us` in microseconds since 1970."""

    number: int
    state: str
    nodes: int
    took_us: int | None
    when_us: int
    facts: list[Fact]


def forwards_of(
    store: Place, run: str, losses: LossCounts, *, last: int | None = None, since: int | None = None
) -> Iterator[StoredForward]:
    """The forwards there are now, by number, some at a time; facts of a damaged one are left out with a warning.

    Those without a record are left out and counted.
    """
    pages = Pages(store, run, last, since)
    with opened_at(store) as opened:
        for rows in pages.rows():
            yield from with_facts(opened, pages.run, rows, losses)


class Steps:
    """The whole number by which a format knows each forward: the forward's own, or x as `curve` has it, rounded down.

    Raises `UnknownName` for what was never said, and `ExportError` for what is beyond an int64.
    """

    def __init__(self, store: Place, run: str, x: str) -> None:
        self.x = x
        self._at = None if x == "forward" else x_values(store, run, x)
        wide = next((value for value in self._at or () if abs(value) >= 2**63), None)
        if wide is not None:
            raise ExportError(f"step={x!r}: {wide:g} is beyond an int64, so it can be no step; name another number")

    def of(self, forwards: Iterator[StoredForward], losses: LossCounts) -> Iterator[tuple[int, StoredForward]]:
        """The forwards that have a step, each with it; what is left out or rounded is counted."""
        for forward in forwards:
            x = forward.number if self._at is None else GAP
            if self._at is not None and forward.number < len(self._at):
                x = self._at[forward.number]
            if x != x:
                losses.add("forward", f"without a step: it is before the first {self.x} of a writer or after its last")
                continue
            losses.add("step", f"rounded down to a whole number; it is {self.x}", int(x != math.floor(x)))
            yield math.floor(x), forward


def with_facts(
    opened: Opened, run: str, rows: Sequence[Mapping[str, Any]], losses: LossCounts
) -> Iterator[StoredForward]:
    """The forwards of these rows of a reader, which follow each other, with their facts."""
    told = told_in(opened, run, [row["forward"] for row in rows])
    for row, (forward, facts) in zip(rows, told, strict=True):
        when = microseconds(row["when"])
        if when is None:
            losses.add("forward", "lost before anything of it was written down")
        else:
            yield StoredForward(forward, row["state"], row["nodes"], row["took_us"], when, facts)


def microseconds(seconds: float | None) -> int | None:
    """A time in whole microseconds."""
    return None if seconds is None else round(seconds * 1e6)


def run_name(store: Place, run: str | None) -> str:
    """The name of the run to export. Raises `UnknownRun` and `WhichRun`."""
    with opened_at(store) as opened:
        return look(opened, lambda view: lines_of(view, run).name)


_STAMPS = frozenset({"fact", "node", "host"})
_LOGGED = frozenset({"level", "logger", "message"})
"""Fields of a log record that `texts_of` reports."""


def points_of(forward: StoredForward, losses: LossCounts) -> Iterator[tuple[str, float]]:
    """The numbers of a forward in the order of its facts: name and value.

    ``took_us`` is the duration of the forward and ``node/<id>/took_us`` that of a node's turn; a fact's number has the
    name by which `curve` finds it: ``loss`` for its ``value``, else ``kind.field``. What is no number is counted in
    `losses`.
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
    for key, text in fact.items():
        if key in _STAMPS:
            if key != "fact":
                losses.add("origin", "which node or host said a number, its name does not tell")
            continue
        value = number(text)
        if value is None:
            if kind != "log" or key not in _LOGGED:
                losses.add("said text", "no number")
            continue
        if len(text) > 15 and text.lstrip("-").isdigit() and (len(text) > 400 or int(text) != value):
            losses.add("whole number", "rounded to float64")
        yield series_name(kind, key), value


def series_name(kind: str, field: str) -> str:
    """The name by which `curve` finds a field of a fact."""
    return kind if field == "value" and "." not in kind else f"{kind}.{field}"


def texts_of(forward: StoredForward) -> Iterator[tuple[str, str]]:
    """The errors of a forward and its nodes, and its log records: pairs of name and text."""
    for fact in forward.facts:
        kind = fact.get("fact")
        if kind == "broke":
            yield "why", fact["why"]
        elif kind == "failed":
            yield f"why/{fact['node']}", fact["why"]
        elif kind == "log":
            yield "log", f"{fact.get('level', '')} {fact.get('logger', '')}: {fact.get('message', '')}"

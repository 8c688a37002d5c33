"""The rows of a run's forwards as they lie in its blocks: columns, without a dict of each row."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from somatize.store import schema
from somatize.store.columns import Chunk
from somatize.store.environment import BadValue
from somatize.store.lines import Line, RunLines, Stored

BEFORE = ("forward", "state", "nodes", "took_us")
"""The columns that stand before the summarised fields; `when` stands after them."""


class Rows(NamedTuple):
    """Some rows of forwards, column by column; `said` are the summarised fields, `when` is in µs."""

    forwards: Sequence[int]
    states: Sequence[str]
    nodes: Sequence[int]
    took_us: Sequence[int | None]
    said: list[list[Any]]
    whens: Sequence[int]


def rows_of_block(
    lines: RunLines,
    block: Stored,
    fields: Sequence[str],
    said: Callable[[Chunk, str, int], list[Any]] = Chunk.texts,
    since: int = 0,
) -> Rows | None:
    """The rows of a block from forward `since` on, put right by what was said late; None, with a warning, if damaged.

    `said` reads a summarised field: as its texts, or with `Chunk.said` as floats where that says the same.
    """
    chunk, start = block.chunk, bisect_left(block.forwards, since)
    try:
        states, nodes, took, whens = (chunk.integers(name)[start:] for name in ("state", "nodes", "took_us", "when"))
        texts = [said(chunk, name, start) if name in chunk else [None] * (chunk.rows - start) for name in fields]
    except BadValue as error:
        lines.damaged(block, error)
        return None
    forwards = block.forwards[start:]
    _put_late(lines, forwards, fields, texts)
    return Rows(
        forwards,
        [schema.STATES[state] for state in states],
        nodes,
        took if min(took) >= 0 else [us if us >= 0 else None for us in took],
        texts,
        whens,
    )


def _put_late(lines: RunLines, held: Sequence[int], fields: Sequence[str], said: list[list[Any]]) -> None:
    for forward, late in lines.late.items():
        if held[0] <= forward <= held[-1] and forward in held:
            row = held.index(forward)
            for field, text in late.items():
                if field in fields:
                    said[fields.index(field)][row] = text


def row_of_line(line: Line, fields: Sequence[str]) -> tuple[Any, ...]:
    """The row of a forward that is in no block: a tuple in the order of the columns, `when` in µs."""
    took = line.took_us if line.took_us >= 0 else None
    said = (line.texts.get(field) for field in fields)
    return (line.forward, schema.STATES[line.state], line.nodes, took, *said, line.when)

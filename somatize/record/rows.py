"""The rows of a run's forwards as they lie in its blocks: columns, without a dict of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from somatize.storage import schema
from somatize.storage.columns import Chunk
from somatize.storage.environment import BadValue
from somatize.storage.lines import Line, RunLines, Stored

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


def fields_of(lines: RunLines) -> list[str]:
    """Every field that any writer of the run summarised."""
    found = {name: None for block in lines.blocks() for name in block.chunk.names if "." in name}
    for tail in lines.view.tails_of(lines.run):
        found.update(dict.fromkeys(tail.gathered.fields))
    return list(found)


def rows_of_block(
    lines: RunLines, block: Stored, fields: Sequence[str], said: Callable[[Chunk, str], list[Any]] = Chunk.texts
) -> Rows | None:
    """The rows of a block, put right by what was said late; None, with a warning, for one that is damaged.

    `said` reads a summarised field: as its texts, or with `Chunk.said` as floats where that says the same.
    """
    chunk, rows = block.chunk, block.chunk.rows
    try:
        states, nodes, took, whens = (chunk.integers(name) for name in ("state", "nodes", "took_us", "when"))
        texts = [said(chunk, name) if name in chunk else [None] * rows for name in fields]
    except BadValue as error:
        lines.damaged(block, error)
        return None
    _put_late(lines, block, fields, texts)
    return Rows(
        block.forwards,
        [schema.STATES[state] for state in states],
        nodes,
        took if min(took) >= 0 else [us if us >= 0 else None for us in took],
        texts,
        whens,
    )


def _put_late(lines: RunLines, block: Stored, fields: Sequence[str], said: list[list[Any]]) -> None:
    held = block.forwards
    for forward, late in lines.late.items():
        if held[0] <= forward <= held[-1] and forward in held:
            row = held.index(forward)
            for field, text in late.items():
                said[fields.index(field)][row] = text


def row_of_line(line: Line, fields: Sequence[str]) -> tuple[Any, ...]:
    """The row of a forward that is in no block: a tuple in the order of the columns, `when` in µs."""
    took = line.took_us if line.took_us >= 0 else None
    said = (line.texts.get(field) for field in fields)
    return (line.forward, schema.STATES[line.state], line.nodes, took, *said, line.when)

"""The names of all forwards, as `Store.bound` lists them."""

from __future__ import annotations

from urllib.parse import quote

from . import schema
from .environment import BadValue
from .lines import RunLines
from .opened import Opened
from .values import Named
from .view import View, look


def forwards_named(opened: Opened, prefix: str) -> list[Named]:
    """Each forward that was written down, by run and number, if its name begins with `prefix`."""

    def work(view: View) -> list[Named]:
        found: list[Named] = []
        for run, info in sorted(view.runs(), key=lambda one: one[1].name):
            start = f"run/{quote(info.name, safe='')}/"
            if start.startswith(prefix) or prefix.startswith(start):
                found += _of_run(RunLines(view, run), start, prefix)
        return found

    return look(opened, work)


def _of_run(lines: RunLines, start: str, prefix: str) -> list[Named]:
    rows = [(line.forward, line.when, line.state, line.writer) for line in lines.lines.values()]
    for block in lines.blocks():
        try:
            whens, states = block.chunk.integers("when"), block.chunk.integers("state")
        except BadValue as error:
            lines.damaged(block, error)
            continue
        rows += [
            (forward, when, state, block.writer)
            for forward, when, state in zip(block.forwards, whens, states, strict=True)
        ]
    rows.sort()
    named = [
        Named(f"{start}{forward}", when / 1e6, {"state": schema.STATES[state], "writer": f"{writer:015x}"})
        for forward, when, state, writer in rows
    ]
    return [one for one in named if one.name.startswith(prefix)] if len(prefix) > len(start) else named

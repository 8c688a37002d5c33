"""Where a run stands, in one line of text: what a Live says of itself in a terminal."""

from __future__ import annotations

from somatize.figures.theme import counted, took

from .columns import BROKE, INF, INTERRUPTED, LOST, MINUS_INF, NAN, NUMBER, Series
from .live_columns import Tally

_ODD = {NAN: "nan", INF: "inf", MINUS_INF: "-inf"}


def standing(tally: Tally, *, going_on: bool) -> str:
    """How many forwards there were, how many did not go well, what was said last and how long the last one took."""
    rows = len(tally)
    if rows == 0:
        return "no forwards yet"
    words = [counted(rows, "forward")]
    states = tally.drawn.states
    for state, ended in ((BROKE, "broke"), (INTERRUPTED, "interrupted"), (LOST, "lost")):
        found = states.count(state)
        if found:
            words.append(f"{found:,} {ended}")
    for series in tally.drawn.series:
        said = next((row for row in range(rows - 1, -1, -1) if series.kinds[row]), None)
        if said is not None:
            words.append(f"{series.name} {_said(series, said)}")
    last = next((row for row in range(rows - 1, -1, -1) if tally.drawn.took_us[row] == tally.drawn.took_us[row]), None)
    if last is not None:
        words.append(f"the last took {took(tally.drawn.took_us[last])}")
    return ", ".join(words) + ("; one goes on" if going_on else "")


def _said(series: Series, row: int) -> str:
    """What was said of a series in a forward, short."""
    kind = series.kinds[row]
    return f"{series.values[row]:.6g}" if kind == NUMBER else _ODD.get(kind, "a text")

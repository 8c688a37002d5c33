"""What a figure says in words: how much it shows, and what no stroke can show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from somatize.figures.theme import counted, cut

from .columns import BROKE, INF, INTERRUPTED, LOST, MINUS_INF, NAN, NOTHING, NUMBER, OPEN, WORDS, Columns, Series
from .streams import MOST, MOST_PANELS
from .strokes import Strokes

_ODD = ((NAN, "NaN"), (INF, "inf"), (MINUS_INF, "-inf"))
_ENDS = ((BROKE, "broke"), (INTERRUPTED, "interrupted"), (LOST, "lost"), (OPEN, "still going"))


def notes_of(strokes: Strokes, *, brief: bool = False) -> list[str]:
    """Sentences about one run: its forwards and how they ended, what was said oddly, where it was resumed."""
    columns = strokes.columns
    notes = [_ends(columns)]
    for what, where in [(columns, "forward"), *((line, "batch") for line in columns.outside)]:
        notes += [words for series in what.series if (words := _oddities(what, series, where, brief=brief))]
    notes += [f"{name}: {MOST} of {count:,} streams are drawn" for name, count in columns.left_out.items()]
    if columns.asked > MOST_PANELS:
        notes.append(f"{MOST_PANELS} of {columns.asked:,} numbers asked for are drawn")
    notes += [words for words in (_writers(strokes, brief=brief), _condensed(strokes, brief=brief)) if words]
    return notes


def _ends(columns: Columns) -> str:
    counts = [(columns.states.count(state), word) for state, word in _ENDS]
    whole = counted(len(columns), "forward")
    if len(columns) and columns.forwards[0] > 0:
        whole += f" ({columns.forwards[0]:,} to {columns.forwards[-1]:,})"
    return ", ".join([whole, *(f"{count:,} {word}" for count, word in counts if count)])


def _oddities(columns: Columns, series: Series, where: str, *, brief: bool) -> str:
    """What was said that is no finite number, with the first forward, or batch, it was said in."""
    found = [
        f"{count:,} {word}" + ("" if brief else f" (first in {where} {columns.forwards[series.kinds.index(kind)]:,})")
        for kind, word in _ODD
        if (count := series.kinds.count(kind))
    ]
    if count := series.kinds.count(WORDS):
        found.append(f"{counted(count, 'text')} that {'is' if count == 1 else 'are'} no number{_example(series)}")
    return f"{series.name}: {', '.join(found)}" if found else ""


def _example(series: Series) -> str:
    return "" if series.words is None else f", such as {cut(series.words, 24)!r}"


def _writers(strokes: Strokes, *, brief: bool) -> str:
    segments, forwards = strokes.segments, strokes.columns.forwards
    if len(segments) < 2:
        return ""
    starts = resumed_at(strokes)
    if starts is None:
        return f"{len(segments)} writers at once, a line for each"
    shown = ", ".join(f"{forwards[row]:,}" for row in starts[:3])
    more = f" and {len(starts) - 3} times more" if len(starts) > 3 else ""
    return f"resumed at forward {shown}{more}" + ("" if brief else ", where the line is not joined")


def resumed_at(strokes: Strokes) -> list[int] | None:
    """The rows at which another writer goes on; None if several wrote at the same time."""
    segments = strokes.segments
    if any(before[-1] > after[0] for before, after in pairwise(segments)):
        return None
    return [segment[0] for segment in segments[1:]]


def _condensed(strokes: Strokes, *, brief: bool) -> str:
    if not strokes.condensed:
        return ""
    if brief:
        return "condensed"
    drawn = max(sum(len(one.places) for one in column) for column in [*strokes.series, strokes.took])
    kept = "every extreme and every break is kept"
    if len(strokes.marked) < len(strokes.breaks):
        kept = f"every extreme is kept, {len(strokes.marked):,} of {len(strokes.breaks):,} breaks are marked"
    return f"condensed: up to {drawn:,} of {len(strokes.columns):,} points a line; {kept}"


def silence_of(several: Sequence[Columns], places: Sequence[int]) -> str:
    """What a panel says that has no number to draw, of the series it would hold."""
    name = several[0].series[places[0]].of
    outside = sum(columns.said_outside.get(name, 0) for columns in several)
    if not any(len(columns) for columns in several):
        return "no forwards yet" + (f"; {_apart(name, outside)}" if outside else "")
    kinds = b"".join(bytes(columns.series[place].kinds) for columns in several for place in places)
    if kinds.count(NOTHING) == len(kinds):
        return f"no {cut(name, 40)} was said" + (f" in a forward; {_apart(name, outside)}" if outside else "")
    said = [(kinds.count(kind), word) for kind, word in (*_ODD, (WORDS, "text"))]
    words = ", ".join(counted(count, word, f"{word}s" if word == "text" else word) for count, word in said if count)
    assert not kinds.count(NUMBER)
    return f"{cut(name, 40)} was never a finite number: {words}"


def _apart(name: str, count: int) -> str:
    """That something was said which has no place among forwards."""
    return f"{cut(name, 40)} was said {counted(count, 'time')} outside of any, which is not drawn"

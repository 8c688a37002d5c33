"""What was said in forwards and of a run, for a trace: numbers as lines, tasks as spans, the rest as marks."""

from __future__ import annotations

import math
from typing import Any

from somatize.facts import Fact
from somatize.figures.theme import counted, cut
from somatize.record.node_totals import micro
from somatize.store.columns import number

from .text_columns import whole_of
from .tracks import HERE, Count, Drawn, Mark, Span, Track

_STAMPED = ("fact", "node", "host", "device", "id", "stream")
"""Fields of a fact that say what or where, and are no numbers to draw."""


class Saying:
    """Puts what was said on what is `drawn`."""

    def __init__(self, drawn: Drawn) -> None:
        self.drawn = drawn
        self._odd: dict[str, int] = {}
        self._tasks: dict[str, tuple[Fact, float, int | None]] = {}

    def add(self, fact: Fact, at: float, forward: int | None) -> None:
        """A fact said about at `at`, in a forward or of the run itself."""
        kind = fact.get("fact", "")
        if kind == "task":
            self._tasks[fact.get("id") or f"{len(self._tasks)} without"] = (fact, at, forward)
        elif kind == "log":
            level, message = fact.get("level", ""), fact.get("message", "")
            self._mark("logs", f"{level} {cut(message, 80)}", fact, at, forward)
        else:
            self._add_numbers(kind, fact, at, forward)

    def _add_numbers(self, kind: str, fact: Fact, at: float, forward: int | None) -> None:
        of = f" ({fact['stream']})" if "stream" in fact else ""
        unseen = [name for name in fact if name not in _STAMPED]
        for name in list(unseen):
            value = number(fact[name])
            if value is not None and math.isfinite(value):
                shown = f"{kind}.{name}" if name != "value" else kind
                self.drawn.counts.append(Count(fact.get("host") or HERE, shown + of, at, value))
            if value is not None and not _is_shown(fact[name], value):
                path = f"{kind}.{name}"
                self._odd[path] = self._odd.get(path, 0) + 1
            elif value is not None:
                unseen.remove(name)
        if unseen or not fact.keys() - set(_STAMPED):
            self._mark("said", kind, fact, at, forward)

    def _mark(self, track: str, name: str, fact: Fact, at: float, forward: int | None) -> None:
        args = _whose(forward) | {name: text for name, text in fact.items() if name != "fact"}
        self.drawn.marks.append(Mark(Track(fact.get("host") or HERE, track), name, fact.get("fact", ""), at, args))

    def finish(self) -> list[str]:
        """Draw the tasks, each as it was said last; and what no line could show, in sentences."""
        for fact, at, forward in self._tasks.values():
            self._draw_task(fact, at, forward)
        return [
            f"{counted(count, 'value')} of {name} that no point of a line can be (nan, inf, or a whole number above "
            "2**53), shown as text in a mark"
            for name, count in self._odd.items()
        ]

    def _draw_task(self, fact: Fact, at: float, forward: int | None) -> None:
        state = fact.get("state", "")
        name = fact.get("name", "") + ("" if state == "finished" else f" ({state})")
        took = micro(fact, "took_us")
        args: dict[str, Any] = {**_whose(forward), **fact, "took_us": took}
        track = Track(fact.get("host") or HERE, "tasks")
        self.drawn.spans.append(Span(track, name, "task", at - took, at, args, bad=state == "failed"))


def _whose(forward: int | None) -> dict[str, Any]:
    return {} if forward is None else {"forward": forward}


def _is_shown(text: str, value: float) -> bool:
    """Whether a point of a line says all that the text does."""
    return math.isfinite(value) and (whole_of(text) is None or int(value) == int(text))

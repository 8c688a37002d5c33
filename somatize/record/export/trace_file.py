"""Forwards as a trace that Perfetto and Chrome open."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, overload

from somatize.figures.theme import counted
from somatize.record.forward_reader import Place
from somatize.store.directory import FORMAT
from somatize.utils.notices import held_back, warn_of_record

from .output import Exported, checked, whole
from .trace_events import ForwardFacts, Happening, Saying, TraceContent, events, read_chosen

_CLOCK = (
    "Within a forward, times are those of a monotonic clock of its process; what ran on a host is put into the middle "
    "of its round trip. Between forwards they are as good as the wall clock that stamped each as it was written down. "
    "What was said outside of them lies about where a batch of it was written down, a second off at most."
)


@overload
def to_trace(
    store: Place,
    run: str | None = None,
    path: None = None,
    *,
    forward: int | Iterable[int] | None = None,
    last: int | None = None,
) -> dict[str, Any]: ...
@overload
def to_trace(
    store: Place,
    run: str | None,
    path: str | os.PathLike[str],
    *,
    forward: int | Iterable[int] | None = None,
    last: int | None = None,
) -> Exported: ...
def to_trace(
    store: Place,
    run: str | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    forward: int | Iterable[int] | None = None,
    last: int | None = None,
) -> dict[str, Any] | Exported:
    """One forward of a run, several or the last N, as a trace in the Trace Event Format, which Perfetto opens.

    A host is a process, and its lanes are threads. On top lie the forwards; below them round trips to hosts, with an
    arrow to what ran there first, then the turns of nodes, tasks, log records, and what was said: numbers as lines
    (a line does not say which node said a point), the rest as marks. What failed or broke is red in Chrome; what is
    open or lost says so in its name.

    Facts tell no instants. A forward ends where the store stamped it as written down, and within it times are those
    that were told; a span whose beginning was not told lies after what was told before, and says so. What a node said
    is spread evenly over its turn; what was said outside of forwards lies within a second of where it belongs.

    Without a `path` the trace is the answer, as data, and ``trace["otherData"]["left_out"]`` lists what could not be
    shown; with one it is written as JSON, compressed if the name ends with ``.gz``, and the file is whole or not there.
    All that is shown is in memory, about a kilobyte a node: thousands of forwards, not millions. Raises
    `UnknownForward`, `UnknownRun`, `WhichRun` and `ExportError`.
    """
    place = None if path is None else checked(path)
    with held_back() as sentences:
        told = read_chosen(store, run, forward, last)
    left_out = list(dict.fromkeys(sentences))
    for sentence in left_out:
        warn_of_record(sentence)
    drawn = TraceContent()
    left_out += _draw(told, drawn)
    trace = {"traceEvents": events(drawn), "displayTimeUnit": "ms", "otherData": _about(told, drawn, left_out)}
    if place is None:
        return trace
    whole(place, lambda beside: _write(trace, beside, packed=place.suffix == ".gz"))
    return Exported(place, _counts(told, drawn), tuple(left_out))


def _draw(told: ForwardFacts, drawn: TraceContent) -> list[str]:
    saying = Saying(drawn)
    happening = Happening(told.run, drawn, saying)
    for one in told.forwards:
        happening.add(one)
    left_out = [f"forward {number} was lost before anything of it was written down" for number in told.unwritten]
    outside = 0
    since, until = _stretch(told, drawn)
    for when, fact in told.own:
        if since <= when <= until:
            saying.add(fact, when, None)
        else:
            outside += 1
    if outside:
        left_out.append(f"{counted(outside, 'fact')} said of the run before or after the forwards that are shown")
    return left_out + saying.finish()


def _stretch(told: ForwardFacts, drawn: TraceContent) -> tuple[float, float]:
    """The time of which a trace is, open at an end of the run."""
    if not told.forwards:
        return -math.inf, math.inf
    since = -math.inf if told.forwards[0].number == 0 else min(span.began for span in drawn.spans)
    until = math.inf if told.forwards[-1].number == told.highest else max(span.ended for span in drawn.spans)
    return since, until


def _about(told: ForwardFacts, drawn: TraceContent, left_out: list[str]) -> dict[str, Any]:
    began = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(drawn.began()))
    return {
        "run": told.run,
        "began": began.isoformat(),
        "clock": _CLOCK,
        "store_format": FORMAT,
        "left_out": left_out,
    }


def _counts(told: ForwardFacts, drawn: TraceContent) -> dict[str, int]:
    counts = {
        "forwards": len(told.forwards),
        "spans": len(drawn.spans),
        "arrows": len(drawn.arrows),
        "marks": len(drawn.marks),
        "counts": len(drawn.counts),
    }
    return {what: count for what, count in counts.items() if count or what == "forwards"}


def _write(trace: dict[str, Any], path: Path, *, packed: bool) -> None:
    head, _, tail = json.dumps({**trace, "traceEvents": None}, ensure_ascii=False).partition("null")
    with gzip.open(path, "wt", encoding="utf-8") if packed else path.open("w", encoding="utf-8") as file:
        file.write(head + "[")
        before = "\n"
        for event in trace["traceEvents"]:
            file.write(before + json.dumps(event, ensure_ascii=False, allow_nan=False))
            before = ",\n"
        file.write("\n]" + tail + "\n")

"""Trace files for Perfetto and Chrome: spans, marks and counters on tracks, made of the facts of forwards.

A track is a kind of things at a host: its forwards, its nodes, its tasks. The file format has threads instead, whose
spans may only nest or follow each other; so a track has as many threads, called lanes, as its spans overlap.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, overload

from somatize.errors import ExportError, UnknownForward
from somatize.facts import KINDS, Fact
from somatize.figures.theme import counted, cut
from somatize.record.forward_reader import Place, check_range, opened_at, rows_between
from somatize.record.node_turns import NodeTurn, lanes_of, turns_of
from somatize.store.directory import FORMAT
from somatize.store.node_tally import micro
from somatize.store.record_format import number, unpack
from somatize.store.run_reader import RunLines, lines_of, look
from somatize.utils.atomic_files import checked_path, write_atomically
from somatize.utils.notices import held_back, warn_of_record

from .output import Exported, LossCounts, StoredForward, value_of, with_facts

HERE = "here"
"""The name of the place that has no host."""
_ORDER = ("forwards", "trips", "nodes", "tasks", "logs", "said")
"""The tracks of a host, from the top."""
_STAMPS = ("fact", "node", "host", "device", "id", "stream")
"""Fields that tell where a fact comes from, and are no numbers to draw."""
_UNTOLD = "not told; drawn after what was told before it"


class TraceTrack(NamedTuple):
    """The track of a host."""

    host: str
    name: str


@dataclass
class TraceSpan:
    """Something that lasted from `began` to `ended`, in µs."""

    track: TraceTrack
    name: str
    kind: str
    began: float
    ended: float
    args: dict[str, Any]
    bad: bool = False
    lane: int = field(default=0, compare=False)


class TraceMark(NamedTuple):
    """A fact at a moment."""

    track: TraceTrack
    name: str
    kind: str
    at: float
    args: dict[str, Any]


class CounterPoint(NamedTuple):
    """A number at a moment, drawn as a point of a line."""

    host: str
    name: str
    at: float
    value: float


class SpanLink(NamedTuple):
    """An arrow from the beginning of one span to the beginning of another."""

    source: TraceSpan
    target: TraceSpan


class TraceContent:
    """All that a trace shows, made of the facts of the forwards and of the run that are added."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.spans: list[TraceSpan] = []
        self.marks: list[TraceMark] = []
        self.counts: list[CounterPoint] = []
        self.arrows: list[SpanLink] = []
        self._not_drawn: Counter[str] = Counter()
        self._tasks: dict[str, tuple[Fact, float, int | None]] = {}

    def began(self) -> float:
        """The first moment of all."""
        spans = (span.began for span in self.spans)
        return min([*spans, *(mark.at for mark in self.marks), *(count.at for count in self.counts)], default=0.0)

    def _span(
        self,
        host: str | None,
        track: str,
        name: str,
        kind: str,
        began: float,
        ended: float,
        args: dict[str, Any],
        bad: bool = False,
    ) -> TraceSpan:
        span = TraceSpan(TraceTrack(host or HERE, track), name, kind, began, ended, args, bad)
        self.spans.append(span)
        return span

    # -- forwards

    def add_forward(self, one: StoredForward, inside: Sequence[str]) -> None:
        """Add a forward and its facts; `inside` are the nodes that it was in and never came out of."""
        turns = turns_of(one.facts)
        known = max([turn.end for turn in turns], default=0.0)
        took = float(one.took_us) if one.took_us is not None else known
        began = one.when_us - took
        name = f"forward {one.number}" + (f" ({one.state})" if one.state != "ok" else "")
        args: dict[str, Any] = {"run": self.run, "forward": one.number, "state": one.state, "nodes": one.nodes}
        if one.took_us is None:
            args["took_us"] = "not told: it did not end; drawn as far as its facts go"
        why = next((fact.get("why", "") for fact in one.facts if fact.get("fact") == "broke"), "")
        args |= {"why": why} if why else {}
        args |= {"inside": ", ".join(inside)} if inside else {}
        bad = one.state in ("broke", "interrupted", "lost")
        self._span(None, "forwards", name, "forward", began, began + took, args, bad)
        items = _items_of(one.facts)
        spans = {
            id(turn.fact): self._add_turn(turn, one.number, began, items.get(_place_of(turn.fact), {}))
            for turn in turns
        }
        self._link_trips(turns, spans)
        self._add_kept(one, spans, began)
        for node in inside:
            args = {"forward": one.number, "took_us": "not told; the forward was in it when last written down"}
            at = began + known
            self._span(None, "nodes", f"{node} ({one.state})", "inside", at, at, args, one.state == "lost")
        for moment, fact in _moments(one.facts, spans, began, began + took):
            self.add_fact(fact, moment, one.number)

    def _add_turn(self, turn: NodeTurn, forward: int, began: float, items: dict[str, Any]) -> TraceSpan:
        args: dict[str, Any] = {"forward": forward, **_fields(turn.fact), **items}
        if not turn.known:
            args["began_us"] = _UNTOLD
        at, ended = began + turn.began, began + turn.end
        if turn.ending == "left":
            return self._span(None, "trips", f"to {turn.name}", "left", at, ended, args)
        name = turn.name + ("" if turn.ending == "ran" else f" ({turn.ending})")
        return self._span(turn.where.host, "nodes", name, turn.ending, at, ended, args, turn.ending == "failed")

    def _link_trips(self, turns: list[NodeTurn], spans: dict[int, TraceSpan]) -> None:
        """Add an arrow from each round trip to what ran first in it."""
        inside = [turn for turn in turns if turn.inside is not None]
        for _, members in groupby(inside, key=lambda turn: id(turn.inside)):
            first = min(members, key=lambda turn: turn.began)
            assert first.inside is not None
            self.arrows.append(SpanLink(spans[id(first.inside.fact)], spans[id(first.fact)]))

    def _add_kept(self, one: StoredForward, spans: dict[int, TraceSpan], began: float) -> None:
        """Add each `kept` fact as a span after the last turn of its node, or after the first one to follow."""
        turns = {_place_of(fact): spans[id(fact)] for fact in reversed(one.facts) if id(fact) in spans}
        for fact in one.facts:
            if id(fact) in spans:
                turns[_place_of(fact)] = spans[id(fact)]
            elif fact.get("fact") == "kept":
                turn = turns.get(_place_of(fact))
                at = turn.ended if turn is not None else began
                args = {"forward": one.number, **_fields(fact), "began_us": "not told; drawn after its node"}
                name = f"{fact.get('node', '')} (kept)"
                self._span(fact.get("host"), "nodes", name, "kept", at, at + micro(fact, "took_us"), args)

    # -- other facts

    def add_fact(self, fact: Fact, at: float, forward: int | None) -> None:
        """Add a fact that is not the engine's: of a forward, or of the run itself."""
        kind = fact.get("fact", "")
        if kind == "task":
            self._tasks[fact.get("id") or f"{len(self._tasks)} without"] = (fact, at, forward)
        elif kind == "log":
            level, message = fact.get("level", ""), fact.get("message", "")
            self._mark("logs", f"{level} {cut(message, 80)}", fact, at, forward)
        elif self._count_numbers(kind, fact, at):
            self._mark("said", kind, fact, at, forward)

    def _count_numbers(self, kind: str, fact: Fact, at: float) -> bool:
        """Add the numbers of a fact to their lines; True if some of its fields are no point of a line."""
        of = f" ({fact['stream']})" if "stream" in fact else ""
        fields = {name: text for name, text in fact.items() if name not in _STAMPS}
        drawn = 0
        for name, text in fields.items():
            value = number(text)
            if value is None:
                continue
            if math.isfinite(value):
                shown = f"{kind}.{name}" if name != "value" else kind
                self.counts.append(CounterPoint(fact.get("host") or HERE, shown + of, at, value))
            exact = value_of(text)
            if math.isfinite(value) and (type(exact) is not int or int(value) == exact):
                drawn += 1
            else:
                self._not_drawn[f"{kind}.{name}"] += 1
        return not fields or drawn < len(fields)

    def _mark(self, track: str, name: str, fact: Fact, at: float, forward: int | None) -> None:
        args = _number_of(forward) | {name: text for name, text in fact.items() if name != "fact"}
        place = TraceTrack(fact.get("host") or HERE, track)
        self.marks.append(TraceMark(place, name, fact.get("fact", ""), at, args))

    def finish(self) -> list[str]:
        """Add the tasks, each in its last state; returns sentences about what no line could show."""
        for fact, at, forward in self._tasks.values():
            state = fact.get("state", "")
            name = fact.get("name", "") + ("" if state == "finished" else f" ({state})")
            took = micro(fact, "took_us")
            args: dict[str, Any] = {**_number_of(forward), **fact, "took_us": took}
            self._span(fact.get("host"), "tasks", name, "task", at - took, at, args, state == "failed")
        return [
            f"{counted(count, 'value')} of {name} that no point of a line can be (nan, inf, or a whole number above "
            "2**53), shown as text in a mark"
            for name, count in self._not_drawn.items()
        ]


_Place: TypeAlias = tuple[str | None, str | None]
"""A node and a host."""


def _place_of(fact: Fact) -> _Place:
    return fact.get("node"), fact.get("host")


def _number_of(forward: int | None) -> dict[str, Any]:
    return {} if forward is None else {"forward": forward}


def _fields(fact: Fact) -> dict[str, Any]:
    """The fields of a fact of the engine, counts as numbers."""
    return {name: int(text) if _is_count(text) else text for name, text in fact.items() if name not in ("fact", "node")}


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _items_of(facts: list[Fact]) -> dict[_Place, dict[str, Any]]:
    """The counts of the items of each mapped node, which are shown with its turn."""
    found = {}
    for fact in facts:
        if fact.get("fact") == "items":
            counts = _fields(fact)
            names = {"ran": "items_ran", "recalled": "items_recalled", "failed": "items_failed", "items": "items"}
            found[_place_of(fact)] = {shown: counts[name] for name, shown in names.items() if name in counts}
    return found


def _moments(
    facts: list[Fact], spans: dict[int, TraceSpan], began: float, ended: float
) -> Iterator[tuple[float, Fact]]:
    """Each fact that is not the engine's, with a moment: a record has none.

    Those of a node are spread evenly over its turn, in order; others are at the end of what was told before.
    """
    waiting: dict[_Place, list[Fact]] = {}
    now = began
    for fact in facts:
        kind, place = fact.get("fact", ""), _place_of(fact)
        if kind not in KINDS:
            if place[0] is not None:
                waiting.setdefault(place, []).append(fact)
            else:
                yield now, fact
        elif kind in ("finished", "broke"):
            now = ended
        elif id(fact) in spans:
            span = spans[id(fact)]
            now = max(now, span.ended)
            said = waiting.pop(place, [])
            step = (span.ended - span.began) / (len(said) + 1)
            yield from ((span.began + step * turn, one) for turn, one in enumerate(said, start=1))
    yield from ((now, fact) for said in waiting.values() for fact in said)


# -- the events of the file


def events(drawn: TraceContent) -> list[dict[str, Any]]:
    """The events of a trace file: first the names of processes and threads, then the others by time.

    Times are whole microseconds from the first moment on. What lies in something else comes after it.
    """
    pids = {host: pid for pid, host in enumerate(_hosts(drawn), start=1)}
    threads = _threads(drawn, above=len(pids))
    zero = math.floor(drawn.began())

    def at(moment: float) -> int:
        return math.floor(moment) - zero

    made: list[tuple[int, int, dict[str, Any]]] = []
    for span in drawn.spans:
        start, took = at(span.began), at(span.ended) - at(span.began)
        event: dict[str, Any] = {"ph": "X", "name": span.name, "cat": span.kind, "ts": start}
        event |= {"dur": took, "pid": pids[span.track.host]}
        event |= {"tid": threads[span.track, span.lane], "args": span.args}
        made.append((start, -took, event | ({"cname": "terrible"} if span.bad else {})))
    for mark in drawn.marks:
        event = {"ph": "i", "s": "t", "name": mark.name, "cat": mark.kind, "ts": at(mark.at)}
        event |= {"pid": pids[mark.track.host], "tid": threads[mark.track, 0], "args": mark.args}
        made.append((event["ts"], 0, event))
    for count in drawn.counts:
        event = {"ph": "C", "name": count.name, "cat": "said", "ts": at(count.at)}
        made.append((event["ts"], 0, event | {"pid": pids[count.host], "args": {"value": count.value}}))
    for place, arrow in enumerate(drawn.arrows, start=1):
        for ph, span in (("s", arrow.source), ("f", arrow.target)):
            event = {"ph": ph, "id": place, "name": "sent", "cat": "flow", "ts": at(span.began)}
            event |= {"pid": pids[span.track.host], "tid": threads[span.track, span.lane]}
            made.append((event["ts"], 1, event | ({"bp": "e"} if ph == "f" else {})))
    made.sort(key=lambda one: one[:2])
    return [*_names(pids, threads), *(event for _, _, event in made)]


def _hosts(drawn: TraceContent) -> list[str]:
    """Every host, this one first."""
    tracks = [*(span.track for span in drawn.spans), *(mark.track for mark in drawn.marks)]
    hosts = {track.host for track in tracks} | {count.host for count in drawn.counts}
    return [HERE, *sorted(hosts - {HERE})]


def _threads(drawn: TraceContent, above: int) -> dict[tuple[TraceTrack, int], int]:
    """The number of the thread of each lane; puts spans on lanes.

    The numbers are above those of processes: a thread with the number of its process is shown as its main one.
    """
    by_track: dict[TraceTrack, list[TraceSpan]] = {}
    for span in drawn.spans:
        by_track.setdefault(span.track, []).append(span)
    lanes = {track: _put_on_lanes(spans) for track, spans in by_track.items()}
    for mark in drawn.marks:
        lanes.setdefault(mark.track, 1)
    order = sorted(lanes, key=lambda track: (track.host != HERE, track.host, _ORDER.index(track.name)))
    return {
        key: above + 1 + tid for tid, key in enumerate((track, lane) for track in order for lane in range(lanes[track]))
    }


def _put_on_lanes(spans: Sequence[TraceSpan]) -> int:
    """Put each span on the first lane that is free when it begins; returns the number of lanes."""
    ordered = sorted(spans, key=lambda span: (span.began, -span.ended))
    for span, lane in zip(ordered, lanes_of((span.began, span.ended) for span in ordered), strict=True):
        span.lane = lane
    return 1 + max(span.lane for span in spans)


def _names(pids: dict[str, int], threads: dict[tuple[TraceTrack, int], int]) -> Iterator[dict[str, Any]]:
    for host, pid in pids.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": host}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for (track, lane), tid in threads.items():
        at = {"pid": pids[track.host], "tid": tid}
        name = track.name if lane == 0 else f"{track.name}, lane {lane + 1}"
        yield {"ph": "M", "name": "thread_name", **at, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **at, "args": {"sort_index": tid}}


# -- what is read

Which: TypeAlias = int | Iterable[int] | None


class ForwardFacts(NamedTuple):
    """The data of a trace: forwards by number, and facts of the run itself with their times.

    `inside` has the nodes that open and lost forwards were in, by number; `unwritten` are the numbers without a record,
    `highest` is the last number of the run.
    """

    run: str
    forwards: list[StoredForward]
    inside: dict[int, list[str]]
    own: list[tuple[int, Fact]]
    unwritten: list[int]
    highest: int


def read_chosen(store: Place, run: str | None, which: Which, last: int | None) -> ForwardFacts:
    """Read one forward (-1 is the last), several, or the last N. Raises `UnknownForward`."""
    check_range(last, None)
    if which is not None and last is not None:
        raise ExportError("say which forwards with forward= or with last=, not both")
    with opened_at(store) as opened:
        name, highest, own = look(opened, lambda view: _of_run(lines_of(view, run)))
        numbers = _numbers(name, highest, which, last)
        found: list[StoredForward] = []
        for _, together in groupby(enumerate(numbers), key=lambda one: one[1] - one[0]):
            stretch = [number for _, number in together]
            found += with_facts(opened, name, rows_between(opened, name, stretch[0], stretch[-1]), LossCounts())
        unended = [one.number for one in found if one.state in ("open", "lost")]
        inside = look(opened, lambda view: _inside(lines_of(view, name), unended)) if unended else {}
    unwritten = sorted(set(numbers) - {one.number for one in found})
    return ForwardFacts(name, found, inside, own, unwritten, highest)


def _of_run(lines: RunLines) -> tuple[str, int, list[tuple[int, Fact]]]:
    own = [(part.when, fact) for part in lines.own({}) for fact in unpack([part.body])]
    return lines.name, lines.highest(), own


def _inside(lines: RunLines, numbers: Sequence[int]) -> dict[int, list[str]]:
    return {number: lines.inside(number) for number in numbers}


def _numbers(run: str, highest: int, which: Which, last: int | None) -> list[int]:
    if last is not None:
        return list(range(max(0, highest + 1 - last), highest + 1))
    asked = [-1] if which is None else [which] if isinstance(which, int) else list(which)
    numbers = []
    for forward in asked:
        number = forward if forward >= 0 else highest + 1 + forward
        if not 0 <= number <= highest:
            held = f"forwards 0 to {highest}" if highest >= 0 else "no forwards yet"
            raise UnknownForward(f"run {run!r} holds {held}, and no forward {forward}")
        numbers.append(number)
    return sorted(set(numbers))


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

    A host is a process, and its lanes are threads. The tracks from the top are forwards; round trips to hosts, with an
    arrow to what ran there first; turns of nodes; tasks; log records; and other facts, with numbers as lines (a line
    does not show which node a point is of) and the rest as marks. Chrome shows in red what failed or broke; the names
    of open and lost forwards say so.

    Few facts have a time. A forward ends when the store wrote it down, and times within it are those of its facts; a
    span whose beginning is not recorded follows what was told before it, and says so. Facts of a node are spread evenly
    over its turn; those outside of forwards are at most a second off.

    Without a `path` the trace is returned as data, and ``trace["otherData"]["left_out"]`` lists what could not be
    shown. With one it is written as JSON, compressed if the name ends with ``.gz``, and the file is replaced
    atomically. All that is shown is in memory, about a kilobyte a node: thousands of forwards, not millions. Raises
    `UnknownForward`, `UnknownRun`, `WhichRun` and `ExportError`.
    """
    place = None if path is None else checked_path(path)
    with held_back() as sentences:
        told = read_chosen(store, run, forward, last)
    left_out = list(dict.fromkeys(sentences))
    for sentence in left_out:
        warn_of_record(sentence)
    drawn, lost = _draw(told)
    left_out += lost
    trace = {"traceEvents": events(drawn), "displayTimeUnit": "ms", "otherData": _about(told, drawn, left_out)}
    if place is None:
        return trace
    write_atomically(place, lambda beside: _write(trace, beside, packed=place.suffix == ".gz"))
    return Exported(place, _counts(told, drawn), tuple(left_out))


def _draw(told: ForwardFacts) -> tuple[TraceContent, list[str]]:
    drawn = TraceContent(told.run)
    for one in told.forwards:
        drawn.add_forward(one, told.inside.get(one.number, ()))
    left_out = [f"forward {number} was lost before anything of it was written down" for number in told.unwritten]
    outside = 0
    since, until = _stretch(told, drawn)
    for when, fact in told.own:
        if since <= when <= until:
            drawn.add_fact(fact, when, None)
        else:
            outside += 1
    if outside:
        left_out.append(f"{counted(outside, 'fact')} said of the run before or after the forwards that are shown")
    return drawn, left_out + drawn.finish()


def _stretch(told: ForwardFacts, drawn: TraceContent) -> tuple[float, float]:
    """The time that a trace covers, unlimited at an end of the run."""
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

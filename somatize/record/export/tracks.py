"""Spans, marks and counts on tracks, as the events of a trace file.

A track is a host and what is shown of it: its forwards, its nodes, its tasks. The file format has threads instead,
on which spans lie inside one another or apart; so a track has as many threads, or lanes, as spans of it overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

HERE = "here"
"""What the place that has no host is called."""

_ORDER = ("forwards", "trips", "nodes", "tasks", "logs", "said")
"""The tracks of a host, from the top."""


class Track(NamedTuple):
    """What is shown of a host."""

    host: str
    name: str


@dataclass
class Span:
    """Something that went on from `began` to `ended`, in µs."""

    track: Track
    name: str
    kind: str
    began: float
    ended: float
    args: dict[str, Any]
    bad: bool = False
    lane: int = field(default=0, compare=False)


class Mark(NamedTuple):
    """Something that was said at a moment."""

    track: Track
    name: str
    kind: str
    at: float
    args: dict[str, Any]


class Count(NamedTuple):
    """A number that was said at a moment, drawn as a point of a line."""

    host: str
    name: str
    at: float
    value: float


class Arrow(NamedTuple):
    """That one span led to another, from the beginning of the one to that of the other."""

    source: Span
    target: Span


@dataclass
class Drawn:
    """All that a trace shows."""

    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)

    def began(self) -> float:
        """The first moment of all."""
        spans = (span.began for span in self.spans)
        return min([*spans, *(mark.at for mark in self.marks), *(count.at for count in self.counts)], default=0.0)


def events(drawn: Drawn) -> list[dict[str, Any]]:
    """The events of a trace file, those that name processes and threads first, the others by time.

    Moments are whole microseconds from the first one on. What lies in something else comes after it.
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
    for number, arrow in enumerate(drawn.arrows, start=1):
        for ph, span in (("s", arrow.source), ("f", arrow.target)):
            event = {"ph": ph, "id": number, "name": "sent", "cat": "flow", "ts": at(span.began)}
            event |= {"pid": pids[span.track.host], "tid": threads[span.track, span.lane]}
            made.append((event["ts"], 1, event | ({"bp": "e"} if ph == "f" else {})))
    made.sort(key=lambda one: one[:2])
    return [*_names(pids, threads), *(event for _, _, event in made)]


def _hosts(drawn: Drawn) -> list[str]:
    """Every host, this one first."""
    tracks = [*(span.track for span in drawn.spans), *(mark.track for mark in drawn.marks)]
    hosts = {track.host for track in tracks} | {count.host for count in drawn.counts}
    return [HERE, *sorted(hosts - {HERE})]


def _threads(drawn: Drawn, above: int) -> dict[tuple[Track, int], int]:
    """The number of the thread of each lane; puts spans on lanes.

    They are above the numbers of processes: a thread with that of its process would be shown as its main one.
    """
    by_track: dict[Track, list[Span]] = {}
    for span in drawn.spans:
        by_track.setdefault(span.track, []).append(span)
    lanes = {track: _put_on_lanes(spans) for track, spans in by_track.items()}
    for mark in drawn.marks:
        lanes.setdefault(mark.track, 1)
    order = sorted(lanes, key=lambda track: (track.host != HERE, track.host, _ORDER.index(track.name)))
    return {
        key: above + 1 + tid for tid, key in enumerate((track, lane) for track in order for lane in range(lanes[track]))
    }


def _put_on_lanes(spans: Sequence[Span]) -> int:
    """Put each span on the first lane that is free when it begins; how many lanes there are."""
    free: list[float] = []
    for span in sorted(spans, key=lambda span: (span.began, -span.ended)):
        span.lane = next((lane for lane, until in enumerate(free) if until <= span.began), len(free))
        free[span.lane : span.lane + 1] = [span.ended]
    return len(free)


def _names(pids: dict[str, int], threads: dict[tuple[Track, int], int]) -> Iterator[dict[str, Any]]:
    for host, pid in pids.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": host}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for (track, lane), tid in threads.items():
        at = {"pid": pids[track.host], "tid": tid}
        name = track.name if lane == 0 else f"{track.name}, lane {lane + 1}"
        yield {"ph": "M", "name": "thread_name", **at, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **at, "args": {"sort_index": tid}}

"""A trace shows what was told, where and when; and it is what the Trace Event Format allows."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import Recorder, Store
from somatize.errors import ExportError, UnknownForward, UnknownRun
from somatize.record import facts, runs
from somatize.record.export import Exported, to_trace

Trace = dict[str, Any]


def record(store: Store, run: str, *forwards: list[dict[str, str]], after: list[dict[str, str]] | None = None) -> None:
    """A run whose forwards were told just this."""
    with Recorder(store, run=run) as recorder:
        for told in forwards:
            sink = recorder.opens(None)
            for fact in told:
                sink.tell(fact)
            sink.closed()
        for fact in after or []:
            recorder(fact)


def turn(node: str, began: int, took: int, fact: str = "ran", **more: str) -> dict[str, str]:
    return {"fact": fact, "node": node, "began_us": str(began), "took_us": str(took), **more}


def finished(took: int) -> dict[str, str]:
    return {"fact": "finished", "took_us": str(took)}


def tracks(trace: Trace) -> dict[tuple[int, int], str]:
    """The process and thread of each track, in words."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "M"]
    hosts = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    return {
        (event["pid"], event["tid"]): f"{hosts[event['pid']]}/{event['args']['name']}"
        for event in events
        if event["name"] == "thread_name"
    }


def spans(trace: Trace, kind: str | None = None) -> list[tuple[str, str, int, int]]:
    """Each span: its track, name, beginning and duration."""
    names = tracks(trace)
    return [
        (names[event["pid"], event["tid"]], event["name"], event["ts"], event["dur"])
        for event in trace["traceEvents"]
        if event["ph"] == "X" and kind in (None, event["cat"])
    ]


def args(trace: Trace, name: str) -> Any:
    return next(event["args"] for event in trace["traceEvents"] if event["name"] == name and event["ph"] in "Xi")


def check(trace: Trace) -> None:
    """Hold a trace against the rules of the format, and against ours: spans of a thread lie apart."""
    json.loads(json.dumps(trace), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    names, events = tracks(trace), trace["traceEvents"]
    assert len(names) == len(set(names.values()))
    assert not {pid for pid, _ in names} & {tid for _, tid in names}
    moments = [event["ts"] for event in events if event["ph"] != "M"]
    assert moments == sorted(moments)
    assert all(type(moment) is int and moment >= 0 for moment in moments)
    assert {event["ph"] for event in events} <= set("MXiCsf")
    lying: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events:
        if event["ph"] == "X":
            assert type(event["dur"]) is int
            assert event["dur"] >= 0
            lying.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "C":
            assert all(math.isfinite(value) for value in event["args"].values())
        if event["ph"] not in "CM":
            assert (event["pid"], event["tid"]) in names
    for thread in lying.values():
        thread.sort()
        assert all(one[1] <= following[0] for one, following in pairwise(thread))
    arrows = [event for event in events if event["ph"] in "sf"]
    assert Counter(event["id"] for event in arrows) == {number + 1: 2 for number in range(len(arrows) // 2)}
    for event in arrows:
        assert any(a <= event["ts"] <= b for a, b in lying[event["pid"], event["tid"]])
        assert event["ph"] == "s" or event["bp"] == "e"
    left = {event["id"]: event["ts"] for event in arrows if event["ph"] == "s"}
    assert all(left[event["id"]] <= event["ts"] for event in arrows if event["ph"] == "f")


TOLD = [
    {"fact": "recalled", "node": "read", "bytes": "2048", "took_us": "7"},
    turn("left", 10, 50),
    {"fact": "kept", "node": "left", "bytes": "99", "took_us": "5"},
    turn("right", 20, 60, device="cpu"),
    {"fact": "items", "node": "each", "items": "3", "ran": "1", "recalled": "1", "failed": "1"},
    turn("each", 100, 30, "failed", why="ValueError: no"),
    {"fact": "left", "host": "w1", "began_us": "90", "took_us": "100"},
    turn("far", 5, 40, host="w1"),
    turn("farther", 50, 30, host="w1"),
    finished(200),
]


def test_where_and_when_each_turn_is(store: Store) -> None:
    record(store, "r", TOLD)
    trace = to_trace(store)
    check(trace)
    assert sorted(spans(trace)) == sorted(
        [
            ("here/forwards", "forward 0", 0, 200),
            ("here/nodes", "read (recalled)", 0, 7),
            ("here/nodes", "left", 10, 50),
            ("here/nodes", "left (kept)", 60, 5),
            ("here/nodes, lane 2", "right", 20, 60),
            ("here/nodes", "each (failed)", 100, 30),
            ("here/trips", "to w1", 90, 100),
            ("w1/nodes", "far", 90 + 10 + 5, 40),
            ("w1/nodes", "farther", 90 + 10 + 50, 30),
        ]
    )
    assert args(trace, "read (recalled)") == {
        "forward": 0,
        "bytes": 2048,
        "took_us": 7,
        "began_us": "not told; drawn after what was told before it",
    }
    assert args(trace, "left (kept)")["bytes"] == 99
    assert args(trace, "right")["device"] == "cpu"
    failed = args(trace, "each (failed)")
    assert (failed["why"], failed["items"], failed["items_recalled"]) == ("ValueError: no", 3, 1)
    arrows = [(event["ph"], event["ts"]) for event in trace["traceEvents"] if event["ph"] in "sf"]
    assert arrows == [("s", 90), ("f", 105)]
    assert trace["otherData"]["run"] == "r"
    assert "wall clock" in trace["otherData"]["clock"]
    assert trace["otherData"]["left_out"] == []


def test_what_was_said(store: Store) -> None:
    told = [
        {"fact": "loss", "node": "train", "value": "0.5"},
        {"fact": "loss", "node": "train", "value": "0.25"},
        {"fact": "loss", "node": "train", "value": "nan"},
        turn("train", 0, 400),
        {"fact": "acc", "top1": "1", "note": "ü"},
        {"fact": "big", "value": str(2**53 + 1)},
        {"fact": "throughput", "stream": "a", "batches": "7"},
        {"fact": "machine", "id": "1", "busy": "0.500", "host": "w1"},
        {"fact": "log", "level": "INFO", "message": "two\nlines", "logger": "x"},
        {"fact": "task", "name": "epoch", "state": "failed", "took_us": "300", "why": "KeyError: 1"},
        finished(1000),
    ]
    record(store, "r", told, after=[{"fact": "eval", "value": "2"}])
    trace = to_trace(store)
    check(trace)
    counts = [
        (event["name"], event["ts"], event["args"]["value"]) for event in trace["traceEvents"] if event["ph"] == "C"
    ]
    assert counts == [
        ("loss", 100, 0.5),
        ("loss", 200, 0.25),
        ("acc.top1", 400, 1.0),
        ("big", 400, float(2**53)),
        ("throughput.batches (a)", 400, 7.0),
        ("machine.busy", 400, 0.5),
        ("eval", 1000, 2.0),
    ]
    names = tracks(trace)
    marks = [
        (names[event["pid"], event["tid"]], event["name"], event["ts"])
        for event in trace["traceEvents"]
        if event["ph"] == "i"
    ]
    assert marks == [
        ("here/said", "loss", 300),
        ("here/said", "acc", 400),
        ("here/said", "big", 400),
        ("here/logs", "INFO two\nlines", 400),
    ]
    assert args(trace, "acc") == {"forward": 0, "top1": "1", "note": "ü"}
    assert spans(trace, "task") == [("here/tasks", "epoch (failed)", 100, 300)]
    odd = "that no point of a line can be (nan, inf, or a whole number above 2**53), shown as text in a mark"
    assert trace["otherData"]["left_out"] == [f"1 value of loss.value {odd}", f"1 value of big.value {odd}"]


def test_which_forwards(store: Store) -> None:
    record(store, "r", *([turn("a", 0, 10 + n), finished(20)] for n in range(6)))

    def shown(**which: Any) -> list[str]:
        trace = to_trace(store, "r", **which)
        check(trace)
        return [name for _, name, _, _ in spans(trace, "forward")]

    assert shown() == ["forward 5"]
    assert shown(forward=-2) == ["forward 4"]
    assert shown(forward=[3, 1, 1, -6]) == ["forward 0", "forward 1", "forward 3"]
    assert shown(last=2) == ["forward 4", "forward 5"]
    assert shown(last=99) == [f"forward {n}" for n in range(6)]
    assert shown(last=0) == []
    with pytest.raises(UnknownForward, match="holds forwards 0 to 5, and no forward 6"):
        to_trace(store, "r", forward=6)
    with pytest.raises(UnknownForward, match="no forward -7"):
        to_trace(store, "r", forward=[1, -7])
    with pytest.raises(UnknownRun, match="did you mean 'r'"):
        to_trace(store, "rr")
    with pytest.raises(ExportError, match="not both"):
        to_trace(store, "r", forward=1, last=1)


def test_one_after_the_other_by_when_they_were_written(store: Store) -> None:
    record(store, "r", *([turn("a", 0, 10), finished(10)] for _ in range(50)))
    found = spans(to_trace(store, last=50), "forward")
    assert [name for _, name, _, _ in found] == [f"forward {n}" for n in range(50)]
    ends = [began + took for _, _, began, took in found]
    assert ends == sorted(ends)


def test_broken_open_and_lost(store: Store, place: Path, script: Callable[..., subprocess.Popen[str]]) -> None:
    broke = {"fact": "broke", "took_us": "30", "why": "ValueError: no"}
    record(store, "r", [turn("a", 0, 10), broke], [turn("a", 0, 10), {**broke, "why": "KeyboardInterrupt: "}])
    process = script("""
        @node
        def first(x): return x
        @node
        def stuck(x):
            while not open(PLACE + "/../seen", "a").tell():
                time.sleep(0.02)
            return x
        Graph.somatize(first >> stuck).forward(1, watching=Recorder(Store(PLACE), run="r"))
    """)
    try:
        while len(facts(store, "r", last=9)) < 5:
            assert process.poll() is None
        trace = to_trace(store, last=3)
        check(trace)
        assert [name for _, name, _, _ in spans(trace) if "forward" in name] == [
            "forward 0 (broke)",
            "forward 1 (interrupted)",
            "forward 2 (open)",
        ]
        assert args(trace, "forward 0 (broke)")["why"] == "ValueError: no"
        assert ("here/nodes", "stuck (open)") in [one[:2] for one in spans(trace)]
        assert args(trace, "forward 2 (open)")["took_us"].startswith("not told")
    finally:
        process.kill()
        process.wait()
    trace = to_trace(store)
    check(trace)
    assert [name for _, name, _, _ in spans(trace)] == ["forward 2 (lost)", "first", "stuck (lost)"]
    assert args(trace, "forward 2 (lost)")["inside"] == "stuck"


def test_all_that_an_odd_run_holds_is_shown(odd: Store, tmp_path: Path) -> None:
    written = to_trace(odd, "odd", tmp_path / "t.json", last=99)
    assert isinstance(written, Exported)
    assert written.path == tmp_path / "t.json"
    assert written.left_out[0].startswith("3 values of loss.value that no point")
    text = (tmp_path / "t.json").read_text(encoding="utf-8")
    trace = json.loads(text)
    check(trace)
    assert trace == json.loads(json.dumps(to_trace(odd, "odd", last=99)))
    assert written.wrote == {
        "forwards": 17,
        "spans": len(spans(trace)),
        "marks": sum(event["ph"] == "i" for event in trace["traceEvents"]),
        "counts": sum(event["ph"] == "C" for event in trace["traceEvents"]),
    }
    names = {event["name"] for event in trace["traceEvents"]}
    assert {"hello.n", "late, ümlaut\n.a.b", "throughput.batches (train)"} <= names
    assert {"Indexing, quickly", "Failing (failed)", 'WARNING a "log", of\ntwo lines'} <= names
    to_trace(odd, "odd", tmp_path / "t.json.gz", last=99)
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes())) == trace
    only = to_trace(odd, "odd", forward=3)
    assert "facts said of the run before or after the forwards that are shown" in only["otherData"]["left_out"][0]


NODES = st.sampled_from(["a", "b"])
HOSTS = st.sampled_from([{}, {"host": "w1"}, {"host": "w2"}])
TIMES = st.integers(0, 50)
TURNS = st.builds(lambda node, began, took, host: turn(node, began, took, **host), NODES, TIMES, TIMES, HOSTS)
TRIPS = st.builds(
    lambda host, began, took: {"fact": "left", "host": host, "began_us": str(began), "took_us": str(took)},
    st.sampled_from(["w1", "w2"]),
    TIMES,
    TIMES,
)
OTHERS = st.builds(
    lambda fact, node, took, host: {"fact": fact, "node": node, "bytes": "1", "took_us": str(took), **host},
    st.sampled_from(["recalled", "kept"]),
    NODES,
    TIMES,
    HOSTS,
)
SAID = st.sampled_from(
    [
        {"fact": "loss", "value": "0.5", "node": "a"},
        {"fact": "x"},
        {"fact": "task", "name": "t", "took_us": "70", "state": "open", "id": "1-1"},
    ]
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=st.lists(st.lists(st.one_of(TURNS, TRIPS, OTHERS, SAID), max_size=12), min_size=1, max_size=3))
def test_whatever_was_told_is_a_trace(told: list[list[dict[str, str]]], store: Store) -> None:
    run = f"run {len(runs(store))}"
    record(store, run, *([*one, finished(60)] for one in told))
    trace = to_trace(store, run, last=9)
    check(trace)
    turns = sum(fact["fact"] in ("ran", "recalled", "kept", "left") for one in told for fact in one)
    tasks = any(fact["fact"] == "task" for one in told for fact in one)
    assert len(spans(trace)) == len(told) + turns + tasks

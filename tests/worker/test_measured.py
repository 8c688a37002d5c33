"""How fast node code at a host goes, as it is seen and recorded here."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from somatize import Broker, Graph, Recorder, Store, node
from somatize.record import throughput
from somatize.status import Status

from .conftest import spawned


def loops(value: Any, ctx: Any) -> Any:
    name, batches = value
    meter = ctx.status.throughput(name)
    for batch in meter.iterate(batches):
        with meter.step(batch):
            pass
    return meter.stats().batches


loops.__module__ = "__main__"
LOOPS = Graph.somatize(node(loops).named("loops").at("w1"))


def test_what_a_stream_there_did_is_a_fact_of_the_forward_with_its_host(broker: Broker, tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    with Store(tmp_path) as store:
        with Recorder(store, run="r") as recorder, Status(watching=[seen.append, recorder]) as status:
            answer = LOOPS.forward(("train", [[1, 2], [3]]), broker=broker, watching=[recorder, status])
        rows = throughput(store, "r")
    (fact,) = [fact for fact in seen if fact["fact"] == "throughput"]
    assert (fact["stream"], fact["node"], fact["host"]) == ("train (w1)", "loops", "w1")
    assert (fact["samples"], fact["batches"], answer) == ("3", "2", 2)
    assert [(row["forward"], row["stream"], row["samples"], row["batches"]) for row in rows] == [
        (0, "train (w1)", 3, 2)
    ]
    (stream,) = status.throughputs
    stats = stream.stats()
    assert (stream.stream, stats.samples, stats.batches) == ("train (w1)", 3, 2)
    assert stats.samples_per_s == float(fact["samples_per_s"]) > 0
    assert 0 <= stats.waiting <= 1
    assert stats.flops_exact in (None, True, False)


def test_a_window_is_said_once_and_the_rest_at_the_end(broker: Broker) -> None:
    seen: list[dict[str, str]] = []
    with Status(watching=seen.append) as status:
        LOOPS.forward(("long", [[0]] * 120), broker=broker, watching=status)
        assert [stream.stats().batches for stream in status.throughputs] == [120]
    assert [fact["batches"] for fact in seen if fact["fact"] == "throughput"] == ["50", "100", "120"]


def test_a_stream_here_of_the_same_name_is_another(broker: Broker) -> None:
    with Status() as status:
        here = status.throughput("two")
        LOOPS.forward(("two", [[0]]), broker=broker, watching=status)
        assert status.throughput("two") is here
        assert [stream.stream for stream in status.throughputs] == ["two", "two (w1)"]
        assert here.stats().batches == 0


def test_it_is_seen_while_the_node_runs(broker: Broker, tmp_path: Path) -> None:
    def waits(folder: Any, ctx: Any) -> Any:
        import time
        from pathlib import Path

        meter = ctx.status.throughput("slow")
        with meter.step(samples=7):
            pass
        until = time.monotonic() + 20
        while not Path(folder, "seen").exists() and time.monotonic() < until:
            time.sleep(0.01)
        return Path(folder, "seen").exists()

    with Status() as status:

        def look() -> None:
            while not any(stream.stats().samples == 7 for stream in status.throughputs):
                threading.Event().wait(0.01)
            (tmp_path / "seen").touch()

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        graph = Graph.somatize(node(waits).named("waits").at("w1"))
        assert graph.forward(str(tmp_path), broker=broker, watching=status) is True
        looking.join()


@pytest.mark.parametrize("watched", [False, True])
def test_where_no_status_watches_nothing_is_said(watched: bool) -> None:
    seen: list[dict[str, str]] = []

    def measures(x: Any, ctx: Any) -> Any:
        with ctx.status.throughput("train").step(samples=1):
            return x

    graph = Graph.somatize(node(measures).at("w1"))
    with Broker.embedded({"w1": spawned()}) as own:
        assert graph.forward(1, broker=own, watching=seen.append if watched else None) == 1
    assert [fact for fact in seen if fact["fact"] == "throughput"] == []

"""What a worker says of its machine is of a stated span, or is not said."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from somatize import Broker, Graph, node
from somatize.worker.server import EVERY, Machine

from .conftest import spawned


def nap(seconds: float) -> None:
    time.sleep(seconds)


class Clock:
    """Time that passes when it is told to: on the wall, and in this process' use of processors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.used = 50.0
        # No test waits, nor computes for seconds.
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "process_time", lambda: self.used)

    def passes(self, seconds: float, used: float = 0.0) -> None:
        self.now += seconds
        self.used += used


def test_a_reading_is_over_the_span_that_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    machine = Machine("m")
    assert machine.arrived(watched=True) is None  # there is no time to speak of
    clock.passes(EVERY / 2, used=EVERY / 2)
    assert machine.arrived(watched=True) is None
    clock.passes(EVERY * 2)
    assert machine.arrived(watched=False) is None  # nobody would hear it
    clock.passes(EVERY / 2, used=EVERY * 0.1)
    said = machine.arrived(watched=True)
    assert said is not None
    assert (said["served"], said["over_us"], said["up_us"]) == ("4", "3000000", "3000000")
    assert float(said["busy"]) == pytest.approx(0.2, abs=0.001)
    assert machine.arrived(watched=True) is None
    cores = len(os.sched_getaffinity(0))
    clock.passes(EVERY, used=EVERY * (cores + 1))
    last = machine.arrived(watched=True)
    assert last is not None
    assert (last["served"], float(last["busy"]), last["over_us"]) == ("6", cores, "1000000")


def test_memory_is_a_share_of_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    machine = Machine("m")
    clock.passes(EVERY)
    said = machine.arrived(watched=True)
    assert said is not None
    assert 0 < float(said["memory"]) < 1


def test_of_a_real_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    graph = Graph.somatize(node(nap).named("n").at("w1"))
    with Broker.embedded({"w1": spawned(send=[__name__])}) as broker:
        for _ in range(3):
            graph.forward(EVERY * 0.6, broker=broker, watching=told.append)
    said = [fact for fact in told if fact["fact"] == "machine"]
    assert [fact["served"] for fact in said] == ["3"]
    assert set(said[0]) == {"fact", "host", "id", "up_us", "served", "busy", "over_us", "cores", "memory"}
    assert int(said[0]["over_us"]) >= EVERY * 1e6

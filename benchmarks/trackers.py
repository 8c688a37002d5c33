"""What spans cost while a graph runs, and how long a run takes on its way to and from other trackers.

Spans are measured beside the same spans made by hand with the SDK, in turns; each way on the same machine at the same
time, so the ratio is what counts.

    python benchmarks/trackers.py
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from time import perf_counter, thread_time_ns
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from somatize import Graph, Node, Recorder, Store
from somatize.record.export import OpenTelemetry, from_tensorboard, to_mlflow, to_opentelemetry, to_tensorboard

FORWARDS = 20_000
LOOPS, ROUNDS = 300, 15


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


def in_turns(*ways: Callable[[], object]) -> list[float]:
    """Microseconds per call of each way: the median over rounds taken by turns."""
    times: list[list[int]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, taken in zip(ways, times, strict=True):
            began = thread_time_ns()
            for _ in range(LOOPS):
                way()
            taken.append(thread_time_ns() - began)
    return [statistics.median(taken) / LOOPS / 1000 for taken in times]


def spans() -> None:
    graph = Graph.somatize(Pass() >> Pass() >> Pass())
    provider, unsampled = TracerProvider(), TracerProvider(sampler=ALWAYS_OFF)
    tracer = provider.get_tracer("by hand")
    watcher, off, nobody = OpenTelemetry(provider), OpenTelemetry(unsampled), OpenTelemetry()
    node = Pass()

    def by_hand() -> None:
        with tracer.start_as_current_span("forward"):
            for name in ("a", "b", "c"):
                with tracer.start_as_current_span(name, attributes={"id": name, "function": name}):
                    node.forward(1, None)

    def alone() -> None:
        for _ in range(3):
            node.forward(1, None)

    ours, theirs, silent, without, bare = in_turns(
        lambda: graph.forward(1, watching=watcher),
        by_hand,
        lambda: graph.forward(1, watching=off),
        lambda: graph.forward(1, watching=nobody),
        alone,
    )
    print("a forward of three nodes, per forward, no exporter")
    print(f"  spans by the watcher        {ours:8.1f} us")
    print(f"  the same by hand            {theirs:8.1f} us   ratio {ours / theirs:.2f}")
    print(f"  not sampled                 {silent:8.1f} us")
    print(f"  no provider set             {without:8.1f} us")
    print(f"  the nodes alone             {bare:8.1f} us")


def timed(what: str, way: Callable[[], Any]) -> None:
    began = perf_counter()
    answer = way()
    took = perf_counter() - began
    print(f"  {what:28}{took:6.1f} s  {took / FORWARDS * 1e6:7.1f} us a forward   {dict(answer.wrote)}")


def ways() -> None:
    graph = Graph.somatize(Pass() >> Pass() >> Pass())
    with tempfile.TemporaryDirectory() as folder, chdir(folder), Store("store") as store:
        with Recorder(store, run="run", summarising=["loss"]) as recorder:
            for turn in range(FORWARDS):
                graph.forward(turn, watching=recorder)
                recorder({"fact": "loss", "value": turn / 7})
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        print(f"{FORWARDS:,} forwards of three nodes and a loss")
        timed("to_opentelemetry", lambda: to_opentelemetry(store, "run", TracerProvider()))
        timed("to_tensorboard", lambda: to_tensorboard(store, "run", "logs"))
        timed("from_tensorboard", lambda: from_tensorboard("logs", store, "old"))
        timed("to_mlflow, SQLite", lambda: to_mlflow(store, "run", f"sqlite:///{Path('m.db').absolute()}"))


if __name__ == "__main__":
    spans()
    ways()

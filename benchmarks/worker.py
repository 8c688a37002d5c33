"""A node at a worker on this machine, beside a bare `multiprocessing.Pipe` that sends the same bytes there and back.

Each pair is measured by turns, and the ratio is of the medians: a machine that slows down slows both.

    python benchmarks/worker.py
"""

from __future__ import annotations

import functools
import multiprocessing
import operator
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from time import perf_counter as clock
from typing import Any

import numpy as np

from somatize import Broker, Graph, Worker, node

ARGV = [sys.executable, "-m", "somatize.worker"]


def echo(end: Connection) -> None:
    while True:
        end.send(end.recv())


def echo_bytes(end: Connection) -> None:
    while True:
        end.send_bytes(end.recv_bytes())


def by_turns(rounds: int, *calls: Callable[[], Any]) -> list[float]:
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for place, call in enumerate(calls):
            began = clock()
            call()
            times[place].append(clock() - began)
    return [statistics.median(each) for each in times]


def round_trips(broker: Broker) -> None:
    graph = Graph.somatize(node(lambda x: x).at("w1"))
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    process = context.Process(target=echo, args=(other,), daemon=True)
    process.start()
    array = np.ones(12_500_000)
    for name, value, rounds, most in (
        ("100 B", b"x" * 100, 300, 3.0),
        ("1 MB", b"x" * 1_000_000, 60, 2.0),
        ("100 MB numpy", array, 5, 0.4),
    ):

        def bare(value: Any = value) -> None:
            mine.send(value)
            mine.recv()

        pipe, far = by_turns(rounds, bare, lambda value=value: graph.forward(value, broker=broker))
        print(
            f"round trip of {name}: pipe {pipe * 1e6:,.0f} us, worker {far * 1e6:,.0f} us,"
            f" ratio {far / pipe:.2f} (at most {most})"
        )
    process.kill()


def cold_start() -> None:
    imports = "import somatize.dag.pieces, somatize.engine.scheduler, somatize.engine.program, cloudpickle, msgpack"

    def bare() -> None:
        subprocess.run([sys.executable, "-c", imports], check=True)

    def cold() -> None:
        with Broker.embedded({"w1": Worker.spawn(ARGV)}) as broker:
            began = clock()
            Graph.somatize(node(lambda x: x).at("w1")).forward(1, broker=broker)
            took.append(clock() - began)

    took: list[float] = []
    plain = by_turns(5, bare, cold)[0]
    first = statistics.median(took)
    print(f"cold start: python with its imports {plain * 1e3:.0f} ms, first answer {first * 1e3:.0f} ms,", end=" ")
    print(f"ratio {first / plain:.2f} (at most 2.5)")


def many_facts(broker: Broker) -> None:
    chain = Graph.somatize(functools.reduce(operator.rshift, [node(lambda x: x) for _ in range(100)]).at("w1"))
    seen: list[Any] = []
    quiet, watched = by_turns(
        40, lambda: chain.forward(1, broker=broker), lambda: chain.forward(1, broker=broker, watching=seen.append)
    )
    print(f"slice of 100 nodes: {quiet * 1e3:.2f} ms; its 100 facts cost {(watched - quiet) * 1e3:.2f} ms (at most 2)")


def first_fact(broker: Broker) -> None:
    def slow(x: Any, ctx: Any) -> Any:
        import time

        ctx.tell({"fact": "said", "at": time.time()})
        time.sleep(0.2)
        return x

    graph = Graph.somatize(node(slow).at("w1"))
    late: list[float] = []
    for _ in range(5):
        graph.forward(
            1,
            broker=broker,
            watching=lambda f: late.append(time.time() - float(f["at"])) if f["fact"] == "said" else None,
        )
    print(f"a fact is seen after {statistics.median(late) * 1e3:.1f} ms (at most 50)")


if __name__ == "__main__":
    with Broker.embedded({"w1": Worker.spawn(ARGV)}) as made:
        round_trips(made)
        many_facts(made)
        first_fact(made)
    cold_start()

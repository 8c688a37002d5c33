"""What keeping and recalling cost: a hit, a recall against reading the bytes, foreseeing, memory.

python benchmarks/keeping.py
"""

from __future__ import annotations

import functools
import operator
import statistics
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns as clock
from typing import Any

import numpy as np

from somatize import Graph, Node, Store


class Pass(Node):
    """A node that hands on what it gets."""

    def forward(self, value: Any, ctx: Any) -> Any:
        return value


def median(call: Callable[[], object], rounds: int = 15, repeat: int = 1) -> float:
    """Microseconds per call."""
    times = []
    for _ in range(rounds):
        began = clock()
        for _ in range(repeat):
            call()
        times.append((clock() - began) / repeat / 1000)
    return statistics.median(times)


def hit(store: Store) -> None:
    kept = Graph.somatize(Pass().named("a").frozen() >> Pass().named("b").frozen().cached())
    nothing = Graph.somatize(Pass().named("a"))
    kept.forward("a short text", store=store)
    ours = median(lambda: kept.forward("a short text", store=store), repeat=200)
    theirs = median(lambda: nothing.forward("a short text"), repeat=200)
    print(f"a hit on a short text                {ours - theirs:10.1f} us more than running nothing (<= 150)")


def large(store: Store, folder: Path) -> None:
    array = np.random.default_rng(0).random(19_000_000 // 4, dtype=np.float32)
    path = folder / "plain"
    path.write_bytes(array.tobytes())
    store.keep("array", array)
    ours, theirs = median(lambda: store.recall("array")), median(path.read_bytes)
    print(f"recalling 19 MB                      {ours / theirs:10.2f} times reading the bytes (<= 3)")


def memory(store: Store) -> None:
    size = 50_000_000
    array = np.zeros(size // 8)
    graph = Graph.somatize(Pass().named("a").frozen().cached())
    for what, call in (
        ("keeping", lambda: store.keep("m", array)),
        ("recalling", lambda: store.recall("m")),
        ("keeping, in a forward", lambda: graph.forward(array, store=store)),
        ("recalling, in a forward", lambda: graph.forward(array, store=store)),
    ):
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"{what:36} {peak / size:10.2f} times the value's size above it (<= 2)")


def foreseeing(store: Store) -> None:
    pieces = [Pass().frozen() for _ in range(999)]
    graph = Graph.somatize(functools.reduce(operator.rshift, pieces) >> Pass().frozen().cached())
    graph.forward("x", store=store)
    ours = median(lambda: graph.foreseen("x", store=store))
    print(f"foreseeing 1,000 nodes               {ours / 1000:10.1f} ms (<= 50)")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store") as opened:
        hit(opened)
        large(opened, Path(folder))
        memory(opened)
        foreseeing(opened)

"""What the engine adds to a loop written by hand, as ratios measured in one run.

The baseline of a watched forward is a hand-written loop that reads the clock twice per node and makes the same dicts;
of an unwatched one, plain calls. Each pair is measured by turns, many short rounds of both, and the ratio is of the
medians: a machine that slows down slows both.

    python benchmarks/engine.py
"""

from __future__ import annotations

import functools
import operator
import statistics
from collections.abc import Callable
from time import perf_counter_ns as clock
from typing import Any

from somatize import Graph, Node


class Pass(Node):
    """A node that does nothing: what is measured is everything else."""

    def forward(self, value: Any, ctx: Any) -> Any:
        return value


def chain(length: int) -> Graph:
    return Graph.somatize(functools.reduce(operator.rshift, [Pass() for _ in range(length)]))


def fan(width: int) -> Graph:
    return Graph.somatize(Pass() >> functools.reduce(operator.or_, [Pass() for _ in range(width)]) >> Pass())


def ladder(nodes: int) -> Graph:
    graph = Graph()
    last = graph.node(Pass())
    while len(graph) + 3 <= nodes:
        left, right, rung = graph.node(Pass()), graph.node(Pass()), graph.node(Pass())
        for before, after in ((last, left), (last, right), (left, rung), (right, rung)):
            graph.edge(before, after)
        last = rung
    return graph


def by_hand(graph: Graph) -> Callable[..., Any]:
    """The loop someone would write who knows the order, watched or not."""
    steps = [(node, graph.implementation(node), graph.predecessors(node)) for node in graph.topological_sort()]
    last = steps[-1][0]

    def watched(value: Any, watch: Callable[[dict[str, str]], object]) -> Any:
        start = clock()
        values: dict[str, Any] = {}
        for name, node, before in steps:
            taken = value if not before else values[before[0]] if len(before) == 1 else {b: values[b] for b in before}
            began = clock()
            values[name] = node.forward(taken, None)
            ended = clock()
            watch(
                {
                    "fact": "ran",
                    "node": name,
                    "began_us": str((began - start) // 1000),
                    "took_us": str((ended - began) // 1000),
                }
            )
        watch({"fact": "finished", "took_us": str((clock() - start) // 1000)})
        return values[last]

    return watched


def chain_by_hand(graph: Graph) -> Callable[..., Any]:
    """The same for a chain, which needs no values but the last."""
    steps = [(node, graph.implementation(node)) for node in graph.topological_sort()]

    def watched(value: Any, watch: Callable[[dict[str, str]], object]) -> Any:
        start = clock()
        for name, node in steps:
            began = clock()
            value = node.forward(value, None)
            ended = clock()
            watch(
                {
                    "fact": "ran",
                    "node": name,
                    "began_us": str((began - start) // 1000),
                    "took_us": str((ended - began) // 1000),
                }
            )
        watch({"fact": "finished", "took_us": str((clock() - start) // 1000)})
        return value

    return watched


def plain(graph: Graph) -> Callable[[Any], Any]:
    nodes = [graph.implementation(node) for node in graph.topological_sort()]

    def calls(value: Any) -> Any:
        for node in nodes:
            value = node.forward(value, None)
        return value

    return calls


def in_turns(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 60) -> tuple[float, float]:
    """Nanoseconds per call of each, the median over many short rounds taken by turns."""
    repeat = max(1, 2_000_000 // max(1, _once(theirs)))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, taken in zip((ours, theirs), times, strict=True):
            began = clock()
            for _ in range(repeat):
                call()
            taken.append((clock() - began) / repeat)
    return statistics.median(times[0]), statistics.median(times[1])


def _once(call: Callable[[], object]) -> int:
    call()
    began = clock()
    call()
    return clock() - began


def row(what: str, ours: float, theirs: float, limit: str) -> None:
    print(f"{what:34} {ours / 1000:10.2f} {theirs / 1000:10.2f} {ours / theirs:8.2f}   {limit}")


def watched_rows() -> None:
    for what, graph, hand, limit in (
        ("watched, chain of 3", chain(3), chain_by_hand, "<= 1.6"),
        ("watched, chain of 100", chain(100), chain_by_hand, "<= 1.4"),
        ("watched, fan of 32", fan(32), by_hand, "<= 1.4"),
        ("watched, ladder of 31 nodes", ladder(31), by_hand, "<= 1.4"),
    ):
        loop = hand(graph)
        seen: list[dict[str, str]] = []

        def ours(graph: Graph = graph, seen: list[Any] = seen) -> None:
            graph.forward(1, watching=seen.append)
            seen.clear()

        def theirs(loop: Callable[..., Any] = loop, seen: list[Any] = seen) -> None:
            loop(1, seen.append)
            seen.clear()

        row(what, *in_turns(ours, theirs), limit)


def unwatched_rows() -> None:
    for length, limit in ((100, "<= 2.0"), (3, "at most 2 us more")):
        graph = chain(length)
        calls = plain(graph)
        ours, theirs = in_turns(functools.partial(graph.forward, 1), functools.partial(calls, 1))
        row(f"unwatched, chain of {length}", ours, theirs, limit)
        if length == 3:
            print(f"{'  more than plain calls':34} {(ours - theirs) / 1000:10.2f} us")


def growth() -> None:
    print("\nper node, us         10        100      1,000      5,000   5,000 / 100 (<= 1.5)")
    sizes = (10, 100, 1000, 5000)
    for what, measure in (("build", _build), ("plan", _plan), ("run, watched", _run)):
        per_node = [statistics.median(measure(size) for _ in range(7)) / size / 1000 for size in sizes]
        print(f"{what:13}" + "".join(f"{time:11.3f}" for time in per_node) + f"{per_node[3] / per_node[1]:11.2f}")


def _timed(call: Callable[[], object]) -> int:
    began = clock()
    call()
    return clock() - began


def _build(size: int) -> int:
    return _timed(lambda: chain(size))


def _plan(size: int) -> int:
    return _timed(chain(size).plan)


def _run(size: int) -> int:
    graph = chain(size)
    graph.plan()
    return _timed(lambda: graph.forward(1, watching=list[Any]().append))


def recorded() -> None:
    """What a recorder adds to a watched forward of three nodes."""
    import tempfile

    from somatize import Recorder, Store

    graph = chain(3)
    with tempfile.TemporaryDirectory() as path, Store(path) as store, Recorder(store, run="bench") as recorder:
        ours, theirs = in_turns(lambda: graph.forward(1, watching=recorder), lambda: graph.forward(1, watching=_nobody))
        print(f"\na recorded forward of 3 nodes costs {(ours - theirs) / 1000:.1f} us more than a watched one (<= 60)")


def _nobody(fact: dict[str, str]) -> None:
    """A watcher that does nothing."""


if __name__ == "__main__":
    print(f"{'us per forward':34} {'somatize':>10} {'by hand':>10} {'ratio':>8}   wanted")
    watched_rows()
    unwatched_rows()
    growth()
    recorded()

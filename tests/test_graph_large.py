"""Thousands of nodes: no recursion limit, and work that grows with the size and no faster."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from somatize import Graph, Node, node


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


COPIES = {
    "pickle": lambda graph: pickle.loads(pickle.dumps(graph)),
    "cloudpickle": lambda graph: cloudpickle.loads(cloudpickle.dumps(graph)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


# Large graphs


def chain(size: int) -> Graph:
    expression: Any = Pass()
    for _ in range(size - 1):
        expression = expression >> Pass()
    return Graph.somatize(expression)


def fan(width: int) -> Graph:
    beside: Any = node(Pass())
    for _ in range(width - 1):
        beside = beside | Pass()
    return Graph.somatize(Pass() >> beside >> Pass())


def ladder(rungs: int) -> Graph:
    graph = Graph()
    last = graph.node(Pass())
    for _ in range(rungs):
        left, right, rung = graph.node(Pass()), graph.node(Pass()), graph.node(Pass())
        for before, after in ((last, left), (last, right), (left, rung), (right, rung)):
            graph.edge(before, after)
        last = rung
    return graph


LARGE = {"chain": (chain, 5000, 5000), "fan": (fan, 5000, 5002), "ladder": (ladder, 2000, 6001)}


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize(("build", "size", "nodes"), LARGE.values(), ids=LARGE)
def test_large_graphs_are_built_planned_and_run(build: Any, size: int, nodes: int, watched: bool) -> None:
    graph = build(size)
    seen: list[dict[str, str]] = []
    assert len(graph.plan()) == len(graph.topological_sort()) == nodes
    answer = graph.forward(1, watching=seen.append if watched else None, threads=1)
    assert answer == 1 or len(answer) in (2, 5000)
    assert len(seen) == (nodes + 1 if watched else 0)


def test_a_wide_fan_runs_in_threads() -> None:
    answer = fan(5000).forward(1, threads=4)
    assert len(answer) == 5000
    assert set(answer.values()) == {1}


@pytest.mark.parametrize("copied", [COPIES["pickle"], COPIES["cloudpickle"], COPIES["deepcopy"]])
@pytest.mark.parametrize(("build", "size", "nodes"), LARGE.values(), ids=LARGE)
def test_large_graphs_are_copied_shown_and_deleted(build: Any, size: int, nodes: int, copied: Any) -> None:
    graph = build(size)
    there = copied(graph)
    assert len(repr(there)) < 2000
    assert there.plan() == graph.plan()
    del graph
    assert len(there) == nodes
    del there


def test_expressions_nested_to_either_side_and_into_one_another_are_no_deeper_than_they_need_be() -> None:
    right: Any = node(Pass())
    for _ in range(3000):
        right = Pass() >> right
    assert len(Graph.somatize(right)) == 3001
    beside: Any = node(Pass())
    for _ in range(3000):
        beside = Pass() | beside
    assert len(Graph.somatize(beside).roots()) == 3001
    marked: Any = node(Pass())
    for _ in range(3000):
        marked = (marked >> Pass()).on("cpu")
    assert len(Graph.somatize(marked).devices()) == 3001
    mixed: Any = node(Pass())
    for _ in range(300):
        mixed = ((mixed >> Pass()) | Pass()) >> Pass()
    graph = Graph.somatize(mixed)
    assert len(graph) == 901
    assert len(graph.roots()) == 301
    for copied in COPIES.values():
        assert Graph.somatize(copied(mixed)).edges() == graph.edges()
    assert len(Graph.somatize(pickle.loads(pickle.dumps(right)))) == 3001
    assert len(Graph.somatize(copy.deepcopy(marked)).devices()) == 3001
    del right, beside, marked, mixed


def steps_of(call: Callable[[], Any]) -> int:
    """How many function calls `call` takes, Python's and C's."""
    import sys

    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("phase", ["build", "plan", "run", "watch", "thread", "repr"])
@pytest.mark.parametrize("build", [chain, fan, ladder])
def test_every_phase_takes_linear_work(build: Callable[[int], Graph], phase: str) -> None:
    def work(size: int) -> int:
        graph = build(size)
        if phase not in ("build", "plan"):
            graph.plan()
        phases: dict[str, Callable[[], Any]] = {
            "build": lambda: build(size),
            "plan": graph.plan,
            "run": lambda: graph.forward(1),
            "watch": lambda: graph.forward(1, watching=[].append),
            "thread": lambda: graph.forward(1, threads=2),
            "repr": lambda: repr(graph),
        }
        return steps_of(phases[phase])

    once, four_times = work(150), work(600)
    assert four_times < 4.4 * once


@pytest.mark.parametrize(("edges", "shown", "more"), [(12, 12, 0), (13, 11, 2), (1000, 11, 989)])
def test_a_long_repr_is_cut_and_says_how_much_is_missing(edges: int, shown: int, more: int) -> None:
    graph = chain(edges + 1)
    words = repr(graph)
    assert words.count(" -> ") == shown
    assert (f"... {more} more ..." in words) is bool(more)
    assert words.endswith(f"; pass_{edges} -> pass_{edges + 1})")


def test_a_wide_repr_is_short_too() -> None:
    words = repr(fan(5000))
    assert len(words) < 2000
    assert words.startswith("Graph(5002 nodes, 10000 edges: ")

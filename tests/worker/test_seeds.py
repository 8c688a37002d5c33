"""A forward with a seed gives the same numbers wherever its nodes run, and leaves the generators as they were."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from somatize import Broker, Graph, Node, Store, node
from somatize.errors import GraphError

from .conftest import spawned


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    worker = spawned(send=[__name__])
    with Broker.embedded({"w1": worker, "w2": worker, "pool": [worker, worker]}) as made:
        yield made


def draws(_: Any) -> list[float]:
    """From each of the generators."""
    return [
        random.random(),
        float(np.random.rand()),
        float(torch.rand(())),
        float(torch.nn.functional.dropout(torch.ones(64)).sum()),
    ]


def draws_for(x: Any) -> Any:
    return x, draws(x)


def draws_for_all(batch: Any) -> Any:
    return [(x, random.random(), float(torch.rand(()))) for x in batch]


class Draws(Node):
    def forward(self, x, ctx):
        return draws(x)


def chain(host: str | None = None) -> Graph:
    a, b = node(draws).named("a"), Draws().named("b")
    both = (a.at(host) | b.at(host)) if host else a | b
    return Graph.somatize(node(lambda x: x).named("first") >> both)


def states() -> list[Any]:
    return [random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()]


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others() -> None:
    graph = chain()
    before = states()
    one = graph.forward(0, seed=7)
    random.random()
    torch.rand(3)
    assert graph.forward(0, seed=7) == one
    assert graph.forward(0, seed=7, watching=[].append) == one
    assert graph.forward(0, seed=np.int64(7)) == one
    other = graph.forward(0, seed=8)
    assert all(a != b for node_ in ("a", "b") for a, b in zip(one[node_][:3], other[node_][:3], strict=True))
    assert one["a"][:3] != one["b"][:3]
    assert len(before) == 3


def test_afterwards_the_generators_are_as_before_also_where_a_node_raised() -> None:
    def raises(x):
        random.random()
        raise ValueError("no")

    before = states()
    chain().forward(0, seed=7)
    assert states() == before
    with pytest.raises(ValueError, match="no"):
        Graph.somatize(node(raises)).forward(0, seed=7)
    assert states() == before


def test_without_a_seed_nothing_is_seeded() -> None:
    graph = chain()
    torch.manual_seed(1)
    first = graph.forward(0)["a"][2]
    torch.manual_seed(1)
    assert graph.forward(0)["a"][2] == first
    assert graph.forward(0)["a"][2] != first


def test_here_and_at_a_host_and_in_a_pool_the_numbers_are_the_same(broker: Broker) -> None:
    here = chain().forward(0, seed=7)
    assert chain("w1").forward(0, seed=7, broker=broker) == here
    assert chain("w1").forward(0, seed=7, broker=broker) == here
    assert chain("w1").forward(0, seed=2**80, broker=broker) == chain().forward(0, seed=2**80)
    parted = node(lambda x: x).named("first") >> (node(draws).named("a").at("w1") | Draws().named("b").at("w2"))
    assert Graph.somatize(parted).forward(0, seed=7, broker=broker) == here
    items = list(range(50))
    piece = node(draws_for).named("n")
    mapped = Graph.somatize(piece.mapped()).forward(items, seed=7)
    assert [x for x, _ in mapped] == items
    assert len({str(drawn) for _, drawn in mapped}) == 50
    for host in ("w1", "pool"):
        far = Graph.somatize(piece.at(host).mapped())
        assert far.forward(items, seed=7, broker=broker) == mapped
    for count in (3, 8, 20):
        batches = node(draws_for_all).named("n")
        by = Graph.somatize(batches.mapped(count)).forward(items, seed=7)
        for host in ("w1", "pool"):
            assert Graph.somatize(batches.at(host).mapped(count)).forward(items, seed=7, broker=broker) == by


def test_a_worker_draws_on_without_a_seed(broker: Broker) -> None:
    graph = Graph.somatize(node(draws).at("w1"))
    graph.forward(0, seed=7, broker=broker)
    assert graph.forward(0, broker=broker) != graph.forward(0, seed=7, broker=broker)
    assert graph.forward(0, broker=broker) != graph.forward(0, broker=broker)


def test_a_forward_inside_of_a_node() -> None:
    inner = Graph.somatize(node(draws).named("inner"))

    def outer(_):
        return [draws(0), inner.forward(0, seed=3), draws(0), inner.forward(0)]

    graph = Graph.somatize(node(outer).named("outer"))
    found = graph.forward(0, seed=7)
    assert graph.forward(0, seed=7) == found
    assert found[1] == inner.forward(0, seed=3)

    def without_it(_):
        return [draws(0), None, draws(0), draws(0)]

    plain = Graph.somatize(node(without_it).named("outer")).forward(0, seed=7)
    assert (plain[0], plain[2], plain[3]) == (found[0], found[2], found[3])  # the inner one took nothing of it


LATE = """
import sys
from somatize import Graph, node

def draws(_):
    import numpy, torch
    return float(numpy.random.rand()), float(torch.rand(()))

graph = Graph.somatize(node(draws).named("n"))
assert not {"numpy", "torch"} & set(sys.modules)
one = graph.forward(0, seed=7)
assert "torch" in sys.modules
assert type(sys.modules["numpy"].__spec__.loader).__name__ == "SourceFileLoader"
assert "exec_module" not in vars(sys.modules["torch"].__spec__.loader)
import numpy
assert graph.forward(0, seed=7) == one
print(one, numpy.random.rand())
"""


def test_a_library_that_a_node_imports_is_seeded_as_if_it_had_been_there() -> None:
    run = [subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False) for _ in range(2)]
    assert [one.stderr for one in run] == ["", ""]
    drawn, after = zip(*(one.stdout.rsplit(" ", 1) for one in run), strict=True)
    assert drawn[0] == drawn[1]
    assert after[0] != after[1]  # what comes after the forward is not seeded


@pytest.mark.parametrize("wrong", ["7", 7.0, True, [1]])
def test_what_is_no_seed_is_refused(wrong: Any) -> None:
    with pytest.raises(GraphError, match="it is a whole number"):
        chain().forward(0, seed=wrong)


def test_threads_are_refused() -> None:
    with pytest.raises(GraphError, match="seed=7 and threads=2: nodes that run at the same time would draw from one"):
        chain().forward(0, seed=7, threads=2)


def test_so_is_a_second_forward_with_a_seed_in_another_thread() -> None:
    began, ends = threading.Event(), threading.Event()

    def waits(_):
        began.set()
        assert ends.wait(20)
        return draws(0)

    graph = Graph.somatize(node(waits).named("a"))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(graph.forward(0, seed=7)))
    thread.start()
    assert began.wait(20)
    with pytest.raises(GraphError, match="a forward with seed= runs in another thread"):
        chain().forward(0, seed=7)
    ends.set()
    thread.join()
    ends.set()
    assert found == [graph.forward(0, seed=7)]


# -- kept results


class Counted(Node):
    __unkeyed__ = ("_calls",)

    def __init__(self) -> None:
        self._calls = 0

    def forward(self, x, ctx):
        self._calls += 1
        return [x, *draws(x)]


def test_the_seed_counts_in_a_kept_results_name_and_is_no_warning(tmp_path: Path, broker: Broker) -> None:
    counted = Counted()
    graph = Graph.somatize(node(lambda x: x).named("first").frozen() >> counted.named("n").frozen().cached())
    unkept = [graph.forward(0, seed=seed) for seed in (7, 8)]
    counted._calls = 0
    with Store(tmp_path) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert graph.foreseen(0, store=store, seed=7)["n"].would == "run"
        for _ in range(2):
            assert [graph.forward(0, seed=seed, store=store) for seed in (7, 8)] == unkept
        assert counted._calls == 2
        assert graph.foreseen(0, store=store, seed=7)["n"].would == "be recalled"
        assert graph.foreseen(0, store=store, seed=9)["n"].would == "run"
        renamed = Graph.somatize(node(lambda x: x).named("first").frozen() >> counted.named("m").frozen().cached())
        assert renamed.forward(0, seed=7, store=store) == renamed.forward(0, seed=7) != unkept[0]


def test_items_are_kept_by_their_place_too(tmp_path: Path, broker: Broker) -> None:
    piece = node(draws_for).named("n").frozen().cached()
    items = [1, 1, 2, 1]
    unkept = Graph.somatize(node(draws_for).named("n").mapped()).forward(items, seed=7)
    assert len({str(one) for one in unkept}) == 4
    with Store(tmp_path) as store:
        for host in (None, "w1", "pool"):
            graph = Graph.somatize((piece.at(host) if host else piece).mapped())
            for given in (items[:2], items, items):
                assert graph.forward(given, seed=7, store=store, broker=broker) == unkept[: len(given)]
            assert graph.forward(items, seed=7, store=store, broker=broker, refresh=["n"]) == unkept


def test_what_cannot_be_kept_right_is_refused(tmp_path: Path) -> None:
    graph = Graph.somatize(node(draws_for_all).named("n").frozen().cached().mapped(2))
    with (
        Store(tmp_path) as store,
        pytest.raises(GraphError, match="seed=7 and node 'n', which is cached and mapped by"),
    ):
        graph.forward([1, 2, 3], seed=7, store=store)
    assert graph.forward([1, 2, 3], seed=7) == graph.forward([1, 2, 3], seed=7)

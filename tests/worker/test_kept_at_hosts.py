"""What changes at a host before a kept node runs there is not kept, nor is what changed on the way."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import Broker, Graph, Store, node
from somatize.errors import KeepWarning

from .conftest import spawned


def total(x: Any) -> float:
    return float(x.sum())


def centre(x: Any) -> Any:
    x -= x.mean()
    return x


def ones(n: int) -> Any:
    return np.ones(n)


def rows(n: int) -> list[int]:
    return [n, n + 1]


def add(x: list[int]) -> list[int]:
    x.append(1)
    return x


def double(x: list[int]) -> list[int]:
    x[:] = [2 * one for one in x]
    return x


def copied(x: list[int]) -> list[int]:
    return [*x, 7]


def same(x: Any) -> Any:
    return x


ACTIONS = {"add": add, "double": double, "copied": copied, "same": same}
HOSTS = [None, "w1", "w2"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.embedded({"w1": spawned(send=[__name__]), "w2": spawned(send=[__name__])}) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Any) -> Iterator[Store]:
    with Store(tmp_path / "kept") as opened:
        yield opened


def placed(thing: Any, id: str, host: str | None, *, keep: bool = False) -> Any:
    piece = node(thing).named(id).frozen()
    piece = piece.cached() if keep else piece
    return piece.at(host) if host is not None else piece


def told(graph: Graph, value: Any, **how: Any) -> tuple[Any, list[str], list[str]]:
    facts: list[Any] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", KeepWarning)
        answer = graph.forward(value, watching=facts.append, **how)
    kinds = [f"{fact['fact']} {fact['node']}" for fact in facts if fact["fact"] in ("kept", "recalled")]
    return answer, sorted(kinds), [str(one.message) for one in said]


@pytest.mark.parametrize("where", [("w1", "w1", "w1"), (None, "w1", "w1"), ("w1", None, "w1"), ("w1", "w1", None)])
def test_a_value_that_a_sibling_changed_at_a_host_is_not_what_is_kept(
    broker: Broker, store: Store, where: tuple[str | None, ...]
) -> None:
    make = placed(ones, "make", where[0])
    graph = Graph.somatize(make >> (placed(centre, "centre", where[1]) | placed(total, "total", where[2], keep=True)))
    told(graph, 3, store=store, broker=broker)
    alone = Graph.somatize(make >> placed(total, "total", where[2], keep=True))
    assert told(alone, 3, store=store, broker=broker)[0] == 3.0


def test_one_warning_names_the_node_and_who_shared_it(broker: Broker, store: Store) -> None:
    graph = Graph.somatize(placed(centre, "centre", "w1") | placed(total, "total", "w1", keep=True))
    _, kinds, said = told(graph, np.ones(3), store=store, broker=broker)
    assert kinds == []
    assert len(said) == 1
    assert "'total' is not kept" in said[0]
    assert "'centre'" in said[0]
    assert "'w1'" in said[0]
    assert told(graph, np.ones(3), store=store, broker=broker)[2] == []


def test_nodes_at_a_host_that_change_nothing_are_kept(broker: Broker, store: Store) -> None:
    graph = Graph.somatize(
        placed(ones, "make", "w1", keep=True)
        >> (placed(total, "a", "w1", keep=True) | placed(total, "b", "w1", keep=True) | placed(same, "c", "w1"))
    )
    assert told(graph, 3, store=store, broker=broker)[1:] == (["kept a", "kept b", "kept make"], [])


def test_one_that_changes_its_own_input_is_kept(broker: Broker, store: Store) -> None:
    graph = Graph.somatize(placed(ones, "make", "w1") >> placed(centre, "centre", "w1", keep=True))
    assert told(graph, 3, store=store, broker=broker)[1:] == (["kept centre"], [])


def test_a_kept_value_that_is_changed_after_it_was_made_is_not_kept(broker: Broker, store: Store) -> None:
    make = placed(ones, "make", "w1", keep=True)
    told(Graph.somatize(make >> placed(centre, "centre", "w1")), 3, store=store, broker=broker)
    assert told(Graph.somatize(make), 3, store=store, broker=broker)[0].tolist() == [1.0, 1.0, 1.0]


def test_a_module_in_training_mode_is_not_kept_at_a_host_either(broker: Broker, store: Store) -> None:
    graph = Graph.somatize(node(torch.nn.Dropout(0.5)).named("drop").frozen().cached().at("w1"))
    _, kinds, said = told(graph, torch.ones(4), store=store, broker=broker)
    assert kinds == []
    assert ["training mode" in one for one in said] == [True]


@st.composite
def programs(draw: Any) -> list[tuple[str, int, bool, str | None]]:
    found = []
    for number in range(draw(st.integers(2, 6))):
        feeds = draw(st.integers(-1, number - 1))
        where = draw(st.sampled_from(HOSTS))
        found.append((draw(st.sampled_from(sorted(ACTIONS))), feeds, draw(st.booleans()), where))
    return found


def built(nodes: list[Any], chosen: set[int] | None = None) -> Graph:
    graph = Graph()
    for number, (action, feeds, keep, host) in enumerate(nodes):
        if chosen is None or number in chosen:
            graph.node(placed(ACTIONS[action], f"n{number}", host, keep=keep))
            if feeds >= 0:
                graph.edge(f"n{feeds}", f"n{number}")
    return graph


def line(nodes: list[Any], number: int) -> set[int]:
    found = set()
    while number >= 0:
        found.add(number)
        number = nodes[number][1]
    return found


@given(programs(), st.lists(st.integers(0, 3), max_size=3), st.sampled_from([1, 3]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_kept_result_is_what_its_own_line_of_nodes_gives(
    tmp_path_factory: Any, broker: Broker, nodes: list[Any], value: list[int], threads: int
) -> None:
    """Wherever they run, and whatever siblings there do to what they share."""
    with Store(tmp_path_factory.mktemp("store")) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepWarning)
        for _ in range(2):
            built(nodes).forward(copy.deepcopy(value), store=store, broker=broker, threads=threads)
        for number, (_, _, keep, _) in enumerate(nodes):
            if keep:
                here = [(action, feeds, keep, None) for action, feeds, keep, _ in nodes]
                alone = built(here, line(nodes, number))
                truth = alone.forward(copy.deepcopy(value))
                assert alone.forward(copy.deepcopy(value), store=store, keeping=False) == truth

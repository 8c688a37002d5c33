"""Names and edges, orders and circles; by example and by property."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from somatize.dag.topology import Topology
from somatize.errors import CycleError, GraphError, NameTaken, UnknownNode


def made(*edges: str, names: str = "") -> Topology:
    """A topology of one-letter names; ``"ab"`` is an edge from a to b."""
    topology = Topology()
    for name in dict.fromkeys(names + "".join(edges)):
        topology.add(name)
    for before, after in edges:
        topology.connect(before, after)
    return topology


def state(topology: Topology) -> Any:
    names = topology.names()
    return names, topology.edges(), [topology.predecessors(n) for n in names], topology.order()


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Names in the order they are declared, and edges along some hidden order, themselves in any order."""
    hidden = draw(st.permutations(range(draw(st.integers(0, 12)))))
    pairs = [(a, b) for place, a in enumerate(hidden) for b in hidden[place + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=40)) if pairs else []
    return draw(st.permutations(hidden)), edges


def built(dag: tuple[list[int], list[tuple[int, int]]]) -> Topology:
    topology = Topology()
    for name in dag[0]:
        topology.add(str(name))
    for before, after in dag[1]:
        topology.connect(str(before), str(after))
    return topology


@given(dags())
def test_the_order_holds_every_name_once_after_all_that_feed_it(dag: Any) -> None:
    topology = built(dag)
    order = topology.order()
    assert sorted(order) == sorted(topology.names())
    place = {name: index for index, name in enumerate(order)}
    assert all(place[before] < place[after] for before, after in topology.edges())


@given(dags())
def test_of_those_that_could_come_next_the_one_declared_first_does(dag: Any) -> None:
    topology = built(dag)
    names, done = topology.names(), []
    while len(done) < len(names):
        ready = [n for n in names if n not in done and set(topology.predecessors(n)) <= set(done)]
        done.append(ready[0])
    assert topology.order() == done


@given(dags())
def test_predecessors_and_successors_stand_in_the_order_the_edges_were_declared(dag: Any) -> None:
    topology = built(dag)
    for name in topology.names():
        assert topology.predecessors(name) == [str(a) for a, b in dag[1] if str(b) == name]
        assert topology.successors(name) == [str(b) for a, b in dag[1] if str(a) == name]
    assert sorted(topology.edges()) == sorted((str(a), str(b)) for a, b in dag[1])
    assert topology.roots() == [n for n in topology.names() if not topology.predecessors(n)]
    assert topology.leaves() == [n for n in topology.names() if not topology.successors(n)]
    assert list(topology.inputs()) == topology.order()
    assert topology.inputs() == {name: tuple(topology.predecessors(name)) for name in topology.names()}


@given(dags(), st.data())
def test_every_edge_that_closes_a_circle_is_refused_and_no_other(dag: Any, data: st.DataObject) -> None:
    topology = built(dag)
    if not len(topology):
        return
    before, after = data.draw(st.tuples(*[st.sampled_from(topology.names())] * 2))
    declared, was = topology.edges(), state(topology)
    if (before, after) in declared:
        with pytest.raises(GraphError, match="is there already"):
            topology.connect(before, after)
    elif before in reachable(topology, after):
        with pytest.raises(CycleError) as refused:
            topology.connect(before, after)
        way = str(refused.value).partition("circle: ")[2].split(" -> ")
        assert way[0] == way[-1] == before
        assert way[1] == after
        assert set(itertools.pairwise(way)) <= {*declared, (before, after)}
    else:
        topology.connect(before, after)
        assert (before, after) in topology.edges()
        return
    assert state(topology) == was


def reachable(topology: Topology, start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        seen.add(name)
        todo += [n for n in topology.successors(name) if n not in seen]
    return seen


def test_a_circle_is_refused_with_the_shortest_way_round() -> None:
    topology = made("ab", "bc", "cd", "ac")
    was = state(topology)
    with pytest.raises(CycleError) as refused:
        topology.connect("d", "a")
    assert str(refused.value) == "the edge 'd' -> 'a' would close a circle: d -> a -> c -> d"
    assert state(topology) == was


def test_a_name_cannot_feed_itself() -> None:
    topology = made(names="a")
    with pytest.raises(CycleError, match="would close a circle: a -> a"):
        topology.connect("a", "a")
    assert topology.edges() == []


def test_a_taken_name_is_refused() -> None:
    topology = made("ab")
    was = state(topology)
    with pytest.raises(NameTaken, match="the id 'a' is taken"):
        topology.add("a")
    assert state(topology) == was


def test_a_repeated_edge_is_refused() -> None:
    topology = made("ab")
    with pytest.raises(GraphError, match="the edge 'a' -> 'b' is there already; an edge is declared once"):
        topology.connect("a", "b")
    assert topology.edges() == [("a", "b")]


@pytest.mark.parametrize("asked", [Topology.predecessors, Topology.successors, Topology.known])
def test_an_unknown_name_is_refused_with_the_nearest(asked: Callable[..., Any]) -> None:
    topology = Topology()
    topology.add("tokenize")
    with pytest.raises(UnknownNode) as refused:
        asked(topology, "tokenise")
    assert str(refused.value) == "no node is called 'tokenise'; did you mean 'tokenize'?"
    with pytest.raises(UnknownNode) as refused:
        asked(topology, "zzz")
    assert str(refused.value) == "no node is called 'zzz'"


@pytest.mark.parametrize("wrong", [None, 3, [], object])
def test_what_is_no_text_is_no_name(wrong: Any) -> None:
    topology = made("ab")
    with pytest.raises(UnknownNode, match="an edge is declared between ids"):
        topology.connect("a", wrong)
    assert topology.edges() == [("a", "b")]


def test_what_is_read_is_the_reader_s_own() -> None:
    topology = made("ab", "ac")
    was = state(topology)
    for read in (topology.names, topology.edges, topology.roots, topology.leaves, topology.order):
        read().clear()
    topology.predecessors("b").clear()
    topology.successors("a").clear()
    topology.inputs().clear()
    assert state(topology) == was


def test_a_copy_goes_its_own_way() -> None:
    topology = made("ab")
    other = copy.deepcopy(topology)
    other.add("c")
    assert ("c" in topology, "c" in other, len(topology), len(other)) == (False, True, 2, 3)


def work(build: Callable[[int], Topology], size: int) -> int:
    """How many function calls and generator resumptions a topology of `size` takes to build and to order."""
    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        build(size).order()
    finally:
        sys.setprofile(None)
    return count


def chain(size: int, *, backwards: bool = False) -> Topology:
    topology = Topology()
    for name in range(size):
        topology.add(str(name))
    for name in reversed(range(size - 1)) if backwards else range(size - 1):
        topology.connect(str(name), str(name + 1))
    return topology


def fan(size: int) -> Topology:
    topology = Topology()
    for name in ("in", "out"):
        topology.add(name)
    for name in range(size):
        topology.add(str(name))
        topology.connect("in", str(name))
        topology.connect(str(name), "out")
    return topology


def ladder(size: int) -> Topology:
    topology = Topology()
    topology.add("0")
    for rung in range(size):
        left, right, end = f"l{rung}", f"r{rung}", f"{rung + 1}"
        for name in (left, right, end):
            topology.add(name)
        for before, after in ((f"{rung}", left), (f"{rung}", right), (left, end), (right, end)):
            topology.connect(before, after)
    return topology


SHAPES = [chain, lambda size: chain(size, backwards=True), fan, ladder]


@pytest.mark.parametrize("build", SHAPES, ids=["chain", "backwards", "fan", "ladder"])
def test_building_and_ordering_take_linear_work(build: Callable[[int], Topology]) -> None:
    once, four_times = work(build, 200), work(build, 800)
    assert four_times < 4.2 * once


def hub(size: int) -> tuple[Topology, list[int]]:
    """A name with `size` successors, then as many predecessors; and how many names were looked at for each of those."""
    topology = Topology()
    looked_at: list[int] = []
    topology.add("hub")
    for name in range(size):
        topology.add(f"after {name}")
        topology.connect("hub", f"after {name}")
    for name in range(size):
        topology.add(f"before {name}")
        looked_at.append(_looks(topology, f"before {name}", "hub"))
    return topology, looked_at


def _looks(topology: Topology, before: str, after: str) -> int:
    class Counting(dict):  # type: ignore[type-arg]
        looks = 0

        def __iter__(self) -> Any:
            for key in super().__iter__():
                Counting.looks += 1
                yield key

    edges = topology._after  # counted where it is read, as no public name shows what a change costs
    plain = edges["hub"]
    edges["hub"] = Counting(plain)
    topology.connect(before, after)
    edges["hub"] = plain
    return Counting.looks


def test_an_edge_into_a_hub_does_not_look_at_all_that_the_hub_feeds() -> None:
    assert max(hub(50)[1]) <= 2

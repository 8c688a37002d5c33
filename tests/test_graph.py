"""The graph a user holds: declared, refused, read back, copied, large."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from somatize import Graph, Node, node
from somatize import graph as graph_module
from somatize.errors import BadDevice, CycleError, GraphError, NameTaken, NotANode, UnknownNode


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


class Add(Node):
    def __init__(self, more: int = 1) -> None:
        self.more = more

    def forward(self, value: Any, ctx: Any) -> Any:
        return value + self.more


class Norm(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return ctx.node


def diamond() -> Graph:
    return Graph.somatize(Pass().named("a") >> (Pass().named("b") | Pass().named("c")) >> Pass().named("d"))


def state(graph: Graph) -> Any:
    names = graph.nodes()
    read = (graph.nodes, graph.edges, graph.roots, graph.leaves, graph.topological_sort, graph.plan, graph.__repr__)
    marks = (graph.hosts, graph.devices, graph.cached, graph.frozen, graph.mapped_nodes)
    return (
        [method() for method in (*read, *marks)],
        [(graph.predecessors(id), graph.successors(id), graph.implementation(id)) for id in names],
    )


# Reading back


def test_a_graph_is_read_back() -> None:
    graph = diamond()
    assert graph.nodes() == ["a", "b", "c", "d"]
    assert graph.edges() == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    assert graph.roots() == ["a"]
    assert graph.leaves() == ["d"]
    assert graph.predecessors("d") == ["b", "c"]
    assert graph.successors("a") == ["b", "c"]
    assert graph.topological_sort() == ["a", "b", "c", "d"]
    assert len(graph) == 4
    assert "a" in graph
    assert "z" not in graph
    assert 3 not in graph
    assert list(graph) == graph.nodes()


def test_the_implementation_is_the_object_declared() -> None:
    add, function = Add(3), (lambda x: x)
    graph = Graph.somatize(add >> function)
    assert graph.implementation("add") is add
    assert graph.implementation("lambda") is function


@pytest.mark.parametrize("asked", ["predecessors", "successors", "implementation"])
def test_an_unknown_id_is_refused_with_the_nearest(asked: str) -> None:
    graph = Graph.somatize(Pass().named("tokenize"))
    with pytest.raises(UnknownNode) as refused:
        getattr(graph, asked)("tokenise")
    assert str(refused.value) == "no node is called 'tokenise'; did you mean 'tokenize'?"
    assert isinstance(refused.value, KeyError)


def test_an_empty_graph_is_a_graph() -> None:
    graph = Graph()
    assert graph
    assert len(graph) == 0
    assert (graph.nodes(), graph.edges(), graph.roots(), graph.leaves(), graph.topological_sort()) == (
        [],
        [],
        [],
        [],
        [],
    )
    assert len(graph.plan()) == 0
    assert repr(graph) == "Graph(empty: forward returns its input)"


def test_the_repr_says_what_feeds_what() -> None:
    graph = diamond()
    assert repr(graph) == "Graph(4 nodes, 4 edges: a -> b, c; b -> d; c -> d)"
    assert repr(Graph.somatize(Pass().named("a"))) == "Graph(1 node, 0 edges: a)"
    graph.node("alone", Pass())
    assert repr(graph) == "Graph(5 nodes, 4 edges: a -> b, c; b -> d; c -> d; alone)"


# Ids


def test_default_ids_are_snake_case_and_ties_are_counted() -> None:
    class HTTPServer2(Pass): ...

    graph = Graph.somatize(HTTPServer2() >> HTTPServer2() >> (lambda x: x) >> (lambda x: x) >> HTTPServer2())
    assert graph.nodes() == ["http_server2", "http_server2_2", "lambda", "lambda_2", "http_server2_3"]
    assert graph.node(HTTPServer2()) == "http_server2_4"


def test_no_default_takes_an_id_that_was_given_wherever_it_stands() -> None:
    graph = Graph.somatize(Norm() >> Norm() >> Norm().named("norm_2") >> Pass().named("norm"))
    assert graph.nodes() == ["norm_3", "norm_4", "norm_2", "norm"]
    graph.node("norm_5", Pass())
    assert graph.node(Norm()) == "norm_6"


def test_the_same_function_several_times_is_as_many_nodes_with_stable_names() -> None:
    """C036: five nodes after load, links right, the same names every time."""

    def load(x: Any) -> Any:
        return x

    norm = node(lambda x, ctx: [ctx.node, x])
    graphs = [Graph.somatize(node(load) >> (norm | norm) >> (lambda t: t) >> (lambda t: t) >> norm) for _ in range(2)]
    assert graphs[0].nodes() == ["load", "lambda", "lambda_2", "lambda_3", "lambda_4", "lambda_5"]
    assert graphs[0].plan() == graphs[1].plan()
    assert graphs[0].edges()[:4] == [
        ("load", "lambda"),
        ("load", "lambda_2"),
        ("lambda", "lambda_3"),
        ("lambda_2", "lambda_3"),
    ]
    assert graphs[0].forward(1) == ["lambda_5", {"lambda": ["lambda", 1], "lambda_2": ["lambda_2", 1]}]


def test_classes_of_one_name_from_two_places_are_kept_apart() -> None:
    def made(tag: str) -> Any:
        class Same(Node):
            def forward(self, value: Any, ctx: Any) -> Any:
                return [*value, (tag, ctx.node)]

        return Same()

    seen: list[dict[str, str]] = []
    assert Graph.somatize(made("left") >> made("right")).forward([], watching=seen.append) == [
        ("left", "same"),
        ("right", "same_2"),
    ]
    assert [fact.get("node") for fact in seen] == ["same", "same_2", None]


@pytest.mark.parametrize("id", ["fact", "node", "took_us", "ran", "a b", "é", "x/y", "1", "__class__", "\n"])
def test_a_node_may_be_called_anything(id: str) -> None:
    seen: list[dict[str, str]] = []
    graph = Graph.somatize(Pass().named(id) | Norm())
    assert graph.forward(1, watching=seen.append) == {id: 1, "norm": "norm"}
    assert seen[0]["node"] == id


# Two ways to the same graph


def test_an_expression_and_nodes_with_edges_make_the_same_graph() -> None:
    a, b, c, d = Add(1), Add(2), Add(3), Pass()
    first = Graph.somatize(a >> (b.on("cpu") | c.named("third")) >> d)
    second = Graph()
    for thing in (a, b.on("cpu")):
        second.node(thing)
    second.node("third", c)
    assert second.node(d) == "pass"
    for before, after in first.edges():
        second.edge(before, after)
    assert state(second) == state(first)
    assert first.forward(1) == second.forward(1) == {"add_2": 4, "third": 5}


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20))
def test_any_graph_built_by_edges_is_itself_again_from_its_own_edges(pairs: list[tuple[int, int]]) -> None:
    graph = Graph()
    for id in range(9):
        graph.node(str(id), Pass())
    for before, after in pairs:
        was = graph.edges()
        try:
            graph.edge(str(before), str(after))
        except GraphError:
            assert graph.edges() == was
    again = Graph()
    for id in graph.nodes():
        again.node(id, graph.implementation(id))
    for id in graph.nodes():
        for before in graph.predecessors(id):
            again.edge(before, id)
    assert again.topological_sort() == graph.topological_sort()
    assert again.plan().steps == graph.plan().steps
    assert again.forward(1) == graph.forward(1)


def test_a_graph_goes_on_after_an_expression() -> None:
    graph = Graph.somatize(Add(1) >> Add(2))
    last = graph.node("last", Add(10))
    graph.edge("add_2", last)
    assert graph.forward(0) == 13


# What is refused leaves the graph as it was


class Empty(Node): ...


class Awaited(Node):
    async def forward(self, value: Any, ctx: Any) -> Any:
        return value


REFUSALS: dict[str, tuple[Callable[[Graph], Any], type[Exception], str]] = {
    "a taken id": (lambda g: g.node("a", Pass()), NameTaken, "the id 'a' is taken"),
    "a taken id by suffix": (lambda g: g.node(Pass().named("b")), NameTaken, "the id 'b' is taken"),
    "two names": (lambda g: g.node("x", Pass().named("y")), GraphError, "a piece that is named 'y'; name it once"),
    "an unknown start": (lambda g: g.edge("zz", "a"), UnknownNode, "no node is called 'zz'"),
    "an unknown end": (lambda g: g.edge("a", "dd"), UnknownNode, "did you mean 'd'"),
    "an object for an id": (lambda g: g.edge(Pass(), "a"), UnknownNode, "an edge is declared between ids"),
    "a cycle": (lambda g: g.edge("d", "a"), CycleError, "d -> a -> b -> d"),
    "a loop": (lambda g: g.edge("a", "a"), CycleError, "a -> a"),
    "a repeated edge": (lambda g: g.edge("a", "b"), GraphError, "'a' -> 'b' is there already"),
    "a class": (lambda g: g.node(Pass), NotANode, "a node needs an instance"),
    "a class with an id": (lambda g: g.node("x", Pass), NotANode, "a node needs an instance"),
    "no forward": (lambda g: g.node(object()), NotANode, "has no `forward`"),
    "a node without forward": (lambda g: g.node("x", Empty()), NotANode, "has no `forward`"),
    "an async forward": (lambda g: g.node(Awaited()), NotANode, "is async"),
    "an async forward, placed": (lambda g: g.node("x", Awaited().on("cpu")), NotANode, "is async"),
    "a bad device": (lambda g: g.node(Pass().on("gpu")), BadDevice, "names no device"),
    "several nodes": (lambda g: g.node(Pass() >> Pass()), GraphError, "this piece has 2; use Graph.somatize"),
    "several nodes with an id": (lambda g: g.node("x", Pass() | Pass()), GraphError, "name them one by one"),
    "nothing": (lambda g: g.node(), GraphError, "0 things were given"),
    "too much": (lambda g: g.node("x", Pass(), Pass()), GraphError, "3 things were given"),
    "an empty id": (lambda g: g.node("", Pass()), GraphError, "an id is a text that is not empty"),
    "an id that is no text": (lambda g: g.node(3, Pass()), GraphError, "an id is a text"),
    "the wrong way round": (lambda g: g.node(Pass(), "x"), GraphError, "."),
}


@pytest.mark.parametrize(("attempt", "kind", "words"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_refused_leaves_the_graph_unchanged(attempt: Any, kind: type[Exception], words: str) -> None:
    graph = diamond()
    was, plan = state(graph), graph.plan()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(kind, match=words):
            attempt(graph)
    assert caught == []
    assert state(graph) == was
    assert graph.plan() is plan  # nothing changed, so nothing is compiled again
    assert graph.forward(1) == {"b": 1, "c": 1}
    assert graph.node(Pass()) == "pass"  # and no default id was used up


def test_an_expression_with_an_id_twice_is_refused() -> None:
    with pytest.raises(NameTaken, match="the id 'x' is taken; an id names one node"):
        Graph.somatize(Pass().named("x") >> (Pass() | Pass().named("x")))


# The plan is compiled once


def test_the_plan_is_compiled_once_and_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []
    real = graph_module.compiled

    def counting(*args: Any) -> Any:
        compiled.append(1)
        return real(*args)

    # How often it is compiled shows nowhere else.
    monkeypatch.setattr(graph_module, "compiled", counting)
    graph = diamond()
    assert compiled == []
    for _ in range(3):
        graph.forward(1)
        graph.forward(1, watching=[].append, threads=2)
        assert graph.plan() is graph.plan()
    assert len(compiled) == 1
    graph.node("e", Pass())
    assert graph.forward(1) == {"d": {"b": 1, "c": 1}, "e": 1}
    assert len(compiled) == 2
    graph.edge("d", "e")
    assert graph.forward(1) == {"b": 1, "c": 1}
    assert graph.plan().steps[-1].node == "e"
    assert len(compiled) == 3


# Copies


COPIES = {
    "pickle": lambda graph: pickle.loads(pickle.dumps(graph)),
    "cloudpickle": lambda graph: cloudpickle.loads(cloudpickle.dumps(graph)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("ran", [True, False])
def test_a_copy_is_the_same_graph_and_goes_its_own_way(copied: Any, ran: bool) -> None:
    graph = Graph.somatize(Add(1).on("cpu") >> (Add(2).named("two") | Add(3)))
    if ran:
        graph.forward(1)
    was = graph.plan()
    there = copied(graph)
    assert there.plan() == was
    assert there.forward(1) == {"two": 4, "add_2": 5}
    there.edge("two", there.node("more", Add(10)))
    assert there.node(Add()) == "add_3"
    assert there.forward(1) == {"add_2": 5, "more": 14, "add_3": 2}
    assert graph.plan() == was
    assert graph.forward(1) == {"two": 4, "add_2": 5}
    assert graph.node(Add()) == "add_3"


class Described(Graph):
    def __init__(self, about: str) -> None:
        super().__init__()
        self.about = about


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_subclass_has_what_that_holds_and_needs_no_constructor(copied: Any) -> None:
    graph = Described("two adders")
    graph.edge(graph.node("a", Add(1)), graph.node("b", Add(2)))
    there = copied(graph)
    assert type(there) is Described
    assert there.about == "two adders"
    assert there.forward(1) == 4
    there.node("c", Add(3))
    assert graph.nodes() == ["a", "b"]


def test_cloudpickle_takes_functions_of_this_place() -> None:
    more = 5
    graph = Graph.somatize((lambda x: x + more) >> Pass())
    assert cloudpickle.loads(cloudpickle.dumps(graph)).forward(1) == 6


def test_a_thing_in_two_nodes_is_one_thing_in_the_copy() -> None:
    shared = Add(1)
    there = copy.deepcopy(Graph.somatize(shared >> shared))
    assert there.implementation("add") is there.implementation("add_2")
    assert there.implementation("add") is not shared

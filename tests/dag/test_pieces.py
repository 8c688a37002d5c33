"""Suffixes, operators, and what they leave as it is."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
import torch

from somatize import Graph, Node, Piece, node
from somatize.dag.pieces import Cached, Frozen, Mapped, unfold
from somatize.errors import BadDevice, GraphError, NotANode


class Step(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


def step(id: str) -> Piece:
    return Step().named(id)


def test_a_decorated_function_is_a_piece_that_can_still_be_called() -> None:
    @node
    def double(x: int) -> int:
        return 2 * x

    assert isinstance(double, Piece)
    assert double(4) == 8
    assert double.named("twice").on("cpu")(5) == 10
    assert Graph.somatize(double >> double).forward(1) == 4
    assert node(double) is double


def test_node_takes_any_object_with_a_forward_and_either_arity() -> None:
    class One:
        def forward(self, x: Any) -> Any:
            return ("one", x)

    class Two:
        def forward(self, x: Any, ctx: Any) -> Any:
            return (ctx.node, x)

    assert Graph.somatize(node(One()) >> node(Two())).forward(0) == ("two", ("one", 0))
    assert Graph.somatize(node(lambda x, ctx: (ctx.node, x))).forward(0) == ("lambda", 0)


def test_functions_and_objects_join_an_expression_from_either_side() -> None:
    graph = Graph.somatize((lambda x: x + 1) >> step("a") >> (lambda x: x * 2))
    assert graph.forward(3) == 8
    graph = Graph.somatize(abs | step("b") | len)
    assert graph.roots() == ["abs", "b", "len"]
    assert graph.leaves() == ["abs", "b", "len"]


SUFFIXES: dict[str, Any] = {
    "named": lambda piece: piece.named("n"),
    "on": lambda piece: piece.on("cpu"),
    "at": lambda piece: piece.at("w1"),
    "frozen": lambda piece: piece.frozen("s"),
    "cached": lambda piece: piece.cached("v2"),
    "mapped": lambda piece: piece.mapped(8),
}


@pytest.mark.parametrize("suffix", SUFFIXES.values(), ids=SUFFIXES)
def test_a_suffix_returns_a_new_piece_and_changes_nothing(suffix: Any) -> None:
    before = Step()
    forward, attributes = before.forward, dict(vars(before))
    after = suffix(before)
    assert isinstance(after, Piece)
    assert after is not before
    assert before.forward == forward
    assert vars(before) == attributes
    assert Graph.somatize(before).plan() == Graph.somatize(Step()).plan()
    (declared,) = unfold(after)[0]
    assert declared[0].thing is before


def test_suffixes_are_read_back() -> None:
    graph = Graph.somatize(
        step("a").on("cuda:1") >> step("b").at("w1") >> step("c").frozen() >> step("d").cached() >> step("e").mapped()
    )
    graph.node("f", Step().frozen("ckpt").cached("v2").mapped(batch=4).on("cpu").at("w2"))
    assert graph.devices() == {"a": "cuda:1", "f": "cpu"}
    assert graph.hosts() == {"b": "w1", "f": "w2"}
    assert graph.frozen() == {"c": Frozen(None), "f": Frozen("ckpt")}
    assert graph.cached() == {"d": Cached(None), "f": Cached("v2")}
    assert graph.mapped_nodes() == {"e": Mapped(None), "f": Mapped(4)}


def test_the_order_of_suffixes_does_not_matter() -> None:
    plans = {
        Graph.somatize(piece).plan()
        for suffixes in itertools.permutations(SUFFIXES.values())
        for piece in [_with(Step(), suffixes)]
    }
    assert len(plans) == 1


def _with(piece: Any, suffixes: Any) -> Piece:
    for suffix in suffixes:
        piece = suffix(piece)
    return piece


def test_the_innermost_suffix_wins() -> None:
    assert Graph.somatize(step("a").on("cpu").on("cuda")).devices() == {"a": "cpu"}
    assert Graph.somatize(step("a").cached("in").cached("out")).cached() == {"a": Cached("in")}
    graph = Graph.somatize(((step("a").on("cpu") >> step("b")).on("meta") >> step("c")).on("cuda"))
    assert graph.devices() == {"a": "cpu", "b": "meta", "c": "cuda"}
    assert Graph.somatize(Step().named("inner").named("outer")).nodes() == ["inner"]


@pytest.mark.parametrize("join", [operator.rshift, operator.or_])
def test_a_suffix_works_on_a_whole_piece(join: Any) -> None:
    graph = Graph.somatize(join(step("a"), step("b")).on("cpu").at("w").frozen("s").cached("v").mapped(2))
    assert graph.devices() == {"a": "cpu", "b": "cpu"}
    assert graph.hosts() == {"a": "w", "b": "w"}
    assert graph.frozen() == {"a": Frozen("s"), "b": Frozen("s")}
    assert graph.cached() == {"a": Cached("v"), "b": Cached("v")}
    assert graph.mapped_nodes() == {"a": Mapped(2), "b": Mapped(2)}


def test_a_piece_used_twice_is_two_nodes_and_its_marks_stay_its_own() -> None:
    shared = Step()
    graph = Graph.somatize(shared.on("cpu") >> shared >> shared.at("w"))
    assert graph.nodes() == ["step", "step_2", "step_3"]
    assert graph.devices() == {"step": "cpu"}
    assert graph.hosts() == {"step_3": "w"}
    assert {id(graph.implementation(name)) for name in graph.nodes()} == {id(shared)}


def test_a_name_is_for_one_node() -> None:
    for several in (Step() >> Step(), (Step() | Step()).on("cpu")):
        with pytest.raises(GraphError, match="the id 'ab' is for one node, and this piece has several"):
            several.named("ab")


@pytest.mark.parametrize("wrong", ["", None, 3, b"a", "\udcff"])
def test_an_id_a_host_a_state_and_a_salt_are_texts(wrong: Any) -> None:
    suffixes = [Step().named, Step().at, *([] if wrong is None else [Step().frozen, Step().cached])]
    for suffix in suffixes:
        with pytest.raises(GraphError, match="is a text that"):
            suffix(wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "4"])
def test_a_batch_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(GraphError, match="a batch is a whole number of items, 1 or more"):
        Step().mapped(wrong)


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:0", "cuda:1", "cuda:15", "mps", "meta", "xpu:0", "cpu:0"])
def test_a_device_that_torch_knows_is_taken(name: str) -> None:
    assert Graph.somatize(step("a").on(name)).devices() == {"a": name}
    assert torch.device(name)


def test_a_torch_device_is_taken_as_its_name() -> None:
    assert Graph.somatize(step("a").on(torch.device("cuda", 1))).devices() == {"a": "cuda:1"}


@pytest.mark.parametrize(
    "wrong",
    ["gpu", "", "CPU", "cuda:", "cuda:-1", "cuda:x", "cuda:01", "cuda 1", "cpu\n", " cpu", "cuda:1:2", 0, None, b"cpu"],
)
def test_a_name_that_names_no_device_is_refused(wrong: Any) -> None:
    with pytest.raises(BadDevice, match="names no device; a device is 'cpu', 'cuda'"):
        Step().on(wrong)


def test_an_operator_refuses_what_cannot_be_a_node() -> None:
    for join in (operator.rshift, operator.or_):
        with pytest.raises(NotANode, match="an instance"):
            join(Step(), Step)
        with pytest.raises(NotANode, match="has no `forward`"):
            join(3, Step())


def test_unfolding_gives_nodes_left_to_right_and_edges_as_declared() -> None:
    a, b, c, d = (step(id) for id in "abcd")
    nodes, edges = unfold(a >> (b | c) >> d)
    assert [marks.id for _, marks in nodes] == ["a", "b", "c", "d"]
    assert edges == [(0, 1), (0, 2), (1, 3), (2, 3)]
    _, edges = unfold((a | b) >> (c | d))
    assert edges == [(0, 2), (1, 2), (0, 3), (1, 3)]


def test_nested_forks_and_chains_keep_their_roots_and_leaves() -> None:
    a, b, c, d, e = (step(id) for id in "abcde")
    graph = Graph.somatize(((a >> b) | (c | d)) >> e)
    assert graph.roots() == ["a", "c", "d"]
    assert graph.predecessors("e") == ["b", "c", "d"]
    graph = Graph.somatize(a >> ((b >> c) | d))
    assert graph.leaves() == ["c", "d"]
    assert graph.successors("a") == ["b", "d"]


def test_brackets_do_not_change_the_graph() -> None:
    a, b, c, d = (step(id) for id in "abcd")
    left, right = Graph.somatize(((a >> b) >> c) >> d), Graph.somatize(a >> (b >> (c >> d)))
    assert left.plan() == right.plan()
    assert Graph.somatize((a | b) | (c | d)).plan() == Graph.somatize(a | (b | (c | d))).plan()

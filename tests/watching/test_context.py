"""`ctx`: what a node is told beside its input, and what it can say."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from somatize import Ctx, Graph, node
from somatize.errors import FactError, FactWarning
from somatize.facts import KINDS
from somatize.watching.context import QUIET
from tests.small_graphs import Facts, Pass, one, said


def test_ctx_names_the_node_and_what_on_said() -> None:
    def asked(value: Any, ctx: Any) -> Any:
        return ctx.node, ctx.device

    graph = Graph.somatize(node(asked).named("a").on("cuda:1") | node(asked).named("b"))
    assert graph.forward() == {"a": ("a", "cuda:1"), "b": ("b", None)}


def test_a_ctx_made_by_hand_is_watched_by_nobody() -> None:
    ctx = Ctx("a", "cpu")
    assert (ctx.node, ctx.device, ctx.status) == ("a", "cpu", QUIET)
    assert repr(ctx) == "Ctx(node='a', device='cpu')"
    ctx.tell({"fact": "loss", "value": object()})
    ctx.progress(1, 2)
    assert Pass().forward(3, ctx) == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_node_says_is_stamped_and_told_in_order_before_its_ran(threads: int) -> None:
    def forward(value: Any, ctx: Any) -> Any:
        for step in range(3):
            ctx.tell({"fact": "loss", "value": step, "node": "not mine"})
        return value

    seen: Facts = []
    other: Facts = []
    graph = Graph.somatize(Pass().named("first") >> node(forward).named("a") >> Pass().named("last"))
    graph.forward(watching=[seen.append, other.append], threads=threads)
    assert seen[1:4] == [{"fact": "loss", "value": str(step), "node": "a"} for step in range(3)]
    assert said(seen) == [("ran", "first"), *[("loss", "a")] * 3, ("ran", "a"), ("ran", "last"), ("finished", None)]
    assert other == seen


def test_what_a_node_said_stands_before_its_failure() -> None:
    def forward(value: Any, ctx: Any) -> Any:
        ctx.tell({"fact": "loss", "value": float("nan")})
        raise ValueError("no")

    seen: Facts = []
    with pytest.raises(ValueError, match="no"):
        one(forward).forward(watching=seen.append)
    assert said(seen) == [("loss", "a"), ("failed", "a"), ("broke", None)]


@pytest.mark.parametrize("threads", [1, 2])
def test_with_nobody_watching_it_does_nothing(threads: int) -> None:
    class Untouchable:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    def forward(value: Any, ctx: Any) -> Any:
        ctx.tell({"fact": "loss", "value": Untouchable()})
        ctx.progress(1)
        return ctx.status

    assert one(forward).forward(threads=threads) is QUIET


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_eight_kinds_are_the_engine_s_alone(kind: str, watched: bool) -> None:
    seen: Facts = []
    with pytest.raises(FactError, match=rf"'{kind}' is told by the engine alone; node 'a' has other kinds"):
        one(lambda value, ctx: ctx.tell({"fact": kind})).forward(watching=seen.append if watched else None)
    assert said(seen) == ([("failed", "a"), ("broke", None)] if watched else [])


@pytest.mark.parametrize("wrong", [{}, {"fact": None}, {"fact": []}, {"fact": {}}, {"fact": 3}, "loss", ["fact"], None])
def test_what_is_no_fact_is_refused(wrong: Any) -> None:
    with pytest.raises(FactError, match=r"a fact (needs a kind|is a dict with its kind)"):
        one(lambda value, ctx: ctx.tell(wrong)).forward(watching=[].append)


def test_what_no_fact_can_carry_is_marked_with_one_warning() -> None:
    seen: Facts = []
    with pytest.warns(FactWarning, match="'weights' was given <Tensor shape=") as warned:
        one(lambda value, ctx: ctx.tell({"fact": "w", "weights": torch.zeros(3), "n": 1})).forward(watching=seen.append)
    assert len(warned) == 1
    assert seen[0] == {"fact": "w", "weights": "<Tensor shape=(3,) dtype=torch.float32>", "n": "1", "node": "a"}


def test_a_fact_does_not_keep_a_tensor_s_graph_alive() -> None:
    alive: list[weakref.ref[Any]] = []

    def train(x: torch.Tensor, ctx: Any) -> None:
        weights = torch.ones(3, requires_grad=True)
        loss = (weights * x).pow(2).mean()
        alive.append(weakref.ref(weights))
        alive.append(weakref.ref(loss))
        ctx.tell({"fact": "loss", "value": loss, "half": loss.bfloat16().reshape(1, 1)})

    seen: Facts = []
    for _ in range(3):
        one(train).forward(torch.ones(3), watching=[seen.append, seen.append])
    gc.collect()
    assert [reference() for reference in alive] == [None] * 6
    assert seen[0] == {"fact": "loss", "value": "1.0", "half": "1.0", "node": "a"}


# Graphs within graphs


def test_a_node_speaks_to_its_own_forward_also_after_it_ran_another() -> None:
    inner_seen: Facts = []
    outer_seen: Facts = []
    inner = Graph.somatize(node(lambda value, ctx: ctx.tell({"fact": "in"})).named("i"))

    def outer_node(value: Any, ctx: Any) -> Any:
        ctx.tell({"fact": "before"})
        inner.forward(watching=inner_seen.append)
        ctx.tell({"fact": "after"})

    one(outer_node).forward(watching=outer_seen.append)
    assert said(inner_seen) == [("in", "i"), ("ran", "i"), ("finished", None)]
    assert said(outer_seen) == [("before", "a"), ("after", "a"), ("ran", "a"), ("finished", None)]


def test_an_unwatched_forward_inside_a_watched_one_is_not_heard() -> None:
    seen: Facts = []
    inner = Graph.somatize(node(lambda value, ctx: ctx.tell({"fact": "in"})).named("i"))
    one(lambda value, ctx: inner.forward()).forward(watching=seen.append)
    assert said(seen) == [("ran", "a"), ("finished", None)]


def test_a_graph_inside_itself_keeps_its_levels_apart() -> None:
    seen: dict[int, Facts] = {depth: [] for depth in range(4)}

    def recurse(depth: int, ctx: Any) -> int:
        ctx.tell({"fact": "in", "depth": depth})
        total = graph.forward(depth + 1, watching=seen[depth + 1].append) + 1 if depth < 3 else 0
        ctx.tell({"fact": "out", "depth": depth})
        return total

    graph = one(recurse)
    assert graph.forward(0, watching=seen[0].append) == 3
    for depth, facts in seen.items():
        assert said(facts) == [("in", "a"), ("out", "a"), ("ran", "a"), ("finished", None)]
        assert [fact["depth"] for fact in facts[:2]] == [str(depth)] * 2


def test_the_outer_ctx_speaks_from_inside_a_forward_it_encloses() -> None:
    seen: Facts = []

    def outer_node(value: Any, ctx: Any) -> Any:
        return Graph.somatize(lambda inner: ctx.tell({"fact": "through"})).forward(watching=[].append)

    one(outer_node).forward(watching=seen.append)
    assert said(seen) == [("through", "a"), ("ran", "a"), ("finished", None)]


def test_status_is_that_of_the_first_watcher_with_one() -> None:
    class Watcher:
        def __init__(self, status: Any) -> None:
            self.status = status

        def opens(self, graph: Any) -> Any:
            return self

        def tell(self, fact: dict[str, str]) -> None: ...

    mine, other = object(), object()
    graph = one(lambda value, ctx: ctx.status)
    assert graph.forward(watching=[[].append, Watcher(None), Watcher(mine), Watcher(other)]) is mine
    assert graph.forward(watching=[].append) is QUIET
    assert graph.forward() is QUIET

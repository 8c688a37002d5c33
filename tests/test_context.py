"""`ctx`: what a node is told beside its input, and what it can say."""

from __future__ import annotations

import contextvars
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from somatize import Ctx, Graph, Node, node
from somatize.errors import FactError, FactWarning
from somatize.facts import KINDS
from somatize.quiet import QUIET

Facts = list[dict[str, str]]


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


def said(facts: Facts) -> list[tuple[str, str | None]]:
    return [(fact["fact"], fact.get("node")) for fact in facts]


def one(forward: Any) -> Graph:
    return Graph.somatize(node(forward).named("a"))


def in_thread(call: Any) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(20)


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


# Threads that node code starts


def starts(how: Any, joined: Any = in_thread) -> Any:
    def forward(value: Any, ctx: Any) -> Any:
        joined(how(lambda: ctx.tell({"fact": "loss", "value": 1})))
        return value

    return forward


def with_context(call: Any) -> Any:
    context = contextvars.copy_context()
    return lambda: context.run(call)


def without_context(call: Any) -> Any:
    return call


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("how", [with_context, without_context])
def test_a_thread_a_node_started_is_heard_before_the_node_s_ran(how: Any, threads: int) -> None:
    seen: Facts = []
    graph = Graph.somatize(node(starts(how)).named("a") >> (node(starts(how)).named("b") | Pass().named("c")))
    graph.forward(watching=seen.append, threads=threads)
    assert [fact for fact in seen if fact["fact"] == "loss"] == [
        {"fact": "loss", "value": "1", "node": "a"},
        {"fact": "loss", "value": "1", "node": "b"},
    ]
    order = said(seen)
    assert order.index(("loss", "a")) < order.index(("ran", "a"))
    assert order.index(("loss", "b")) < order.index(("ran", "b"))
    assert order[-1] == ("finished", None)


def test_a_pool_whose_threads_have_no_context_is_heard() -> None:
    seen: Facts = []
    with ThreadPoolExecutor(4) as pool:

        def forward(value: Any, ctx: Any) -> Any:
            return list(pool.map(lambda n: ctx.tell({"fact": "item", "n": n}), range(20)))

        one(forward).forward(watching=seen.append)
    assert sorted(int(fact["n"]) for fact in seen[:-2]) == list(range(20))
    assert said(seen[-2:]) == [("ran", "a"), ("finished", None)]


def test_a_thread_without_context_is_not_heard_where_it_could_be_meant_for_two_forwards() -> None:
    inside, told = threading.Barrier(2), threading.Barrier(2)
    seen: Facts = []

    def forward(value: Any, ctx: Any) -> Any:
        inside.wait(10)
        in_thread(lambda: ctx.tell({"fact": "whose"}))
        told.wait(10)
        return value

    graph = one(forward)
    other = threading.Thread(target=lambda: graph.forward(watching=seen.append))
    other.start()
    graph.forward(watching=seen.append)
    other.join(10)
    assert sorted(fact["fact"] for fact in seen) == ["finished", "finished", "ran", "ran"]


class Lingering(Node):
    """Starts a thread that speaks when it is let, and has spoken when `spoken` is set."""

    def __init__(self, how: Any) -> None:
        self.how = how
        self.go, self.spoken = threading.Event(), threading.Event()
        self.thread: Any = None

    def forward(self, value: Any, ctx: Any) -> Any:
        def speak() -> None:
            self.go.wait(10)
            ctx.tell({"fact": "late", "value": 1})
            ctx.progress(1, 2)
            self.spoken.set()

        self.thread = threading.Thread(target=self.how(speak))
        self.thread.start()
        return value

    def let(self, _: Any = None) -> None:
        self.go.set()
        assert self.spoken.wait(10)
        self.thread.join(10)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("how", [with_context, without_context])
def test_what_is_said_after_the_node_ended_is_told_before_the_engine_s_next_fact(how: Any, threads: int) -> None:
    lingering = Lingering(how)
    seen: Facts = []
    graph = Graph.somatize(lingering.named("a") >> node(lingering.let).named("b"))
    graph.forward(watching=seen.append, threads=threads)
    assert said(seen) == [("ran", "a"), ("late", "a"), ("ran", "b"), ("finished", None)]


def test_what_is_said_after_the_last_node_ended_is_told_before_finished() -> None:
    lingering = Lingering(with_context)
    seen: Facts = []

    def watch(fact: dict[str, str]) -> None:
        seen.append(fact)
        if said([fact]) == [("ran", "a")]:
            lingering.go.set()
            assert lingering.spoken.wait(10)

    Graph.somatize(lingering.named("a")).forward(watching=watch)
    lingering.thread.join(10)
    assert said(seen) == [("ran", "a"), ("late", "a"), ("finished", None)]


def test_what_is_said_after_the_forward_ended_is_told_to_nobody_and_warned_about(capsys: Any) -> None:
    lingering = Lingering(with_context)
    seen: Facts = []
    Graph.somatize(lingering.named("a")).forward(watching=seen.append)
    with pytest.warns(FactWarning, match="node 'a' said 'late' after its forward had ended; nobody was told"):
        lingering.let()
    assert said(seen) == [("ran", "a"), ("finished", None)]


def test_a_thread_without_context_says_nothing_once_its_forward_ended() -> None:
    lingering = Lingering(without_context)
    seen: Facts = []
    Graph.somatize(lingering.named("a")).forward(watching=seen.append)
    lingering.let()
    assert said(seen) == [("ran", "a"), ("finished", None)]


class Alone:
    """A watcher that is inside for a while, and keeps what came in meanwhile."""

    def __init__(self) -> None:
        self.inside = threading.Lock()
        self.clashes: list[str] = []
        self.calls: list[str] = []

    def opens(self, graph: Any) -> Any:
        return self

    def enter(self, what: str) -> None:
        self.calls.append(what)
        if not self.inside.acquire(blocking=False):
            self.clashes.append(what)
            return
        for _ in range(50):  # long enough for another to come in, if it could
            threading.get_native_id()
        self.inside.release()

    def tell(self, fact: dict[str, str]) -> None:
        self.enter("tell")

    def entering(self, node: str, host: Any = None) -> None:
        self.enter("entering")

    def progress(self, node: str, done: int, total: Any) -> None:
        self.enter("progress")


@pytest.mark.parametrize("threads", [1, 4])
def test_a_watcher_is_never_called_by_two_threads_at_once(threads: int) -> None:
    """Four nodes, each with four threads, all speak at once."""

    def speaks(value: Any, ctx: Any) -> Any:
        ready = threading.Barrier(4)

        def speak() -> None:
            ready.wait(10)
            for n in range(25):
                ctx.tell({"fact": "item", "n": n})
                ctx.progress(n, 25)

        pool = [threading.Thread(target=with_context(speak)) for _ in range(4)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join(20)
        return value

    graph, watcher = Graph(), Alone()
    for number in range(4):
        graph.node(f"n{number}", speaks)
    graph.forward(watching=watcher, threads=threads)
    assert watcher.clashes == []
    assert [watcher.calls.count(what) for what in ("tell", "progress", "entering")] == [405, 400, 4]


def test_progress_holds_the_others_out_while_it_is_told() -> None:
    """A sink that is inside `progress` is told nothing by another branch until it is out."""
    inside, out = threading.Event(), threading.Event()
    order: list[str] = []

    class Slow:
        def opens(self, graph: Any) -> Any:
            return self

        def tell(self, fact: dict[str, str]) -> None:
            order.append(fact["fact"])

        def progress(self, node: str, done: int, total: Any) -> None:
            inside.set()
            out.wait(0.2)  # the other has time to come in, if it may
            order.append("progress")

    def other(value: Any, ctx: Any) -> None:
        assert inside.wait(10)
        ctx.tell({"fact": "said"})
        out.set()

    graph = Graph.somatize(node(lambda value, ctx: ctx.progress(1)).named("a") | node(other).named("b"))
    graph.forward(watching=Slow(), threads=2)
    assert order[0] == "progress"
    assert "said" in order


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

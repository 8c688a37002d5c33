"""What node code says from threads of its own: heard, in order, and by one thread at a time."""

from __future__ import annotations

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from somatize import Graph, Node, node
from somatize.errors import FactWarning
from tests.small_graphs import Facts, Pass, in_thread, one, said

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


@pytest.mark.parametrize("threads", [1, 2])
def test_how_far_a_node_was_that_has_ended_is_shown_to_nobody(threads: int) -> None:
    calls: list[str] = []

    class Watcher:
        def opens(self, graph: Any) -> Any:
            return self

        def tell(self, fact: dict[str, str]) -> None:
            calls.append(fact["fact"])

        def progress(self, node: str, done: int, total: Any) -> None:
            calls.append("progress")

    lingering = Lingering(with_context)
    Graph.somatize(lingering.named("a") >> node(lingering.let).named("b")).forward(watching=Watcher(), threads=threads)
    assert calls == ["ran", "late", "ran", "finished"]

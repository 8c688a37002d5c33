"""`threads=N`: branches at the same time. Nothing here sleeps to be in time: barriers and events say what happened."""

from __future__ import annotations

import contextvars
import functools
import gc
import operator
import threading
import time
import weakref
from typing import Any

import pytest
import torch

from somatize import Graph, Node, node
from somatize.engine import scheduler
from tests.small_graphs import Facts, Pass, fan, meeting, no_thread_is_left, ours, side_by_side  # noqa: F401


def test_eight_branches_run_at_once_and_each_in_a_thread_of_its_own() -> None:
    barrier = threading.Barrier(8)
    graph = fan(*[meeting(barrier, lambda value: threading.get_ident()) for _ in range(8)])
    idents = graph.forward(1, threads=8)
    assert list(idents) == [f"b{place}" for place in range(8)]
    assert len(set(idents.values())) == 8
    assert threading.get_ident() not in idents.values()


def test_eight_sleeps_take_about_as_long_as_one() -> None:
    graph = fan(*[lambda value: time.sleep(0.05) for _ in range(8)])
    began = time.perf_counter()
    graph.forward(1, threads=8)
    assert 0.05 <= time.perf_counter() - began < 0.3  # one after the other they would take 0.4


def test_more_branches_than_threads_run_so_many_at_a_time() -> None:
    lock, running, most = threading.Lock(), 0, 0
    barrier = threading.Barrier(3)

    def forward(value: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait(20)
        with lock:
            running -= 1
        return value

    assert fan(*[forward] * 9).forward(1, threads=3) == {f"b{place}": 1 for place in range(9)}
    assert most == 3


def test_by_default_everything_runs_in_the_caller_s_thread_in_a_fixed_order() -> None:
    order: list[tuple[str, int]] = []

    class Note(Node):
        def forward(self, value: Any, ctx: Any) -> Any:
            order.append((ctx.node, threading.get_ident()))

    graph = fan(Note(), Note(), Note())
    for watching in (None, [].append):
        graph.forward(watching=watching)
    assert order == [(f"b{place}", threading.get_ident()) for place in range(3)] * 2


def test_a_node_with_nobody_beside_it_runs_in_the_caller_s_thread() -> None:
    where = Graph.somatize(node(lambda _: threading.get_ident()) >> node(lambda x: (x, threading.get_ident())))
    assert where.forward(threads=4) == (threading.get_ident(), threading.get_ident())


def test_a_branch_goes_on_while_its_neighbour_still_runs() -> None:
    """The second node of the quick branch runs before the slow branch's first ends."""
    further = threading.Event()

    def slow(value: Any) -> bool:
        return further.wait(20)

    def second(value: Any) -> None:
        further.set()

    graph = Graph.somatize(node(slow).named("slow") | (Pass().named("quick") >> node(second).named("second")))
    assert graph.forward(threads=2) == {"slow": True, "second": None}


@pytest.mark.parametrize("watching", [None, [].append])
def test_values_and_answers_are_those_of_one_thread(watching: Any) -> None:
    graph = Graph()
    for id in range(40):
        graph.node(f"n{id}", lambda value, id=id: (id, value))
        for before in {id // 2, id // 3} - {id}:
            graph.edge(f"n{before}", f"n{id}")
    assert graph.forward("x", threads=5, watching=watching) == graph.forward("x")


def test_facts_of_branches_are_whole_and_the_last_is_finished() -> None:
    seen: Facts = []
    barrier = threading.Barrier(3)
    fan(*[meeting(barrier)] * 3).forward(1, watching=seen.append, threads=3)
    assert [(fact["fact"], fact.get("node")) for fact in (seen[0], *seen[-2:])] == [
        ("ran", "in"),
        ("ran", "out"),
        ("finished", None),
    ]
    assert sorted(fact["node"] for fact in seen[1:4]) == ["b0", "b1", "b2"]
    assert {tuple(fact) for fact in seen[:-1]} == {("fact", "node", "began_us", "took_us")}
    began = {fact["node"]: int(fact["began_us"]) for fact in seen[:-1]}
    assert began["in"] <= min(began["b0"], began["b1"], began["b2"])
    assert max(began["b0"], began["b1"], began["b2"]) <= began["out"] <= int(seen[-1]["took_us"])


# What is carried along


COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


def test_context_variables_are_carried_and_stay_in_their_branch() -> None:
    barrier = threading.Barrier(2)

    def change(to: str) -> Any:
        def forward(value: Any) -> tuple[str, str]:
            before = COLOUR.get()
            COLOUR.set(to)
            barrier.wait(20)
            return before, COLOUR.get()

        return forward

    token = COLOUR.set("mine")
    try:
        answer = side_by_side(change("left"), change("right")).forward(threads=2)
        assert answer == {"b0": ("mine", "left"), "b1": ("mine", "right")}
        assert COLOUR.get() == "mine"
    finally:
        COLOUR.reset(token)


def modes() -> tuple[Any, ...]:
    casts = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), casts, torch.is_autocast_cache_enabled()


@pytest.mark.parametrize(
    "mode",
    [
        torch.no_grad,
        torch.enable_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.autocast("cpu", dtype=torch.float16, cache_enabled=False),
    ],
)
def test_torch_s_modes_are_carried(mode: Any) -> None:
    barrier = threading.Barrier(2)
    graph = side_by_side(*[meeting(barrier, lambda value: modes())] * 2)
    outside = modes()
    with mode():
        expected = modes()
        answer = graph.forward(threads=2)
    assert answer == {"b0": expected, "b1": expected}
    assert modes() == outside


def test_a_tensor_made_in_a_branch_is_made_in_the_caller_s_mode() -> None:
    barrier = threading.Barrier(2)
    graph = side_by_side(*[meeting(barrier, lambda weights: weights * 2)] * 2)
    weights = torch.ones(2, requires_grad=True)
    assert graph.forward(weights, threads=2)["b1"].requires_grad
    with torch.no_grad():
        assert not graph.forward(weights, threads=2)["b0"].requires_grad
    with torch.inference_mode():
        assert graph.forward(weights, threads=2)["b0"].is_inference()


# References, threads, and forwards at once


class Value:
    """What is waited for to be let go."""


@pytest.mark.parametrize("watching", [None, [].append])
def test_a_branch_s_value_is_let_go_as_soon_as_its_last_reader_ran(watching: Any) -> None:
    """While `slow` still runs, what the quick branch made is gone: only its last value lives."""
    made: dict[str, weakref.ref[Value]] = {}
    look = threading.Event()

    class Make(Node):
        def forward(self, value: Any, ctx: Any) -> Value:
            new = Value()
            made[ctx.node] = weakref.ref(new)
            return new

    class Last(Node):
        def forward(self, value: Any, ctx: Any) -> Any:
            living = [name for name, reference in made.items() if reference() is not None]
            look.set()
            return living

    def slow(value: Any) -> Any:
        return look.wait(20)

    quick = functools.reduce(operator.rshift, [Make().named(id) for id in "abc"]) >> Last().named("last")
    gc.disable()
    try:
        answer = Graph.somatize(node(slow).named("slow") | quick).forward(threads=2, watching=watching)
    finally:
        gc.enable()
    assert answer == {"slow": True, "last": ["c"]}
    assert [reference() for reference in made.values()] == [None] * 3


def test_no_more_threads_are_started_than_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    class Counted(threading.Thread):
        def start(self) -> None:
            started.append(self)
            super().start()

    # A thread that is over by now shows nowhere else.
    monkeypatch.setattr(scheduler.threading, "Thread", Counted)
    fan(Pass(), Pass(), Pass()).forward(threads=64)
    assert len(started) <= 3
    assert all(thread.daemon for thread in started)
    started.clear()
    Graph.somatize(Pass() >> Pass()).forward(threads=64)
    assert started == []


def test_one_graph_runs_in_several_threads_at_once() -> None:
    inside = threading.Barrier(4)
    graph = Graph.somatize(node(meeting(inside)).named("a") >> (Pass().named("b") | Pass().named("c")))
    answers: dict[int, Any] = {}
    seen: dict[int, Facts] = {number: [] for number in range(4)}

    def one(number: int) -> None:
        threads = 1 + number % 2
        answers[number] = graph.forward(number, watching=seen[number].append, threads=threads)

    callers = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert answers == {number: {"b": number, "c": number} for number in range(4)}
    for facts in seen.values():
        assert sorted(fact.get("node", "") for fact in facts) == ["", "a", "b", "c"]
        assert facts[-1]["fact"] == "finished"


@pytest.mark.parametrize("threads", [1, 3])
def test_a_node_runs_another_graph_or_the_same_one(threads: int) -> None:
    def countdown(value: int) -> int:
        return graph.forward(value - 1, threads=threads) + 1 if value else 0

    graph = Graph.somatize(node(countdown).named("count"))
    both = side_by_side(lambda value: graph.forward(value, threads=threads), lambda value: graph.forward(value))
    assert both.forward(20, threads=threads) == {"b0": 20, "b1": 20}

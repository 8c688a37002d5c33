"""`threads=N`: branches at the same time. Nothing here sleeps to be in time: barriers and events say what happened."""

from __future__ import annotations

import contextvars
import functools
import gc
import operator
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from somatize import Graph, Node, branches, node

Facts = list[dict[str, str]]


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


def fan(*things: Any) -> Graph:
    """Things side by side, called b0, b1, ..., between an `in` and an `out`."""
    beside = [node(thing).named(f"b{place}") for place, thing in enumerate(things)]
    return Graph.somatize(Pass().named("in") >> functools.reduce(operator.or_, beside) >> Pass().named("out"))


def side_by_side(*things: Any) -> Graph:
    return Graph.somatize(functools.reduce(operator.or_, [node(t).named(f"b{i}") for i, t in enumerate(things)]))


def meeting(barrier: threading.Barrier, then: Callable[[Any], Any] = lambda value: value) -> Any:
    def forward(value: Any) -> Any:
        barrier.wait(20)
        return then(value)

    return forward


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "somatize-branch"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    for thread in ours():
        thread.join(20)
    assert ours() == []


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


# Failures


def raising(error: BaseException) -> Callable[[Any], Any]:
    def forward(value: Any) -> Any:
        raise error

    return forward


@pytest.mark.parametrize("watched", [True, False])
def test_of_several_that_fail_the_first_in_order_is_raised_and_all_are_told(watched: bool) -> None:
    """The last in order fails first: it is let go before the others are."""
    seen: Facts = []
    all_in, last_failed = threading.Barrier(4), threading.Event()
    errors = [ValueError("0"), ValueError("1"), ValueError("2")]

    def fail(place: int) -> Any:
        def forward(value: Any) -> Any:
            all_in.wait(20)
            if place == 2:
                last_failed.set()
            else:
                last_failed.wait(20)
            raise errors[place]

        return forward

    graph = fail_beside_a_good_one(fail, all_in)
    with pytest.raises(ValueError, match="0") as raised:
        graph.forward(threads=4, watching=seen.append if watched else None)
    assert raised.value is errors[0]
    assert [error.__notes__ for error in errors] == [[f"in node 'b{p}', step {p + 2} of 6"] for p in range(3)]
    if watched:
        assert seen[0]["node"] == "in"
        told = [(fact["fact"], fact["node"], fact.get("why")) for fact in seen[1:-1]]
        assert sorted(told, key=operator.itemgetter(1)) == [
            *[("failed", f"b{place}", f"ValueError: {place}") for place in range(3)],
            ("ran", "b3", None),
        ]
        assert (seen[-1]["fact"], seen[-1]["why"]) == ("broke", "ValueError: 0")


def fail_beside_a_good_one(fail: Any, all_in: threading.Barrier) -> Graph:
    return fan(fail(0), fail(1), fail(2), meeting(all_in))


def test_after_a_failure_no_new_node_starts_though_its_input_is_there() -> None:
    told: Facts = []
    failure_is_told = threading.Event()
    ran: list[str] = []

    def watch(fact: dict[str, str]) -> None:
        told.append(fact)
        if fact["fact"] == "failed":
            failure_is_told.set()

    def slow(value: Any) -> None:
        assert failure_is_told.wait(20)
        ran.append("slow")

    graph = Graph.somatize(
        node(raising(ValueError("first"))).named("fails")
        | (node(slow).named("slow") >> node(ran.append).named("after"))
    )
    with pytest.raises(ValueError, match="first"):
        graph.forward(threads=2, watching=watch)
    assert ran == ["slow"]
    assert [(fact["fact"], fact.get("node")) for fact in told] == [
        ("failed", "fails"),
        ("ran", "slow"),
        ("broke", None),
    ]


@pytest.mark.parametrize("watching", [None, [].append])
def test_after_a_failure_those_that_wait_for_a_thread_do_not_start(watching: Any) -> None:
    ran: list[int] = []
    both = threading.Barrier(2)
    things = [meeting(both, raising(ValueError("a"))), meeting(both, raising(ValueError("b"))), *[ran.append] * 6]
    with pytest.raises(ValueError, match="a"):
        side_by_side(*things).forward(1, threads=2, watching=watching)
    assert ran == []


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt("k"), SystemExit(2), MemoryError("m"), GeneratorExit("g")], ids=repr
)
def test_an_interrupt_in_a_branch_is_raised_at_once_and_others_end_unobserved(error: Any, watched: bool) -> None:
    seen: Facts = []
    both, go, ended = threading.Barrier(2), threading.Event(), threading.Event()
    ran: list[Any] = []

    def lingers(value: Any) -> Any:
        both.wait(20)
        go.wait(20)
        ended.set()
        return value

    graph = Graph.somatize(
        node(meeting(both, raising(error))).named("stops") | (node(lingers).named("lingers") >> node(ran.append))
    )
    with pytest.raises(type(error)) as raised:
        graph.forward(threads=2, watching=seen.append if watched else None)
    assert raised.value is error
    assert not ended.is_set()  # the caller is back, and it still runs
    assert [thread.daemon for thread in ours()].count(True) == len(ours()) >= 1
    go.set()
    assert ended.wait(20)
    for thread in ours():
        thread.join(20)
    assert ran == []
    why = f"{type(error).__name__}: {error}"
    assert [(f["fact"], f["why"]) for f in seen] == ([("failed", why), ("broke", why)] if watched else [])


@pytest.mark.parametrize("watched", [True, False])
def test_a_real_sigint_while_branches_run_is_raised_at_once(watched: bool) -> None:
    seen: Facts = []
    all_in, go = threading.Barrier(3), threading.Event()
    ended: list[Any] = []

    def lingers(value: Any) -> None:
        all_in.wait(20)
        go.wait(20)
        ended.append(value)

    def interrupt() -> None:
        all_in.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        fan(lingers, lingers).forward(1, threads=2, watching=seen.append if watched else None)
    other.join(20)
    assert ended == []
    go.set()
    for thread in ours():
        thread.join(20)
    assert ended == [1, 1]
    assert [fact["fact"] for fact in seen] == (["ran", "broke"] if watched else [])
    assert not watched or seen[-1]["why"] == "KeyboardInterrupt: "


def test_what_a_left_behind_branch_says_is_warned_about_and_told_to_nobody(capsys: Any) -> None:
    seen: Facts = []
    both, go = threading.Barrier(2), threading.Event()

    def lingers(value: Any, ctx: Any) -> None:
        both.wait(20)
        go.wait(20)
        ctx.tell({"fact": "loss", "value": 1})

    graph = side_by_side(meeting(both, raising(KeyboardInterrupt())), lingers)
    with pytest.raises(KeyboardInterrupt):
        graph.forward(threads=2, watching=seen.append)
    go.set()
    for thread in ours():
        thread.join(20)
    assert [fact["fact"] for fact in seen] == ["failed", "broke"]
    assert "node 'b1' said 'loss' after its forward had ended" in capsys.readouterr().err


def test_a_thread_that_cannot_be_started_breaks_the_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    seen: Facts = []
    monkeypatch.setattr(branches.threading, "Thread", Refusing)
    with pytest.raises(RuntimeError, match="can't start"):
        fan(Pass(), Pass()).forward(threads=2, watching=seen.append)
    assert [fact["fact"] for fact in seen] == ["ran", "broke"]


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

    monkeypatch.setattr(branches.threading, "Thread", Counted)
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

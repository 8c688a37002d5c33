"""Which forward of a watcher a fact said to it belongs to: `sink_here`, by the rule of DESIGN.md."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from somatize import Graph, node
from somatize.watching import forwards
from somatize.watching.watchers import forward_here, sink_here

Facts = list[dict[str, str]]


class Sink:
    def __init__(self, number: int) -> None:
        self.number = number
        self.facts: list[str] = []
        self.said: list[Any] = []

    def tell(self, fact: dict[str, str]) -> None:
        self.facts.append(" ".join([fact["fact"], *([fact["node"]] if "node" in fact else [])]))


class Recording:
    """A recorder in small: a sink per forward, numbered as they opened; calling it says something to the sink here."""

    def __init__(self) -> None:
        self.sinks: list[Sink] = []
        self.lock = threading.Lock()

    def opens(self, graph: Any) -> Sink:
        with self.lock:
            self.sinks.append(Sink(len(self.sinks)))
            return self.sinks[-1]

    def __call__(self, what: Any) -> int | None:
        sink = sink_here(self)
        if sink is None:
            return None
        sink.said.append(what)
        return int(sink.number)

    @property
    def said(self) -> dict[int, list[Any]]:
        return {sink.number: sink.said for sink in self.sinks if sink.said}


def one(forward: Callable[..., Any], id: str = "a") -> Graph:
    return Graph.somatize(node(forward).named(id))


def test_each_forward_has_its_own_sink_and_its_facts_go_there() -> None:
    rec = Recording()
    graph = one(abs)
    graph.forward(-1, watching=rec)
    graph.forward(-1, watching=[rec])
    assert [sink.facts for sink in rec.sinks] == [["ran a", "finished"]] * 2


def test_opens_is_given_the_graph() -> None:
    given: list[Any] = []

    class Watcher(Recording):
        def opens(self, graph: Any) -> Sink:
            given.append(graph)
            return super().opens(graph)

    graph = one(abs)
    graph.forward(1, watching=Watcher())
    assert given == [graph]


def test_before_any_forward_nothing_is_known() -> None:
    rec, other = Recording(), Recording()
    assert rec("x") is None
    one(abs).forward(1, watching=other)
    assert rec("x") is None


def test_after_a_forward_it_is_the_one_that_closed_last() -> None:
    rec, other = Recording(), Recording()
    graph = one(abs)
    for number in range(3):
        graph.forward(1, watching=[rec, other])
        assert rec(number) == number
    graph.forward(1, watching=other)
    assert rec("late") == 2
    assert rec.said == {0: [0], 1: [1], 2: [2, "late"]}


def test_after_a_forward_that_broke_it_is_that_one() -> None:
    rec = Recording()
    with pytest.raises(ZeroDivisionError):
        one(lambda x: 1 / x).forward(0, watching=rec)
    assert rec("after") == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_inside_a_node_it_is_the_node_s_own_forward(threads: int) -> None:
    rec = Recording()
    graph = Graph.somatize(node(lambda x: rec(x)).named("a") | node(lambda x: rec(x)).named("b"))
    graph.forward(1, watching=rec, threads=threads)
    assert graph.forward(2, watching=rec, threads=threads) == {"a": 1, "b": 1}
    assert rec.said == {0: [1, 1], 1: [2, 2]}


@pytest.mark.parametrize("threads", [1, 2])
def test_inside_a_node_that_ran_a_forward_it_is_that_one_and_in_the_next_node_the_own_again(threads: int) -> None:
    """0 is the outer forward, 1 the one its node runs."""
    rec = Recording()
    inner = one(lambda x: rec("in inner"))

    def outer_node(value: Any) -> list[int | None]:
        return [rec("before"), inner.forward(watching=rec), rec("after")]

    graph = Graph.somatize(node(outer_node).named("first") >> node(lambda value: [*value, rec("next")]).named("second"))
    assert graph.forward(watching=rec, threads=threads) == [0, 1, 1, 0]
    assert rec("outside") == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_siblings_that_run_forwards_do_not_see_each_other_s(threads: int) -> None:
    rec = Recording()
    inner = one(abs)

    def runs(value: Any) -> tuple[Any, ...]:
        before = rec("before")
        inner.forward(1, watching=rec)
        return before, rec("after")

    graph = Graph.somatize(node(runs).named("a") | node(runs).named("b"))
    answer = graph.forward(watching=rec, threads=threads)
    assert answer["a"][0] == answer["b"][0] == 0
    assert {answer["a"][1], answer["b"][1]} == {1, 2}


def test_a_forward_that_is_open_within_the_node_is_meant_inside_of_it() -> None:
    """Three deep; each node says something before, and after, the forward it runs."""
    rec = Recording()

    def down(depth: int) -> list[Any]:
        inner = graph.forward(depth - 1, watching=rec) if depth else []
        return [rec(f"at {depth}"), *inner]

    graph = one(down)
    assert graph.forward(2, watching=rec) == [1, 2, 2]
    assert rec.said == {1: ["at 2"], 2: ["at 0", "at 1"]}


@pytest.mark.parametrize("watching", [None, [].append])
def test_a_forward_between_that_is_not_recorded_does_not_stand_in_the_way(watching: Any) -> None:
    """The middle forward has other watchers, or none: what its node says goes to the forward around it."""
    rec = Recording()
    middle = one(lambda value: rec("from the middle"))
    assert one(lambda value: middle.forward(watching=watching)).forward(watching=rec) == 0


@pytest.mark.parametrize("watching", [None, [].append])
@pytest.mark.parametrize("ctx", [True, False])
def test_what_a_node_of_the_middle_ran_is_not_meant_in_the_next_node_of_the_middle(watching: Any, ctx: bool) -> None:
    """0 is around; its node runs the middle, unrecorded, whose first node runs 1. The second's word is for 0."""
    rec = Recording()
    inner = one(abs)

    def first(value: Any) -> Any:
        return inner.forward(1, watching=rec)

    def second(value: Any) -> Any:
        return rec("m2")

    things = [lambda value, ctx: first(value), lambda value, ctx: second(value)] if ctx else [first, second]
    middle = Graph.somatize(node(things[0]).named("m1") >> node(things[1]).named("m2"))
    assert one(lambda value: middle.forward(watching=watching)).forward(watching=rec) == 0


def test_two_recorders_are_kept_apart() -> None:
    left, right = Recording(), Recording()
    inner = one(abs)

    def runs(value: Any) -> tuple[Any, ...]:
        inner.forward(1, watching=right)
        return left("x"), right("y")

    one(runs).forward(watching=left)
    assert (left.said, right.said) == ({0: ["x"]}, {0: ["y"]})


def test_threads_are_kept_apart() -> None:
    rec, both = Recording(), threading.Barrier(2)
    graph = one(lambda value: both.wait(10))
    answers: dict[int, Any] = {}

    def loop(number: int) -> None:
        for step in range(20):
            graph.forward(watching=rec)
            both.wait(10)
            answers[number, step] = rec((number, step))

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(set(answers.values())) == 40
    assert all(len(said) == 1 for said in rec.said.values())
    assert rec("here") is None  # this thread ran none


def test_asyncio_tasks_are_kept_apart() -> None:
    rec = Recording()
    graph = one(abs)

    async def task(number: int) -> list[Any]:
        numbers = []
        for step in range(5):
            graph.forward(1, watching=rec)
            await asyncio.sleep(0)
            numbers.append(rec((number, step)))
        return numbers

    async def main() -> list[list[Any]]:
        return await asyncio.gather(*[task(number) for number in range(3)])

    numbers = asyncio.run(main())
    assert len({number for task_numbers in numbers for number in task_numbers}) == 15
    assert all(len(said) == 1 for said in rec.said.values())


def test_a_copied_context_knows_what_was_there_when_it_was_copied() -> None:
    rec = Recording()
    graph = one(abs)
    graph.forward(1, watching=rec)
    copied = contextvars.copy_context()
    graph.forward(1, watching=rec)
    assert copied.run(rec, "old") == 0
    assert rec("new") == 1
    copied.run(lambda: graph.forward(1, watching=rec))
    assert (copied.run(rec, "its own"), rec("mine")) == (2, 1)


def test_a_thread_that_a_node_started_with_its_context_speaks_for_the_node() -> None:
    rec = Recording()
    answers: list[Any] = []

    def starts(value: Any) -> None:
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: answers.append(context.run(rec, "x")))
        thread.start()
        thread.join(10)

    graph = one(starts)
    graph.forward(watching=rec)
    graph.forward(watching=rec)
    assert answers == [0, 1]


def test_what_a_watcher_says_while_it_is_told_goes_to_the_forward_it_is_told_of() -> None:
    rec = Recording()
    answers: list[Any] = []
    graph = one(abs)
    for _ in range(2):
        graph.forward(1, watching=[rec, lambda fact: answers.append(rec(fact["fact"]))])
    assert answers == [0, 0, 1, 1]


def test_a_context_keeps_no_watcher_alive() -> None:
    rec = Recording()
    one(abs).forward(1, watching=rec)
    gone = weakref.ref(rec)
    del rec
    gc.collect()
    assert gone() is None


def test_a_context_does_not_remember_ever_more_watchers() -> None:

    kept = [Recording() for _ in range(200)]
    graph = one(abs)

    def run() -> int:
        for rec in kept:
            graph.forward(1, watching=rec)
        assert kept[-1]("x") == 0
        return len(forwards.LAST.get())

    assert contextvars.Context().run(run) == forwards._REMEMBERED


def test_forward_here_tells_forwards_apart() -> None:
    assert forward_here() is None
    graph = Graph.somatize(node(lambda _: [forward_here()]) >> node(lambda seen: [*seen, forward_here()]))
    first, second = (graph.forward(watching=[].append) for _ in range(2))
    assert first[0] is first[1] is not None
    assert second[0] is not first[0]
    assert forward_here() is None

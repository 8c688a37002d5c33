"""One forward, in the caller's thread: values, facts, failures, interrupts."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from somatize import Graph, Node, node
from somatize.engine import loops
from somatize.errors import GraphError, NoHost
from tests.small_graphs import Facts, Pass, Raise, chain, untimed

# Facts


def test_a_chain_tells_ran_per_node_in_order_then_finished() -> None:
    seen: Facts = []
    assert chain(Pass(), abs, node(Pass()).on("cpu")).forward(-3, watching=seen.append) == 3
    assert untimed(seen) == [
        {"fact": "ran", "node": "n0"},
        {"fact": "ran", "node": "n1"},
        {"fact": "ran", "node": "n2", "device": "cpu"},
        {"fact": "finished"},
    ]
    assert next(list(fact) for fact in seen) == ["fact", "node", "began_us", "took_us"]
    assert list(seen[-1]) == ["fact", "took_us"]


class Clock:
    """A clock that a node sets; each look at it takes `tick` nanoseconds."""

    def __init__(self, tick: int = 0) -> None:
        self.now = 5_000_000_000
        self.tick = tick

    def __call__(self) -> int:
        self.now += self.tick
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    from somatize.engine import scheduler

    clock = Clock()
    # The engine takes no clock, because a parameter would cost each call.
    for module in (loops, scheduler):
        monkeypatch.setattr(module, "clock", clock)
    return clock


@pytest.mark.parametrize("threads", [1, 2])
def test_times_are_whole_microseconds_from_the_start_of_the_forward(clock: Clock, threads: int) -> None:
    def takes(nanoseconds: int) -> Any:
        def forward(value: Any) -> Any:
            clock.now += nanoseconds

        return forward

    def slow_watcher(fact: dict[str, str]) -> None:
        seen.append(fact)
        clock.now += 1_000_000

    seen: Facts = []
    chain(takes(1_999), takes(999), takes(2_000_000)).forward(watching=slow_watcher, threads=threads)
    assert [(fact.get("began_us"), fact["took_us"]) for fact in seen] == [
        ("0", "1"),
        ("1001", "0"),
        ("2002", "2000"),
        (None, "5002"),
    ]


@pytest.mark.parametrize("threads", [1, 2])
def test_finished_and_broke_take_a_microsecond_at_least(clock: Clock, threads: int) -> None:
    seen: Facts = []
    chain(Pass()).forward(watching=seen.append, threads=threads)
    with pytest.raises(ValueError, match="no"):
        chain(Raise(ValueError("no"))).forward(watching=seen.append, threads=threads)
    Graph().forward(watching=seen.append, threads=threads)
    assert [(fact["fact"], fact["took_us"]) for fact in seen] == [
        ("ran", "0"),
        ("finished", "1"),
        ("failed", "0"),
        ("broke", "1"),
        ("finished", "1"),
    ]


@pytest.mark.parametrize("threads", [1, 3])
def test_with_nobody_watching_no_fact_is_made_and_no_clock_read(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    from somatize.engine import scheduler

    def never(*_: Any) -> Any:
        raise AssertionError("asked for with nobody watching")

    for module in (loops, scheduler):
        monkeypatch.setattr(module, "clock", never)
    # Whether a fact is made at all shows nowhere else.
    for module, names in ((loops, ("failed", "finished", "broken")), (scheduler, ("done", "failed"))):
        for name in names:
            monkeypatch.setattr(module, name, never)
    graph = Graph.somatize(
        Pass().named("a") >> (Pass().named("b") | Pass().named("c")) >> Raise(OSError("d")).named("d")
    )
    for watching in (None, [], ()):
        with pytest.raises(OSError, match="d"):
            graph.forward(1, watching=watching, threads=threads)


def test_what_a_watcher_does_to_its_fact_changes_nothing() -> None:
    def clear(fact: dict[str, str]) -> None:
        fact.clear()

    seen: Facts = []
    chain(Pass(), Pass()).forward(watching=[clear, seen.append, clear])
    assert untimed(seen) == [{"fact": "ran", "node": "n0"}, {"fact": "ran", "node": "n1"}, {"fact": "finished"}]


# Values


class Thing:
    """An object that can be weakly referenced, and equals nothing."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a value was compared")

    def __bool__(self) -> bool:
        raise AssertionError("a value was asked whether it is true")


VALUES = [2**53 + 1, True, None, (), (1, (2,)), {3}, frozenset(), b"b", 1.5, [1], {"a": 1}, Thing(), Thing, len, ...]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("watching", [None, [].append])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_cross_edges_by_reference(value: Any, watching: Any, threads: int) -> None:
    taken: list[Any] = []

    def take(given: Any) -> Any:
        taken.append(given)
        return given

    graph = Graph.somatize(
        node(take).named("a") >> (node(take).named("b") | Pass().named("c")) >> node(take).named("d")
    )
    answer = graph.forward(value, watching=watching, threads=threads)
    assert taken[0] is taken[1] is value
    assert list(answer) == ["b", "c"]
    assert answer["b"] is answer["c"] is value
    assert chain(Pass(), take, Pass()).forward(value, watching=watching, threads=threads) is value


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("watching", [None, [].append])
def test_several_predecessors_are_a_dict_in_the_order_the_edges_were_declared(watching: Any, threads: int) -> None:
    graph = Graph()
    for id in "xyz":
        graph.node(id, lambda value, id=id: f"{id}{value}")
    graph.node("join", Pass())
    for id in "zxy":
        graph.edge(id, "join")
    answer = graph.forward(1, watching=watching, threads=threads)
    assert list(answer.items()) == [("z", "z1"), ("x", "x1"), ("y", "y1")]
    assert type(answer) is dict


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("watching", [None, [].append])
def test_several_leaves_are_a_dict_by_id_in_the_order_declared(watching: Any, threads: int) -> None:
    graph = Graph()
    for id in ("late", "a", "b"):
        graph.node(id, lambda value, id=id: (id, value))
    graph.edge("a", "late")
    graph.edge("a", "b")
    graph.node("alone", Pass())
    answer = graph.forward(1, watching=watching, threads=threads)
    assert list(answer.items()) == [("late", ("late", ("a", 1))), ("b", ("b", ("a", 1))), ("alone", 1)]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("watching", [None, [].append])
def test_every_root_gets_the_input_and_none_if_none_was_given(watching: Any, threads: int) -> None:
    graph = Graph.somatize(Pass().named("a") | Pass().named("b"))
    given = Thing()
    answer = graph.forward(given, watching=watching, threads=threads)
    assert answer["a"] is answer["b"] is given
    assert graph.forward(watching=watching, threads=threads) == {"a": None, "b": None}


@pytest.mark.parametrize("threads", [1, 2])
def test_an_empty_graph_returns_its_input_and_finishes(threads: int) -> None:
    given = Thing()
    seen: Facts = []
    assert Graph().forward(given, threads=threads) is given
    assert Graph().forward(given, watching=seen.append, threads=threads) is given
    assert untimed(seen) == [{"fact": "finished"}]


class Value:
    """What is waited for to be let go."""


@pytest.mark.parametrize("watching", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_value_is_let_go_as_soon_as_its_last_reader_ran(watching: bool, threads: int) -> None:
    alive: dict[str, weakref.ref[Value]] = {}
    seen_alive: dict[str, list[str]] = {}

    def living() -> list[str]:
        return sorted(name for name, reference in alive.items() if reference() is not None)

    class Make(Node):
        def forward(self, given: Any, ctx: Any) -> Any:
            seen_alive[ctx.node] = living()
            value = Value()
            alive[ctx.node] = weakref.ref(value)
            return value

    def watch(fact: dict[str, str]) -> None:
        if fact["fact"] == "ran":
            seen_alive[f"{fact['node']} ran"] = living()

    graph = Graph()
    for id in ("a", "b", "c", "d", "e", "f"):
        graph.node(id, Make())
    for before, after in (("a", "b"), ("b", "c"), ("b", "d"), ("a", "d"), ("d", "e"), ("c", "e"), ("e", "f")):
        graph.edge(before, after)
    gc.disable()  # it is references that let go, and no collector
    try:
        answer = graph.forward(watching=watch if watching else None, threads=threads)
    finally:
        gc.enable()
    assert living() == ["f"]
    assert isinstance(answer, Value)
    if threads == 1:
        assert seen_alive["c"] == ["a", "b"]
        assert seen_alive["d"] == ["a", "b", "c"]
    assert seen_alive["b"] == ["a"]
    assert seen_alive["e"] == ["c", "d"]
    assert seen_alive["f"] == ["e"]
    if watching:
        assert seen_alive["a ran"] == ["a"]
        assert seen_alive["b ran"] == ["a", "b"]
        assert seen_alive["e ran"] == ["e"]
        assert seen_alive["f ran"] == ["f"]


def test_values_of_a_forward_that_failed_are_let_go() -> None:
    alive: list[weakref.ref[Value]] = []

    def make(given: Any) -> Value:
        value = Value()
        alive.append(weakref.ref(value))
        return value

    for threads in (1, 2):
        with pytest.raises(ValueError, match="no"):
            chain(make, make, Raise(ValueError("no"))).forward(watching=[].append, threads=threads)
    gc.collect()
    assert [reference() for reference in alive] == [None] * 4


# Asking for what is not there


@pytest.mark.parametrize("wrong", [0, -1, 1.0, 2.0, True, None, "2"])
def test_threads_is_a_whole_number(wrong: Any) -> None:
    ran: list[int] = []
    with pytest.raises(GraphError, match=r"threads=.*1 or more"):
        chain(ran.append).forward(1, threads=wrong, watching=[].append)
    assert ran == []


@pytest.mark.parametrize("threads", [1, 2])
def test_a_host_nobody_knows_is_refused_before_anything_runs(threads: int) -> None:
    ran: list[int] = []
    seen: Facts = []
    graph = Graph.somatize(node(ran.append).named("a") >> Pass().named("b").at("w1"))
    with pytest.raises(NoHost, match=r"node 'b' is to run at host 'w1', and no broker was given"):
        graph.forward(1, watching=seen.append, threads=threads)
    assert (ran, seen) == ([], [])


def test_frozen_runs_as_it_is() -> None:
    assert Graph.somatize(Pass().frozen("s")).forward(3) == 3

"""One forward, in the caller's thread: values, facts, failures, interrupts."""

from __future__ import annotations

import functools
import gc
import operator
import os
import signal
import threading
import weakref
from typing import Any

import pytest

from somatize import Graph, Node, engine, node
from somatize.errors import GraphError, NotBuilt, SomatizeError

Facts = list[dict[str, str]]


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


class Raise(Node):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def forward(self, value: Any, ctx: Any) -> Any:
        raise self.error


def chain(*things: Any) -> Graph:
    return Graph.somatize(
        functools.reduce(operator.rshift, [node(thing).named(f"n{i}") for i, thing in enumerate(things)])
    )


def untimed(facts: Facts) -> Facts:
    """Facts without their times, each of which is a whole number."""
    times = ("began_us", "took_us")
    assert all(fact[time].isdigit() for fact in facts for time in times if time in fact)
    return [{key: value for key, value in fact.items() if key not in times} for fact in facts]


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
    from somatize import calling, ending

    clock = Clock()
    for module in (engine, calling, ending):
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
    from somatize import branches, calling, ending

    def never(*_: Any) -> Any:
        raise AssertionError("asked for with nobody watching")

    for module in (engine, calling, ending):
        monkeypatch.setattr(module, "clock", never)
    for module, names in ((engine, ("failed", "finished", "broken")), (branches, ("done", "failed"))):
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


# Failures


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_tells_failed_then_broke_and_raises_the_node_s_own_object(threads: int) -> None:
    seen: Facts = []
    error = ValueError("bad words")
    with pytest.raises(ValueError, match="bad words") as raised:
        chain(Pass(), node(Raise(error)).on("cpu"), Pass()).forward(watching=seen.append, threads=threads)
    assert raised.value is error
    assert raised.value.__cause__ is None
    assert untimed(seen) == [
        {"fact": "ran", "node": "n0"},
        {"fact": "failed", "node": "n1", "why": "ValueError: bad words", "device": "cpu"},
        {"fact": "broke", "why": "ValueError: bad words"},
    ]
    assert error.__notes__ == ["in node 'n1', step 2 of 3"]


@pytest.mark.parametrize("watching", [None, [].append])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("ctx", [True, False])
def test_the_note_names_node_and_position_watched_or_not(watching: Any, threads: int, ctx: bool) -> None:
    error = KeyError("k")

    def without(value: Any) -> Any:
        raise error

    failing = Raise(error) if ctx else without
    for place in range(3):
        things: list[Any] = [Pass(), Pass(), Pass()]
        things[place] = failing
        with pytest.raises(KeyError):
            chain(*things).forward(watching=watching, threads=threads)
        assert error.__notes__ == [f"in node 'n{place}', step {place + 1} of 3"]


@pytest.mark.parametrize("watching", [None, [].append])
def test_a_failure_at_a_join_is_noted_there(watching: Any) -> None:
    error = KeyError("k")
    graph = Graph.somatize((Pass().named("a") | Pass().named("b")) >> Raise(error).named("join") >> Pass().named("z"))
    with pytest.raises(KeyError):
        graph.forward(watching=watching)
    assert error.__notes__ == ["in node 'join', step 3 of 4"]


@pytest.mark.parametrize("watching", [None, [].append])
def test_the_note_is_added_once_per_forward_and_other_notes_are_kept(watching: Any) -> None:
    error = ValueError("again")
    error.add_note("the user's own")
    for id in ("first", "second"):
        for _ in range(2):
            with pytest.raises(ValueError, match="again"):
                Graph.somatize(Raise(error).named(id)).forward(watching=watching)
    assert error.__notes__ == ["the user's own", "in node 'second', step 1 of 1"]


@pytest.mark.parametrize("watching", [None, [].append])
def test_the_note_of_a_nested_forward_is_carried_on(watching: Any) -> None:
    error = ValueError("deep")
    inner = Graph.somatize(Pass().named("p") >> Raise(error).named("inner"))
    middle = Graph.somatize(node(lambda x: inner.forward(x, watching=watching)).named("middle"))
    outer = Graph.somatize(node(lambda x: middle.forward(x)).named("outer") >> Pass().named("z"))
    for _ in range(2):
        with pytest.raises(ValueError, match="deep"):
            outer.forward(1, watching=watching)
        assert error.__notes__ == [
            (
                "in node 'inner', step 2 of 2, of a graph run in node 'middle', step 1 of 1,"
                " of a graph run in node 'outer', step 1 of 2"
            )
        ]


def test_an_exception_that_cannot_be_noted_is_raised_as_it_is() -> None:
    class Frozen(Exception):
        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(name)

    class OddNotes(Exception):
        __notes__ = ("a tuple",)

    for kind in (Frozen, OddNotes):
        seen: Facts = []
        error = kind("as it is")
        for watching in (None, seen.append):
            with pytest.raises(kind) as raised:
                chain(Raise(error)).forward(watching=watching)
            assert raised.value is error
        assert [fact["fact"] for fact in seen] == ["failed", "broke"]


def test_an_exception_whose_notes_raise_is_told_and_raised_all_the_same() -> None:
    class Hostile(Exception):
        @property
        def __notes__(self) -> Any:
            raise RuntimeError("no notes here")

    seen: Facts = []
    caught: BaseException | None = None
    try:
        chain(Raise(Hostile("h"))).forward(watching=seen.append)
    except Exception as error:
        caught = error
    kind = type(caught)
    caught = None  # pytest could not even show it
    assert (kind, [fact["fact"] for fact in seen]) == (Hostile, ["failed", "broke"])


INTERRUPTS = [KeyboardInterrupt("k"), SystemExit(3), MemoryError("m"), GeneratorExit("g")]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("error", INTERRUPTS, ids=lambda error: type(error).__name__)
def test_an_interrupt_in_a_node_is_told_and_propagates_as_it_is(error: BaseException, threads: int) -> None:
    seen: Facts = []
    ran: list[str] = []
    with pytest.raises(type(error)) as raised:
        chain(Pass(), Raise(error), lambda x: ran.append("after")).forward(watching=seen.append, threads=threads)
    assert raised.value is error
    why = f"{type(error).__name__}: {error}"
    assert untimed(seen) == [
        {"fact": "ran", "node": "n0"},
        {"fact": "failed", "node": "n1", "why": why},
        {"fact": "broke", "why": why},
    ]
    assert ran == []


def test_a_stop_iteration_is_an_exception_like_any_other() -> None:
    error = StopIteration("early")
    with pytest.raises(StopIteration) as raised:
        chain(Raise(error)).forward(watching=[].append)
    assert raised.value is error


def test_a_real_sigint_in_a_node_is_a_keyboard_interrupt_there() -> None:
    seen: Facts = []
    reached: list[str] = []

    def interrupted(value: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append("never")

    with pytest.raises(KeyboardInterrupt) as raised:
        chain(Pass(), interrupted, Pass()).forward(watching=seen.append)
    assert [fact["fact"] for fact in seen] == ["ran", "failed", "broke"]
    assert seen[1]["why"] == seen[2]["why"] == "KeyboardInterrupt: "
    assert raised.value.__notes__ == ["in node 'n1', step 2 of 3"]
    assert reached == []


def test_a_sigint_from_outside_ends_a_node_that_waits() -> None:
    seen: Facts = []
    waiting, never = threading.Event(), threading.Event()

    def wait(value: Any) -> None:
        waiting.set()
        while not never.wait(0.05):  # by turns: Python may sleep through a signal that comes as it begins to wait
            pass

    def interrupt() -> None:
        waiting.wait()
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        chain(wait, Pass()).forward(watching=seen.append)
    other.join()
    assert [(fact["fact"], fact.get("node")) for fact in seen] == [("failed", "n0"), ("broke", None)]
    assert chain(Pass()).forward(1, watching=seen.append) == 1  # the next forward is as if nothing had been


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
@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (lambda piece: piece.at("w1"), r"'b' was declared \.at\('w1'"),
    ],
)
def test_what_is_not_built_is_refused_before_anything_runs(mark: Any, words: str, threads: int) -> None:
    ran: list[int] = []
    seen: Facts = []
    graph = Graph.somatize(node(ran.append).named("a") >> mark(Pass().named("b")))
    with pytest.raises(NotBuilt, match=words) as refused:
        graph.forward(1, watching=seen.append, threads=threads)
    assert isinstance(refused.value, NotImplementedError | SomatizeError)
    assert (ran, seen) == ([], [])


def test_frozen_runs_as_it_is() -> None:
    assert Graph.somatize(Pass().frozen("s")).forward(3) == 3

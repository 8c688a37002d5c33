"""A node that raises, in the caller's thread: what is told, noted and raised."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from somatize import Graph, node
from tests.small_graphs import Facts, Pass, Raise, chain, untimed

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

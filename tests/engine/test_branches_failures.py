"""`threads=N` when a branch fails or is interrupted: who is told, what is raised, what still runs."""

from __future__ import annotations

import operator
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from somatize import Graph, node
from somatize.engine import scheduler
from tests.small_graphs import Facts, Pass, fan, meeting, no_thread_is_left, ours, side_by_side  # noqa: F401

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
    # A system without room for a thread cannot be had.
    monkeypatch.setattr(scheduler.threading, "Thread", Refusing)
    with pytest.raises(RuntimeError, match="can't start"):
        fan(Pass(), Pass()).forward(threads=2, watching=seen.append)
    assert [fact["fact"] for fact in seen] == ["ran", "broke"]

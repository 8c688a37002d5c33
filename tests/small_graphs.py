"""Graphs of a few nodes, and how their tests speak of facts and of threads."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from somatize import Graph, Node, node

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


def fan(*things: Any) -> Graph:
    """Things side by side, called b0, b1, ..., between an `in` and an `out`."""
    beside = [node(thing).named(f"b{place}") for place, thing in enumerate(things)]
    return Graph.somatize(Pass().named("in") >> functools.reduce(operator.or_, beside) >> Pass().named("out"))


def side_by_side(*things: Any) -> Graph:
    return Graph.somatize(functools.reduce(operator.or_, [node(t).named(f"b{i}") for i, t in enumerate(things)]))


def one(forward: Any) -> Graph:
    return Graph.somatize(node(forward).named("a"))


def meeting(barrier: threading.Barrier, then: Callable[[Any], Any] = lambda value: value) -> Any:
    def forward(value: Any) -> Any:
        barrier.wait(20)
        return then(value)

    return forward


def in_thread(call: Any) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(20)


def said(facts: Facts) -> list[tuple[str, str | None]]:
    return [(fact["fact"], fact.get("node")) for fact in facts]


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "somatize-branch"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    while left := ours():  # asked again, as one may be born after its forward: another thread starts it
        for thread in left:
            assert thread._started.wait(20)  # type: ignore[attr-defined]
            thread.join(20)
            assert not thread.is_alive()

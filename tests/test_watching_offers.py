"""What a sink may offer beside `tell`, and what happens when that raises."""

from __future__ import annotations

from typing import Any

import pytest

from somatize import Graph, Node, node
from somatize.errors import SomatizeError, WatcherWarning

Facts = list[dict[str, str]]
OK = ["ran a", "ran b", "finished"]
BROKEN = ["ran a", "failed b", "broke"]


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


def two(second: Any = None) -> Graph:
    return Graph.somatize(Pass().named("a") >> node(second or Pass()).named("b"))


def fails(value: Any) -> Any:
    raise ValueError("the node's")


def short(facts: Facts) -> list[str]:
    return [" ".join([fact["fact"], *([fact["node"]] if "node" in fact else [])]) for fact in facts]


class Sinks:
    """A watcher with a sink per forward that keeps everything, and raises in the method `raising`."""

    def __init__(self, raising: str = "", error: BaseException | None = None) -> None:
        self.raising = raising
        self.error = error or RuntimeError("dashboard down")
        self.calls: list[str] = []

    def said(self, method: str, *words: Any) -> None:
        self.calls.append(" ".join([method, *map(str, words)]))
        if method == self.raising:
            raise self.error

    def opens(self, graph: Any) -> Any:
        self.said("opens")
        return self

    def tell(self, fact: dict[str, str]) -> None:
        self.said("tell", *short([fact]))

    def entering(self, node: str, host: Any = None) -> None:
        self.said("entering", node)

    def progress(self, node: str, done: int, total: Any) -> None:
        self.said("progress", node, done, total)

    def closed(self) -> None:
        self.said("closed")


ALL = [
    "opens",
    "entering a",
    "tell ran a",
    "entering b",
    "progress b 1 2",
    "tell ran b",
    "tell finished",
    "closed",
]


def progressing(value: Any, ctx: Any) -> Any:
    ctx.progress(1, 2)
    return value


def run(graph: Graph, watching: Any, threads: int = 1) -> Any:
    try:
        return graph.forward(5, watching=watching, threads=threads)
    except ValueError as error:
        return str(error)


# What a sink offers beside `tell`


def test_a_sink_is_opened_told_and_closed() -> None:
    sinks = Sinks()
    two(progressing).forward(1, watching=sinks)
    assert sinks.calls == ALL


def test_a_sink_is_closed_after_a_failure_too() -> None:
    sinks = Sinks()
    assert run(two(fails), sinks) == "the node's"
    assert sinks.calls == ["opens", "entering a", "tell ran a", "entering b", "tell failed b", "tell broke", "closed"]


def until(method: str) -> list[str]:
    return ALL[: next(place for place, call in enumerate(ALL) if call.startswith(method)) + 1]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("method", ["opens", "entering", "tell", "progress", "closed"])
def test_a_sink_that_raises_is_warned_about_once_and_closed(method: str, alone: bool, threads: int) -> None:
    bad, good = Sinks(method), Sinks()
    seen: Facts = []
    with pytest.warns(WatcherWarning, match="the watcher of type Sinks raised") as warned:
        assert two(progressing).forward(1, watching=bad if alone else [bad, good, seen.append], threads=threads) == 1
    assert len(warned) == 1
    assert bad.calls == (until(method) if method in ("opens", "closed") else [*until(method), "closed"])
    assert alone or (good.calls == ALL and short(seen) == OK)


RAISED_BY = {
    "opens": ["opens"],
    "entering": ["opens", "entering a", "tell broke", "closed"],
    "tell": ["opens", "entering a", "tell ran a", "tell broke", "closed"],
    "progress": [*ALL[:5], "tell failed b", "tell broke", "closed"],
    "closed": ALL,
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("method", RAISED_BY)
def test_an_interrupt_of_a_sink_passes_through_and_every_sink_is_closed(method: str, kind: Any, threads: int) -> None:
    first, bad, last = Sinks(), Sinks(method, kind("stop")), Sinks()
    with pytest.raises(kind) as raised:
        two(progressing).forward(1, watching=[first, bad, last], threads=threads)
    assert raised.value is bad.error
    assert bad.calls == RAISED_BY[method]
    if method == "opens":
        assert first.calls == ["opens", "closed"]
        assert last.calls == []
    else:
        assert first.calls[-1] == last.calls[-1] == "closed"
        assert [c for c in first.calls if "tell" in c] == [c for c in RAISED_BY[method] if "tell" in c]


def test_what_opens_refuses_with_an_error_of_ours_is_raised_before_anything_runs() -> None:
    first, bad = Sinks(), Sinks("opens", SomatizeError("the recorder is closed"))
    ran: list[int] = []
    with pytest.raises(SomatizeError, match="the recorder is closed"):
        Graph.somatize(ran.append).forward(watching=[first, bad])
    assert ran == []
    assert first.calls == ["opens", "closed"]


@pytest.mark.parametrize("given", [None, object()])
def test_an_opener_that_gives_no_sink_is_warned_about(given: Any) -> None:
    class Opens:
        def opens(self, graph: Any) -> Any:
            return given

    seen: Facts = []
    with pytest.warns(WatcherWarning, match="has no attribute 'tell'"):
        assert two().forward(1, watching=[Opens(), seen.append]) == 1
    assert short(seen) == OK

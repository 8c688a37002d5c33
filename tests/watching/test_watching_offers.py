"""What a sink may offer beside `tell`, and what happens when that raises."""

from __future__ import annotations

from typing import Any

import pytest

from somatize import Graph, node
from somatize.errors import SomatizeError, WatcherWarning
from tests.small_graphs import Facts
from tests.watchers import ALL, OK, Sinks, fails, progressing, short, two


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


class Asking:
    """A sink that asks which node runs, and the nodes it would have been told of."""

    def __init__(self) -> None:
        self.place: Any = None
        self.entered: list[str] = []
        self.asked: list[str | None] = []

    def opens(self, graph: Graph) -> Asking:
        return self

    def entering(self, node: str, host: str | None = None) -> None:
        self.entered.append(node)

    def tell(self, fact: Any) -> None:
        self.asked.append(self.place and self.place.node)

    def closed(self) -> None:
        self.asked.append(self.place and self.place.node)


@pytest.mark.parametrize("alone", [True, False])
def test_a_sink_with_a_place_asks_which_node_runs_and_is_told_of_none_that_begins(alone: bool) -> None:
    asking, sinks = Asking(), Sinks()
    inside = []
    both = Graph.somatize(node(lambda x: inside.append(asking.place.node) or x).named("a") >> node(repr).named("b"))
    both.forward(1, watching=asking if alone else [asking, sinks])
    assert (inside, asking.entered) == (["a"], [])
    assert asking.asked == [None] * 4  # each `ran`, `finished`, and closed: between nodes
    assert alone or [call for call in sinks.calls if call.startswith("entering")] == ["entering a", "entering b"]


def test_where_nodes_run_side_by_side_it_is_told_of_each_that_begins() -> None:
    asking = Asking()
    Graph.somatize(node(abs).named("a") | node(repr).named("b")).forward(1, watching=asking, threads=2)
    assert (sorted(asking.entered), asking.place) == (["a", "b"], None)

"""The graph of a run, drawn from the record: time, runs, recalls and failures of each node on its box."""

from __future__ import annotations

import re
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import FigureError, RecordError, UnknownRun, WhichRun
from somatize.record import about, graph

RED = "#e03131"


def drawn(figure: Any) -> dict[str, list[str]]:
    """By the name on a box, the lines below it."""
    texts = [text for trace in figure.data if trace.mode == "markers+text" for text in trace.text]
    return {lines[0]: lines[1:] for lines in (re.sub(r"</?span[^>]*>", "", text).split("<br>") for text in texts)}


def hover(figure: Any, name: str) -> list[str]:
    texts = [text for trace in figure.data if trace.mode == "markers+text" for text in trace.hovertext]
    return next(text.split("<br>") for text in texts if text.startswith(f"<b>{name}</b>"))


def subtitle(figure: Any) -> str:
    return str(figure.layout.title.subtitle.text.replace("<br>", " "))


DECLARED = Graph.somatize(node(abs).named("read") >> (node(repr).named("left") | node(len).named("right")))
TOLD = [
    {"fact": "ran", "node": "read", "began_us": "0", "took_us": "3000"},
    {"fact": "failed", "node": "left", "began_us": "3000", "took_us": "500", "why": "ValueError: x", "host": "w1"},
    {"fact": "broke", "took_us": "4000", "why": "ValueError: x"},
    {"fact": "recalled", "node": "read", "bytes": "9", "took_us": "20"},
    {"fact": "ran", "node": "left", "began_us": "20", "took_us": "1000"},
    {"fact": "finished", "took_us": "1200"},
]


@pytest.fixture
def told(store: Store) -> Store:
    """A run of two forwards that were told by hand, of a graph that is on record."""
    with Recorder(store, "r") as recorder:
        recorder.opens(DECLARED).closed()  # its graph is noted; a forward of it without facts
        for fact in TOLD:
            recorder(fact)
    return store


def test_boxes_say_how_long_how_often_and_how_turns_ended(told: Store) -> None:
    figure = graph(told, "r", theme="light")
    assert drawn(figure) == {
        "read": ["3.02 ms · 1 × 3 ms", "1 recalled"],
        "left": ["1.5 ms · 1 × 1 ms", "1 failed"],
        "right": ["no turn"],
    }
    assert figure.layout.title.text == "run r: 3 nodes"
    assert "5.2 ms in all; 4.52 ms in nodes 2 edges" in subtitle(figure)
    said = hover(figure, "left")
    assert said[1:5] == [
        "repr",
        "1.5 ms in all, 33.2% of all nodes' time",
        "ran 1 time, 1 ms each, here",
        "failed 1 time, 500 µs each, w1",
    ]
    assert hover(figure, "right")[1:3] == ["len", "fed by read"]


def test_what_failed_has_a_red_outline(told: Store) -> None:
    figure = graph(told, "r", theme="light")
    boxes = [shape.line.color for shape in figure.layout.shapes if shape.line.width == 1.2]
    assert sorted(boxes) == ["#595959", "#595959", RED]


def test_boxes_hold_their_lines(told: Store) -> None:
    def heights(figure: Any) -> set[float]:
        return {shape.y1 - shape.y0 for shape in figure.layout.shapes if shape.line.width == 1.2}

    assert heights(DECLARED.figure()) == {26.0}
    assert heights(graph(told, "r")) == {56.0}


def test_a_graph_at_hand_shows_the_same(told: Store) -> None:
    assert DECLARED.figure(store=told, run="r").layout == graph(told, "r").layout
    assert drawn(DECLARED.figure("dark", store=str(told.path))) == drawn(graph(told, theme="dark"))
    with pytest.raises(FigureError, match="say the store"):
        DECLARED.figure(run="r")
    with pytest.raises(UnknownRun):
        DECLARED.figure(store=told, run="s")


def test_of_several_graphs_the_last_is_drawn_and_the_subtitle_says_so(store: Store) -> None:
    first = Graph.somatize(node(abs).named("a"))
    second = Graph.somatize(node(abs).named("a") >> node(abs).named("b"))
    for ran in ([first], [second, first], [second]):
        with Recorder(store, "r") as recorder:
            for one in ran:
                one.forward(1, watching=recorder)
    assert [[one["id"] for one in described["nodes"]] for described in about(store, "r")["graphs"]] == [
        ["a"],
        ["a", "b"],
    ]
    figure = graph(store)
    assert list(drawn(figure)) == ["a", "b"]
    assert "the last of 2 graphs" in subtitle(figure)
    figure = graph(store, which=0)
    assert list(drawn(figure)) == ["a"]
    assert "4 × " in drawn(figure)["a"][0]
    assert "graph 1 of 2 of this run" in subtitle(figure)
    with pytest.raises(RecordError, match="has 2 graphs on record; which=2 is none"):
        graph(store, which=2)


def test_a_run_without_a_graph_and_a_store_of_several_runs(store: Store) -> None:
    with Recorder(store, "r") as recorder:
        recorder({"fact": "finished", "took_us": "5"})
    with pytest.raises(RecordError, match="run 'r' has 0 graphs on record"):
        graph(store)
    Recorder(store, "s").close()
    with pytest.raises(WhichRun):
        graph(store)


def test_a_large_graph_is_an_overview_of_the_run(store: Store) -> None:
    large = Graph()
    for n in range(301):
        large.node(f"n{n}", abs)
    with Recorder(store, "r") as recorder:
        large.forward(1, watching=recorder)
    assert graph(store).layout.title.text == "run r: 301 nodes, an overview"
    assert "1 forward, " in subtitle(graph(store))

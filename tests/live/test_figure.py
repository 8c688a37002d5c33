"""For the same facts, a Live's figure is that of `progress` but for the title."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Live, Recorder, Store
from somatize.record import facts, forwards, progress

ESTIMATE = "loss, smoothed (one-sided estimate)"


def run(graph: Graph, values: list[Any], watchers: list[Any]) -> None:
    for value in values:
        try:
            graph.forward(value, watching=watchers)
        except ValueError:
            pass
        if isinstance(value, float):
            for watcher in watchers:
                watcher({"fact": "loss", "value": value})


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.5],
        [1 / (n + 1) for n in range(30)],
        [float("nan"), 1.0, float("inf"), None, 2.0, ValueError("five [/b] <i>"), 3.0],
        [float("nan")] * 5,
        [ValueError("all")] * 3,
        [1.0] * 20,
    ],
    ids=["none", "one", "thirty", "odd", "nan", "broken", "constant"],
)
def test_live_and_progress_draw_the_same(both: Any, graph: Graph, untitled: Any, values: list[Any]) -> None:
    run(graph, values, both.watchers)
    if not values:
        assert untitled(both.live.figure()) == untitled(Live().figure())
        return
    assert untitled(both.live.figure()) == untitled(progress(both.store, "r"))
    assert both.live.figure().layout.title.text == "seen"


def test_a_long_run_is_condensed_alike(tmp_path: Path, graph: Graph, untitled: Any) -> None:
    store = Store(tmp_path / "s")
    with Recorder(store, "r", summarising=["loss"]) as recorder:
        live = Live()
        run(graph, [1 / (n + 1) + n % 13 for n in range(5000)], [recorder, live])
    assert "condensed" in str(live.figure().layout.title.subtitle.text)
    assert [one for one in untitled(live.figure())["data"] if one["name"] != ESTIMATE] == untitled(
        progress(store, "r")
    )["data"]


def test_the_last_half_window_of_a_live_mean_is_a_dotted_estimate(graph: Graph) -> None:
    live = Live()
    run(graph, [*(float(n % 2) for n in range(90)), *[None] * 10], [live])
    smoothed, estimate = (one for one in live.figure().data if "smoothed" in str(one.name))
    assert estimate.name == ESTIMATE
    assert (estimate.line.dash, smoothed.line.dash, estimate.showlegend) == ("dot", "solid", True)
    assert "one-sided estimate" in estimate.hovertemplate
    assert (smoothed.x[0], smoothed.x[-1]) == (2, 87), "a window of 5 of the 90 that were said"
    assert (estimate.x, estimate.y) == ((87, 88, 89), (smoothed.y[-1], 0.5, pytest.approx(2 / 3)))


def test_a_run_played_back_gives_its_figure(both: Any, graph: Graph, untitled: Any) -> None:
    run(graph, [1.0, 2.0, ValueError("three"), 4.0], both.watchers)
    again = Live()
    for row in forwards(both.store, "r"):
        for fact in facts(both.store, "r", row["forward"]):
            again(fact)
    assert untitled(again.figure()) == untitled(progress(both.store, "r"))


def test_any_said_number_and_several_are_drawn_alike(tmp_path: Path, graph: Graph, untitled: Any) -> None:
    names = ["loss", "accuracy", "ran.took_us", "took_us", "nodes"]
    store = Store(tmp_path / "s")
    with Recorder(store, "r") as recorder:
        live = Live(of=names, summarising=())
        for number in range(30):
            graph.forward(number, watching=[recorder, live])
            for watcher in (recorder, live):
                watcher({"fact": "loss", "value": 1 / (number + 1)})
                watcher({"fact": "accuracy", "value": number})
    assert untitled(live.figure()) == untitled(progress(store, "r", of=names))


def test_a_theme_is_passed_on(graph: Graph) -> None:
    live = Live()
    graph.forward(1, watching=live)
    assert live.figure(theme="dark").layout.paper_bgcolor != live.figure().layout.paper_bgcolor


def test_the_text_that_is_shown_is_one_that_still_counts(both: Any, graph: Graph, untitled: Any) -> None:
    for number, told in enumerate((["early", 1.0], ["late", "words"], [2.0])):
        graph.forward(number, watching=both.watchers)
        for value in told:
            both.say({"fact": "loss", "value": value})
    both.recorder.close()  # from then on what was said late is put right in the column
    figure = progress(both.store, "r")
    assert "1 text that is no number, such as 'words'" in figure.layout.title.subtitle.text.replace("<br>", " ")
    assert untitled(both.live.figure()) == untitled(figure)

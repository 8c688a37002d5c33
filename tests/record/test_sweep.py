"""`sweep`: a number of many runs over the configuration keys that differ, from totals alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import BadFilter, FigureError, RecordError, UnknownName
from somatize.record import sweep
from somatize.store.run_reader import RunLines

G = Graph.somatize(node(lambda x: x).named("a"))
BLUE, ORANGE, RED = "#0070fa", "#db7c00", "#e03131"


def record(store: Store, run: str, config: dict[str, Any], *values: float, why: str = "") -> None:
    recorder = Recorder(store, run, ["acc"], config=config)
    for value in values:
        G.forward(value, watching=recorder)
        recorder({"fact": "acc", "value": value})
    if why:
        recorder.end("failed", why)
    recorder.close()


@pytest.fixture
def several(store: Store) -> Store:
    record(store, "a", {"optim": {"lr": 0.001}, "name": "sgd", "deep": True, "seed": 1, "clip": None}, 0.1, 0.5)
    record(store, "b", {"optim": {"lr": 0.01}, "name": "adam", "deep": False, "seed": 1, "clip": 1.0}, 0.9, 0.7)
    record(store, "c", {"optim": {"lr": 0.1}, "name": "adam", "deep": True, "seed": 1}, 0.6, why="too large")
    record(store, "d", {"optim": {"lr": 0.1}, "name": "sgd", "deep": True, "seed": 1, "clip": 2}, math.nan)
    return store


def subtitle(figure: Any) -> str:
    return str(figure.layout.title.subtitle.text.replace("<br>", " "))


def lines(figure: Any) -> dict[str, list[tuple[float, ...]]]:
    """By run the places that its line goes through."""
    found: dict[str, list[Any]] = {}
    for trace in figure.data:
        if trace.mode.startswith("lines"):
            for x, y, words in zip(trace.x, trace.y, trace.hovertext, strict=True):
                if x is not None:
                    found.setdefault(words.split("</b>")[0][3:], []).append(round(y, 3))
    return found


def ticks(figure: Any, axis: int) -> dict[str, float]:
    return {note.text: round(note.y, 3) for note in figure.layout.annotations if note.yref == "y" and note.x == axis}


def test_a_line_of_a_run_goes_through_its_value_of_each_key_to_its_number(several: Store) -> None:
    figure = sweep(several, "acc", mode="max")
    assert list(figure.layout.xaxis.ticktext) == ["optim.lr", "name", "deep", "clip", "acc"]
    assert "seed" not in figure.to_json(), "a key that all have is left out"
    assert lines(figure) == {
        "a": [0.0, 1.0, 1.0, -0.13, 0.0],
        "b": [0.5, 0.0, 0.0, 0.0, 1.0],
        "c": [1.0, 0.0, 1.0, -0.26, 0.25],
        "d": [1.0, 1.0, 1.0, 1.0, -0.13],
    }
    assert ticks(figure, 0) == {"0.001": 0.0, "0.01": 0.5, "0.1": 1.0}, "decades are evenly apart"
    assert ticks(figure, 1) == {"adam": 0.0, "sgd": 1.0}
    assert ticks(figure, 2) == {"False": 0.0, "True": 1.0}
    assert ticks(figure, 3) == {"1": 0.0, "2": 1.0, "None": -0.13, "not set": -0.26}
    assert ticks(figure, 4) == {"0.5": 0.0, "0.6": 0.25, "0.9": 1.0, "no value": -0.13}
    assert figure.layout.title.text == "the largest acc of 4 runs"
    assert subtitle(figure) == (
        "best: b with 0.9; blue is low, orange is high; 1 failed or killed, in red; 1 without a finite value"
    )


def test_a_small_plot_per_key_has_a_point_per_run(several: Store) -> None:
    figure = sweep(several, "acc", mode="max", theme="light")
    small = [trace for trace in figure.data if trace.mode == "markers"]
    assert [(trace.name, trace.xaxis, trace.yaxis) for trace in small] == [
        *(("optim.lr", "x2", "y2"), ("name", "x3", "y3"), ("deep", "x4", "y4"), ("clip", "x5", "y5")),
    ]
    assert small[0].x == pytest.approx((0.0, 0.5, 1.0, 1.0))
    assert small[0].y == pytest.approx((0.0, 1.0, 0.25, -0.13))
    assert small[0].marker.symbol == ("circle", "star", "x", "circle-open")
    assert small[0].marker.color == (BLUE, "#222222", RED, "#595959")
    assert small[0].hovertext[2] == "<b>c</b><br>acc 0.6<br>optim.lr 0.1<br>failed: too large"
    assert small[3].hovertext[2].split("<br>")[2] == "clip not set"
    assert figure.layout.xaxis2.ticktext == ("0.001", "0.01", "0.1")


def test_the_best_is_bold_and_on_top_and_what_failed_is_red_and_dashed(several: Store) -> None:
    figure = sweep(several, "acc", mode="min")
    drawn = [trace for trace in figure.data if trace.mode == "lines"]
    assert [(trace.name, trace.line.dash, trace.line.width, trace.showlegend) for trace in drawn] == [
        ("runs", "solid", 1.6, False),
        ("failed or killed", "dash", 1.6, True),
        ("no value", "solid", 1.6, True),
        ("best: a", "solid", 3.5, True),
    ]
    assert drawn[1].line.color == RED
    assert drawn[0].line.color == ORANGE, "b has the highest"
    assert "best" not in subtitle(sweep(several, "acc")), "which is better is not said"
    assert sweep(several, "acc").layout.title.text == "the last acc of 4 runs"


def test_the_best_may_have_failed(several: Store) -> None:
    record(several, "e", {"optim": {"lr": 1.0}}, 0.95, why="no disk")
    figure = sweep(several, "acc", mode="max")
    best = next(trace for trace in figure.data if trace.name == "best: e")
    assert (best.line.color, best.line.dash, best.line.width) == (RED, "dash", 3.5)


@pytest.mark.parametrize(
    ("sizes", "places"),
    [
        ([1e308, -1e308], [1.0, 0.0]),
        ([5e-324 * n for n in range(9)], [n / 8 for n in range(9)]),
        ([2**62 + n for n in range(3)], [0.5, 0.5, 0.5]),  # equal as floats
    ],
)
def test_the_largest_and_smallest_numbers_have_places(store: Store, sizes: list[float], places: list[float]) -> None:
    for n, size in enumerate(sizes):
        record(store, f"{n}", {"size": size}, size)
    found = lines(sweep(store, "acc", mode="max"))
    assert [found[f"{n}"][0] for n in range(len(sizes))] == pytest.approx(places, abs=1e-3)


def test_only_the_runs_that_are_meant_and_only_the_keys_in_which_they_differ(several: Store) -> None:
    figure = sweep(several, "acc", where="config.deep == true and config.name == sgd")
    assert list(figure.layout.xaxis.ticktext) == ["optim.lr", "clip", "acc"]
    assert set(lines(figure)) == {"a", "d"}


def test_numbers_that_are_even_have_a_linear_axis_with_round_ticks(store: Store) -> None:
    for n in range(21):
        record(store, f"{n}", {"drop": n / 40, "size": 2**n}, n)
    figure = sweep(store, "acc")
    assert ticks(figure, 0) == {"0": 0.0, "0.1": 0.2, "0.2": 0.4, "0.3": 0.6, "0.4": 0.8, "0.5": 1.0}
    assert [places[1] for places in lines(figure).values()] == pytest.approx([n / 20 for n in range(21)])


def test_texts_that_nearly_all_differ_and_keys_beyond_twelve_are_named_and_not_drawn(store: Store) -> None:
    for n in range(14):
        record(store, f"{n}", {"out": f"runs/{n}", **{f"k{key:02}": n for key in range(14)}}, n)
    figure = sweep(store, "acc")
    assert list(figure.layout.xaxis.ticktext) == [*(f"k{key:02}" for key in range(12)), "acc"]
    assert subtitle(figure).endswith("not drawn: out (14 values), k12, k13")


def test_what_all_said_is_no_number(store: Store) -> None:
    record(store, "a", {"lr": 1}, math.nan)
    record(store, "b", {"lr": 2}, math.inf)
    figure = sweep(store, "acc", mode="max")
    assert lines(figure) == {"a": [0.0, -0.13], "b": [1.0, -0.13]}
    assert subtitle(figure) == "blue is low, orange is high; 2 without a finite value"


def test_runs_with_equal_configurations(store: Store) -> None:
    record(store, "a", {"lr": 1}, 1.0)
    record(store, "b", {"lr": 1.0}, 2.0)
    figure = sweep(store, "acc")
    assert figure.layout.annotations[0].text == "no key of the configuration differs between<br>these runs"
    assert figure.data[0].mode == "lines+markers", "a line of one point would not be seen"


def test_names_are_shown_as_they_are(store: Store) -> None:
    record(store, "<b>", {"<i>": "$x$"}, 1.0)
    record(store, "c", {"<i>": "%{y}"}, 2.0)
    figure = sweep(store, "acc", mode="max")
    assert figure.layout.xaxis.ticktext[0] == "&lt;i&gt;"
    assert set(ticks(figure, 0)) == {"&#36;x&#36;", "&#37;&#123;y}"}
    assert figure.data[0].hovertext[0] == "<b>&lt;b&gt;</b><br>acc 1"


def test_no_record_is_opened(several: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a record was opened")

    for name in ("blocks", "facts", "packed", "bodies"):
        monkeypatch.setattr(RunLines, name, refuse)
    assert len(lines(sweep(several, "acc", mode="max"))) == 4


def test_refusals(several: Store) -> None:
    with pytest.raises(UnknownName, match="no 'acd' was said in any of 4 runs; did you mean 'acc'"):
        sweep(several, "acd")
    with pytest.raises(UnknownName, match="in any of 0 runs"):
        sweep(several, "acc", where="run == nobody")
    with pytest.raises(RecordError, match="mode='best'"):
        sweep(several, "acc", mode="best")
    with pytest.raises(BadFilter):
        sweep(several, "acc", where="run =")
    with pytest.raises(FigureError, match="theme='blue'"):
        sweep(several, "acc", theme="blue")

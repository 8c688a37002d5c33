"""C030: a million points become a few thousand that look the same. Times are in benchmarks/figures.py."""

import math
from array import array

import pytest

from somatize import Graph, Recorder, node
from somatize.record import curve, progress
from somatize.record.progress_figure import Style, progress_picture
from somatize.record.run_columns import BROKE, GAP, LOST, NAN, OK, Columns
from somatize.record.traces import Strokes

MILLION = 1_000_000


@pytest.fixture(scope="module")
def million():
    made = Columns.of("long", ["loss"])
    made.forwards = array("q", range(MILLION))
    made.states = bytearray([OK]) * MILLION
    made.took_us = array("d", [900.0]) * MILLION
    made.took_us[123_456] = 5e6
    ramp = array("d", [1.0, 2.0, 1.5, 0.5]) * (MILLION // 4)
    (loss,) = made.series
    loss.extend(ramp)
    loss.put(777_777, "99.5")
    loss.put(5, "nan")
    for row in (250_000, 999_000):
        made.states[row] = BROKE
    made.states[600_000] = LOST
    made.took_us[600_000] = GAP
    return made


def test_c030_few_points_that_keep_every_extreme_and_every_break(million):
    picture = progress_picture([million], title="run long")
    loss, smoothed, took, broke = picture.data
    assert [one["name"] for one in picture.data] == ["loss", "loss, smoothed", "took", "broke"]
    assert 1000 < len(loss["x"]) < 4000
    assert len(smoothed["x"]) < 4000
    assert len(took["x"]) < 4000
    at = dict(zip(loss["x"], loss["y"], strict=True))
    assert (at[0], at[777_777], at[999_999]) == (1.0, 99.5, 0.5)
    assert at[5] is None, "a gap stays a gap"
    assert dict(zip(took["x"], took["y"], strict=True))[123_456] == 5.0
    assert None in took["y"], "nobody knows how long the lost one took"
    assert broke["x"] == [250_000, 600_000, 999_000]
    assert loss["x"] == sorted(loss["x"])
    assert all(0.5 <= y <= 99.5 for y in smoothed["y"] if y is not None)


def test_c030_the_figure_says_that_it_is_condensed(million):
    words = progress_picture([million]).layout["title"]["subtitle"]["text"].replace("<br>", " ")
    assert "1,000,000 forwards, 2 broke, 1 lost" in words
    assert "condensed: up to 2,201 of" in words
    assert "1,000,000 points a line; every extreme and every break is kept" in words
    assert "1 NaN (first in forward 5)" in words


def test_c030_twenty_series_are_a_few_megabytes(million):
    twenty = Columns(million.run, million.forwards, million.states, million.took_us)
    twenty.series = million.series * 20
    picture = progress_picture([twenty], Style(smooth=0))
    assert sum(len(one["x"]) for one in picture.data) < 20_000
    assert len(str(picture)) < 3_000_000


def test_many_breaks_are_evenly_thinned():
    made = Columns.of("r", ["loss"])
    made.forwards, made.states = array("q", range(50_000)), bytearray([BROKE]) * 50_000
    made.took_us = array("d", [5.0]) * 50_000
    made.series[0].skip(50_000)
    picture = progress_picture([made])
    broke = picture.data[-1]
    assert f"every extreme is kept, {len(broke['x']):,} of 50,000 breaks are marked" in (
        picture.layout["title"]["subtitle"]["text"].replace("<br>", " ")
    )
    assert 3000 < len(broke["x"]) <= 4000
    assert Strokes(made, 10).breaks == list(range(50_000))


def test_a_thousand_segments_are_never_joined():
    made = Columns.of("r", ["loss"])
    made.forwards, made.states = array("q", range(20_000)), bytearray([OK]) * 20_000
    made.took_us, made.writers = array("d", [5.0]) * 20_000, array("q", [n // 20 for n in range(20_000)])
    made.series[0].extend(array("d", map(float, range(20_000))))
    picture = progress_picture([made])
    loss = picture.data[0]
    assert loss["x"].count(None) == 999
    joined = [
        (a, b) for a, b in zip(loss["x"], loss["x"][1:], strict=False) if None not in (a, b) and a // 20 != b // 20
    ]
    assert joined == []
    assert len(picture.layout["shapes"]) == 30


def test_a_column_takes_what_was_said_last():
    made = Columns.of("r", ["loss"])
    (loss,) = made.series
    for text in ("1.0", None, "nan", "words", "-inf"):
        loss.append(text)
    assert list(loss.kinds) == [1, 0, NAN, 5, 4]
    assert [value for value in loss.values if value == value] == [1.0]
    assert loss.words == "words"
    loss.put(3, "7")
    assert (loss.values[3], loss.kinds[3]) == (7.0, 1)
    loss.extend(array("d", [math.inf, 2.0]))
    assert (list(loss.kinds[5:]), loss.values[6]) == ([3, 1], 2.0)


def test_a_zoomed_range_is_read_again(store):
    graph = Graph.somatize(node(lambda x: x))
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        for n in range(6000):
            graph.forward(n, watching=recorder)
            recorder({"fact": "loss", "value": float(n % 7)})
    widget = progress(store, widget=True)
    whole = widget.data[0].x
    assert len(whole) < 6000
    assert "condensed" in widget.layout.title.subtitle.text
    widget.layout.xaxis.range = [3000, 3040]
    assert widget.data[0].x == tuple(range(2999, 3042))
    assert widget.data[0].y == tuple(float(n % 7) for n in range(2999, 3042))
    assert widget.layout.title.subtitle.text == "43 forwards (2,999 to 3,041)"
    took = [us for n, us in curve(store, of="took_us") if 2999 <= n <= 3041]
    size = 1 if "took, µs" in widget.layout.annotations[1].text else 1000
    assert [us * size for us in widget.data[2].y] == pytest.approx(took), "in the unit its label says"
    widget.layout.xaxis.range = [-130, 6130]
    assert widget.data[0].x == whole
    assert len(curve(store)) == 6000


def test_a_zoomed_range_waits_for_the_loop_where_there_is_one(store):
    import asyncio

    graph = Graph.somatize(node(lambda x: x))
    with Recorder(store, run="r") as recorder:
        for n in range(30):
            graph.forward(n, watching=recorder)
    widget = progress(store, of="nodes", widget=True)

    async def zoom():
        for high in range(10, 20):
            widget.layout.xaxis.range = [5, high]
        before = len(widget.data[0].x)
        for _ in range(200):
            await asyncio.sleep(0.02)
            if len(widget.data[0].x) != before:
                break
        return before, widget.data[0].x

    assert asyncio.run(zoom()) == (30, tuple(range(4, 21)))

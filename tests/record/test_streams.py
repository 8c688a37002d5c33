"""What streams say, such as throughput, is drawn as a line for each stream."""

import math

import pytest

from somatize import Graph, Live, Recorder, Store, node
from somatize.record import progress
from somatize.record.column_reader import ForwardRange, columns_of
from somatize.record.progress_figure import progress_picture
from somatize.record.run_columns import MOST, alike, keys_of

RATE = "throughput.samples_per_s"
SAID = [
    [],
    [("train", 4.0)],
    [("valid", 1.0), ("train", 5.0)],
    [],
    [("valid", 2.0), ("valid", 3.0)],
    [("train", math.nan)],
    [("train", 6.0)],
]


def tell(watchers, said):
    graph = Graph.somatize(node(lambda value: value))
    for number, told in enumerate(said):
        graph.forward(number, watching=watchers)
        for stream, rate in told:
            for watcher in watchers:
                watcher({"fact": "throughput", "stream": stream, "samples_per_s": rate, "batches": number})


def lines(figure):
    return {one.name: (one.x, one.y) for one in figure.data if one.name.startswith(("throughput", "a: th", "b: th"))}


@pytest.mark.parametrize("summarising", [(), (RATE,)])
def test_a_line_for_each_stream_joined_from_one_saying_to_the_next(tmp_path, summarising):
    with Store(tmp_path / "s") as store:
        live = Live(of=[RATE, "loss"], summarising=[RATE])
        with Recorder(store, run="r", summarising=list(summarising)) as recorder:
            tell([recorder, live], SAID)
            if summarising:  # what is not committed, and what is, read alike
                before = lines(progress(store, of=RATE, smooth=0))
        figure = progress(store, of=[RATE, "loss"], smooth=0)
        assert lines(figure) == {
            f"{RATE} of train": ((1, 2, 5, 6), (4.0, 5.0, None, 6.0)),
            f"{RATE} of valid": ((2, 4), (1.0, 3.0)),
        }
        if summarising:
            assert before == lines(figure)
        assert [one.name for one in figure.data] == [
            f"{RATE} of train",
            f"{RATE} of valid",
            "loss",
            "took",
            "broke",
        ]
        assert [one.yaxis for one in figure.data] == ["y", "y", "y2", "y3", "y4"], "streams share a panel"
        assert len({one.line.color for one in figure.data[:2]}) == 2
        assert all(one.showlegend for one in figure.data[:2])
        assert figure.data[0].hovertemplate == f"%{{y:.6~g}}<extra>{RATE} of train</extra>"
        assert f"{RATE} of train: 1 NaN (first in forward 5)" in figure.layout.title.subtitle.text.replace("<br>", " ")
        drawn, seen = progress(store, of=[RATE, "loss"]).to_dict(), live.figure().to_dict()
        del drawn["layout"]["title"]["text"], seen["layout"]["title"]["text"]
        assert drawn == seen
        assert [row[RATE] for row in live.rows] == [None, "4.0", "5.0", None, "3.0", "nan", "6.0"]


def test_the_mean_is_over_what_a_stream_said(tmp_path):
    with Store(tmp_path / "s") as store:
        with Recorder(store, run="r") as recorder:
            tell([recorder], [[("a", 0.0)], [], [("a", 3.0)], [("b", 9.0)], [("a", 9.0)], [("a", 3.0)]])
        figure = progress(store, of=RATE, smooth=3)
        assert lines(figure)[f"{RATE} of a, smoothed"] == ((2, 4), (4.0, 5.0))


def test_a_resumed_run_is_not_joined(tmp_path):
    with Store(tmp_path / "s") as store:
        for _ in range(2):
            with Recorder(store, run="r") as recorder:
                tell([recorder], [[], [("a", 1.0)], [("a", 2.0)]])
        assert lines(progress(store, of=RATE, smooth=0)) == {
            f"{RATE} of a": ((1, 2, None, 4, 5), (1.0, 2.0, None, 1.0, 2.0))
        }


def test_several_runs_have_a_hue_each_and_a_stroke_for_each_stream(tmp_path):
    with Store(tmp_path / "s") as store:
        for run, said in (("a", SAID), ("b", [[("train", 1.0)], [("<i>", 2.0)]])):
            with Recorder(store, run=run) as recorder:
                tell([recorder], said)
        figure = progress(store, ["a", "b"], of=RATE)
        assert lines(figure)[f"b: {RATE} of &lt;i&gt;"] == ((1,), (2.0,))
        looks = {one.name: (one.line.color, one.line.dash) for one in figure.data if "smoothed" in one.name}
        assert len({colour for colour, _ in looks.values()}) == 2
        assert looks[f"a: {RATE} of train, smoothed"][1] == looks[f"b: {RATE} of train, smoothed"][1] != "solid"
        assert [one.name for one in figure.data if one.showlegend] == [
            f"a: {RATE} of train, smoothed",
            f"a: {RATE} of valid, smoothed",
            f"b: {RATE} of &lt;i&gt;, smoothed",
            f"b: {RATE} of train, smoothed",
        ]


def test_one_that_was_never_said_and_one_without_a_name(tmp_path):
    with Store(tmp_path / "s") as store:
        with Recorder(store, run="r") as recorder:
            tell([recorder], [[], []])
            assert "no throughput.samples_per_s was said" in str(progress(store, of=RATE).layout.annotations)
            recorder({"fact": "throughput", "samples_per_s": 2})
        assert lines(progress(store, of=RATE, smooth=0)) == {RATE: ((1,), (2.0,))}


def test_a_stretch_has_the_lines_of_the_whole(tmp_path):
    with Store(tmp_path / "s") as store:
        with Recorder(store, run="r") as recorder:
            tell([recorder], SAID)
        whole = columns_of(store, "r", [RATE])
        alike([whole])
        part = columns_of(store, "r", [RATE], ForwardRange(5))
        alike([part], keys_of(whole))
        assert [one["name"] for one in progress_picture([part]).data] == [
            one["name"] for one in progress_picture([whole]).data
        ]


def test_streams_without_end_are_not_all_drawn(tmp_path):
    with Store(tmp_path / "s") as store:
        with Recorder(store, run="r") as recorder:
            tell([recorder], [[(f"epoch {number:03}", 1.0)] for number in range(MOST + 16)])
        figure = progress(store, of=RATE, smooth=0)
        assert len(lines(figure)) == MOST
        told = f"{RATE}: 24 of 40 streams are drawn"
        assert told in figure.layout.title.subtitle.text.replace("<br>", " ")
        zoomed = progress(store, of=RATE, widget=True)
        zoomed.layout.xaxis.range = [3, 9]
        assert told in zoomed.layout.title.subtitle.text.replace("<br>", " ")
        assert "forwards (2 to 10)" in zoomed.layout.title.subtitle.text


def test_a_stream_has_one_hue_in_all_panels(tmp_path):
    with Store(tmp_path / "s") as store:
        with Recorder(store, run="r") as recorder:
            tell([recorder], SAID)
        figure = progress(store, of=["loss", RATE, "throughput.batches"], smooth=0)
        hues = {one.name: one.line.color for one in figure.data if one.mode is not None and one.name != "broke"}
        assert hues[f"{RATE} of train"] == hues["throughput.batches of train"]
        assert hues[f"{RATE} of valid"] == hues["throughput.batches of valid"]
        assert len({*hues.values()}) == 4, "loss, train, valid, took"

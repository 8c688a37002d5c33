"""`progress`: exact traces for what was said, however oddly, and whatever happened."""

import json
import math
import time
import warnings
from array import array

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import FigureError, RecordWarning, UnknownRun, WhichRun
from somatize.figures.theme import RAW
from somatize.record import curve, progress
from somatize.record.column_reader import columns_of
from somatize.record.progress_figure import progress_picture
from somatize.record.run_columns import LOST, OK, Columns


def said(store, values, run="r", summarising=("loss",), kind="loss"):
    """A forward for each value; one whose value is an exception breaks by it, None says nothing."""

    def step(value):
        if isinstance(value, BaseException):
            raise value
        return value

    graph = Graph.somatize(node(step))
    with Recorder(store, run=run, summarising=list(summarising)) as recorder:
        for value in values:
            try:
                graph.forward(value, watching=recorder)
            except BaseException as error:
                if error is not value:
                    raise
            else:
                if value is not None:
                    recorder({"fact": kind, "value": value})


def words(figure):
    """Everything a person can read in a figure without pointing at it."""
    layout = figure.layout
    return " ".join(
        [
            layout.title.text,
            layout.title.subtitle.text.replace("<br>", " "),
            *(note.text.replace("<br>", " ") for note in layout.annotations),
        ]
    )


def trace(figure, name):
    (found,) = [one for one in figure.data if one.name == name]
    return found


NAMES = ["loss", "loss, smoothed", "took", "broke"]


def test_the_traces_of_one_run(store):
    values = [1.0, 0.5, 0.25, 0.125]
    said(store, values)
    figure = progress(store)
    assert [one.name for one in figure.data] == NAMES
    assert trace(figure, "loss").x == (0, 1, 2, 3)
    assert trace(figure, "loss").y == tuple(values)
    assert trace(figure, "loss, smoothed").y == tuple(values)
    assert [round(us * 1) for us in trace(figure, "took").y] == pytest.approx(
        [us / (1 if "µs" in words(figure) else 1000) for _, us in curve(store, of="took_us")], abs=1
    )
    assert trace(figure, "broke").x == ()
    assert trace(figure, "broke").showlegend is False
    assert figure.layout.title.text == "run r"
    assert all(one.line.shape == "linear" and one.connectgaps is False for one in figure.data[:3])


def test_the_panels_share_the_forwards(store):
    said(store, [1.0])
    figure = progress(store)
    assert {one.xaxis for one in figure.data} == {"x"}
    assert (trace(figure, "loss").yaxis, trace(figure, "took").yaxis) == ("y", "y2")
    assert figure.layout.yaxis2.domain[1] < figure.layout.yaxis.domain[0], "how long it took is below"


def test_it_is_the_same_whether_summarised_or_not(store, tmp_path):
    values = [1.0, math.nan, None, "words", 2.5, ValueError("x"), 3.0]
    said(store, values)
    with Store(tmp_path / "other") as other:
        said(other, values, summarising=())
        for name in ("loss", "loss, smoothed", "broke"):
            assert trace(progress(store), name).y == trace(progress(other), name).y
        assert progress(store).layout.title == progress(other).layout.title


def test_any_said_fact_or_several(store):
    said(store, [1.0, 2.0])
    with Recorder(store, run="r") as recorder:
        Graph.somatize(node(lambda x: x)).forward(1, watching=recorder)
        recorder({"fact": "lr", "value": 0.5, "warm": 3})
    figure = progress(store, of=["loss", "lr.warm", "nodes"])
    assert [one.name for one in figure.data] == [
        "loss",
        "loss, smoothed",
        "lr.warm",
        "lr.warm, smoothed",
        "nodes",  # the same each time: there is nothing to smooth
        "took",
        "broke",
    ]
    assert trace(figure, "lr.warm").y == (3.0,), "forwards in which it was not said are passed over"
    assert trace(figure, "nodes").y == (1.0, 1.0, None, 1.0)
    assert len({one.line.color for one in figure.data if one.name in ("loss", "lr.warm", "nodes")}) == 3


def test_what_is_not_said_of_a_forward_cuts_no_line_and_what_is_no_number_does(store):
    said(store, [1.0, None, 3.0, math.nan, 4.0])
    figure = progress(store)
    assert (trace(figure, "loss").x, trace(figure, "loss").y) == ((0, 2, 3, 4), (1.0, 3.0, None, 4.0))
    assert trace(figure, "loss, smoothed").y == (1.0, 3.0, None, 4.0)


def test_what_is_said_seldom_is_points_on_a_thin_line_that_a_resumption_cuts(store):
    graph = Graph.somatize(node(abs))
    for _ in range(2):
        with Recorder(store, run="r") as recorder:
            for step in range(20):
                graph.forward(1, watching=recorder)
                recorder({"fact": "loss", "value": float(step)})
                if step % 5 == 4:
                    for _ in range(2):  # the validation, which says no loss
                        graph.forward(1, watching=recorder)
                    recorder({"fact": "val", "loss": 10.0 + step})
    figure = progress(store, of=["loss", "val.loss"], smooth=None)
    loss, val = trace(figure, "loss"), trace(figure, "val.loss")
    assert val.y == (14.0, 19.0, 24.0, 29.0, None, 14.0, 19.0, 24.0, 29.0)
    assert (val.mode, val.marker.size, val.line.width) == ("lines+markers", 5, RAW)
    assert "val.loss, smoothed" not in {one.name for one in figure.data}
    assert loss.y == (*map(float, range(20)), None, *map(float, range(20)))


def titles(figure):
    return [note.text for note in figure.layout.annotations]


def trained(store, *names):
    graph = Graph.somatize(node(abs))
    for name in names:
        with Recorder(store, run=name) as recorder:
            for step in range(10):
                graph.forward(1, watching=recorder)
                recorder({"fact": "train_loss", "value": 2.0 + step})
                recorder({"fact": "val", "train_loss": 1.0, "loss": 3.0 + step, "accuracy": step / 10})


def test_training_and_validation_of_a_number_share_a_panel_and_a_colour(store):
    trained(store, "r")
    figure = progress(store, "r", of=["train_loss", "val.loss", "val.accuracy"], smooth=0)
    assert titles(figure) == ["train_loss, val.loss", "val.accuracy", "took, µs"]
    train, val, accuracy = (trace(figure, name) for name in ("train_loss", "val.loss", "val.accuracy"))
    assert (train.yaxis, train.line.color, train.line.dash) == (val.yaxis, val.line.color, "solid")
    assert val.line.dash == "dash"
    assert (accuracy.yaxis, accuracy.line.dash) == ("y2", "solid")
    assert accuracy.line.color != train.line.color


def test_panels_say_which_numbers_share_one(store):
    trained(store, "r")
    figure = progress(store, "r", panels=[["train_loss", "val.accuracy"], "val.loss"], smooth=0)
    assert titles(figure) == ["train_loss, val.accuracy", "val.loss", "took, µs"]
    assert {one.name: one.yaxis for one in figure.data} == {
        "train_loss": "y",
        "val.accuracy": "y",
        "val.loss": "y2",
        "took": "y3",
        "broke": "y4",
    }
    assert trace(figure, "train_loss").line.color != trace(figure, "val.accuracy").line.color
    with pytest.raises(FigureError, match="panels= names the numbers already"):
        progress(store, "r", of="val.loss", panels=[["train_loss"]])
    with pytest.raises(FigureError, match="panels="):
        progress(store, "r", panels=[[]])


def test_of_seven_runs_each_number_has_its_panel(store):
    names = [f"r{number}" for number in range(7)]
    trained(store, *names)
    assert titles(progress(store, names[:6], of=["train_loss", "val.loss"]))[0] == "train_loss, val.loss"
    assert titles(progress(store, names, of=["train_loss", "val.loss"]))[:2] == ["train_loss", "val.loss"]


def test_a_logarithmic_axis_that_was_asked_for_says_what_is_not_on_it(store):
    said(store, [1.0, 2.0, 4.0])
    axis = progress(store, log="y").layout.yaxis
    assert (axis.type, [10**end for end in axis.range]) == ("log", [pytest.approx(4**-0.06), pytest.approx(4**1.06)])
    said(store, [0.0, -1.0])
    assert titles(progress(store, log="y"))[0] == "loss, log scale; what is not above 0 is not on it"
    with pytest.raises(FigureError, match=r"log='x': it is 'y'"):
        progress(store, log="x")


def test_one_number_that_would_flatten_all_others_is_beyond_the_axis(store):
    said(store, [*(1.0 + step / 10 for step in range(10)), 1e6])
    figure = progress(store)
    assert titles(figure)[0] == "loss, 1e+06 is beyond the axis"
    assert figure.layout.yaxis.range == pytest.approx((1 - 0.9 * 0.06, 1.9 + 0.9 * 0.06))
    assert max(trace(figure, "loss").y) == 1e6
    said(store, [1e6])
    assert "beyond" not in titles(progress(store))[0], "two are no exception"


def test_a_mean_is_over_a_share_of_the_numbers(store):
    said(store, [float(number) for number in range(30)])
    assert (
        trace(progress(store, smooth=0.1), "loss, smoothed").y == trace(progress(store, smooth=3), "loss, smoothed").y
    )
    for wrong in (1.0, -0.5, math.nan):
        with pytest.raises(FigureError, match="a share of them below 1"):
            progress(store, smooth=wrong)


def test_the_subtitle_says_how_a_run_ended_and_where_its_configuration_changed(store):
    graph = Graph.somatize(node(abs))
    for lr in (0.1, 0.1, 0.01):
        with pytest.raises(KeyError), warnings.catch_warnings():
            warnings.simplefilter("ignore", RecordWarning)
            with Recorder(store, run="r", config={"lr": lr}) as recorder:
                graph.forward(1, watching=recorder)
                recorder({"fact": "loss", "value": 1.0})
                raise KeyError("gone")
    figure = progress(store)
    assert words(figure).startswith(
        "run r 3 forwards. the run failed: KeyError: 'gone'. resumed at forward 1, 2 (lr 0.1 -&gt; 0.01), where"
    )
    assert [(one.x0, one.line.width) for one in figure.layout.shapes] == [(0.5, 1), (1.5, 2)]


def test_the_best_runs_have_colours_and_the_pointer_says_what_is_particular(store):
    graph = Graph.somatize(node(abs))
    names = [f"r{number:02}" for number in range(26)]
    for number, name in enumerate(names):
        with Recorder(store, run=name, config={"lr": number, "seed": 1}) as recorder:
            graph.forward(1, watching=recorder)
            recorder({"fact": "loss", "value": 100.0 - number})
            recorder({"fact": "accuracy", "value": 100.0 - number})
    figure = progress(store, names, of="loss")
    assert [one.name for one in figure.data if one.name.endswith(": loss")][:3] == [
        "2 other runs: loss",
        "r25: loss",
        "r24: loss",
    ]
    assert trace(figure, "2 other runs: loss").customdata[0] == "r01: 99<br>lr 1"
    assert trace(figure, "r25: loss").hovertemplate.endswith("<extra>r25: loss<br>lr 25</extra>")
    assert figure.layout.hovermode == "closest"
    figure = progress(store, names, of="accuracy")
    assert "the 24 highest by accuracy have colours of their own" in words(figure)
    assert trace(figure, "2 other runs: accuracy").customdata[0].startswith("r24: ")


def test_points_of_grey_runs_are_drawn(store):
    graph = Graph.somatize(node(abs))
    names = [f"r{number}" for number in range(26)]
    for name in names:
        with Recorder(store, run=name) as recorder:
            for step in range(10):
                graph.forward(1, watching=recorder)
                if step % 5 == 4:
                    recorder({"fact": "val", "value": float(step)})
    figure = progress(store, run=names, of="val")
    (grey,) = [one for one in figure.data if one.name == "2 other runs: val"]
    assert (grey.mode, grey.marker.size) == ("lines+markers", 4)
    assert grey.y == (4.0, 9.0, None, 4.0, 9.0, None)
    own = [one for one in figure.data if one.name.endswith(": val") and one is not grey]
    assert (
        len({(one.line.color, one.line.dash, one.marker.symbol) for one in own})
        == len({(one.line.color, one.marker.symbol) for one in own})
        == 24
    )


def test_the_mean_is_centred_ends_half_a_window_before_the_ends_and_is_over_what_was_said(store):
    said(store, [0.0, 3.0, math.nan, 6.0, 9.0, 0.0])
    figure = progress(store, smooth=3)
    assert trace(figure, "loss, smoothed").x == (1, 2, 3, 4)
    assert trace(figure, "loss, smoothed").y == (3.0, None, 6.0, 5.0)
    assert trace(progress(store, smooth=2), "loss, smoothed").y == trace(figure, "loss, smoothed").y


def test_one_odd_value_at_an_end_moves_the_mean_by_its_share(store):
    said(store, [0.5] + [0.1, 0.2] * 174 + [8.5])
    smoothed = trace(progress(store), "loss, smoothed")
    assert (smoothed.x[0], smoothed.x[-1]) == (8, 341), "a window of 17 of 350"
    assert smoothed.y[-1] == pytest.approx((8 * 0.1 + 8 * 0.2 + 8.5) / 17)
    assert max(smoothed.y) < 0.65


def test_a_condensed_mean_ends_half_a_window_before_the_ends_too(store):
    columns = Columns.of("r", ["loss"])
    columns.forwards, columns.states = array("q", range(20_000)), bytearray([OK]) * 20_000
    columns.took_us = array("d", [5.0]) * 20_000
    columns.series[0].extend(array("d", [float(n % 10) for n in range(20_000)]))
    for gap in (3, 19_998):
        columns.series[0].put(gap, "nan")
    smoothed = progress_picture([columns]).data[1]
    assert (smoothed["x"][0], smoothed["x"][-1]) == (500, 19_499), "a gap is no part of a window"
    assert all(abs(y - 4.5) < 0.01 for y in smoothed["y"])


def test_a_window_wider_than_a_series_leaves_it_as_it_was_said(store):
    said(store, [3.0, 1.0, 2.0])
    loss, smoothed, *_ = progress(store, smooth=9).data
    assert (loss.y, loss.showlegend, smoothed.y, smoothed.showlegend) == ((3.0, 1.0, 2.0), True, (), False)
    assert loss.line.width == progress(store, smooth=0).data[0].line.width


def test_what_holds_its_values_is_smoothed_only_where_that_is_asked_for(store):
    said(store, [0.1] * 25 + [0.01] * 25, kind="lr")
    figure = progress(store, of="lr")
    assert [one.name for one in figure.data] == ["lr", "took", "broke"]
    assert (figure.data[0].y, figure.data[0].showlegend) == ((0.1,) * 25 + (0.01,) * 25, True)
    assert trace(progress(store, of="lr", smooth=5), "lr, smoothed").y[22] == pytest.approx(0.064)


def test_a_part_of_a_figure_has_the_means_of_the_whole():
    def ramp(numbers):
        columns = Columns.of("r", ["loss"])
        columns.forwards, columns.states = array("q", range(len(numbers))), bytearray([OK]) * len(numbers)
        columns.took_us = array("d", [5.0]) * len(numbers)
        columns.series[0].extend(array("d", numbers))
        return columns

    noisy, flat = [float(n % 3) for n in range(60)], [1.0] * 60
    for whole, part, count in ((noisy, flat, 4), (flat, noisy, 3)):
        picture = progress_picture([ramp(whole + whole)])
        assert len(progress_picture([ramp(part)], whole=picture).data) == len(picture.data) == count


def test_without_a_mean(store):
    said(store, [1.0, 2.0])
    assert [one.name for one in progress(store, smooth=0).data] == ["loss", "took", "broke"]


def test_every_forward_that_broke_is_marked_if_nothing_was_ever_said(store):
    said(store, [ValueError("expected [/s], got <b>"), KeyboardInterrupt(), ValueError("again")])
    figure = progress(store)
    broke = trace(figure, "broke")
    assert broke.x == (0, 1, 2)
    assert broke.showlegend is True
    assert broke.marker.color == "#e03131"
    assert [text.split("<br>")[0].split(" after ")[0] for text in broke.hovertext] == [
        "forward 0: broke",
        "forward 1: interrupted",
        "forward 2: broke",
    ]
    assert broke.hovertext[0].endswith("<br>ValueError: expected [/s], got &lt;b&gt;")
    assert None not in trace(figure, "took").y, "a broken forward took its time"
    assert "no loss was said" in words(figure)
    assert "3 forwards, 2 broke, 1 interrupted" in words(figure)


def test_red_is_for_what_broke_and_nothing_else(store):
    said(store, [1.0, ValueError("x")])
    data = json.loads(progress(store, of=["loss"] + [f"k{n}" for n in range(8)]).to_json())["data"]
    assert [one["name"] for one in data if "#e03131" in json.dumps(one)] == ["broke"]


def test_c001_nan_and_infinities(store):
    values = [1.0, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.0]
    said(store, values)
    figure = progress(store)
    assert trace(figure, "loss").y == (1.0, None, None, None, -0.0, 5e-324, 1.0)
    shown = words(figure)
    assert "1 NaN (first in forward 1)" in shown
    assert "1 inf (first in forward 2)" in shown
    assert "1 -inf (first in forward 3)" in shown
    assert [repr(value) for _, value in curve(store)] == [repr(value) for value in values]
    assert all(math.isfinite(bound) for bound in figure.layout.yaxis.range)


def test_c001_one_odd_value_hides_no_other_series_or_run(store):
    said(store, [math.nan] * 3, run="a")
    said(store, [1.0, 2.0], run="b")
    figure = progress(store, ["a", "b"])
    assert trace(figure, "a: loss").y == (None, None, None)
    assert trace(figure, "b: loss").y == (1.0, 2.0)
    assert "a: 3 forwards; loss: 3 NaN" in words(figure)


def test_c013_the_segments_of_a_resumed_run_are_not_joined(store):
    said(store, [float(step) for step in range(150)])
    said(store, [float(step) for step in range(100, 200)])
    assert [int(value) for _, value in curve(store)] == [*range(150), *range(100, 200)]
    figure = progress(store, smooth=5)
    for name in ("loss", "took"):
        one = trace(figure, name)
        assert one.x == (*range(150), None, *range(150, 250))
        assert one.y[150] is None
    smoothed = trace(figure, "loss, smoothed")
    assert smoothed.x == (*range(2, 148), None, *range(152, 248)), "no mean reaches over to another writer"
    assert smoothed.y == (*range(2, 148), None, *range(102, 198))
    assert "resumed at forward 150" in words(figure)
    (shape,) = figure.layout.shapes
    assert (shape.x0, shape.x1) == (149.5, 149.5)


def test_writers_at_the_same_time_are_a_line_each(store):
    graph = Graph.somatize(node(lambda x: x))
    with Recorder(store, run="r") as one, Recorder(store, run="r") as other:
        for n in range(6):
            recorder = (one, other)[n % 2]
            graph.forward(n, watching=recorder)
            recorder({"fact": "loss", "value": float(n)})
    figure = progress(store)
    assert trace(figure, "loss").x == (0, 2, 4, None, 1, 3, 5)
    assert "2 writers at once" in words(figure)


def test_a_number_that_was_never_written_down_is_lost_and_marked(store):
    said(store, [1.0, 2.0])
    columns = columns_of(store, "r", ["loss"])
    assert (list(columns.forwards), columns.states.count(LOST)) == ([0, 1], 0)


C029 = {
    "zero forwards": ([], (), "no forwards yet"),
    "one forward": ([0.25], (0.25,), "1 forward"),
    "nan, 1, nan": ([math.nan, 1.0, math.nan], (None, 1.0, None), "2 NaN (first in forward 0)"),
    "all NaN": ([math.nan] * 5, (None,) * 5, "loss was never a finite number: 5 NaN"),
    "all equal": ([3.0] * 5, (3.0,) * 5, "5 forwards"),
    "far apart": ([1e-300, 1e300], (1e-300, 1e300), "log scale"),
    "text": (["well", "better"], (None, None), "loss was never a finite number: 2 texts"),
    # Plotly cannot place these on a linear axis: it draws lines that leave the figure, or nothing at all.
    "the largest": ([1.7e308, -1.7e308], (1.7, -1.7), "loss, in 10<sup>308</sup>"),
    "the smallest": ([-2e-320, 2e-320], (-2e-320 / 1e-320, 2e-320 / 1e-320), "loss, in 10<sup>−320</sup>"),
    "the largest above zero": ([1.7e308, 1e308], (1.7e308, 1e308), "log scale"),
    "the smallest above zero": ([5e-324] * 3, (5e-324,) * 3, "log scale"),
}


@pytest.mark.parametrize("case", C029)
def test_c029_sensible_figures(store, case):
    values, drawn, words_shown = C029[case]
    said(store, values)
    figure = progress(store, "r") if values else None
    if figure is None:
        Recorder(store, run="r").close()
        figure = progress(store, "r")
    loss = trace(figure, "loss")
    assert loss.y == drawn
    assert words_shown in words(figure)
    assert figure.layout.title.text == "run r"
    for axis in (figure.layout.xaxis, figure.layout.yaxis, figure.layout.yaxis2):
        low, high = axis.range
        assert math.isfinite(low)
        assert math.isfinite(high)
        assert low < high
    if any(value is not None for value in drawn):
        assert loss.mode == "lines+markers", "a point that no stroke reaches has a marker"


def test_the_hover_says_numbers_that_an_axis_cannot_hold(store):
    said(store, [1.7e308, -2e307, None])
    loss = trace(progress(store), "loss")
    assert loss.customdata == ("1.7e+308", "-2e+307")
    assert loss.hovertemplate == "%{customdata}<extra>loss</extra>"


def test_durations_far_apart_are_marked_each_in_its_unit():
    made = Columns.of("r", ["loss"])
    made.forwards, made.states = array("q", range(5)), bytearray([OK]) * 5
    made.took_us = array("d", [1.0, 30.0, 30.0, 5e6, 3.6e9])
    made.series[0].extend(array("d", [1.0] * 5))
    layout = progress_picture([made]).layout
    axis = layout["yaxis2"]
    assert axis["type"] == "log"
    assert axis["ticktext"] == ["1 µs", "1 ms", "1 s", "1 min", "1 h"]
    assert axis["tickvals"] == [us / 6e7 for us in (1.0, 1e3, 1e6, 6e7, 3.6e9)]
    assert "took, log scale" in [note["text"] for note in layout["annotations"]]


def test_runs_whose_long_names_differ_in_the_middle_are_told_apart():
    names = [f"sweep/lr=0.001,batch=64,seed={seed},host=node-17.cluster" for seed in (3, 4)]
    made = []
    for name in names:
        one = Columns.of(name, ["loss"])
        one.forwards, one.states, one.took_us = array("q", [0]), bytearray([OK]), array("d", [5.0])
        one.series[0].append("1.0")
        made.append(one)
    picture = progress_picture(made)
    shown = [trace["name"] for trace in picture.data if trace["name"].endswith("smoothed")]
    assert shown == [f"…eed={seed},host=node-17.cluster: loss, smoothed" for seed in (3, 4)]


def test_c029_a_value_between_gaps_has_a_marker_among_many(store):
    values = [float(n) for n in range(200)]
    values[100] = values[102] = math.nan
    said(store, values)
    loss = trace(progress(store), "loss")
    assert loss.mode == "lines+markers"
    assert [n for n, size in enumerate(loss.marker.size) if size] == [101]


def test_c029_two_runs_of_unlike_length(store):
    said(store, [1.0, 2.0, 3.0], run="long")
    said(store, [5.0], run="short <i>")
    figure = progress(store, ["long", "short <i>"])
    assert [one.name for one in figure.data] == [
        "long: loss",
        "long: loss, smoothed",
        "short &lt;i&gt;: loss",
        "short &lt;i&gt;: loss, smoothed",
        "long: took",
        "short &lt;i&gt;: took",
        "long: broke",
        "short &lt;i&gt;: broke",
    ]
    assert trace(figure, "short &lt;i&gt;: loss").y == (5.0,)
    colours = {one.name.split(":")[0]: one.line.color for one in figure.data[:6]}
    assert len(set(colours.values())) == 2, "one hue a run"
    assert [one.name for one in figure.data if one.showlegend] == [
        "long: loss, smoothed",
        "short &lt;i&gt;: loss, smoothed",
    ]


def test_c025_names_and_errors_are_text(store):
    kind, run = "a<b>[/b] $x$ %{y}", "[/usr/bin/x] [bold <script>alert(1)</script>"
    said(store, [1.0, ValueError("expected [/s], got <img src=x>")], run=run, kind=kind, summarising=())
    figure = progress(store, run, of=kind)
    assert figure.data[0].name == "a&lt;b&gt;[/b] &#36;x&#36; &#37;&#123;y}"
    text = figure.to_json()
    assert "[/usr/bin/x] [bold &lt;script&gt;alert(1)&lt;/script&gt;" in json.loads(text)["layout"]["title"][
        "text"
    ].replace("<br>", " ")
    assert "expected [/s], got &lt;img src=x&gt;" in figure.data[-1].hovertext[0].replace("<br>", " ")
    assert not [tag for tag in ("script>", "img", "b>") if f"<{tag}" in text or f"\\u003c{tag}" in text]


def test_the_theme(store):
    said(store, [1.0])
    assert progress(store).layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert progress(store, theme="dark").layout.paper_bgcolor == "#161616"
    assert progress(store).layout.template.layout.to_plotly_json() == {}, "none of plotly's own templates"


def test_what_is_refused(store):
    said(store, [1.0], run="tuesday")
    with pytest.raises(FigureError, match="'light', 'dark'"):
        progress(store, theme="blue")
    with pytest.raises(FigureError, match="smooth=-1"):
        progress(store, smooth=-1)
    with pytest.raises(FigureError, match="of="):
        progress(store, of=[])
    with pytest.raises(UnknownRun, match="did you mean 'tuesday'"):
        progress(store, "tusday")
    said(store, [1.0], run="wednesday")
    with pytest.raises(WhichRun):
        progress(store)


def test_a_forward_that_is_still_going_is_counted(ran, script, place):
    going = script(
        """
        store = Store(PLACE)
        def slow(x):
            print("in", flush=True)
            time.sleep(60)
        with Recorder(store, run="r") as recorder:
            Graph.somatize(node(lambda x: x)).forward(1, watching=recorder)
            Graph.somatize(node(slow)).forward(1, watching=recorder)
        """
    )
    assert going.stdout.readline() == "in\n"
    deadline = time.monotonic() + 20
    while "1 still going" not in words(progress(place)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "2 forwards, 1 still going" in words(progress(place))
    going.kill()
    going.wait()
    figure = progress(place)
    assert "2 forwards, 1 lost" in words(figure)
    assert trace(figure, "broke").x == (1,)
    assert trace(figure, "broke").hovertext == ("forward 1: lost",)
    assert trace(figure, "took").y[1] is None, "nobody knows how long it took"


def test_importing_draws_nothing(ran):
    assert ran("print('plotly' in sys.modules, progress.__name__, 'plotly' in sys.modules)") == "False progress False\n"


def test_without_plotly_one_sentence_says_what_to_install(ran):
    out = ran(
        """
        sys.modules["plotly"] = None
        with Recorder(Store(PLACE), run="r") as recorder:
            Graph.somatize(node(lambda x: x)).forward(1, watching=recorder)
        for draw in (progress, spent, timeline):
            try:
                draw(PLACE)
            except ImportError as error:
                print(type(error).__name__, error)
        print(len(forwards(PLACE)))
        """
    )
    assert (
        out == 3 * "ExtraMissing a figure needs plotly, which is not installed: pip install 'somatize[viz]'\n" + "1\n"
    )


def test_runs_beyond_those_that_can_be_told_apart_are_gathered(store):
    count = 30
    for number in range(count):
        values = [float(number), ValueError("x")] if number == 27 else [float(number), number + 0.5]
        said(store, values, run=f"run <{number}>")
    figure = progress(store, [f"run <{number}>" for number in range(count)])
    names = [one.name for one in figure.data]
    assert names[:3] == ["6 other runs: loss", "6 other runs: took", "6 other runs: broke"]
    assert len(names) == 3 + 4 * 24
    rest = trace(figure, "6 other runs: loss")
    assert rest.y[:6] == (24.0, 24.5, None, 25.0, 25.5, None)
    assert rest.customdata[:2] == ("run &lt;24&gt;: 24", "run &lt;24&gt;: 24.5")
    assert 29.5 in rest.y
    broke = trace(figure, "6 other runs: broke")
    assert (broke.x, len(broke.y)) == ((1,), 1)
    assert broke.hovertext[0].startswith("run &lt;27&gt;, forward 1: broke")
    assert "the 24 lowest by loss have colours of their own, the others are grey" in words(figure)
    looks = {(one.line.color, one.line.dash) for one in figure.data if one.name.endswith("loss, smoothed")}
    assert len(looks) == 24
    assert figure.layout.yaxis.range[1] > 29.5


def test_of_numbers_without_end_a_hundred_are_drawn(store):
    said(store, [1.0])
    figure = progress(store, of=["loss", *(f"k{number}" for number in range(1999))])
    assert len(figure.data) == 100 * 2 + 2
    assert "100 of 2,000 numbers asked for are drawn" in words(figure)


def test_what_is_named_in_microseconds_has_the_unit_that_fits(store):
    with Recorder(store, run="r") as recorder:
        for took in (1_500_000, 2_500_000, 3_000_000):
            recorder({"fact": "ran", "node": "a", "began_us": 0, "took_us": took})
            recorder({"fact": "finished", "took_us": took})
    figure = progress(store, of=["took_us", "ran.took_us"], smooth=0)
    for name in ("took_us", "ran.took_us"):
        assert trace(figure, name).y == (1.5, 2.5, 3.0)
        assert trace(figure, name).customdata == ("1.5 s", "2.5 s", "3 s")
        assert f"{name}, s" in words(figure)

"""What was said outside of any forward: streams are drawn over their batches, of the rest a figure says that it is."""

from itertools import pairwise

from somatize import Graph, Live, Recorder, Store, node
from somatize.record import page, progress, replay
from somatize.status import Status

RATE = "throughput.samples_per_s"


def say(recorder, *told, stream="train"):
    for batches, rate in told:
        recorder.say_of_run({"fact": "throughput", "stream": stream, "batches": batches, "samples_per_s": rate})


def lines(figure):
    return {one.name: (one.x, one.y, one.xaxis, one.yaxis) for one in figure.data if one.name.startswith("throughput")}


def words(figure):
    return " ".join(note.text.replace("<br>", " ") for note in figure.layout.annotations)


def untitled(figure):
    drawn = figure.to_dict()
    del drawn["layout"]["title"]["text"]
    return drawn


def test_a_stream_is_drawn_over_its_batches(store):
    with Recorder(store, run="r") as recorder:
        say(recorder, (5, 40.0), (10, 50.0), (15, "nan"))
        say(recorder, (3, 7.0), stream="<b>valid</b>")
        before = lines(progress(store, of=RATE, smooth=0))  # what is not committed, and what is, read alike
    figure = progress(store, of=RATE, smooth=0)
    assert lines(figure) == before
    assert lines(figure) == {
        f"{RATE} of &lt;b&gt;valid&lt;/b&gt;": ((3,), (7.0,), "x2", "y3"),
        f"{RATE} of train": ((5, 10, 15), (40.0, 50.0, None), "x2", "y3"),
    }
    layout = figure.layout
    assert (layout.xaxis2.title.text, layout.xaxis.title.text) == ("batch", "forward")
    assert layout.xaxis2.anchor == "y3"
    assert layout.yaxis3.domain[0] > layout.yaxis.domain[1], "above the panels over forwards"
    assert words(figure) == "took, µs no forwards yet throughput.samples_per_s, outside of forwards"
    assert f"{RATE} of train: 1 NaN (first in batch 15)" in layout.title.subtitle.text.replace("<br>", " ")
    assert [one.name for one in figure.data][-2:] == ["took", "broke"]


def test_beside_what_was_said_in_forwards(store):
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        say(recorder, (5, 40.0), stream="load")
        for number in range(3):
            Graph.somatize(node(abs)).forward(number, watching=recorder)
            recorder({"fact": "loss", "value": number})
            recorder({"fact": "throughput", "stream": "train", "batches": number, "samples_per_s": 9.0})
        say(recorder, (7, 41.0), stream="load")
    figure = progress(store, of=["loss", RATE], smooth=0)
    assert lines(figure) == {
        f"{RATE} of train": ((0, 1, 2), (9.0, 9.0, 9.0), "x", "y2"),
        f"{RATE} of load": ((5, 7), (40.0, 41.0), "x2", "y5"),
    }
    assert len({one.line.color for one in figure.data if one.mode is not None and one.name != "broke"}) == 4
    domains = [figure.layout[f"yaxis{axis}"].domain for axis in ("5", "", "2", "3")]
    assert all(below[1] < above[0] for above, below in pairwise(domains))


def test_batches_counted_anew_and_another_writer_are_not_joined(store):
    for _ in range(2):
        with Recorder(store, run="r") as recorder:
            say(recorder, (5, 1.0), (9, 2.0), (4, 3.0))
    ((name, (xs, ys, *_)),) = lines(progress(store, of=RATE, smooth=0)).items()
    assert name == f"{RATE} of train"
    assert xs == (5, 9, None, 4, None, 5, 9, None, 4)
    assert ys == (1.0, 2.0, None, 3.0, None, 1.0, 2.0, None, 3.0)


def test_without_batches_each_saying_counts_as_one(store):
    with Recorder(store, run="r") as recorder:
        for rate in (2.0, 3.0):
            recorder.say_of_run({"fact": "throughput", "samples_per_s": rate})
    assert lines(progress(store, of=RATE, smooth=0)) == {RATE: ((1, 2), (2.0, 3.0), "x2", "y3")}


def test_several_runs_of_which_one_says_nothing(store):
    for run, told in (("a", [(1, 2.0)]), ("b", [(1, 3.0), (2, 4.0)]), ("c", [])):
        with Recorder(store, run=run) as recorder:
            say(recorder, *told)
    figure = progress(store, ["a", "b", "c"], of=RATE, smooth=0)
    drawn = {one.name: one.x for one in figure.data if "throughput" in one.name}
    assert drawn == {f"a: {RATE} of train": (1,), f"b: {RATE} of train": (1, 2), f"c: {RATE} of train": ()}
    assert [one.name for one in figure.data if one.showlegend] == [f"a: {RATE} of train", f"b: {RATE} of train"]


def test_of_other_numbers_it_says_how_often(store):
    with Recorder(store, run="r") as recorder:
        for number in range(3):
            recorder.say_of_run({"fact": "loss", "value": number})
        assert "no forwards yet; loss was said 3 times outside of any, which is not drawn" in words(progress(store))
        Graph.somatize(node(abs)).forward(1, watching=recorder)
        said = "no loss was said in a forward; loss was said 3 times outside of any, which is not drawn"
        assert said in words(progress(store))
        recorder({"fact": "loss", "value": 1})
        assert "outside" not in words(progress(store))


def test_a_status_is_drawn_alike_live_played_back_and_zoomed(store, tmp_path):
    names = [RATE, "loss"]
    live, graph = Live(of=names), Graph.somatize(node(abs))
    with Recorder(store, run="r") as recorder, Status(watching=[recorder, live], window=2) as status:
        for number in range(7):
            with status.throughput("load").step(samples=4):
                pass
            with status.throughput("train").step(samples=4):
                graph.forward(number, watching=[recorder, live])
    figure = progress(store, of=names)
    assert {name: trace[0] for name, trace in lines(figure).items() if "smoothed" not in name} == {
        f"{RATE} of load": (2, 4, 6, 7),
        f"{RATE} of train": (1, 3, 5, 6),
    }
    again = Live(of=names)
    replay(store, to=again)
    assert untitled(live.figure()) == untitled(figure) == untitled(again.figure())
    with Store(tmp_path / "copy") as other:
        with Recorder(other, run="r") as copy:
            replay(store, to=copy)
        assert lines(progress(other, of=names)) == lines(figure)
    shown = progress(store, of=names, widget=True)
    shown.layout.xaxis.range = [2, 4]
    assert [one.x for one in shown.data if one.name == f"{RATE} of load"] == [(2, 4, 6, 7)]
    assert b"outside of forwards" in page(store, of=names, path=tmp_path / "page.html").read_bytes()


def test_before_any_forward_a_live_is_told_as_a_recorder_is(store):
    live = Live(of=[RATE, "loss"])
    with Recorder(store, run="r") as recorder:
        for watcher in (recorder, live):
            watcher({"fact": "loss", "value": 1.0})
            watcher({"fact": "throughput", "stream": "t", "batches": 3, "samples_per_s": 2.0})
            Graph.somatize(node(abs)).forward(1, watching=watcher)
    drawn, kept = live.figure().to_dict(), progress(store, of=[RATE, "loss"]).to_dict()
    assert drawn["data"][:-2] == kept["data"][:-2], "all but how long it took"
    assert drawn["layout"]["annotations"] == kept["layout"]["annotations"]

"""x= of curves: a number that was said, or time, in place of the number of the forward."""

import math
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize import Graph, Recorder, Store, node
from somatize.errors import ExportError, UnknownName
from somatize.record import Live, curve, curve_costs, forwards, page, progress
from somatize.record.export import to_tensorboard

GRAPH = Graph.somatize(node(abs))
STEPS = st.none() | st.integers(-20, 20).map(float) | st.sampled_from([math.nan, math.inf, 1.5e308, -1.5e308])
LAUNCHES = st.lists(st.lists(STEPS, min_size=1, max_size=12), min_size=1, max_size=3)


def record(store, run, launches, summarising=("loss", "step")):
    """A run of several launches; in each forward a step is said or None. The loss is the number of the forward."""
    count = 0
    for steps in launches:
        with Recorder(store, run=run, summarising=list(summarising)) as recorder:
            for step in steps:
                GRAPH.forward(1, watching=recorder)
                recorder({"fact": "loss", "value": count, "step": -count})
                if step is not None:
                    recorder({"fact": "step", "value": step})
                count += 1


def reference(launches):
    """The x of each forward by its number, written as the rule reads."""
    found, first = {}, 0
    for steps in launches:
        said = [place for place, step in enumerate(steps) if step is not None and math.isfinite(step)]
        for place in range(len(steps)):
            before = max((one for one in said if one <= place), default=None)
            after = min((one for one in said if one >= place), default=None)
            if before is not None and after is not None:
                done = (place - before) / (after - before) if after > before else 0.0
                found[first + place] = steps[before] * (1 - done) + steps[after] * done
        first += len(steps)
    return found


@settings(max_examples=30, deadline=None)
@given(LAUNCHES, st.booleans())
def test_x_is_interpolated_between_two_sayings_of_one_writer(launches, summarised):
    with TemporaryDirectory() as folder, Store(Path(folder, "s")) as store:
        record(store, "r", launches, ["loss", "step"] if summarised else [])
        wanted = reference(launches)
        if not any(step is not None for steps in launches for step in steps):
            with pytest.raises(UnknownName):
                curve(store, "r", x="stp")
            return
        points = curve(store, "r", x="step")
        assert [value for _, value in points] == sorted(wanted)  # in forward order; the loss is the forward
        assert [x for x, _ in points] == pytest.approx([wanted[forward] for forward in sorted(wanted)], rel=1e-9)
        assert curve(store, "r", x="step", since=3) == [point for point in points if point[1] >= 3]
        assert curve_costs(store, "r", x="step") == ("scan" if summarised else "fetch")


def test_whole_steps_are_exact_and_what_is_before_and_after_is_left_out(tmp_path):
    store = Store(tmp_path / "s")
    record(store, "r", [[None, 0, *[None] * 6, 7, None], [None, 5, 6]])
    assert curve(store, "r", x="step") == [*((n, n + 1) for n in range(8)), (5, 11), (6, 12)]
    assert curve(store, "r", x="loss.step") == [(-n, n) for n in range(13)]
    assert curve(store, "r", x="forward") == curve(store, "r")


def test_time_is_when_a_forward_was_written_and_elapsed_has_no_gaps(tmp_path, monkeypatch):
    store = Store(tmp_path / "s")
    record(store, "r", [[None] * 3, [None] * 2])
    rows = forwards(store, "r")
    when = [row["when"] for row in rows]
    assert curve(store, "r", x="time") == list(zip(when, range(5), strict=True))
    begins = [row["when"] - row["took_us"] / 1e6 for row in rows]
    gap = min(begins[3:]) - max(when[:3])
    wanted = [one - min(begins[:3]) - (gap if place > 2 else 0) for place, one in enumerate(when)]
    assert [x for x, _ in curve(store, "r", x="elapsed")] == pytest.approx(wanted, abs=1e-6)
    assert curve(store, "r", x="elapsed", last=2) == curve(store, "r", x="elapsed")[-2:]


def test_an_x_that_was_never_said_names_the_nearest(tmp_path):
    store = Store(tmp_path / "s")
    record(store, "r", [[1, 2]])
    with pytest.raises(UnknownName, match="did you mean 'step'"):
        curve(store, "r", x="stpe")
    with pytest.raises(TypeError):
        curve(store, "r", x=3)


def lines_of(figure, name="loss"):
    """The lines of a trace, as lists of points."""
    (trace,) = [trace for trace in figure.data if trace.name == name]
    found = [[]]
    for x, y in zip(trace.x, trace.y, strict=True):
        if y is None:
            found.append([])
        else:
            found[-1].append((x, y))
    return [line for line in found if line]


def marks_of(figure):
    return [shape.x0 for shape in figure.layout.shapes]


def notes_of(figure):
    return figure.layout.title.subtitle.text.replace("<br>", " ")


def test_steps_that_were_done_again_are_a_second_line_at_a_mark(tmp_path):
    store = Store(tmp_path / "s")
    record(store, "b", [range(20), range(10, 30)])
    figure = progress(store, "b", x="step", smooth=0)
    assert lines_of(figure) == [
        [(step, step) for step in range(20)],
        [(step, step + 10) for step in range(10, 30)],
    ]
    assert marks_of(figure) == [10]
    assert "step goes back to 10 at forward 20" in notes_of(figure)
    assert figure.layout.xaxis.title.text == "step"
    assert figure.layout.xaxis.range == pytest.approx((-0.58, 29.58))


def test_a_new_line_begins_where_x_goes_back_in_one_writer(tmp_path):
    store = Store(tmp_path / "s")
    record(store, "r", [[None, 0, 1, 2, 0, 1, None]])
    figure = progress(store, "r", x="step", smooth=0)
    assert lines_of(figure) == [[(0, 1), (1, 2), (2, 3)], [(0, 4), (1, 5)]]
    assert "5 forwards" in notes_of(figure)
    assert "2 forwards left out, before the first step of a writer or after its last" in notes_of(figure)


def test_an_x_that_always_goes_back_is_one_line(tmp_path):
    store = Store(tmp_path / "s")
    record(store, "r", [range(600, 0, -1)])
    figure = progress(store, "r", x="step", smooth=0)
    assert len(lines_of(figure)) == 1
    assert "and 598 times more, the line is not cut there" in notes_of(figure)


def test_runs_of_unlike_batch_size_end_at_the_same_epoch(tmp_path):
    store = Store(tmp_path / "s")
    for run, batches in (("small", 10), ("large", 3)):
        record(store, run, [[batch // batches if batch % batches == 0 else None for batch in range(4 * batches + 1)]])
    record(store, "none", [[None] * 5])
    figure = progress(store, ["small", "large", "none"], x="step", smooth=0)
    assert [lines_of(figure, f"{run}: loss")[0][-1][0] for run in ("small", "large")] == [4, 4]
    assert lines_of(figure, "none: loss") == []
    assert "none: 0 forwards; 5 forwards left out" in notes_of(figure)
    with pytest.raises(UnknownName, match="did you mean 'step'"):
        progress(store, ["small", "none"], x="stpe")


def test_the_axes_of_time_and_elapsed(tmp_path):
    store = Store(tmp_path / "s")
    record(store, "r", [[None] * 4, [None] * 3])
    by_time = progress(store, "r", x="time", smooth=0)
    assert by_time.layout.xaxis.type == "date"
    when = [row["when"] * 1000 for row in forwards(store, "r")]
    assert [x for line in lines_of(by_time) for x, _ in line] == pytest.approx(when)
    elapsed = progress(store, "r", x="elapsed", smooth=0)
    name = elapsed.layout.xaxis.title.text
    size = {"elapsed, µs": 1e6, "elapsed, ms": 1e3, "elapsed, s": 1.0}[name]
    wanted = [x * size for x, _ in curve(store, "r", x="elapsed")]
    assert [x for line in lines_of(elapsed) for x, _ in line] == pytest.approx(wanted)
    assert [len(line) for line in lines_of(elapsed)] == [4, 3]


@pytest.mark.parametrize("x", ["step", "loss.step", "time", "elapsed"])
def test_a_live_draws_what_progress_draws_of_the_same_facts(tmp_path, x):
    store, live = Store(tmp_path / "s"), Live("r", x=x)
    steps = [None, 0, None, 2, 3, 1, 2, None]
    with Recorder(store, run="r", summarising=["loss", "step"]) as recorder:
        for count, step in enumerate(steps):
            GRAPH.forward(1, watching=[recorder, live])
            for watcher in (recorder, live):
                watcher({"fact": "loss", "value": count, "step": -count})
                if step is not None:
                    watcher({"fact": "step", "value": step})
    stored, seen = progress(store, "r", x=x, smooth=0), live.figure()
    assert notes_of(seen) == notes_of(stored)
    numbers = [[(y if x in ("time", "elapsed") else (at, y)) for at, y in line] for line in lines_of(stored)]
    assert [[(y if x in ("time", "elapsed") else (at, y)) for at, y in line] for line in lines_of(seen)] == numbers
    assert lines_of(pickle.loads(pickle.dumps(live)).figure()) == lines_of(seen)


def test_a_page_has_its_curves_over_x_and_its_tables_of_all_forwards(tmp_path):
    store = Store(tmp_path / "s")
    record(store, "r", [[None, 0, 1, 2, None]])
    html = page(store, "r", tmp_path / "page.html", x="step").read_text()
    assert "2 forwards left out" in html
    assert html.partition('<section id="forwards"')[2].partition("</section>")[0].count("<tr") == 6
    with pytest.raises(UnknownName, match="did you mean 'step'"):
        page(store, "r", tmp_path / "other.html", x="stpe")
    assert not (tmp_path / "other.html").exists()


def steps_in(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder))
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars("loss")]


def test_steps_of_tensorboard_are_whole_and_what_that_changes_is_counted(tmp_path):
    store = Store(tmp_path / "s")
    record(store, "r", [[None, 0, None, 1, 2, -1, None]])
    exported = to_tensorboard(store, "r", tmp_path, step="step")
    assert steps_in(tmp_path / "r") == [(0, 1), (0, 2), (1, 3), (2, 4), (-1, 5)]
    assert "1 step: rounded down to a whole number; it is step" in exported.left_out
    left_out = "2 forwards: without a step: it is before the first step of a writer or after its last"
    assert left_out in exported.left_out
    assert exported.wrote["forwards"] == 5
    with pytest.raises(UnknownName, match="did you mean 'step'"):
        to_tensorboard(store, "r", tmp_path / "other", step="stpe")
    assert not (tmp_path / "other").exists()


def test_a_step_beyond_an_int64_is_refused_before_anything_is_written(tmp_path):
    store = Store(tmp_path / "s")
    record(store, "r", [[0, 2.0**63]])
    with pytest.raises(ExportError, match="beyond an int64"):
        to_tensorboard(store, "r", tmp_path / "logs", step="step")
    assert not (tmp_path / "logs").exists()


def test_two_writers_at_once_have_an_x_each(tmp_path):
    store = Store(tmp_path / "s")
    with Recorder(store, run="r") as one, Recorder(store, run="r") as other:
        for turn in range(5):
            for recorder, low in ((one, 0), (other, 100)):
                GRAPH.forward(1, watching=recorder)
                recorder({"fact": "loss", "value": low + turn})
                if turn in (0, 4):
                    recorder({"fact": "step", "value": low + turn})
    assert curve(store, "r", x="step") == [(low + turn, low + turn) for turn in range(5) for low in (0, 100)]
    figure = progress(store, "r", x="step", smooth=0)
    assert sorted(lines_of(figure)) == [[(low + turn, low + turn) for turn in range(5)] for low in (0, 100)]
    assert marks_of(figure) == []
    when = [x for x, _ in curve(store, "r", x="time")]
    elapsed = [x for x, _ in curve(store, "r", x="elapsed")]
    assert [x - elapsed[0] for x in elapsed] == pytest.approx([x - when[0] for x in when], abs=1e-6)  # one launch


def test_runs_that_are_grey_are_on_the_axis_too(tmp_path):
    store = Store(tmp_path / "s")
    names = [f"r{place}" for place in range(26)]
    for name in names:
        record(store, name, [[0, None, 1]])
    grey = lines_of(progress(store, names, x="step", smooth=0), "2 other runs: loss")
    assert grey == [[(0, 0), (0.5, 1), (1, 2)]] * 2

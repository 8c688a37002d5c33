"""x= of curves: a number that was said, or time, in place of the number of the forward."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize import Graph, Recorder, Store, node
from somatize.errors import UnknownName
from somatize.record import curve, curve_costs, forwards

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

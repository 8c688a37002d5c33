"""Totals of numbers are what a fold over their curves gives; the end of a run follows from those of its writers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize import Graph, Recorder, Store, node
from somatize.record import curve, runs
from somatize.store.record_format import run_prefix
from somatize.store.run_reader import lines_of, look
from somatize.store.run_summary import NumberTotal, RunEnd, WriterEnd, flat, run_end, total_of

G = Graph.somatize(node(lambda x: x).named("a"))
VALUES = st.one_of(
    st.floats(allow_nan=True), st.integers(-3, 3), st.sampled_from([math.nan, math.inf, -math.inf, "no number"])
)


def folded(points: list[tuple[int, float]]) -> dict[str, Any]:
    """The columns of `runs` by the simplest means."""
    if not points:
        return {}
    finite = [(value, forward) for forward, value in points if math.isfinite(value)]
    columns: dict[str, Any] = {"last": points[-1][1], "last_at": points[-1][0]}
    if finite:
        low, high = min(finite), min((-value, forward) for value, forward in finite)
        columns |= {"min": low[0], "min_at": low[1], "max": -high[0], "max_at": high[1]}
    return columns | ({"odd": len(points) - len(finite)} if len(finite) < len(points) else {})


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other) or one == other


STEPS = st.one_of(
    st.tuples(st.just("forward"), VALUES),
    st.tuples(st.just("inside"), VALUES),
    st.tuples(st.just("late"), VALUES),
    st.tuples(st.just("plain"), st.none()),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("again"), st.none()),
    st.tuples(st.just("rename"), st.none()),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=25), st.integers(0, 2**16))
def test_totals_are_what_a_fold_over_the_curve_gives(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]], seed: int
) -> None:
    def says(x: Any, ctx: Any) -> Any:
        if x is not None:
            ctx.tell({"fact": "loss", "value": x})
        return x

    inside = Graph.somatize(node(says).named("a"))
    name, count = "r", 0
    with Store(tmp_path_factory.mktemp("s") / "store") as store:
        recorder = Recorder(store, name, ["loss"])
        for number, (step, value) in enumerate(steps):
            if step in ("forward", "plain", "inside"):
                (inside if step == "inside" else G).forward(value if step == "inside" else 0, watching=recorder)
                count += 1
                if step == "forward":
                    recorder({"fact": "loss", "value": value})
            elif step == "late" and count:
                try:
                    recorder.to((seed + number) % count)({"fact": "loss", "value": value})
                except KeyError:
                    continue  # a forward of the recorder before
            elif step == "commit":
                store.opened.flush()
            elif step in ("again", "rename"):
                recorder.close()
                if step == "rename" and count:
                    store.rename(name, f"r{number}")
                    name = f"r{number}"
                recorder = Recorder(store, name, ["loss"], resume="auto")
            expected = folded(curve(store, name)) if count else {}
            (row,) = runs(store)
            found = {key.removeprefix("loss."): held for key, held in row.items() if key.startswith("loss.")}
            assert found.keys() == expected.keys()
            assert all(same(found[key], expected[key]) for key in expected), (found, expected)
        recorder.close()
        (row,) = runs(store)
        closed = {key.removeprefix("loss."): held for key, held in row.items() if key.startswith("loss.")}
        assert all(same(closed[key], held) for key, held in (folded(curve(store, name)) if count else {}).items())
        assert store.check() == []


@given(st.lists(st.floats(), max_size=12), st.integers(0, 12))
def test_two_parts_together_are_the_whole(values: list[float], cut: int) -> None:
    points = list(enumerate(values))
    whole = total_of(points)
    assert same(total_of(points[:cut]).joined(total_of(points[cut:])), whole)
    assert same(total_of(points[cut:]).joined(total_of(points[:cut])), whole)
    assert whole.said == len(values)
    assert NumberTotal().joined(whole) is whole


def ends(*those: tuple[int, int, str]) -> list[WriterEnd]:
    """Writers by when they were opened and ended, and how, each for a reason of its own."""
    return [
        WriterEnd(number, opened, state, "" if state in ("finished", "") else f"why {number}", when)
        for number, (opened, when, state) in enumerate(those)
    ]


@pytest.mark.parametrize(
    ("writers", "alive", "end"),
    [
        ([], [], RunEnd("finished", "", 0, 0)),
        (ends((1, 5, "finished")), [], RunEnd("finished", "", 5, 1)),
        (ends((1, 5, "finished"), (2, 9, "finished")), [], RunEnd("finished", "", 9, 1)),
        (ends((1, 5, "failed"), (6, 9, "finished")), [], RunEnd("finished", "", 9, 2)),
        (ends((1, 7, "failed"), (6, 9, "finished")), [], RunEnd("failed", "why 0", 7, 1)),
        (ends((1, 7, "killed"), (2, 6, "interrupted"), (3, 9, "finished")), [], RunEnd("killed", "why 0", 7, 1)),
        (ends((1, 7, "failed"), (2, 6, "failed"), (3, 5, "killed")), [], RunEnd("failed", "why 1", 6, 1)),
        (ends((1, 0, ""), (2, 6, "failed")), [0], RunEnd("running", "", 0, 1)),
        (ends((1, 0, "")), [], RunEnd("killed", "", 0, 1)),
        (ends((1, 4, "killed"), (5, 0, "")), [1], RunEnd("running", "", 0, 2)),
    ],
)
def test_the_last_launch_decides(writers: list[WriterEnd], alive: list[int], end: RunEnd) -> None:
    assert run_end(writers, alive) == end
    assert run_end(reversed(writers), alive) == end


def test_forked_children_do_not_count() -> None:
    mother, child = ends((1, 5, "finished"), (2, 9, "killed"))
    assert run_end([mother, child._replace(parent=7)]) == RunEnd("finished", "", 5, 1)


def test_nested_keys_are_joined_by_dots() -> None:
    nested = {"optim": {"lr": 0.1, "betas": [0.9, 0.99]}, "empty": {}, "deep": {"a": {"b": None}}}
    assert flat(nested) == {"optim.lr": 0.1, "optim.betas": [0.9, 0.99], "empty": {}, "deep.a.b": None}


def test_a_summary_that_is_damaged_is_made_anew_from_what_it_sums_up(store: Store) -> None:
    with Recorder(store, "r", ["loss"], config={"lr": 0.1}, tags=["good"], note="first") as recorder:
        for value in (3.0, 1.0):
            G.forward(value, watching=recorder)
            recorder({"fact": "loss", "value": value})
    (before,) = runs(store, config=["*"])
    number = look(store.opened, lambda view: lines_of(view, "r").run)
    store.opened.records.write(lambda txn: txn.put(run_prefix(b"e", number), b"damaged"))
    assert runs(store, config=["*"]) == [before]
    store.annotate("r", note="second")
    assert runs(store, config=["*"]) == [{**before, "note": "second"}]

"""The readers: shapes, ranges, refusals; and that a curve is the same however it was written."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from somatize import Graph, Recorder, Store, node
from somatize.errors import NoStore, UnknownForward, UnknownName, UnknownRun, WhichRun
from somatize.record import curve, curve_costs, facts, forwards, nodes, runs


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc)


def record(store: Store, run: str, values: list[Any], summarising: list[str] | None = None) -> None:
    with Recorder(store, run=run, summarising=summarising or []) as recorder:
        for value in values:
            G.forward(1, watching=recorder)
            if value is not None:
                recorder({"fact": "loss", "value": value})


def test_every_row_has_every_key(store: Store) -> None:
    @node
    def sometimes(x: int) -> int:
        if x:
            raise ValueError
        return x

    g = Graph.somatize(sometimes)
    with Recorder(store, run="r", summarising=["loss", "ran.took_us"]) as recorder:
        g.forward(0, watching=recorder)
        with pytest.raises(ValueError):
            g.forward(1, watching=recorder)
        open_rows = forwards(store, "r")
    keys = ["forward", "state", "nodes", "took_us", "loss.value", "ran.took_us", "when"]
    for rows in (open_rows, forwards(store, "r")):
        assert [list(row) for row in rows] == [keys, keys]
        assert [row["loss.value"] for row in rows] == [None, None]
        assert rows[0]["ran.took_us"] == facts(store, "r", 0)[0]["took_us"]
        assert rows[1]["ran.took_us"] is None
    totals = ["run", "forwards", "broke", "interrupted", "lost", "took_us", "first", "last"]
    summary = ["state", "why", "ended", "launches", "tags", "note"]
    number = [f"ran.took_us.{what}" for what in ("last", "last_at", "min", "min_at", "max", "max_at")]
    assert list(runs(store)[0]) == [*totals, *summary, *number]
    assert list(nodes(store)[0]) == ["node", "ran", "recalled", "failed", "took_us", "hosts", "devices", "mean_us"]


def test_ranges(store: Store) -> None:
    record(store, "r", [float(n) for n in range(10)], ["loss"])
    for last, want in ((0, []), (3, [7, 8, 9]), (99, list(range(10)))):
        assert [row["forward"] for row in forwards(store, last=last)] == want
        assert [n for n, _ in curve(store, last=last)] == want
        assert nodes(store, last=last) == [] if not want else nodes(store, last=last)[0]["ran"] == len(want)
        assert len(facts(store, last=last)) == 3 * len(want)
    assert [n for n, _ in curve(store, since=8)] == [8, 9]
    assert [row["forward"] for row in forwards(store, since=4, last=2)] == [8, 9]
    assert [row["forward"] for row in forwards(store, since=9, last=5)] == [9]
    for wrong in (-1, -5):
        for reader in (forwards, curve, nodes, facts, runs):
            with pytest.raises(ValueError, match="negative"):
                reader(store, last=wrong)
    with pytest.raises(TypeError, match="whole number"):
        forwards(store, last=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="whole number"):
        forwards(store, last=True)


def test_which_run(store: Store) -> None:
    with pytest.raises(WhichRun, match="no run yet"):
        forwards(store)
    record(store, "tuesday", [1.0])
    assert len(forwards(store)) == 1
    record(store, "monday", [1.0])
    with pytest.raises(WhichRun, match="'tuesday', 'monday'"):
        forwards(store)
    with pytest.raises(UnknownRun, match="did you mean 'tuesday'"):
        curve(store, "tueday")
    with pytest.raises(UnknownRun):
        facts(store, "")


def test_which_forward(store: Store) -> None:
    record(store, "r", [1.0, 2.0])
    assert facts(store)[-1]["value"] == "2.0"
    assert facts(store, forward=-2)[-1]["value"] == "1.0"
    for wrong in (2, -3):
        with pytest.raises(UnknownForward, match="forwards 0 to 1"):
            facts(store, forward=wrong)
    with Recorder(store, run="empty"), pytest.raises(UnknownForward, match="no forwards yet"):
        facts(store, "empty")


def test_a_reader_takes_a_path_that_exists_and_makes_nothing(store: Store, tmp_path: Path) -> None:
    record(store, "r", [1.0])
    assert curve(store.path) == curve(str(store.path)) == [(0, 1.0)]
    with pytest.raises(NoStore):
        runs(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(NoStore):
        runs(empty)
    assert not list(empty.iterdir())
    with pytest.raises(TypeError, match="as a Store or as its path"):
        runs(3)  # type: ignore[arg-type]


def test_paths_of_curves(store: Store) -> None:
    with Recorder(store, run="r", summarising=["ran.took_us"]) as recorder:
        G.forward(1, watching=recorder)
        recorder({"fact": "score", "top1": 0.5, "top5": 0.9})
        recorder({"fact": "a.b", "value": 7})
    took = [(0, float(facts(store)[0]["took_us"]))]
    assert curve(store, of="ran.took_us") == took
    assert curve(store, of="score.top5") == [(0, 0.9)]
    assert curve(store, of="a.b.value") == [(0, 7.0)]
    assert curve(store, of="nodes") == [(0, 1.0)]
    assert curve(store, of="took_us") == [(0, float(forwards(store)[0]["took_us"]))]
    assert curve(store, of="a.b") == [(0, 7.0)]
    with pytest.raises(UnknownName):
        curve(store, of="nothing")


def test_what_a_curve_costs_is_true(store: Store) -> None:
    record(store, "columns", [1.0, 2.0], ["loss"])
    record(store, "facts", [1.0, 2.0])
    assert curve_costs(store, "columns") == "scan"
    assert curve_costs(store, "columns", "took_us") == "scan"
    assert curve_costs(store, "facts") == "fetch"
    with pytest.raises(UnknownName):
        curve_costs(store, "columns", "other")


def test_a_run_whose_writers_summarise_differently(store: Store) -> None:
    record(store, "r", [1.0, 2.0])
    record(store, "r", [3.0], ["loss"])
    record(store, "r", [4.0], ["acc"])
    assert curve(store, "r") == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]
    assert curve_costs(store, "r") == "fetch"
    assert curve_costs(store, "r", since=2, last=2) == "fetch"
    assert [row["loss.value"] for row in forwards(store, "r")] == [None, None, "3.0", None]
    assert {tuple(row) for row in forwards(store, "r")} == {tuple(forwards(store, "r")[0])}


ODD = [1.0, math.nan, math.inf, -math.inf, -0.0, 5e-324, 2**53 + 1, "x", "", "1_0", " 1", True, None, 1e400, "٣"]


@pytest.mark.parametrize("summarising", [[], ["loss"]])
def test_numbers_come_back_bit_for_bit_and_others_are_gaps(store: Store, summarising: list[str]) -> None:
    record(store, "r", ODD, summarising)
    want = [(n, v) for n, v in enumerate(ODD) if isinstance(v, int | float) and not isinstance(v, bool)]
    want.append((14, 3.0))
    got = curve(store, "r")
    assert [n for n, _ in got] == [n for n, _ in want]
    assert [struct.pack("d", v) for _, v in got] == [struct.pack("d", float(v)) for _, v in want]


said = st.lists(
    st.lists(
        st.one_of(st.none(), st.floats(), st.integers(-(2**70), 2**70), st.text(max_size=5), st.booleans()), max_size=3
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=said, flushes=st.sets(st.integers(0, 12)))
@example(said=[[struct.unpack("d", struct.pack("Q", 0x7FF8000000000001))[0]]], flushes=set())  # a NaN that says more
def test_a_curve_is_the_same_summarised_or_not_whenever_it_was_committed(
    said: list[list[Any]], flushes: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("s") / "store")
    plain, summed = Recorder(store, run="plain"), Recorder(store, run="summed", summarising=["loss"])
    for index, values in enumerate(said):
        G.forward(1, watching=[plain, summed])
        for value in values:
            plain({"fact": "loss", "value": value})
            summed({"fact": "loss", "value": value})
            if index in flushes:
                store.opened.flush()
    for _ in range(2):
        first, second = curve(store, "plain"), curve(store, "summed")
        assert [(n, struct.pack("d", v)) for n, v in first] == [(n, struct.pack("d", v)) for n, v in second]
        last = [
            [fact["value"] for fact in facts(store, "plain", n) if fact["fact"] == "loss"] for n in range(len(said))
        ]
        assert [row["loss.value"] for row in forwards(store, "summed")] == [one[-1] if one else None for one in last]
        plain.close()
        summed.close()
    store.close()


def test_rows_are_what_a_data_frame_takes(store: Store) -> None:
    record(store, "r", [0.5, 1.5], ["loss"])
    row = forwards(store, "r")[1]
    assert (row["forward"], row["state"], row["nodes"], row["loss.value"]) == (1, "ok", 1, "1.5")
    assert isinstance(row["took_us"], int)
    assert isinstance(row["when"], float)
    first = runs(store)[0]
    assert first["first"] == forwards(store, "r")[0]["when"]
    assert first["last"] == row["when"]
    assert first["took_us"] == sum(one["took_us"] for one in forwards(store, "r"))


def test_listing_runs(store: Store) -> None:
    for name in ("b", "a", "c"):
        record(store, name, [1.0])
    assert [row["run"] for row in runs(store)] == ["b", "a", "c"]
    assert [row["run"] for row in runs(store, last=2)] == ["a", "c"]
    assert runs(store, last=0) == []
    assert [row["run"] for row in runs(store, since=runs(store)[2]["last"])] == ["c"]


def test_names_of_records(store: Store) -> None:
    names = ["exp", "exp/1", "exp1", "exp 1", " exp", "実験-é", "e\u0301xp", "a\x00b", "..", "n" * 511, "n" * 512]
    names += ["é" * 300, "n" * 512 + "A", "n" * 512 + "B"]
    for name in names:
        record(store, name, [1.0])
    assert [row["run"] for row in runs(store)] == names
    assert all(len(forwards(store, name)) == 1 for name in names)
    assert len(store.bound()) == len(names)
    assert [one.name for one in store.bound("run/exp/")] == ["run/exp/0"]
    assert [one.name for one in store.bound("run/exp%2F1/")] == ["run/exp%2F1/0"]
    assert {one.meta["state"] for one in store.bound()} == {"ok"}

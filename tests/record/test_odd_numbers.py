"""Texts of any length where a number is meant: no reader, view, page or export ends because of one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from somatize import Recorder, Store, facts
from somatize.errors import FactError
from somatize.record import (
    Followed,
    curve,
    forwards,
    logs,
    nodes,
    page,
    progress,
    runs,
    spent,
    tail,
    tasks,
    timeline,
)
from somatize.record import (
    facts as facts_of,
)
from somatize.record.export import to_csv, to_tensorboard, to_trace
from somatize.ui.run_view import RunView

LONG = "7" * 400
DIGITS = st.sampled_from([LONG, f"-{LONG}", "9" * 5000, "1e999", "-inf", "nan", "", " 1", "1_0", "٣", "1e-400"])
ODD = DIGITS | st.text(max_size=8)
SAID = {
    "task": ("done", "total", "took_us", "before"),
    "throughput": ("samples", "batches", "samples_per_s", "batches_per_s", "flops_per_s", "waiting"),
    "machine": ("memory", "load", "cores"),
    "log": ("level",),
    "loss": ("value", "step"),
}


def told(recorder: Recorder, odd: str) -> None:
    recorder({"fact": "ran", "node": "a", "began_us": "1", "took_us": "2"})
    for kind, fields in SAID.items():
        state = {"id": "1-1", "state": "open", "name": "t", "stream": "s"}
        recorder({"fact": kind, **state, **dict.fromkeys(fields, odd)})
    recorder({"fact": "finished", "took_us": "5"})


@given(ODD)
@example("7" * 400)
@example("9" * 5000)
@settings(max_examples=15, deadline=None)
def test_no_reader_view_or_export_ends_of_an_odd_number(odd: str) -> None:
    with TemporaryDirectory() as folder:
        place = Path(folder) / "runs"
        with Store(place) as store:
            recorder = Recorder(store, run="r", summarising=["loss", "loss.step"])
            told(recorder, odd)
            with Followed(place, "r") as followed:
                followed.look()
                console = Console(width=100, height=40, file=io.StringIO())
                console.print(RunView(followed))
            told(recorder, odd)
            recorder.close()
        for read in (forwards, nodes, tasks, logs, facts_of):
            assert isinstance(read(place, "r"), list)
        assert runs(place)[0]["forwards"] == 2
        assert [number for number, _ in curve(place, "r", of="loss")] in ([], [0, 1])
        assert len(list(tail(place, "r"))) == 2
        for draw in (progress, spent, timeline):
            json.dumps(draw(place, "r").to_plotly_json(), default=str)
        page(place, "r", Path(folder) / "page.html", of=["loss", "throughput.waiting"])
        to_csv(place, "r", Path(folder) / "t.csv")
        to_trace(place, "r", Path(folder) / "trace.json")
        to_tensorboard(place, "r", Path(folder) / "board")


@pytest.mark.parametrize("odd", ["7" * 400, "1" * 19, "٣", "-1", "", "1.5"])
def test_a_count_of_the_engine_is_a_whole_number_of_18_digits(odd: str) -> None:
    with pytest.raises(FactError, match="it is a whole number from 0 to"):
        facts.check({"fact": "finished", "took_us": odd})

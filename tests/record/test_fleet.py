"""What hosts did, as rows and as a picture."""

from __future__ import annotations

from typing import Any

import pytest

from somatize import Store
from somatize.errors import UnknownRun
from somatize.record import Recorder, fleet, machines

FORWARD = [
    {"fact": "ran", "node": "a", "began_us": "0", "took_us": "10"},
    {
        "fact": "machine",
        "id": "m",
        "up_us": "5",
        "served": "0",
        "busy": "0.1",
        "memory": "100",
        "cores": "4",
        "host": "w1",
    },
    {"fact": "ran", "node": "b", "began_us": "1", "took_us": "70", "host": "w1"},
    {"fact": "left", "host": "w1", "began_us": "10", "took_us": "100"},
    {
        "fact": "machine",
        "id": "x",
        "up_us": "5",
        "served": "0",
        "busy": "1.5",
        "memory": "7",
        "cores": "2",
        "host": "w2",
    },
    {
        "fact": "machine",
        "id": "y",
        "up_us": "5",
        "served": "0",
        "busy": "0.5",
        "memory": "8",
        "cores": "2",
        "host": "w2",
    },
    {"fact": "failed", "node": "c", "began_us": "0", "took_us": "30", "why": "E: no", "host": "w2"},
    {"fact": "broke", "took_us": "200", "why": "E: no"},
]


@pytest.fixture
def store(tmp_path: Any) -> Any:
    with Store(tmp_path) as store:
        with Recorder(store, run="r") as recorder:
            for _ in range(2):
                for fact in FORWARD:
                    recorder(dict(fact))
        yield store


def test_a_row_per_host_here_first(store: Any) -> None:
    here, first, second = fleet(store, "r")
    assert here == {
        "host": "here", "slices": 0, "trip": 0, "ran": 20, "waiting": 0, "failures": 0,
        "workers": 0, "busy": None, "memory": None, "cores": None,
    }  # fmt: skip
    assert first == {
        "host": "w1", "slices": 2, "trip": 200, "ran": 140, "waiting": 60, "failures": 0,
        "workers": 1, "busy": 0.1, "memory": 100, "cores": 4,
    }  # fmt: skip
    assert (second["failures"], second["workers"], second["busy"], second["memory"]) == (2, 2, 2.0, 15)
    with pytest.raises(UnknownRun):
        fleet(store, "q")


@pytest.mark.parametrize("theme", [None, "light", "dark"])
def test_a_picture_of_working_against_waiting(store: Any, theme: str | None) -> None:
    figure = machines(store, "r", theme=theme)
    working, waiting = figure.data
    assert (working.name, waiting.name) == ("working", "waiting")
    assert [round(x) for x in working.x] == [20, 140, 60]
    assert [round(x) for x in waiting.x] == [0, 60, 0]
    assert list(figure.layout.yaxis.ticktext) == ["here", "w1", "w2"]
    assert "2 slices sent; 2 failed" in figure.layout.title.subtitle.text


def test_hosts_that_did_nothing_yet_have_no_scale(tmp_path: Any) -> None:
    with Store(tmp_path / "s") as empty:
        Recorder(empty, run="r").close()
        layout = machines(empty).layout
    assert [note.text for note in layout.annotations] == ["nothing ran yet"]
    assert layout.xaxis.showticklabels is False

"""What hosts did, as rows and as a picture."""

from __future__ import annotations

from typing import Any

import pytest

from somatize import Store
from somatize.errors import UnknownRun
from somatize.record import Recorder, fleet, machines
from somatize.record.forward_reader import opened_at
from somatize.record.html_page import digest
from somatize.store.run_reader import lines_of, look

FORWARD = [
    {"fact": "ran", "node": "a", "began_us": "0", "took_us": "10"},
    {
        "fact": "machine",
        "id": "m",
        "up_us": "5",
        "served": "0",
        "busy": "0.1",
        "memory": "0.1",
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
        "memory": "0.7",
        "cores": "2",
        "host": "w2",
    },
    {
        "fact": "machine",
        "id": "y",
        "up_us": "5",
        "served": "0",
        "busy": "0.5",
        "memory": "0.8",
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
        "workers": 1, "busy": 0.1, "memory": 0.1, "cores": 4,
    }  # fmt: skip
    assert (second["failures"], second["workers"], second["busy"], second["memory"]) == (2, 2, 2.0, 0.8)
    with pytest.raises(UnknownRun):
        fleet(store, "q")


def ran(host: str, us: int) -> dict[str, str]:
    return {"fact": "ran", "node": "n", "began_us": "0", "took_us": f"{us}", "host": host}


def left(host: str, us: int) -> dict[str, str]:
    return {"fact": "left", "host": host, "began_us": "0", "took_us": f"{us}"}


def machine(host: str, id: str, memory: float) -> dict[str, str]:
    said = {"up_us": "5", "served": "0", "busy": "0.5", "memory": f"{memory}", "cores": "2"}
    return {"fact": "machine", "id": id, "host": host, **said}


END = {"fact": "finished", "took_us": "1"}
BROKE = {"fact": "broke", "took_us": "1", "why": "E: no"}


def told(tmp_path: Any, *forwards: list[dict[str, str]]) -> list[dict[str, Any]]:
    """What `fleet` gives of these forwards; a page's tables are made of the same rows."""
    with Store(tmp_path / "told") as store:
        with Recorder(store, run="r") as recorder:
            for facts in forwards:
                for fact in facts:
                    recorder(fact)
        rows = fleet(store, "r")
        with opened_at(store) as opened:
            assert look(opened, lambda view: digest(lines_of(view, "r"))).hosts == rows
        return rows


def test_what_ran_in_a_slice_that_did_not_come_back_waited_nowhere(tmp_path: Any) -> None:
    failed = {**ran("w", 500), "fact": "failed", "why": "E: no"}
    _, host = told(
        tmp_path,
        [ran("w", 20), ran("w", 30), left("w", 100), ran("w", 40), left("w", 45), END],
        [ran("w", 70), failed, BROKE],
        [ran("v", 7), ran("w", 10), left("w", 12), END],
    )[:2]
    assert (host["slices"], host["trip"], host["ran"], host["waiting"]) == (3, 157, 670, 57)


def test_a_worker_that_took_anothers_place_is_counted_and_that_one_not(tmp_path: Any) -> None:
    one, two, new = machine("w", "1", 0.1), machine("w", "2", 0.2), machine("w", "3", 0.3)
    _, host = told(tmp_path, [one, two, END], [two, END], [BROKE], [new, END])
    assert (host["workers"], host["memory"]) == (1, 0.3)


def test_those_of_a_pool_count_together_also_where_they_say_so_in_turn(tmp_path: Any) -> None:
    one, two, new = machine("w", "1", 0.1), machine("w", "2", 0.2), machine("w", "3", 0.3)
    _, host = told(tmp_path, [one, two, END], [two, END], [one, END], [new, END], [one, END], [END])
    assert (host["workers"], host["memory"]) == (2, 0.3)


def test_what_a_machine_does_not_say_is_none(tmp_path: Any) -> None:
    first = {name: value for name, value in machine("w", "1", 0.1).items() if name != "busy"}
    older = machine("v", "1", 123_456_789)  # bytes, as in version 0.1
    _, *hosts = told(tmp_path, [ran("w", 1), first, older, left("w", 5), left("v", 2), END])
    assert [(host["host"], host["busy"], host["memory"], host["cores"]) for host in hosts] == [
        ("w", None, 0.1, 2),
        ("v", 0.5, None, 2),
    ]


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

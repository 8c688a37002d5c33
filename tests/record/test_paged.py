"""What is read a stretch at a time is what the readers give at once, and no stretch is longer than it should be."""

from __future__ import annotations

from itertools import chain

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import UnknownRun
from somatize.record import facts, forward_reader, forwards
from somatize.store.run_reader import RunLines

GRAPH = Graph.somatize(node(lambda step: 1 / (step % 7)).named("divide"))


def record(recorder: Recorder, steps: range) -> None:
    for step in steps:
        try:
            GRAPH.forward(step, watching=recorder)
        except ZeroDivisionError:
            pass
        recorder({"fact": "loss", "value": 1 / (1 + step)})


@pytest.fixture
def store(tmp_path):
    """Forwards in blocks of two writers that overlap, in a journal, told something late, and one that is lost."""
    with Store(tmp_path) as store:
        with Recorder(store, run="r", summarising=["loss"]) as one, Recorder(store, run="r") as other:
            for first in range(0, 60, 6):
                record(one, range(first, first + 3))
                record(other, range(first + 3, first + 6))
        with Recorder(store, run="r", summarising=["loss", "late.value"]) as last:
            record(last, range(60, 70))
            last({"fact": "late", "value": 1})
            yield store


@pytest.mark.parametrize("stretch", [7, 1000])
@pytest.mark.parametrize("asked", [{}, {"last": 11}, {"since": 33}, {"last": 0}, {"since": 99}])
def test_stretches_put_end_to_end_are_the_whole(store, monkeypatch, stretch, asked):
    # Here and below: a real stretch takes thousands of forwards.
    monkeypatch.setattr(forward_reader, "STRETCH", stretch)
    pages = forward_reader.Pages(store, "r", asked.get("last"), asked.get("since"))
    rows, told = list(pages.rows()), list(pages.facts())
    assert list(chain.from_iterable(rows)) == forwards(store, "r", **asked)
    assert list(chain.from_iterable(told)) == facts(store, "r", **asked or {"since": 0})
    assert len(pages) == sum(map(len, rows))
    assert [len(page) for page in rows[:-1]] == [stretch] * (len(rows) - 1)
    assert all(tuple(row) == pages.fields for row in chain.from_iterable(rows))
    assert list(pages.rows()) == rows  # and once again


def test_numbers_that_were_never_written_are_lost_in_whatever_stretch_they_fall(store, monkeypatch):
    highest = RunLines.highest
    # Numbers that were given and never written, as a process leaves that is killed between.
    monkeypatch.setattr(RunLines, "highest", lambda lines: highest(lines) + 3)
    monkeypatch.setattr(forward_reader, "STRETCH", 6)
    rows = list(chain.from_iterable(forward_reader.Pages(store, "r", None, None).rows()))
    assert rows == forwards(store, "r")
    assert [(row["forward"], row["state"]) for row in rows[69:]] == [
        (69, "ok"),
        (70, "lost"),
        (71, "lost"),
        (72, "lost"),
    ]


def test_what_is_recorded_meanwhile_is_not_among_them(store, monkeypatch):
    monkeypatch.setattr(forward_reader, "STRETCH", 10)
    before = forwards(store, "r")
    pages = forward_reader.Pages(store, "r", None, None)
    reading = pages.rows()
    found = next(reading)
    with Recorder(store, run="r") as recorder:
        record(recorder, range(5))
    assert [*found, *chain.from_iterable(reading)] == before


def test_a_run_that_is_forgotten_meanwhile_ends_the_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(forward_reader, "STRETCH", 10)
    with Store(tmp_path) as store:
        with Recorder(store, run="r") as recorder:
            record(recorder, range(20))
        reading = forward_reader.Pages(store, "r", None, None).rows()
        assert len(next(reading)) == 10
        store.forget("r")
        with pytest.raises(UnknownRun):
            next(reading)

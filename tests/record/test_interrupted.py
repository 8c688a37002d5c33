"""Ctrl-C as a record is written: at each point where Python looks for signals, one is raised."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.record import curve, facts, forwards
from tests.utils.test_interrupts import InterruptAt, interrupted

G = Graph.somatize(node(abs).named("a") >> node(abs).named("b"))
WRITING = ("recorder.py", "writer.py", "record_format.py", "locks.py", "appender.py")
# fmt: off
STEPS = (
    "opens", "open_forward", "closed", "duration", "end_forward", "pack", "summary", "leave", "__call__", "add_fact",
    "say",
    "write_ordinary_record", "write_ordinary_fact", "_write_entry", "_append", "_append_whole", "enter", "pack_one",
    "alone", "_end_forward", "_add_fact", "_leave_gate",
)
# fmt: on


def at(point: int) -> InterruptAt:
    """An interrupt at that point of recording."""
    return InterruptAt(point, *STEPS, files=WRITING)


@pytest.mark.parametrize("fields", [[], ["loss"]], ids=["plain", "summarised"])
def test_a_forward_is_on_record_once_whenever_the_interrupt_comes(tmp_path: Path, way: str, fields: list[str]) -> None:
    with Store(tmp_path / "s") as store:
        G.forward(0, watching=Recorder(store, run="warm"))
        for point in itertools.count():
            with Recorder(store, run=f"run {point}", summarising=fields) as recorder:
                G.forward(0, watching=recorder)
                recorder({"fact": "loss", "value": 0})
                where = interrupted(lambda: G.forward(1, watching=recorder), at(point))
                G.forward(2, watching=recorder)
                recorder({"fact": "loss", "value": 2})
            rows = forwards(store, recorder.run)
            begun = "opens, " not in where and "open_forward, " not in where  # there nothing had run
            assert [(row["state"], row["nodes"]) for row in rows] == [("ok", 2)] * (3 if begun else 2), where
            assert curve(store, recorder.run) == [(0, 0.0), (len(rows) - 1, 2.0)], where
            kinds = [[fact["fact"] for fact in facts(store, recorder.run, row["forward"])] for row in rows]
            assert kinds == [["ran", "ran", "finished", *["loss"] * (row in (rows[0], rows[-1]))] for row in rows]
            if not where:
                break
        assert point > {"compiled": 8, "pure": 30}[way]
        assert store.check() == []


ENGINE = ("engine/loops.py", "watching/watchers.py", "watching/forwards.py", "engine/scheduler.py")
AROUND = (
    "run_plain",
    "_within",
    "_observe",
    "watch",
    "_watch_one",
    "_open",
    "_tell",
    "remember",
    "close",
    "_reference",
)


class TimeUp(Exception):
    """What the handler of a time limit raises."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeUp])
def test_an_interrupt_reaches_the_caller_and_its_forward_is_recorded_once_or_did_not_begin(
    tmp_path: Path, way: str, kind: type[BaseException]
) -> None:
    with Store(tmp_path / "s") as store:
        for point in itertools.count():
            with Recorder(store, run=f"run {point}") as recorder:
                G.forward(0, watching=recorder)
                interrupt = InterruptAt(point, *STEPS, *AROUND, files=(*WRITING, *ENGINE), kind=kind)
                where = interrupted(lambda: G.forward(1, watching=recorder), interrupt)
                G.forward(2, watching=recorder)
                store.opened.flush()
                states = [row["state"] for row in forwards(store, recorder.run)]
            broken = "interrupted" if kind is KeyboardInterrupt else "broke"
            assert states in (["ok", "ok"], ["ok", broken, "ok"], ["ok", "ok", "ok"]), where
            assert [row["state"] for row in forwards(store, recorder.run)] == states, where
            if not where:
                break
        assert point > {"compiled": 40, "pure": 70}[way]
        assert store.check() == []


def test_a_fact_said_after_its_forward_is_there_once_or_not_whenever_the_interrupt_comes(
    tmp_path: Path, way: str
) -> None:
    with Store(tmp_path / "s") as store:
        for point in itertools.count():
            with Recorder(store, run=f"run {point}", summarising=["loss"]) as recorder:
                G.forward(0, watching=recorder)
                where = interrupted(lambda: recorder({"fact": "loss", "value": 1}), at(point))
                for step in (1, 2):
                    G.forward(step, watching=recorder)
                    recorder({"fact": "loss", "value": step})
            assert curve(store, recorder.run) in (LATER, [(0, 1.0), *LATER]), where
            said = [
                [fact["value"] for fact in facts(store, recorder.run, n) if fact["fact"] == "loss"] for n in range(3)
            ]
            assert said in ([[], ["1"], ["2"]], [["1"], ["1"], ["2"]]), where
            if not where:
                break
        assert point > {"compiled": 3, "pure": 20}[way]
        assert store.check() == []


LATER = [(1, 1.0), (2, 2.0)]


def test_a_handler_that_records_as_a_record_is_written_loses_neither(way: str, tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store, Recorder(store, run="r") as recorder:
        G.forward(0, watching=recorder)
        said = 0

        def handler(*_: object) -> None:
            nonlocal said
            said += 1
            recorder({"fact": "note", "value": said})

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        try:
            for step in range(3000):
                G.forward(step, watching=recorder)
                recorder({"fact": "loss", "value": float(step)})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        recorder.close()
        assert len(forwards(store, "r")) == 3001
        told = [fact for number in range(3001) for fact in facts(store, "r", number)]
        assert sum(fact["fact"] == "finished" for fact in told) == 3001
        assert [fact["value"] for fact in told if fact["fact"] == "loss"] == [repr(float(n)) for n in range(3000)]
        assert sorted(int(fact["value"]) for fact in told if fact["fact"] == "note") == list(range(1, said + 1))
        assert store.check() == []

"""One record: what a Status says as facts, where it lands, and how it is read back."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import RecordError
from somatize.facts import why
from somatize.record import about, curve, facts, logs, tasks, throughput
from somatize.status import Status

log = logging.getLogger("somatize.test")


def said(kind: str, told: list[dict[str, str]]) -> list[dict[str, str]]:
    return [fact for fact in told if fact.get("fact") == kind]


def test_a_task_is_said_when_it_ends_text_to_text(clock: Any) -> None:
    told: list[Any] = []
    with Status(watching=told.append, clock=clock) as status:
        with status.task("outer", total=3) as outer, status.task("inner"):
            clock.pass_(0.02)
            outer.advance(2)
        with pytest.raises(ValueError), status.task("bad"):
            raise ValueError("[x]")
        status.task("left")
    assert told == [
        {"fact": "task", "name": "inner", "state": "finished", "took_us": "20000", "done": "0", "parent": "outer"},
        {"fact": "task", "name": "outer", "state": "finished", "took_us": "20000", "done": "2", "total": "3"},
        {"fact": "task", "name": "bad", "state": "failed", "took_us": "0", "done": "0", "why": "ValueError: [x]"},
        {"fact": "task", "name": "left", "state": "finished", "took_us": "0", "done": "0", "mark": "left open"},
    ]


def test_the_tasks_of_forwards_are_not_said_again() -> None:
    told: list[Any] = []
    with Status(watching=told.append) as status:
        Graph.somatize(lambda x, ctx: ctx.status.task("mine").finish()).forward(1, watching=status)
    assert [(fact["name"], fact["node"], fact["parent"]) for fact in told] == [("mine", "lambda", "lambda")]


def test_an_open_task_is_said_after_a_quarter_second_and_seldom(clock: Any, ticking: Any) -> None:
    told: list[Any] = []
    status = Status(watching=told.append, clock=clock)
    tick = ticking(status)
    with status.task("long", total=100) as task:
        moments = []
        for _ in range(2000):
            clock.pass_(0.05)
            before = len(told)
            assert tick() is True
            if len(told) > before:
                moments.append(task.elapsed)
    assert tick() is False
    assert moments[0] == pytest.approx(0.25, abs=0.06)
    assert all(after - before >= 1 for before, after in itertools.pairwise(moments))
    assert len(moments) < 60  # of 100 seconds in which nothing came of it, and a week has some 200
    assert {fact["state"] for fact in told[:-1]} == {"open"}
    assert len({fact["id"] for fact in told}) == 1
    assert told[-1]["state"] == "finished"
    with status.task("short"):
        pass
    assert "id" not in told[-1]
    status.close()


def test_what_is_new_of_an_open_task_is_said_within_a_second(clock: Any, ticking: Any) -> None:
    told: list[Any] = []
    status = Status(watching=told.append, clock=clock)
    tick = ticking(status)
    with status.task("long") as task:
        clock.pass_(3600)
        tick()
        for _ in range(20):
            clock.pass_(0.5)
            task.advance()
            tick()
        assert [fact["done"] for fact in told] == ["0", *(str(number) for number in range(2, 21, 2))]
        task.total = 30
        clock.pass_(1)
        tick()
        assert told[-1]["total"] == "30"
        told.clear()
        clock.pass_(100)
        tick()
        assert told == []
    status.close()


def test_only_the_latest_of_an_open_task_is_kept(tmp_path: Path, clock: Any, ticking: Any) -> None:
    with Store(tmp_path / "s") as store, Recorder(store, run="r") as recorder:
        status = Status(watching=[recorder], clock=clock)
        tick = ticking(status)

        def goes_on(task: Any, seconds: int = 30) -> None:
            for number in range(seconds):
                clock.pass_(1)
                task.advance()
                tick()
                if number % 10 == 0:
                    store.opened.flush()  # so that some of it is committed and some is not

        def work(value: Any, ctx: Any) -> Any:
            with ctx.status.task("in a node") as inner:
                goes_on(inner)
                assert [(row["forward"], row["name"], row["done"]) for row in tasks(store)] == [
                    (None, "outer", 30),
                    (0, "in a node", 30),
                ]
            return value

        with status.task("outer") as outer:
            goes_on(outer)
            assert about(store)["facts"] == []
            Graph.somatize(node(work).named("a")).forward(1, watching=[recorder, status])
            (row,) = [row for row in tasks(store) if row["name"] == "outer"]
            assert (row["state"], row["done"], row["took_us"] > 50_000_000) == ("open", 30, True)
        for look in range(2):
            assert [(fact["name"], fact["state"], fact["done"]) for fact in about(store)["facts"]] == [
                ("outer", "finished", "30")
            ]
            assert [fact["fact"] for fact in facts(store, forward=0)] == ["task", "ran", "finished"]
            assert [(row["name"], row["state"]) for row in tasks(store)] == [
                ("outer", "finished"),
                ("in a node", "finished"),
            ]
            assert store.check() == []
            if not look:
                store.opened.flush()
        status.task("left")
        clock.pass_(1)
        tick()
        recorder.close()
        assert tasks(store)[-1]["state"] == "lost"  # its recorder is closed: nobody says any more what becomes of it
        store.forget("r")
        assert store.check() == []
        status.close()


def test_log_records_from_a_level_on() -> None:
    told: list[Any] = []
    log.setLevel("DEBUG")
    try:
        with Status(watching=told.append, log_facts="WARNING") as status:
            log.info("not said")
            with status.task("loading"):
                log.warning("open %s", "[x]")
            Graph.somatize(node(lambda x: log.error("in a node")).named("a")).forward(1, watching=status)
        with Status(watching=told.append, log_facts=None):
            log.error("not said either")
    finally:
        log.setLevel(0)
    assert said("log", told) == [
        {
            "fact": "log",
            "level": "WARNING",
            "logger": "somatize.test",
            "message": "open [x]",
            "task": "loading",
        },
        {
            "fact": "log",
            "level": "ERROR",
            "logger": "somatize.test",
            "message": "in a node",
            "task": "a",
            "node": "a",
        },
    ]


def test_the_timing_of_a_task_is_not_said_twice(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    with caplog.at_level("DEBUG", "somatize"), Status(watching=told.append) as status, status.task("x"):
        pass
    assert [fact["fact"] for fact in told] == ["task"]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_watcher_logs_is_never_said(alone: bool) -> None:
    told: list[Any] = []

    def chatty(fact: Any) -> None:
        told.append(fact)
        log.warning("was told %s", fact["fact"])

    def work(value: Any, ctx: Any) -> Any:
        ctx.tell({"fact": "loss", "value": 1})
        log.warning("of the node")
        return value

    with Status(watching=chatty) as status:
        status.task("x").finish()
        Graph.somatize(work).forward(1, watching=chatty if alone else [chatty, status])
        log.warning("after")
    assert [fact["message"] for fact in said("log", told)] == ["of the node", "after"]
    assert len([entry for entry in status.logs if "was told" in entry.message]) >= 4  # they are kept all the same


class ChattySink:
    def __getattribute__(self, offered: str) -> Any:
        log.warning("asked for %s", offered)
        if offered not in ("tell", "entering", "progress", "closed"):
            raise AttributeError(offered)
        return lambda *said: log.warning("%s %s", offered, said)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", ["plain", "fan", "mapped"])
def test_what_any_offer_of_a_watcher_logs_is_never_said(shape: str, threads: int) -> None:
    told: list[Any] = []

    class Chatty:
        def opens(self, graph: Any) -> Any:
            log.warning("opens")
            return ChattySink()

    def work(value: Any, ctx: Any) -> Any:
        ctx.tell({"fact": "loss", "value": 1})
        ctx.progress(1, 2)
        log.warning("of the node")
        return value

    def items(value: Any) -> Any:
        for item in (1, 2):
            log.warning("of the items")
            yield item

    graph = {
        "plain": Graph.somatize(node(work).named("a")),
        "fan": Graph.somatize(node(abs).named("r") >> (node(work).named("a") | node(abs).named("b"))),
        "mapped": Graph.somatize(node(items).named("r") >> node(work).mapped().named("a")),
    }[shape]
    with Status(watching=told.append) as status:
        graph.forward(1, watching=[Chatty(), status], threads=threads)
    expected = ["of the node", "of the items"] * 2 if shape == "mapped" else ["of the node"]
    assert sorted(fact["message"] for fact in said("log", told)) == sorted(expected)


def test_a_watcher_that_raises_is_told_nothing_more() -> None:
    calls, told = [], []

    def broken(fact: Any) -> None:
        calls.append(fact)
        raise RuntimeError("torn")

    with Status(watching=[broken, told.append]) as status:
        with pytest.warns(UserWarning, match="raised and is told nothing more by this Status"):
            status.task("a").finish()
        status.task("b").finish()
    assert (len(calls), len(told)) == (1, 2)


def test_throughput_is_said_once_a_window_and_at_the_end_of_a_pass(clock: Any) -> None:
    told: list[Any] = []
    with Status(watching=told.append, window=4, clock=clock, profile_flops=False) as status:
        stream = status.throughput("train")
        for _ in stream.iterate(range(10)):
            with stream.step(samples=8):
                clock.pass_(0.5)
    spoken = said("throughput", told)
    assert [fact["batches"] for fact in spoken] == ["4", "8", "10"]
    assert spoken[0] == {
        "fact": "throughput",
        "stream": "train",
        "samples": "32",
        "batches": "4",
        "samples_per_s": "16.0",
        "batches_per_s": "2.0",
        "waiting": "0.0",
    }


def test_facts_land_in_the_forward_they_belong_to_or_in_the_run_s_own_record(tmp_path: Path) -> None:
    def work(value: Any, ctx: Any) -> Any:
        with ctx.status.task("in a node"):
            log.warning("of forward %d", value)
        return value

    graph = Graph.somatize(node(work).named("work"))
    with Store(tmp_path / "s") as store:
        with Recorder(store, run="r") as recorder, Status(watching=[recorder], window=2) as status:
            with status.task("before"):
                log.warning("before any forward")
            stream = status.throughput("train")
            for number in stream.iterate(range(4)):
                with stream.step(samples=2):
                    graph.forward(number, watching=[recorder, status])
            with status.task("after"):
                log.warning("after all")
            with status.throughput("alone").step(samples=1):
                pass
        kinds = [[fact["fact"] for fact in facts(store, forward=number)] for number in range(4)]
        assert kinds[0] == ["log", "task", "ran", "finished"]
        assert kinds[1] == ["log", "task", "ran", "finished", "throughput"]
        assert kinds[3] == kinds[1]
        assert [(row["forward"], row["name"]) for row in tasks(store)] == [
            (None, "before"),
            (None, "train: waiting for the first batch"),
            (None, "after"),
            *((number, "in a node") for number in range(4)),
        ]
        assert [(row["forward"], row["message"], row["node"]) for row in logs(store)] == [
            (None, "before any forward", None),
            (None, "after all", None),
            *((number, f"of forward {number}", "work") for number in range(4)),
        ]
        assert [(row["forward"], row["stream"], row["batches"]) for row in throughput(store)] == [
            (None, "alone", 1),
            (1, "train", 2),
            (3, "train", 4),
        ]
        assert [forward for forward, _ in curve(store, of="throughput.samples_per_s")] == [1, 3]
        assert len(about(store)["facts"]) == 6


def test_readers_give_values_and_choose(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        with Recorder(store, run="r") as recorder:
            recorder.say_of_run(
                {"fact": "task", "name": "x", "state": "failed", "took_us": 5, "done": 2.5, "total": 4, "why": "E: x"}
            )
            for level in ("INFO", "WARNING", "Level 35", "LOUD"):
                recorder.say_of_run({"fact": "log", "level": level, "logger": "l", "message": level})
            for stream in ("train", "valid"):
                recorder.say_of_run(
                    {
                        "fact": "throughput",
                        "stream": stream,
                        "samples_per_s": 2.5,
                        "flops_exact": False,
                        "waiting": math.nan,
                    }
                )
        (row,) = tasks(store, run="r")
        assert row == {
            "forward": None,
            "name": "x",
            "state": "failed",
            "took_us": 5,
            "done": 2.5,
            "total": 4,
            "parent": None,
            "node": None,
            "host": None,
            "why": "E: x",
            "mark": None,
        }
        assert [row["message"] for row in logs(store, level="WARNING")] == ["WARNING", "Level 35", "LOUD"]
        assert [row["message"] for row in logs(store, level=31)] == ["Level 35", "LOUD"]
        assert len(logs(store)) == 4
        with pytest.raises(RecordError, match=r"'WARN1NG' is no level of logging; did you mean 'WARNING'\?"):
            logs(store, level="WARN1NG")
        (row,) = throughput(store, stream="valid")
        assert (row["stream"], row["samples_per_s"], row["flops_exact"]) == ("valid", 2.5, False)
        assert (row["flops_per_s"], math.isnan(row["waiting"])) == (None, True)
        with pytest.raises(RecordError, match=r"no stream 'vaild' was said; did you mean 'valid'\?"):
            throughput(store, stream="vaild")


def test_an_open_task_is_seen_by_other_processes_and_lost_with_its_own(tmp_path: Path) -> None:
    script = """
        import sys, time
        from somatize import Recorder, Store
        from somatize.status import Status
        recorder = Recorder(Store(sys.argv[1]), run="r")
        status = Status(watching=[recorder])
        with status.task("long", total=10) as task:
            task.advance(3)
            print("going", flush=True)
            time.sleep(60)
    """
    path = tmp_path / "s"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "going\n"
            until = time.monotonic() + 10
            rows: list[Any] = []
            while not rows and time.monotonic() < until:
                time.sleep(0.05)
                rows = tasks(path)
            (row,) = rows
            assert (row["name"], row["state"], row["done"], row["total"]) == ("long", "open", 3, 10)
            assert row["took_us"] >= 250_000
        finally:
            process.kill()
    (row,) = tasks(path)
    assert row["state"] == "lost"
    assert process.returncode != os.EX_OK


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), asyncio.CancelledError("stop"), SystemExit(3)], ids=repr
)
def test_tasks_that_an_exception_leaves_say_why_in_facts_and_in_the_record(
    tmp_path: Path, error: BaseException
) -> None:
    reason, store = why(error), Store(tmp_path / "s")

    def leaves(x: int, ctx: Any) -> int:
        ctx.status.task("open in a node")
        with ctx.status.task("with in a node"):
            raise error

    with Recorder(store, run="r") as recorder:
        status = Status(watching=recorder)
        with pytest.raises(type(error)):
            Graph.somatize(leaves).forward(1, watching=[recorder, status])
        with pytest.raises(type(error)), status:
            status.task("left open")
            with status.task("outer"):
                for _ in status.track(range(3), "in a loop that goes on"):
                    with status.task("inner"):
                        raise error
    found = {row["name"]: (row["state"], row["why"]) for row in tasks(store, "r")}
    looped = found.pop("in a loop that goes on")
    assert looped == ("finished", None)  # the body of a loop raises past its iterator
    names = ["open in a node", "with in a node", "left open", "outer", "inner"]
    assert found == dict.fromkeys(names, ("failed", reason))
    (told,) = [fact for fact in facts(store, "r") if fact.get("name") == "with in a node"]
    assert (told["state"], told["why"]) == ("failed", reason)

"""SIGKILL at any instant: what returned is read back, and the next writer starts at once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from somatize import Ctx, Graph, Recorder, Store, node
from somatize.record import curve, facts, forwards, runs
from somatize.store import commit, lmdb_environment


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc.named("a") >> inc.named("b"))


def records(place: Path, every: float, first_map: int, text: str) -> Callable[[Callable[[str], None]], None]:
    """A child that records for ever and reports each forward and each fact whose call returned."""

    def work(report: Callable[[str], None]) -> None:
        commit.EVERY = every
        lmdb_environment.FIRST_MAP = first_map
        recorder = Recorder(Store(place), run="r", summarising=["loss"])
        number = 0
        while True:
            G.forward(number, watching=recorder)
            report("forward")
            recorder({"fact": "loss", "value": number, "text": text})
            report("fact")
            number += 1

    return work


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 240), marks=pytest.mark.slow)], ids=["40", "200"])
@pytest.mark.usefixtures("way")
def test_nothing_that_returned_is_lost(child: Callable[..., Any], tmp_path: Path, seeds: range) -> None:
    told: list[int] = []
    for seed in seeds:
        place = tmp_path / f"s{seed}"
        chance = random.Random(seed)
        every = chance.choice([0.001, 0.01, 0.25])
        text = "x" * chance.choice([0, 5000])
        victim = child(records(place, every, chance.choice([1 << 16, 16 << 20]), text))
        if chance.random() < 0.8:
            first = victim.line()
            time.sleep(chance.random() * 0.12)
        else:
            first = ""
            time.sleep(chance.random() * 0.01)  # during the first open
        _, lines = victim.end()
        lines = [first, *lines] if first else lines
        forwards_told, facts_told = lines.count("forward"), lines.count("fact")
        told.append(facts_told)
        store = Store(place)
        if forwards_told:
            check_all(store, forwards_told, facts_told, text)  # by a reader, before anything is repaired
            assert store.check() == []
        began = time.monotonic()
        with Recorder(store, run="r", summarising=["loss"]) as recorder:
            G.forward(0, watching=recorder)
            assert time.monotonic() - began < 1.0 or facts_told > 3000
        count = len(forwards(store, "r"))
        assert count in {forwards_told + 1, forwards_told + 2}  # one may have been written and not reported
        check_all(store, forwards_told, facts_told, text)
        assert store.check() == []
        states = [row["state"] for row in forwards(store, "r")]
        # The one that was in it when the kill came is there as lost if it had been kept waiting for a quarter second.
        in_it = states.pop(forwards_told) if count == forwards_told + 2 else "lost"
        assert in_it in {"ok", "lost"}
        assert states == ["ok"] * (forwards_told + 1)
        store.close()
    assert sum(told) > 10 * len(told)


def check_all(store: Store, forwards_told: int, facts_told: int, text: str) -> None:
    rows = forwards(store, "r")
    assert [row["forward"] for row in rows] == list(range(len(rows)))
    assert len(rows) >= forwards_told
    points = curve(store, "r")[:facts_told]
    assert points == [(n, float(n)) for n in range(facts_told)]
    for n in {0, facts_told // 2, facts_told - 1}:
        if 0 <= n < facts_told:
            told = facts(store, "r", n)
            assert [fact["fact"] for fact in told] == ["ran", "ran", "finished", "loss"]
            assert told[-1] == {"fact": "loss", "value": str(n), "text": text}


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.usefixtures("way")
def test_a_forward_that_died_reads_lost_and_names_its_node(child: Callable[..., Any], place: Path, sign: int) -> None:
    """C014: marked open while its process lives, lost once it is dead, at once and without any unlocking."""

    def work(report: Callable[[str], None]) -> None:
        recorder = Recorder(Store(place), run="r", summarising=["loss"])

        @node
        def slow(x: int, ctx: Ctx) -> int:
            ctx.tell({"fact": "loss", "value": 0.5})
            report("in")
            time.sleep(60)
            return x

        G.forward(1, watching=recorder)
        Graph.somatize(inc.named("a") >> slow).forward(1, watching=recorder)

    victim = child(work)
    assert victim.line() == "in"
    store = Store(place)
    while len(forwards(store, "r")) < 2:
        time.sleep(0.01)
    assert [row["state"] for row in forwards(store, "r")] == ["ok", "open"]
    assert inside(store) == [{"forward": 1, "state": "open", "inside": ["slow"]}]
    victim.end(sign)
    for _ in range(2):
        rows = forwards(store, "r")
        assert [(row["state"], row["nodes"], row["loss.value"], row["took_us"] is None) for row in rows] == [
            ("ok", 2, None, False),
            ("lost", 1, "0.5", True),
        ]
        assert [fact["fact"] for fact in facts(store, "r", 1)] == ["ran", "loss"]
        assert runs(store)[0]["lost"] == 1
        assert inside(store) == [{"forward": 1, "state": "lost", "inside": ["slow"]}]
        assert store.check() == []
        began = time.monotonic()
        Recorder(store, run="r").close()
        assert time.monotonic() - began < 1.0
    with Recorder(store, run="r") as recorder:
        G.forward(1, watching=recorder)
    assert [row["state"] for row in forwards(store, "r")] == ["ok", "lost", "ok"]
    store.close()


def inside(store: Store) -> list[dict[str, Any]]:
    from somatize.record import unfinished

    return [{key: row[key] for key in ("forward", "state", "inside")} for row in unfinished(store, "r")]


def test_a_pid_that_is_used_again_fools_nobody(child: Callable[..., Any], place: Path) -> None:
    """The dead writer's journal says the pid of a process that lives: this one."""
    me = os.getpid()

    def work(report: Callable[[str], None]) -> None:
        os.getpid = lambda: me  # type: ignore[assignment]
        store = Store(place)
        store.opened.pid = me
        recorder = Recorder(store, run="r")
        recorder._writer.pid = me

        @node
        def slow(x: int) -> int:
            report("in")
            time.sleep(60)
            return x

        Graph.somatize(slow).forward(1, watching=recorder)

    victim = child(work)
    victim.line()
    store = Store(place)
    while not forwards(store, "r"):
        time.sleep(0.01)
    assert forwards(store, "r")[0]["state"] == "open"
    victim.end()
    assert forwards(store, "r")[0]["state"] == "lost"
    store.close()


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_readers_do_no_harm(child: Callable[..., Any], place: Path, count: int) -> None:
    store = Store(place)
    recorder = Recorder(store, run="r")
    G.forward(0, watching=recorder)
    store.opened.flush()

    def reads(report: Callable[[str], None]) -> None:
        mine = Store(place)
        with mine.opened.records.read() as reading:
            assert reading.get(b"i") is not None
            report("reading")
            time.sleep(60)

    for _ in range(count):
        victim = child(reads)
        assert victim.line() == "reading"
        victim.end()
    size = None
    for step in range(60):
        G.forward(step, watching=recorder)
        recorder({"fact": "note", "text": "x" * 20_000})
        store.opened.flush()
        if step == 5:
            store.opened.records.sweep()
            size = store.opened.records.path.stat().st_size
    assert size is not None
    assert store.opened.records.path.stat().st_size < size + 3_000_000
    assert len(forwards(store, "r")) == 61
    recorder.close()
    assert store.check() == []
    store.close()

"""A forward whose end is told, and which is not closed yet: whatever comes in between, it reads as it ended."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from somatize import Ctx, Graph, Recorder, Store, node
from somatize.record import curve, facts, forwards, unfinished

FINISHED = {"fact": "finished", "took_us": "12"}
BROKE = {"fact": "broke", "took_us": "7", "why": "ValueError: no"}


@node
def inc(x: int) -> int:
    return x + 1


@pytest.mark.parametrize(("end", "state", "took"), [(FINISHED, "ok", 12), (BROKE, "broke", 7)])
def test_a_part_that_is_written_between_its_last_fact_and_its_closing(
    store: Store, end: dict[str, str], state: str, took: int
) -> None:
    with Recorder(store, run="r") as recorder:
        sink = recorder.opens(None)
        sink.tell({"fact": "ran", "node": "a", "began_us": "0", "took_us": "1"})
        sink.tell(end)
        store.opened.flush()  # writes parts of what goes on, as the committing thread does on its own
        sink.closed()
    assert [(row["state"], row["took_us"], row["nodes"]) for row in forwards(store, "r")] == [(state, took, 1)]
    assert facts(store, "r")[-1] == end
    assert unfinished(store, "r") == []
    assert store.check() == []


@pytest.mark.parametrize("flushing", [False, True])
def test_a_watcher_that_says_something_when_it_is_told_the_end(store: Store, flushing: bool) -> None:
    recorder = Recorder(store, run="r", summarising=["loss"])

    def says(fact: Any) -> None:
        if fact["fact"] == "finished":
            recorder({"fact": "loss", "value": 0.5})
            if flushing:
                store.opened.flush()

    g = Graph.somatize(inc)
    g.forward(1, watching=[recorder, says])
    g.forward(1, watching=[says, recorder])
    for _ in range(2):
        rows = forwards(store, "r")
        assert [(row["state"], row["loss.value"], row["took_us"] is None) for row in rows] == [("ok", "0.5", False)] * 2
        assert [fact["fact"] for fact in facts(store, "r", 0)] == ["ran", "finished", "loss"]
        assert [fact["fact"] for fact in facts(store, "r", 1)] == ["ran", "loss", "finished"]
        recorder.close()
    assert store.check() == []


@pytest.mark.parametrize("seed", range(3))
def test_forwards_that_end_in_any_order_leave_blocks_in_order(store: Store, seed: int) -> None:
    random = Random(seed)
    recorder = Recorder(store, run="r", summarising=["tag"])

    def goes_on(depth: int, ctx: Ctx) -> int:
        store.opened.flush()  # it has its number, and is stored as open
        for _ in range(random.randrange(6) if depth else 0):
            run.forward(random.randrange(depth), watching=recorder)
            if random.random() < 0.4:
                store.opened.flush()
        ctx.tell({"fact": "tag", "value": depth})
        return depth

    run = Graph.somatize(node(goes_on).named("a"))
    for _ in range(12):
        run.forward(3, watching=recorder)
    recorder.close()
    assert store.check() == []
    numbers = [row["forward"] for row in forwards(store, "r")]
    assert numbers == list(range(len(numbers)))
    assert [row["forward"] for row in forwards(store, "r", last=20)] == numbers[-20:]
    assert [row["forward"] for row in forwards(store, "r", since=50)] == numbers[50:]
    assert dict(curve(store, "r", of="tag")) == {n: float(said(store, n)) for n in numbers}


def said(store: Store, number: int) -> str:
    return next(fact["value"] for fact in facts(store, "r", number) if fact["fact"] == "tag")

"""One record per forward: what it holds, which forward a fact belongs to, what is refused."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import re
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from somatize import Ctx, Graph, Recorder, Store, node
from somatize.errors import BadRun, FactError, FactWarning, RecorderClosed, WatcherWarning
from somatize.record import curve, facts, forwards, nodes, runs

pytestmark = pytest.mark.usefixtures("way")


@node
def inc(x: int) -> int:
    return x + 1


@node
def bad(x: int) -> int:
    raise ValueError("no")


def kinds(store: Store, run: str, forward: int) -> list[str]:
    return [fact["fact"] for fact in facts(store, run, forward)]


def test_a_record_is_what_a_watcher_was_told(store: Store) -> None:
    told: list[dict[str, str]] = []
    with Recorder(store, run="r") as recorder:
        Graph.somatize(inc.named("a") >> inc.named("b")).forward(1, watching=[told.append, recorder])
        assert facts(store, "r") == told
    assert facts(store, "r") == told
    assert [fact["fact"] for fact in told] == ["ran", "ran", "finished"]


def test_a_fact_said_afterwards_is_the_last_of_its_record(store: Store) -> None:
    g = Graph.somatize(inc)
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        for step in range(3):
            g.forward(step, watching=recorder)
            recorder({"fact": "loss", "value": step / 2})
        assert [facts(store, "r", n)[-1] for n in range(3)] == [
            {"fact": "loss", "value": "0.0"},
            {"fact": "loss", "value": "0.5"},
            {"fact": "loss", "value": "1.0"},
        ]
        before = forwards(store, "r")
    assert forwards(store, "r") == before
    assert [row["loss.value"] for row in before] == ["0.0", "0.5", "1.0"]


def test_late_facts_are_the_same_read_before_and_after_each_commit(store: Store) -> None:
    """The one path reads journals, the next batches in memory, the last blocks that were put right."""
    g = Graph.somatize(inc)
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        for step in range(50):
            g.forward(step, watching=recorder)
            if step % 7 == 0:
                store.opened.flush()
            recorder({"fact": "loss", "value": float(step)})
            assert curve(store, "r")[-1] == (step, float(step))
            recorder({"fact": "note", "text": "x"})
            recorder({"fact": "loss", "value": step + 0.5})
            assert curve(store, "r")[-1] == (step, step + 0.5)
        want = [(n, n + 0.5) for n in range(50)]
        assert curve(store, "r") == want
        store.opened.flush()
        assert curve(store, "r") == want
    assert curve(store, "r") == want
    assert all(kinds(store, "r", n) == ["ran", "finished", "loss", "note", "loss"] for n in range(50))


def test_a_broken_forward_says_why_and_an_interrupted_one_is_told_apart(store: Store) -> None:
    class Own(BaseException):
        pass

    def raising(error: BaseException) -> Any:
        @node
        def raises(x: int) -> int:
            raise error

        return Graph.somatize(raises)

    with Recorder(store, run="r") as recorder:
        for error in (ValueError("v"), KeyboardInterrupt(), SystemExit(1), Own("o"), MemoryError()):
            with pytest.raises(type(error)):
                raising(error).forward(0, watching=recorder)
        states = [row["state"] for row in forwards(store, "r")]
        assert states == ["broke", "interrupted", "interrupted", "interrupted", "broke"]
        assert facts(store, "r", 0)[-1]["why"] == "ValueError: v"
    row = runs(store)[0]
    assert (row["forwards"], row["broke"], row["interrupted"], row["lost"]) == (5, 2, 3, 0)
    assert [row["state"] for row in forwards(store, "r")] == states


def test_an_unnamed_run_has_a_name_that_sorts_and_is_unique(store: Store) -> None:
    names = []
    for _ in range(3):
        with Recorder(store) as recorder:
            names.append(recorder.run)
        time.sleep(0.002)
    assert names == sorted(names)
    assert len(set(names)) == 3
    assert re.fullmatch(r"\d{8}-\d{6}-\d{3}-[a-z]+-[a-z]+-[0-9a-f]{4}", names[0])


def test_a_reopened_run_goes_on(store: Store) -> None:
    g = Graph.somatize(inc)
    for _ in range(3):
        with Recorder(store, run="r") as recorder:
            g.forward(0, watching=recorder)
            g.forward(0, watching=recorder)
    assert [row["forward"] for row in forwards(store, "r")] == list(range(6))
    assert len({one.meta["writer"] for one in store.bound("run/r/")}) == 3


def test_two_recorders_on_one_run_at_once_share_its_numbers(store: Store) -> None:
    g = Graph.somatize(inc)
    with Recorder(store, run="r") as first, Recorder(store, run="r") as second:
        for _ in range(5):
            g.forward(0, watching=first)
            g.forward(0, watching=second)
    assert [row["forward"] for row in forwards(store, "r")] == list(range(10))


@pytest.mark.parametrize("name", ["", "n" * 5000, "a\ud800b", 3])
def test_a_run_name_that_cannot_be_is_refused_at_once(store: Store, name: Any) -> None:
    with pytest.raises(BadRun):
        Recorder(store, run=name)
    assert runs(store) == []


def test_what_is_no_list_of_names_is_refused(store: Store, tmp_path: Path) -> None:
    for wrong in ("loss", 3, b"x"):
        with pytest.raises(TypeError, match="list of names"):
            Recorder(store, run="r", summarising=wrong)  # type: ignore[arg-type]
    for names in ([3], ["a..b"], [""]):
        with pytest.raises(ValueError, match="takes names"):
            Recorder(store, run="r", summarising=names)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Recorder writes to a Store"):
        Recorder(str(tmp_path))  # type: ignore[arg-type]


def test_a_fact_without_a_kind_is_refused_and_a_closed_recorder_says_so(store: Store) -> None:
    recorder = Recorder(store, run="r")
    for wrong in ({"value": 1}, {"fact": ""}, {"fact": 3}):
        with pytest.raises(FactError):
            recorder(wrong)
    recorder.close()
    recorder.close()
    with pytest.raises(RecorderClosed, match="'r' is closed"):
        recorder({"fact": "loss", "value": 1})
    with pytest.raises(RecorderClosed):
        Graph.somatize(inc).forward(1, watching=recorder)


def test_a_forward_still_going_when_its_recorder_closes_reads_lost(store: Store) -> None:
    recorder = Recorder(store, run="r")

    @node
    def closes(x: int) -> int:
        recorder({"fact": "note", "text": "here"})
        recorder.close()
        return x

    with pytest.warns(WatcherWarning, match="RecorderClosed"):
        assert Graph.somatize(closes).forward(4, watching=recorder) == 4
    assert [row["state"] for row in forwards(store, "r")] == ["lost"]
    assert kinds(store, "r", 0) == ["note"]


# -- which forward a fact belongs to


def test_facts_said_inside_a_node_belong_to_the_forward_around_it(store: Store) -> None:
    recorder = Recorder(store, run="r", summarising=["loss"])

    @node
    def says(x: int, ctx: Ctx) -> int:
        recorder({"fact": "loss", "value": x})
        ctx.tell({"fact": "seen", "value": x})
        return x

    g = Graph.somatize(says)
    for step in range(3):
        g.forward(step, watching=recorder)
    assert curve(store, "r") == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert kinds(store, "r", 1) == ["loss", "seen", "ran", "finished"]
    recorder.close()
    assert kinds(store, "r", 1) == ["loss", "seen", "ran", "finished"]
    assert curve(store, "r") == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_nested_forwards_have_records_of_their_own(store: Store) -> None:
    recorder = Recorder(store, run="r")
    inner = Graph.somatize(inc.named("inner"))

    @node
    def outer(x: int) -> int:
        y = inner.forward(x, watching=recorder)
        recorder({"fact": "of", "who": "inner"})
        return y

    Graph.somatize(outer).forward(1, watching=recorder)
    recorder({"fact": "of", "who": "outer"})
    recorder.close()
    told = [facts(store, "r", n) for n in range(2)]
    assert [[fact.get("node") for fact in one if fact["fact"] == "ran"] for one in told] == [["inner"], ["outer"]]
    assert [one[-1]["who"] for one in told] == ["inner", "outer"]


def test_threads_and_tasks_that_share_a_recorder_never_mix(store: Store) -> None:
    recorder = Recorder(store, run="r", summarising=["mine"])

    def work(who: int) -> None:
        g = Graph.somatize(inc.named(f"n{who}"))
        for step in range(40):
            g.forward(step, watching=recorder)
            recorder({"fact": "mine", "value": who})

    threads = [threading.Thread(target=work, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def task(who: int) -> None:
        g = Graph.somatize(inc.named(f"n{who}"))
        for step in range(20):
            g.forward(step, watching=recorder)
            await asyncio.sleep(0)
            recorder({"fact": "mine", "value": who})

    async def together() -> None:
        await asyncio.gather(*(task(who) for who in range(6, 10)))

    asyncio.run(together())
    recorder.close()
    rows = forwards(store, "r")
    assert [row["forward"] for row in rows] == list(range(6 * 40 + 4 * 20))
    for row in rows:
        told = facts(store, "r", row["forward"])
        assert [fact["fact"] for fact in told] == ["ran", "finished", "mine"]
        assert told[0]["node"] == f"n{told[2]['value']}" == f"n{row['mine.value']}"


def test_facts_told_by_hand_make_records_just_the_same(store: Store) -> None:
    g = Graph.somatize(inc.named("a") >> inc.named("b"))
    seen: list[dict[str, str]] = []
    with Recorder(store, run="direct") as direct:
        g.forward(1, watching=[direct, seen.append])
    with Recorder(store, run="hand") as hand:
        g.forward(1, watching=lambda fact: hand(fact))
        hand({"fact": "loss", "value": 1})
        for fact in seen:  # a list played back
            hand(fact)
        hand({"fact": "loss", "value": 2})
        g.forward(1, watching=lambda fact: hand(fact) if fact["fact"] != "ran" else None)
    assert [kinds(store, "hand", n) for n in range(3)] == [
        ["ran", "ran", "finished", "loss"],
        ["ran", "ran", "finished", "loss"],
        ["finished"],
    ]
    assert facts(store, "hand", 1)[:3] == facts(store, "direct", 0)
    assert [row["nodes"] for row in forwards(store, "hand")] == [2, 2, 0]


def test_facts_told_by_hand_are_kept_apart_per_thread_and_nested_forward(store: Store) -> None:
    recorder = Recorder(store, run="r")

    def told(fact: dict[str, str]) -> None:
        recorder(fact)

    inner = Graph.somatize(inc.named("inner"))

    @node
    def outer(x: int) -> int:
        return inner.forward(x, watching=told)

    g = Graph.somatize(inc.named("first") >> outer)

    def work() -> None:
        for _ in range(20):
            g.forward(1, watching=told)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    records = [[fact.get("node") for fact in facts(store, "r", n)] for n in range(160)]
    assert sorted(map(str, records)) == sorted(map(str, [["inner", None]] * 80 + [["first", "outer", None]] * 80))


def test_a_filter_that_leaves_out_the_end_leaves_no_record(store: Store) -> None:
    g = Graph.somatize(inc)
    with Recorder(store, run="r") as recorder:
        for _ in range(1500):
            g.forward(1, watching=lambda fact: recorder(fact) if fact["fact"] == "ran" else None)
        # What it holds in memory shows nowhere else.
        assert len(recorder._by_hand._going_on) <= 1025


def test_a_fact_before_the_first_forward_is_the_runs_own(store: Store) -> None:
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        recorder({"fact": "loss", "value": 1})
        assert forwards(store, "r") == []
        Graph.somatize(inc).forward(1, watching=recorder)
        assert curve(store, "r") == []
    assert len(forwards(store, "r")) == 1


# -- a forward that goes on


def until(holds: Callable[[], Any], seconds: float = 10.0) -> Any:
    """What `holds` gives once it gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("it never came")


def test_a_forward_that_goes_on_is_there_with_what_it_told_so_far(store: Store) -> None:
    recorder = Recorder(store, run="r", summarising=["loss"])
    go_on = threading.Event()

    @node
    def slow(x: int, ctx: Ctx) -> int:
        ctx.tell({"fact": "loss", "value": 0.5})
        assert go_on.wait(20)
        ctx.tell({"fact": "loss", "value": 0.25})
        return x

    g = Graph.somatize(inc.named("a") >> slow)
    began = time.monotonic()
    thread = threading.Thread(target=lambda: g.forward(1, watching=recorder))
    thread.start()
    row = until(lambda: forwards(store, "r"))[0]
    assert 0.25 <= time.monotonic() - began < 1.0
    assert (row["state"], row["nodes"], row["took_us"], row["loss.value"]) == ("open", 1, None, "0.5")
    assert kinds(store, "r", 0) == ["ran", "loss"]
    assert curve(store, "r") == [(0, 0.5)]
    Graph.somatize(inc).forward(1, watching=recorder)
    assert [row["state"] for row in forwards(store, "r")] == ["open", "ok"]
    store.opened.flush()
    assert [row["state"] for row in forwards(store, "r")] == ["open", "ok"]
    assert runs(store)[0]["forwards"] == 2
    go_on.set()
    thread.join()
    for _ in range(2):
        assert kinds(store, "r", 0) == ["ran", "loss", "loss", "ran", "finished"]
        assert [(row["state"], row["nodes"], row["loss.value"]) for row in forwards(store, "r")] == [
            ("ok", 2, "0.25"),
            ("ok", 1, None),
        ]
        assert curve(store, "r") == [(0, 0.25)]
        recorder.close()
    assert runs(store)[0]["forwards"] == 2


def test_many_facts_of_one_forward_do_not_stay_in_memory(store: Store) -> None:
    recorder = Recorder(store, run="r")

    @node
    def talks(x: int, ctx: Ctx) -> int:
        for step in range(30_000):
            ctx.tell({"fact": "step", "value": step})
            if step % 10_000 == 0:
                time.sleep(0.3)  # the thread that writes parts has its turn
        return x

    Graph.somatize(talks).forward(1, watching=recorder)
    recorder.close()
    told = facts(store, "r", 0)
    assert [fact["value"] for fact in told[:-2]] == [str(step) for step in range(30_000)]
    assert [fact["fact"] for fact in told[-2:]] == ["ran", "finished"]


# -- life and death of a recorder


def test_a_recorder_that_is_forgotten_lets_go_and_loses_nothing(store: Store) -> None:
    g = Graph.somatize(inc)
    recorder = Recorder(store, run="r")
    gone = weakref.ref(recorder)
    g.forward(1, watching=recorder)
    del recorder
    gc.collect()
    assert gone() is None
    assert len(forwards(store, "r")) == 1
    until(lambda: not store.opened.writers)
    assert not list(store.opened.journals.iterdir())
    assert len(forwards(store, "r")) == 1


def test_a_recorder_per_forward_works(store: Store) -> None:
    g = Graph.somatize(inc)
    for _ in range(100):
        g.forward(1, watching=Recorder(Store(store.path), run="r"))
    assert [row["forward"] for row in forwards(store, "r")] == list(range(100))


def test_a_pickled_recorder_opens_the_same_run(store: Store) -> None:
    g = Graph.somatize(inc)
    with Recorder(store, run="r", summarising=["loss"]) as recorder, pickle.loads(pickle.dumps(recorder)) as other:
        g.forward(1, watching=recorder)
        g.forward(1, watching=other)
        other({"fact": "loss", "value": 3})
    assert curve(store, "r") == [(1, 3.0)]


def test_the_journal_goes_when_all_is_committed(store: Store) -> None:
    with Recorder(store, run="r") as recorder:
        Graph.somatize(inc).forward(1, watching=recorder)
        assert len(list(store.opened.journals.iterdir())) == 1
    assert not list(store.opened.journals.iterdir())


def test_one_odd_value_loses_nothing_else(store: Store) -> None:
    with Recorder(store, run="r") as recorder:
        Graph.somatize(inc).forward(1, watching=recorder)
        with pytest.warns(FactWarning):
            recorder({"fact": "m", "value": [1, 2]})
        with pytest.warns(FactWarning):
            recorder({"fact": "m", 1: 0.5, "ok": 3})
    assert facts(store, "r", 0)[-2:] == [{"fact": "m", "value": "<list len=2>"}, {"fact": "m", "ok": "3"}]


def test_a_record_is_numbered_by_when_it_is_first_written_down(store: Store) -> None:
    assert os.getpid()
    recorder = Recorder(store, run="r")
    inner = Graph.somatize(inc.named("inner"))

    @node
    def outer(x: int) -> int:
        return inner.forward(x, watching=recorder)

    Graph.somatize(outer).forward(1, watching=recorder)
    recorder.close()
    assert [row["node"] for row in nodes(store, "r", last=1)] == ["outer"]

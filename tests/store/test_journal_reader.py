"""What journals hold beyond the last commit: a look that wants little of it sees the same as one that wants all."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import Graph, Recorder, Store, node
from somatize.errors import RecordWarning
from somatize.record import curve, facts, forwards, runs
from somatize.store import commit
from somatize.store import journal as journals
from somatize.store.rows import JournalRows


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc)


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is committed but where a test flushes."""
    # What was not committed is what is read here.
    monkeypatch.setattr(commit, "EVERY", 3600.0)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of journals that were looked at closely, of each time that it was done."""
    found: list[int] = []
    take = JournalRows.read

    def counted(self: JournalRows, buffer: bytes, *more: Any) -> JournalRows:
        found.append(len(buffer))
        return take(self, buffer, *more)

    # How much is read shows nowhere else.
    monkeypatch.setattr(JournalRows, "read", counted)
    return found


said = st.sampled_from(["forward", "forward", "late", "older", "own", "open", "go on", "close", "flush", "look"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(said, max_size=25), last=st.integers(0, 6), since=st.integers(0, 12))
def test_a_part_of_a_run_is_as_it_is_in_the_whole(
    steps: list[str], last: int, since: int, seldom: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("s") / "store")
    recorder = Recorder(store, run="r", summarising=["loss"])
    sinks, ended = [], []
    for at, step in enumerate(steps):
        if step == "forward":
            ended.append(sink := recorder.opens(None))
            sink.tell({"fact": "ran", "node": "a", "began_us": "0", "took_us": str(at)})
            sink.tell({"fact": "finished", "took_us": str(at)})
            sink.closed()
        elif step == "late" and ended:
            recorder({"fact": "loss", "value": at})
        elif step == "older" and ended:
            fact = {"fact": "loss", "value": str(at)}
            # A fact said after its forward, in an order that no recorder gives at will.
            recorder._writer.add_fact(ended[at % len(ended)], fact, fact)
        elif step == "own":
            recorder.say_of_run({"fact": "note", "text": str(at)})
        elif step == "open":
            sinks.append(sink := recorder.opens(None))
            sink.say({"fact": "loss", "value": str(at)})
        elif step == "go on" and sinks:
            sinks[at % len(sinks)].say({"fact": "loss", "value": str(at)})
        elif step == "close" and sinks:
            sink = sinks.pop(at % len(sinks))
            sink.tell({"fact": "broke", "took_us": str(at), "why": "ValueError: no"})
            sink.closed()
        elif step == "flush":
            store.opened.flush()
        elif step == "look":
            agrees(store, last, since)
    agrees(store, last, since)
    recorder.close()
    agrees(store, last, since)
    store.close()


def agrees(store: Store, last: int, since: int) -> None:
    rows, points = forwards(store, "r"), curve(store, "r")
    assert [row["forward"] for row in rows] == list(range(len(rows)))
    assert forwards(store, "r", last=last) == rows[len(rows) - min(last, len(rows)) :]
    assert forwards(store, "r", since=since) == rows[since:]
    assert curve(store, "r", since=since) == [point for point in points if point[0] >= since]
    told = [facts(store, "r", n) for n in range(len(rows))]
    if rows:
        assert [fact for one in told for fact in one] == facts(store, "r", since=0)
        assert facts(store, "r") == told[-1]
    (row,) = runs(store)
    states = [one["state"] for one in rows]
    assert (row["forwards"], row["broke"], row["lost"]) == (len(rows), states.count("broke"), states.count("lost"))
    assert row["took_us"] == sum(one["took_us"] or 0 for one in rows)
    assert (row["first"], row["last"]) == (
        min((one["when"] for one in rows), default=None),
        max((one["when"] for one in rows), default=None),
    )


def record(recorder: Recorder, count: int) -> None:
    for step in range(count):
        G.forward(step, watching=recorder)
        recorder({"fact": "loss", "value": step})


def test_a_look_at_little_looks_closely_at_little(store: Store, seldom: None, taken: list[int]) -> None:
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        record(recorder, 500)
        journal = sum(one.stat().st_size for one in store.opened.journals.iterdir())
        assert journal > 60_000
        for wanted in (
            lambda: forwards(store, "r", last=5),
            lambda: forwards(store, "r", since=495),
            lambda: curve(store, "r", last=5),
            lambda: facts(store, "r", 250),
            lambda: facts(store, "r"),
        ):
            taken.clear()
            wanted()
            assert sum(taken) < 2000
        assert len(forwards(store, "r")) == 500
        assert sum(taken) > 60_000


def test_a_look_reads_the_heads_that_are_new(store: Store, seldom: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        record(recorder, 500)
        assert forwards(store, "r", last=1)[0]["forward"] == 499
        record(recorder, 1)
        read, pread = [], os.pread

        def counted(fd: int, length: int, at: int) -> bytes:
            found = pread(fd, length, at)
            read.append((at, len(found)))
            return found

        # How much is read shows nowhere else.
        monkeypatch.setattr(os, "pread", counted)
        assert forwards(store, "r", last=1)[0]["forward"] == 500
        assert sum(length for at, length in read if at) < 1000
        store.opened.flush()
        record(recorder, 2)
        read.clear()
        assert runs(store)[0]["forwards"] == 503  # which reads what is not committed, and no more
        assert sum(length for at, length in read if at) < 2000


def test_damage_in_the_journal_of_a_living_writer_is_named(store: Store, place: Path, seldom: None) -> None:
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        record(recorder, 20)
        (journal,) = (place / "journals").iterdir()
        while b"code " not in (content := journal.read_bytes()):  # from a thread; nothing is to come after it
            time.sleep(0.001)
        at = content.rindex(b"\xa5value\xa217")  # inside of what was said of forward 17
        entry = next(start for start in range(at, 0, -1) if journals.entry_at(content, start) is not None)
        spoiled = {"body": (at + 7, b"\x00"), "size": (entry, b"\xff\xff\xff\xff")}
        assert len(curve(store, "r")) == 20
        for where, new in spoiled.values():
            with journal.open("r+b") as file:
                file.seek(where)
                file.write(new)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert facts(store, "r", 3)[-1] == {"fact": "loss", "value": "3"}
            with pytest.warns(RecordWarning, match=r"is damaged from byte \d+ on"):
                assert [n for n, _ in curve(place, "r")] == [n for n in range(20) if n != 17]
            assert any("are damaged" in sentence for sentence in store.check())
            journal.write_bytes(content)
    assert [n for n, _ in curve(store, "r")] == list(range(20))  # the records were in memory, too
    assert store.check() == []

"""A store that is compacted while others have it open: whoever slept through it goes on in the file that counts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import DamagedStore, NoStore, RecordError, RecordLost
from somatize.record import curve, forwards, runs
from somatize.store import commit, lmdb_environment, recovery


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc)


def names(place: Path) -> list[str]:
    return sorted(one.name for one in place.glob("*records*"))


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_writer_that_slept_through_compactions_loses_nothing(
    place: Path, child: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(commit, "EVERY", 3600.0)  # so that nothing here looks at the store meanwhile
    store = Store(place)
    store.keep("k", "before")
    recorder = Recorder(store, run="r", summarising=["loss"])
    G.forward(1, watching=recorder)
    # The thread that says where the run is made would come in between.
    recorder._teller.wait()
    store.opened.flush()

    def work(report: Callable[[str], None]) -> None:
        mine = Store(place)
        for _ in range(times):
            mine.compact()
        mine.keep("k", "meanwhile")

    assert child(work).end(None)[0] == 0
    assert names(place) == [f"records.{times}.lmdb", f"records.{times}.lmdb-lock"]
    assert store.opened.records.path.name == "records.lmdb"
    assert store.recall("k") == "meanwhile"
    for step in range(2):
        G.forward(1, watching=recorder)
        recorder({"fact": "loss", "value": step})
    recorder.close()
    assert curve(store, "r") == [(1, 0.0), (2, 1.0)]
    store.keep("mine", 1)
    store.close()
    store = Store(place)
    assert [row["forward"] for row in forwards(store, "r")] == [0, 1, 2]
    assert store.recall("mine") == 1
    assert store.check() == []
    store.close()


def test_a_file_that_goes_while_it_is_opened_is_not_made_anew(
    place: Path, child: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB makes the file it is to open if it is not there: an empty one, which would pass for the store."""
    with Store(place) as store, Recorder(store, run="r") as recorder:
        G.forward(1, watching=recorder)

    # The file goes in the very moment between two steps of opening it.
    opened, times = lmdb_environment.Environment._open_lmdb, iter([2])

    def work(report: Callable[[str], None]) -> None:
        mine = Store(place)
        mine.compact()
        mine.compact()

    def gone(self: lmdb_environment.Environment, path: Path, fd: int) -> Any:
        for _ in times:
            assert child(work).end(None)[0] == 0
        return opened(self, path, fd)

    monkeypatch.setattr(lmdb_environment.Environment, "_open_lmdb", gone)
    assert [row["forwards"] for row in runs(place)] == [1]
    assert names(place) == ["records.2.lmdb", "records.2.lmdb-lock"]
    assert Store(place).check() == []


def test_what_a_killed_compaction_left_goes_with_the_next(place: Path, child: Callable[..., Any]) -> None:
    store = Store(place)
    with Recorder(store, run="r") as recorder:
        G.forward(1, watching=recorder)

    def work(report: Callable[[str], None]) -> None:
        from somatize.store import directory as places

        def stops(_: Path) -> None:
            report("here")
            import time

            time.sleep(60)

        places.sync = stops  # type: ignore[assignment]
        Store(place).compact()

    victim = child(work)
    assert victim.line() == "here"
    victim.end()
    (place / ".making-records.lmdb.12345").write_bytes(b"x" * 100_000)  # of one that was killed while it copied
    assert "records.1.lmdb" in names(place)
    assert [row["forwards"] for row in runs(store)] == [1]
    store.compact()
    assert names(place) == ["records.2.lmdb", "records.2.lmdb-lock"]
    assert store.check() == []
    store.close()


def test_a_store_in_the_place_of_one_that_is_gone_is_not_written_to(place: Path) -> None:
    store = Store(place)
    recorder = Recorder(store, run="r")
    G.forward(1, watching=recorder)
    shutil.rmtree(place)
    other = place.with_name("other")
    with Store(other) as made, Recorder(made, run="r") as second:
        G.forward(1, watching=second)
        G.forward(1, watching=second)
    other.rename(place)
    with pytest.raises(NoStore, match="is gone"):
        store.keep("k", 1)
    with pytest.raises(RecordLost, match="is gone"):
        recorder.close()
    store.close()
    with Store(place) as again:
        assert [row["forwards"] for row in runs(again)] == [2]
        assert again.kept() == []


def test_a_journal_that_goes_while_dead_ones_are_looked_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer closed in between: nothing is amiss, and those that are dead are taken in all the same."""
    store = Store(place)
    listed = recovery.journal_files

    def one_more(opened: Any) -> list[Path]:
        return [opened.journals / ("0" * 15 + "1.000000"), *listed(opened)]

    # The journal appears in the very moment between two steps.
    monkeypatch.setattr(recovery, "journal_files", one_more)
    recorder = Recorder(store, run="r")
    G.forward(1, watching=recorder)
    with pytest.raises(RecordError, match="is being recorded to"):
        store.forget("r")
    recorder.close()
    store.forget("r")
    assert runs(store) == []
    store.close()


def test_damaged_totals_are_an_error_of_ours_that_names_the_file(place: Path) -> None:
    with Store(place) as store, Recorder(store, run="some run of mine") as recorder:
        G.forward(1, watching=recorder)
    file = place / "records.lmdb"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"some run of mine", b"some run of mime"))
    with Store(place) as store:
        for ask in (lambda: Recorder(store, run="some run of mine"), lambda: forwards(store, "some run of mine")):
            with pytest.raises(DamagedStore, match=str(place)):
                ask()
        assert store.check() != []

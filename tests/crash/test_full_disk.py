"""A disk without room, met by whatever opens a store on it: an error of ours, and never the end of the process.

LMDB maps its lock file; a hole in it that the disk has no room for ends a process by a signal.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import NotWritten, RecordWarning, StoreError
from somatize.record import forwards, runs

pytestmark = pytest.mark.usefixtures("way")


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc)


def fill(small_disk: Path) -> Path:
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def recorded(place: Path) -> None:
    with Store(place) as store, Recorder(store, run="r") as recorder:
        G.forward(1, watching=recorder)


def test_a_new_store_is_refused(small_disk: Path) -> None:
    filler = fill(small_disk)
    with pytest.raises(StoreError, match="cannot be made a store: No space left on device"):
        Store(small_disk / "s")
    assert list((small_disk / "s").iterdir()) in ([], [small_disk / "s" / "journals", small_disk / "s" / "files"])
    filler.unlink()
    recorded(small_disk / "s")
    assert [row["forwards"] for row in runs(small_disk / "s")] == [1]


@pytest.mark.parametrize("without", [[], ["records.lmdb-lock", "values.lmdb-lock"]])
def test_a_store_that_is_there_is_read_or_refused(
    child: Callable[..., Any], small_disk: Path, without: list[str]
) -> None:
    place = small_disk / "s"
    recorded(place)
    for name in without:
        (place / name).unlink()
        (place / name).touch() if name.startswith("v") else None
    filler = fill(small_disk)

    def work(report: Callable[[str], None]) -> None:
        try:
            report(str([row["forwards"] for row in runs(place)]))
            report(str(Store(place).check()))
        except StoreError as error:
            report(str(error))

    status, lines = child(work).end(None)
    refused = [f"{place}/records.lmdb cannot be opened: its lock file: No space left on device"]
    assert (status, lines) == (0, refused if without else ["[1]", "[]"])
    filler.unlink()
    recorded(place)
    assert len(forwards(place, "r")) == 2


def test_a_compaction_without_room_changes_nothing(small_disk: Path) -> None:
    with Store(small_disk / "s") as store:
        with Recorder(store, run="r") as recorder:
            G.forward(1, watching=recorder)
            for _ in range(5):
                recorder({"fact": "note", "text": "x" * 100_000})
        before = sorted(one.name for one in (small_disk / "s").iterdir())
        filler = fill(small_disk)
        os.truncate(filler, filler.stat().st_size - 300_000)
        for work in (store.compact, lambda: store.copy(small_disk / "copy"), lambda: store.put(b"x" * 400_000)):
            with pytest.raises(NotWritten, match="No space left on device"):
                work()
        assert not (small_disk / "copy").exists()
        assert sorted(one.name for one in (small_disk / "s").iterdir()) == before
        filler.unlink()
        store.compact()
        assert [row["forwards"] for row in runs(store)] == [1]
        assert store.check() == []


def test_the_lock_files_have_no_holes(place: Path) -> None:
    recorded(place)
    with Store(place) as store:
        store.compact()
    for lock in place.glob("*-lock"):
        assert lock.stat().st_size == 65536
        assert lock.stat().st_blocks * 512 >= 65536
    assert len(list(place.glob("*-lock"))) == 2


@pytest.mark.parametrize("large", [False, True])
def test_what_makes_room_does_so_on_a_full_disk(small_disk: Path, large: bool) -> None:
    """A little is held for it; what goes is found by what was used last, also by what is noted in memory alone."""
    store = Store(small_disk / "s")
    with Recorder(store, run="old") as recorder:
        for number in range(20):
            G.forward(number, watching=recorder)
    sizes = [1 << 20] if large else []
    for number, size in enumerate([2000] * 80 + sizes):
        store.keep(f"v{number:03}", bytes(size) + str(number).encode(), {"node": f"n{number % 2}"})
    store.recall("v000")
    fill(small_disk)
    gone = store.prune(max_bytes=2000 * 40)
    left = {one.name for one in store.kept()}
    assert left | {one.name for one in gone} == {f"v{number:03}" for number in range(80 + large)}
    assert not left & {one.name for one in gone}
    assert "v000" in left
    assert sum(one.bytes for one in store.kept()) <= 2000 * 40
    for name in left:
        assert store.recall(name).endswith(str(int(name[1:])).encode())
    store.drop("n1")
    assert all(one.meta["node"] == "n0" for one in store.kept())
    store.forget("old")
    assert runs(store) == []
    store.compact()
    assert store.check() == []
    store.close()
    recorded(small_disk / "s")


def test_what_is_recorded_on_a_full_disk_is_there_once_a_prune_made_room(small_disk: Path) -> None:
    store = Store(small_disk / "s")
    for number in range(100):
        store.keep(f"v{number:03}", bytes(3000) + str(number).encode())
    recorder = Recorder(store, run="r")
    fill(small_disk)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordWarning)
        for number in range(200):
            G.forward(number, watching=recorder)
    assert len(store.prune(max_bytes=0)) == 100
    store.compact()
    recorder.close()
    assert len(forwards(store, "r")) == 200

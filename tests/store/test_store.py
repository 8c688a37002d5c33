"""The store: bytes by content, names, handles, growth, and what is refused."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import threading
from pathlib import Path

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import BadName, DamagedStore, NewerFormat, NoStore, NotStored, StoreClosed
from somatize.record import facts, forwards, runs


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store"


def test_bytes_come_back_by_their_digest(place: Path) -> None:
    with Store(place) as store:
        for data in (b"", b"x", b"x" * 5000, os.urandom(3 << 20), bytearray(b"ba"), memoryview(b"mv")):
            digest = store.put(data)
            assert store.get(digest) == bytes(data)
            assert store.put(data) == digest
        for wrong in ("0" * 64, "zz", ""):
            with pytest.raises(NotStored):
                store.get(wrong)


def test_large_values_are_files_and_damage_is_never_given(place: Path) -> None:
    with Store(place) as store:
        digest = store.put(b"y" * (2 << 20))
        (file,) = (place / "files").iterdir()
        assert file.name == digest
        file.write_bytes(b"z" * (2 << 20))
        with pytest.raises(DamagedStore, match=digest[:10]):
            store.get(digest)


def test_names_are_bound_claimed_and_listed(place: Path) -> None:
    with Store(place) as store:
        one, two = store.put(b"1"), store.put(b"2")
        store.bind("best", one, {"why": "loss"})
        assert store.resolve("best") == one
        assert not store.claim("best", two)
        assert store.claim("worst", two)
        store.bind("best", two)
        assert store.resolve("best") == two
        assert [(named.name, named.meta) for named in store.bound()] == [("best", {}), ("worst", {})]
        assert [named.name for named in store.bound("w")] == ["worst"]
        long = "é" * 1500
        store.bind(long + "a", one)
        store.bind(long + "b", two)
        assert (store.resolve(long + "a"), store.resolve(long + "b")) == (one, two)
        assert [named.name for named in store.bound(long)] == [long + "a", long + "b"]
        with pytest.raises(NotStored, match="holds nothing of that digest"):
            store.bind("x", "0" * 64)
        for wrong in ("", "run/x/0", "n" * 5000, "\ud800"):
            with pytest.raises(BadName):
                store.bind(wrong, one)
        with pytest.raises(NotStored, match="nothing named 'gone'"):
            store.resolve("gone")


def test_of_many_threads_one_claims(place: Path) -> None:
    with Store(place) as store:
        digest, won = store.put(b"x"), []
        gate = threading.Barrier(8)

        def claim() -> None:
            gate.wait()
            won.append(store.claim("lock", digest))

        threads = [threading.Thread(target=claim) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == [False] * 7 + [True]


def test_handles_on_one_place(place: Path, tmp_path: Path) -> None:
    """C008: opened again, by another path, through a link, copied, pickled; closing one leaves the others."""
    first = Store(place)
    (tmp_path / "alias").symlink_to(place)
    others = [Store(str(place)), Store(tmp_path / "alias"), copy.copy(first), copy.deepcopy(first)]
    others += [pickle.loads(pickle.dumps(first))]
    with Recorder(first, run="r") as recorder:
        G.forward(1, watching=recorder)
        for other in others:
            assert other == first
            assert hash(other) == hash(first)
            assert len(forwards(other, "r")) == 1
            other.close()
            other.close()
        G.forward(1, watching=recorder)
        first.close()
        G.forward(1, watching=recorder)
    with pytest.raises(StoreClosed):
        first.bound()
    again = Store(place)
    assert len(forwards(again, "r")) == 3
    assert again != Store(tmp_path / "other")
    assert again != 3
    again.close()


def test_closing_a_store_commits_what_its_recorders_were_told(place: Path) -> None:
    store = Store(place)
    recorder = Recorder(store, run="r")
    G.forward(1, watching=recorder)
    store.close()
    committed = shutil.copytree(place, place.with_name("committed"))
    for journal in (committed / "journals").iterdir():
        journal.unlink()
    assert [row["state"] for row in forwards(committed)] == ["ok"]
    recorder.close()
    assert len(forwards(place)) == 1


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NoStore):
        Store(tmp_path / "file")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "mine.txt").write_text("x")
    with pytest.raises(NoStore, match=r"mine\.txt"):
        Store(tmp_path / "dir")
    assert [one.name for one in (tmp_path / "dir").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("content", "error"),
    [("", DamagedStore), ("hello", DamagedStore), ("somatize store, format 99\n", NewerFormat)],
)
def test_another_format_is_refused(place: Path, content: str, error: type[Exception]) -> None:
    Store(place).close()
    (place / "FORMAT").write_text(content)
    with pytest.raises(error):
        Store(place)
    with pytest.raises(error):
        runs(place)


def test_an_empty_store_is_small_and_closed_stores_leave_a_handful_of_files(place: Path) -> None:
    Store(place).close()
    files = [one for one in place.rglob("*") if one.is_file()]
    assert sum(one.stat().st_blocks * 512 for one in files) < 200_000
    assert len(files) <= 8


def test_the_map_grows_by_itself_also_for_a_value_larger_than_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C007, with threads that write and readers that read meanwhile."""
    from somatize.store import lmdb_environment

    # Else it takes gigabytes until the map grows.
    monkeypatch.setattr(lmdb_environment, "FIRST_MAP", 1 << 17)
    store = Store(place)
    stop, wrong = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                count = len(store.bound())
                wrong.extend([count] if len(store.bound()) < count else [])
            except Exception as error:
                wrong.append(error)

    def write(who: int) -> None:
        for step in range(40):
            store.bind(f"{who}/{step}", store.put(bytes([who, step]) * 20_000))

    reader = threading.Thread(target=read)
    reader.start()
    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    with Recorder(store, run="r") as recorder:
        for thread in threads:
            thread.start()
        for step in range(300):
            G.forward(step, watching=recorder)
            recorder({"fact": "note", "text": "x" * 5000})
        recorder({"fact": "note", "text": "y" * 200_000})
        for thread in threads:
            thread.join()
    stop.set()
    reader.join()
    assert wrong == []
    assert store.get(store.put(b"z" * 900_000)) == b"z" * 900_000
    assert all(
        store.get(store.resolve(f"{who}/{step}")) == bytes([who, step]) * 20_000
        for who in range(4)
        for step in range(40)
    )
    assert len(forwards(store, "r")) == 300
    assert facts(store, "r", 299)[-1] == {"fact": "note", "text": "y" * 200_000}
    store.close()


def test_kept_values_come_back(place: Path) -> None:
    with Store(place) as store:
        assert store.keep("a", {"x": [1, 2.5, "t"]}) > 0
        assert store.recall("a") == {"x": [1, 2.5, "t"]}
        assert store.recall("a") is not store.recall("a")
        assert [one.name for one in store.kept()] == ["a"]
        with pytest.raises(NotStored):
            store.recall("b")
        assert store.bound() == []

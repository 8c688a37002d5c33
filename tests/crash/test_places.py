"""Where a store lies: full disks, directories one may only read, directories that are gone, and damage."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import DamagedStore, RecordLost, RecordWarning, StoreReadOnly
from somatize.record import curve, facts, forwards, nodes, runs
from somatize.store import appender, lmdb_files


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc)


def record(store: Store, count: int, run: str = "r") -> None:
    with Recorder(store, run=run, summarising=["loss"]) as recorder:
        for step in range(count):
            G.forward(step, watching=recorder)
            recorder({"fact": "loss", "value": step})


def test_a_full_disk_costs_no_result_and_no_record(small_disk: Path) -> None:
    """C012: one notice, every result, and all the records once there is room."""
    store = Store(small_disk / "s")
    recorder = Recorder(store, run="r", summarising=["loss"])
    G.forward(0, watching=recorder)
    store.opened.flush()
    filler = small_disk / "filler"
    fd = os.open(filler, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(fd, b"x" * 4096)
    except OSError:
        os.close(fd)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(1, 3000):
            assert G.forward(step, watching=recorder) == step + 1
            recorder({"fact": "loss", "value": step})
        time.sleep(0.6)  # the committing thread meets the full disk too
        read = len(forwards(store, "r"))
    assert 1 <= read <= 3000
    kinds = [str(one.message) for one in told if issubclass(one.category, RecordWarning)]
    assert sum("kept in memory" in sentence for sentence in kinds) == 1
    assert len(kinds) <= 2
    filler.unlink()
    for step in range(3000, 3100):
        G.forward(step, watching=recorder)
        recorder({"fact": "loss", "value": step})
    recorder.close()
    assert [row["forward"] for row in forwards(store, "r")] == list(range(3100))
    assert curve(store, "r") == [(step, float(step)) for step in range(1, 3100)]
    assert store.check() == []
    store.close()


def test_what_does_not_fit_in_memory_is_counted_and_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else it would take as much memory as a real one may.
    monkeypatch.setattr(appender, "MOST_BYTES", 20_000)
    store = Store(place)
    recorder = Recorder(store, run="r")
    G.forward(0, watching=recorder)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for step in range(200):
                assert G.forward(step, watching=recorder) == step + 1
        assert [one.category for one in told] == [RecordWarning]
        with pytest.raises(RecordLost, match=r"\d+ entries of run 'r'"):
            recorder.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert len(forwards(store, "r")) == 1
    assert store.check() == []
    store.close()


def test_a_directory_that_is_gone_is_said_when_it_closes(place: Path) -> None:
    store = Store(place)
    recorder = Recorder(store, run="r")
    G.forward(0, watching=recorder)
    shutil.rmtree(place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(20):
            assert G.forward(step, watching=recorder) == step + 1
        with pytest.raises(RecordLost, match="is gone"):
            recorder.close()
    store.close()
    again = Store(place)
    record(again, 2)
    assert len(forwards(again, "r")) == 2
    again.close()


def _lock_down(place: Path) -> None:
    for one in [place, *place.rglob("*")]:
        one.chmod(one.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) | stat.S_IRGRP | stat.S_IROTH)
        if one.is_dir():
            one.chmod(one.stat().st_mode | stat.S_IXGRP | stat.S_IXOTH)
    for parent in place.parents:
        if parent.stat().st_uid == os.getuid() and str(parent) != "/":
            parent.chmod(parent.stat().st_mode | 0o055)


def test_a_directory_one_may_only_read(child: Callable[..., Any], tmp_path: Path) -> None:
    """C011, as another user: reading works and makes no file, also what is in journals; recording is refused."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user, and root may write everywhere")
    place = tmp_path / "s"
    store = Store(place)
    store.bind("n", store.put(b"v"))
    record(store, 300)
    recorder = Recorder(store, run="live", summarising=["loss"])
    for step in range(10):
        G.forward(step, watching=recorder)
        recorder({"fact": "loss", "value": step})
    _lock_down(place)
    before = sorted(str(one) for one in place.rglob("*"))

    def work(report: Callable[[str], None]) -> None:
        os.setgid(65534)
        os.setuid(65534)
        mine = Store(place)
        report(str([row["forwards"] for row in runs(mine)]))
        report(str(curve(mine, "r") == [(n, float(n)) for n in range(300)]))
        report(str(curve(mine, "live") == [(n, float(n)) for n in range(10)]))
        report(str(len(facts(place, "r", 7)) == 3 and nodes(mine, "r")[0]["ran"] == 300))
        report(str(mine.get(mine.resolve("n"))))
        report(str(mine.check()))
        for refused in (lambda: Recorder(mine, run="mine"), lambda: mine.put(b"x"), lambda: mine.forget("r")):
            try:
                refused()
            except StoreReadOnly:
                report("refused")
        try:
            Store(place / "sub")
        except StoreReadOnly:
            report("refused")

    status, lines = child(work).end(None)
    assert status == 0
    assert lines == ["[300, 10]", "True", "True", "True", "b'v'", "[]", *["refused"] * 4]
    assert sorted(str(one) for one in place.rglob("*")) == before
    recorder.close()
    store.close()


def test_lockless_reading_beside_a_writer(
    child: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that may not write the lock file, while blocks are joined and pages used again under it."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user, and root may write everywhere")
    from somatize.store import commit

    place = tmp_path / "s"
    store = Store(place)
    record(store, 5)
    _lock_down(place)

    def work(report: Callable[[str], None]) -> None:
        os.setgid(65534)
        os.setuid(65534)
        seen = 0
        report("ready")
        until = time.monotonic() + 4
        while time.monotonic() < until and seen < 1000:
            points = curve(place, "r")
            assert points == [(n, float(n % 5 if n < 5 else n)) for n in range(len(points))], points[-3:]
            assert len(points) >= seen
            seen = len(points)
        report(str(seen > 5))

    # Else few commits come in the middle of something.
    monkeypatch.setattr(commit, "EVERY", 0.01)
    reader = child(work)
    assert reader.line() == "ready"
    with Recorder(store, run="r", summarising=["loss"]) as recorder:
        for step in range(5, 1000):
            G.forward(step, watching=recorder)
            recorder({"fact": "loss", "value": step})
            time.sleep(0.001)
    status, lines = reader.end(None)
    assert (status, lines) == (0, ["True"])
    store.close()


# -- damage


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with values and records, some megabytes of both; it is copied, not changed."""
    place = tmp_path_factory.mktemp("filled") / "store"
    store = Store(place)
    for step in range(100):
        store.bind(f"n{step}", store.put(bytes([step]) * 3000))
    record(store, 3000)
    store.close()
    return place


@pytest.mark.parametrize("name", ["records.lmdb", "values.lmdb"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "middle", "gone", "half"])
def test_a_damaged_file_is_named_and_never_mapped(
    script: Callable[..., Any], place: Path, filled: Path, name: str, damage: str
) -> None:
    shutil.copytree(filled, place)
    file, content = place / name, (place / name).read_bytes()
    spoiled = {
        "truncated": content[:12_288],
        "empty": b"",
        "text": b"all work and no play " * (len(content) // 21),
        "middle": content[:8192] + b"\x5a" * (len(content) - 8192),
        "half": content[: len(content) // 2],
    }
    file.unlink() if damage == "gone" else file.write_bytes(spoiled[damage])
    process = script("""
        from somatize.errors import DamagedStore
        for ask in (lambda: runs(PLACE), lambda: Store(PLACE).resolve("n1"), lambda: Store(PLACE).check()):
            try:
                print("answered", ask())
            except DamagedStore as error:
                print("refused", error)
    """)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, (process.returncode, err)
    assert "refused" in out
    assert str(file) in out
    assert "answered []" not in out


def test_a_file_is_looked_at_again_only_as_long_as_somebody_writes_it(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (filled / "records.lmdb").read_bytes()
    file = tmp_path / "records.lmdb"
    file.write_bytes(whole[: len(whole) // 2])
    slept = []
    # No test waits: what would be waited for is noted, or played.
    monkeypatch.setattr(lmdb_files.time, "sleep", slept.append)
    with pytest.raises(DamagedStore):
        lmdb_files.verify(file, 1000)
    assert len(slept) == 1
    growing = iter([whole[: len(whole) // 2 + 4096], whole[: len(whole) // 2 + 8192], whole])
    monkeypatch.setattr(lmdb_files.time, "sleep", lambda seconds: file.write_bytes(next(growing)))
    lmdb_files.verify(file, 1000)
    assert list(growing) == []


def test_one_bad_record_is_named_and_the_rest_is_read(place: Path) -> None:
    store = Store(place)
    record(store, 50)
    store.close()
    file = place / "records.lmdb"
    content = bytearray(file.read_bytes())
    told = b"\xa5value\xa217"  # the loss of forward 17
    at = content.rindex(told)
    content[at + len(told) - 1] ^= 1
    file.write_bytes(content)
    store = Store(place)
    with pytest.warns(RecordWarning, match="run/r/17 is damaged"):
        assert facts(store, "r", 17) == []
    with pytest.warns(RecordWarning, match="run/r/17 is damaged"):
        assert nodes(store, "r")[0]["ran"] == 49
    assert len(forwards(store, "r")) == 50
    assert len(curve(store, "r")) == 50
    assert store.check() == ["run 'r': the record of forward 17 is damaged"]
    store.close()


def test_a_torn_or_foreign_journal(place: Path, child: Callable[..., Any]) -> None:
    def work(report: Callable[[str], None]) -> None:
        recorder = Recorder(Store(place), run="r", summarising=["loss"])
        for step in range(30):
            G.forward(step, watching=recorder)
            if not step:  # versions and digests of code come from threads; the loss is to be the last entry
                (journal,) = (place / "journals").iterdir()
                while not all(word in journal.read_bytes() for word in (b"versions", b"code ")):
                    time.sleep(0.001)
            recorder({"fact": "loss", "value": step})
        report("done")
        time.sleep(60)

    Store(place).close()
    victim = child(work)
    victim.line()
    victim.end()
    (journal,) = (place / "journals").iterdir()
    content = journal.read_bytes()
    store = Store(place)
    whole = len(forwards(store, "r"))
    assert whole == 30
    journal.write_bytes(content[:-7])
    assert len(forwards(store, "r")) == 30
    assert len(curve(store, "r")) == 29
    journal.write_bytes(content + b"\0" * 5000)
    assert len(curve(store, "r")) == 30
    foreign = place / "journals" / ("0" * 16 + ".000000")
    foreign.write_text("not ours")
    (place / "journals" / ".DS_Store").write_text("x")
    with pytest.warns(RecordWarning, match="is not a journal"):
        assert len(curve(store, "r")) == 30
    with pytest.warns(RecordWarning, match="is not a journal"):
        record(store, 1)
    with pytest.warns(RecordWarning, match="is not a journal"):
        assert len(forwards(store, "r")) == 31
    assert foreign.read_text() == "not ours"
    assert any("is not a journal" in sentence for sentence in store.check())
    store.close()


def test_damage_that_opens_is_refused_as_ours(place: Path) -> None:
    Store(place).close()
    (place / "records.lmdb").write_bytes(b"")
    with pytest.raises(DamagedStore, match=r"records\.lmdb"):
        Store(place)


# -- keeping house


def test_forget_rename_compact_and_copy(place: Path, tmp_path: Path) -> None:
    store, other = Store(place), Store(place)
    for name in ("a", "b", "c"):
        with Recorder(store, run=name, summarising=["loss"]) as recorder:
            for step in range(300):
                G.forward(step, watching=recorder)
                recorder({"fact": "loss", "value": step, "text": "x" * 2000})
    copied = store.copy(tmp_path / "copy")
    store.rename("c", "d")
    store.forget(["a", "b"])
    assert [row["run"] for row in runs(other)] == ["d"]
    size = store.opened.records.path.stat().st_size
    with Recorder(store, run="live", summarising=["loss"]) as recorder:
        G.forward(1, watching=recorder)
        store.compact()
        G.forward(1, watching=recorder)
        assert store.opened.records.path.name == "records.1.lmdb"
    assert store.opened.records.path.stat().st_size < size / 2
    assert len(curve(other, "d")) == 300
    assert len(forwards(other, "live")) == 2
    assert store.check() == copied.check() == []
    assert [(row["run"], row["forwards"]) for row in runs(copied)] == [("a", 300), ("b", 300), ("c", 300)]
    assert len(curve(copied, "a")) == 300
    for one in (store, other, copied):
        one.close()


def test_a_store_compacted_by_another_process_is_followed(place: Path, child: Callable[..., Any]) -> None:
    store = Store(place)
    recorder = Recorder(store, run="r")
    G.forward(1, watching=recorder)
    store.opened.flush()

    def work(report: Callable[[str], None]) -> None:
        mine = Store(place)
        mine.compact()
        mine.bind("n", mine.put(b"v"))

    assert child(work).end(None)[0] == 0
    G.forward(1, watching=recorder)
    store.opened.flush()
    assert store.get(store.resolve("n")) == b"v"
    recorder.close()
    assert [row["forward"] for row in forwards(place, "r")] == [0, 1]
    assert store.check() == []
    store.close()

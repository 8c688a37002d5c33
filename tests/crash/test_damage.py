"""Damage of every kind to any file of a store: an error of ours or a warning, never a crash, never a wrong value."""

from __future__ import annotations

import os
import random
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import DamagedStore, SomatizeError
from somatize.record import about, curve, facts, forwards, nodes, runs, unfinished, writers

pytestmark = pytest.mark.usefixtures("way")

_PAGE = 4096
_TOP = {"r": 3000, "q": 30, "dead": 200}


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc)


def fill(place: Path) -> None:
    """A store with blocks, late facts, forwards in parts, a run's own facts, values, and a journal of a dead writer."""
    store = Store(place)
    with Recorder(store, run="r", summarising=["loss"], config={"lr": 1}) as recorder:
        for step in range(_TOP["r"]):
            G.forward(step, watching=recorder)
            recorder({"fact": "loss", "value": step})
            if step % 700 == 699:
                store.opened.flush()
                recorder({"fact": "note", "text": "x" * 3000})
    with Recorder(store, run="q") as recorder:
        for step in range(_TOP["q"]):
            sink = recorder.opens(None)
            sink.say({"fact": "ran", "node": "n", "took_us": "1", "began_us": "0"})
            store.opened.flush()
            sink.tell({"fact": "loss", "value": str(step)})
            sink.tell({"fact": "finished", "took_us": "2"})
            sink.closed()
            recorder.say_of_run({"fact": "hello", "text": str(step)})
    for step in range(100):
        store.bind(f"n{step}", store.put(bytes([step]) * step * 30))
    store.keep("k", [1, 2, 3])
    recorder = Recorder(store, run="dead", summarising=["loss"])
    for step in range(_TOP["dead"]):
        G.forward(step, watching=recorder)
        recorder({"fact": "loss", "value": step})
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole") / "s"
    pid = os.fork()
    if pid == 0:
        try:
            fill(place)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    return place


def spoil(file: Path, chance: random.Random) -> None:
    data, length = bytearray(file.read_bytes()), file.stat().st_size
    kind = chance.choice(["bit", "bit", "bytes", "zeros", "noise", "swapped", "head", "cut", "longer"])
    first, second = (chance.randrange(max(1, length // _PAGE)) * _PAGE for _ in range(2))
    if kind == "bit":
        data[chance.randrange(length)] ^= 1 << chance.randrange(8)
    elif kind == "bytes":
        for _ in range(chance.choice([5, 50, 500])):
            data[chance.randrange(length)] = chance.randrange(256)
    elif kind in ("zeros", "noise"):
        size = len(data[first : first + _PAGE])
        data[first : first + _PAGE] = bytes(size) if kind == "zeros" else chance.randbytes(size)
    elif kind == "swapped":
        one, other = data[first : first + _PAGE], data[second : second + _PAGE]
        data[first : first + _PAGE], data[second : second + _PAGE] = other, one
    elif kind == "head":
        for _ in range(30):
            data[min(length - 1, first + chance.randrange(64))] = chance.randrange(256)
    elif kind == "cut":
        del data[chance.randrange(length) :]
    else:
        data += chance.randbytes(chance.randrange(1, 9000))
    file.write_bytes(data)


class Asked:
    """Asks for all there is; keeps what was answered with neither a right value nor an error of ours."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.wrong: list[str] = []

    def __call__(self, work: Callable[..., object], *given: Any) -> None:
        try:
            work(*given)
        except SomatizeError:
            pass
        except BaseException:
            self.wrong.append(traceback.format_exc())

    def reads(self) -> None:
        store = self.store
        for run in _TOP:
            self(self._are_right, run)
            for reader in (curve, nodes, about, unfinished, writers):
                self(reader, store, run)
            self(lambda run: forwards(store, run, last=5), run)
        for step in (0, 50, 99):
            self(self._is_right, step)
        self(runs, store)
        self(store.bound)
        self(store.recall, "k")
        self(store.check)

    def writes(self, target: Path) -> None:
        store = self.store
        self(self._records)
        self(store.copy, target)
        self(store.forget, "q")
        self(store.compact)
        self(store.check)

    def _are_right(self, run: str) -> None:
        assert all(value == float(forward) for forward, value in curve(self.store, run))
        for row in forwards(self.store, run):
            assert row.get("loss.value") in (None, str(row["forward"]))
        for forward in (0, 17, _TOP[run] - 1):
            said = [fact["value"] for fact in facts(self.store, run, forward) if fact["fact"] == "loss"]
            assert said in ([], [str(forward)])

    def _is_right(self, step: int) -> None:
        assert self.store.get(self.store.resolve(f"n{step}")) == bytes([step]) * step * 30

    def _records(self) -> None:
        for run in ("r", "new"):
            with Recorder(self.store, run=run, summarising=["loss"]) as recorder:
                G.forward(1, watching=recorder)


def asked(place: Path, *, writing: bool) -> list[str]:
    """All that was answered wrongly by the store at a place."""
    try:
        asking = Asked(Store(place))
    except SomatizeError:
        return []
    asking.reads()
    if writing:
        asking.writes(place.with_name("copied"))
    asking(asking.store.close)
    return asking.wrong


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 80), marks=pytest.mark.slow)], ids=["6", "80"])
def test_damage_is_never_a_crash_and_never_a_wrong_value(
    child: Callable[..., Any], whole: Path, tmp_path: Path, seeds: range
) -> None:
    files = sorted(one for one in whole.rglob("*") if one.is_file() and one.stat().st_size)
    files += [one for one in files if one.suffix == ".lmdb"] * 3
    for seed in seeds:
        chance = random.Random(seed)
        place = tmp_path / f"{seed}" / "s"
        shutil.copytree(whole, place)
        spoil(place / chance.choice(files).relative_to(whole), chance)

        def work(report: Callable[[str], None]) -> None:
            signal.alarm(60)  # a hang is a fault too
            warnings.simplefilter("ignore")
            for wrong in asked(place, writing=seed % 3 == 0):  # noqa: B023
                report(wrong)

        status, lines = child(work).end(None)
        assert (status, lines) == (0, []), f"seed {seed}\n" + "\n".join(lines)
        shutil.rmtree(place.parent)


@pytest.mark.parametrize("name", ["locks", "numbers", "journals", "files"])
def test_a_part_that_is_something_else_is_named(place: Path, name: str) -> None:
    Store(place).close()
    part = place / name
    if part.is_dir():
        part.rmdir()
        part.write_text("no directory")
    else:
        part.unlink()
        part.mkdir()
    for ask in (lambda: runs(place), lambda: Store(place)):
        with pytest.raises(DamagedStore, match=str(part)):
            ask()


def test_a_copy_that_lost_empty_directories_is_whole(place: Path) -> None:
    with Store(place) as store, Recorder(store, run="r") as recorder:
        G.forward(1, watching=recorder)
    for name in ("journals", "files"):
        (place / name).rmdir()
    with Store(place) as store:
        assert len(forwards(store, "r")) == 1
        with Recorder(store, run="r") as recorder:
            G.forward(1, watching=recorder)
        store.bind("large", store.put(b"x" * 2_000_000))
        assert len(forwards(store, "r")) == 2
        assert store.check() == []


@pytest.mark.parametrize("name", ["locks", "numbers"])
def test_a_store_without_what_writers_share_is_read_and_not_written(place: Path, name: str) -> None:
    with Store(place) as store, Recorder(store, run="r") as recorder:
        G.forward(1, watching=recorder)
    (place / name).unlink()
    with Store(place) as store:
        assert [row["forwards"] for row in runs(store)] == [1]
        with pytest.raises(DamagedStore, match=f"{place / name} is missing"):
            Recorder(store, run="r")
        assert store.check() == [f"{place / name} is missing from the store"]
    (place / name).touch()
    with Store(place) as store, Recorder(store, run="r") as recorder:
        G.forward(1, watching=recorder)
    assert [row["forward"] for row in forwards(place, "r")] == [0, 1]

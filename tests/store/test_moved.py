"""A store whose directory is renamed or moved, while this process has it open."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import NoStore, RecordLost
from somatize.record import curve, facts, forwards, runs

GRAPH = Graph.somatize(node(abs).named("a").frozen().cached())


def test_an_old_handle_and_the_new_name_are_one_store(place: Path) -> None:
    old = Store(place)
    with Recorder(old, run="r") as recorder:
        GRAPH.forward(-1, watching=recorder)
    now = place.rename(place.with_name("moved"))
    new = Store(now)
    assert (old.path, new.path, old == new, hash(old) == hash(new)) == (now, now, True, True)
    for store in (new, old):
        with Recorder(store, run="r") as recorder:
            GRAPH.forward(-2, watching=recorder, store=store)
        assert store.check() == []
        store.compact()
    assert [row["forward"] for row in forwards(now, "r")] == [0, 1, 2]
    assert len(old.kept()) == len(new.kept()) == 1
    assert pickle.loads(pickle.dumps(old)).path == now
    old.put(bytes(2 << 20))
    assert new.get(old.put(bytes(2 << 20))) == bytes(2 << 20)
    new.copy(place.with_name("copied")).close()
    old.close()
    new.close()
    assert old.path == now
    with pytest.raises(NoStore):
        runs(place)


@pytest.mark.parametrize("new_name_used", [True, False])
def test_a_recorder_goes_on_while_its_store_is_renamed(way: str, place: Path, new_name_used: bool) -> None:
    recorder = Recorder(Store(place), run="r", summarising=["loss"])
    now = place
    for step in range(4):
        GRAPH.forward(-step, watching=recorder)
        recorder({"fact": "loss", "value": step})
        now = now.rename(place.with_name(f"moved-{step}"))
        if new_name_used:
            assert len(forwards(now, "r")) == step + 1
        recorder({"fact": "late", "value": step})
    recorder.close()  # says nothing of a loss, as there is none
    assert curve(now, "r") == [(step, float(step)) for step in range(4)]
    assert [facts(now, "r", step)[-1]["fact"] for step in range(4)] == ["late"] * 4
    assert list((now / "journals").iterdir()) == []
    assert not place.exists()


def test_another_store_in_the_old_place_is_another(place: Path) -> None:
    recorder = Recorder(Store(place), run="r")
    GRAPH.forward(-1, watching=recorder)
    now = place.rename(place.with_name("moved"))
    other = Store(place)
    with Recorder(other, run="other") as beside:
        GRAPH.forward(-1, watching=beside)
    GRAPH.forward(-2, watching=recorder)
    recorder.close()
    assert ([row["run"] for row in runs(place)], [row["run"] for row in runs(now)]) == (["other"], ["r"])
    assert len(forwards(now)) == 2


def test_one_that_is_gone_is_said_to_be_gone(place: Path) -> None:
    recorder = Recorder(Store(place), run="r")
    GRAPH.forward(-1, watching=recorder)
    shutil.rmtree(place)
    with pytest.raises(RecordLost, match="is gone"):
        recorder.close()


def test_a_forked_child_finds_it(script: Callable[..., Popen[str]], place: Path) -> None:
    child = script("""
        g = Graph.somatize(node(abs))
        store = Store(PLACE)
        recorder = Recorder(store, run="r")
        g.forward(1, watching=recorder)
        os.rename(PLACE, PLACE + "-now")
        if not os.fork():
            g.forward(2, watching=recorder)
            recorder.close()
            store.close()
            os._exit(0)
        assert os.wait()[1] == 0
        recorder.close()
    """)
    assert child.communicate(timeout=60)[1] == ""
    assert len(forwards(place.with_name("store-now"), "r")) == 2

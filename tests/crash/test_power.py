"""A power cut: of what was written since the last sync any pages may be there or not, and journals end anywhere.

LMDB writes the pages of a commit, syncs, then writes a meta page. So an image has the pages of some commit in part,
under the old meta page; or all of them, with the new one or without.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from pathlib import Path

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.record import curve, facts, forwards
from somatize.store import commit

pytestmark = pytest.mark.usefixtures("way")

_PAGE = 4096


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc)


def image_of(before: Path, after: Path, target: Path, chance: random.Random) -> None:
    """What a disk may hold after a cut between two syncs."""
    shutil.copytree(before, target)
    old, new = (before / "records.lmdb").read_bytes(), (after / "records.lmdb").read_bytes()
    pages = bytearray(old.ljust(len(new), b"\0"))
    all_there = chance.random() < 0.4
    for at in range(2 * _PAGE, len(new), _PAGE):
        if all_there or chance.random() < 0.5:
            pages[at : at + _PAGE] = new[at : at + _PAGE]
    if all_there:
        for at in (0, _PAGE):
            if chance.random() < 0.5:
                pages[at : at + _PAGE] = new[at : at + _PAGE]
    end = len(old) if chance.random() < 0.3 and not all_there else len(pages)
    (target / "records.lmdb").write_bytes(pages[:end])
    shutil.rmtree(target / "journals")
    (target / "journals").mkdir()
    for journal in (after / "journals").iterdir():
        content = bytearray(journal.read_bytes())
        for at in range(0, len(content), _PAGE):
            if chance.random() < 0.3:
                content[at : at + _PAGE] = bytes(len(content[at : at + _PAGE]))
        if chance.random() < 0.8:
            (target / "journals" / journal.name).write_bytes(content[: chance.randrange(len(content) + 1)])


@pytest.mark.parametrize("images", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_every_image_opens_and_holds_what_was_synced(place: Path, tmp_path: Path, images: int) -> None:
    chance = random.Random(7)
    store = Store(place)
    recorder = Recorder(store, run="r", summarising=["loss"])
    snapshots: list[tuple[Path, int]] = []
    count = 0
    for index in range(9):
        for _ in range(chance.choice([1, 3, 40, 400])):
            G.forward(count, watching=recorder)
            recorder({"fact": "loss", "value": count, "text": "x" * chance.choice([0, 0, 3000])})
            count += 1
        store.opened.flush()
        snapshots.append((shutil.copytree(place, tmp_path / f"snapshot{index}"), count))
        recorder({"fact": "note", "text": "late"})
    recorder.close()
    store.close()
    for index in range(images):
        at = chance.randrange(len(snapshots) - 1)
        image = tmp_path / f"image{index}"
        image_of(snapshots[at][0], snapshots[at + 1][0], image, chance)
        synced = snapshots[at][1]
        opened = Store(image)
        for _ in range(2):
            rows = forwards(opened, "r")
            assert [row["forward"] for row in rows] == list(range(len(rows)))
            assert [row["state"] for row in rows[:synced]] == ["ok"] * synced
            assert curve(opened, "r")[:synced] == [(n, float(n)) for n in range(synced)]
            assert [fact["fact"] for fact in facts(opened, "r", synced - 1)[:3]] == ["ran", "finished", "loss"]
            with Recorder(opened, run="r", summarising=["loss"]) as recorder:
                G.forward(1, watching=recorder)
        assert opened.check() == []
        opened.close()
        shutil.rmtree(image)


def test_what_was_said_is_synced_unasked_every_quarter_of_a_second(place: Path, tmp_path: Path) -> None:
    assert commit.EVERY == 0.25
    with Store(place) as store, Recorder(store, run="r") as recorder:
        for step in range(3):
            G.forward(step, watching=recorder)
            recorder({"fact": "loss", "value": step})
            for attempt in itertools.count():
                image = tmp_path / f"image {step} {attempt}"
                shutil.copytree(place, image)
                for journal in (image / "journals").iterdir():  # only what was committed counts, and that is synced
                    journal.unlink()
                with Store(image) as opened:
                    if curve(opened, "r") == [(n, float(n)) for n in range(step + 1)]:
                        break
                shutil.rmtree(image)
                time.sleep(0.05)
        # Whether LMDB syncs is known to it alone.
        assert store.opened.records._env.flags()["sync"] is True

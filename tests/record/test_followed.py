"""A run that grows, read as it grows: everything once, and the same as its readers give."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import DamagedStore, NoStore
from somatize.record import Followed, curve, nodes, runs
from somatize.record import run_follower as followed_module
from somatize.record import run_state as growing
from somatize.record.run_state import CAPACITY, Buckets, Cursor, ForwardCounts, ForwardRow, Grown, Standing
from somatize.store import recovery


def learn(step: int) -> int:
    if step % 10 == 7:
        raise ValueError(f"batch {step} [red]holds[/red] nothing")
    return step


GRAPH = Graph.somatize(node(abs).named("load") >> node(learn).named("learn"))


def forward(recorder: Recorder, step: int, *, said: bool = True) -> None:
    try:
        GRAPH.forward(step, watching=recorder)
    except ValueError:
        return
    if said:
        recorder({"fact": "loss", "value": 1 / (1 + step)})


@pytest.fixture
def followed(place: Path) -> Iterator[Followed]:
    with Followed(place) as made:
        yield made


def standing(followed: Followed) -> Standing:
    followed.look()
    assert followed.standing is not None, followed.waits_for
    return followed.standing


def logged(message: int) -> dict[str, Any]:
    return {"fact": "log", "level": "INFO", "logger": "x", "message": message}


def messages(found: Standing) -> list[str]:
    return [log.fact["message"] for log in found.logs]


def test_it_waits_for_a_store_for_a_run_and_for_its_forwards(followed: Followed, place: Path) -> None:
    assert followed.look() is False
    assert followed.waits_for == f"no store at {place} yet"
    with Store(place) as store:
        followed.look()
        assert (followed.waits_for, followed.state) == (f"{place} holds no run yet", "")
        with Recorder(store, "tuesday") as recorder:
            found = standing(followed)
            assert (found.run, found.count.forwards, followed.state) == ("tuesday", 0, "recorded")
            forward(recorder, 3)
            assert standing(followed) is found
            assert (found.count.forwards, found.curves[1].last) == (1, (0, "0.25"))
        followed.look()
        assert (followed.waits_for, followed.state) == ("", "ended")


def test_a_run_that_is_not_there_is_waited_for_with_the_nearest(place: Path) -> None:
    with Store(place) as store, Recorder(store, "tuesday"), Followed(place, "tuesdy") as named:
        named.look()
        assert named.waits_for == f"{place} holds no run 'tuesdy' yet; did you mean 'tuesday'?"


def test_what_is_no_store_and_will_be_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with Followed(tmp_path) as of_others, pytest.raises(NoStore, match="no file FORMAT"):
        of_others.look()
    with Followed(tmp_path / "notes.txt") as of_a_file, pytest.raises(NoStore, match="it is a file"):
        of_a_file.look()


def test_it_stands_as_the_readers_say(store: Store, followed: Followed) -> None:
    rng = random.Random(3)
    with Recorder(store, "tuesday", summarising=["loss"]) as recorder:
        step = 0
        while step < 400:
            for _ in range(rng.randrange(1, 60)):
                forward(recorder, step)
                step += 1
            if rng.random() < 0.5:
                store.opened.flush()
            found = standing(followed)
            (row,) = runs(store)
            counts = found.count
            assert (counts.forwards, counts.broke) == (row["forwards"], row["broke"])
            points = curve(store)
            assert [(at, low, high) for at, low, high in found.curves[1].buckets.extents()] == [
                (n, v, v) for n, v in points
            ]
            assert found.curves[1].last == (points[-1][0], repr(points[-1][1]))
            assert [one[0] for one in found.took.buckets.extents()] == list(range(step))
    assert [one.forward for one in found.broken] == [n for n in range(step) if n % 10 == 7][-20:]
    assert found.broken[-1].why.endswith("[red]holds[/red] nothing")
    told = {one.node: (one.count("ran"), one.count("failed")) for one in found.lately.nodes()}
    assert told == {row["node"]: (row["ran"], row["failed"]) for row in nodes(store)}


def test_what_is_said_late_is_read_once_wherever_it_lies(store: Store, followed: Followed) -> None:
    rng = random.Random(5)
    said: list[str] = []
    recorders = [Recorder(store, "tuesday") for _ in range(2)]
    standing(followed)
    for message in range(300):
        recorder = recorders[rng.randrange(2)]
        forward(recorder, message, said=False) if rng.random() < 0.2 else None
        if rng.random() < 0.5:
            recorder(logged(message))  # of the forward that closed last, if there is one
        else:
            recorder.say_of_run(logged(message))  # of the run as a whole
        said.append(str(message))
        if rng.random() < 0.1:
            store.opened.flush()
        if rng.random() < 0.3:
            standing(followed)
    found = standing(followed)
    assert found.said == len(said)
    assert sorted(messages(found)) == sorted(said[-200:])
    for recorder in recorders:
        recorder.close()
    standing(followed)
    assert found.said == len(said)


def test_a_look_at_nothing_new_reads_nothing(store: Store, followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    with Recorder(store, "tuesday") as recorder:
        forward(recorder, 1)
        store.opened.flush()
        while followed.look():
            pass
        # That the store is not opened is what such a look costs.
        monkeypatch.setattr("somatize.record.run_follower.look", lambda *_: pytest.fail("the store was read"))
        assert followed.look() is False
        monkeypatch.undo()
        forward(recorder, 2)
        assert followed.look() is True


def test_the_facts_of_a_long_run_are_not_read_to_begin_with(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else it takes a long run; and which facts are read shows nowhere else.
    monkeypatch.setattr(growing, "_MOST_ROWS", 100)
    with Recorder(store, "long", summarising=["loss"]) as recorder:
        for step in range(3000):
            recorder({"fact": "finished", "took_us": str(step)})
            recorder({"fact": "loss", "value": float(step)})
            if step % 500 == 499:
                store.opened.flush()
        with Followed(store.path) as late:
            seen: list[int] = []
            packed = growing.RunLines.packed
            monkeypatch.setattr(
                growing.RunLines, "packed", lambda lines, since: (seen.append(since), packed(lines, since))[1]
            )
            found = standing(late)
            assert 0 < 3000 - seen[0] <= 1000
            (buckets,) = (curve.buckets for curve in found.curves[1:])
            assert buckets.width == 4
            assert buckets.extents() == [(at, float(at), float(at + 3)) for at in range(0, 3000, 4)]
            forward(recorder, 1)
            standing(late)
            assert seen[1] == 3001 - growing.HELD - 1


def test_a_forward_that_goes_on_says_where_it_is_and_is_lost_with_its_writer(
    place: Path, script: Callable[..., Popen[str]], followed: Followed
) -> None:
    process = script("""
        recorder = Recorder(Store(PLACE), "tuesday")
        def hang(step):
            print("inside", flush=True)
            time.sleep(100)
        Graph.somatize(node(abs).named("load") >> node(hang).named("learn")).forward(3, watching=recorder)
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    while not (found := standing(followed)).going_on:
        pass
    (one,) = found.going_on
    assert (one.forward, one.inside) == (0, ("learn",))
    assert 0.2 < one.since - one.began < 5
    assert followed.state == "recorded"
    assert followed.alive == {str(process.pid)}
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert followed.look() is True
    assert (followed.state, found.going_on, found.count) == ("died", [], (1, 0, 0, 1))
    assert followed.died_at is not None
    (writer,) = followed.writers.values()
    assert (writer.pid, writer.alive) == (process.pid, False)
    assert 0 < writer.heard <= followed.died_at
    with Followed(place) as afterwards:
        afterwards.look()
        assert (afterwards.state, afterwards.died_at) == ("died", None)


def test_the_newest_run_is_followed_and_then_the_next(store: Store, place: Path, followed: Followed) -> None:
    with Recorder(store, "first") as first, Followed(place, "first") as named:
        forward(first, 1)
        assert standing(followed).run == "first"
        with Recorder(store, "second") as second:
            assert standing(followed).run == "second"
            forward(second, 1)
            forward(second, 2)
            assert (standing(followed).count.forwards, followed.runs) == (2, 2)
        forward(first, 3)
        assert standing(followed).run == "first"
        assert standing(named).run == "first"
    assert standing(followed).run == "first"


def test_a_store_that_goes_and_comes_again_is_followed_anew(place: Path, followed: Followed) -> None:
    for run in ("before", "after"):
        with Store(place) as store, Recorder(store, run) as recorder:
            forward(recorder, 1)
            assert standing(followed).run == run
        shutil.rmtree(place)
        followed.look()
        assert followed.waits_for == f"no store at {place} yet"


def test_it_goes_on_after_a_compaction_and_when_its_run_is_forgotten(store: Store, followed: Followed) -> None:
    with Recorder(store, "tuesday") as recorder:
        forward(recorder, 1)
        found = standing(followed)
        store.compact()
        forward(recorder, 2)
        assert standing(followed) is found
        assert found.count.forwards == 2
    store.forget("tuesday")
    followed.look()
    assert followed.waits_for.endswith("holds no run yet")


def test_a_store_that_may_only_be_read_is_followed(store: Store, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write anywhere, so the pages are read without locks because nothing else is offered.
    with Recorder(store, "tuesday") as recorder:
        forward(recorder, 1)
        copied = place.with_name("copied")
        shutil.copytree(place, copied)
    # Tests may run as root, who may write everywhere.
    monkeypatch.setattr("somatize.store.directory.is_writable", lambda path: False)
    monkeypatch.setattr("somatize.store.lmdb_environment.os.access", lambda *_: False)
    with Followed(copied) as reading:
        found = standing(reading)
        assert (found.count.forwards, reading.state) == (1, "died")
        assert {one.name for one in copied.iterdir()} == {one.name for one in place.iterdir()}


def test_a_damaged_store_is_refused(store: Store, place: Path) -> None:
    store.close()
    (place / "FORMAT").write_text("nonsense")
    with Followed(place) as broken, pytest.raises(DamagedStore):
        broken.look()


def test_buckets_keep_extremes_however_they_are_filled() -> None:
    rng = random.Random(1)
    values = [rng.uniform(-5, 5) for _ in range(5 * CAPACITY)]
    one_by_one, at_once = Buckets(), Buckets(len(values) - 1)
    for forward_, value in enumerate(values):
        one_by_one.put(forward_, value)
    for start in range(0, len(values), 700):
        at_once.extend(range(start, min(start + 700, len(values))), values[start : start + 700])
    assert one_by_one.width == at_once.width == 8
    assert one_by_one.extents() == at_once.extents()
    assert one_by_one.extents()[3] == (24, min(values[24:32]), max(values[24:32]))
    at_once.extend([7, 9], [float("inf"), 100.0])
    assert at_once.extents()[1][2] == 100.0
    assert at_once.extents()[0][2] == max(values[:8])


def test_each_state_of_a_store_that_comes_to_be_or_goes_is_waited_for(
    tmp_path: Path, store: Store, place: Path
) -> None:
    """Whatever is there yet, or still: a watch that begins at that moment, and one that goes on, wait for the rest."""
    with Recorder(store, "tuesday") as recorder:
        forward(recorder, 1)
    store.compact()
    store.close()
    coming = tmp_path / "coming"
    names = sorted(one.name for one in place.iterdir())
    rng = random.Random(7)
    for order in ([*names], [*reversed(names)], *(rng.sample(names, len(names)) for _ in range(6))):
        with Followed(coming) as before:
            coming.mkdir()
            for name in order:
                if (place / name).is_dir():
                    shutil.copytree(place / name, coming / name)
                else:
                    shutil.copyfile(place / name, coming / name)
                before.look()
                with Followed(coming) as beside:
                    beside.look()
            assert standing(before).run == "tuesday"
            for name in rng.sample(names, len(names)):
                shutil.rmtree(coming / name) if (place / name).is_dir() else (coming / name).unlink()
                before.look()
                with Followed(coming) as beside:
                    beside.look()
            coming.rmdir()
            before.look()
            assert before.waits_for == f"no store at {coming} yet"


def test_one_whose_format_appears_between_two_glances_is_waited_for(
    place: Path, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    glance = followed_module.directory.may_become

    def made_meanwhile(path: Path) -> bool:
        Store(place).close()
        return glance(path)

    # The store is made in the very moment between two steps.
    monkeypatch.setattr(followed_module.directory, "may_become", made_meanwhile)
    assert not followed.look()
    monkeypatch.undo()
    followed.look()
    assert followed.waits_for == f"{place} holds no run yet"


def test_what_takes_the_place_of_a_store_that_was_moved_is_followed(place: Path, followed: Followed) -> None:
    with Store(place) as store, Recorder(store, "before") as recorder:
        forward(recorder, 1)
        assert standing(followed).run == "before"
        place.rename(place.with_name("moved"))
        followed.look()
        assert followed.waits_for == f"no store at {place} yet"
        with Store(place) as other, Recorder(other, "after") as later:
            forward(later, 1)
            assert standing(followed).run == "after"


def test_a_part_that_stays_away_is_damage(store: Store, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.close()
    (place / "records.lmdb").unlink()
    now = [0.0]
    # No test waits.
    monkeypatch.setattr(followed_module.time, "monotonic", lambda: now[0])
    with Followed(place) as broken:
        assert not broken.look()
        now[0] = 0.5
        assert not broken.look()
        now[0] = 1.5
        with pytest.raises(DamagedStore, match=r"records\.lmdb is missing"):
            broken.look()


def test_a_rate_is_of_the_last_forwards_and_not_of_the_night_before_them() -> None:
    found = Standing("r", ())
    night = [ForwardRow(n, 0, 5, 1000.0 + n) for n in range(100)]
    found.take(
        Grown(Cursor(), rows=[*night, *(ForwardRow(100 + n, 0, 5, 40_000 + n / 2) for n in range(40))]),
        ForwardCounts(140),
    )
    assert found.rate() == pytest.approx(2.0)
    found = Standing("r", ())
    found.take(Grown(Cursor(), rows=[ForwardRow(n, 0, 5, 60.0 * n) for n in range(9)]), ForwardCounts(9))
    assert found.rate() == pytest.approx(1 / 60), "of slow ones five are enough"
    found = Standing("r", ())
    found.take(Grown(Cursor(), rows=[ForwardRow(n, 0, 5, 60.0) for n in range(9)]), ForwardCounts(9))
    assert found.rate() is None, "a clock that stands still"


def test_a_run_that_is_just_being_begun_has_not_ended(place: Path, store: Store, followed: Followed) -> None:
    # A recorder stopped in the middle of beginning.
    assert recovery._enter(store.opened, "tuesday") == 1
    followed.look()
    assert (followed.standing, followed.state) == (None, "")
    with Recorder(store, "tuesday"):
        followed.look()
        assert (standing(followed).run, followed.state) == ("tuesday", "recorded")
    followed.look()
    assert (standing(followed).run, followed.state) == ("tuesday", "ended")

"""Several processes on one store: writers side by side, forks, spawned and pickled recorders, growth by another."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import RecordError
from somatize.record import about, curve, facts, forwards, runs, tail, writers
from somatize.store import lmdb_environment


@node
def inc(x: int) -> int:
    return x + 1


G = Graph.somatize(inc)


def reported(victim: Any) -> list[str]:
    status, lines = victim.end(None)
    assert status == 0
    return list(lines)


@pytest.mark.parametrize(
    ("processes", "count"), [(4, 120), pytest.param(8, 500, marks=pytest.mark.slow)], ids=["4x120", "8x500"]
)
@pytest.mark.usefixtures("way")
def test_writers_at_once_leave_every_record(child: Callable[..., Any], place: Path, processes: int, count: int) -> None:
    Store(place).close()

    def work(report: Callable[[str], None]) -> None:
        me = os.getpid()
        with Recorder(Store(place), run="r", summarising=["who", "step"]) as recorder:
            for step in range(count):
                G.forward(step, watching=recorder)
                recorder({"fact": "who", "value": me})
                recorder({"fact": "step", "value": step})

    started = [child(work) for _ in range(processes)]
    seen, store = 0, Store(place)
    while seen < processes * count and started:
        rows = forwards(store, "r") if runs(store) else []
        assert len(rows) >= seen
        assert [row["forward"] for row in rows] == list(range(len(rows)))
        assert {row["state"] for row in rows} <= {"ok"}
        seen = len(rows)
        if all(_is_dead(one.pid) for one in started):
            break
    for one in started:
        reported(one)
    rows = forwards(store, "r")
    assert [row["forward"] for row in rows] == list(range(processes * count))
    assert {row["state"] for row in rows} == {"ok"}
    for one in started:
        mine = [row for row in rows if row["who.value"] == str(one.pid)]
        assert [row["step.value"] for row in mine] == [str(step) for step in range(count)]
    made = writers(store, "r")
    assert len({row["writer"] for row in made}) == processes
    assert sum(row["forwards"] for row in made) == processes * count
    named = {one.name: one.meta["writer"] for one in store.bound()}
    for row in made:
        assert named[f"run/r/{row['first']}"] == named[f"run/r/{row['last']}"] == row["writer"]
    assert store.check() == []
    assert not list(store.opened.journals.iterdir())
    store.close()


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.usefixtures("way")
def test_a_writer_that_is_stopped_keeps_nobody_waiting(child: Callable[..., Any], place: Path) -> None:
    import signal

    def work(report: Callable[[str], None]) -> None:
        with Recorder(Store(place), run="r") as recorder:
            G.forward(1, watching=recorder)
            recorder.store.opened.flush()  # one that is stopped within a commit holds up the others' commits
            report("one")
            time.sleep(60)

    victim = child(work)
    victim.line()
    os.kill(victim.pid, signal.SIGSTOP)
    store = Store(place)
    began = time.monotonic()
    with Recorder(store, run="r") as recorder:
        G.forward(1, watching=recorder)
    assert time.monotonic() - began < 2.0
    assert [row["forward"] for row in forwards(store, "r")] == [0, 1]
    os.kill(victim.pid, signal.SIGCONT)
    store.close()


# -- forks (C009)


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)"])
def test_forked_children_that_do_nothing_harm_nothing(ran: Callable[..., str], ending: str) -> None:
    out = ran(f"""
        import gc
        g = Graph.somatize(node(lambda x: x))
        store = Store(PLACE)
        rec = Recorder(store, run="r")
        runs(store)
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                gc.collect()
                {ending}
            os.waitpid(pid, 0)
            g.forward(1, watching=rec)
            forwards(store, "r")
        rec.close()
        print([row["state"] for row in forwards(store, "r")] == ["ok"] * 20, runs(store)[0]["forwards"], store.check())
    """)
    assert out.split("\n")[0] == "True 20 []"


@pytest.mark.usefixtures("way")
def test_a_forked_child_that_records_is_a_writer_of_its_own(place: Path, child: Callable[..., Any]) -> None:
    store = Store(place)
    recorder = Recorder(store, run="r", summarising=["who"])
    G.forward(1, watching=recorder)

    def work(report: Callable[[str], None]) -> None:
        G.forward(1, watching=recorder)
        recorder({"fact": "who", "value": "child"})
        report(str(len(forwards(store, "r"))))
        recorder.close()

    for _ in range(3):
        assert reported(child(work)) != []
        G.forward(1, watching=recorder)
        recorder({"fact": "who", "value": "parent"})
    rows = forwards(store, "r")
    assert [row["who.value"] for row in rows] == [None] + ["child", "parent"] * 3
    recorder.close()
    assert forwards(store, "r") == rows
    assert store.check() == []
    store.close()


def test_a_forward_that_a_forked_child_inherits_is_its_parents(place: Path) -> None:
    store = Store(place)
    recorder = Recorder(store, run="r")
    refused: list[bool] = []

    @node
    def forks(x: int) -> int:
        sink = recorder.opens(None)
        sink.tell({"fact": "finished", "took_us": "1"})
        pid = os.fork()
        if pid == 0:
            try:
                sink.closed()
                os._exit(1)
            except RecordError:
                os._exit(0)
        refused.append(os.waitpid(pid, 0)[1] == 0)
        sink.closed()
        return x

    Graph.somatize(forks).forward(1, watching=recorder)
    recorder.close()
    assert refused == [True]
    assert [len(facts(store, "r", n)) for n in range(2)] == [1, 2]
    store.close()


@pytest.mark.usefixtures("way")
def test_a_fork_while_the_committing_thread_is_at_work(
    place: Path, child: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from somatize.store import commit

    # Else few commits come in the middle of a fork.
    monkeypatch.setattr(commit, "EVERY", 0.001)
    store = Store(place)
    recorder = Recorder(store, run="r")

    def work(report: Callable[[str], None]) -> None:
        gc.collect()
        report(str(len(forwards(store, "r"))))

    for step in range(40):
        for _ in range(20):
            G.forward(1, watching=recorder)
        if step % 5 == 4:
            assert reported(child(work)) == [str((step + 1) * 20)]
    recorder.close()
    assert store.check() == []
    store.close()


@pytest.mark.usefixtures("way")
def test_a_pickled_recorder_and_store_work_in_a_process_of_their_own(place: Path) -> None:
    store = Store(place)
    recorder = Recorder(store, run="r", summarising=["who"])
    G.forward(1, watching=recorder)
    code = (
        "import pickle, sys; from somatize import Graph, node; store, rec = pickle.load(sys.stdin.buffer)\n"
        "Graph.somatize(node(lambda x: x)).forward(1, watching=rec); rec({'fact': 'who', 'value': 'spawned'})\n"
        "rec.close(); print(len(store.bound()))"
    )
    data = pickle.dumps((store, recorder))
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout == b"2\n"
    G.forward(1, watching=recorder)
    assert [row["who.value"] for row in forwards(store, "r")] == [None, "spawned", None]
    recorder.close()
    store.close()


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_loader_workers_beside_a_recording_loop(ran: Callable[..., str], method: str, tmp_path: Path) -> None:
    data = tmp_path / "loader_data.py"
    data.write_text("class Data:\n    def __len__(self): return 40\n    def __getitem__(self, i): return float(i)\n")
    out = ran(f"""
        import warnings
        warnings.simplefilter("ignore")
        sys.path.insert(0, {str(tmp_path)!r})
        from loader_data import Data
        from torch.utils.data import DataLoader
        g = Graph.somatize(node(lambda x: float(x.sum())))
        with Recorder(Store(PLACE), run="r", summarising=["loss"]) as rec:
            for batch in DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context={method!r}):
                rec.opens  # the workers live while this records
                rec({{"fact": "loss", "value": g.forward(batch, watching=rec)}})
        print(len(curve(PLACE, "r")), Store(PLACE).check())
    """)
    assert out == "10 []\n"


# -- growth, readers, tails


def test_a_store_grown_by_another_process_keeps_working_here(
    child: Callable[..., Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else it takes gigabytes until the map grows.
    monkeypatch.setattr(lmdb_environment, "FIRST_MAP", 1 << 16)
    store = Store(place)
    recorder = Recorder(store, run="mine")
    G.forward(1, watching=recorder)
    store.opened.flush()

    def work(report: Callable[[str], None]) -> None:
        with Recorder(Store(place), run="big") as other:
            G.forward(1, watching=other)
            for _ in range(40):
                other({"fact": "note", "text": "x" * 100_000})
        other_store = Store(place)
        other_store.bind("n", other_store.put(b"v" * 900_000))

    reported(child(work))
    assert len(facts(store, "big")) == 42
    assert store.get(store.resolve("n")) == b"v" * 900_000
    G.forward(1, watching=recorder)
    recorder.close()
    assert len(forwards(store, "mine")) == 2
    assert store.check() == []
    store.close()


def test_another_process_sees_a_forward_within_half_a_second(script: Callable[..., Any], place: Path) -> None:
    process = script("""
        with Recorder(Store(PLACE), run="r", summarising=["loss"]) as rec:
            g = Graph.somatize(node(lambda x: x))
            for step in range(5):
                g.forward(step, watching=rec)
                rec({"fact": "loss", "value": step})
                print(step, flush=True)
                sys.stdin.readline()
    """)
    assert process.stdout is not None
    assert process.stdin is not None
    for step in range(5):
        process.stdout.readline()
        assert curve(place, "r") == [(n, float(n)) for n in range(step + 1)]
        process.stdin.write("\n")
        process.stdin.flush()
    assert process.wait(30) == 0


def test_a_run_is_followed_from_another_process(child: Callable[..., Any], place: Path) -> None:
    store = Store(place)
    recorder = Recorder(store, run="r", summarising=["loss"])

    def work(report: Callable[[str], None]) -> None:
        for row in tail(place, "r"):
            report(f"{row['forward']} {row['state']} {row['facts'][-1]['fact']}")

    follower = child(work)
    for step in range(5):
        G.forward(step, watching=recorder)
        assert follower.line() == f"{step} ok finished"
    recorder.close()
    began = time.monotonic()
    assert reported(follower) == []
    assert time.monotonic() - began < 3.0
    assert [row["forward"] for row in tail(store, "r", since=3)] == [3, 4]
    store.close()


def test_a_run_says_what_it_is_of(store: Store) -> None:
    with Recorder(store, run="r", config={"lr": 0.1, "tags": ["a"], "odd": object}, diff=True) as recorder:
        recorder({"fact": "note", "text": "before"})
        for _ in range(3):
            G.forward(1, watching=recorder)
        said = about(store, "r")
        assert said["config"]["lr"] == 0.1
    for _ in range(2):
        said = about(store, "r")
        assert said["run"] == "r"
        assert said["config"]["tags"] == ["a"]
        assert isinstance(said["config"]["odd"], str)
        assert said["pid"] == os.getpid()
        assert said["python"] == ".".join(map(str, sys.version_info[:3]))
        assert said["versions"]["pytest"] == pytest.__version__
        assert set(said["git"] or {"commit", "branch", "dirty", "diff"}) == {"commit", "branch", "dirty", "diff"}
        assert said["facts"] == [{"fact": "note", "text": "before"}]
        assert [[one["id"] for one in graph["nodes"]] for graph in said["graphs"]] == [["inc"]]
        assert [one["alive"] for one in said["writers"]] == [False]
        assert len(store.bound()) == 3
    assert store.check() == []


def test_a_process_that_ends_before_git_has_answered_says_nothing_of_it(place: Path) -> None:
    code = f"""
        import atexit, threading
        asked, ended = threading.Event(), threading.Event()
        def answer(*, diff):
            asked.set()
            ended.wait()
            return {{}}
        def last():  # runs after what somatize does at the end, as it was registered before
            asked.wait()  # the thread is started by another one, and may not have been when the process ends
            ended.set()
            for thread in threading.enumerate():
                if thread.name == "somatize-about":
                    thread.join()
        atexit.register(last)
        from somatize import Recorder, Store
        from somatize.record import run_info
        run_info.knows_code = lambda *, diff: False
        run_info.code_provenance = answer
        recorder = Recorder(Store({str(place)!r}), run="r")
        recorder({{"fact": "loss", "value": 1}})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")

"""How a run ended, and why: said by the recorder, by an exception, by the end of the process, or found out later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from asyncio import CancelledError
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import RecorderClosed, RecordError
from somatize.record import about, runs
from somatize.store import run_summary

G = Graph.somatize(node(abs).named("a"))
SCRIPT = """
import os, signal, sys, time
from somatize import Graph, Recorder, Store, node
recorder = Recorder(Store(sys.argv[1]), run="r")
Graph.somatize(node(abs)).forward(1, watching=recorder)
"""


def ended(store: Any) -> tuple[str, str]:
    (row,) = runs(store)
    return row["state"], row["why"] or ""


def script(place: Path, code: str) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT + code, str(place)], capture_output=True, timeout=60, check=False
    )
    return ran.returncode


@pytest.mark.parametrize(
    ("code", "returned", "end"),
    [
        ("recorder.close()", 0, ("finished", "")),
        ("", 0, ("finished", "not closed")),
        ("recorder = None", 0, ("finished", "not closed")),
        ("sys.exit(3)", 3, ("finished", "not closed")),
        ("1 / 0", 1, ("failed", "ZeroDivisionError: division by zero")),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -2, ("interrupted", "KeyboardInterrupt: ")),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, ("killed", "")),
        ("os._exit(0)", 0, ("killed", "")),
        ("with recorder: sys.exit(3)", 3, ("failed", "SystemExit: 3")),
        ("with recorder: sys.exit()", 0, ("finished", "")),
        ("recorder.end('failed', why='too slow'); os._exit(1)", 1, ("failed", "too slow")),
    ],
)
def test_by_the_end_of_its_process(tmp_path: Path, code: str, returned: int, end: tuple[str, str]) -> None:
    place = tmp_path / "s"
    assert script(place, code) == returned
    assert ended(place) == end
    with Store(place) as store:
        Recorder(store, run="later").close()  # which takes in what a dead writer left
        assert [(row["run"], row["state"], row["why"] or "") for row in runs(store)] == [
            ("r", *end),
            ("later", "finished", ""),
        ]
        assert about(store, "r")["writers"][0]["state"] == end[0]
        assert store.check() == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("does", "end"), [("pass", ("finished", "not closed")), ("raise ValueError('no')", ("failed", "ValueError: no"))]
)
def test_by_the_end_of_a_process_of_multiprocessing(
    tmp_path: Path, method: str, does: str, end: tuple[str, str]
) -> None:
    (tmp_path / "work.py").write_text(
        "import multiprocessing, sys\n"
        "from somatize import Graph, Recorder, Store, node\n"
        "def work():\n"
        "    recorder = Recorder(Store(sys.argv[1]), run='r')\n"
        "    Graph.somatize(node(abs)).forward(1, watching=recorder)\n"
        f"    {does}\n"
        "if __name__ == '__main__':\n"
        f"    process = multiprocessing.get_context({method!r}).Process(target=work)\n"
        "    process.start()\n"
        "    process.join()\n",
        encoding="utf-8",
    )
    subprocess.run(
        [sys.executable, "work.py", str(tmp_path / "s")], cwd=tmp_path, capture_output=True, timeout=60, check=True
    )
    assert ended(tmp_path / "s") == end


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ValueError("no"), ("failed", "ValueError: no")),
        (KeyboardInterrupt(), ("interrupted", "KeyboardInterrupt: ")),
        (CancelledError(), ("interrupted", "CancelledError: ")),
        (SystemExit(0), ("finished", "")),
        (SystemExit("bye"), ("failed", "SystemExit: bye")),
    ],
)
@pytest.mark.parametrize("way", ["with", "finally", "except"])
def test_by_the_exception_that_leaves_it(store: Store, error: BaseException, end: tuple[str, str], way: str) -> None:
    def leaves() -> None:
        recorder = Recorder(store, run="r")
        if way == "with":
            with recorder:
                raise error
        try:
            raise error
        except BaseException:
            if way == "except":
                recorder.close()
            raise
        finally:
            recorder.close()

    with pytest.raises(type(error)):
        leaves()
    assert ended(store) == end


def test_an_exception_handled_around_a_with_is_not_its_end(store: Store) -> None:
    try:
        raise ValueError("before")
    except ValueError:
        with Recorder(store, run="r") as recorder:
            G.forward(1, watching=recorder)
    assert ended(store) == ("finished", "")


def test_said_outright_it_counts_whatever_comes_later(store: Store) -> None:
    with pytest.raises(KeyError), Recorder(store, run="r") as recorder:
        recorder.end("interrupted", why="SIGTERM")
        assert ended(store) == ("running", "")
        raise KeyError("late")
    assert ended(store) == ("interrupted", "SIGTERM")
    with pytest.raises(RecorderClosed):
        recorder.end("failed")
    with pytest.raises(RecordError, match="state='killed': a run ends 'finished', 'failed' or 'interrupted'"):
        Recorder(store, run="other").end("killed")


def test_it_runs_while_a_writer_lives_and_then_its_last_launch_decides(store: Store) -> None:
    first, second = Recorder(store, run="r"), Recorder(store, run="r")
    first.end("failed", why="out of memory")
    first.close()
    assert ended(store) == ("running", "")
    second.close()
    (row,) = runs(store)
    assert (row["state"], row["launches"]) == ("failed", 1)
    assert row["why"].startswith("out of memory (host ")
    Recorder(store, run="r").close()
    (row,) = runs(store)
    assert (row["state"], row["why"], row["launches"]) == ("finished", None, 2)
    assert [one["state"] for one in about(store, "r")["writers"]] == ["failed", "finished", "finished"]


def test_a_forked_child_names_its_parent_and_does_not_count(tmp_path: Path) -> None:
    place = tmp_path / "s"
    code = """
if os.fork() == 0:
    Graph.somatize(node(abs)).forward(2, watching=recorder)
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
recorder.close()
"""
    assert script(place, code) == 0
    assert ended(place) == ("finished", "")
    mother, child = about(place, "r")["writers"]
    assert (mother["state"], child["state"]) == ("finished", "killed")
    assert f"{child['parent']:015x}" == mother["writer"]


def test_the_rank_of_the_one_that_failed_is_named(tmp_path: Path) -> None:
    place = tmp_path / "s"
    code = "print('', flush=True); sys.stdin.readline(); recorder.end(*sys.argv[2:]); recorder.close()"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT + code, str(place), *end],
            env={**os.environ, "RANK": f"{rank}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, end in enumerate([("finished",), ("failed", "NaN"), ("interrupted", "gone")])
    ]
    for one in ranks:
        assert one.stdout is not None
        one.stdout.readline()  # all of them have the run open now
    for one in ranks:
        one.communicate("\n", timeout=60)
    state, why = ended(place)
    assert state == "failed"
    assert why.startswith("NaN (rank 1, host ")


def test_a_handler_of_sigterm_says_that_it_was_interrupted(tmp_path: Path) -> None:
    place = tmp_path / "s"
    code = """
def preempted(*_):
    recorder.end("interrupted", why="SIGTERM")
    recorder.close()
    sys.exit(0)
signal.signal(signal.SIGTERM, preempted)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""
    assert script(place, code) == 0
    assert ended(place) == ("interrupted", "SIGTERM")


def test_an_end_that_was_said_counts_though_more_was_committed_before_it_was_killed(tmp_path: Path) -> None:
    place = tmp_path / "s"
    code = """
g = Graph.somatize(node(abs))
recorder.store.opened.flush()
recorder.end("failed", why="too slow")
for _ in range(2):
    recorder.store.opened.flush()
    g.forward(1, watching=recorder)
recorder.store.opened.flush()
os._exit(1)
"""
    assert script(place, code) == 1
    assert ended(place) == ("failed", "too slow")
    with Store(place) as store:
        Recorder(store, run="later").close()
        assert runs(store)[0]["why"] == "too slow"


FORKING = """
import os, signal, sys, threading
from somatize import Recorder, Store
made, workers = os.pipe, []

def forks(*given):
    # As the workers of a loader are, that are forked in the moment in which git is started.
    ends = made(*given)
    if threading.current_thread() is not threading.main_thread():
        workers.append(os.fork())
        if not workers[-1]:
            signal.pause()
    return ends

os.pipe = os.pipe2 = forks
Recorder(Store(sys.argv[1]), run="r").close()
for worker in workers:
    os.kill(worker, signal.SIGKILL)
"""


def test_a_recorder_does_not_wait_for_workers_that_are_forked_while_it_asks_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    words = ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m"]
    subprocess.run(["git", *words], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-c", FORKING, "s"], cwd=tmp_path, timeout=120, check=True)
    assert len(about(tmp_path / "s")["git"]["commit"]) == 40


def both(place: Path) -> list[tuple[str, str]]:
    """How the killed run reads before, and after another process took in what its writer left."""
    found = [ended(place)]
    assert about(place, "r")["writers"][0]["why"] == (found[0][1] or None)
    with Store(place) as store:
        Recorder(store, run="r2").close()
        assert about(store, "r")["writers"][0]["why"] == (found[0][1] or None)
        store.forget("r2")
    return [*found, ended(place)]


def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **content: str) -> Path:
    """Files in place of those in which the kernel says which boot this is, and how many processes it has killed."""
    for name, text in {"boot": "one", "machine": "m", "groups": "0::/job", **content}.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(run_summary, f"_{name.upper()}", tmp_path / name)
    (tmp_path / "job").mkdir(exist_ok=True)
    monkeypatch.setattr(run_summary, "_GROUP", tmp_path)
    return tmp_path / "job" / "memory.events"


def killed_here(place: Path) -> None:
    """Record in a forked child, which has the replaced files, and have it killed."""
    child = os.fork()
    if not child:
        recorder = Recorder(Store(place), run="r")
        recorder({"fact": "x"})
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"boot": "two"}, "the machine was restarted"),
        ({"boot": "two", "machine": "another"}, ""),  # a directory that two machines share
        ({"boot": "two", "machine": ""}, ""),
        ({"boot": ""}, ""),
        ({}, ""),
    ],
)
def test_killed_says_that_the_machine_was_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: dict[str, str], why: str
) -> None:
    machine(monkeypatch, tmp_path, **({"machine": ""} if content.get("machine") == "" else {}))
    killed_here(tmp_path / "s")
    machine(monkeypatch, tmp_path, **content)
    assert both(tmp_path / "s") == [("killed", why)] * 2
    machine(monkeypatch, tmp_path, boot="three")
    assert ended(tmp_path / "s") == ("killed", why)  # it stays on record


@pytest.mark.parametrize(("kills", "why"), [(3, "out of memory"), (2, "")])
@pytest.mark.parametrize("version", [1, 2])
def test_killed_says_that_memory_ran_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, kills: int, why: str
) -> None:
    counter = machine(monkeypatch, tmp_path, **({"groups": "4:cpu,memory:/job"} if version == 1 else {}))
    if version == 1:
        counter = tmp_path / "memory" / "job" / "memory.oom_control"
        counter.parent.mkdir(parents=True)
    counter.write_text("oom 5\noom_kill 2\n")
    killed_here(tmp_path / "s")
    counter.write_text(f"oom 9\noom_kill {kills}\n")
    assert both(tmp_path / "s") == [("killed", why)] * 2


def test_another_control_group_of_the_same_path_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = machine(monkeypatch, tmp_path)
    counter.write_text("oom_kill 0\n")
    killed_here(tmp_path / "s")
    counter.parent.rename(tmp_path / "old")
    counter.parent.mkdir()
    counter.write_text("oom_kill 7\n")
    assert ended(tmp_path / "s") == ("killed", "")

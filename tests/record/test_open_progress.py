"""How far the nodes of an open forward are, as other processes see it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from somatize import Broker, Graph, Recorder, Store, Worker, node
from somatize.record import Followed, forwards, unfinished

CHILD = """
import sys
from somatize import Graph, Recorder, Store, node

def here(done):
    if done == 40:
        print("here", flush=True)
        sys.stdin.readline()

def item(x):
    here(x)
    return x

def told(x, ctx):
    for done in range(1, 101):
        ctx.progress(done, 100)
        here(done)
    return x

def endless(x, ctx):
    ctx.progress(40)
    here(40)

NODES = {"mapped": node(item).mapped(), "told": node(told), "endless": node(endless)}
recorder = Recorder(Store(sys.argv[1]), run=sys.argv[2])
graph = Graph.somatize(NODES[sys.argv[2]].named("far"))
print(graph.forward(list(range(1, 101)), watching=recorder, threads=int(sys.argv[3])), flush=True)
recorder.close()
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(what: str, threads: int = 1) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", CHILD, tmp_path / "runs", what, str(threads)]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        return child

    yield start
    for child in running:
        child.kill()
        child.communicate()


def seen(store: Path, run: str, done: int) -> dict[str, Any]:
    """The open forward, once it is written how far it is; that is within a quarter of a second."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        rows = unfinished(store, run) if (store / "FORMAT").exists() else []
        if rows and [one["done"] for one in rows[0]["progress"]] == [done]:
            return rows[0]
        time.sleep(0.01)
    raise AssertionError(rows)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("what", "done", "total"), [("mapped", 39, 100), ("told", 40, 100), ("endless", 40, None)])
def test_another_process_sees_how_far_a_node_is(
    tmp_path: Path, started: Callable[..., Any], what: str, done: int, total: int | None, threads: int
) -> None:
    child = started(what, threads)
    row = seen(tmp_path / "runs", what, done)
    (far,) = row["progress"]
    assert (row["state"], row["inside"], far["node"], far["total"]) == ("open", ["far"], "far", total)
    if what == "endless":
        assert (far["rate"], far["left_s"]) == (None, None)
    else:
        assert far["left_s"] == pytest.approx((total or 0 - done) / far["rate"], rel=1)
    with Followed(tmp_path / "runs", what) as followed:
        followed.look()
        (open_one,) = followed.standing.going_on
        assert [(one["node"], one["done"]) for one in open_one.progress] == [("far", done)]
    child.communicate("\n")
    assert unfinished(tmp_path / "runs", what) == []
    assert [row["state"] for row in forwards(tmp_path / "runs", what)] == ["ok"]


def test_a_killed_process_leaves_how_far_it_was(tmp_path: Path, started: Callable[..., Any]) -> None:
    child = started("told")
    seen(tmp_path / "runs", "told", 40)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert [(row["state"], row["progress"][0]["done"]) for row in unfinished(tmp_path / "runs", "told")] == [
        ("lost", 40)
    ]
    Recorder(Store(tmp_path / "runs"), run="other").close()  # which takes in what the dead one left
    assert [(row["state"], row["progress"][0]["done"]) for row in unfinished(tmp_path / "runs", "told")] == [
        ("lost", 40)
    ]


def test_progress_is_state_and_no_history(tmp_path: Path) -> None:
    def far(x: int, ctx: Any) -> int:
        for done in range(100_000):
            ctx.progress(done, 100_000)
        return x

    with Store(tmp_path / "runs") as store, Recorder(store, run="r") as recorder:
        began = time.monotonic()
        Graph.somatize(node(far)).forward(1, watching=recorder)
        took = time.monotonic() - began
        written = sum(one.stat().st_size for one in (tmp_path / "runs" / "journals").iterdir())
    assert written < 2000 + 200 * 4 * (took + 1)
    assert [sorted(row) for row in forwards(tmp_path / "runs", "r")] == [
        ["forward", "nodes", "state", "took_us", "when"]
    ]


@pytest.mark.parametrize(
    ("said", "far"),
    [
        (("many", None), []),
        ((float("nan"), 3), []),
        ((None, None), []),
        ((10**400, 10**400), [2**62]),
        ((-1, 2.5), [0]),
    ],
)
def test_what_is_no_count_costs_no_record(tmp_path: Path, said: tuple[Any, Any], far: list[int]) -> None:
    found: list[list[int]] = []

    def work(x: int, ctx: Any) -> int:
        ctx.progress(*said)
        deadline = time.monotonic() + 30
        while not (rows := unfinished(store, "r")) and time.monotonic() < deadline:
            time.sleep(0.01)
        found.append([one["done"] for one in rows[0]["progress"]])
        return x

    with Store(tmp_path / "runs") as store:
        recorder = Recorder(store, run="r")
        assert Graph.somatize(node(work)).forward(1, watching=recorder) == 1
        recorder.close()
    assert found == [far]
    assert [row["state"] for row in forwards(tmp_path / "runs", "r")] == ["ok"]


def test_a_node_at_a_host_is_seen_as_well(tmp_path: Path) -> None:
    def work(x: str, ctx: Any) -> str:
        import pathlib
        import time

        ctx.progress(40, 100)
        while not pathlib.Path(x).exists():
            time.sleep(0.01)
        return x

    gate = tmp_path / "gate"
    worker = Worker.spawn([sys.executable, "-m", "somatize.worker"])
    with (
        Broker.embedded({"w1": worker}) as broker,
        Store(tmp_path / "runs") as store,
        Recorder(store, run="r") as recorder,
    ):
        graph = Graph.somatize(node(work).named("far").at("w1"))
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(graph.forward, str(gate), watching=recorder, broker=broker)
            try:
                row = seen(tmp_path / "runs", "r", 40)
            finally:
                gate.touch()
            going.result()
    assert row["inside"] == ["far"]
    assert row["progress"] == [{"node": "far", "done": 40, "total": 100, "rate": None, "left_s": None}]

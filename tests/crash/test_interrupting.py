"""Every operation, with something that comes in between at random moments; see `interrupting`.

Right is: nothing hangs, each forward that returned is on record once, one that was interrupted reads so unless its
record was written already, no number comes twice, `check` finds nothing, and no thread, child or descriptor is left.
One run: ``python tests/crash/interrupting.py PLACE WAY SEED SECONDS OPERATION...``; each test says its seed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.interrupting import OPERATIONS, PATIENCE

HERE = [name for name in OPERATIONS if name != "host"]
WAYS = ("keyboard", "limit", "async", "handler", "fork")


def wrong(place: Path, way: str, seed: int, seconds: float, names: list[str]) -> list[str]:
    """What was wrong after a run in a process of its own."""
    script = Path(__file__).with_name("interrupting.py")
    ran = subprocess.run(
        [sys.executable, str(script), str(place), way, str(seed), str(seconds), *names],
        env={**os.environ, "PYTHONPATH": str(script.parents[2])},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE + seconds,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return list(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.parametrize("way", WAYS)
def test_whatever_comes_in_between_leaves_all_in_order(tmp_path: Path, way: str) -> None:
    assert wrong(tmp_path, way, 1, 0.5, HERE) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "names", [HERE, ["forward", "said", "readers"], ["cached", "keep", "prune"], ["opened"]], ids="-".join
)
def test_for_longer(tmp_path: Path, way: str, seed: int, names: list[str]) -> None:
    assert wrong(tmp_path, way, seed, 10.0, names) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["keyboard", "limit", "handler"])
def test_at_a_host(tmp_path: Path, way: str) -> None:
    assert wrong(tmp_path, way, 1, 10.0, ["host", "forward"]) == []


PREEMPTED = """
import os, signal, sys, threading, time
from somatize import Graph, Live, Recorder, Store, node
from somatize.status import Status
import logging
logging.disable()  # that a run is continued is said
store = Store(sys.argv[1])
recorder, live = Recorder(store, run="r", summarising=["tag"]), Live()
status = Status(watching=recorder)
def tags(x, ctx):
    ctx.tell({"fact": "tag", "value": x})
    return x
plain = Graph.somatize(node(tags).named("a"))
kept = Graph.somatize(node(abs).frozen() >> (node(lambda x: [x]).named("c").frozen().cached() | node(tags).named("a")))
def ends(*_):
    began = time.monotonic()
    status.close()
    recorder.close()
    store.close()
    os.write(1, f" {time.monotonic() - began}".encode())
    os._exit(0)
signal.signal(signal.SIGTERM, ends)
threading.Timer(float(sys.argv[3]), os.kill, (os.getpid(), signal.SIGTERM)).start()
tag = 0
while True:
    tag += 1
    if sys.argv[2] == "cached":
        kept.forward(tag, watching=recorder, store=store)
    elif sys.argv[2] == "several":
        plain.forward(tag, watching=[recorder, live, status])
        recorder({"fact": "loss", "value": tag})
    else:
        with Recorder(store, run=f"other {tag % 3}") as other:
            plain.forward(tag, watching=[recorder, other])
    os.write(1, f" {tag}".encode())
"""


@pytest.mark.parametrize("way", ["compiled", "pure"])
@pytest.mark.parametrize("what", ["cached", "several", "opened"])
def test_a_handler_of_sigterm_closes_what_is_open_and_ends(tmp_path: Path, what: str, way: str) -> None:
    from somatize import Store
    from somatize.record import forwards

    for trial in range(2):
        place = tmp_path / f"store {trial}"
        ran = subprocess.run(
            [sys.executable, "-c", PREEMPTED, str(place), what, str(0.15 + trial * 0.1)],
            env={**os.environ, "SOMATIZE_PURE": "1" if way == "pure" else "0"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        *returned, _took = ran.stdout.split()
        with Store(place) as store:
            rows = {int(row["tag.value"]): row["state"] for row in forwards(store, "r") if row["tag.value"] is not None}
            assert {rows.get(int(tag)) for tag in returned} <= {"ok"}
            assert store.check() == []
        assert -ran.returncode != signal.SIGKILL


AT_EXIT = """
import os, sys, threading, time
from somatize import Graph, Recorder, Store, node
recorder = Recorder(Store(sys.argv[1]), run="r", summarising=["tag"])
graph = Graph.somatize(node(lambda x, ctx: ctx.tell({"fact": "tag", "value": x})).named("a"))
returned = os.open(sys.argv[1] + ".returned", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def loop(which):
    step = 0
    while True:
        graph.forward(f"{which}-{step}", watching=recorder)
        os.write(returned, f"{which}-{step}\\n".encode())
        step += 1
started = threading.Event()
for which in range(4):
    threading.Thread(target=loop, args=(which,), daemon=True).start()
while os.fstat(returned).st_size < 2000:
    time.sleep(0.01)
"""


def test_what_daemon_threads_record_as_the_interpreter_ends_is_there(tmp_path: Path) -> None:
    from somatize import Store
    from somatize.record import forwards

    place = tmp_path / "store"
    subprocess.run([sys.executable, "-c", AT_EXIT, str(place)], capture_output=True, check=True, timeout=60)
    with Store(place) as store:
        there = {row["tag.value"] for row in forwards(store, "r") if row["state"] == "ok"}
        assert set(Path(f"{place}.returned").read_text().split()) - there == set()
        assert store.check() == []


BY_ATEXIT = """
import atexit, sys
def last():
    graph.forward(2, watching=recorder)
    with Recorder(store, run="late") as other:
        graph.forward(3, watching=other)
atexit.register(last)  # before somatize is imported: it runs when that has closed what is open
from somatize import Graph, Recorder, Store, node
store = Store(sys.argv[1])
recorder = Recorder(store, run="r")
graph = Graph.somatize(node(abs))
graph.forward(1, watching=recorder)
"""


def test_a_forward_in_a_function_of_atexit_is_recorded(tmp_path: Path) -> None:
    from somatize import Store
    from somatize.record import forwards

    place = tmp_path / "store"
    ran = subprocess.run([sys.executable, "-c", BY_ATEXIT, str(place)], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    with Store(place) as store:
        assert [row["state"] for row in forwards(store, "r")] == ["ok", "ok"]
        assert [row["state"] for row in forwards(store, "late")] == ["ok"]

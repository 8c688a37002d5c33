"""How many files a process has open, and what happens when it may open no more."""

from __future__ import annotations

import subprocess
import sys

import pytest

SWEEP = """
import os, sys
from somatize import Graph, Recorder, Store, node
from somatize.record import runs
place, dropped, trials = sys.argv[1], sys.argv[2] == "dropped", int(sys.argv[3])
g, store, counts = Graph.somatize(node(abs)), Store(place), []
for trial in range(trials):
    recorder = Recorder(store, run=f"trial/{trial}")
    g.forward(trial, watching=recorder)
    recorder({"fact": "loss", "value": trial})
    if not dropped:
        recorder.close()
    counts.append(len(os.listdir("/proc/self/fd")))
del recorder
store.close()
half = trials // 2  # the first ones come and go with what git is asked
assert max(counts[half:]) <= max(counts[:half]) + 8, counts
assert [row["forwards"] for row in runs(place)] == [1] * trials
"""

NONE_LEFT = """
import os, resource, sys, time
from somatize import Graph, Recorder, Store, node
from somatize.errors import StoreError
from somatize.record import about, curve, facts, forwards, nodes, runs
place = sys.argv[1]
g = Graph.somatize(node(abs).named("a").frozen().cached())
Store(place + "-other").close()
store = Store(place)
recorder = Recorder(store, run="r", summarising=["loss"])
for value in range(2):  # the second is begun before, and what it needs is there
    g.forward(-value, watching=recorder, store=store)
while "versions" not in about(store):  # until git, asked in the background, has given its pipes back
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
refused = []
for ask in (
    lambda: Recorder(store, run="q"), lambda: Recorder(store, run="r"), lambda: Store(place + "-other"),
    lambda: Store(place + "-new"), lambda: runs(store), lambda: runs(place + "-other"), lambda: forwards(store),
    lambda: facts(store, forward=0), lambda: curve(store), lambda: about(store), lambda: nodes(store),
    lambda: recorder.to(0), lambda: store.put(bytes(2 << 20)), lambda: store.check(),
):
    try:
        ask()
    except StoreError as error:
        refused.append(str(error))
assert len(refused) == 14 and all("ulimit -n" in one for one in refused), refused
for value in range(2, 50):
    g.forward(-value, watching=recorder, store=store)
    recorder({"fact": "loss", "value": value})
recorder.close()
for fd in held:
    os.close(fd)
assert len(forwards(place)) == 50 and len(curve(place)) == 48 and store.check() == []
"""


def run(program: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("how", ["closed", "dropped"])
@pytest.mark.parametrize("trials", [60, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells what is open")
def test_it_does_not_grow_with_the_number_of_runs(tmp_path, how: str, trials: int) -> None:  # type: ignore[no-untyped-def]
    run(SWEEP, str(tmp_path / "store"), how, str(trials))


def test_where_none_may_be_opened_that_is_an_error_of_ours_and_costs_no_record(tmp_path) -> None:  # type: ignore[no-untyped-def]
    run(NONE_LEFT, str(tmp_path / "store"))

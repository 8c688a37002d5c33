"""What recording costs, what a record weighs and how fast it is read, as ratios to three baselines in one run.

Run by name: ``python benchmarks/record.py [forwards]``. The baselines: (a) the same facts packed with msgpack, one
`os.write` per forward and one per fact said after it; (b) sqlite in WAL mode, synchronous NORMAL, one insert and
commit per record; (c) LMDB without sync, one commit per record, and a cursor that unpacks each value.

Figures wander on a busy machine: each pair is measured in turns, and the table shows the median of the ratios.
"""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import lmdb
import msgpack

from somatize import Graph, Recorder, Store, node
from somatize.record import curve, facts, forwards, runs
from somatize.store import speedups

FACTS = [
    {"fact": "ran", "node": "tokenize", "began_us": "8", "took_us": "318"},
    {"fact": "ran", "node": "embed", "began_us": "340", "took_us": "120"},
    {"fact": "ran", "node": "score", "began_us": "470", "took_us": "95"},
    {"fact": "finished", "took_us": "933"},
]


@node
def first(x: float) -> float:
    return x


@node
def second(x: float) -> float:
    return x


@node
def third(x: float) -> float:
    return x


GRAPH = Graph.somatize(first >> second >> third)


def loss(step: int) -> float:
    return 2.0 * 0.9999**step + 0.1


class Place:
    """A directory for one measurement."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="somatize-bench-"))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# -- recording: the facts alone, as each would store them


def raw(path: Path, count: int) -> float:
    fd = os.open(path / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    began = time.perf_counter()
    for step in range(count):
        told: list[dict[str, str]] = []
        tell = told.append
        for fact in FACTS:
            tell(fact)
        os.write(fd, msgpack.packb(told))
        os.write(fd, msgpack.packb({"fact": "loss", "value": repr(loss(step))}))
    os.close(fd)
    return time.perf_counter() - began


def sqlite(path: Path, count: int) -> float:
    db = sqlite3.connect(path / "db")
    db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=normal")
    db.execute("create table r (n integer primary key, state text, nodes integer, took integer, value real, body blob)")
    began = time.perf_counter()
    for step in range(count):
        value = loss(step)
        body = msgpack.packb([*FACTS, {"fact": "loss", "value": repr(value)}])
        db.execute("insert into r values (?, 'ok', 3, 933, ?, ?)", (step, value, body))
        db.commit()
    db.close()
    return time.perf_counter() - began


def unsynced(path: Path, count: int) -> float:
    env = lmdb.open(str(path / "lmdb"), map_size=4 << 30, sync=False)
    began = time.perf_counter()
    for step in range(count):
        body = msgpack.packb([*FACTS, {"fact": "loss", "value": repr(loss(step))}])
        with env.begin(write=True) as txn:
            txn.put(step.to_bytes(8, "big"), body)
    env.close()
    return time.perf_counter() - began


def ours(path: Path, count: int) -> float:
    recorder = Recorder(Store(path / "store"), run="r", summarising=["loss"])
    began = time.perf_counter()
    for step in range(count):
        sink = recorder.opens(None)
        tell = sink.tell
        for fact in FACTS:
            tell(fact)
        sink.closed()
        recorder({"fact": "loss", "value": loss(step)})
    recorder.close()
    return time.perf_counter() - began


# -- recording: the loop as a user sees it


def loop_raw(path: Path, count: int) -> float:
    fd = os.open(path / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    began = time.perf_counter()
    for step in range(count):
        told: list[dict[str, str]] = []
        GRAPH.forward(1.0, watching=told.append)
        os.write(fd, msgpack.packb(told))
        os.write(fd, msgpack.packb({"fact": "loss", "value": repr(loss(step))}))
    os.close(fd)
    return time.perf_counter() - began


def loop_ours(path: Path, count: int) -> float:
    recorder = Recorder(Store(path / "store"), run="r", summarising=["loss"])
    began = time.perf_counter()
    for step in range(count):
        GRAPH.forward(1.0, watching=recorder)
        recorder({"fact": "loss", "value": loss(step)})
    recorder.close()
    return time.perf_counter() - began


def cost(work: Callable[[Path, int], float], count: int) -> float:
    with Place() as path:
        return work(path, count) / count * 1e6


def compare(name: str, base: str, mine: Any, other: Any, count: int, most: float, rounds: int = 5) -> None:
    pairs = [(cost(mine, count), cost(other, count)) for _ in range(rounds)]
    row(
        name,
        median(a for a, _ in pairs),
        median(b for _, b in pairs),
        base,
        "us",
        most,
        median(a / b for a, b in pairs),
    )


def row(name: str, mine: float, other: float, base: str, unit: str, most: float, ratio: float | None = None) -> None:
    ratio = mine / other if ratio is None else ratio
    mark = "ok" if ratio <= most else "OVER"
    print(
        f"{name:<52} {mine:>10.2f} {unit:<3} {other:>10.2f} {unit:<3} {base:<22} "
        f"{ratio:>7.2f}  at most {most:<5} {mark}"
    )


def limit(name: str, value: float, unit: str, most: float) -> None:
    print(f"{name:<52} {value:>10.2f} {unit:<40} {'':<9} at most {most:<5} {'ok' if value <= most else 'OVER'}")


def weight(path: Path) -> int:
    return sum(one.stat().st_blocks * 512 for one in path.rglob("*") if one.is_file())


def recording(count: int) -> None:
    compare("record: 3 nodes and a loss, with close", "(a) raw append", ours, raw, count, 2.5)
    compare("the loop that does it, with close", "(a) in the same loop", loop_ours, loop_raw, count, 2.5)
    compare("record: 3 nodes and a loss, with close", "(b) sqlite", ours, sqlite, count // 4, 1.0, 3)
    compare("record: 3 nodes and a loss, with close", "(c) LMDB, no sync", ours, unsynced, count // 4, 1.0, 3)
    small, large = cost(ours, 2000), cost(ours, count * 10)
    row(f"cost per forward at {count * 10} against 2000", large, small, "itself at 2000", "us", 1.2)


def reading(count: int) -> None:
    with Place() as path:
        ours(path, count)
        sqlite(path, count)
        unsynced(path, count)
        store = Store(path / "store")
        limit(f"on disk after closing, per record of {count}", weight(path / "store") / count, "bytes", 400)
        limit("files in all", sum(one.is_file() for one in (path / "store").rglob("*")), "files", 10)
        db = sqlite3.connect(path / "db")
        curves = [
            (
                timed(lambda: curve(store, "r")),
                timed(lambda: db.execute("select n, value from r order by n").fetchall()),
                timed(lambda: unpacked(path)),
            )
            for _ in range(3)
        ]
        mine, select, scan = (median(times) / count * 1e6 for times in zip(*curves, strict=True))
        row(f"curve of {count}, per point", mine, select, "(b) indexed select", "us", 1.0)
        row(f"curve of {count}, per point", mine, scan, "(c) cursor, unpacked", "us", 1.0)
        columns = "select n, state, nodes, took, value from r order by n"
        rows = [(timed(lambda: forwards(store, "r")), timed(lambda: db.execute(columns).fetchall())) for _ in range(3)]
        mine, select = (median(times) / count * 1e6 for times in zip(*rows, strict=True))
        row(f"forwards of {count}, per row", mine, select, "(b) the same columns", "us", 2.0)
        limit(
            "facts of one forward", 1000 * min(timed(lambda: facts(store, "r", count // 2)) for _ in range(5)), "ms", 1
        )
        store.close()
        opening = [timed(lambda: Store(path / "store").close()) for _ in range(3)]
        limit(f"opening a store of {count}", 1000 * min(opening), "ms", 50)
        db.close()
        peak(path / "store")


def unpacked(path: Path) -> list[tuple[int, float]]:
    env = lmdb.open(str(path / "lmdb"), map_size=4 << 30, readonly=True)
    with env.begin(buffers=True) as txn:
        points = [
            (int.from_bytes(key, "big"), float(msgpack.unpackb(value)[-1]["value"])) for key, value in txn.cursor()
        ]
    env.close()
    return points


def peak(place: Path) -> None:
    code = (
        "import resource, sys; from somatize.record import curve\n"
        f"points = curve({str(place)!r}, 'r'); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    limit("peak memory of a process that reads that curve", int(out) / 1024, "MB", 300)


def many_runs() -> None:
    with Place() as path:
        store = Store(path / "store")
        for run in range(1000):
            with Recorder(store, run=f"run {run}") as recorder:
                sink = recorder.opens(None)
                sink.tell(FACTS[-1])
                sink.closed()
        limit("runs, of 1000", 1000 * min(timed(lambda: runs(store)) for _ in range(5)), "ms", 10)
        store.close()


def readers_beside(count: int, rounds: int = 5) -> None:
    """What readers take from the writer: against as many processes of Python that wake as often and read nothing.

    They have started, and looked once, before the time is taken; half of them hold a Store, half name its path. On
    few cores any work of others slows the writer: so also against processes that count, for as long as a look takes.
    """
    measured = [
        [beside(count, 0, ""), beside(count, 8, _IDLE), beside(count, 8, _POLL), beside(count, 8, _COUNT)]
        for _ in range(rounds)
    ]
    (alone, idle, polled, counting), (_, at_rest, at_work, _), (*_, read, counted) = (
        [median(four[which][what] for four in measured) for which in range(4)] for what in range(3)
    )
    row("recording beside 8 idle processes", idle, alone, "recording alone", "us", 1.2)
    row("recording beside 8 readers, each every 100 ms", polled, idle, "beside 8 idle ones", "us", 1.2)
    row("the same, in the writer's processor time", at_work, at_rest, "beside 8 idle ones", "us", 1.2)
    limit("what those 8 readers take", read, "of one core", 0.5)
    row("recording beside 8 readers, each every 100 ms", polled, counting, "beside 8 that count", "us", 1.1)
    limit("what those that count take", counted, "of one core", 0.5)


def beside(count: int, others: int, code: str) -> tuple[float, float, float]:
    """How long a forward takes to record, by the clock and of the processor, and how much of a core others used."""
    with Place() as path:
        loop_ours(path, 100)
        started = [
            subprocess.Popen([sys.executable, "-c", code, str(path / "store"), str(one % 2)], stdout=subprocess.PIPE)
            for one in range(others)
        ]
        for one in started:
            assert one.stdout is not None
            one.stdout.readline()
        before, mine = used(started), time.process_time()
        spent = loop_ours(path, count)
        mine, taken = time.process_time() - mine, (used(started) - before) / spent
        for one in started:
            one.kill()
            one.communicate()
        return spent / count * 1e6, mine / count * 1e6, taken


def used(processes: list[subprocess.Popen[bytes]]) -> float:
    """Seconds of processor time that they took so far."""
    ticks = [Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[11:13] for one in processes]
    return sum(int(user) + int(system) for user, system in ticks) / os.sysconf("SC_CLK_TCK")


_IDLE = """
import sys, time
from somatize import Store
from somatize.record import runs, forwards
place = Store(sys.argv[1]) if sys.argv[2] == "1" else sys.argv[1]
runs(place), forwards(place, "r", last=20)
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""
_POLL = (
    _IDLE
    + """    runs(place), forwards(place, "r", last=20)
"""
)

_COUNT = (
    _IDLE
    + """    until = time.process_time() + 0.0045
    while time.process_time() < until: sum(range(1000))
"""
)


def memory(count: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Place() as path:
        ours(path, count)
    limit("memory a recorder adds", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, "MB", 64)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    assert threading.active_count() == 1
    print("recording is done in C" if speedups.MODULE else "recording is done in Python: its part in C is not there")
    memory(count)
    recording(count)
    reading(count)
    if count < 1_000_000:
        reading(count * 10)
    many_runs()
    readers_beside(3 * count)


if __name__ == "__main__":
    main()

"""What the command, watching and exporting cost: a run of 100,000 forwards read as its users read it.

Run by name: ``python benchmarks/command.py [forwards]``. Each command is a process of its own, so its time is that of
Python starting, of imports and of reading. Exports are ratios to the reader of the same rows; what watching costs who
records is the ratio of a loop with a view beside it to the same loop alone, in turns.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from somatize import Graph, Recorder, Store, node
from somatize.record import facts, forwards
from somatize.record.export import to_csv, to_pandas, to_parquet, to_trace

FORWARDS, FEWER = 100_000, 10
PAGE_S, PAGE_MB, GROWS, WATCHED = 2.0, 8.0, 1.3, 1.1
"""Ceilings: a page; how memory grows with ten times the rows; a loop that is watched."""

GRAPH = Graph.somatize(node(abs).named("load") >> node(lambda x: x).named("train") >> node(abs).named("score"))


def record(store: Store, run: str, count: int) -> float:
    """Seconds that recording so many forwards took."""
    with Recorder(store, run=run, summarising=["loss"]) as recorder:
        began = time.perf_counter()
        for step in range(count):
            GRAPH.forward(step, watching=recorder)
            recorder({"fact": "loss", "value": 1 / (1 + step)})
        return time.perf_counter() - began


def called(*words: object) -> tuple[float, float]:
    """Seconds of a command, and the megabytes it held at most."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words} ended with {process.returncode}")
    return time.perf_counter() - began, used.ru_maxrss / 1024


def somatize(*words: object) -> tuple[float, float]:
    return called("-m", "somatize", *words)


def best(work: Callable[[], tuple[float, float]], times: int = 3) -> tuple[float, float]:
    return min(work() for _ in range(times))


def took(work: Callable[[], object], times: int = 3) -> float:
    """Seconds at best."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def line(words: str, value: str, held: bool | None = None, ceiling: str = "") -> None:
    told = "" if held is None else f"   {ceiling}: {'held' if held else 'MISSED'}"
    print(f"{words:<58} {value:>12}{told}", flush=True)


def commands(store: Path, count: int) -> None:
    bare, _ = best(lambda: called("-c", "pass"))
    for words in (("runs", store), ("forwards", store, "long", "--last", 20), ("facts", store, "long")):
        seconds, _ = best(lambda words=words: somatize(*words))
        line(f"somatize {words[0]}, to python -c pass", f"{seconds / bare:.1f} x")
    for form in ("--json", "--csv"):
        few = best(lambda form=form: somatize("forwards", store, "short", form))
        many = best(lambda form=form: somatize("forwards", store, "long", form))
        line(f"somatize forwards {form} of {count:,}", f"{many[0]:.2f} s")
        grown = many[1] / few[1]
        line("  memory, to that of a tenth", f"{grown:.2f} x", grown < GROWS, f"ceiling {GROWS:g} x")
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "page.html"
        seconds, _ = best(lambda: somatize("page", store, "long", "-o", page))
        line(f"somatize page of {count:,}", f"{seconds:.2f} s", seconds < PAGE_S, f"ceiling {PAGE_S:g} s")
        size = page.stat().st_size / 1e6
        line("  its size", f"{size:.1f} MB", size < PAGE_MB, f"ceiling {PAGE_MB:g} MB")


def exports(store: Store, place: Path) -> None:
    for of, reader in (
        ("forwards", lambda: forwards(store, "long")),
        ("facts", lambda: facts(store, "long", since=0)),
    ):
        alone = took(reader, 2)
        line(f"{of}: the reader", f"{alone:.2f} s")
        for name, export in (
            ("to_csv", lambda of=of: to_csv(store, "long", place / "t.csv", of)),
            ("to_parquet", lambda of=of: to_parquet(store, "long", place / "t.parquet", of)),
            ("to_pandas", lambda of=of: to_pandas(store, "long", of)),
        ):
            line(f"  {name}, to it", f"{took(export, 2) / alone:.1f} x")
    one, many = (took(lambda last=last: to_trace(store, "long", place / "t.json", last=last)) for last in (1, 1000))
    line("to_trace of one forward, of a thousand", f"{1000 * one:.0f}, {1000 * many:.0f} ms")


def watched(place: Path, count: int, rounds: int = 5) -> None:
    """What a view beside it costs a loop, and what the view takes itself."""
    ratios, shares = [], []
    with Store(place) as store:
        record(store, "warm", count // 10)
        for turn in range(rounds):
            alone = record(store, f"alone {turn}", count)
            asked = [sys.executable, "-m", "somatize", "watch", place, "--keep-on", "--every", "0.5"]
            view = subprocess.Popen(asked, stdout=subprocess.DEVNULL)
            time.sleep(1.5)  # it has started, and waits for what comes
            seconds = record(store, f"watched {turn}", count)
            ratios.append(seconds / alone)
            view.kill()
            _, _, used = os.wait4(view.pid, 0)
            view.returncode = 0
            shares.append((used.ru_utime + used.ru_stime) / (seconds + 1.5))
    middle = median(ratios)
    words = f"a loop of {count:,} watched, to the same alone"
    line(words, f"{middle:.2f} x", middle < WATCHED, f"ceiling {WATCHED:g} x")
    line("  the rounds", " ".join(f"{ratio:.2f}" for ratio in ratios))
    line("  the view's processor time, of the time it watched", f"{median(shares):.0%}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else FORWARDS
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        with Store(place / "runs") as store:
            record(store, "long", count)
            record(store, "short", count // FEWER)
        commands(place / "runs", count)
        with Store(place / "runs") as store:
            exports(store, place)
        watched(place / "watched", max(count // 5, 10_000))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line("this process held at most", f"{peak:.0f} MB")


if __name__ == "__main__":
    main()

"""What a Status costs, as ratios measured in one run, tqdm and rich.progress beside it.

Each pair is measured by turns, many rounds of both, and the ratio is of the medians: a machine that slows down slows
both.

    python benchmarks/status.py
"""

from __future__ import annotations

import io
import logging
import statistics
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import Any

import rich.console
import rich.progress
import tqdm

from somatize import Graph, Node
from somatize.status import Status

LOOPS = 100_000


class Terminal(io.StringIO):
    """What a view writes to here: it says that it is a terminal, and keeps nothing."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


def in_turns(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int = 15,
    clock: Callable[[], int] = thread_time_ns,
) -> tuple[float, float]:
    """Nanoseconds per call of each, the median over rounds taken by turns.

    It is time of the processor in this thread: how long others made it wait says nothing. Where a view has a thread of
    its own it is time on the wall.
    """
    times: tuple[list[int], list[int]] = ([], [])
    for _ in range(rounds):
        for call, taken in zip((ours, theirs), times, strict=True):
            began = clock()
            call()
            taken.append(clock() - began)
    return statistics.median(times[0]), statistics.median(times[1])


def row(what: str, ours: float, theirs: float | None, limit: str, unit: str = "ns") -> None:
    beside = f"{theirs:10.1f} {ours / theirs:8.2f}" if theirs else f"{'':10} {'':8}"
    print(f"{what:44} {ours:10.1f} {unit} {beside}   {limit}")


def loops() -> None:
    status = Status()

    def track() -> None:
        for _ in status.track(range(LOOPS), "x"):
            pass

    def by_tqdm() -> None:
        for _ in tqdm.tqdm(range(LOOPS), file=io.StringIO()):
            pass

    ours, theirs = in_turns(track, by_tqdm)
    row("track, no view, per iteration, to tqdm", ours / LOOPS, theirs / LOOPS, "<= 2")

    console = rich.console.Console(file=Terminal(), force_terminal=True, width=100)

    def by_rich() -> None:
        for _ in rich.progress.track(range(LOOPS), "x", console=console):
            pass

    with status.display(file=Terminal(), live=True):
        ours, theirs = in_turns(track, by_rich, clock=perf_counter_ns)
    row("track, with a view, per iteration, to rich", ours / LOOPS, theirs / LOOPS, "<= 1")
    status.close()


def subtasks() -> None:
    status = Status()
    count = 20_000

    def open_and_end() -> None:
        for _ in range(count):
            with status.task("x"):
                pass

    with status.task("root"):
        ours, _ = in_turns(open_and_end, lambda: None)
    row("a subtask, opened and ended", ours / count / 1000, None, "<= 5 us", "us")
    status.close()


def records() -> None:
    count = 5_000
    logger = logging.getLogger("somatize.benchmark")
    plain = logging.getLogger("plain.benchmark")
    for one in (logger, plain):
        one.setLevel(logging.INFO)
    root = logging.getLogger("plain")
    root.addHandler(logging.NullHandler())
    root.propagate = False
    kept: deque[Any] = deque(maxlen=200)

    class Keeps(logging.NullHandler):
        def handle(self, record: logging.LogRecord) -> bool:
            return True

    logging.getLogger("somatize").addHandler(Keeps())
    logging.getLogger("somatize").propagate = False
    status = Status()

    def routed() -> None:
        for number in range(count):
            logger.info("record %d of %s", number, "many")

    def beside() -> None:
        for number in range(count):
            plain.info("record %d of %s", number, "many")
            kept.append(number)

    ours, theirs = in_turns(routed, beside)
    row("a log record routed, to a NullHandler", ours / count / 1000, theirs / count / 1000, "<= 1.5", "us")
    status.close()


def forwards() -> None:
    status = Status()
    graph = Graph.somatize(Pass() >> Pass() >> Pass())
    seen: list[Any] = []
    count = 500

    def given() -> None:
        for _ in range(count):
            graph.forward(1, watching=[seen.append, status])
            seen.clear()

    def without() -> None:
        for _ in range(count):
            graph.forward(1, watching=[seen.append])
            seen.clear()

    ours, theirs = in_turns(given, without, 60)
    row("a watched forward of 3, given a Status: more", (ours - theirs) / count / 1000, None, "<= 20 us", "us")
    status.close()


def main() -> None:
    print(f"{'':44} {'ours':>10}    {'theirs':>10} {'ratio':>8}   limit")
    loops()
    subtasks()
    records()
    forwards()


if __name__ == "__main__":
    main()

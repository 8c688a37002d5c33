"""How long figures take: a million forwards condensed, a run read and drawn, graphs of thousands.

Prints seconds, the points drawn and the size of the figure as JSON. No baseline: what is held is the ceiling beside it.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from array import array

from somatize import Graph, Node, Recorder, Store
from somatize.record import progress, spent, timeline
from somatize.record.progress_figure import progress_figure
from somatize.record.run_columns import BROKE, OK, Columns

MILLION = 1_000_000


def timed(words, work, ceiling=None):
    began = time.perf_counter()
    made = work()
    took = time.perf_counter() - began
    held = "" if ceiling is None else f"   ceiling {ceiling:g} s: {'held' if took <= ceiling else 'MISSED'}"
    print(f"{words:<58} {took:8.3f} s{held}")
    return made


def columns(count, several=1):
    rng = random.Random(7)
    made = Columns.of("long", [f"s{n}" for n in range(several)])
    made.forwards = array("q", range(count))
    made.states = bytearray([OK]) * count
    for at in range(500, count, count // 40):
        made.states[at] = BROKE
    made.took_us = array("d", [900 + 200 * rng.random() for _ in range(count)])
    noise = array("d", [rng.random() for _ in range(count)])
    for series in made.series:
        series.extend(array("d", [math.exp(-n * 5 / count) + value / 8 for n, value in enumerate(noise)]))
        series.put(count * 7 // 9, "40.0")
        series.put(5, "nan")
    return made


def size(figure):
    points = sum(len(trace.x) for trace in figure.data)
    print(f"{'':<58} {points:,} points, {len(figure.to_json()) / 1e6:.2f} MB")


class Step(Node):
    def forward(self, x, ctx):
        return x


def graph(count, every=0):
    made = Graph()
    for n in range(count):
        made.node(f"step_{n}", Step())
    for n in range(1, count):
        made.edge(f"step_{n - 1}", f"step_{n}")
        if every and n % every == 0:
            made.edge(f"step_{n - every}", f"step_{n}")
    return made


def main():
    progress_figure([columns(1_000)])  # plotly is imported
    for count in (20_000, MILLION):
        one = columns(count)
        size(timed(f"progress of {count:,} forwards, after reading", lambda one=one: progress_figure([one]), 2))
    one = columns(MILLION, 20)
    size(timed("the same with 20 series", lambda one=one: progress_figure([one])))
    del one
    with tempfile.TemporaryDirectory() as place, Store(place) as store:
        steps = Graph.somatize(Step() >> Step() >> Step())
        with Recorder(store, run="r", summarising=["loss"]) as recorder:
            for n in range(50_000):
                steps.forward(n, watching=recorder)
                recorder({"fact": "loss", "value": 1 / (n + 1)})
        timed("50,000 forwards: progress, read and drawn", lambda: progress(store))
        timed("50,000 forwards: progress of what was not summarised", lambda: progress(store, of="ran.took_us"))
        timed("50,000 forwards: spent", lambda: spent(store))
        timed("50,000 forwards: timeline of one", lambda: timeline(store))
    for count in (50, 100, 200, 300, 1_000, 5_000, 20_000):
        made = graph(count, 7)
        timed(f"a graph of {count:,} drawn", made.figure)
    timed("a graph of 20,000 as Mermaid text", made.mermaid)


if __name__ == "__main__":
    main()

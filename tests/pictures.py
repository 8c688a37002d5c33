"""The pictures of the README, drawn again: `python tests/pictures.py`, with the dev group and Chromium."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from somatize import Graph, Node, Recorder, Store
from somatize.record import progress, spent

HERE = Path(__file__).parents[1] / "docs" / "pictures"


class Step(Node):
    """A node that takes its time, and breaks at one forward in a hundred and fifty."""

    def __init__(self, slow_ms: float = 0.2, breaks: bool = False) -> None:
        self.slow_ms = slow_ms
        self.breaks = breaks

    def forward(self, step, ctx):
        time.sleep(self.slow_ms * random.random() / 1000)
        if self.breaks and step % 150 == 149:
            raise ValueError(f"batch {step} holds no images")
        return step


def trained() -> Store:
    """A run of 400 forwards, resumed once."""
    store = Store(tempfile.mkdtemp())
    graph = Graph.somatize(
        Step(0.8, breaks=True).named("load")
        >> Step(0.3).named("augment")
        >> Step(2.0).named("learn")
        >> Step(0.1).named("score")
    )
    for first, last in ((0, 260), (260, 400)):
        with Recorder(store, run="tuesday", summarising=["loss"]) as recorder:
            for step in range(first, last):
                try:
                    graph.forward(step, watching=recorder)
                except ValueError:
                    continue
                recorder({"fact": "loss", "value": 2 * 0.985**step + 0.2 + 0.2 * random.random()})
    return store


def declared() -> Graph:
    """A graph with branches, a slice, devices and marks."""
    text = (Step().named("tokenize") >> Step().named("embed")).at("w1")
    image = Step().named("resize").mapped(8) >> (
        Step().named("encode").on("cuda:0").frozen() | Step().named("histogram")
    )
    return Graph.somatize(
        Step().named("load").cached() >> (text | image) >> Step().named("fuse").on("cuda:0") >> Step().named("score")
    )


if __name__ == "__main__":
    random.seed(3)
    store = trained()
    progress(store).write_image(HERE / "progress.png", width=860, scale=2)
    spent(store).write_image(HERE / "spent.png", width=860, scale=2)
    declared().figure().write_image(HERE / "graph.png", scale=2)

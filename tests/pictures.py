"""The pictures of the documentation, drawn again: `python tests/pictures.py`, with the dev group and Chromium."""

from __future__ import annotations

import math
import random
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from somatize import Graph, Node, Recorder, Store, node
from somatize.record import progress, spent, sweep

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


def swept() -> Store:
    """Sixty runs over four keys, of which some diverged, and one that was said to have failed."""
    store = Store(tempfile.mkdtemp())
    graph = Graph.somatize(Step(0).named("learn"))
    for place in range(60):
        rate, width = 10 ** random.uniform(-4, -0.5), random.choice([32, 64, 128, 256])
        config = {"optim": {"lr": rate, "name": random.choice(["sgd", "adam"])}, "width": width}
        if place % 3:
            config["dropout"] = random.choice([0.0, 0.1, 0.3])
        reached = 0.9 - 0.06 * (math.log10(rate) + 2.2) ** 2 + 0.02 * math.log2(width / 64) + random.gauss(0, 0.015)
        with Recorder(store, run=f"lr/{place:02}", summarising=["val.accuracy"], config=config) as recorder:
            graph.forward(0, watching=recorder)
            recorder({"fact": "val.accuracy", "value": math.nan if rate > 0.2 else reached})
            if rate > 0.2:
                recorder.end("failed", why="FloatingPointError: the loss is nan")
    return store


def kept() -> tuple[Graph, Store]:
    """A run with results that were recalled and a node that failed."""
    store = Store(tempfile.mkdtemp())
    graph = Graph.somatize(
        node(lambda step: step + 0).named("load").frozen().cached()
        >> (Step(0.8).named("augment") | Step(0.2, breaks=True).named("labels"))
        >> node(len).named("collate")
        >> Step(2.0).named("learn").on("cpu")
    )
    with Recorder(store, run="tuesday") as recorder:
        for step in range(300):
            with suppress(ValueError):
                graph.forward(step % 150, watching=recorder, store=store)
    return graph, store


def validated(runs: int) -> Store:
    """Runs of unlike batch size, validated after each epoch; the first was resumed with another configuration."""
    store = Store(tempfile.mkdtemp())
    graph = Graph.somatize(Step(0).named("learn"))
    for place in range(runs):
        batches, rate = (20, 40)[place % 2], 10 ** random.uniform(-1.5, 0)
        launches = ((0, 5), (4, 10)) if not place else ((0, 10),)
        for launch, (first, last) in enumerate(launches):
            config = {"lr": rate / 10**launch, "batch": 1280 // batches}
            with Recorder(
                store, run=f"lr/{place:02}", summarising=["loss", "val.loss", "epoch"], config=config
            ) as recorder:
                for forward in range(first * batches, last * batches):
                    graph.forward(forward, watching=recorder)
                    loss = 0.2 / rate**0.3 + 2 * math.exp(-rate * 4 * forward / batches) + random.gauss(0, 0.05)
                    recorder({"fact": "loss", "value": loss})
                    recorder({"fact": "epoch", "value": (forward + 1) / batches})
                    if forward % batches == batches - 1:
                        recorder({"fact": "val", "loss": loss + 0.15 + 0.01 * forward / batches})
    return store


if __name__ == "__main__":
    random.seed(3)
    store = trained()
    progress(store).write_image(HERE / "progress.png", width=860, scale=2)
    spent(store).write_image(HERE / "spent.png", width=860, scale=2)
    declared().figure().write_image(HERE / "graph.png", scale=2)
    sweep(swept(), "val.accuracy", mode="max").write_image(HERE / "sweep.png", width=860)
    store = validated(100)
    of = ["loss", "val.loss"]
    progress(store, ["lr/00", "lr/01"], of, x="epoch").write_image(HERE / "train-val.png", width=860)
    progress(store, [f"lr/{place:02}" for place in range(100)], "val.loss", x="epoch").write_image(
        HERE / "hundred-runs.png", width=860
    )
    drawn, store = kept()
    drawn.figure(store=store).write_image(HERE / "run-graph.png", scale=2)

"""Handwritten digits through a graph: run, watched, recorded, read back.

scikit-learn's 1,797 digits go in batches through load >> scale >> learn >> score. What was recorded is then read
back and held against what was watched.

    python examples/digits.py [DIRECTORY]     # where to keep the record; a temporary one if none is named
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from somatize import Graph, Node, Recorder, Store
from somatize.record import curve, curve_costs, facts, forwards, nodes, runs

STEPS, BATCH = 300, 128


class Load(Node):
    def __init__(self):
        self.images, self.labels = load_digits(return_X_y=True)
        self.order = np.random.default_rng(0).permutation(len(self.images))

    def forward(self, step, ctx):
        batch = self.order[np.arange(step * BATCH, (step + 1) * BATCH) % len(self.order)]
        return self.images[batch], self.labels[batch]


class Scale(Node):
    def forward(self, batch, ctx):
        images, labels = batch
        return images / 16.0, labels  # a pixel is 0 to 16


class Learn(Node):
    """One step of softmax regression; what it passes on was predicted before the step."""

    def __init__(self, rate=0.5):
        self.rate, self.weights = rate, np.zeros((64, 10))

    def forward(self, batch, ctx):
        images, labels = batch
        odds = np.exp(images @ self.weights)
        odds /= odds.sum(axis=1, keepdims=True)
        ctx.tell({"fact": "loss", "value": -np.log(odds[np.arange(len(labels)), labels]).mean()})
        self.weights -= self.rate * images.T @ (odds - np.eye(10)[labels]) / len(labels)
        return odds.argmax(axis=1), labels


class Score(Node):
    def forward(self, answers, ctx):
        predicted, labels = answers
        return float((predicted == labels).mean())


def show(title, rows):
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)


graph = Graph.somatize(Load() >> Scale() >> Learn() >> Score())
store = Store(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="somatize-"))
watched = []
with Recorder(store, summarising=["loss", "accuracy"]) as recorder:
    for step in range(STEPS):
        watched.append([])
        accuracy = graph.forward(step, watching=[recorder, watched[-1].append])
        recorder({"fact": "accuracy", "value": accuracy})

print("The facts of the last forward, as they were told:", *watched[-1], "", sep="\n")
show("runs(store)", runs(store))
show("forwards(store, last=5)", forwards(store, last=5))
loss, right = curve(store), dict(curve(store, of="accuracy"))
show(f"curve(store), read by a {curve_costs(store)}", [{"forward": n, "loss": x, "accuracy": right[n]} for n, x in loss[::60]])
show("nodes(store)", nodes(store))

assert loss[-1][1] < loss[0][1] / 2, "the loss fell"
assert all(facts(store, forward=n)[: len(told)] == told for n, told in enumerate(watched)), "recorded as watched"
print(f"{STEPS} forwards in {store}: the loss fell from {loss[0][1]:.2f} to {loss[-1][1]:.2f}, {accuracy:.0%} right.")

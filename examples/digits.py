"""scikit-learn's 1,797 digits through a graph: run, watched, recorded [in a directory you name], read back."""

import sys
import tempfile
import time

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from somatize import Graph, Node, Recorder, Store, node
from somatize.record import curve, curve_costs, facts, forwards, nodes, page, runs

STEPS, BATCH = 300, 128
IMAGES, LABELS = load_digits(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(IMAGES))


@node
def load(step):
    batch = ORDER[np.arange(step * BATCH, (step + 1) * BATCH) % len(ORDER)]
    return IMAGES[batch], LABELS[batch]


class Learn(Node):
    """One step of softmax regression; what it passes on was predicted before the step."""

    def __init__(self, rate):
        self.rate, self.weights = rate, np.zeros((64, 10))

    def forward(self, batch, ctx):
        images, labels = batch
        odds = np.exp(images @ self.weights)
        odds /= odds.sum(axis=1, keepdims=True)
        ctx.tell({"fact": "loss", "value": -np.log(odds[np.arange(len(labels)), labels]).mean()})
        self.weights -= self.rate * images.T @ (odds - np.eye(10)[labels]) / len(labels)
        return odds.argmax(axis=1), labels


def show(title, rows):
    table = Table(*rows[0], box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(shown(key, value) for key, value in row.items()))
    Console().print(title, table, sep="\n", markup=False)


def shown(key, value):
    clock = key in ("when", "first", "last")
    words = time.strftime("%H:%M:%S", time.localtime(value)) if clock else value
    return ", ".join(words) or "-" if isinstance(words, list) else str(words)[:8]


scale = node(lambda batch: (batch[0] / 16.0, batch[1])).named("scale")
score = node(lambda answer: float((answer[0] == answer[1]).mean())).named("score")
graph = Graph.somatize(load >> scale >> Learn(rate=0.5) >> score)
store = Store(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="somatize-"))
run, watched = "digits", [[] for _ in range(STEPS)]
with Recorder(store, run, summarising=["loss", "accuracy"]) as recorder:
    for step, told in enumerate(watched):
        accuracy = graph.forward(step, watching=[recorder, told.append])
        recorder({"fact": "accuracy", "value": accuracy})

print("The facts of the last forward, as they were told:", *watched[-1], "", sep="\n")
loss = curve(store, run, last=STEPS)
show("runs(store)", runs(store))
show("forwards(store, run, last=3)", forwards(store, run, last=3))
show("nodes(store, run)", nodes(store, run))
show(f"curve(store, run)[::50], for one {curve_costs(store, run)}", [{"forward": n, "loss": x} for n, x in loss[::50]])

made = page(store, run, store.path.with_suffix(".html"), of=["loss", "accuracy"])
print(f"{STEPS} forwards in {store.path}: the loss fell from {loss[0][1]:.2f} to {loss[-1][1]:.2f}; look at {made}")
assert loss[-1][1] < loss[0][1] / 2, "the loss fell"
for back, told in enumerate(reversed(watched), start=1):
    assert facts(store, run, -back)[: len(told)] == told, "what was recorded is what was watched"

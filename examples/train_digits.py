"""A small network trained as nodes of a graph: watched on the terminal, recorded with loss, throughput and FLOP/s.

python examples/train_digits.py [store]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from somatize import Graph, Node, Recorder, Store, node
from somatize.record import curve, tasks, throughput
from somatize.status import Status

EPOCHS = 15


class Score(Node):
    """The loss, said as a fact; its value keeps the autograd graph, for `backward`."""

    def __init__(self) -> None:
        self.loss = nn.CrossEntropyLoss()

    def forward(self, values: dict[str, torch.Tensor], ctx) -> torch.Tensor:
        loss = self.loss(values["network"], values["labels"])
        accuracy = (values["network"].argmax(1) == values["labels"]).float().mean()
        ctx.tell({"fact": "loss", "value": loss, "accuracy": accuracy})
        return loss


def network() -> Graph:
    """Pixels to ten classes; what nodes hand on are tensors, with the gradients they need."""
    pixels = node(lambda batch: batch[0]).named("pixels")
    labels = node(lambda batch: batch[1]).named("labels")
    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return Graph.somatize((pixels >> node(layers).named("network") | labels) >> Score().named("score"))


def train(store: Store) -> None:
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    graph = network().train()
    optimizer = torch.optim.Adam(graph.parameters(), lr=2e-3)
    with Recorder(store, run="digits", summarising=["loss"]) as recorder, Status(watching=[recorder]) as status:
        with status.display():
            stream = status.throughput("train")
            for _ in status.track(range(EPOCHS), "epochs"):
                for batch in stream.iterate(loader):
                    with stream.step(batch):
                        optimizer.zero_grad()
                        graph.forward(batch, watching=[recorder, status]).backward()
                        optimizer.step()
    print(stream.stats())


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the matrices are small
    with Store(sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "store") as store:
        train(store)
        losses = [value for _, value in curve(store, of="loss")]
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} over {len(losses)} forwards")
        said = throughput(store, stream="train")[-1]
        print(f"{said['samples_per_s']:,.0f} samples/s, {said['flops_per_s'] / 1e6:,.0f} MFLOP/s")
        assert len(losses) == said["batches"] == EPOCHS * 29
        assert sum(losses[-29:]) / 29 < 0.15 < losses[0]
        assert said["flops_exact"] is True
        assert [row["name"] for row in tasks(store)][-1] == "epochs"


if __name__ == "__main__":
    main()

"""A training on record, with a NaN, a Ctrl-C, a kill and a resume: ``python examples/training.py [store]``."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from somatize import Graph, Node, Recorder, Store, node
from somatize.record import runs


class Score(Node):
    def forward(self, values: dict[str, torch.Tensor], ctx) -> torch.Tensor:
        loss = nn.functional.cross_entropy(values["network"], values["labels"])
        if not loss.isfinite():
            raise FloatingPointError(f"the loss is {loss.item()}")
        ctx.tell({"fact": "loss", "value": loss})
        return loss


def fit(store: Store, lr: float, stop: tuple[int, int] = (-1, 0), resume: str = "auto") -> None:
    """Train for eight epochs as run ``lr/<lr>``; `stop` is an epoch and a signal that comes in it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    features = torch.randn(2048, 16)
    targets = (features[:, 0] * features[:, 1] > 0).long() + 2 * (features[:, 2] > 0)
    train, held_out = random_split(TensorDataset(features, targets), [1536, 512])
    loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)
    network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    inputs, labels = node(lambda batch: batch[0]).named("inputs"), node(lambda batch: batch[1]).named("labels")
    graph = Graph.somatize((inputs >> node(network).named("network") | labels) >> Score().named("score"))
    optimizer = torch.optim.SGD(graph.parameters(), lr, momentum=0.9)
    begin, checkpoint = 0, Path(f"{store.path}-{lr:g}.pt")
    if resume == "must":
        saved = torch.load(checkpoint)
        begin = saved["epoch"]
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
    config = {"optim": {"lr": lr, "momentum": 0.9}, "batch_size": 64}
    numbers = ["loss", "val.loss", "val.accuracy", "epoch"]
    with Recorder(store, f"lr/{lr:g}", numbers, config=config, tags=["sgd"], resume=resume) as recorder:
        for epoch in range(begin, 8):
            for step, batch in enumerate(loader):
                optimizer.zero_grad()
                graph.forward(batch, watching=recorder).backward()
                optimizer.step()
                recorder({"fact": "epoch", "value": epoch + (step + 1) / len(loader)})
                if (epoch, step) == (stop[0], 10):
                    signal.raise_signal(stop[1])
            with torch.no_grad():
                guesses, truth = network(held_out[:][0]), held_out[:][1]
                accuracy = (guesses.argmax(1) == truth).float().mean()
                recorder({"fact": "val", "loss": nn.functional.cross_entropy(guesses, truth), "accuracy": accuracy})
            states = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({"epoch": epoch + 1, **states}, checkpoint)


def main(path: str) -> None:
    store = Store(Path(path).resolve())
    for lr, stop in ((0.003, (-1, 0)), (0.03, (-1, 0)), (0.3, (-1, 0)), (1e4, (-1, 0)), (0.1, (5, signal.SIGINT))):
        with suppress(FloatingPointError, KeyboardInterrupt):
            fit(store, lr, stop)
    killed = f"import training; training.fit(training.Store({str(store.path)!r}), 0.01, (5, {signal.SIGKILL:d}))"
    subprocess.run([sys.executable, "-c", killed], cwd=Path(__file__).parent, check=False)
    fit(store, 0.01, resume="must")
    for row in runs(store, config=["optim.lr"], sort="-val.accuracy.max"):
        print(row["run"], row["state"], row["why"], row.get("val.accuracy.max"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else f"{tempfile.mkdtemp()}/runs")

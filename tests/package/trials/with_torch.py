"""Modules as nodes, parameters for an optimizer, tensors kept and recalled, FLOP counted."""

import tempfile

import torch

from somatize import Graph, node
from somatize.status import Status

torch.manual_seed(0)
net = torch.nn.Linear(8, 2)
g = Graph.somatize(node(net).named("net"))
optimizer = torch.optim.SGD(g.parameters(), lr=0.1)
inputs = torch.randn(4, 8)
with Status() as status:
    meter = status.throughput("train")
    with meter.step(inputs):
        g.forward(inputs, watching=status).pow(2).mean().backward()
        optimizer.step()
    assert meter.stats().flops_per_s > 0

told, store = [], tempfile.mkdtemp()
kept = Graph.somatize(node(net).named("net").frozen().cached())
with torch.no_grad():
    first, again = (kept.forward(inputs, store=store, watching=told.append) for _ in range(2))
assert torch.equal(first, again)
assert [fact["fact"] for fact in told] == ["ran", "kept", "finished", "recalled", "finished"]

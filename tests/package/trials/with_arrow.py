"""A run as Arrow and Parquet, read back."""

import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from somatize import Graph, Recorder, Store, node
from somatize.record.export import to_arrow, to_parquet

g = Graph.somatize(node(abs).named("load") >> node(round).named("learn"))
place = Path(tempfile.mkdtemp())
store = Store(place / "runs")
with Recorder(store, run="tuesday", summarising=["loss"]) as recorder:
    for step in range(20):
        g.forward(step, watching=recorder)
        recorder({"fact": "loss", "value": 0.5**step})

table = to_arrow(store)
assert table.column("loss.value").to_pylist() == [0.5**step for step in range(20)]
to_parquet(store, "tuesday", place / "facts.parquet", of="facts")
assert pq.read_table(place / "facts.parquet").num_rows == 80

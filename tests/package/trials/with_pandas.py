"""A run as DataFrames with typed columns."""

import tempfile
from pathlib import Path

from somatize import Graph, Recorder, Store, node
from somatize.record.export import to_pandas

g = Graph.somatize(node(abs).named("load") >> node(round).named("learn"))
place = Path(tempfile.mkdtemp())
store = Store(place / "runs")
with Recorder(store, run="tuesday", summarising=["loss"]) as recorder:
    for step in range(20):
        g.forward(step, watching=recorder)
        recorder({"fact": "loss", "value": 0.5**step})

frame = to_pandas(store)
assert list(frame["forward"]) == list(range(20))
assert str(frame["loss.value"].dtype) == "Float64"
assert frame["loss.value"].sum() == 2 - 0.5**19
assert len(to_pandas(store, of="facts")) == 80

"""A run as an event file, read by TensorBoard itself, and back into a store."""

import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from somatize import Graph, Recorder, Store, node
from somatize.record import curve
from somatize.record.export import from_tensorboard, to_tensorboard

g = Graph.somatize(node(abs).named("load") >> node(round).named("learn"))
place = Path(tempfile.mkdtemp())
store = Store(place / "runs")
with Recorder(store, run="tuesday", summarising=["loss"]) as recorder:
    for step in range(20):
        g.forward(step, watching=recorder)
        recorder({"fact": "loss", "value": 0.5**step})

to_tensorboard(store, "tuesday", place / "logs")
events = EventAccumulator(str(place / "logs" / "tuesday"))
events.Reload()
assert [event.value for event in events.Scalars("loss")] == [0.5**step for step in range(20)]
from_tensorboard(place / "logs", place / "again", run="back")
assert curve(place / "again", run="back/tuesday") == curve(store)

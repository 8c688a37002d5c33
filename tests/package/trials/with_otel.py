"""Spans of a graph that runs, and of a run that was recorded."""

import tempfile
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from somatize import Graph, Recorder, Store, node
from somatize.record.export import OpenTelemetry, to_opentelemetry

g = Graph.somatize(node(abs).named("load") >> node(round).named("learn"))
place = Path(tempfile.mkdtemp())
store = Store(place / "runs")
with Recorder(store, run="tuesday", summarising=["loss"]) as recorder:
    for step in range(20):
        g.forward(step, watching=recorder)
        recorder({"fact": "loss", "value": 0.5**step})

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
g.forward(1, watching=OpenTelemetry(provider))
assert len(spans.get_finished_spans()) == 3
spans.clear()
to_opentelemetry(store, "tuesday", provider)
assert len(spans.get_finished_spans()) == 60

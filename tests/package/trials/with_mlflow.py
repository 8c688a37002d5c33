"""A run in MLflow's own store, read by its client."""

import tempfile
from pathlib import Path

from mlflow.tracking import MlflowClient

from somatize import Graph, Recorder, Store, node
from somatize.record.export import to_mlflow

g = Graph.somatize(node(abs).named("load") >> node(round).named("learn"))
place = Path(tempfile.mkdtemp())
store = Store(place / "runs")
with Recorder(store, run="tuesday", summarising=["loss"]) as recorder:
    for step in range(20):
        g.forward(step, watching=recorder)
        recorder({"fact": "loss", "value": 0.5**step})

uri = f"sqlite:///{place / 'mlflow.db'}"
to_mlflow(store, "tuesday", uri, experiment="trial")
client = MlflowClient(uri)
(experiment,) = client.search_experiments(filter_string="name = 'trial'")
(run,) = client.search_runs([experiment.experiment_id])
history = client.get_metric_history(run.info.run_id, "loss")
assert sorted(metric.value for metric in history) == sorted(0.5**step for step in range(20))

"""Exporters of stored runs to the formats of other tools, and the import of TensorBoard's event files.

Tables of a run's forwards, facts, nodes, logs, tasks and throughput: `to_csv` needs no extra, `to_pandas` the extra
`pandas`, `to_arrow` and `to_parquet` the extra `arrow`. `to_trace` makes a trace that Perfetto and Chrome open, and
needs no extra. `OpenTelemetry` is a watcher that makes spans while a graph runs; `to_opentelemetry` makes them of a
stored run (extra `otel`). `to_tensorboard` and `from_tensorboard` (extra `tensorboard`) write and read event files;
`to_mlflow` (extra `mlflow`) writes to an experiment.

Each exporter takes ``(store, run, path, ...)``; with `run` None the store must have one run. Those that write return an
`Exported`: the path, how many rows of what were written, and sentences about what the format could not hold. Files are
replaced atomically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from somatize.utils import names_of

from .output import Exported

if TYPE_CHECKING:
    from .mlflow_runs import to_mlflow
    from .opentelemetry_spans import OpenTelemetry, to_opentelemetry
    from .tables import to_arrow, to_csv, to_pandas, to_parquet
    from .tensorboard_files import from_tensorboard, to_tensorboard
    from .trace_file import to_trace

__all__ = [
    "Exported",
    "OpenTelemetry",
    "from_tensorboard",
    "to_arrow",
    "to_csv",
    "to_mlflow",
    "to_opentelemetry",
    "to_pandas",
    "to_parquet",
    "to_tensorboard",
    "to_trace",
]

_HOMES = {
    "OpenTelemetry": "opentelemetry_spans",
    "from_tensorboard": "tensorboard_files",
    "to_arrow": "tables",
    "to_csv": "tables",
    "to_mlflow": "mlflow_runs",
    "to_opentelemetry": "opentelemetry_spans",
    "to_pandas": "tables",
    "to_parquet": "tables",
    "to_tensorboard": "tensorboard_files",
    "to_trace": "trace_file",
}
"""The module of each name: loaded on first access, its library when it is called."""

__getattr__, __dir__ = names_of(__name__, _HOMES)

"""One door per outside library: each is imported in one module, wherever in that module the import stands."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import somatize

PACKAGE = Path(somatize.__file__).parent

DOORS = {
    "lmdb": {"store/lmdb_environment.py"},
    "torch": {"codecs/tensors.py"},
    "plotly": {"figures/plotly_backend.py"},
    "rich": {"ui/rich_backend.py"},
    "IPython": {"figures/notebook.py"},
    "ipywidgets": {"figures/notebook.py"},
    "anywidget": {"figures/notebook.py"},
    "numpy": {"codecs/arrays.py"},
    "cloudpickle": {"worker/payload.py"},
    "ray": {"worker/ray_broker.py"},
    "pandas": {"codecs/pandas_frames.py"},
    "polars": {"codecs/polars_frames.py"},
    "pyarrow": {"codecs/arrow.py"},
    "opentelemetry": {"record/export/opentelemetry_spans.py"},
    "tensorboard": {"record/export/tensorboard_files.py"},
    "mlflow": {"record/export/mlflow_runs.py"},
}


@functools.cache
def imported(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.split(".")[0])
    return frozenset(found)


def test_each_outside_library_has_one_door():
    doors = {library: set() for library in DOORS}
    for path in sorted(PACKAGE.rglob("*.py")):
        for library in imported(path) & doors.keys():
            doors[library].add(path.relative_to(PACKAGE).as_posix())
    assert doors == DOORS


def test_only_what_travels_is_unpickled():
    pickles = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "pickle" in imported(path)}
    assert pickles == {"worker/payload.py"}


def test_nothing_in_a_store_is_ever_unpickled():
    for folder in ("store", "codecs", "record"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            assert not imported(path) & {"pickle", "cloudpickle", "marshal", "shelve", "dill"}, path


def test_the_command_line_is_spoken_of_in_the_command_alone():
    speakers = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py") if "click" in imported(path)}
    assert speakers == {"cli"}

"""What `import somatize` loads, and what it offers: asked in fresh interpreters, where nothing else was imported."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import somatize

HEAVY = [
    "torch",
    "plotly",
    "ipywidgets",
    "anywidget",
    "rich",
    "cloudpickle",
    "ray",
    "lmdb",
    "numpy",
    "msgpack",
    "click",
    "pandas",
    "pyarrow",
    "opentelemetry",
    "tensorboard",
    "mlflow",
]


def fresh(code: str) -> Any:
    """What a fresh interpreter says, as JSON, after `code`."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


def loaded(code: str) -> list[str]:
    """Which of the heavy libraries are loaded after `code`."""
    says = fresh(f"import sys\n{code}\nimport json\nprint(json.dumps([m.partition('.')[0] for m in sys.modules]))")
    return [name for name in HEAVY if name in says]


def test_importing_somatize_loads_no_heavy_library() -> None:
    assert loaded("import somatize") == []


def test_a_graph_runs_and_is_watched_without_any_of_them() -> None:
    code = """
from somatize import Graph, Node, node
class Add(Node):
    def forward(self, x, ctx):
        ctx.tell({"fact": "loss", "value": x})
        return x + 1
g = Graph.somatize(Add().on("cpu") >> (Add() | abs) >> len)
assert g.forward(1, watching=[[].append], threads=2) == 2
"""
    assert set(loaded(code)) <= {"msgpack"}


def test_the_search_for_heavy_libraries_finds_them() -> None:
    assert loaded("import somatize, numpy") == ["numpy"]


def test_all_that_is_offered_is_there_and_nothing_is_loaded_by_asking_what_is() -> None:
    code = "import somatize; before = set(sys.modules); offered = dir(somatize); assert set(sys.modules) == before"
    assert loaded(code) == []
    assert set(somatize.__all__) <= set(dir(somatize))
    assert sorted(somatize.__all__) == list(somatize.__all__)
    assert len(set(somatize.__all__)) == len(somatize.__all__)


def test_each_name_can_be_the_first_that_is_asked_for() -> None:
    code = """
import sys, json
from importlib import import_module
same = {}
for name in import_module("somatize").__all__:
    for module in [module for module in sys.modules if module.partition(".")[0] == "somatize"]:
        del sys.modules[module]
    first = getattr(import_module("somatize"), name)
    same[name] = getattr(import_module("somatize"), name) is first
print(json.dumps(same))
"""
    assert fresh(code) == dict.fromkeys(somatize.__all__, True)


def test_a_star_takes_all_and_only_what_is_offered() -> None:
    code = """
import json
names = {}
exec("from somatize import *", names)
print(json.dumps(sorted(set(names) - {"__builtins__"})))
"""
    assert fresh(code) == sorted(somatize.__all__)


def test_an_unknown_name_is_an_attribute_error_that_says_so() -> None:
    with pytest.raises(AttributeError, match="module 'somatize' has no attribute 'Grpah'"):
        somatize.Grpah
    with pytest.raises(ImportError):
        from somatize import Grpah  # noqa: F401


def test_a_name_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import somatize, json
first = somatize.Graph
del somatize.__getattr__
print(json.dumps(somatize.Graph is first))
"""
    assert fresh(code) is True


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert somatize.__version__ == version("somatize")

"""Real edits of real files, named by real processes with other hash seeds: the naming halves of cases C015 to C020."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

HELPERS = """
def scale(x):
    return 2 * x
"""
NODES = """
import helpers
from somatize import Node

CONST = 3
WORDS = {"one", "two", "three"}


def local(x):
    return x in {"a", "b", "c", 1, 2.0}


class Scale(Node):
    def __init__(self, by, names=frozenset({"x", "y", "z"}), **rest):
        self.by = by
        self._names = names

    def forward(self, x):
        return helpers.scale(x) * self.by + CONST, local(x), WORDS


def make(k):
    def node(x):
        return x * k
    return node
"""
SCRIPT = """
import sys, json
sys.path.insert(0, sys.argv[1])
import nodes
from somatize.naming import Namer, given, difference
from somatize.dag.pieces import Marks, Frozen, Cached
value = {"b": {"y": 2, "x": [1, ("t", 2.5)]}, "a": {"one", "two", ("three",)}, 3: None}
naming = Namer().opened()
marks = Marks(frozen=Frozen(), cached=Cached("v1"))
before = given(value)
first = naming.name_of(nodes.Scale(2, more=1), marks, before)
second = naming.name_of(nodes.make(2), marks, {"first": first})
print(json.dumps([before.digest, first.digest, second.digest, first.parts]))
"""


@pytest.fixture
def named(tmp_path):
    def run(seed="0", **files):
        for name, source in {"helpers": HELPERS, "nodes": NODES, **files}.items():
            (tmp_path / f"{name}.py").write_text(source)
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path)], env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_the_process_and_the_hash_seed_do_not_count(named):
    assert named("0") == named("1") == named("4242")


def test_edits_of_files(named):
    base = named()
    edits = {
        "a comment and lines": NODES.replace("class Scale", "# here\n\n\nclass Scale"),
        "a docstring": NODES.replace("def local(x):", 'def local(x):\n    """What it is."""'),
    }
    for source in edits.values():
        assert named(nodes=source)[:3] == base[:3]
    changed = {
        "a constant": NODES.replace("CONST = 3", "CONST = 4"),
        "a helper": NODES.replace("return x in", "return x not in"),
        "a set": NODES.replace('"three"}', '"four"}'),
        "a default": NODES.replace('"z"}', '"w"}'),
    }
    seen = {base[1]}
    for source in changed.values():
        _, first, second, _ = named(nodes=source)
        assert first not in seen
        assert second != base[2]
        seen.add(first)
    assert named(helpers=HELPERS.replace("2 *", "3 *"))[1] not in seen


def test_a_class_typed_in_a_cell_is_named_alike_by_every_process(tmp_path):
    cell = textwrap.dedent(
        """
        from somatize.naming import Namer, given
        from somatize.dag.pieces import Marks
        K = 2
        class Typed:
            def __init__(self, by): self.by = by
            def forward(self, x): return helper(x) * self.by
        def helper(x): return x + K
        print(Namer().opened().name_of(Typed(2), Marks(), given(1)).digest)
        """
    )
    outputs = set()
    for seed in ("1", "2"):
        for script in (cell, "#\n" * 7 + cell):
            environ = {**os.environ, "PYTHONHASHSEED": seed}
            done = subprocess.run(
                [sys.executable, "-"], input=script, env=environ, capture_output=True, text=True, check=True
            )
            outputs.add(done.stdout)
    assert len(outputs) == 1


def test_a_reloaded_module_is_noticed(tmp_path, monkeypatch, name_of):
    import importlib
    import time

    from somatize.naming import Namer

    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "reloaded_nodes.py"
    path.write_text("def helper(x):\n    return x\nclass N:\n    def forward(self, x):\n        return helper(x)\n")
    module = importlib.import_module("reloaded_nodes")
    node, namer = module.N(), Namer()
    first = name_of(node, namer=namer).digest
    path.write_text(path.read_text().replace("return x\n", "return -x\n", 1))
    os.utime(path, (time.time() + 10, time.time() + 10))
    importlib.reload(module)
    assert node.forward(1) == -1
    assert name_of(node, namer=namer).digest != first
    monkeypatch.delitem(sys.modules, "reloaded_nodes")

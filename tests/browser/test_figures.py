"""Figures in JupyterLab: a range that is zoomed into is read again, and a bare graph in a cell is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import until

pytestmark = pytest.mark.timeout(300)

DECLARED = """
from somatize import Graph, node
graph = Graph.somatize(node(abs).named("a") >> (node(round).named("<b>b</b>") | node(hex).named("c")) >> node(len))
"""
RECORDED = """
from somatize import Graph, Recorder, Store, node
from somatize.record import progress
store = Store("store")
with Recorder(store, run="long", summarising=["loss"]) as recorder:
    plain = Graph.somatize(node(abs))
    for n in range(8000):
        plain.forward(n, watching=recorder)
        recorder({"fact": "loss", "value": float(n % 50)})
"""


def test_a_zoomed_range_is_read_again_and_drawn_in_place(notebook: Any, tmp_path: Path) -> None:
    cells = RECORDED, "shown = progress(store, widget=True)\nshown", "len(shown.data[0].x)"
    notebook.open(*cells, name="zoomed.ipynb", fresh=True)
    notebook.run(0)
    notebook.run(1)
    notebook.says(1, "condensed")
    until(lambda: notebook.paths(1), "the curve")
    whole = notebook.paths(1)
    box = notebook.cell(1).locator(".nsewdrag").first.bounding_box()
    mouse, middle = notebook.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + box["width"] * 0.5, middle)
    mouse.down()
    mouse.move(box["x"] + box["width"] * 0.52, middle, steps=5)
    mouse.move(box["x"] + box["width"] * 0.54, middle, steps=5)
    mouse.up()
    until(lambda: "condensed" not in notebook.text(1), "the range to be read again")
    assert notebook.paths(1) != whole
    (tmp_path / "zoomed.png").write_bytes(notebook.picture(1))
    notebook.run(2)
    assert 200 < int(notebook.text(2)) < 600, "every forward of the range"
    assert notebook.outputs(1) == 1


def test_a_bare_graph_is_drawn(notebook: Any, tmp_path: Path) -> None:
    notebook.open(DECLARED, "graph", name="graph.ipynb")
    notebook.run(0)
    notebook.run(1)
    notebook.says(1, "<b>b</b>")
    assert notebook.cell(1).locator(".js-plotly-plot").count() == 1
    (tmp_path / "graph.png").write_bytes(notebook.picture(1))

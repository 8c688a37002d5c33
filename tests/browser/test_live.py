"""A Live in JupyterLab, as a person sees it: in a real browser, while a cell runs, when it ended, and afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import until

pytestmark = pytest.mark.timeout(300)

VIEW = "application/vnd.jupyter.widget-view+json"

SETUP = """
import time
from pathlib import Path
from somatize import Graph, Live
def step(value):
    time.sleep(0.03)
    return value
graph = Graph.somatize(step)
def run(live, count=10**9):
    # Until the one who looks has seen enough: a machine may be slow.
    enough = Path("enough")
    enough.unlink(missing_ok=True)
    number = 0
    while number < count and not enough.exists():
        graph.forward(number, watching=live)
        live({"fact": "loss", "value": 2 * 0.99**number + 0.05 * (number % 7)})
        number += 1
live = Live("a run, live")
"""


def changes(notebook: Any, place: int, wanted: int) -> list[str]:
    """The loss as it was drawn, each time it had changed, while a cell runs."""
    seen: list[str] = []

    def changed() -> bool:
        paths = notebook.paths(place)
        if paths and (not seen or paths[0] != seen[-1]):
            assert not notebook.ended(place)
            seen.append(paths[0])
        return len(seen) >= wanted

    until(changed, f"{wanted} drawings of a running cell", 90)
    return seen


def enough(notebook: Any, place: int) -> None:
    """Let the cell that runs come to its end."""
    (notebook.place / "enough").touch()
    until(lambda: notebook.ended(place), "the cell's end")


def test_closed_in_mid_run_it_stands_still_and_the_cell_goes_on(notebook: Any) -> None:
    notebook.open(SETUP, "display(live)\nrun(live, 20)\nlive.close()\nrun(live)", "len(live)", name="closed.ipynb")
    notebook.run(0)
    notebook.start(1)
    notebook.says(1, "20 forwards")
    still = notebook.paths(1)
    assert not notebook.ended(1)
    enough(notebook, 1)
    assert notebook.paths(1) == still
    notebook.run(2)
    assert int(notebook.text(2).split()[-1]) > 20


@pytest.mark.slow
def test_nothing_flickers_when_a_cell_ends(notebook: Any) -> None:
    notebook.open(SETUP, "display(live)\nrun(live)", name="flicker.ipynb")
    notebook.run(0)
    notebook.start(1)
    changes(notebook, 1, 2)
    notebook.page.evaluate("""() => {
        const area = document.querySelectorAll(".jp-Notebook .jp-CodeCell")[1].querySelector(".jp-OutputArea");
        const seen = (window.seen = new Set());
        const look = () => {
            seen.add(`${area.querySelectorAll(".js-plotly-plot .main-svg").length > 0} ${area.offsetHeight}`);
            requestAnimationFrame(look);
        };
        look();
    }""")
    enough(notebook, 1)
    until(lambda: notebook.saved("flicker.ipynb").cells[1].outputs[0]["data"].get("image/png"), "the picture")
    assert len(notebook.page.evaluate("[...window.seen]")) == 1


def test_a_new_page_of_the_same_notebook_shows_the_same(notebook: Any) -> None:
    notebook.open(SETUP, "run(live, 12)\nlive", "live", name="twice.ipynb")
    notebook.run(0)
    notebook.run(1)
    notebook.run(2)
    notebook.says(1, "12 forwards")
    notebook.says(2, "12 forwards")
    assert notebook.paths(1) == notebook.paths(2)


def test_the_curve_moves_while_the_cell_runs(notebook: Any, tmp_path: Path) -> None:
    notebook.open(SETUP, "display(live)\nrun(live)", "live.close()", "len(live)")
    notebook.run(0)
    notebook.start(1)
    assert len(set(changes(notebook, 1, 5))) == 5
    assert notebook.outputs(1) == 1
    shown = notebook.picture(1)
    (tmp_path / "running.png").write_bytes(shown)
    assert len(shown) > 10_000
    enough(notebook, 1)

    notebook.run(3)
    count = int(notebook.text(3).split()[-1])
    notebook.says(1, f"{count:,} forwards")

    # Run again: the same figure, in one output, that goes on.
    notebook.start(1)
    changes(notebook, 1, 3)
    assert notebook.outputs(1) == 1
    assert notebook.cell(1).locator(".js-plotly-plot").count() == 1
    enough(notebook, 1)

    notebook.run(2)
    kept = {VIEW, "image/png", "text/plain"}
    until(lambda: [output["data"].keys() for output in notebook.saved().cells[1].outputs] == [kept], "the picture")

    # Loaded again, with the kernel there: the figure itself.
    before = notebook.paths(1)
    notebook.load()
    until(lambda: notebook.paths(1), "the figure in a page loaded again")
    assert len(notebook.paths(1)) == len(before)

    # Opened again, the kernel gone: its picture.
    notebook.end_kernels()
    notebook.show()
    image = notebook.cell(1).locator("img")
    image.wait_for(timeout=60_000)
    assert image.evaluate("image => image.complete && image.naturalWidth") > 400
    assert "not found" not in notebook.text(1)
    (tmp_path / "reopened.png").write_bytes(notebook.picture(1))

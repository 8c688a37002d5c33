"""A Live where something is missing: the widgets, plotly, a page, a notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbconvert
import nbformat
import pytest

from tests.programs import program

VIEW = "application/vnd.jupyter.widget-view+json"

SETUP = """
from somatize import Graph, Live
graph = Graph.somatize(lambda value: value)
def run(live, count):
    for number in range(count):
        graph.forward(number, watching=live)
        live({"fact": "loss", "value": 1 / (number + 1)})
"""


def outputs(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        message["content"]["data"]
        for message in messages
        if message["msg_type"] in ("display_data", "update_display_data")
    ]


def printed(messages: list[dict[str, Any]]) -> str:
    return "".join(message["content"]["text"] for message in messages if message["msg_type"] == "stream")


@pytest.mark.parametrize("missing", ["ipywidgets", "anywidget"])
def test_without_the_widgets_a_cell_shows_the_figure_at_any_moment(bare_kernel: Any, missing: str) -> None:
    kernel = bare_kernel(missing, "kaleido")
    kernel.run(SETUP)
    messages = kernel.run("live = Live()\ndisplay(live)\nrun(live, 20)")
    assert not [message for message in messages if message["msg_type"].startswith("comm")]
    first, *_, last = outputs(messages)
    for bundle in (first, last):
        assert {"application/vnd.plotly.v1+json", "text/html"} <= bundle.keys()
    assert "20 forwards" in str(last["application/vnd.plotly.v1+json"])
    words = printed(kernel.run("try:\n    live.widget()\nexcept ImportError as error:\n    print(error)"))
    assert missing in words
    assert "pip install 'somatize[viz]'" in words
    assert len(words.strip().splitlines()) == 1


def test_without_plotly_it_says_what_to_install(bare_kernel: Any) -> None:
    kernel = bare_kernel("plotly", "kaleido")
    kernel.run(SETUP)
    (first, last) = outputs(kernel.run("live = Live()\ndisplay(live)\nrun(live, 20)"))
    assert first.keys() == last.keys() == {"text/plain"}
    assert "20 forwards" in last["text/plain"]
    assert "pip install 'somatize[viz]'" in last["text/plain"]
    words = printed(kernel.run("try:\n    live.figure()\nexcept ImportError as error:\n    print(error)"))
    assert "pip install 'somatize[viz]'" in words


ONE_BROWSER = """
import warnings
import kaleido, plotly
kaleido.start_sync_server(plotlyjs=plotly.io.defaults.plotlyjs)
warnings.filterwarnings("ignore", "The kopts argument is ignored")
"""
"""Pictures are made by one browser, and not each by one of its own, which takes seconds to start."""


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    program("Chromium")
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(ONE_BROWSER + SETUP),
            nbformat.v4.new_code_cell("live = Live('here')\ndisplay(live)\nrun(live, 20)"),
            nbformat.v4.new_code_cell("run(live, 20)"),
        ]
    )
    nbclient.NotebookClient(
        notebook, resources={"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}, kernel_name="python3"
    ).execute()
    return notebook


def test_run_with_nobody_to_look_a_notebook_holds_the_last_picture(executed: Any) -> None:
    (output,) = executed.cells[1].outputs
    assert "40 forwards" in output["data"]["text/plain"]
    assert len(output["data"]["image/png"]) > 10_000
    assert VIEW not in output["data"]
    assert not executed.cells[2].outputs
    assert "widgets" not in executed.metadata


def test_nbconvert_shows_the_picture(executed: Any) -> None:
    page, _ = nbconvert.HTMLExporter().from_notebook_node(executed)
    assert page.count('src="data:image/png;base64') == 1


def test_in_a_terminal_it_is_text(tmp_path: Path) -> None:
    code = SETUP + "\nlive = Live('here')\nrun(live, 3)\nfrom IPython.display import display\ndisplay(live)"
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--simple-prompt", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython"), "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.strip().startswith("Live('here'): 3 forwards, loss 0.333333, the last took")


def test_telling_it_loads_neither_plotly_nor_a_notebook() -> None:
    code = SETUP + (
        "\nlive = Live()\nrun(live, 3)\nrepr(live)\nlive.picture()\nlive.close()\nimport sys\n"
        "assert not {'plotly', 'ipywidgets', 'anywidget', 'IPython'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

"""Run the notebooks again, in place: ``make notebooks``. With ``--check``, compare instead and change nothing.

Figures are kept twice, as what plotly draws and as a picture, so that a page which runs no scripts shows them too.
What is compared is everything but times: see `without_times`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import unified_diff
from pathlib import Path
from typing import Any
from zlib import crc32

import kaleido
import nbclient
import nbformat
import plotly.io

HERE = Path(__file__).resolve().parent
PLOTLY = "application/vnd.plotly.v1+json"
PNG = "image/png"
_MOST_BYTES = 1_000_000
_TIMED = "began_us|took_us|mean_us|when|first|last"
_RULES = (
    (re.compile(rf"'({_TIMED})': '?[-\d.e+]+'?"), r"'\1': TIME"),
    (re.compile(r"\b\d[\d.,]*(e-?\d+)? ?(ns|µs|us|ms|s|min)\b( \d+ s\b)?"), "TIME"),
    (re.compile(r"0x[0-9a-f]+"), "ADDRESS"),
    (re.compile(r"\.py:\d+:"), ".py:LINE:"),
    (re.compile(r"(/private)?/tmp/[\w./-]+"), "PLACE"),
    (re.compile(r"\s+"), " "),
)


@contextmanager
def one_browser() -> Iterator[None]:
    """Pictures made meanwhile are made by one browser; else each starts its own."""
    kaleido.start_sync_server(plotlyjs=plotly.io.defaults.plotlyjs, silence_warnings=True)
    try:
        yield
    finally:
        kaleido.stop_sync_server(silence_warnings=True)


def executed(path: Path) -> Any:
    """The notebook at `path`, run from its first cell to its last, with a picture beside each figure.

    Raises what a cell raised.
    """
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": str(HERE)}},
    )
    client.on_notebook_start = lambda **_: _aside(client, _ONE_BROWSER)
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            _picture(output.get("data", {}))
            if output["output_type"] == "stream":  # a warning names the file it comes from
                output["text"] = output["text"].replace(f"{HERE.parent}/", "")
    return notebook


def _picture(data: dict[str, Any]) -> None:
    if PLOTLY in data and PNG not in data:
        layout = data[PLOTLY]["layout"]
        size = {"width": layout.get("width", 700), "height": layout.get("height", 500)}
        png = kaleido.calc_fig_sync(data[PLOTLY], opts={"format": "png", **size})
        data[PNG] = base64.b64encode(png).decode("ascii")


_ONE_BROWSER = """
import kaleido as _kaleido, warnings as _warnings
_kaleido.start_sync_server(silence_warnings=True)
_warnings.filterwarnings("ignore", "The kopts argument is ignored")  # plotly gives it all the same
del _kaleido, _warnings
"""
"""Every picture is made by one browser: kaleido would start another for each, which takes seconds."""


def _aside(client: nbclient.NotebookClient, code: str) -> None:
    """Run something in the kernel that is no cell, before what follows."""
    assert client.kc is not None
    client.kc.execute(code, silent=True, store_history=False)


def without_times(notebook: Any) -> list[str]:
    """What the cells say and show, one line each, with times, addresses and places taken out.

    Of a figure these are its lines and their names, how many points they have, and what was said, but not how long
    anything took; of a picture, that it is one.
    """
    lines = []
    for place, cell in enumerate(notebook.cells):
        said = [line for output in cell.get("outputs", ()) for line in _said(output)]
        if any("'mean_us'" in line for line in said):
            said.sort()  # rows by how long nodes took: their order is a time too
        lines += [f"cell {place}: {line}" for line in said]
    return lines


def _said(output: Mapping[str, Any]) -> list[str]:
    if output["output_type"] == "stream":
        return [_plain(line) for line in output["text"].splitlines()]
    if output["output_type"] == "error":
        return [f"{output['ename']}: {_plain(output['evalue'])}"]
    data = output["data"]
    said = [f"{kind}" for kind in sorted(data)]
    if PLOTLY in data:
        assert PNG in data, "a figure without a picture beside it"
        assert data[PNG].startswith("iVBOR"), "a picture that is no PNG"
        return said + [_trace(trace) for trace in data[PLOTLY]["data"]]
    return [*said, _plain(data.get("text/plain", ""))]


def _trace(trace: Mapping[str, Any]) -> str:
    name = str(trace.get("name"))
    shown = f"{trace.get('type')} {name!r}"
    if name.split(",")[0] not in ("loss", "accuracy"):
        return shown
    points = list(zip(trace["x"], trace["y"], strict=True))
    return f"{shown}: {len(points)} points, {crc32(json.dumps(points).encode()):08x}, {points[0]} to {points[-1]}"


def _plain(text: str) -> str:
    for rule, word in _RULES:
        text = rule.sub(word, text)
    return text.strip()


def main(check: bool) -> int:
    """Run all of them; gives how many differ from what is kept."""
    different = 0
    for path in sorted(HERE.glob("*.ipynb")):
        notebook = executed(path)
        before, after = without_times(nbformat.read(path, as_version=4)), without_times(notebook)
        changes = list(unified_diff(before, after, f"{path.name}, kept", f"{path.name}, run now", lineterm="", n=0))
        print("\n".join(changes) if changes else f"{path.name}: the same but for times")
        different += bool(changes)
        if not check:
            text = nbformat.writes(notebook)
            assert len(text) < _MOST_BYTES, f"{path.name} would have {len(text)} bytes"
            path.write_text(text + "\n", encoding="utf-8")
    return different if check else 0


if __name__ == "__main__":
    with one_browser():
        different = main(check="--check" in sys.argv[1:])
    sys.exit(different)

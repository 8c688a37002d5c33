"""A JupyterLab on loopback and a headless browser that opens a notebook in it, as a person would."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.programs import program

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# fmt: off
UNUSED = [
    "celltags", "console", "csvviewer", "debugger", "extensionmanager", "fileeditor", "help", "hub",
    "imageviewer", "inspector", "json", "launcher", "logconsole", "lsp", "markdownviewer", "mathjax", "mermaid",
    "pdf", "pluginmanager", "running", "settingeditor", "terminal", "toc", "tooltip", "vega5",
    "workspaces",
]
# fmt: on
"""What JupyterLab would start beside notebooks: a quarter of the seconds a page takes to load."""


def until(found: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """What `found` gives once it gives something; asked again and again until then."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.02)
    return answer


@contextmanager
def lab(place: Path) -> Iterator[str]:
    """A server whose home, settings and notebooks are all in `place`; gives its address, with the token."""
    token = secrets.token_hex(16)
    settings = place / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    off = {f"@jupyterlab/{name}-extension": True for name in UNUSED}
    (place / "config" / "labconfig").mkdir()
    (place / "config" / "labconfig" / "page_config.json").write_text(json.dumps({"disabledExtensions": off}))
    places = {"HOME": place, "JUPYTER_CONFIG_DIR": place / "config", "JUPYTER_DATA_DIR": place / "data"}
    runtime = place / "runtime"
    environment = {**os.environ, **{name: str(at) for name, at in places.items()}, "JUPYTER_RUNTIME_DIR": str(runtime)}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"]
    command += [
        f"--ServerApp.root_dir={place}",
        f"--IdentityProvider.token={token}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
        "--LabApp.expose_app_in_browser=True",  # so that a test can ask for another notebook as a click does
    ]
    with (place / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log)
    try:
        info = until(lambda: _info(runtime, server, place), "the server")
        yield f"{info['url']}lab/tree/{{}}?token={token}&reset"
        for kernel in json.loads(ask(info["url"], token, "GET", "api/kernels")):
            ask(info["url"], token, "DELETE", f"api/kernels/{kernel['id']}")
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def ask(base: str, token: str, method: str, path: str, said: Any = None) -> bytes:
    """What the server answers."""
    data = None if said is None else json.dumps(said).encode()
    request = urllib.request.Request(base + path, data, {"Authorization": f"token {token}"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def _info(runtime: Path, server: subprocess.Popen[bytes], place: Path) -> dict[str, Any] | None:
    assert server.poll() is None, (place / "server.log").read_text()
    for path in runtime.glob("jpserver-*.json"):
        try:
            return dict(json.loads(path.read_text()))
        except ValueError:
            return None
    return None


def write_notebook(path: Path, *sources: str) -> None:
    """A notebook with these cells, none of them run."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(notebook, path)


class Page:
    """A notebook open in a browser."""

    def __init__(self, page: Any, address: str, place: Path) -> None:
        self.page = page
        self.address = address
        self.place = place
        self.kernel: str | None = None

    def open(self, *sources: str, name: str = "live.ipynb", fresh: bool = False) -> None:
        """Open a notebook with these cells in the JupyterLab that is open, at the kernel that is there.

        Pages and kernels take seconds to start. A `fresh` one is for plotly's own widget: the first that a kernel
        makes which was there before its notebook is drawn empty.
        """
        write_notebook(self.place / name, *sources)
        if self.kernel is not None and not fresh:
            session = {"name": name, "path": name, "type": "notebook", "kernel": {"id": self.kernel}}
            self.ask("POST", "api/sessions", session)
        if self.page.url == "about:blank":
            self.load(name)
        else:
            self.show(name)
        sessions = json.loads(self.ask("GET", "api/sessions"))
        self.kernel = next(one["kernel"]["id"] for one in sessions if one["path"] == name)

    def load(self, name: str = "live.ipynb") -> None:
        """Load the page again, with a notebook as it is on the disk."""
        self.page.goto(self.address.format(name))
        self._wait()

    def show(self, name: str = "live.ipynb") -> None:
        """Close what is open, and open a notebook as it is on the disk."""
        self.close()
        self.page.evaluate("path => jupyterapp.commands.execute('docmanager:open', {path}).then(() => null)", name)
        self._wait()

    def close(self) -> None:
        """Close what is open, whether saved or not."""
        self.page.evaluate("""() => {
            for (const widget of [...jupyterapp.shell.widgets("main")]) {
                if (widget.context) widget.context.model.dirty = false;
                widget.close();
            }
        }""")
        self.page.locator(".jp-Notebook").wait_for(state="detached")

    def _wait(self) -> None:
        self.cell(0).wait_for(timeout=60_000)
        self.page.locator(".jp-StatusBar-Widget >> text=| Idle").first.wait_for(timeout=60_000)

    def cell(self, place: int) -> Any:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(place)

    def start(self, place: int) -> None:
        """Run a cell, without waiting for its end."""
        self.cell(place).locator(".jp-InputArea-editor").click()
        self.page.keyboard.press("Control+Enter")

    def prompt(self, place: int) -> str:
        """``[*]:`` while a cell runs, then its number."""
        return str(self.cell(place).locator(".jp-InputPrompt").first.inner_text()).strip()

    def ended(self, place: int) -> bool:
        """Whether a cell was run, and to its end."""
        return re.fullmatch(r"\[\d+\]:", self.prompt(place)) is not None

    def run(self, place: int) -> None:
        """Run a cell to its end."""
        before = self.prompt(place)
        self.start(place)
        until(lambda: self.ended(place) and self.prompt(place) != before, f"the end of cell {place}")

    def outputs(self, place: int) -> int:
        return int(self.cell(place).locator(".jp-OutputArea-child").count())

    def text(self, place: int) -> str:
        return "\n".join(self.cell(place).locator(".jp-OutputArea-output").all_inner_texts()).strip()

    def paths(self, place: int) -> list[str]:
        """The lines drawn in a cell's figure, as the browser has them."""
        return list(
            self.page.evaluate(
                """place => {
                const cell = document.querySelectorAll(".jp-Notebook .jp-CodeCell")[place];
                return [...cell.querySelectorAll(".js-plotly-plot path.js-line")].map(path => path.getAttribute("d"));
            }""",
                place,
            )
        )

    def says(self, place: int, words: str) -> None:
        """Wait until a cell's figure says something."""
        until(lambda: words in self.text(place), f"{words!r} in cell {place}")

    def saved(self, name: str = "live.ipynb") -> Any:
        """The notebook, saved and read from the disk."""
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+s")
        until(lambda: not self.page.locator(".lm-TabBar-tab.jp-mod-dirty").count(), "the notebook to be saved")
        return until(lambda: _whole(self.place / name), "the notebook to be whole")

    def picture(self, place: int) -> bytes:
        """What a person sees of a cell's output."""
        return bytes(self.cell(place).locator(".jp-OutputArea").screenshot())

    def end_kernels(self) -> None:
        """Close what is open, and end every kernel there is, as when a machine was switched off."""
        self.close()
        for kernel in json.loads(self.ask("GET", "api/kernels")):
            self.ask("DELETE", f"api/kernels/{kernel['id']}")
        self.kernel = None

    def ask(self, method: str, path: str, said: Any = None) -> bytes:
        """What the server answers."""
        token = self.address.split("token=")[1].split("&")[0]
        return ask(self.address.split("lab/tree/")[0], token, method, path, said)


def _whole(path: Path) -> Any:
    try:
        return nbformat.read(path, as_version=4)
    except ValueError:
        return None


@contextmanager
def browser(path: str) -> Iterator[Any]:
    """Chromium, headless, with a profile of its own, given its program's path."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        try:
            yield chromium
        finally:
            chromium.close()


@pytest.fixture(scope="package")  # no longer: a loop of playwright's runs in this thread while it is open
def chromium() -> Iterator[Any]:
    with browser(program("Chromium")) as found:
        yield found


@pytest.fixture(scope="package")  # no longer: a loop of playwright's runs in this thread while it is open
def server(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[tuple[str, Path]]:
    place = tmp_path_factory.mktemp("lab")
    with lab(place) as address:
        yield address, place


@pytest.fixture(scope="package")
def lab_page(chromium: Any, server: tuple[str, Path]) -> Iterator[Page]:
    """The page with JupyterLab, which takes seconds to load: one for all notebooks, as a person has."""
    context = chromium.new_context(viewport={"width": 1100, "height": 1000})
    yield Page(context.new_page(), *server)
    context.close()


@pytest.fixture
def notebook(lab_page: Page) -> Iterator[Page]:
    """The page of the browser in which notebooks open. Nothing in it may reach beyond this machine."""
    beyond: list[str] = []

    def note(request: Any) -> None:
        if not is_here(request.url):
            beyond.append(request.url)

    lab_page.page.on("request", note)
    yield lab_page
    lab_page.close()
    lab_page.page.remove_listener("request", note)
    assert beyond == []


def is_here(url: str) -> bool:
    return urllib.parse.urlsplit(url).hostname in ("127.0.0.1", None) or url.startswith(("blob:", "data:"))

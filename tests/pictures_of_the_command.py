"""The pictures of the command in the documentation, drawn again: `python tests/pictures_of_the_command.py`.

A run is recorded by another process and watched in tmux, which is asked what its screen shows; then the process is
killed, and a page made of what it recorded. Needs the dev group, tmux and Chromium.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from shutil import which

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

HERE = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDTH, HEIGHT = 96, 32
TRAINING = """
import logging, random, sys, time
from somatize import Graph, Node, Recorder, Store
from somatize.status import Status

class Step(Node):
    def __init__(self, slow_ms, breaks=False):
        self.slow_ms, self.breaks = slow_ms, breaks

    def forward(self, step, ctx):
        time.sleep(self.slow_ms * random.random() / 1000)
        if self.breaks and step % 150 == 149:
            raise ValueError(f"batch {step} holds no images")
        return step

load, augment = Step(3, breaks=True).named("load"), Step(1).named("augment")
graph = Graph.somatize(load >> augment >> Step(20).named("learn") >> Step(0.5).named("score"))
random.seed(3)
with Recorder(Store(sys.argv[1]), "tuesday", ["loss", "accuracy"]) as recorder, Status(watching=recorder) as status:
    with status.task("epoch 1", total=5000) as task:
        for step in range(5000):
            try:
                graph.forward(step, watching=recorder)
            except ValueError as error:
                logging.getLogger("somatize").warning("skipped: %s", error)
                continue
            recorder({"fact": "loss", "value": 2 * 0.99**step + 0.2 + 0.2 * random.random()})
            recorder({"fact": "accuracy", "value": 1 - 0.8 * 0.99**step})
            task.advance()
"""
_DARK = ((72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255), (57, 197, 207))
THEME = TerminalTheme((13, 17, 23), (230, 237, 243), [*_DARK, (177, 186, 196)], [*_DARK, (255, 255, 255)])


def tmux(*words: str) -> str:
    return subprocess.run(["tmux", "-L", "pictures", *words], check=True, capture_output=True, text=True).stdout


def cells(screen: str) -> str:
    """The screen as HTML: each character in a cell of its own, as no font has them all at one width."""
    console = Console(width=WIDTH, color_system="truecolor", force_terminal=True)
    lines = []
    for line in screen.rstrip("\n").split("\n"):
        found = []
        for text, style, _ in console.render(Text.from_ansi(line), console.options.update(no_wrap=True)):
            color = style.color.get_truecolor(THEME).hex if style and style.color else "#e6edf3"
            look = f"color:{color}" + (";font-weight:bold" if style and style.bold else "")
            look += ";opacity:.6" if style and style.dim else ""
            found += [f'<i style="{look}">{escape(letter)}</i>' for letter in text if letter != "\n"]
        lines.append("".join(found) or "<i> </i>")
    return "<br>".join(lines)


def photograph(name: str) -> None:
    """What the terminal shows now."""
    style = (
        "body{margin:0}#t{display:inline-block;background:#0d1117;padding:14px 18px;white-space:pre;"
        "font:13px/17px 'DejaVu Sans Mono',monospace}i{display:inline-block;width:8px;height:17px;"
        "font-style:normal;vertical-align:top;overflow:visible}"
    )
    screen = cells(tmux("capture-pane", "-t", "w", "-p", "-e"))
    with chromium() as browser:
        page = browser.new_page(device_scale_factor=2)
        page.set_content(f"<meta charset=utf-8><style>{style}</style><div id=t>{screen}</div>")
        page.locator("#t").screenshot(path=HERE / name)


def photograph_page(path: Path, name: str) -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 1250})
        page.goto(path.as_uri())
        page.wait_for_timeout(1500)
        page.screenshot(path=HERE / name)


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=arguments)
        yield browser
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        training = subprocess.Popen([sys.executable, "-c", TRAINING, "runs"], stderr=subprocess.DEVNULL)
        command = Path(sys.executable).with_name("somatize")
        watch = f"LANG=C.UTF-8 {command} watch runs --of loss --of accuracy"
        tmux("new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), "-s", "w", watch)
        try:
            time.sleep(12)
            photograph("watch.png")
            training.send_signal(signal.SIGKILL)
            training.wait()
            time.sleep(3)
            photograph("watch-died.png")
            subprocess.run([command, "page", "runs", "tuesday", "-o", "page.html"], check=True)
            photograph_page(Path(place) / "page.html", "page.png")
        finally:
            training.kill()
            tmux("kill-server")


if __name__ == "__main__":
    main()

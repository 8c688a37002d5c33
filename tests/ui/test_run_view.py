"""The view of a followed run: it fits the room it has, in letters that the terminal has; and the plot, dot by dot."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.layout import Layout

from somatize import Graph, Recorder, Store, node
from somatize.record import Followed
from somatize.status import Status
from somatize.ui import RunView
from somatize.ui.screen import RunProgressLines
from somatize.ui.text_plot import TextPlot

HOSTILE = "[b]漢字[/b] \x1b[2J " + "long " * 30


def learn(step: int) -> int:
    if step % 10 == 7:
        raise ValueError(HOSTILE)
    return step


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    graph = Graph.somatize(node(abs).named(HOSTILE) >> node(learn).named("learn"))
    place = tmp_path_factory.mktemp("view") / "runs"
    with Store(place) as store, Recorder(store, HOSTILE, summarising=["loss"]) as recorder:
        with Status(watching=recorder) as status, status.task(HOSTILE, total=40) as task:
            for step in range(40):
                try:
                    graph.forward(step, watching=recorder)
                except ValueError:
                    recorder({"fact": "log", "level": "ERROR", "logger": "train", "message": HOSTILE})
                else:
                    recorder({"fact": "loss", "value": 0.9**step})
                task.advance()
        recorder({"fact": "ran", "node": "far", "began_us": "0", "took_us": "700", "host": "w1"})
        recorder({"fact": "left", "host": "w1", "began_us": "0", "took_us": "1000"})
        recorder({"fact": "finished", "took_us": "1500"})
        with Followed(place) as made:
            made.look()
            yield made


def shown(view: object, width: int, height: int, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=stream, width=width, height=height, color_system=None, legacy_windows=False)
    console.print(view, height=height, no_wrap=True)
    stream.flush()
    return raw.getvalue().decode(encoding).splitlines()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("height", [3, 10, 24, 60])
@pytest.mark.parametrize("width", [20, 40, 80, 130, 240])
def test_it_fills_the_room_it_has_and_no_more(followed: Followed, width: int, height: int, encoding: str) -> None:
    lines = shown(RunView(followed, footer="q quits"), width, height, encoding)
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width
    assert not any("\x1b" in line for line in lines)
    assert lines[-1].rstrip().endswith("q quits")


def test_at_80_by_24_every_part_is_there(followed: Followed) -> None:
    lines = shown(RunView(followed, footer="q quits"), 80, 24)
    text = "\n".join(lines)
    assert "● recorded by process" in lines[0]
    assert lines[1].startswith("41 forwards, 4 broke")
    assert lines[2].startswith("loss  0.01642  in forward 39")
    for part in ("where the time goes, in 41 forwards lately", "learn ", "hosts, working of", "70%  waiting  1 slice"):
        assert part in text
    assert "forward 37 broke: ValueError: [b]漢字[/b] \\x1b[2J long" in text
    assert "ERROR   [b]漢字[/b]" in text


def test_it_waits_in_words(tmp_path: Path) -> None:
    with Followed(tmp_path / "runs", "tuesday") as nothing:
        nothing.look()
        lines = shown(RunView(nothing, footer="q quits", note="a warning"), 60, 8)
    assert lines[0].startswith("waiting: no store at")
    assert lines[-2].rstrip() == "a warning"
    assert lines[-1].startswith("runs: this run only")
    assert len(lines) == 8


@pytest.mark.parametrize("odd", ["nan", "inf", "-inf", "", "much", "1e400", "-5", "9" * 30, "\x1b[2J"])
def test_it_shows_a_run_whose_numbers_are_none(tmp_path: Path, odd: str) -> None:
    with Store(tmp_path / "runs") as store, Recorder(store, "odd", summarising=["loss"]) as recorder:
        recorder({"fact": "loss", "value": odd})
        recorder({"fact": "left", "host": "w1", "began_us": "0", "took_us": "0"})
        recorder({"fact": "machine", "id": "1", "host": "w1", "busy": odd, "cores": odd, "memory": odd})
        rates = dict.fromkeys(("batches", "samples", "samples_per_s", "batches_per_s", "flops_per_s", "waiting"), odd)
        recorder({"fact": "throughput", "stream": "train", **rates})
        counts = dict.fromkeys(("done", "total", "before", "took_us"), odd)
        recorder({"fact": "task", "name": "epoch", "state": "open", "id": f"{os.getpid()}-1", **counts})
        recorder({"fact": "log", "level": odd, "message": odd, "logger": odd, "task": odd})
        recorder({"fact": "finished", "took_us": "0"})
        store.opened.flush()
        with Followed(tmp_path / "runs", "odd") as made:
            made.look()
            lines = shown(RunView(made), 100, 30)
            progress = list(RunProgressLines(made, 1.0).due())
    assert lines[0].startswith("odd  ● recorded by")
    assert "odd: 1 forward" in progress[-1]
    text = "\n".join(lines)
    assert all(part in text for part in ("waiting  1 slice", "\nepoch ", "\ntrain  "))
    assert "\x1b" not in text


def test_it_takes_its_place_in_a_layout(followed: Followed) -> None:
    layout = Layout()
    layout.split_row(Layout(RunView(followed), ratio=3), Layout("beside", ratio=1))
    lines = shown(layout, 120, 20)
    assert len(lines) == 20
    assert "beside" in lines[0]
    assert "where the time goes" in "\n".join(lines)


def test_a_plot_dot_by_dot() -> None:
    rising = [(at, float(at), float(at)) for at in range(8)]
    lines = TextPlot(rising, 5).lines(14, ascii_only=True)
    assert [line[:3] for line in lines] == ["7 |", "  |", "  |", "0 |", "  +"]
    assert lines[0].rstrip()[-1] in ".':"
    assert lines[3][3] in ".':"
    assert lines[4] == "  +0         7"
    assert TextPlot([], 5).lines(20) == ["no number yet"]
    flat = TextPlot([(0, 2.0, 2.0), (1, 2.0, 2.0)], 4).lines(20)
    assert [line.split("│")[0].strip() for line in flat[:3]] == ["", "2", ""]


def test_numbers_far_apart_are_drawn_on_a_logarithmic_axis() -> None:
    lines = TextPlot([(0, 1e-6, 1e-6), (1, 1e-3, 1e-3), (2, 1.0, 1.0)], 6).lines(40, ascii_only=True)
    assert [line.split("|")[0].strip() for line in lines[:5]] == ["1", "", "0.001", "", "1e-06"]

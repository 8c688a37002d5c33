"""A run as one page: what is in it, that it needs nothing, and that it is there whole or not at all."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import NotReplaced, UnknownRun
from somatize.record import fleet, logs, page, tasks
from somatize.record.forward_reader import opened_at
from somatize.record.html_page import digest
from somatize.record.node_turns import spent_in
from somatize.status import Status
from somatize.store.run_reader import lines_of, look

HOSTILE = "<script>alert('x')</script> & \"quoted\" </style>"


def learn(step: int) -> int:
    if step % 10 == 7:
        raise ValueError(f"<b>batch</b> {step} & more")
    return step


GRAPH = Graph.somatize(
    node(abs).named(f"load {HOSTILE}").cached("v2").frozen() >> (node(learn).named("learn") | node(hex).named("show"))
)


def record(store: Store, run: str, count: int = 30) -> None:
    with Recorder(store, run, summarising=["loss"], config={"note": HOSTILE}) as recorder:
        recorder({"fact": "seed", "value": 3})
        with Status(watching=recorder) as status, status.task(f"epochs {HOSTILE}", total=count) as task:
            for step in range(count):
                try:
                    GRAPH.forward(step, watching=recorder)
                except ValueError:
                    recorder({"fact": "log", "level": "WARNING", "logger": "train", "message": f"{step} {HOSTILE}"})
                else:
                    recorder({"fact": "loss", "value": float("nan") if step == 2 else 1 / (1 + step)})
                task.advance()
        recorder({"fact": "ran", "node": "far", "began_us": "0", "took_us": "700", "host": "w<1>", "device": "cuda:0"})
        recorder({"fact": "left", "host": "w<1>", "began_us": "0", "took_us": "1000"})
        recorder({"fact": "finished", "took_us": "1500"})


@pytest.fixture
def made(store: Store, tmp_path: Path) -> str:
    record(store, HOSTILE)
    return page(store, path=tmp_path / "page.html").read_text(encoding="utf-8")


def figures(made: str) -> Any:
    (said,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', made, re.DOTALL)
    return json.loads(said, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def section(made: str, anchor: str) -> str:
    (found,) = re.findall(f'<section id="{anchor}">(.*?)</section>', made, re.DOTALL)
    return str(found)


def cells(part: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", part)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_it_has_every_part_and_each_says_what_the_readers_say(made: str, store: Store) -> None:
    assert re.findall(r'<section id="(.*?)">', made) == [
        "progress", "time", "forward", "graph", "hosts", "broken", "tasks", "logs", "nodes", "forwards", "about",
    ]  # fmt: skip
    cards = dict(re.findall(r"<dt>(.*?)</dt><dd class=\"\w*\">([^<]*)", made))
    assert [cards[card].strip() for card in ("forwards", "broke", "loss")] == ["31", "3", "0.0333333"]
    assert [row[:2] for row in cells(section(made, "broken"))] == [
        ["forward", "state"], ["27", "broke"], ["17", "broke"], ["7", "broke"],
    ]  # fmt: skip
    assert cells(section(made, "broken"))[1][-1] == "ValueError: <b>batch</b> 27 & more"
    (_, task) = cells(section(made, "tasks"))
    assert [task[0], task[1], task[3], task[4]] == [f"epochs {HOSTILE}", "finished", "30", "30"]
    assert len(cells(section(made, "logs"))) == 4
    hosts = cells(section(made, "hosts"))
    assert [row[0] for row in hosts] == ["host", "here", "w<1>"]
    assert hosts[2][1:5] == ["1", "1 ms", "700 µs", "300 µs"]
    nodes = {row[0]: row for row in cells(section(made, "nodes"))}
    assert nodes["far"][-1] == "w<1>, cuda:0"
    assert nodes["learn"][4:6] == ["27", "3"]
    assert "recalled" not in nodes["node"]
    assert [row[0] for row in cells(section(made, "forwards"))] == ["forward", *map(str, range(30, 10, -1))]
    about = section(made, "about")
    assert f"<dt>note</dt><dd>{html.escape(HOSTILE)}</dd>" in about
    assert "<dt>seed</dt><dd>value = 3</dd>" in about
    assert "<dt>command</dt>" in about


def test_the_figures_are_those_the_library_draws(made: str) -> None:
    held = figures(made)
    timelines = {name for name in held if name.startswith("forward-")}
    assert {"forward-30", "forward-27"} <= timelines
    assert held.keys() - timelines == {"progress", "spent", "graph-0", "hosts"}
    progress = held["progress"]
    assert progress["data"][0]["y"][:2] == [1.0, 0.5]
    assert progress["light"]["layout"]["font"]["color"] != progress["dark"]["layout"]["font"]["color"]
    boxes = [words for trace in held["graph-0"]["light"]["data"] for words in trace.get("hovertext", [])]
    assert [words.split("<br>")[0] for words in boxes][1:] == ["<b>learn</b>", "<b>show</b>"]
    assert any("cached, salt 'v2'" in words for words in boxes)
    assert set(re.findall(r'data-figure="(.*?)"', made)) == set(held)


def test_names_are_text_wherever_they_stand(made: str) -> None:
    assert "<script>alert" not in made
    assert f"<h1>{html.escape(HOSTILE)}</h1>" in made
    assert f"<title>run {html.escape(HOSTILE)}</title>" in made
    data = made.split('id="figures">')[1].split("</script>")[0]
    assert "<" not in data


def test_it_reaches_for_nothing(made: str) -> None:
    assert not re.findall(r"<(?:script|img|iframe|object)[^>]*\bsrc=", made)
    assert re.findall(r"<link [^>]*>", made) == ['<link rel="icon" href="data:,">']
    assert "url(" not in made.split("</style>")[0]
    assert made.count("plotly.js v") == 1


def test_a_page_is_replaced_and_nothing_else_is(store: Store, tmp_path: Path) -> None:
    record(store, "tuesday", 3)
    mine = tmp_path / "train.py"
    mine.write_text("my work")
    with pytest.raises(NotReplaced, match=r"train.py is there and is no page of somatize"):
        page(store, path=mine)
    assert mine.read_text() == "my work"
    with pytest.raises(NotReplaced, match="is a directory"):
        page(store, path=tmp_path)
    assert page(store, path=mine, replace=True) == mine
    first = mine.read_bytes()
    record(store, "tuesday", 3)
    assert page(store, path=mine).read_bytes() != first
    assert {one.name for one in tmp_path.iterdir()} == {"store", "train.py"}
    assert mine.stat().st_mode & 0o777 == (tmp_path / "store" / "FORMAT").stat().st_mode & 0o777


def test_what_goes_wrong_leaves_what_was_there(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(store, "tuesday", 3)
    there = page(store, path=tmp_path / "page.html")
    before = there.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UnknownRun, match="did you mean 'tuesday'"):
        page(store, "tuesdy", there)
    # A disk that is full only now cannot be had.
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        page(store, path=there)
    assert there.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"store", "page.html"}


def test_a_run_without_a_forward_and_one_that_was_told_by_hand_have_pages(store: Store, tmp_path: Path) -> None:
    with Recorder(store, "empty"):
        pass
    made = page(store, "empty", tmp_path / "empty.html").read_text(encoding="utf-8")
    assert re.findall(r'<section id="(.*?)">', made) == ["progress", "time", "about"]
    assert figures(made)["progress"]
    with Recorder(store, "by hand") as recorder:
        recorder({"fact": "broke", "took_us": "5", "why": "ValueError: x"})
    made = page(store, "by hand", tmp_path / "hand.html", of="accuracy").read_text(encoding="utf-8")
    assert "graph" not in re.findall(r'<section id="(.*?)">', made)
    assert cells(section(made, "broken"))[1] == ["0", "broke", "5 µs", "ValueError: x"]


def test_one_pass_gives_what_each_reader_gives(store: Store) -> None:
    record(store, "tuesday")
    with opened_at(store) as opened:
        found = look(opened, lambda view: digest(lines_of(view, None)))
    assert found.spent == spent_in(store, None, None).spent
    assert found.hosts == fleet(store)
    assert found.tasks == tasks(store)
    assert found.logs == logs(store)
    assert found.said == 3
    assert found.whys == {n: f"ValueError: <b>batch</b> {n} & more" for n in (7, 17, 27)}


def test_without_plotly_the_error_has_the_pip_line(store: Store, tmp_path: Path) -> None:
    record(store, "tuesday", 2)
    code = (
        "import sys; sys.modules['plotly'] = None; sys.modules['plotly.graph_objects'] = None\n"
        f"from somatize.record import page; page({str(store.path)!r}, path={str(tmp_path / 'page.html')!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "ExtraMissing: a figure needs plotly, which is not installed: pip install 'somatize[viz]'" in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_number_of_a_stream_that_is_an_estimate_says_so_and_a_resumed_run_has_no_speed(
    store: Store, tmp_path: Path
) -> None:
    said = {"fact": "throughput", "batches": 5, "flops_per_s": 2e9, "waiting": 0.996}
    for exact in (True, False):
        with Recorder(store, "r") as recorder:
            GRAPH.forward(1, watching=recorder)
            recorder.say_of_run({**said, "stream": f"exact {exact}", "flops_exact": exact})
    made = page(store, "r", path=tmp_path / "page.html").read_text(encoding="utf-8")
    assert ["exact True", "5", "2 G", ">99%"] in cells(made)
    assert ["exact False", "5", "about 2 G", ">99%"] in cells(made)
    assert re.search(r"<dt>forwards</dt><dd class=\"\">2 <small>by 2 writers</small>", made)

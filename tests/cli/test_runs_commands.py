"""``somatize runs`` with conditions, ``best``, ``compare``, ``tag`` and ``note``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from somatize import Graph, Recorder, Store, node
from tests.cli.conftest import call

G = Graph.somatize(node(abs).named("a"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Store(tmp_path / "runs") as store:
        for run, lr in (("slow", 0.1), ("fast", 0.5)):
            with Recorder(store, run, ["loss"], config={"optim": {"lr": lr}}) as recorder:
                for step in range(3):
                    G.forward(step, watching=recorder)
                    recorder({"fact": "loss", "value": (1 - lr) ** step})
                if run == "fast":
                    recorder.end("failed", why="out of patience")
    return tmp_path / "runs"


def test_a_table_of_runs_has_the_columns_that_are_asked_for(place: Path) -> None:
    asked = ["--where", "config.optim.lr > 0", "--sort", "-config.optim.lr", "--columns", "config.optim.lr,loss.min"]
    lines = call("runs", place, *asked).stdout.splitlines()
    assert lines[0].split()[:4] == ["run", "state", "optim.lr", "loss.min"]
    assert lines[1].split()[:4] == ["fast", "failed", "0.5", "0.25000"]
    assert lines[1].endswith("out of patience")
    assert lines[2].split()[:4] == ["slow", "finished", "0.1", "0.81000"]
    assert call("runs", place, "--where", "forwards > 5").stderr == "somatize: no such run\n"


def test_a_column_that_there_cannot_be_is_refused(place: Path) -> None:
    told = call("runs", place, "--columns", "loss", code=2).stderr
    assert "'loss' is no column: it is config.KEY, of a number NAME.last, NAME.min or NAME.max, or one of run," in told
    told = call("runs", place, "--columns", "los.last,config.lr").stderr
    assert "of= names 'los', which was said in no run; did you mean 'loss.last'?" in told
    assert "config= names 'config.lr', which no run has; did you mean 'config.optim.lr'?" in told


def test_a_condition_that_cannot_be_read_points_at_the_place(place: Path) -> None:
    told = call("runs", place, "--where", "state = failed", code=2).stderr
    assert told == "somatize: where= has '=': a comparison is '==', at position 7:\n  state = failed\n        ^\n"


def test_the_best_run(place: Path) -> None:
    lines = call("best", place, "loss", "--min").stdout.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [
        ["run", "fast"],
        ["forward", "2"],
        ["loss", "0.25000"],
        ["config.optim.lr", "0.5"],
    ]
    found = json.loads(call("best", place, "loss", "--max", "--where", "state == finished", "--json").stdout)
    assert found == {"run": "slow", "forward": 0, "value": 1.0, "config": {"optim.lr": 0.1}}
    assert "Say what wins: --max or --min." in call("best", place, "loss", code=2).stderr


def test_the_differences_between_runs(place: Path) -> None:
    lines = call("compare", place, "slow", "fast").stdout.splitlines()
    assert lines[0].split() == ["slow", "fast"]
    assert lines[1].split() == ["end", "state", "finished", "failed"]
    assert ["config", "optim.lr", "0.1", "0.5"] in [line.split() for line in lines]
    rows = json.loads(call("compare", place, "slow", "fast", "--json").stdout)
    assert {"kind": "config", "name": "optim.lr", "slow": 0.1, "fast": 0.5} in rows
    assert call("compare", place, "slow", "slow").stderr == "somatize: nothing differs\n"


def test_tags_and_notes(place: Path) -> None:
    assert call("tag", place, "slow", "good", "new").stdout == "run 'slow': good, new\n"
    assert call("tag", place, "slow", "--remove", "new").stdout == "run 'slow': good\n"
    assert call("tag", place, "slow").stdout == "run 'slow': good\n"
    assert call("note", place, "slow", "the one").stdout == "run 'slow': the one\n"
    told = dict(line.split(maxsplit=1) for line in call("about", place, "slow").stdout.splitlines())
    assert (told["tags"], told["note"]) == ("good", "the one")
    assert told["state"].startswith("finished (")
    (row,) = json.loads(call("runs", place, "--where", "tags has good", "--json").stdout)
    assert (row["run"], row["config.optim.lr"], row["loss.max_at"]) == ("slow", 0.1, 0)


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("finished", 0, "r: ended after 1 forward"),
        ("failed", 10, "r: failed after 1 forward: no more data"),
        ("interrupted", 11, "r: was interrupted after 1 forward: no more data"),
    ],
)
def test_watch_ends_with_the_run_and_its_exit_code_says_how(tmp_path: Path, state: str, code: int, words: str) -> None:
    with Store(tmp_path / "runs") as store, Recorder(store, "r") as recorder:
        G.forward(1, watching=recorder)
        recorder.end(state, why="no more data")
    assert call("watch", tmp_path / "runs", code=code).stdout.splitlines()[-1].endswith(words)


def test_watch_of_a_run_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom somatize import Graph, Recorder, Store, node\n"
        "Graph.somatize(node(abs)).forward(1, watching=Recorder(Store(sys.argv[1]), 'r'))\nos._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "runs")], check=False, timeout=60)
    assert "died" in call("watch", tmp_path / "runs", code=12).stdout
    Store(tmp_path / "runs").close()
    with Store(tmp_path / "runs") as store, Recorder(store, "other"):
        assert "r: was killed after 1 forward" in call("watch", tmp_path / "runs", "r", code=12).stdout


def test_a_sweep_is_a_figure_in_a_file(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep.html"
    words = ["sweep", place, "--of", "loss", "-o", out]
    assert call(*words, "--min", "--where", "config.optim.lr > 0", "--theme", "dark").stdout == f"{out}\n"
    assert "best: fast with 0.25" in out.read_text(encoding="utf-8")
    call(*words)
    assert "the last loss of 2 runs" in out.read_text(encoding="utf-8")
    assert "no 'los' was said in any of 2 runs" in call("sweep", place, "--of", "los", "-o", out, code=3).stderr


def test_a_figure_replaces_no_other_file(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "notes.html"
    out.write_text("mine")
    refused = call("sweep", place, "-o", out, code=5).stderr
    assert refused == f"somatize: {out} is there and is no figure; it was left as it is: give --force\n"
    assert out.read_text() == "mine"
    call("sweep", place, "-o", out, "--force")
    assert out.stat().st_size > 1_000_000


def test_the_graph_of_a_run_is_a_figure_in_a_file(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "graph.html"
    assert call("graph", place, "slow", "-o", out, "--theme", "light").stdout == f"{out}\n"
    assert "run slow: 1 node" in out.read_text(encoding="utf-8")
    assert "which=3 is none" in call("graph", place, "slow", "--which", "3", "-o", out, code=5).stderr

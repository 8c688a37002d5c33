"""A store as the command meets it, and the command called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from somatize import Graph, Recorder, Store, node
from somatize.status import Status

NAMES = ["steady", "sweep/lr=0.1,wd=1e-4", "训练 🚀", "[bold]markup[/bold]"]
LONG = "encoder/" + "layer." * 12 + "attention"


def learn(step: int, ctx: Any) -> float:
    ctx.tell({"fact": "loss", "value": float("nan") if step == 2 else 1 / (1 + step)})
    if step == 3:
        raise ValueError("the [red]rate[/red]\nis too large")
    return 0.5


GRAPH = Graph.somatize(node(lambda step: step).named("load") >> (node(learn).named("learn") | node(abs).named(LONG)))


def record(store: Store, run: str) -> None:
    with Recorder(store, run, summarising=["loss"], config={"rate": 0.1, "note": "[i]x[/i]"}) as recorder:
        with Status(watching=[recorder]) as status:
            with status.task("epochs", total=2) as task:
                for step in range(6):
                    try:
                        GRAPH.forward(step, watching=recorder)
                    except ValueError:
                        pass
                task.advance(2)
            stream = status.throughput("train")
            with stream.step(samples=8):
                pass
        recorder({"fact": "log", "level": "WARNING", "logger": "train", "message": "slow disk"})
        recorder({"fact": "log", "level": "INFO", "logger": "train", "message": "going on"})


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four runs, of which each broke once, and of two kept results. For tests that change nothing."""
    path = tmp_path_factory.mktemp("recorded") / "runs"
    with Store(path) as store:
        for name in NAMES:
            record(store, name)
        kept = Graph.somatize(node(lambda text: text * 100).named("double").frozen().cached() >> len)
        for text in ("a", "bb"):
            kept.forward(text, store=store)
    return path


@pytest.fixture
def changing(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    with Store(recorded) as store:
        store.copy(tmp_path / "copy").close()
    return tmp_path / "copy"


def call(*words: object, code: int = 0, **more: Any) -> Result:
    """The command, called in this process."""
    from somatize.cli.command import somatize

    result = CliRunner().invoke(somatize, [str(word) for word in words], prog_name="somatize", **more)
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture
def said() -> Callable[..., Any]:
    """What the command answers as JSON."""
    return lambda *words: json.loads(call(*words, "--json").stdout)

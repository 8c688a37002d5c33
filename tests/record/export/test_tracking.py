"""Runs as runs of MLflow, read back by its own client from a file of SQLite and from a directory."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.errors import ExportError, ExtraMissing, UnknownRun
from somatize.record import about, curve, forwards
from somatize.record.export import to_mlflow
from tests.programs import program

# What MLflow and what it stands on warn of among themselves.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.filterwarnings("ignore:.*noload")]

SAID = [0.1, float("nan"), float("inf"), float("-inf"), -0.0, 1e300, 5e-324, 2**53 + 1, 3, "text", True]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a tracking store in a file, which is made once: that takes seconds. Nothing leaves this machine."""
    program("git")
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("mlflow")
        patch.chdir(place)  # artifacts lie beside it, and runs are made at a commit
        for words in ("init", "-c user.name=a -c user.email=a@b commit --allow-empty -m first"):
            subprocess.run(["git", *words.split()], check=True, capture_output=True)
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        yield f"sqlite:///{place}/mlflow.db"


class Read:
    """A run as MLflow's client gives it."""

    def __init__(self, uri: str, experiment: str = "somatize") -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        (self.run,) = self.client.search_runs([self.client.get_experiment_by_name(experiment).experiment_id])
        self.id = self.run.info.run_id

    def points(self, name: str) -> list[tuple[int, str]]:
        history = self.client.get_metric_history(self.id, name)
        return sorted((one.step, repr(one.value)) for one in history)

    def artifact(self, name: str) -> str:
        return Path(self.client.download_artifacts(self.id, name)).read_text()


def _picky(x: int) -> int:
    if x == 99:
        raise ValueError("99 is too many")
    return x


@pytest.fixture
def said(store: Store, database: str) -> Store:
    """The run ``exp/1``: a forward for each value of `SAID`, said after it; the last one broke."""
    given = {"lr": 0.1, "net": {"kind": "mlp", "sizes": [64, 10]}, "what?": "odd", "long": "x" * 7000}
    with Recorder(store, run="exp/1", config=given) as recorder:
        recorder({"fact": "hello"})
        graph = Graph.somatize(node(abs) >> node(_picky))
        for turn, value in enumerate(SAID):
            graph.forward(turn, watching=recorder)
            recorder({"fact": "loss", "value": value})
            recorder({"fact": "a?", "value": turn})
            recorder({"fact": "a!", "value": -turn - 1})
        with pytest.raises(ValueError):
            graph.forward(99, watching=recorder)
        recorder({"fact": "log", "level": "WARNING", "logger": "train", "message": "it broke"})
    return store


def test_numbers_params_tags_and_artifacts_come_back(said: Store, database: str) -> None:
    exported = to_mlflow(said, None, database, "whole")
    read = Read(database, "whole")
    in_database = {"inf": repr(sys.float_info.max), "-inf": repr(-sys.float_info.max), "-0.0": "0.0"}
    expected = [(n, in_database.get(repr(value), repr(value))) for n, value in curve(said, "exp/1")]
    assert read.points("loss") == expected
    assert read.points("took_us") == [(n, repr(value)) for n, value in curve(said, "exp/1", "took_us")]
    assert read.points("a_") == [(n, repr(float(n))) for n in range(len(SAID))]
    assert read.points("a__2") == [(n, repr(-float(n) - 1)) for n in range(len(SAID))]
    assert [n for n, _ in read.points("node/abs/took_us")] == list(range(len(SAID) + 1))
    rows = forwards(said, "exp/1")
    whens = {one.step: one.timestamp for one in read.client.get_metric_history(read.id, "took_us")}
    assert whens == {row["forward"]: round(row["when"] * 1e6) // 1000 for row in rows}
    known = about(said, "exp/1")
    info, tags = read.run.info, read.run.data.tags
    assert (info.run_name, info.status, info.end_time) == ("exp/1", "FINISHED", round(known["ended"] * 1000))
    assert info.start_time == round(known["began"] * 1000)
    assert read.run.data.params == {
        "lr": "0.1",
        "net.kind": "mlp",
        "net.sizes": "[64, 10]",
        "what_": "odd",
        "long": "x" * 6000,
    }
    assert (tags["somatize.run"], tags["mlflow.source.git.commit"]) == ("exp/1", known["git"]["commit"])
    assert json.loads(read.artifact("about.json")) == json.loads(json.dumps(known))
    assert read.artifact("log.txt").splitlines() == [
        "forward 11: why/picky: ValueError: 99 is too many",
        "forward 11: why: ValueError: 99 is too many",
        "forward 11: log: WARNING train: it broke",
    ]
    metrics = 12 + 24 + 9 + 11 + 11
    assert {**exported.wrote, "tags": 0} == {
        "forwards": 12,
        "metrics": metrics,
        "params": 5,
        "tags": 0,
        "artifacts": 2,
    }
    assert set(exported.left_out) >= {
        "1 fact: said of the run as a whole; about.json has it",
        "1 param: cut to 6,000 characters; about.json has it whole",
        "3 names: not one MLflow takes, so another stands for it, such as 'what_' for 'what?'",
        "3 numbers: infinite or -0.0: in a database MLflow keeps the largest float64 or 0.0 instead",
        "1 whole number: rounded to float64",
        "24 turns: when in its forward it began, where it was and how it ended is not kept",
        "2 said texts: no number",
    }


def test_a_run_that_goes_on_is_exported_again_and_gets_what_it_lacks(store: Store, database: str) -> None:
    graph = Graph.somatize(node(abs))
    with Recorder(store, run="it's", config={"lr": 0.1}) as recorder:
        for turn in range(3):
            graph.forward(turn, watching=recorder)
            recorder({"fact": "loss", "value": turn / 10})
        first = to_mlflow(store, "it's", database, "again")
        assert Read(database, "again").run.info.status == "RUNNING"
        recorder({"fact": "loss", "value": 7.0})  # late, of a forward that is exported
        graph.forward(4, watching=recorder)
    second = to_mlflow(store, "it's", database, "again")
    third = to_mlflow(store, "it's", database, "again")
    read = Read(database, "again")  # one run
    assert [one.wrote["metrics"] for one in (first, second, third)] == [9, 3, 0]
    assert (first.wrote["params"], second.wrote["params"]) == (1, 0)
    assert read.points("loss") == [(0, "0.0"), (1, "0.1"), (2, "0.2"), (2, "7.0")]
    assert len(read.points("took_us")) == 4
    assert read.run.info.status == "FINISHED"


def test_a_step_is_what_is_said_to_be_one_and_stays_so(store: Store, database: str) -> None:
    graph = Graph.somatize(node(abs))
    with Recorder(store, run="by step") as recorder:
        for turn, step in enumerate((0, None, 1, 0, None)):
            graph.forward(turn, watching=recorder)
            recorder({"fact": "loss", "value": turn / 10})
            if step is not None:
                recorder({"fact": "epoch", "value": step})
    exported = to_mlflow(store, "by step", database, "steps", step="epoch")
    assert Read(database, "steps").points("loss") == [(0, "0.0"), (0, "0.1"), (0, "0.3"), (1, "0.2")]
    assert "1 step: rounded down to a whole number; it is epoch" in exported.left_out
    assert "1 forward: without a step: it is before the first epoch of a writer or after its last" in exported.left_out
    assert to_mlflow(store, "by step", database, "steps", step="epoch").wrote["metrics"] == 0
    with pytest.raises(ExportError, match="was exported with step='epoch'"):
        to_mlflow(store, "by step", database, "steps")


def test_an_export_that_was_stopped_is_made_whole_by_the_next(
    store: Store, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    with Recorder(store, run="exp", config={"lr": 0.1}) as recorder:
        Graph.somatize(node(abs)).forward(1, watching=recorder)
        for value in range(2500):
            recorder({"fact": "loss", "value": value})
    send, left = MlflowClient.log_batch, [3]

    def stopped(self: Any, *given: Any, **named: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        send(self, *given, **named)

    # The interrupt comes in the middle, each time at the same batch.
    monkeypatch.setattr(MlflowClient, "log_batch", stopped)
    with pytest.raises(KeyboardInterrupt):
        to_mlflow(store, "exp", database, "stopped")
    monkeypatch.setattr(MlflowClient, "log_batch", send)
    assert to_mlflow(store, "exp", database, "stopped").wrote["metrics"] == 1502
    read = Read(database, "stopped")
    assert sorted(float(value) for _, value in read.points("loss")) == list(range(2500))


def test_more_than_a_request_holds_is_sent_in_several(
    store: Store, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    sizes: list[int] = []
    send = MlflowClient.log_batch

    def counted(self: Any, run_id: str, metrics: Any = (), params: Any = (), **rest: Any) -> Any:
        sizes.append(len(metrics) + len(params))
        return send(self, run_id, metrics=metrics, params=params, **rest)

    # How many requests are made shows nowhere else.
    monkeypatch.setattr(MlflowClient, "log_batch", counted)
    with Recorder(store, run="exp", config={f"p{n}": n for n in range(150)}) as recorder:
        Graph.somatize(node(abs)).forward(1, watching=recorder)
        for value in range(2100):
            recorder({"fact": "loss", "value": value})
    assert to_mlflow(store, "exp", database, "many").wrote["metrics"] == 2102
    assert sizes == [100, 50, 1000, 1000, 102]
    read = Read(database, "many")
    assert sorted(one.value for one in read.client.get_metric_history(read.id, "loss")) == list(range(2100))


def test_a_directory_of_mlflow_keeps_what_a_database_cannot(said: Store, database: str, tmp_path: Path) -> None:
    uri = (tmp_path / "mlruns").as_uri()
    for metrics in (67, 0):
        assert to_mlflow(said, "exp/1", uri).wrote["metrics"] == metrics
    assert Read(uri).points("loss") == [(n, repr(value)) for n, value in curve(said, "exp/1")]


def test_what_mlflow_refuses_and_what_is_not_there_is_said(
    said: Store, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    with pytest.raises(UnknownRun):
        to_mlflow(said, "exp", database)
    client = MlflowClient(tracking_uri=database)
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(ExportError, match="MLflow did not take run 'exp/1'"):
        to_mlflow(said, "exp/1", database, "gone")

    def full(*_: Any) -> None:
        raise OSError("no space for artifacts")

    # A disk that is full only now cannot be had.
    monkeypatch.setattr(MlflowClient, "log_text", full)
    exported = to_mlflow(said, "exp/1", database, "artifacts")
    assert exported.left_out[-2:] == (
        "1 artifact about.json: OSError: no space for artifacts",
        "1 artifact log.txt: OSError: no space for artifacts",
    )
    assert exported.wrote["metrics"] == 67
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'somatize\[mlflow\]'"):
        to_mlflow(said, "exp/1", database)


@pytest.mark.parametrize(
    ("state", "status"), [("failed", "FAILED"), ("interrupted", "KILLED"), ("finished", "FINISHED")]
)
def test_the_status_of_a_run_is_how_it_ended(store: Store, database: str, state: str, status: str) -> None:
    with Recorder(store, run="exp") as recorder:
        Graph.somatize(node(abs)).forward(1, watching=recorder)
        recorder.end(state, why="as said")
    to_mlflow(store, None, database, f"ends {state}")
    assert Read(database, f"ends {state}").run.info.status == status

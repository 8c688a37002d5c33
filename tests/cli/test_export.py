"""``somatize export``: what is written where, what it answers, and what it refuses."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from somatize.record import facts, forwards
from tests.cli.conftest import call


def test_the_ending_says_the_format(recorded: Path, tmp_path: Path) -> None:
    done = call("export", recorded, "steady", "-o", tmp_path / "t.csv")
    assert done.stdout == f"6 forwards to {tmp_path / 't.csv'}\n"
    with (tmp_path / "t.csv").open(newline="") as file:
        assert [row["loss.value"] for row in csv.DictReader(file)] == [
            row["loss.value"] for row in forwards(recorded, "steady")
        ]
    call("export", recorded, "steady", "--of", "facts", "--last", 2, "-o", tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet")["fact"].to_pylist() == [
        fact["fact"] for fact in facts(recorded, "steady", last=2)
    ]
    call("export", recorded, "steady", "--forward=-1", "--forward", 2, "-o", tmp_path / "t.json.gz")
    trace = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    names = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "forward"]
    assert names == ["forward 2", "forward 5"]
    call("export", recorded, "--of", "runs", "-o", tmp_path / "runs.out", "--to", "csv")
    assert len((tmp_path / "runs.out").read_text().splitlines()) == 5


def test_what_is_left_out_is_said(recorded: Path, tmp_path: Path) -> None:
    done = call("export", recorded, "steady", "--json", "--forward", 2, "-o", tmp_path / "t.json")
    (row,) = json.loads(done.stdout)
    assert row["path"] == str(tmp_path / "t.json")
    assert row["forwards"] == 1
    assert row["left_out"][-1].startswith("1 value of loss.value that no point of a line can be")
    assert f"somatize: left out: {row['left_out'][-1]}" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["steady", "-o", "t.txt"], 2, "the ending of t.txt says no format"),
        (["steady", "-o", "t.csv", "--forward", "1"], 2, "--forward is not for csv; it takes --last, --of, --since"),
        (["steady", "-o", "t.csv", "--step", "epoch"], 2, "--step is not for csv"),
        (["steady", "-o", "logs", "--to", "tensorboard", "--step", "lsos"], 3, "did you mean 'loss'"),
        (["steady", "-o", "no/t.csv"], 5, "there is no directory no"),
        (["steddy", "-o", "t.csv"], 3, "did you mean 'steady'"),
        (["steady", "-o", "t.csv", "--of", "nodes", "--since", "1"], 5, "cannot be asked for with since="),
    ],
)
def test_refusals(recorded: Path, words: list[str], code: int, says: str) -> None:
    assert says in call("export", recorded, *words, code=code).stderr

"""The training of ``examples/training.py``: each of its ends is on record, and the questions about its runs are answered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from somatize.record import about, best, curve, runs

TRAINING = Path(__file__).parents[2] / "examples" / "training.py"


def test_it_is_short() -> None:
    assert len(TRAINING.read_text().splitlines()) < 80


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_each_end_is_on_record(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, TRAINING, "runs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    store = tmp_path / "runs"
    (failed,) = runs(store, where="state == failed")  # how soon depends on how the machine rounds
    assert [(row["run"], row["state"], row["launches"], row["forwards"]) for row in runs(store)] == [
        ("lr/0.003", "finished", 1, 192),
        ("lr/0.03", "finished", 1, 192),
        ("lr/0.3", "finished", 1, 192),
        ("lr/10000", "failed", 1, failed["forwards"]),
        ("lr/0.1", "interrupted", 1, 131),
        ("lr/0.01", "finished", 2, 203),
    ]
    assert [one["state"] for one in about(store, "lr/0.01")["writers"]] == ["killed", "finished"]
    assert failed["why"] == "FloatingPointError: the loss is nan"
    assert best(store, "val.accuracy", mode="max")["value"] > 0.85
    assert len(curve(store, "lr/0.03", of="val.loss")) == 8
    assert len(ran.stdout.splitlines()) == 6

"""What a terminal obeys, in names and texts that were recorded, reaches it in no format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from somatize import Graph, Recorder, Store, node

from .conftest import call
from .terminals import ESCAPES, Terminal

ODD = "a\x1b[31mred\x07\x9b2J\r\u202egnp.exe\x00\x7f\u200bb"
OBEYED = set("\x1b\x07\x9b\u202e\x00\x7f\u200b")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    def breaks(value: int) -> int:
        raise ValueError(ODD)

    with Recorder(Store(tmp_path / "store"), run=f"run {ODD}", summarising=["said"], config={ODD: ODD}) as recorder:
        recorder({"fact": "first", ODD: ODD})
        Graph.somatize(node(abs).named(f"node {ODD}")).forward(1, watching=recorder)
        recorder({"fact": "said", "value": ODD, "n": 1})
        recorder({"fact": "log", "level": "INFO", "logger": ODD, "message": ODD})
        with pytest.raises(ValueError, match="red"):
            Graph.somatize(node(breaks).named(f"breaks {ODD}")).forward(1, watching=recorder)
    return tmp_path / "store"


@pytest.mark.parametrize(
    "words",
    [
        "runs",
        "facts --csv",
        "facts --json",
        "nodes",
        "nodes --csv",
        "about",
        "about --csv",
        "watch --until-end --lines",
    ],
)
def test_on_a_terminal(odd: Path, words: str) -> None:
    command, *options = words.split()
    terminal = Terminal(command, odd, *options, columns=200)
    assert terminal.ends() == 0
    shown = ESCAPES.sub("", terminal.seen)
    assert not OBEYED & set(shown)
    assert "red" in shown


def test_in_a_pipe_csv_and_json_have_the_very_texts(odd: Path) -> None:
    assert ODD in call("nodes", odd, "--csv").stdout
    assert any(ODD in row["node"] for row in json.loads(call("nodes", odd, "--json").stdout))

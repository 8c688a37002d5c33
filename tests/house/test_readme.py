"""The README is what a user reads first: every snippet of it runs, one after the other, as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def ran(page):
    done = page(README)
    return {**done.scope, "printed": done.printed}


def test_the_two_commands_are_there_and_no_third():
    (commands,) = re.findall(r"```\n(make .*?)```", README.read_text(), re.DOTALL)
    assert [line.split("#")[0].split() for line in commands.splitlines()] == [["make", "demo"], ["make", "test"]]


def test_every_snippet_runs_and_prints_what_it_says(ran):
    told = ran["printed"].splitlines()
    assert "{'fact': 'ran', 'node': 'tokenize', 'began_us': '" in told[0]
    assert "\"in node 'shaky', step 2 of 2\"" in ran["printed"]
    assert ran["g"].forward(16) == 1.0
    assert ran["g"].nodes() == ["start", "halve", "halve_2", "halve_3"]


def test_the_tour_gives_the_shapes_it_names(ran):
    from somatize.record import curve, curve_costs, facts, forwards, nodes, runs

    store = ran["store"]
    assert len(store.bound()) == 41
    (run,) = runs(store)
    totals = ["run", "forwards", "broke", "interrupted", "lost", "took_us", "first", "last"]
    summary = ["state", "why", "ended", "launches", "tags", "note"]
    loss = [f"loss.{what}" for what in ("last", "last_at", "min", "min_at", "max", "max_at")]
    assert list(run) == [*totals, *summary, *loss]
    assert (run["state"], run["loss.min_at"]) == ("finished", 39)
    assert (run["run"], run["forwards"], run["broke"], run["interrupted"], run["lost"]) == ("tuesday", 41, 1, 0, 0)
    first = forwards(store, run="tuesday")[0]
    assert list(first) == ["forward", "state", "nodes", "took_us", "loss.value", "when"]
    assert (first["forward"], first["state"], first["nodes"], first["loss.value"]) == (0, "ok", 3, "2.1")
    assert curve_costs(store, run="tuesday") == "scan"
    assert curve(store, run="tuesday")[:2] == [(0, 2.1), (1, 1.9600000000000002)]
    told = facts(store, run="tuesday", forward=0)
    assert [fact["fact"] for fact in told] == ["ran", "ran", "ran", "finished", "loss"]
    assert told[-1] == {"fact": "loss", "value": "2.1"}
    assert facts(store, run="tuesday")[-1]["why"] == "ValueError: no such word"
    keys = ["node", "ran", "recalled", "failed", "took_us", "hosts", "devices", "mean_us"]
    rows = nodes(store, run="tuesday")
    assert all(list(row) == keys for row in rows)
    counts = {row["node"]: row["ran"] for row in rows}
    assert counts == {"tokenize": 40, "embed": 40, "score": 40, "halve": 1, "shaky": 0}
    assert [row["took_us"] for row in rows] == sorted((row["took_us"] for row in rows), reverse=True)

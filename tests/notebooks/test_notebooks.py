"""The notebooks, run again, say and show what they hold, but for times."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

from tests.programs import program

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
ALL = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(scope="module")
def execute() -> Iterator[ModuleType]:
    program("Chromium")
    spec = importlib.util.spec_from_file_location("execute", NOTEBOOKS / "execute.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.one_browser():
        yield module


def test_the_two_that_begin_are_there() -> None:
    assert ALL[:2] == ["01-declaring-a-graph.ipynb", "02-watching-a-run.ipynb"]


@pytest.mark.parametrize("name", ALL)
def test_it_names_no_place_of_the_machine_it_ran_on(name: str) -> None:
    assert re.findall(r"/(?:home|root|Users|work)/[\w./-]+", (NOTEBOOKS / name).read_text()) == []


BY_NAME = ("04-a-node-elsewhere.ipynb", "05-training-watched.ipynb", "06-comparing-runs.ipynb")
"""Run by `make slow`: one starts a Ray, the others load torch and draw as much as the second notebook does."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in BY_NAME)) for name in ALL])
def test_it_runs_and_says_what_it_holds(execute: ModuleType, name: str) -> None:
    kept = nbformat.read(NOTEBOOKS / name, as_version=4)
    assert execute.without_times(execute.executed(NOTEBOOKS / name)) == execute.without_times(kept)


@pytest.mark.parametrize("name", ALL)
def test_it_is_small_and_names_no_place(name: str) -> None:
    text = (NOTEBOOKS / name).read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    assert "/tmp/" not in text
    assert "/root" not in text


def test_only_times_are_left_out(execute: ModuleType) -> None:
    # The script is a program; this is its one rule.
    plain = execute._plain
    assert plain("{'took_us': '318', 'value': '2.1'}") == plain("{'took_us': '7', 'value': '2.1'}")
    assert plain("{'took_us': '318', 'value': '2.1'}") != plain("{'took_us': '318', 'value': '2.2'}")
    assert plain("took 20.2 ms, 3 forwards") == plain("took 9 µs, 3 forwards") != plain("took 9 µs, 4 forwards")

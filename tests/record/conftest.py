"""Stores and recorders for the tests of the record, and scripts in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from somatize import Store
from somatize.store import speedups

WAYS = ["pure"] if speedups.MODULE is None else ["compiled", "pure"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test as records are made in C, where that was built, and once as Python makes them; also by children."""
    if request.param == "pure":
        # In Python alone, as where nothing was compiled.
        monkeypatch.setattr(speedups, "MODULE", None)
        monkeypatch.setenv("SOMATIZE_PURE", "1")
    return str(request.param)


@pytest.fixture
def store(place: Path) -> Iterator[Store]:
    with Store(place) as opened:
        yield opened


@pytest.fixture
def script(place: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python on the given lines, with `PLACE` the path of the store; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []
    head = f"""\
import os, sys, time, signal
from somatize import Graph, Node, Recorder, Store, node
from somatize.record import *
PLACE = {str(place)!r}
"""

    def start(lines: str, *, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-W", "error", "-c", head + textwrap.dedent(lines)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def ran(script: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Runs lines to their end and gives what they printed; fails with their error."""

    def run(lines: str, *, prefix: tuple[str, ...] = ()) -> str:
        process = script(lines, prefix=prefix)
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        return out

    return run

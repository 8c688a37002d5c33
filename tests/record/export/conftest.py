"""A run with everything in it that a table could trip over."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.status import Status

_NUMBERS: list[Any] = [0.5, float("nan"), float("inf"), -0.0, 1, 2**53 + 1, 2**63, 1e-320, 2.0, 3, -7]
SAID: list[Any] = [*_NUMBERS, True, None, "", "n/a", 'a,"b"\r\nc ', "ü\u2028"]


@node
def inc(x: int) -> int:
    return x + 1


@node
def picky(x: int) -> int:
    if x == 4:
        raise ValueError('four, "really"\nand more')
    return x


@pytest.fixture
def odd(store: Store) -> Store:
    """The run ``odd``: values of every sort, a forward that broke, late facts, tasks, logs and a stream."""
    graph = Graph.somatize(inc >> picky)
    with Recorder(store, run="odd", summarising=["loss"]) as recorder:
        recorder({"fact": "hello", "n": 1, "node": "nowhere"})
        with Status(watching=recorder, loggers=["odd"]) as status:
            for turn, value in enumerate(SAID):
                if turn == 3:
                    with pytest.raises(ValueError):
                        graph.forward(turn, watching=recorder)
                else:
                    graph.forward(turn, watching=recorder)
                recorder({"fact": "loss", "value": value})
            logging.getLogger("odd").warning('a "log", of\ntwo lines')
            with status.task("Indexing, quickly", total=2.5) as task:
                task.advance()
            with pytest.raises(ValueError), status.task("Failing"):
                raise ValueError("no")
            stream = status.throughput("train")
            with stream.step([1, 2, 3]):
                pass
        recorder({"fact": "late, ümlaut\n", "a.b": 1})
    return store

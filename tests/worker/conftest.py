"""Brokers with real workers. Those of `broker` are started once for a file; tests that end a worker start their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from somatize import Broker, Worker

ARGV = [sys.executable, "-m", "somatize.worker"]


def spawned(**options: Any) -> Worker:
    return Worker.spawn(ARGV, **options)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.embedded({"w1": spawned(), "w2": spawned()}) as made:
        yield made


@pytest.fixture
def own() -> Iterator[Broker]:
    """A broker that a test may do with as it likes."""
    with Broker.embedded({"w1": spawned(), "w2": spawned()}) as made:
        yield made

"""A clock that is set by hand, and the loggers as they were."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator

import pytest

from somatize.status import Status
from somatize.status.status import _ALL


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test whose module says ``BARE_ROOT`` runs as in a script, without pytest's own handlers on the root."""
    if not getattr(pyfuncitem.module, "BARE_ROOT", False):
        return (yield)
    root = logging.root
    handlers, level, root.handlers = root.handlers, root.level, []
    try:
        return (yield)
    finally:
        root.handlers = handlers
        root.setLevel(level)


class Clock:
    """Nanoseconds, as far as it is told to go; `tick` lets each look take some."""

    def __init__(self) -> None:
        self.now = 1_000_000_000
        self.tick = 0

    def __call__(self) -> int:
        self.now += self.tick
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ticking() -> Callable[[Status], Callable[[], bool]]:
    """Gives the look that a Status takes ten times a second, its thread stopped: number and order are then exact."""

    def by_hand(status: Status) -> Callable[[], bool]:
        status._ticker.stop()  # there is no public way to look, as nobody else should
        return status._tick

    return by_hand


@pytest.fixture
def state() -> Callable[[], object]:
    """What there is to be put back."""
    return logging_state


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    """No test leaves a handler, a level or a flag behind."""
    close_those_left()
    before = logging_state()
    yield
    close_those_left()
    assert logging_state() == before


def close_those_left() -> None:
    """A traceback that pytest holds may keep a Status of a test that is over."""
    for status in list(_ALL):
        status.close()


def logging_state() -> object:
    somatize = logging.getLogger("somatize")
    return (
        list(logging.root.handlers),
        type(logging.root.handlers),
        logging.root.level,
        list(somatize.handlers),
        somatize.level,
        somatize.propagate,
        logging.getLogger("py.warnings").propagate,
    )

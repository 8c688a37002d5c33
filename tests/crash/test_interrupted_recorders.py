"""A recorder is opened and closed while, at each point where Python looks for signals, one is handled."""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from somatize import Graph, Recorder, Store, node
from somatize.record import forwards
from tests.utils.test_interrupts import InterruptAt, interrupted

FILES = ("store/recovery.py", "store/writer.py", "store/appender.py", "store/open_store.py", "record/recorder.py")
DROPPED = ("weakref.py", "store/writer.py", "store/commit.py", "utils/interrupts.py")
OPENING = (
    *("__init__", "_open", "_take", "open_writer", "opening_alone", "_enter", "_number_finder", "following"),
    *("_join", "others", "live_writers", "_begin_journal", "start_journal"),
    *("in_service_thread", "hold", "journal_files"),
)
DROPPING = ("close_later", "begin", "set", "start", "__call__")
CLOSING = (
    "close",
    "_catch_up",
    "_shut",
    "_finish",
    "_end",
    "_report_losses",
    "close_later",
    "in_service_thread",
    "is_there",
    "_drop_file",
)


class CallAt(InterruptAt):
    """Calls a function at the `point`-th of the points, as a signal's handler that returns."""

    def __init__(self, point: int, *names: str, call: Callable[[], object]) -> None:
        super().__init__(point, *names, files=FILES)
        self.call = call

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        try:
            return super().__call__(frame, event, argument)
        except KeyboardInterrupt:
            self.names = ()
            self.call()
            return self


def descriptors_below(place: Path) -> list[str]:
    """The files below a directory that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(link.readlink()))
        except FileNotFoundError:
            pass  # the one that lists them
    return [path for path in found if path.startswith(str(place))]


def assert_all_let_go(place: Path) -> None:
    """The committing thread may still be at what was left to it."""
    until = time.monotonic() + 60
    while descriptors_below(place) and time.monotonic() < until:
        gc.collect()
        time.sleep(0.05)
    assert descriptors_below(place) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells what is open")
@pytest.mark.filterwarnings("ignore:unclosed scandir:ResourceWarning")  # where it comes before the `with` of one
@pytest.mark.parametrize("what", ["opening", "closing"])
def test_an_interrupt_at_any_point_leaves_no_store_open(tmp_path: Path, what: str) -> None:
    graph, where, wrong = Graph.somatize(node(abs)), "the beginning", []
    for point in itertools.count():
        if not where:
            break
        store = Store(tmp_path / str(point))
        if what == "opening":
            interrupt = InterruptAt(point, *OPENING, files=FILES)
            where = interrupted(lambda: Recorder(store, run="r"), interrupt)  # noqa: B023
        else:
            recorder = Recorder(store, run="r")
            graph.forward(-1, watching=recorder)
            where = interrupted(recorder.close, InterruptAt(point, *CLOSING, files=FILES))
            del recorder
        store.close()
    assert point > 30
    assert_all_let_go(tmp_path)
    for each in range(point):
        with Store(tmp_path / str(each)) as store:
            wrong += store.check()
            if what == "closing":
                assert [row["state"] for row in forwards(store, "r")] == ["ok"]
    assert wrong == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells what is open")
def test_an_interrupt_at_any_point_of_dropping_a_recorder_leaves_no_store_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: None)  # Python ignores it there
    stores = [Store(tmp_path / str(point)) for point in range(25)]
    recorders = [[Recorder(store, run="r")] for store in stores]
    while not all(store.opened.committer.idle for store in stores):
        time.sleep(0.01)  # what was said is committed, so that nothing but the drop wakes the committing threads
    interrupts = [InterruptAt(point, *DROPPING, files=DROPPED) for point in range(25)]
    for store, recorder, interrupt in zip(stores, recorders, interrupts, strict=True):
        interrupted(recorder.clear, interrupt)
        store.close()
    assert interrupts[8].where
    assert not interrupts[-1].where
    assert_all_let_go(tmp_path)


@pytest.mark.parametrize("before", [0, 2], ids=["a new run", "a run that goes on"])
def test_a_handler_that_opens_the_run_which_is_being_opened_takes_no_number_twice(tmp_path: Path, before: int) -> None:
    graph = Graph.somatize(node(abs))

    def record() -> None:
        with Recorder(store, run=run) as recorder:
            graph.forward(-1, watching=recorder)

    with Store(tmp_path / "store") as store:
        for point in itertools.count():
            run = f"run {point}"
            for _ in range(before):
                record()
            at = CallAt(point, *OPENING, call=record)
            interrupted(record, at)
            record()
            states = [(row["forward"], row["state"]) for row in forwards(store, run)]
            assert states == [(number, "ok") for number in range(before + 2 + bool(at.where))], at.where
            if not at.where:
                break
        assert point > 30
        assert store.check() == []

"""Tasks: counts, times, the tree, and who is told."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import sys
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from somatize.errors import BadOption
from somatize.record.run_state import OpenTask
from somatize.record.run_state import OpenTaskState as ShownTask
from somatize.status import EventKind, Status, Task, TaskEvent


def told(status: Status) -> list[tuple[str, str, float]]:
    """What a listener is sent of tasks, as (kind, name, done)."""
    seen: list[tuple[str, str, float]] = []

    def listen(event: Any) -> None:
        if isinstance(event, TaskEvent):
            seen.append((event.kind.value, event.task.name, event.task.done))

    status.subscribe(listen)
    return seen


def test_the_kinds_are_four() -> None:
    assert [kind.name for kind in EventKind] == ["STARTED", "UPDATED", "FINISHED", "FAILED"]


def test_a_task_is_open_until_its_block_ends(clock: Any) -> None:
    status = Status(clock=clock)
    seen = told(status)
    with status.task("Indexing shards", total=2) as task:
        assert (status.tasks, status.current, task.state) == ((task,), task, "open")
        task.advance()
        clock.pass_(1)
        task.advance()
    assert (status.tasks, status.current, task.state) == ((), None, "finished")
    assert seen == [
        ("started", "Indexing shards", 0),
        ("updated", "Indexing shards", 1),
        ("updated", "Indexing shards", 2),
        ("finished", "Indexing shards", 2),
    ]
    assert (task.elapsed, task.percent, task.remaining) == (1.0, 100, None)


@pytest.mark.parametrize("error", [ValueError("no [x]"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_it_fails_if_an_exception_passes(error: BaseException) -> None:
    status = Status()
    seen = told(status)
    with pytest.raises(type(error)), status.task("outer") as outer, status.task("inner") as inner:
        raise error
    assert [kind for kind, *_ in seen] == ["started", "started", "failed", "failed"]
    assert inner.why == outer.why == f"{type(error).__name__}: {error}"
    assert status.current is None


def test_one_held_by_hand_ends_once() -> None:
    status = Status()
    seen = told(status)
    task = status.task("by hand")
    task.finish()
    task.fail("late")
    task.finish()
    task.advance(5)
    task.update(done=3, total=9, name="x")
    with task:
        pass
    assert (task.state, task.done, task.total, task.why) == ("finished", 0, None, None)
    assert len(seen) == 2
    failed = status.task("other")
    failed.fail("out of shards")
    assert (failed.state, failed.why) == ("failed", "out of shards")


def test_one_opened_in_another_is_its_child() -> None:
    status = Status()
    with status.task("root") as root:
        with status.task("a") as first:
            with status.task("a1") as inner:
                assert (root.children, first.children, inner.parent) == ((first,), (inner,), first)
        with status.task("b") as second:
            assert (second.parent, root.children) == (root, (second,))
    assert status.task("next").parent is None


def test_two_statuses_have_a_tree_each() -> None:
    one, other = Status(), Status()
    with one.task("1") as first, other.task("2") as second, one.task("3") as third:
        assert (first.parent, second.parent, third.parent) == (None, None, first)
        assert (one.current, other.current) == (third, second)


def test_threads_have_their_own_and_a_pool_can_be_given_the_context() -> None:
    status = Status()

    def work(number: int) -> Task | None:
        with status.task(f"shard {number}") as task:
            assert status.current is task
            return task.parent

    with status.task("all") as parent, ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, range(4))) == [None] * 4
        assert list(pool.map(status.carried(work), range(20))) == [parent] * 20
    assert status.tasks == ()


def test_asyncio_tasks_do_not_mix() -> None:
    status = Status()
    parents = {}

    async def work(name: str) -> None:
        with status.task(name):
            await asyncio.sleep(0)
            with status.task(f"{name} inner") as inner:
                await asyncio.sleep(0)
                parents[name] = inner.parent.name if inner.parent else None, inner.parent.parent if inner.parent else 0

    async def both() -> None:
        with status.task("both") as outer:
            await asyncio.gather(work("a"), work("b"))
            assert parents == {"a": ("a", outer), "b": ("b", outer)}

    asyncio.run(both())


def test_a_child_open_when_its_parent_ends_is_closed_and_marked() -> None:
    status = Status()
    seen = told(status)
    with status.task("parent"):
        child = status.task("child")
        grandchild = status.task("grandchild")
    assert (child.state, child.mark, grandchild.mark) == ("finished", "left open", "left open")
    assert [name for kind, name, _ in seen if kind == "finished"] == ["grandchild", "child", "parent"]
    assert status.current is None
    failing = status.task("failing")
    child = status.task("child")
    failing.fail("why")
    assert (child.state, child.why, child.mark) == ("failed", "why", "left open")


def test_ended_out_of_order_it_is_nobody_s_parent() -> None:
    status = Status()
    first, second = status.task("first"), status.task("second")
    context = threading.Thread(target=second.finish)  # in another context: the chain here still has it
    context.start()
    context.join()
    assert status.current is first
    with status.task("third") as third:
        assert third.parent is first
        first.finish()
        assert third.mark == "left open"
    assert status.task("fourth").parent is None


@pytest.mark.parametrize("total", [None, math.nan, math.inf, -math.inf, -1])
def test_an_unknown_total_shows_a_count_and_a_rate(total: Any, clock: Any) -> None:
    status = Status(clock=clock)
    task = status.task("x", total)
    assert (task.total, task.rate) == (None, None)
    clock.pass_(2)
    task.advance(10)
    assert (task.done, task.rate, task.percent, task.remaining) == (10, 5.0, None, None)


def test_a_total_of_zero_is_over_at_once(clock: Any) -> None:
    status = Status(clock=clock)
    with status.task("x", 0) as task:
        assert (task.percent, task.remaining, task.rate) == (0, None, None)
    assert task.percent == 100


def test_an_exceeded_total_shows_the_true_count(clock: Any) -> None:
    status = Status(clock=clock)
    task = status.task("x", 5)
    clock.pass_(1)
    task.advance(8)
    assert (task.done, task.total, task.percent, task.remaining) == (8, 5, None, None)
    task.finish()
    assert (task.percent, task.remaining) == (None, None)


def test_nearly_done_is_not_done() -> None:
    status = Status()
    task = status.task("x", 1000)
    task.advance(999)
    assert task.percent == 99
    task.advance()
    assert task.percent == 99  # the last one may still be at work
    task.finish()
    assert task.percent == 100
    status = Status()
    task = status.task("x", 5080)
    task.advance(5068)
    assert task.percent == 99


def test_no_advance_is_refused() -> None:
    status = Status()
    task = status.task("x", 10)
    for amount, done in ((0, 0), (-1, 0), (3, 3), (-2, 1), (0.5, 1.5), (math.nan, 1.5), (-9, 0)):
        task.advance(amount)
        assert task.done == done
    task.advance(math.inf)
    assert (task.done, task.percent, task.remaining) == (0, 0, None)


def test_a_total_may_change_on_the_way(clock: Any) -> None:
    status = Status(clock=clock)
    seen = told(status)
    task = status.task("x", 10)
    task.advance(5)
    assert task.percent == 50
    task.total = 20
    assert task.percent == 25
    task.total = None
    assert task.percent is None
    task.update(done=3, total=4, name="y")
    assert (task.done, task.percent, task.name) == (3, 75, "y")
    task.finish()
    assert [kind for kind, *_ in seen] == ["started", "updated", "updated", "finished"]


def test_what_is_no_number_is_refused_before_any_work() -> None:
    status = Status()
    for wrong in ("10", object(), [1]):
        with pytest.raises(BadOption, match="total="):
            status.task("x", wrong)  # type: ignore[arg-type]
    assert status.current is None
    with status.task("x", 10) as task:
        for wrong in ("1", None, object(), [1]):
            with pytest.raises(BadOption, match="amount="):
                task.advance(wrong)  # type: ignore[arg-type]
        with pytest.raises(BadOption, match="done="):
            task.update(done="1")  # type: ignore[arg-type]
        assert (task.done, task.state) == (0, "open")


@pytest.mark.parametrize("one", [True, np.int64(1), np.float32(1), Decimal(1), Fraction(1), torch.tensor(1)])
def test_any_number_counts_and_becomes_one_of_python(one: Any, clock: Any) -> None:
    with Status(clock=clock) as status, status.task("x", total=one) as task:
        clock.pass_(2)
        task.advance(one)
        assert (task.done, task.total, task.percent, task.rate, task.remaining) == (1, 1, 99, 0.5, 0.0)
        task.update(done=one, total=one + one)
        assert {type(task.done), type(task.total)} <= {int, float}


def test_elapsed_and_remaining_are_sensible_or_absent(clock: Any) -> None:
    status = Status(clock=clock)
    task = status.task("x", 100)
    assert (task.elapsed, task.rate, task.remaining) == (0.0, None, None)
    task.advance()
    assert (task.rate, task.remaining) == (None, None)  # no time has passed
    clock.pass_(1)
    assert (task.rate, task.remaining) == (1.0, 99.0)
    clock.pass_(1e6)
    assert task.remaining is None  # in years it would say nothing
    clock.now = 0
    assert (task.elapsed, task.rate, task.remaining) == (0.0, None, None)


def test_updates_are_throttled_and_the_last_one_told(clock: Any) -> None:
    status = Status(clock=clock)
    seen = told(status)
    with status.task("x") as task:
        for _ in range(1000):
            clock.pass_(0.001)
            task.advance()
    assert 9 <= sum(kind == "updated" for kind, *_ in seen) <= 12
    assert seen[-2:] == [("updated", "x", 1000), ("finished", "x", 1000)]


def test_an_update_held_back_is_told_in_a_moment_though_nothing_follows(clock: Any, ticking: Any) -> None:
    status = Status(clock=clock)
    tick = ticking(status)
    seen = told(status)
    task = status.task("x")
    task.advance()
    task.advance()
    assert seen[-1] == ("updated", "x", 1)
    tick()
    assert seen[-1][2] in (1, 2)
    clock.pass_(0.2)
    tick()
    assert seen[-1] == ("updated", "x", 2)
    assert not tick()


def test_threads_may_advance_one_task() -> None:
    status = Status()
    seen = told(status)
    with status.task("x", 40_000) as task:
        threads = [threading.Thread(target=lambda: [task.advance() for _ in range(10_000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert task.done == 40_000
    assert seen[-1] == ("finished", "x", 40_000)


def test_a_task_that_several_threads_end_ends_once_and_leaves_nothing_behind() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Status() as status, ThreadPoolExecutor(4) as pool, status.task("root") as root:
            seen = told(status)
            for number in range(100):
                task = status.task(f"{number}")
                children = list(pool.map(status.carried(lambda _: status.task("child")), range(4)))
                list(pool.map(lambda end: end(), [task.finish] * 4 + [child.finish for child in children]))
                assert {task.state, *(child.state for child in children)} == {"finished"}
                assert task.children == ()
            assert root.children == ()
    finally:
        sys.setswitchinterval(before)
    names = Counter((kind, name) for kind, name, _ in seen)
    assert {names["finished", f"{number}"] for number in range(100)} == {1}
    assert (names["started", "child"], names["finished", "child"]) == (400, 400)


def test_a_listener_that_raises_is_logged_and_unsubscribed(caplog: pytest.LogCaptureFixture) -> None:
    status = Status()
    before, after = told(status), []

    def broken(event: Any) -> None:
        raise RuntimeError("display [gone")

    status.subscribe(broken)
    after = told(status)
    with status.task("x") as task:
        task.advance()
    assert before == after == [("started", "x", 0), ("updated", "x", 1), ("finished", "x", 1)]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "broken" in record.getMessage()
    assert "the work goes on" in record.getMessage()


def test_an_interrupt_in_a_listener_passes_through() -> None:
    status = Status()
    stop = status.subscribe(lambda event: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        status.task("x")
    stop()
    assert [task.name for task in status.tasks] == ["x"]


def test_subscribing_is_taken_back_once_or_again() -> None:
    status = Status()
    seen: list[Any] = []
    first, second = status.subscribe(seen.append), status.subscribe(seen.append)
    with status.task("x"):
        first()
        first()
    assert len(seen) == 3
    second()
    status.task("y").finish()
    assert len(seen) == 3
    with pytest.raises(BadOption, match="a listener is a callable"):
        status.subscribe(3)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="async"):
        status.subscribe(asyncio.sleep)


def test_what_a_listener_causes_is_told_to_nobody() -> None:
    status = Status()
    seen = told(status)

    def busy(event: Any) -> None:
        with status.task("of the listener"):
            logging.getLogger("somatize.x").warning("of the listener")

    status.subscribe(busy)
    status.task("x").finish()
    assert [kind for kind, *_ in seen] == ["started", "finished"]
    assert "of the listener" in [entry.message for entry in status.logs]
    status.close()


def test_its_timing_is_logged_at_info_for_roots_and_at_debug_for_children(
    caplog: pytest.LogCaptureFixture, clock: Any
) -> None:
    status = Status(clock=clock)
    with caplog.at_level(logging.DEBUG, "somatize.status"):
        with status.task("root", 3) as root, status.task("child"):
            clock.pass_(0.25)
            root.advance(3)
        with pytest.raises(ValueError), status.task("bad"):
            raise ValueError("100 % [of] {it}")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "child: finished in 250 ms"),
        ("INFO", "root: finished in 250 ms, 3 of 3"),
        ("INFO", "bad: failed in 0 µs: ValueError: 100 % [of] {it}"),
    ]


def test_a_task_that_ended_keeps_nothing_alive() -> None:
    status = Status()
    with status.task("x") as task:
        pass
    reference = weakref.ref(task)
    del task
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("amount", [math.nan, math.inf, 10**400, 1e308])
def test_what_is_no_count_changes_nothing(amount: Any, clock: Any) -> None:
    with Status(clock=clock) as status, status.task("x", total=10) as task:
        task.advance(3)
        clock.pass_(1)
        task.advance(amount)
        task.update(done=amount)
        assert (task.done, task.percent, task.rate, task.remaining) == (3, 30, 3.0, pytest.approx(7 / 3))
        task.total = amount
        assert (task.total, task.percent, task.remaining) == (None, None, None)
        task.advance(-math.inf)
        assert task.done == 0
    with status.task("y", total=amount) as task:
        assert task.total is None


def test_what_was_done_before_a_task_began_makes_it_no_faster(clock: Any, ticking: Any) -> None:
    said: list[Any] = []
    with Status(clock=clock, watching=said.append) as status, status.task("resumed", total=1000) as task:
        tick = ticking(status)
        task.update(done=900)
        clock.pass_(5)
        assert (task.rate, task.remaining, task.percent) == (None, None, 90)
        task.advance(10)
        clock.pass_(5)
        task.update(done=920)
        assert (task.rate, task.remaining) == (2.0, 40.0)
        tick()
    assert {fact["before"] for fact in said} == {"900"}
    told = OpenTask({**said[0], "took_us": "10000000", "done": "920", "total": "1000"}, 0.0)
    assert ShownTask(told).remaining == 40.0
    with Status(clock=clock) as status, status.task("reported late", total=10) as task:
        clock.pass_(0.5)
        task.update(done=5)
        assert (task.rate, task.remaining) == (10.0, 0.5)

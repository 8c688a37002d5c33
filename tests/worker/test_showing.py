"""What node code opens and logs at a host comes back while it runs, and hangs under its node."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from somatize import Broker, Graph, Recorder, Store, node
from somatize.errors import WorkerDied
from somatize.record import facts, logs, tasks
from somatize.status import EventKind, LogEvent, Status, TaskEvent
from somatize.watching.context import QUIET

from .conftest import spawned

log = logging.getLogger("somatize.test")


def seen_by(status: Status) -> list[tuple[Any, ...]]:
    """Each event as it was when it was sent; of updates, there may be few or many."""
    seen: list[tuple[Any, ...]] = []

    def follow(event: Any) -> None:
        if isinstance(event, TaskEvent) and event.kind is not EventKind.UPDATED:
            task = event.task
            parent = task.parent.name if task.parent else None
            seen.append((event.kind.value, task.name, parent, task.node, task.host))
        elif isinstance(event, LogEvent) and event.entry.logger == "somatize.test":
            entry, of = event.entry, event.entry.task
            seen.append(("log", entry.message, of and of.name, of and of.node, entry.host))

    status.subscribe(follow)
    return seen


def test_they_are_what_they_would_be_here(broker: Broker, tmp_path: Path) -> None:
    def far(value: Any, ctx: Any) -> Any:
        log.warning("before")
        with ctx.status.task("outer", total=2) as outer:
            outer.advance()
            log.warning("in outer")
            for _ in ctx.status.track(range(3), "loop"):
                pass
            outer.advance()
        with pytest.raises(ValueError), ctx.status.task("bad"):
            raise ValueError("expected [/s]")
        ctx.status.task("left")
        current = ctx.status.current
        return value, ctx.status is ctx.status, current.name, current.parent.name, current.node

    graph = Graph.somatize(node(far).named("far").at("w1"))
    with Store(tmp_path / "s") as store:
        with Recorder(store, run="r") as recorder, Status(watching=recorder) as status:
            seen = seen_by(status)
            given = graph.forward(1, broker=broker, watching=[recorder, status])
            assert given == (1, True, "left", "far", "far")
            assert status.tasks == ()
        assert seen == [
            ("started", "forward", None, None, None),
            ("started", "far", "forward", "far", "w1"),
            ("log", "before", "far", "far", "w1"),
            ("started", "outer", "far", "far", "w1"),
            ("log", "in outer", "outer", "far", "w1"),
            ("started", "loop", "outer", "far", "w1"),
            ("finished", "loop", "outer", "far", "w1"),
            ("finished", "outer", "far", "far", "w1"),
            ("started", "bad", "far", "far", "w1"),
            ("failed", "bad", "far", "far", "w1"),
            ("started", "left", "far", "far", "w1"),
            ("finished", "left", "far", "far", "w1"),
            ("finished", "far", "forward", "far", "w1"),
            ("finished", "forward", None, None, None),
        ]
        rows = {row["name"]: row for row in tasks(store)}
        assert list(rows) == ["loop", "outer", "bad", "left"]
        assert {(row["forward"], row["node"], row["host"]) for row in rows.values()} == {(0, "far", "w1")}
        assert (rows["outer"]["done"], rows["outer"]["total"], rows["loop"]["parent"]) == (2, 2, "outer")
        assert (rows["bad"]["why"], rows["left"]["mark"]) == ("ValueError: expected [/s]", "left open")
        assert [(row["forward"], row["message"], row["task"], row["host"]) for row in logs(store)] == [
            (0, "before", "far", "w1"),
            (0, "in outer", "outer", "w1"),
        ]
        assert [fact["fact"] for fact in facts(store)][-2:] == ["left", "finished"]


def test_they_come_while_the_node_runs(broker: Broker, tmp_path: Path) -> None:
    flag = tmp_path / "go"

    def waits(value: Any, ctx: Any) -> Any:
        import time

        with ctx.status.task("waiting", total=10) as task:
            task.advance(4)
            while not flag.exists():
                time.sleep(0.005)
        return value

    there = threading.Event()
    with Status() as status:
        status.subscribe(lambda event: there.set() if getattr(event, "task", None) and event.task.done == 4 else None)
        graph = Graph.somatize(node(waits).named("far").at("w1"))
        runs = threading.Thread(target=graph.forward, args=(1,), kwargs={"broker": broker, "watching": status})
        runs.start()
        try:
            assert there.wait(20)
            (forward,) = status.tasks
            (of_node,) = forward.children
            (waiting,) = of_node.children
            assert (waiting.name, waiting.state, waiting.done, waiting.total) == ("waiting", "open", 4, 10)
            assert (waiting.host, of_node.host, waiting.percent) == ("w1", "w1", 40)
        finally:
            flag.touch()
            runs.join(20)
        assert (waiting.state, status.tasks) == ("finished", ())


def test_they_end_with_a_worker_that_dies(tmp_path: Path) -> None:
    shown = tmp_path / "shown"

    def dies(value: Any, ctx: Any) -> Any:
        ctx.status.task("dying").advance()
        until = time.monotonic() + 60
        while not shown.exists() and time.monotonic() < until:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)

    with Broker.embedded({"w1": spawned()}) as own, Status() as status:
        seen = seen_by(status)
        status.subscribe(lambda event: isinstance(event, TaskEvent) and event.task.name == "dying" and shown.touch())
        with pytest.raises(WorkerDied):
            Graph.somatize(node(dies).named("far").at("w1")).forward(1, broker=own, watching=status)
        assert status.tasks == ()
    assert [event[:2] for event in seen] == [
        ("started", "forward"),
        ("started", "far"),
        ("started", "dying"),
        ("failed", "dying"),
        ("failed", "far"),
        ("failed", "forward"),
    ]


def test_items_and_several_hosts_do_not_mix(broker: Broker) -> None:
    def each(item: Any, ctx: Any) -> Any:
        with ctx.status.task(f"item {item}"):
            return item

    def whole(value: Any, ctx: Any) -> Any:
        with ctx.status.task("whole"):
            return value

    both = node(each).named("items").mapped().at("w1") | node(whole).named("whole").at("w2")
    with Status() as status:
        seen = seen_by(status)
        given = Graph.somatize(both).forward([1, 2, 3], broker=broker, watching=status)
    assert given == {"items": [1, 2, 3], "whole": [1, 2, 3]}
    started = sorted(event[1:] for event in seen if event[0] == "started" and event[2] in ("items", "whole"))
    assert started == [
        ("item 1", "items", "items", "w1"),
        ("item 2", "items", "items", "w1"),
        ("item 3", "items", "items", "w1"),
        ("whole", "whole", "whole", "w2"),
    ]
    assert sorted(event[0] for event in seen) == sorted(["started", "finished"] * (len(seen) // 2))


def test_a_pool_shares_items_and_their_tasks_are_in_the_node() -> None:
    def each(item: Any, ctx: Any) -> Any:
        with ctx.status.task(f"item {item}"):
            log.warning("at %d", item)
            return item

    graph = Graph.somatize(node(each).named("items").mapped().at("w1"))
    with Broker.embedded({"w1": [spawned(), spawned()]}) as own, Status() as status:
        seen = seen_by(status)
        assert graph.forward(list(range(8)), broker=own, watching=status) == list(range(8))
    assert sorted(event[1:] for event in seen if event[0] == "log") == [
        (f"at {item}", f"item {item}", "items", "w1") for item in range(8)
    ]
    assert len([event for event in seen if event[:1] == ("finished",) and event[2] == "items"]) == 8


def test_a_forward_inside_a_node_there_is_shown_too(broker: Broker) -> None:
    def outer(value: Any, ctx: Any) -> Any:
        return Graph.somatize(node(lambda x: x + 1).named("deep")).forward(value, watching=ctx.status)

    told: list[Any] = []
    with Status(watching=told.append) as status:
        seen = seen_by(status)
        assert Graph.somatize(node(outer).named("far").at("w1")).forward(1, broker=broker, watching=status) == 2
    assert [event[:3] for event in seen if event[0] == "started"] == [
        ("started", "forward", None),
        ("started", "far", "forward"),
        ("started", "forward", "far"),
        ("started", "deep", "forward"),
    ]
    assert told == []  # what comes of a graph's facts is not said again, also from there


def test_odd_counts_and_names_travel(broker: Broker) -> None:
    def odd(value: Any, ctx: Any) -> Any:
        import numpy as np

        task = ctx.status.task("load[/b] \ud800 [red]", total=2**70)
        task.advance(np.int64(3))
        task.total = np.float32(7.5)
        task.fail("\udc80 broken")

    with Status() as status:
        ended: list[Any] = []
        status.subscribe(lambda event: ended.append(event.task), updates=False)
        Graph.somatize(node(odd).named("far").at("w1")).forward(1, broker=broker, watching=status)
        (task,) = {task for task in ended if task.name.startswith("load")}
    assert (task.name, task.done, task.total, task.why) == ("load[/b] \\ud800 [red]", 3, 7.5, "\\udc80 broken")


def test_node_code_that_closes_it_closes_nothing_here(broker: Broker) -> None:
    def closes(value: Any, ctx: Any) -> Any:
        ctx.status.task("first")
        ctx.status.close()
        ctx.status.task("second").finish()
        return value

    with Status() as status:
        seen = seen_by(status)
        graph = Graph.somatize(node(closes).named("far").at("w1"))
        for _ in range(2):
            graph.forward(1, broker=broker, watching=status)
        assert not status.closed
    assert [event[1] for event in seen if event[0] == "finished"] == ["first", "second", "far", "forward"] * 2


def test_with_no_status_watching_it_is_the_one_that_does_nothing(broker: Broker) -> None:
    def which(value: Any, ctx: Any) -> Any:
        from somatize.watching.context import QUIET

        return ctx.status is QUIET

    graph = Graph.somatize(node(which).named("far").at("w1"))
    for watching in (None, [].append):
        assert graph.forward(1, broker=broker, watching=watching) is True
    with Status() as status:
        assert graph.forward(1, broker=broker, watching=status) is False
    assert graph.forward(1, broker=broker) is True
    assert QUIET.current is None


def test_the_end_of_a_task_there_is_logged_once_and_here(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    def work(value: Any, ctx: Any) -> Any:
        ctx.status.task("mine").finish()
        return value

    with caplog.at_level(logging.DEBUG, "somatize"), Status() as status:
        Graph.somatize(node(work).named("far").at("w1")).forward(1, broker=broker, watching=status)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["mine"]


def test_a_signals_handler_there_may_say_something_in_the_middle_of_anything(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def says(count: int, ctx: Any) -> int:
        import itertools
        import logging
        import signal

        numbers = itertools.count(1)

        def came_in(*_: Any) -> None:
            logging.getLogger("handler").warning("%d", next(numbers))

        before = signal.signal(signal.SIGALRM, came_in)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        try:
            for number in range(count):
                ctx.tell({"fact": "said", "number": str(number)})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return next(numbers) - 1

    seen: list[Any] = []
    count = Graph.somatize(node(says).at("w1")).forward(5_000, broker=broker, watching=seen.append)
    assert [fact["number"] for fact in seen if fact["fact"] == "said"] == [str(number) for number in range(5_000)]
    assert sorted(int(record.getMessage()) for record in caplog.records) == list(range(1, count + 1))
    assert count > 0

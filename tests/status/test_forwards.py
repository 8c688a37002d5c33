"""The graph's side: forwards and their nodes as tasks."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from typing import Any

import pytest

from somatize import Graph, Node, node
from somatize.status import LogEvent, Status, Task, TaskEvent, Throughput
from somatize.status.status import Track
from somatize.ui import Display
from somatize.watching.context import QUIET


def shown(status: Status) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    status.subscribe(
        lambda event: seen.append((event.kind.value, event.task.name)) if isinstance(event, TaskEvent) else None
    )
    return seen


class Look(Node):
    """A node that keeps what the status shows while it runs."""

    def __init__(self) -> None:
        self.saw: list[Any] = []

    def forward(self, value: Any, ctx: Any) -> Any:
        status = ctx.status
        current = status.current
        self.saw.append((current.name, current.parent.name, current.node, [task.name for task in status.tasks]))
        return value


def test_a_forward_is_a_task_and_its_nodes_are_in_it() -> None:
    status, look = Status(), Look()
    seen = shown(status)
    graph = Graph.somatize(node(lambda x: x).named("a") >> look.named("b"))
    assert graph.forward(3, watching=status) == 3
    assert look.saw == [("b", "forward", "b", ["forward"])]
    assert seen == [
        ("started", "forward"),
        ("started", "a"),
        ("finished", "a"),
        ("updated", "forward"),
        ("started", "b"),
        ("finished", "b"),
        ("updated", "forward"),
        ("finished", "forward"),
    ]
    assert (status.tasks, status.current) == ((), None)


@pytest.mark.parametrize("error", [ValueError("expected [/s], got [red]"), KeyboardInterrupt()])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_node_that_fails_fails_its_task_and_the_forward_s(error: BaseException, threads: int) -> None:
    status = Status()
    tasks: list[Any] = []
    status.subscribe(lambda event: tasks.append(event.task) if event.kind.value == "failed" else None)

    def fails(value: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        Graph.somatize(fails).forward(1, watching=status, threads=threads)
    assert [(task.name, task.state, task.why) for task in tasks] == [
        ("fails", "failed", f"{type(error).__name__}: {error}"),
        ("forward", "failed", f"{type(error).__name__}: {error}"),
    ]
    assert (status.tasks, status.current) == ((), None)


def test_its_times_are_those_of_the_facts() -> None:
    status = Status()
    facts: list[Any] = []
    tasks: dict[str, Any] = {}
    status.subscribe(lambda event: tasks.update({event.task.name: event.task}))
    Graph.somatize(node(lambda x: sum(range(20_000))).named("a")).forward(watching=[facts.append, status])
    assert f"{tasks['a'].elapsed * 1e6:.0f}" == facts[0]["took_us"]
    assert f"{tasks['forward'].elapsed * 1e6:.0f}" == facts[1]["took_us"]


def test_several_at_once_do_not_mix() -> None:
    status = Status()
    barrier = threading.Barrier(3)
    parents: dict[int, Any] = {}

    def work(value: int, ctx: Any) -> int:
        barrier.wait()
        with ctx.status.task(f"inner {value}") as inner:
            barrier.wait()
            parents[value] = inner.parent.parent
            logging.getLogger("somatize.x").warning("of %d", value)
        return value

    graph = Graph.somatize(work)
    threads = [threading.Thread(target=lambda n=n: graph.forward(n, watching=status)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(parent) for parent in parents.values()}) == 3
    assert len({id(entry.task.parent.parent) for entry in status.logs if entry.task and entry.task.parent}) == 3
    assert status.tasks == ()


def test_branches_at_once_are_each_in_their_node() -> None:
    status = Status()
    barrier = threading.Barrier(3)

    def work(value: Any, ctx: Any) -> Any:
        barrier.wait()
        with ctx.status.task("inner") as inner:
            barrier.wait()
            return inner.parent.name, inner.node

    branches = node(work).named("a") | node(work).named("b") | node(work).named("c")
    found = Graph.somatize(branches).forward(1, watching=status, threads=3)
    assert found == {name: (name, name) for name in "abc"}
    assert (status.tasks, status.current) == ((), None)


def test_a_forward_inside_a_node_is_that_node_s_child() -> None:
    status = Status()
    looks = Look(), Look()
    inner = Graph.somatize(looks[0].named("deep"))

    def outer(value: Any, ctx: Any) -> Any:
        inner.forward(value, watching=status)
        assert ctx.status.current.name == "outer"
        return value

    Graph.somatize(node(outer) >> looks[1].named("after")).forward(1, watching=status)
    assert looks[0].saw[0][:3] == ("deep", "forward", "deep")
    assert looks[1].saw == [("after", "forward", "after", ["forward"])]


def test_asyncio_tasks_do_not_mix() -> None:
    status, look = Status(), Look()
    graph = Graph.somatize(look.named("a"))

    async def one(name: str) -> None:
        with status.task(name):
            await asyncio.sleep(0)
            graph.forward(1, watching=status)
            assert status.current is not None
            assert status.current.name == name

    async def both() -> None:
        await asyncio.gather(one("x"), one("y"))

    asyncio.run(both())
    assert look.saw == [("a", "forward", "a", ["x", "y"]), ("a", "forward", "a", ["y"])]


def test_a_forward_within_a_task_is_its_child() -> None:
    status, look = Status(), Look()
    with status.task("epoch"):
        Graph.somatize(look.named("a")).forward(1, watching=status)
    assert look.saw[0][3] == ["epoch"]


def test_node_code_has_the_status_of_whoever_watches() -> None:
    status, other = Status(), Status()

    def work(value: Any, ctx: Any) -> Any:
        with ctx.status.task("resizing", total=2) as task:
            for _ in ctx.status.track([1, 2], "loop"):
                task.advance()
        with ctx.status.throughput("t").step([1]):
            pass
        for _ in ctx.status.throughput("t").iterate([1]):
            pass
        return ctx.status

    graph = Graph.somatize(work)
    assert graph.forward(1, watching=status) is status
    assert graph.forward(1, watching=[[].append, other, status]) is other
    for watching in (None, [].append):
        found = graph.forward(1, watching=watching)
        assert found is QUIET
        assert (found.tasks, found.current, found.throughput("t").stats().batches) == ((), None, 0)


@pytest.mark.parametrize("kind", [Status, Task, Throughput, Display, Track])
def test_the_quiet_one_takes_all_that_the_others_take(kind: type) -> None:
    quiet = QUIET.track([1]) if kind is Track else QUIET
    internal = {"where", "add", "counter", "opens", "of", "quiet", "tell", "before", "began_in", "library"}
    names = [name for name in dir(kind) if not name.startswith("_") and name not in internal]
    assert [name for name in names if not hasattr(quiet, name)] == []
    for name in names:
        theirs = inspect.getattr_static(kind, name)
        if inspect.isfunction(theirs):
            ours = inspect.signature(getattr(quiet, name)).parameters
            taken = {parameter for parameter in inspect.signature(theirs).parameters if parameter != "self"}
            assert taken <= set(ours) or any(one.kind is one.VAR_KEYWORD for one in ours.values()), name


def test_the_quiet_one_s_answers_look_like_the_others_() -> None:
    with Status() as status:
        assert QUIET.throughput("t").stats()._asdict() == vars(status.throughput("t").stats())
    track = QUIET.track([1, 2, 3], "x")
    assert (next(track), list(track), len(track), list(QUIET.track([4]))) == (1, [2, 3], 3, [4])
    track.close()
    assert list(track) == []
    with QUIET.display() as display:
        display.draw()


def test_the_quiet_one_does_nothing() -> None:
    assert list(QUIET.track([1, 2], "x")) == [1, 2]
    QUIET.subscribe(print)()
    task = QUIET.task("x", 3)
    task.total = 5
    task.update(done=3)
    task.fail("x")
    task.finish()
    assert (task.total, task.done, repr(task)) == (None, 0, "<a status that nobody sees>")
    function = print
    assert QUIET.carried(function) is function
    with pytest.raises(ValueError), QUIET.task("x"):
        raise ValueError


def test_what_node_code_leaves_open_ends_with_its_node() -> None:
    status = Status()
    left: list[Any] = []
    Graph.somatize(lambda x, ctx: left.append(ctx.status.task("left"))).forward(1, watching=status)
    assert (left[0].state, left[0].mark) == ("finished", "left open")


def test_progress_is_shown_at_the_node() -> None:
    status = Status()

    def work(value: Any, ctx: Any) -> Any:
        ctx.progress(3, 9)
        task = ctx.status.current
        return task.done, task.total, task.percent

    assert Graph.somatize(work).forward(1, watching=status) == (3, 9, 33)


def test_they_are_not_logged_and_those_code_opens_are(caplog: pytest.LogCaptureFixture) -> None:
    status = Status()
    with caplog.at_level(logging.DEBUG, "somatize.status"):
        Graph.somatize(lambda x, ctx: ctx.status.task("mine").finish()).forward(1, watching=status)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["mine"]


def test_a_record_logged_in_a_node_carries_its_task() -> None:
    status = Status()
    entries: list[Any] = []
    status.subscribe(lambda event: entries.append(event.entry) if isinstance(event, LogEvent) else None)
    log = logging.getLogger("somatize.x")
    log.warning("before")
    Graph.somatize(node(lambda x: log.warning("in") or x).named("load")).forward(1, watching=status)
    assert [(entry.message, entry.task and entry.task.name) for entry in entries] == [("before", None), ("in", "load")]


def test_facts_played_by_hand_make_tasks() -> None:
    status = Status()
    seen = shown(status)
    sink = status.opens([1, 2])
    sink.entering("a", "w1")
    assert status.tasks[0].children[0].host == "w1"
    sink.tell({"fact": "items", "node": "a", "items": "9", "ran": "3", "recalled": "4", "failed": "0"})
    assert (status.tasks[0].children[0].done, status.tasks[0].children[0].total) == (7, 9)
    far = {"id": "x-1", "name": "far", "done": 0, "total": None}
    sink.heard("w1", "a", {**far, "event": "started", "parent": None, "quiet": False})
    (of_far,) = status.tasks[0].children[0].children
    sink.heard("w1", "a", {**far, "event": "updated", "done": 3, "total": 9})
    assert (of_far.name, of_far.host, of_far.node, of_far.done, of_far.total) == ("far", "w1", "a", 3, 9)
    assert (sink.task_of("a", "x-1"), sink.task_of("a", None).name, sink.task_of("b", None)) == (of_far, "a", sink.task)
    over = {**far, "event": "failed", "why": "x", "mark": None, "took_us": 9}
    sink.heard("w1", "a", over)
    sink.heard("w1", "a", over)
    assert (of_far.state, of_far.why, round(of_far.elapsed * 1e6)) == ("failed", "x", 9)
    sink.tell({"fact": "loss", "node": "a", "value": "1.0"})
    sink.tell({"fact": "ran", "node": "a", "began_us": "0", "took_us": "5", "host": "w1"})
    sink.tell({"fact": "recalled", "node": "b", "bytes": "1", "took_us": "5"})
    sink.closed()
    assert [name for kind, name in seen if kind in ("finished", "failed")] == ["far", "a", "b", "forward"]


def test_a_node_that_runs_again_elsewhere_is_one_task() -> None:
    status = Status()
    sink = status.opens([1])
    sink.entering("a", "w1")
    sink.entering("a", "w2")  # the first host died
    (task,) = status.tasks[0].children
    assert (task.host, status.current) == ("w2", task)
    sink.tell({"fact": "ran", "node": "a", "began_us": "0", "took_us": "5", "host": "w2"})
    assert (task.state, status.tasks[0].children, status.tasks[0].done) == ("finished", (), 1)
    sink.closed()


def test_closed_in_the_middle_it_stops_nothing() -> None:
    status = Status()
    Graph.somatize(lambda x, ctx: ctx.status.close()).forward(1, watching=status)
    Graph.somatize(lambda x, ctx: ctx.status.task("x").finish()).forward(1, watching=status)
    assert (status.tasks, status.current) == ((), None)


def test_a_view_sees_the_node_that_runs_and_no_other() -> None:
    status = Status()
    made: list[Any] = []

    def looks(value: Any) -> Any:
        (forward,) = status.tasks
        (task,) = forward.children  # as a view in another thread would
        made.append(task)
        assert (task.name, task.node, task.state, task.parent, forward.children) == ("b", "b", "open", forward, (task,))
        assert status.current is task
        return value

    def quiet(value: Any) -> Any:
        return value

    graph = Graph.somatize(node(quiet).named("a") >> node(looks).named("b") >> node(quiet).named("c"))
    graph.forward(1, watching=status)
    assert [(task.name, task.state, task.children) for task in made] == [("b", "finished", ())]
    assert (status.tasks, status.current) == ((), None)


def test_a_view_that_looks_from_another_thread_leaves_no_node_open() -> None:
    status = Status()
    stop = threading.Event()
    seen: set[Any] = set()

    def look() -> None:
        while not stop.is_set():
            for forward in status.tasks:
                seen.update(forward.children)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        graph = Graph.somatize(node(lambda x: x).named("a") >> node(lambda x: x).named("b"))
        for _ in range(2000):
            graph.forward(1, watching=status)
    finally:
        stop.set()
        looking.join()
    assert {task.state for task in seen} <= {"finished"}
    assert status.tasks == ()


def test_one_who_listens_from_the_middle_on_hears_of_what_follows() -> None:
    status = Status()
    seen: list[Any] = []

    def begins(value: Any) -> Any:
        status.subscribe(lambda event: seen.append((event.kind.value, event.task.name)), updates=False)
        return value

    Graph.somatize(node(begins).named("a") >> node(lambda x: x).named("b")).forward(1, watching=status)
    assert seen == [
        ("finished", "a"),
        ("started", "b"),
        ("finished", "b"),
        ("finished", "forward"),
    ]


def test_a_node_interrupted_without_a_word_is_nobody_s_parent() -> None:
    status = Status()
    sink = status.opens([1])
    sink.entering("a")
    sink.tell({"fact": "broke", "took_us": "5", "why": "KeyboardInterrupt: "})
    sink.closed()
    with status.task("after") as after:
        assert after.parent is None
    assert status.tasks == ()


def names_in(status: Status) -> list[str]:
    """The open tasks, each after the one that it is open in."""
    found, pending = [], list(status.tasks)
    while pending:
        task = pending.pop(0)
        found.append(task.name)
        pending += task.children
    return found


def test_a_forward_ends_with_all_its_nodes_done_whoever_else_watches() -> None:
    status, facts, kept = Status(), [], []

    def look(value: Any) -> Any:
        kept[:] = status.tasks
        return value

    graph = Graph.somatize(node(look).named("a") >> node(lambda x: x).named("b"))
    for watching in (status, [facts.append, status], [Status(), status]):
        graph.forward(1, watching=watching)
        (forward,) = kept
        assert (forward.state, forward.done, forward.total, forward.children) == ("finished", 2, 2, ())
        assert status.tasks == ()
    assert [fact["fact"] for fact in facts] == ["ran", "ran", "finished"]


def test_who_wants_nothing_of_forwards_hears_the_rest() -> None:
    status, heard, others = Status(), [], []
    status.subscribe(heard.append, forwards=False)

    def works(value: Any, ctx: Any) -> Any:
        with ctx.status.task("mine") as task:
            task.advance()
        logging.getLogger("somatize.test").warning("said")
        return value

    graph = Graph.somatize(node(lambda x: x).named("quiet"))
    graph.forward(1, watching=status)
    assert heard == []
    status.subscribe(others.append)
    graph.forward(1, watching=status)
    Graph.somatize(node(works).named("a")).forward(1, watching=status)
    expected = [("started", "mine"), ("updated", "mine"), ("finished", "mine"), ("log", "said")]
    named = [
        (event.kind.value, event.task.name) if isinstance(event, TaskEvent) else ("log", event.entry.message)
        for event in heard
    ]
    assert named == expected
    assert {event.task.name for event in others if isinstance(event, TaskEvent)} == {"forward", "quiet", "a", "mine"}


def test_tasks_and_records_of_node_code_are_in_the_node_that_runs() -> None:
    status, seen = Status(), []

    def first(value: Any) -> Any:
        assert names_in(status) == ["forward", "a"]
        return value

    def logs(value: Any) -> Any:
        logging.getLogger("somatize.x").warning("here")
        assert names_in(status) == ["forward", "b"]
        return value

    def opens(value: Any, ctx: Any) -> Any:
        task = ctx.status.task("mine")
        seen.append((task.parent.name, task.parent.parent.name, task.parent.parent.done, task))
        return value

    graph = Graph.somatize(node(first).named("a") >> node(logs).named("b") >> node(opens).named("c"))
    graph.forward(1, watching=[[].append, status])
    (entry,) = status.logs
    assert entry.task is not None
    assert (entry.task.name, entry.task.state, entry.task.parent and entry.task.parent.done) == ("b", "finished", 3)
    (of_node, of_forward, done, mine) = seen[0]
    assert (of_node, of_forward, done) == ("c", "forward", 2)
    assert (mine.state, mine.mark) == ("finished", "left open")
    assert names_in(status) == []


def test_a_forward_that_fails_has_failed() -> None:
    status, kept = Status(), []

    def fails(value: Any) -> Any:
        kept[:] = status.tasks
        raise ValueError("five")

    for watching in (status, [[].append, status]):
        with pytest.raises(ValueError):
            Graph.somatize(fails).forward(1, watching=watching)
        assert (kept[0].state, kept[0].why) == ("failed", "ValueError: five")
    assert names_in(status) == []


@pytest.mark.parametrize("listens", [False, True])
def test_a_forward_that_fails_says_how_far_it_was_whether_seen_or_not(listens: bool) -> None:
    status, kept = Status(), []
    if listens:
        status.subscribe(lambda event: None)

    def fails(value: Any) -> Any:
        kept[:] = status.tasks
        raise ValueError("two of three")

    graph = Graph.somatize(node(abs).named("a") >> node(fails).named("b") >> node(abs).named("c"))
    with pytest.raises(ValueError):
        graph.forward(1, watching=status)
    assert (kept[0].done, kept[0].total, kept[0].percent) == (2, 3, 66)


def test_another_watcher_that_raises_stops_nothing() -> None:
    status, kept = Status(), []

    def raises(fact: Any) -> None:
        raise RuntimeError("torn")

    graph = Graph.somatize(node(lambda x: kept.append(*status.tasks) or x).named("a") >> node(abs).named("b"))
    with pytest.warns(UserWarning, match="torn"):
        assert graph.forward(1, watching=[raises, status]) == 1
    assert (kept[0].state, names_in(status)) == ("finished", [])


def test_the_first_status_is_node_code_s() -> None:
    first, second = Status(), Status()
    second.subscribe(lambda event: None)
    graph = Graph.somatize(lambda x, ctx: ctx.status)
    assert graph.forward(1, watching=[first, second]) is first
    assert graph.forward(1, watching=[second, first]) is second

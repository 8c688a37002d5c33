"""Facts said in another task, thread or context than the forward they follow: to that forward, or to the run."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from somatize import Ctx, Graph, Recorder, Store, node
from somatize.errors import FactError, RecorderClosed, RecordWarning, UnknownForward
from somatize.record import about, facts, forwards


@node
def tell(value: int, ctx: Ctx) -> int:
    ctx.tell({"fact": "input", "value": value})
    return value


GRAPH = Graph.somatize(tell)
WARM_UP = 1000


class Said:
    """A recorder that is told losses, each of which says the input of the forward that it is meant for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.recorder = Recorder(store, run="r")

    def forward(self, value: int) -> None:
        GRAPH.forward(value, watching=self.recorder)

    def loss(self, value: int) -> None:
        self.recorder({"fact": "loss", "value": value})

    def landed(self) -> tuple[list[tuple[int, list[int]]], list[int]]:
        """Of each forward, by its input, the losses said to it; and those that the run has."""
        self.recorder.close()
        found = []
        for row in forwards(self.store, "r"):
            told = facts(self.store, "r", row["forward"])
            [value] = [int(fact["value"]) for fact in told if fact["fact"] == "input"]
            found.append((value, [int(fact["value"]) for fact in told if fact["fact"] == "loss"]))
        own = [int(fact["value"]) for fact in about(self.store, "r")["facts"] if fact["fact"] == "loss"]
        return sorted(found), sorted(own)


@pytest.fixture
def said(store: Store) -> Iterator[Said]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordWarning)
        yield Said(store)


def never_wrong(said: Said) -> int:
    """How many losses landed on their forwards; none landed on another, and the run has the others."""
    landed, own = said.landed()
    assert all(losses in ([], [value]) for value, losses in landed), landed
    right = sum(len(losses) for _, losses in landed)
    assert right + len(own) == len([value for value, _ in landed if value != WARM_UP])
    return right


def test_after_to_thread_it_is_the_forward_that_ran_there(said: Said) -> None:
    async def main() -> None:
        said.forward(WARM_UP)
        for value in range(4):
            await asyncio.to_thread(said.forward, value)
            said.loss(value)
            said.loss(value)

    asyncio.run(main())
    assert said.landed() == ([(value, [value, value]) for value in range(4)] + [(WARM_UP, [])], [])


def test_an_unrelated_task_takes_nothing_away(said: Said) -> None:
    async def main() -> None:
        ticking = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        said.forward(WARM_UP)
        for value in range(4):
            await asyncio.to_thread(said.forward, value)
            said.loss(value)
        ticking.cancel()

    asyncio.run(main())
    assert said.landed() == ([(value, [value]) for value in range(4)] + [(WARM_UP, [])], [])


def test_after_wait_for_and_nested_threads(said: Said) -> None:
    async def inner(value: int) -> None:
        await asyncio.to_thread(said.forward, value)

    async def main() -> None:
        for value in range(3):
            await asyncio.wait_for(inner(value), 60)
            said.loss(value)

    def nested(value: int) -> None:
        copied = contextvars.copy_context()
        thread = threading.Thread(target=copied.run, args=(said.forward, value))
        thread.start()
        thread.join()
        said.loss(value)

    async def deeper() -> None:
        await asyncio.to_thread(nested, 3)

    asyncio.run(main())
    asyncio.run(deeper())
    assert said.landed() == ([(value, [value]) for value in range(4)], [])


@pytest.mark.parametrize("warm_up", [True, False])
@pytest.mark.parametrize("grouped", [True, False])
def test_tasks_that_each_use_threads_never_mix(said: Said, warm_up: bool, grouped: bool) -> None:
    """In the first round the threads of one cannot be told from another's; what a task said tells from then on."""

    async def task(number: int) -> None:
        for step in range(10):
            value = number * 10 + step
            await asyncio.to_thread(said.forward, value)
            said.loss(value)

    async def main() -> None:
        if warm_up:
            said.forward(WARM_UP)
        if grouped:
            async with asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(task(number))
        else:
            await asyncio.gather(*(task(number) for number in range(4)))

    asyncio.run(main())
    assert never_wrong(said) >= 20


def test_after_a_gather_the_run_has_what_could_be_meant_for_several(store: Store) -> None:
    said = Said(store)

    async def main() -> None:
        await asyncio.gather(*(asyncio.to_thread(said.forward, value) for value in range(3)))
        for value in range(3):
            said.loss(value)
        said.forward(3)
        said.loss(3)

    with pytest.warns(RecordWarning, match=r"recorder\.to\(number\)\(fact\)") as caught:
        asyncio.run(main())
    assert len(caught) == 1
    assert said.landed() == ([(0, []), (1, []), (2, []), (3, [3])], [0, 1, 2])


def test_a_task_of_its_own_leaves_the_others_alone(said: Said) -> None:
    """The one that validates says nothing; what the one that trains says is never its."""

    async def validating() -> None:
        for value in range(100, 110):
            await asyncio.to_thread(said.forward, value)

    async def main() -> None:
        said.forward(WARM_UP)
        beside = asyncio.create_task(validating())
        for value in range(10):
            said.forward(value)
            await asyncio.sleep(0)
            said.loss(value)
        await beside

    asyncio.run(main())
    landed, own = said.landed()
    assert all(losses in ([], [value]) for value, losses in landed)
    assert not any(losses for value, losses in landed if value >= 100)
    assert sorted(own + [value for value, losses in landed if losses]) == list(range(10))


def test_what_a_job_of_an_executor_ran(said: Said) -> None:
    with ThreadPoolExecutor(2) as pool:
        for value in range(6):
            pool.submit(said.forward, value).result()
            said.loss(value)
    assert never_wrong(said) >= 1


def test_what_is_awaited_of_an_executor_is_told_from_what_runs_beside(said: Said) -> None:
    """The same forwards at the same moments: in the one case this thread waits for them, in the other it goes on."""
    said.forward(WARM_UP)
    with ThreadPoolExecutor(1) as pool:
        for value in range(4):
            pool.submit(said.forward, value).result()
            said.loss(value)
        for value in range(4, 8):
            said.forward(value)
            done = pool.submit(said.forward, 100 + value)
            while not done.done():
                pass
            said.loss(value)
    landed, own = said.landed()
    assert all(losses in ([], [value]) for value, losses in landed)
    assert sorted(own + [loss for _, losses in landed for loss in losses]) == list(range(8))


def test_after_a_map_over_an_executor_no_loss_is_on_the_last(said: Said) -> None:
    said.forward(WARM_UP)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(said.forward, range(6)))
    for value in range(6):
        said.loss(value)
    assert never_wrong(said) <= 1


@pytest.mark.parametrize("copied", [True, False])
def test_jobs_that_say_what_they_ran(said: Said, copied: bool) -> None:
    def job(value: int) -> None:
        said.forward(value)
        said.loss(value)

    said.forward(WARM_UP)
    with ThreadPoolExecutor(3) as pool:
        for value in range(30):
            work = [contextvars.copy_context().run] if copied else []
            pool.submit(*work, job, value)
    assert never_wrong(said) == 30


def test_threads_with_forwards_of_their_own(said: Said) -> None:
    meet = threading.Barrier(3)

    def work(first: int) -> None:
        for value in range(first, first + 10):
            said.forward(value)
            meet.wait(60)  # the others have closed theirs
            said.loss(value)

    threads = [threading.Thread(target=work, args=(number * 10,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert never_wrong(said) == 30


def test_many_forwards_of_other_threads_close_before_it_is_said(said: Said) -> None:
    """As where a thread is preempted between a forward and its loss."""

    def waits(value: int, closed: threading.Event, go_on: threading.Event) -> None:
        said.forward(value)
        closed.set()
        go_on.wait(60)
        said.loss(value)

    def both(value: int) -> None:
        said.forward(value)
        said.loss(value)

    first, last = [(threading.Event(), threading.Event()) for _ in range(2)]
    threads = [threading.Thread(target=waits, args=(value, *events)) for value, events in ((2000, first), (2001, last))]
    threads[0].start()
    assert first[0].wait(60)
    for value in range(900):
        contextvars.Context().run(both, value)
    threads[1].start()
    assert last[0].wait(60)
    for thread, (_, go_on) in zip(threads, (first, last), strict=True):
        go_on.set()
        thread.join(60)
    assert never_wrong(said) == 902


def test_copies_of_a_context_are_told_apart(said: Said) -> None:
    said.forward(WARM_UP)
    left, right = contextvars.copy_context(), contextvars.copy_context()
    left.run(said.forward, 1)
    right.run(said.forward, 2)
    left.run(said.loss, 1)
    right.run(said.loss, 2)
    said.forward(3)
    untouched = contextvars.copy_context()
    untouched.run(said.loss, 3)
    said.loss(3)
    assert said.landed() == ([(1, [1]), (2, [2]), (3, [3, 3]), (WARM_UP, [])], [])


def test_a_copy_does_not_speak_for_what_another_ran(said: Said) -> None:
    said.forward(WARM_UP)
    one, other = contextvars.copy_context(), contextvars.copy_context()
    one.run(said.forward, 1)
    other.run(said.loss, WARM_UP)
    landed, own = said.landed()
    assert landed[0] == (1, [])
    assert own == [WARM_UP] or landed[1] == (WARM_UP, [WARM_UP])


def test_a_thread_that_knows_no_context_does_not_speak_for_the_forward_before(said: Said) -> None:
    """It is started in a node without the node's context, while a forward goes on."""

    @node
    def starts(value: int, ctx: Ctx) -> int:
        ctx.tell({"fact": "input", "value": value})
        thread = threading.Thread(target=said.loss, args=(value,))
        thread.start()
        thread.join()
        return value

    said.forward(0)
    Graph.somatize(starts).forward(1, watching=said.recorder)
    landed, own = said.landed()
    assert landed[0] == (0, [])
    assert own + landed[1][1] == [1]


def test_two_recorders_in_threads(store: Store) -> None:
    left, right = Recorder(store, run="left"), Recorder(store, run="right")

    async def main() -> None:
        for value in range(3):
            await asyncio.to_thread(GRAPH.forward, value, watching=[left, right])
            left({"fact": "loss", "value": value})
        for value in range(3):
            right({"fact": "loss", "value": value})

    with pytest.warns(RecordWarning, match="'right'"):
        asyncio.run(main())
    left.close()
    right.close()
    assert [facts(store, "left", n)[-1].get("value") for n in range(3)] == ["0", "1", "2"]
    assert [facts(store, "right", n)[-1]["fact"] for n in range(3)] == ["finished"] * 3


def test_inside_a_node_that_ran_forwards_in_threads(said: Said) -> None:
    @node
    def outer(value: int, ctx: Ctx) -> int:
        ctx.tell({"fact": "input", "value": value})

        async def runs() -> None:
            await asyncio.to_thread(said.forward, value + 1)
            said.loss(value + 1)

        asyncio.run(runs())
        return value

    Graph.somatize(outer).forward(0, watching=said.recorder)
    said.loss(0)
    assert said.landed() == ([(0, [0]), (1, [1])], [])


def test_to_says_which_forward_is_meant(said: Said) -> None:
    recorder = said.recorder
    for value in range(3):
        said.forward(value)
    to = {number: recorder.to(number) for number in range(3)}
    thread = threading.Thread(target=lambda: [to[number]({"fact": "loss", "value": number}) for number in (2, 0, 1)])
    thread.start()
    thread.join()
    with pytest.raises(FactError):
        to[0]({"fact": "kept", "node": "a", "bytes": 1, "took_us": 1})
    with pytest.raises(FactError):
        to[0]({"value": 1})
    for number in (3, -1, 10**30):
        with pytest.raises(UnknownForward, match="did not write forward"):
            recorder.to(number)
    with pytest.raises(TypeError):
        recorder.to("1")  # type: ignore[arg-type]
    assert said.landed() == ([(0, [0]), (1, [1]), (2, [2])], [])
    with pytest.raises(RecorderClosed):
        to[0]({"fact": "loss", "value": 1})
    with pytest.raises(RecorderClosed):
        recorder.to(0)


def test_to_knows_what_is_committed_and_what_another_writer_wrote(store: Store) -> None:
    with Recorder(store, run="r") as before:
        GRAPH.forward(0, watching=before)
    with Recorder(store, run="r") as recorder:
        GRAPH.forward(1, watching=recorder)
        store.opened.flush()
        recorder.to(1)({"fact": "loss", "value": 1})
        with pytest.raises(UnknownForward, match="another writer"):
            recorder.to(0)
    assert facts(store, "r", 1)[-1] == {"fact": "loss", "value": "1"}


def test_to_a_forward_that_goes_on(said: Said) -> None:
    """One that has been open for a while has its number."""
    asked: list[Any] = []

    @node
    def long(value: int, ctx: Ctx) -> int:
        ctx.tell({"fact": "input", "value": value})
        said.recorder({"fact": "loss", "value": value})  # is written at once, so that it has a number
        thread = threading.Thread(target=lambda: asked.append(said.recorder.to(0)({"fact": "loss", "value": value})))
        thread.start()
        thread.join()
        return value

    Graph.somatize(long).forward(7, watching=said.recorder)
    assert asked == [None]
    assert said.landed() == ([(7, [7, 7])], [])


# -- words of the engine


@pytest.mark.parametrize(
    "fact",
    [
        {"fact": "kept", "path": "checkpoint.pt"},
        {"fact": "ran"},
        {"fact": "failed", "node": "a", "began_us": 0, "took_us": 1},
        {"fact": "items", "node": "a", "items": -1, "ran": 0, "recalled": 0, "failed": 0},
        {"fact": "left", "host": "h", "began_us": 0, "took_us": 1, "more": 1},
        {"fact": "finished"},
        {"fact": "finished", "took_us": 0.5},
        {"fact": "broke", "took_us": 1},
        {"fact": "recalled", "node": "a", "bytes": "many", "took_us": 1},
    ],
)
def test_a_word_of_the_engine_said_by_hand_is_a_whole_fact_or_changes_nothing(said: Said, fact: dict[str, Any]) -> None:
    for value in range(3):
        said.forward(value)
        said.loss(value)
        with pytest.raises(FactError, match="another kind"):
            said.recorder(fact)
        said.loss(value)
    assert said.landed() == ([(value, [value, value]) for value in range(3)], [])
    assert [row["state"] for row in forwards(said.store, "r")] == ["ok"] * 3


def test_a_forward_told_by_hand_ends_when_a_real_one_begins(said: Said) -> None:
    said.forward(0)
    said.recorder({"fact": "kept", "node": "tell", "bytes": 3, "took_us": 5})
    said.recorder({"fact": "extra"})
    for value in range(1, 4):
        said.forward(value)
        said.loss(value)
    said.recorder.close()
    rows = forwards(said.store, "r")
    assert [row["state"] for row in rows] == ["ok", "lost", "ok", "ok", "ok"]
    kinds = [[fact["fact"] for fact in facts(said.store, "r", row["forward"])] for row in rows]
    assert kinds[1] == ["kept", "extra"]
    assert kinds[2:] == [["input", "ran", "finished", "loss"]] * 3


def test_one_that_passes_facts_on_is_not_ended_by_a_forward_within(store: Store) -> None:
    with Recorder(store, run="r") as recorder:

        @node
        def outer(value: int) -> int:
            GRAPH.forward(value, watching=recorder)
            return value

        g = Graph.somatize(node(abs).named("first") >> outer >> node(abs).named("last"))
        g.forward(1, watching=lambda fact: recorder(fact))
    found = [[fact.get("node") for fact in facts(store, "r", n)] for n in range(2)]
    assert sorted(found, key=len) == [["tell", "tell", None], ["first", "outer", "last", None]]


def test_tasks_that_tell_forwards_by_hand_are_kept_apart(store: Store) -> None:
    recorder = Recorder(store, run="r")

    async def play(name: str) -> None:
        for _ in range(5):
            recorder({"fact": "ran", "node": name, "began_us": 0, "took_us": 1})
            await asyncio.sleep(0)
            recorder({"fact": "finished", "took_us": 1})
            await asyncio.sleep(0)
            recorder({"fact": "loss", "of": name})

    async def main() -> None:
        await asyncio.gather(*(play(name) for name in "abc"))

    asyncio.run(main())
    recorder.close()
    found = [facts(store, "r", row["forward"]) for row in forwards(store, "r")]
    assert [[fact["fact"] for fact in told] for told in found] == [["ran", "finished", "loss"]] * 15
    assert all(told[0]["node"] == told[2]["of"] for told in found)

"""`track`: every way a loop may end."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from somatize.status import Status, TaskEvent


class Liar:
    """An iterable whose length is not how many there are."""

    def __init__(self, says: Any, yields: int) -> None:
        self.says, self.yields = says, yields

    def __len__(self) -> int:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.yields))


def ended(status: Status) -> list[Any]:
    tasks: list[Any] = []
    status.subscribe(
        lambda event: (
            tasks.append(event.task)
            if isinstance(event, TaskEvent) and event.kind.value in ("finished", "failed")
            else None
        )
    )
    return tasks


@pytest.mark.parametrize(
    ("items", "total", "done", "percent"),
    [
        ([1, 2, 3], 3, 3, 100),
        ([], 0, 0, 100),
        ((x for x in range(4)), None, 4, None),
        (iter([1, 2]), 2, 2, 100),
        (Liar(5, 8), 5, 8, None),
        (Liar(8, 5), 8, 5, 62),
        (Liar(RuntimeError(), 2), None, 2, None),
        ("abc", 3, 3, 100),
    ],
)
def test_a_loop_is_a_task(items: Any, total: Any, done: int, percent: Any) -> None:
    status = Status()
    over = ended(status)
    for _ in status.track(items, "loop"):
        assert status.current is not None
        assert status.current.percent != 100
    (task,) = over
    assert (task.name, task.state, task.mark) == ("loop", "finished", None)
    assert (task.total, task.done, task.percent) == (total, done, percent)
    assert status.current is None


def test_it_gives_the_items_themselves_and_has_their_length() -> None:
    status = Status()
    items = [object(), object()]
    tracked = status.track(items, "loop")
    assert len(tracked) == 2
    assert list(tracked) == items
    assert list(tracked) == items
    assert list(status.track((x for x in items), total=2)) == items


def test_broken_off_it_is_closed_and_nobody_s_parent() -> None:
    status = Status()
    over = ended(status)
    for item in status.track(range(9), "loop"):
        if item == 3:
            break
    assert status.current is None
    assert [(task.state, task.mark, task.done) for task in over] == [("finished", "broken off", 3)]
    with pytest.raises(ValueError, match="mine"):
        for _ in status.track(range(9), "loop"):
            raise ValueError("mine")
    assert status.current is None


def test_held_and_broken_off_it_is_closed_too() -> None:
    status = Status()
    tracked = status.track(range(9), "loop")
    for _ in tracked:
        break
    assert (status.current, status.tasks) == (None, ())
    assert status.task("next").parent is None
    assert tracked is not None


def test_advanced_by_hand() -> None:
    status = Status()
    over = ended(status)
    tracked = status.track(range(3), "loop")
    assert next(tracked) == 0
    assert [*tracked] == [1, 2]
    assert [task.done for task in over] == [3]
    tracked = status.track(range(3), "loop")
    next(tracked)
    tracked.close()
    tracked.close()
    assert over[-1].mark == "broken off"
    assert status.current is None


@pytest.mark.parametrize("how", ["next", "close", "drop"])
def test_ended_in_another_context_it_raises_nothing(how: str) -> None:
    status = Status()
    over = ended(status)
    held = [iter(status.track(range(2), "loop"))]
    next(held[0])

    def elsewhere() -> None:
        iterator: Any = held.pop()
        if how == "next":
            assert list(iterator) == [1]
        elif how == "close":
            iterator.close()

    if how == "next":
        contextvars.Context().run(elsewhere)
    else:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert [task.state for task in over] == ["finished"]
    assert (status.current, status.tasks) == (None, ())
    assert status.task("next").parent is None


def test_begun_elsewhere_and_ended_here() -> None:
    status = Status()
    iterator = iter(status.track(range(2), "loop"))
    contextvars.copy_context().run(next, iterator)
    with status.task("here") as here:
        assert here.parent is None
        list(iterator)
        assert here.state == "open"
        assert status.current is here


def test_an_iterable_that_raises_fails_its_task() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("torn")

    status = Status()
    over = ended(status)
    with pytest.raises(OSError, match="torn"):
        list(status.track(items(), "loop"))
    assert [(task.state, task.why, task.done) for task in over] == [("failed", "OSError: torn", 1)]


def test_nested_loops_nest() -> None:
    status = Status()
    for _ in status.track(range(2), "outer"):
        for _ in status.track(range(2), "inner"):
            assert status.current is not None
            assert status.current.parent is status.tasks[0]

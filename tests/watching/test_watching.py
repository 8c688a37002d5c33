"""Who may watch, and what happens when a watcher misbehaves: one test per way."""

from __future__ import annotations

import functools
import re
import threading
from typing import Any

import pytest

from somatize import Graph, node
from somatize.errors import WatcherWarning, WatchingError
from tests.small_graphs import Facts
from tests.watchers import ALL, BROKEN, OK, Sinks, fails, progressing, short, two


class On:
    """A watcher that raises when told of `when`, and keeps what it was told."""

    def __init__(self, when: str, error: BaseException | None = None) -> None:
        self.when = when
        self.error = error or RuntimeError("dashboard down")
        self.told: Facts = []

    def __call__(self, fact: dict[str, str]) -> None:
        self.told.append(fact)
        if short([fact]) == [self.when]:
            raise self.error


# Who may watch


def test_watching_takes_a_callable_a_recorder_and_lists_of_them_nested() -> None:
    one, other, third = [], [], Sinks()
    assert two(progressing).forward(7, watching=[one.append, (other.append, [third, ()]), []]) == 7
    assert short(one) == short(other) == OK
    assert third.calls == ALL


@pytest.mark.parametrize("threads", [1, 2])
def test_each_watcher_gets_its_own_dict(threads: int) -> None:
    one: Facts = []
    other: Facts = []
    two().forward(watching=[one.append, other.append], threads=threads)
    assert one == other
    assert all(a is not b for a, b in zip(one, other, strict=True))
    assert len({id(fact) for fact in one}) == 3


def test_a_watcher_named_twice_is_told_twice_and_an_opener_once() -> None:
    seen: Facts = []
    sinks = Sinks()
    two(progressing).forward(watching=[seen.append, sinks, [seen.append, sinks]])
    assert short(seen) == ["ran a", "ran a", "ran b", "ran b", "finished", "finished"]
    assert sinks.calls == ALL


def test_watchers_are_told_apart_by_what_they_are_and_not_by_what_they_equal() -> None:
    class Odd(On):
        def __eq__(self, other: object) -> bool:
            raise TypeError("compared")

        __hash__ = None  # type: ignore[assignment]

    raising, other = Odd("ran a"), Odd("never")
    with pytest.warns(WatcherWarning, match="dashboard down"):
        two().forward(1, watching=[raising, other, Sinks()])
    assert (short(raising.told), short(other.told)) == (["ran a"], OK)
    two().forward(1, watching=other)
    assert short(other.told) == [*OK, *OK]


def test_a_list_that_holds_itself_is_walked_once() -> None:
    seen: Facts = []
    watchers: list[Any] = [seen.append]
    watchers.append(watchers)
    two().forward(watching=watchers)
    assert short(seen) == OK


async def awaited(fact: dict[str, str]) -> None: ...


def yields(fact: dict[str, str]) -> Any:
    yield fact


class AwaitedCall:
    async def __call__(self, fact: dict[str, str]) -> None: ...


REFUSED = [
    3,
    "print",
    {"watch": print},
    {print},
    object(),
    iter([print]),
    Sinks,
    awaited,
    AwaitedCall(),
    AwaitedCall().__call__,
    functools.partial(awaited),
    yields,
    functools.partial(yields),
]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("wrong", REFUSED, ids=lambda wrong: type(wrong).__name__)
def test_anything_else_is_refused_naming_what_is_accepted(wrong: Any, nested: bool) -> None:
    ran: list[int] = []
    sinks = Sinks()
    with pytest.raises(WatchingError, match="watching= takes a callable, a Recorder, or a list or tuple of them"):
        Graph.somatize(ran.append).forward(watching=[sinks, [wrong]] if nested else wrong)
    assert ran == []
    assert sinks.calls == []


# A watcher that raises


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("when", "second", "told"),
    [
        ("ran a", None, ["ran a"]),  # the first fact
        ("ran b", None, ["ran a", "ran b"]),
        ("finished", None, OK),  # the last fact
        ("failed b", fails, ["ran a", "failed b"]),  # during a failure
        ("broke", fails, BROKEN),
    ],
)
def test_one_that_raises_is_warned_about_once_and_told_nothing_more(
    when: str, second: Any, told: list[str], alone: bool, threads: int
) -> None:
    bad = On(when)
    seen: Facts = []
    graph = two(second)
    watching = bad if alone else [bad, seen.append]
    with pytest.warns(WatcherWarning) as warned:
        outcome = run(graph, watching, threads)
    assert outcome == ("the node's" if second else 5)
    assert short(bad.told) == told
    assert alone or short(seen) == (BROKEN if second else OK)
    (warning,) = warned
    assert "of type On raised and is told nothing more of this forward" in str(warning.message) or alone
    assert "Traceback" in str(warning.message)
    assert "RuntimeError: dashboard down" in str(warning.message)


def run(graph: Graph, watching: Any, threads: int = 1) -> Any:
    try:
        return graph.forward(5, watching=watching, threads=threads)
    except ValueError as error:
        return str(error)


def test_the_next_forward_tells_it_again() -> None:
    bad = On("ran a")
    for _ in range(2):
        with pytest.warns(WatcherWarning):
            two().forward(watching=bad)
    assert short(bad.told) == ["ran a", "ran a"]


def test_the_warning_names_the_watcher_and_no_failed_fact_blames_the_node() -> None:
    def dashboard(fact: dict[str, str]) -> None:
        raise RuntimeError("down")

    seen: Facts = []
    for watching in (dashboard, [dashboard, seen.append]):
        with pytest.warns(WatcherWarning, match=r"the watcher .*\.dashboard raised") as warned:
            assert two().forward(1, watching=watching) == 1
        assert len(warned) == 1
    assert short(seen) == OK


@pytest.mark.parametrize("threads", [1, 2])
def test_several_that_raise_do_not_stop_the_work(threads: int) -> None:
    bad = [On("ran a"), On("ran a"), On("ran b"), On("finished")]
    with pytest.warns(WatcherWarning) as warned:
        assert two().forward(1, watching=bad, threads=threads) == 1
    assert len(warned) == 4
    assert [len(watcher.told) for watcher in bad] == [1, 1, 2, 3]


def test_where_warnings_are_errors_the_work_goes_on_and_it_is_said_on_stderr(capsys: Any) -> None:
    bad = On("ran a")
    assert two().forward(1, watching=bad) == 1
    assert short(bad.told) == ["ran a"]
    assert re.search(r"WatcherWarning: .*RuntimeError: dashboard down", capsys.readouterr().err, re.DOTALL)


def test_an_exception_that_cannot_be_shown_does_not_stop_the_work() -> None:
    class Hostile(Exception):
        @property
        def __notes__(self) -> Any:
            raise RuntimeError("no notes here")

    for watching in (On("ran a", Hostile()), [On("ran a", Hostile())]):
        with pytest.warns(WatcherWarning, match="Hostile"):
            assert two().forward(1, watching=watching) == 1


@pytest.mark.parametrize("alone", [True, False])
def test_one_that_raises_on_what_a_node_says_from_a_thread(alone: bool) -> None:
    bad = On("loss b")
    seen: Facts = []

    def tells(value: Any, ctx: Any) -> Any:
        thread = threading.Thread(target=lambda: ctx.tell({"fact": "loss", "value": value}))
        thread.start()
        thread.join()
        return value

    with pytest.warns(WatcherWarning) as warned:
        assert two(tells).forward(1, watching=bad if alone else [bad, seen.append]) == 1
    assert len(warned) == 1
    assert short(bad.told) == ["ran a", "loss b"]
    assert alone or short(seen) == ["ran a", "loss b", "ran b", "finished"]


@pytest.mark.parametrize("alone", [True, False])
def test_one_that_raises_on_a_fact_of_a_node_in_a_thread(alone: bool) -> None:
    both, bad = threading.Barrier(2), On("ran b")
    seen: Facts = []

    def meet(value: Any) -> Any:
        both.wait(10)
        return value

    graph = Graph.somatize(node(meet).named("b") | node(meet).named("b2"))
    with pytest.warns(WatcherWarning):
        graph.forward(1, threads=2, watching=bad if alone else [bad, seen.append])
    assert short(bad.told)[-1] == "ran b"
    assert alone or sorted(short(seen)) == ["finished", "ran b", "ran b2"]


# An interrupt of a watcher passes through


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("when", "second", "told"),
    [
        ("ran a", None, ["ran a", "broke"]),
        ("ran b", None, ["ran a", "ran b", "broke"]),
        ("finished", None, OK),  # a forward that told finished stays finished
        ("failed b", fails, BROKEN),
        ("broke", fails, BROKEN),
    ],
)
def test_an_interrupt_of_a_watcher_is_raised_after_the_others_got_that_fact(
    when: str, second: Any, told: list[str], alone: bool, kind: Any, threads: int
) -> None:
    bad = On(when, kind("stop"))
    before: Facts = []
    after: Facts = []
    with pytest.raises(kind) as raised:
        two(second).forward(watching=bad if alone else [before.append, bad, after.append], threads=threads)
    assert raised.value is bad.error
    assert short(bad.told) == told
    assert alone or short(before) == short(after) == told
    if told[-1] == "broke" and second is None:
        assert bad.told[-1]["why"] == f"{kind.__name__}: stop"
    assert getattr(bad.error, "__notes__", []) == []


def test_the_first_interrupt_of_several_watchers_is_the_one_raised() -> None:
    first, second = On("ran a", KeyboardInterrupt("first")), On("ran a", SystemExit("second"))
    with pytest.raises(KeyboardInterrupt, match="first"):
        two().forward(watching=[first, second])
    assert short(second.told) == ["ran a", "broke"]


def test_an_interrupt_of_a_watcher_stops_the_nodes_after_it() -> None:
    ran: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        two(ran.append).forward(watching=On("ran a", KeyboardInterrupt()))
    assert ran == []


def test_an_interrupt_on_a_late_fact_does_not_swallow_the_engine_s_own() -> None:
    go, said = threading.Event(), threading.Event()
    seen: Facts = []

    def starts(value: Any, ctx: Any) -> None:
        def lingers() -> None:
            go.wait(10)
            ctx.tell({"fact": "late"})
            said.set()

        threading.Thread(target=lingers).start()

    def waits(value: Any) -> None:
        go.set()
        said.wait(10)

    graph = Graph.somatize(node(starts).named("a") >> node(waits).named("b"))
    with pytest.raises(KeyboardInterrupt):
        graph.forward(watching=[On("late a", KeyboardInterrupt()), seen.append])
    assert short(seen) == ["ran a", "late a", "ran b", "broke"]

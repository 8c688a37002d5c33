"""Ctrl-C at any moment: at each point of the engine's loop where Python looks for signals, one is raised.

Those points are after a call, after a jump back, and where a function begins. Once the last fact is told an interrupt
is the watcher's. `test_engine` and `test_branches` have real signals.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from somatize import Graph, Node, node
from somatize.watching.watchers import forward_here

LOOKS = ("CALL", "JUMP_BACKWARD", "RESUME")
FILES = (
    "somatize/engine/loops.py",
    "somatize/engine/scheduler.py",
    "somatize/watching/forwards.py",
    "somatize/watching/watchers.py",
)


class Pass(Node):
    entered = 0

    def forward(self, value: Any, ctx: Any) -> Any:
        Pass.entered += 1
        return value


class Sinks:
    def __init__(self) -> None:
        self.told: list[dict[str, str]] = []
        self.closed_after: list[int] = []

    def opens(self, graph: Any) -> Any:
        return self

    def tell(self, fact: dict[str, str]) -> None:
        self.told.append(fact)

    def closed(self) -> None:
        self.closed_after.append(len(self.told))


@functools.cache
def looks(code: CodeType) -> frozenset[int]:
    """The offsets of the instructions before which Python may have raised what a signal asks for.

    What comes after a call is raised by the call itself; a NOP, which may stand for a `try`, is in no block.
    """
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PRECALL", "NOP")]
    return frozenset(
        after.offset
        for before, after in itertools.pairwise(instructions)
        if before.opname.startswith(LOOKS) and not before.opname.startswith("JUMP")
    ) | frozenset(int(i.argval) for i in instructions if i.opname.startswith("JUMP_BACKWARD"))


class InterruptAt:
    """Raises `kind` at the `point`-th of those points in the functions of somatize's engine named."""

    def __init__(
        self, point: int, *names: str, files: tuple[str, ...] = FILES, kind: type[BaseException] = KeyboardInterrupt
    ) -> None:
        self.kind = kind
        self.left = point
        self.names = names
        self.files = files
        self.where = ""

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name not in self.names or not frame.f_code.co_filename.endswith(self.files):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in looks(frame.f_code):
            self.left -= 1
            if self.left < 0:
                self.where = f"{frame.f_code.co_name}, line {frame.f_lineno}, at {frame.f_lasti}"
                raise self.kind(self.where)
        return self


def interrupted(call: Callable[[], object], interrupt: InterruptAt) -> str:
    """Make a call that is interrupted; where it was, if it was."""
    traced = sys.gettrace()
    sys.settrace(interrupt)
    try:
        call()
    except interrupt.kind as error:
        sys.settrace(traced)
        if str(error) != interrupt.where:
            raise
    finally:
        sys.settrace(traced)
    return interrupt.where


def graph() -> Graph:
    a, b, c, d = (Pass().named(id) for id in "abcd")
    return Graph.somatize(a >> (b.on("cpu") | node(abs).named("x") | c) >> d >> Pass().named("e"))


def wrong_with(facts: list[dict[str, str]], where: str) -> str:
    """What does not hold of the facts of a forward that was interrupted, or that came to its end."""
    kinds = [fact["fact"] for fact in facts]
    if not kinds:
        return "" if not Pass.entered else "a node ran, and nothing was told"
    if kinds[-1] not in ("finished", "broke"):
        return "nothing says how it ended"
    if kinds[-1] == "broke" and facts[-1]["why"] != f"KeyboardInterrupt: {where}":
        return "it broke for another reason"
    nodes = [fact["node"] for fact in facts[:-1]]
    if nodes != ["a", "b", "x", "c", "d", "e"][: len(nodes)] or (kinds[-1] == "finished" and len(nodes) != 6):
        return f"these nodes were told: {nodes}"
    return ""


@pytest.mark.parametrize("sinks", [True, False])
def test_an_interrupt_at_any_point_of_the_loop_leaves_facts_that_hold(sinks: bool) -> None:
    wrong, point, where = [], 0, "the beginning"
    run = graph()
    run.plan()
    while where:
        Pass.entered = 0
        watcher = Sinks()
        where = interrupted(
            lambda: run.forward(-1, watching=watcher if sinks else watcher.told.append),  # noqa: B023
            InterruptAt(point, "_observe"),
        )
        problem = wrong_with(watcher.told, where)
        if sinks and watcher.closed_after != [len(watcher.told)]:
            problem += f"; closed after {watcher.closed_after} of {len(watcher.told)} facts"
        if problem:
            wrong.append(f"{where}: {problem}")
        point += 1
    assert point > 30
    assert wrong == []


@pytest.mark.parametrize("first", [KeyboardInterrupt, ValueError])
def test_a_second_interrupt_while_the_first_is_told_leaves_it_told(first: type[BaseException]) -> None:
    def fails(value: Any) -> Any:
        raise first("the first")

    run = Graph.somatize(Pass().named("a") >> node(fails))
    run.plan()
    for point in itertools.count():
        told: list[dict[str, str]] = []
        interrupt = InterruptAt(point, "failed", "annotate", "_write", "_placed")
        traced = sys.gettrace()
        sys.settrace(interrupt)
        try:
            run.forward(1, watching=told.append)
        except (KeyboardInterrupt, ValueError) as error:
            raised = str(error)
        finally:
            sys.settrace(traced)
        assert raised == (interrupt.where or "the first")
        assert [fact["fact"] for fact in told if fact["fact"] != "failed"] == ["ran", "broke"], interrupt.where
        assert told[-1]["why"] == f"{first.__name__}: the first", interrupt.where
        if not interrupt.where:
            break
    assert point > 8


class TimeUp(Exception):
    """What the handler of a time limit raises."""


@pytest.mark.parametrize("watching", ["a list's append", "a function", "several"])
def test_a_time_limit_that_comes_as_a_watcher_is_told_is_not_taken_for_the_watchers(watching: str) -> None:
    told: list[Any] = []

    def tells(fact: Any) -> None:
        told.append(fact)

    given: dict[str, Any] = {"a list's append": told.append, "a function": tells, "several": [tells, [].append]}
    run = graph()
    run.plan()
    for point in itertools.count():
        told.clear()
        interrupt = InterruptAt(point, "_observe", "_within", "say", "_say", "fan_out", kind=TimeUp)
        where = interrupted(lambda: run.forward(-1, watching=given[watching]), interrupt)
        assert [fact["fact"] for fact in told if fact["fact"] in ("broke", "finished")] in ([], ["broke"], ["finished"])
        if not where:
            break
    assert point > 30


class Knowing(Sinks):
    """A sink that knows whether it was closed; of one there is never a second."""

    over = False

    def closed(self) -> None:
        super().closed()
        self.over = True


@pytest.mark.parametrize("beside", [[], [[].append]], ids=["alone", "beside another"])
def test_a_sink_that_knows_whether_it_was_closed_is_closed_whenever_an_interrupt_comes(beside: list[Any]) -> None:
    run = Graph.somatize(Pass().named("a") >> Pass().named("b"))
    run.plan()
    for point in itertools.count():
        watcher = Knowing()
        interrupt = InterruptAt(point, "_within", "close", "remember", "_reference", "_tell")
        interrupted(lambda: run.forward(1, watching=[watcher, *beside]), interrupt)  # noqa: B023
        assert watcher.closed_after == [len(watcher.told)], interrupt.where
        assert forward_here() is None, interrupt.where
        if not interrupt.where:
            break
    assert point > 10

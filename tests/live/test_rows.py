"""A Live's rows are those that `forwards` gives of the same facts, and each fact is in its forward's row."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import os
import pickle
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from somatize import Graph, Live, Node, node
from somatize.errors import FactError, FigureError
from somatize.record import facts, forwards
from somatize.record import live as live_module


def test_the_rows_are_those_of_the_record(both: Any, graph: Graph, same: Any) -> None:
    for number in range(40):
        given: Any = ValueError("seven") if number % 7 == 6 else number
        try:
            graph.forward(given, watching=both.watchers)
        except ValueError:
            pass
        both.say({"fact": "loss", "value": 1 / (number + 1)})
    assert same(both.live.rows) == same(forwards(both.store))
    assert len(both.live) == 40


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 3, 10**30, True, None, "text", "1e-3", 0.1 + 0.2])
def test_what_was_said_is_kept_as_the_text_it_is(both: Any, graph: Graph, same: Any, value: Any) -> None:
    graph.forward(1, watching=both.watchers)
    both.say({"fact": "loss", "value": 1.5})
    both.say({"fact": "loss", "value": value})
    graph.forward(1, watching=both.watchers)
    assert same(both.live.rows) == same(forwards(both.store))


@pytest.mark.parametrize("broken", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_an_end_that_is_no_exception_is_an_interrupt(both: Any, graph: Graph, same: Any, broken: BaseException) -> None:
    with pytest.raises(type(broken)):
        graph.forward(broken, watching=both.watchers)
    assert same(both.live.rows) == same(forwards(both.store))


def test_facts_of_a_forward_that_breaks_are_in_its_own_row(both: Any, same: Any) -> None:
    class Says(Node):
        def forward(self, input: Any, ctx: Any) -> Any:
            ctx.tell({"fact": "loss", "value": input})
            if input == 2.0:
                raise ValueError(input)

    graph = Graph.somatize(Says())
    for value in (1.0, 2.0, 3.0):
        try:
            graph.forward(value, watching=both.watchers)
        except ValueError:
            pass
    assert [row["loss.value"] for row in both.live.rows] == ["1.0", "2.0", "3.0"]
    assert same(both.live.rows) == same(forwards(both.store))


def test_threads_do_not_mix_their_facts(graph: Graph) -> None:
    live = Live()

    def one(number: int) -> None:
        graph.forward(number, watching=live)
        live({"fact": "loss", "value": number})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: contextvars.Context().run(one, number), range(400)))
    assert sorted(int(row["loss.value"]) for row in live.rows) == list(range(400))
    assert {row["nodes"] for row in live.rows} == {1}


def test_tasks_do_not_mix_their_facts(graph: Graph) -> None:
    live = Live()

    async def one(number: int) -> None:
        graph.forward(number, watching=live)
        await asyncio.sleep(0)
        live({"fact": "loss", "value": number})

    async def several() -> None:
        await asyncio.gather(*(one(number) for number in range(50)))

    asyncio.run(several())
    assert [row["loss.value"] for row in live.rows] == [str(number) for number in range(50)]


def test_a_forward_inside_a_node_has_its_own_row(both: Any, same: Any) -> None:
    inner = Graph.somatize(lambda value: value)

    def outer(value: Any) -> Any:
        inner.forward(value, watching=both.watchers)
        both.say({"fact": "loss", "value": 1.0})
        return value

    Graph.somatize(outer).forward(1, watching=both.watchers)
    both.say({"fact": "loss", "value": 2.0})
    assert [row["loss.value"] for row in both.live.rows] == ["1.0", "2.0"]
    assert same(both.live.rows) == same(forwards(both.store))


def test_facts_told_by_hand_make_rows(both: Any, graph: Graph, same: Any) -> None:
    for number in range(5):
        try:
            graph.forward(ValueError("no") if number == 2 else number, watching=lambda fact: both.say(fact))
        except ValueError:
            pass
        both.say({"fact": "loss", "value": number / 2})
    assert len(both.live) == 5
    assert same(both.live.rows) == same(forwards(both.store))


def test_facts_told_by_hand_in_threads_are_kept_apart(graph: Graph) -> None:
    live = Live()
    together = threading.Barrier(4)

    def one(number: int) -> None:
        def meet(value: Any) -> Any:
            together.wait(10)
            live({"fact": "loss", "value": value})
            return value

        Graph.somatize(meet).forward(number, watching=lambda fact: live(fact))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {row["nodes"] for row in live.rows} == {1}
    assert len(live) == 4


def test_a_run_played_back_gives_its_rows(both: Any, graph: Graph, same: Any) -> None:
    for number in range(6):
        graph.forward(number, watching=both.watchers)
        both.say({"fact": "loss", "value": number})
    again = Live()
    for number in range(6):
        for fact in facts(both.store, "r", number):
            again(fact)
    assert same(again.rows) == same(both.live.rows)


def test_a_forward_that_goes_on_is_there_and_open(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the forward would have to take as long.
    monkeypatch.setattr(live_module, "NUMBERED_AFTER", 0.0)
    live = Live()

    def look(value: Any, ctx: Any) -> Any:
        ctx.tell({"fact": "loss", "value": 0.25})
        (row,) = live.rows
        assert (row["state"], row["took_us"], row["loss.value"]) == ("open", None, "0.25")
        assert "goes on" in repr(live)
        return value

    Graph.somatize(look).forward(1, watching=live)
    assert [row["state"] for row in live.rows] == ["ok"]
    assert "goes on" not in repr(live)


def test_what_is_drawn_need_not_be_summarised(graph: Graph) -> None:
    live = Live(of=["loss", "ran.took_us", "took_us"], summarising=())
    graph.forward(1, watching=live)
    live({"fact": "loss", "value": 0.5})
    assert set(live.rows[0]) == {"forward", "state", "nodes", "took_us", "when"}
    names = [trace["name"] for trace in live.picture().data]
    assert names[:2] == ["loss", "loss, smoothed"]


def test_what_names_nothing_is_refused() -> None:
    with pytest.raises(FigureError):
        Live(of=[])
    with pytest.raises(TypeError, match="summarising"):
        Live(summarising="loss")
    with pytest.raises(ValueError, match="takes names"):
        Live(summarising=["loss..value"])
    with pytest.raises(FactError):
        Live()({"value": 1})


def test_a_fact_before_any_forward_is_nobodys() -> None:
    live = Live()
    live({"fact": "loss", "value": 1.0})
    assert live.rows == []


def test_its_repr_says_where_the_run_stands(graph: Graph) -> None:
    live = Live("mine")
    assert repr(live) == "Live('mine'): no forwards yet"
    graph.forward(1, watching=live)
    live({"fact": "loss", "value": 0.25})
    with pytest.raises(ValueError, match="no"):
        graph.forward(ValueError("no"), watching=live)
    words = repr(live)
    assert words.startswith("Live('mine'): 2 forwards, 1 broke, loss 0.25, the last took ")
    assert "\n" not in words
    live.close()
    assert repr(live).endswith("closed")


def test_a_closed_one_still_tallies(graph: Graph) -> None:
    with Live() as live:
        graph.forward(1, watching=live)
    graph.forward(2, watching=live)
    assert len(live.rows) == 2


def test_nothing_keeps_it_alive(graph: Graph) -> None:
    live = Live()
    graph.forward(1, watching=live)
    live({"fact": "ran", "node": "n", "began_us": "0", "took_us": "1"})
    live({"fact": "finished", "took_us": "1"})
    gone = weakref.ref(live)
    del live
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda live: pickle.loads(pickle.dumps(live))])
def test_a_copy_has_its_rows_and_goes_its_own_way(graph: Graph, same: Any, untitled: Any, way: Any) -> None:
    live = Live("seen", of=["loss", "nodes"], summarising=["loss", "lr"])
    for value in (1.0, float("nan"), 3.0):
        graph.forward(value, watching=live)
        live({"fact": "loss", "value": value})
    live({"fact": "lr", "value": "low"})
    other = way(live)
    assert repr(other) == repr(live)
    assert other.rows == live.rows
    assert untitled(other.figure()) == untitled(live.figure())
    graph.forward(4.0, watching=other)
    other({"fact": "loss", "value": 4.0})
    assert (len(live), len(other)) == (3, 4)
    assert other.rows[3]["loss.value"] == "4.0"
    assert [row["loss.value"] for row in live.rows] == ["1.0", "nan", "3.0"]


def test_a_forked_process_has_a_live_of_its_own(graph: Graph) -> None:
    live = Live()
    graph.forward(1.0, watching=live)
    child = os.fork()
    if not child:
        graph.forward(2.0, watching=live)
        live({"fact": "loss", "value": 2.0})
        seen = [row["loss.value"] for row in live.rows] == [None, "2.0"] and len(live.figure().data) == 4
        os._exit(0 if seen else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(live) == 1


def test_numbers_no_axis_holds_are_kept_as_they_are_and_drawn(graph: Graph) -> None:
    live = Live()
    for value in (10**400, 1e308, -1e308, 5e-324, True, -(10**30)):
        graph.forward(1.0, watching=live)
        live({"fact": "loss", "value": value})
    said = [row["loss.value"] for row in live.rows]
    assert said == [str(10**400), "1e+308", "-1e+308", "5e-324", "True", str(-(10**30))]
    figure = live.figure()
    assert "in 10<sup>308</sup>" in figure.layout.annotations[0].text
    assert figure.data[0].y == (None, 1.0, -1.0, 0.0, None, -1e-278)
    assert figure.data[0].customdata[3] == "4.94066e-324"


def test_one_that_is_looked_at_while_threads_tell_it_loses_nothing(graph: Graph) -> None:
    live, done = Live(), threading.Event()

    def look() -> None:
        while not done.is_set():
            assert len(live.figure().data) >= 4
            assert len(live.rows) >= 0

    def work(first: int) -> None:
        for number in range(first, first + 60):
            graph.forward(number, watching=live)
            live({"fact": "loss", "value": float(number)})

    with ThreadPoolExecutor(5) as pool:
        looking = pool.submit(look)
        for job in [pool.submit(work, 100 * n) for n in range(4)]:
            job.result()
        done.set()
        looking.result()
    assert sorted(float(row["loss.value"]) for row in live.rows) == [100.0 * n + k for n in range(4) for k in range(60)]


@pytest.mark.parametrize("said", [{"fact": "loss", "value": 1.0}, {"fact": "lr", "value": 2}])
def test_a_forward_of_which_something_is_said_has_its_number_from_then_on(
    both: Any, graph: Graph, same: Any, said: dict[str, Any]
) -> None:
    def outer(value: int) -> int:
        both.say(said)
        graph.forward(value, watching=both.watchers)
        return value

    Graph.somatize(node(outer) >> node(abs)).forward(1, watching=both.watchers)
    assert [row["nodes"] for row in both.live.rows] == [2, 1]
    assert same(both.live.rows) == same(forwards(both.store, "r"))


def test_a_forward_in_the_midst_of_stirring_the_view_waits_for_nothing(graph: Graph) -> None:
    """As one in a signal's handler: at each instruction between a forward's end and the thread that draws."""

    def runs_another_at(instruction: int) -> int:
        live = Live(of="loss")
        live._ipython_display_()  # no kernel here: its text is printed, and there is a view to stir
        passed = 0

        def at_each(frame: FrameType, event: str, _: object) -> Any:
            nonlocal passed
            if Path(frame.f_code.co_filename).name not in ("live_view.py", "interrupts.py", "threading.py"):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                passed += 1
                if passed == instruction:
                    sys.settrace(None)
                    graph.forward(1, watching=live)
            return at_each

        traced = sys.gettrace()
        gc.disable()  # it would run finalisers of other Lives, which are counted
        try:
            sys.settrace(at_each)
            graph.forward(1, watching=live)
        finally:
            sys.settrace(traced)
            gc.enable()
        assert len(live) == 1 + (passed == instruction)
        return passed

    instructions = runs_another_at(0)
    assert instructions > 5
    assert [runs_another_at(at) for at in range(1, instructions + 1)] == list(range(1, instructions + 1))

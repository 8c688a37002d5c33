"""One broker, and whoever else has it: a child of this process, and those who are told of its work."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from somatize import Broker, Graph, node
from somatize.errors import NotSendable, WatcherWarning, WorkerDied

ONCE_MORE = "host 'w1' is at work for this very thread"


def which(x):
    import os

    return os.getpid()


which.__module__ = "__main__"
WHICH = Graph.somatize(node(which).named("which").at("w1"))


def in_a_child(work: Callable[[], object]) -> str:
    """What `work` gives in a forked child of this process, which then ends as any program does."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = repr(work())
        except BaseException as error:
            said = repr(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as file:
        return file.read()


def test_a_child_has_a_worker_of_its_own_and_its_parents_lives_on(own: Broker) -> None:
    pid = WHICH.forward(1, broker=own)
    theirs = int(in_a_child(lambda: (WHICH.forward(1, broker=own), own.close())[0]))
    assert theirs != pid
    assert WHICH.forward(1, broker=own) == pid


def test_a_child_is_not_warned_of_a_worker_that_is_its_parents(own: Broker) -> None:
    WHICH.forward(1, broker=own)

    def warned() -> list[str]:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            WHICH.forward(1, broker=own)
            own.close()
        return [str(one.message) for one in said]

    assert in_a_child(warned) == "[]"


# A fixture holds the broker, so that the child cannot let it go: `_close` is what the finaliser calls.
@pytest.mark.parametrize("end", [lambda own: own.close(), lambda own: own._close()])
def test_a_child_that_closes_a_broker_or_lets_it_go_ends_nobody_elses_worker(end: Any, own: Broker) -> None:
    pid = WHICH.forward(1, broker=own)
    assert in_a_child(lambda: end(own)) == "None"
    assert WHICH.forward(1, broker=own) == pid


def test_a_child_that_is_made_while_a_worker_computes_disturbs_nothing(own: Broker) -> None:
    def sleeps(x):
        __import__("time").sleep(0.3)
        return x

    said: list[str] = []

    def forks(fact: dict[str, str]) -> None:
        if fact["fact"] == "loss":
            said.append(in_a_child(lambda: (WHICH.forward(1, broker=own), own.close())[0] > 0))

    def tells(x, ctx):
        ctx.tell({"fact": "loss", "value": 1})
        return x

    graph = Graph.somatize(node(tells).at("w1") >> node(sleeps).at("w1"))
    assert graph.forward(5, broker=own, watching=forks) == 5
    assert said == ["True"]


def told_at(host: str, does: Callable[[], object]) -> Callable[[dict[str, str]], None]:
    def tell(fact: dict[str, str]) -> None:
        if fact["fact"] == "ran" and fact.get("host") == host:
            does()

    return tell


def test_a_watcher_that_sends_more_work_to_the_host_it_is_told_of_is_refused(own: Broker) -> None:
    asked = told_at("w1", lambda: WHICH.forward(1, broker=own))
    with pytest.warns(WatcherWarning, match=ONCE_MORE):
        pid = WHICH.forward(1, broker=own, watching=asked)
    assert WHICH.forward(1, broker=own) == pid


def test_a_watcher_may_send_work_elsewhere(own: Broker) -> None:
    there = Graph.somatize(node(which).at("w2"))
    pids: list[int] = []
    pid = WHICH.forward(1, broker=own, watching=told_at("w1", lambda: pids.append(there.forward(1, broker=own))))
    assert len({pid, *pids}) == 2


def test_a_watcher_may_close_the_broker_it_is_told_of(own: Broker) -> None:
    def says(x, ctx):
        ctx.tell({"fact": "loss", "value": 1})
        __import__("time").sleep(30)

    seen: list[str] = []

    def closes(fact: dict[str, str]) -> None:
        seen.append(fact["fact"])
        if fact["fact"] == "loss":
            own.close()

    with pytest.raises(WorkerDied, match="SIGKILL in node 'says'"):
        Graph.somatize(node(says).at("w1")).forward(1, broker=own, watching=closes)
    assert seen[-2:] == ["failed", "broke"]


def test_a_broker_does_not_travel(own: Broker) -> None:
    with pytest.raises(TypeError, match="stays in the process that made it"):
        pickle.dumps(own)
    with pytest.raises(
        NotSendable, match=r"node 'inner' cannot go to host 'w1': what it runs cannot travel: .*a Broker"
    ):
        Graph.somatize(node(lambda x: WHICH.forward(x, broker=own)).named("inner").at("w1")).forward(1, broker=own)


def test_threads_that_wait_for_their_turn_can_be_interrupted(own: Broker) -> None:
    def sleeps(x):
        __import__("time").sleep(0.8 if x else 0)
        return x

    graph = Graph.somatize(node(sleeps).at("w1"))
    graph.forward(0, broker=own)
    began = threading.Event()
    answers: list[Any] = []

    def first() -> None:
        answers.append(graph.forward(1, broker=own, watching=lambda fact: began.set()))

    thread = threading.Thread(target=first)
    thread.start()
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        graph.forward(2, broker=own)
    thread.join()
    assert answers == [1]

"""A graph with nodes elsewhere gives what it gives here, and tells where each ran."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from somatize import Broker, Graph, Node, Recorder, Store, node
from somatize.errors import BrokerClosed, NoHost
from somatize.record import facts
from somatize.worker import slice_sender

from .conftest import spawned


def local(**bases: Any) -> Any:
    """Classes as a notebook has them: in no module that a worker could import."""

    class Tokenize(Node):
        def forward(self, text, ctx):
            return [float(len(word)) for word in text.split()]

    class Embed(Node):
        def forward(self, counts, ctx):
            return [n * 0.5 for n in counts]

    class Score(Node):
        def forward(self, values, ctx):
            return sum(values) / len(values)

    return Tokenize, Embed, Score


def tour() -> Graph:
    tokenize, embed, score = local()
    return Graph.somatize(tokenize().named("tokenize") >> embed().named("embed").at("w1") >> score().named("score"))


def told(seen: list[dict[str, str]], *kinds: str) -> list[tuple[str, str | None]]:
    return [(f["fact"], f.get("node")) for f in seen if f["fact"] in kinds]


def test_the_tour_gives_its_value_and_its_facts_in_order() -> None:
    with Broker.embedded({"w1": spawned()}) as broker:
        seen: list[dict[str, str]] = []
        assert tour().forward("the quick brown fox", broker=broker, watching=seen.append) == 2.0
    kinds = [(f["fact"], f.get("node"), f.get("host")) for f in seen]
    assert kinds == [
        ("ran", "tokenize", None),
        ("ran", "embed", "w1"),
        ("left", None, "w1"),
        ("ran", "score", None),
        ("finished", None, None),
    ]
    embed, left = seen[1], seen[2]
    assert int(embed["began_us"]) < int(left["took_us"])


def test_a_recorder_has_it_all(tmp_path: Any, broker: Broker) -> None:
    seen: list[dict[str, str]] = []
    with Store(tmp_path) as store, Recorder(store, run="r") as recorder:
        tour().forward("a b", broker=broker, watching=[seen.append, recorder])
        assert facts(store, "r") == seen


def test_node_objects_live_on_and_each_graph_has_its_own(broker: Broker) -> None:
    class Counts(Node):
        def __init__(self):
            self._seen = 0

        def forward(self, x, ctx):
            self._seen += 1
            return self._seen

    first, second = Graph.somatize(Counts().at("w1")), Graph.somatize(Counts().at("w1"))
    assert [first.forward(0, broker=broker) for _ in range(3)] == [1, 2, 3]
    assert second.forward(0, broker=broker) == 1
    assert first.forward(0, broker=broker) == 4


def test_an_edit_of_a_class_an_attribute_or_a_captured_value_goes_along(broker: Broker) -> None:
    factor = [2]

    class Times(Node):
        def __init__(self, offset):
            self.offset = offset

        def forward(self, x, ctx):
            return x * factor[0] + self.offset

    made = Times(1)
    graph = Graph.somatize(made.at("w1"))
    assert graph.forward(10, broker=broker) == 21
    made.offset = 5
    assert graph.forward(10, broker=broker) == 25
    factor[0] = 3
    assert graph.forward(10, broker=broker) == 35
    Times.forward = lambda self, x, ctx: -x
    assert graph.forward(10, broker=broker) == -10


def test_a_module_whose_weights_are_changed_here_is_sent_again(broker: Broker) -> None:
    import torch

    layer = torch.nn.Linear(2, 1, bias=False)
    graph = Graph.somatize(node(layer).at("w1"))
    x = torch.ones(1, 2)
    with torch.no_grad():
        assert torch.equal(graph.forward(x, broker=broker), layer(x))
        layer.weight.mul_(3)
        assert torch.equal(graph.forward(x, broker=broker), layer(x))


def test_a_node_that_nobody_has_any_more_is_let_go_there(broker: Broker, tmp_path: Path) -> None:
    class Goes(Node):
        def __init__(self, path):
            self.path = path

        def forward(self, x, ctx):
            self._there = True
            return x

        def __del__(self):
            if getattr(self, "_there", False):
                self.path.touch()

    graph = Graph.somatize(Goes(tmp_path / "gone").at("w1"))
    assert graph.forward(1, broker=broker) == 1
    assert Graph.somatize(node(abs).at("w1")).forward(-1, broker=broker) == 1
    assert not (tmp_path / "gone").exists()
    del graph
    gc.collect()
    assert Graph.somatize(node(abs).at("w1")).forward(-1, broker=broker) == 1
    assert (tmp_path / "gone").exists()


def test_more_slices_than_a_worker_remembers(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
    # Else it would take thousands of graphs.
    monkeypatch.setattr(slice_sender, "_MOST", 2)
    graphs = [Graph.somatize(node(lambda x, n=n: x + n).at("w1")) for n in range(5)]
    for _ in range(2):
        assert [graph.forward(10, broker=broker) for graph in graphs] == [10, 11, 12, 13, 14]


def test_functions_and_lambdas_and_objects_with_a_forward(broker: Broker) -> None:
    class Plain:
        def forward(self, x):
            return x + 1

    graph = Graph.somatize(node(lambda x: x * 2).at("w1") >> node(Plain()).at("w1") >> node(abs).at("w2"))
    assert graph.forward(-5, broker=broker) == 9


def test_adjacent_nodes_are_one_trip_and_what_is_read_there_stays_there(broker: Broker) -> None:
    class Stays:
        """Can go nowhere."""

        def __init__(self):
            self.lock = threading.Lock()

    graph = Graph.somatize(
        node(lambda x: Stays()).named("make").at("w1") >> node(lambda x: type(x).__name__).named("name").at("w1")
    )
    seen: list[Any] = []
    assert graph.forward(1, broker=broker, watching=seen.append) == "Stays"
    assert told(seen, "ran", "left") == [("ran", "make"), ("ran", "name"), ("left", None)]


def test_what_is_read_there_again_later_waits_there(broker: Broker) -> None:
    graph = Graph()
    for id, f, host in (
        ("a", lambda x: {"lock": threading.Lock(), "n": x}, "w1"),
        ("size", lambda v: v["n"], "w1"),
        ("b", lambda n: n + 1, None),
        ("c", lambda v: (type(v["a"]["lock"]).__name__, v["b"]), "w1"),
    ):
        graph.node(id, node(f).at(host) if host else node(f))
    for edge in (("a", "size"), ("size", "b"), ("a", "c"), ("b", "c")):
        graph.edge(*edge)
    seen: list[Any] = []
    assert graph.forward(3, broker=broker, watching=seen.append) == ("lock", 4)
    assert len(told(seen, "left")) == 2


def test_slices_for_different_hosts_and_nodes_here_overlap(own: Broker, tmp_path: Path) -> None:
    def meets(place):
        """Ends once all three are in here at the same time."""
        (place / str(os.getpid())).touch()
        until = time.monotonic() + 60
        while len(list(place.iterdir())) < 3:
            assert time.monotonic() < until
            time.sleep(0.001)
        return os.getpid()

    fan = Graph.somatize(
        node(lambda x: x)
        >> (node(meets).named("a").at("w1") | node(meets).named("b").at("w2") | node(meets).named("here"))
    )
    answer = fan.forward(tmp_path, broker=own)
    assert len(set(answer.values())) == 3
    assert answer["here"] == os.getpid()


def test_many_threads_share_a_broker(broker: Broker) -> None:
    graph = Graph.somatize(node(lambda x: x + 1).at("w1") >> node(lambda x: x * 2) >> node(lambda x: x - 1).at("w2"))
    answers: dict[int, int] = {}
    threads = [
        threading.Thread(target=lambda n=n: answers.update({n: graph.forward(n, broker=broker, threads=2)}))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {n: (n + 1) * 2 - 1 for n in range(8)}


def test_a_forward_inside_a_node_there(broker: Broker) -> None:
    inner = Graph.somatize(node(lambda x: x + 1) >> node(lambda x: x * 2))
    seen: list[Any] = []
    assert Graph.somatize(node(inner).at("w1")).forward(3, broker=broker, watching=seen.append) == 8


@pytest.mark.parametrize("threads", [1, 2])
def test_a_missing_entry_is_an_error_before_anything_runs(threads: int, own: Broker) -> None:
    ran: list[int] = []
    graph = Graph.somatize(node(ran.append) >> node(abs).named("far").at("w3"))
    with pytest.raises(NoHost, match=r"node 'far' is to run at host 'w3', and the broker has 'w1', 'w2'"):
        graph.forward(1, broker=own, threads=threads)
    with pytest.raises(NoHost, match="it is a Broker"):
        graph.forward(1, broker={"w3": spawned()}, threads=threads)  # type: ignore[arg-type]
    assert ran == []


def test_nothing_starts_until_work_is_sent_and_close_ends_it(own: Broker) -> None:
    from somatize.worker.process import _PROCESSES

    before = set(_PROCESSES)
    assert Graph.somatize(node(abs)).forward(-1, broker=own) == 1
    assert set(_PROCESSES) <= before
    pid = Graph.somatize(node(lambda x: __import__("os").getpid()).at("w1")).forward(0, broker=own)
    own.close()
    own.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(BrokerClosed):
        Graph.somatize(node(abs).at("w1")).forward(-1, broker=own)


def test_a_hundred_nodes_are_one_message_each_way(broker: Broker) -> None:
    import functools
    import operator

    chain = functools.reduce(operator.rshift, [node(lambda x: x + 1) for _ in range(100)]).at("w1")
    seen: list[Any] = []
    assert Graph.somatize(chain).forward(0, broker=broker, watching=seen.append) == 100
    assert [f["fact"] for f in seen if f["fact"] != "machine"] == ["ran"] * 100 + ["left", "finished"]


def test_facts_come_while_the_slice_runs(broker: Broker, tmp_path: Path) -> None:
    heard = tmp_path / "heard"

    def waits(x, ctx):
        ctx.tell({"fact": "loss", "value": 1})
        until = time.monotonic() + 60
        while not heard.exists():  # made here, by whoever was told
            assert time.monotonic() < until
            time.sleep(0.001)
        return x

    graph = Graph.somatize(node(waits).at("w1"))
    assert graph.forward(1, broker=broker, watching=lambda f: f["fact"] == "loss" and heard.touch()) == 1


def test_entering_and_progress_come_too(broker: Broker) -> None:
    class Sink:
        def __init__(self):
            self.said: list[Any] = []

        def opens(self, graph):
            return self

        def tell(self, fact):
            if fact["fact"] != "machine":
                self.said.append(fact["fact"])

        def entering(self, id, host=None):
            self.said.append(("entering", id, host))

        def progress(self, id, done, total):
            self.said.append(("progress", id, done, total))

    def steps(x, ctx):
        ctx.progress(1, 2)
        ctx.tell({"fact": "loss", "value": 1})
        ctx.progress(2, 2)
        return x

    sink = Sink()
    Graph.somatize(node(steps).named("a") >> node(steps).named("b").at("w1")).forward(1, broker=broker, watching=sink)
    each = [("progress", "{}", 1, 2), "loss", ("progress", "{}", 2, 2), "ran"]
    wanted = [("entering", "a", None)] + [e if isinstance(e, str) else ("progress", "a", *e[2:]) for e in each]
    wanted += [("entering", "b", "w1")] + [e if isinstance(e, str) else ("progress", "b", *e[2:]) for e in each]
    assert sink.said == [*wanted, "left", "finished"]

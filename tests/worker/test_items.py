"""Kept results and mapped nodes at hosts: this side's store decides, and only what is unseen is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from somatize import Broker, Graph, Store, Worker, node
from somatize.errors import NoItems, NotSendable

from .conftest import spawned


@pytest.fixture(scope="module")
def pool() -> Iterator[Broker]:
    with Broker.embedded({"w1": spawned(), "pool": [spawned(), spawned()]}) as made:
        yield made


def kinds(seen: list[dict[str, str]], *without: str) -> list[tuple[str, str | None, str | None]]:
    return [(f["fact"], f.get("node"), f.get("host")) for f in seen if f["fact"] not in ("machine", *without)]


def slow_square(x):
    return x * x


slow_square.__module__ = "__main__"


def test_what_is_kept_is_found_before_anything_is_sent(pool: Broker, tmp_path: Path) -> None:
    graph = Graph.somatize(
        (node(lambda x: x + 1).named("a") >> node(slow_square).named("b").at("w1").cached()).frozen()
        >> node(lambda x: -x).named("c").at("w1")
    )
    with Store(tmp_path) as store:
        first: list[Any] = []
        assert graph.forward(3, broker=pool, store=store, watching=first.append) == -16
        assert kinds(first) == [
            ("ran", "a", None),
            ("ran", "b", "w1"),
            ("ran", "c", "w1"),
            ("left", None, "w1"),
            ("kept", "b", "w1"),
            ("finished", None, None),
        ]
        second: list[Any] = []
        assert graph.forward(3, broker=pool, store=store, watching=second.append) == -16
        assert kinds(second) == [
            ("recalled", "b", None),
            ("ran", "c", "w1"),
            ("left", None, "w1"),
            ("finished", None, None),
        ]
        only = Graph.somatize(
            (node(lambda x: x + 1).named("a") >> node(slow_square).named("b").at("w1").cached()).frozen()
        )
        with Broker.embedded({"w1": Worker.spawn(["false"])}) as untouched:  # which could not be started
            assert only.forward(3, broker=untouched, store=store) == 16


def test_a_mapped_node_is_a_part_of_its_slice(pool: Broker) -> None:
    graph = Graph.somatize(
        node(lambda n: list(range(n))).named("make").at("w1")
        >> node(slow_square).named("square").at("w1").mapped()
        >> node(sum).named("sum").at("w1")
    )
    seen: list[Any] = []
    assert graph.forward(5, broker=pool, watching=seen.append) == 30
    assert kinds(seen) == [
        ("ran", "make", "w1"),
        ("items", "square", "w1"),
        ("ran", "square", "w1"),
        ("ran", "sum", "w1"),
        ("left", None, "w1"),
        ("finished", None, None),
    ]


@pytest.mark.parametrize("host", ["w1", "pool"])
def test_only_unseen_items_of_a_kept_mapped_node_are_sent(host: str, pool: Broker, tmp_path: Path) -> None:
    graph = Graph.somatize(node(slow_square).named("square").at(host).mapped().cached().frozen())
    with Store(tmp_path) as store:
        for given, ran, recalled in ((range(10), 10, 0), (range(5, 15), 5, 5), (range(15), 0, 15)):
            seen: list[dict[str, str]] = []
            answer = graph.forward(list(given), broker=pool, store=store, watching=seen.append)
            assert answer == [n * n for n in given]
            (items,) = [f for f in seen if f["fact"] == "items"]
            assert (items["ran"], items["recalled"]) == (str(ran), str(recalled))


def test_a_pool_shares_the_items_and_keeps_their_order(pool: Broker) -> None:
    def who(x):
        import os
        import time

        time.sleep(0.01)
        return x, os.getpid()

    graph = Graph.somatize(node(lambda n: range(n)) >> node(who).named("who").at("pool").mapped())
    seen: list[dict[str, str]] = []
    answer = graph.forward(40, broker=pool, watching=seen.append)
    assert [x for x, _ in answer] == list(range(40))
    assert len({pid for _, pid in answer}) == 2
    told = kinds(seen, "machine")
    assert told[1:] == [
        ("items", "who", "pool"),
        ("ran", "who", "pool"),
        ("left", None, "pool"),
        ("finished", None, None),
    ]
    assert len({f["id"] for f in seen if f["fact"] == "machine"}) <= 2


def test_one_graph_is_cut_for_each_broker_as_that_has_workers(pool: Broker) -> None:
    def who(x):
        import os
        import time

        time.sleep(0.01)
        return os.getpid()

    graph = Graph.somatize(node(who).named("who").at("pool").mapped())
    with Broker.embedded({"pool": spawned()}) as single:
        assert len(set(graph.forward(range(20), broker=single))) == 1
    assert len(set(graph.forward(range(20), broker=pool))) == 2


@pytest.mark.parametrize("host", ["w1", "pool"])
def test_items_that_succeeded_before_one_failed_are_kept(host: str, pool: Broker, tmp_path: Path) -> None:
    def picky(x):
        if x == 7:
            raise ValueError("seven")
        return x

    graph = Graph.somatize(node(picky).named("picky").at(host).mapped().cached().frozen())
    with Store(tmp_path) as store:
        seen: list[dict[str, str]] = []
        with pytest.raises(ValueError, match="seven") as raised:
            graph.forward(list(range(10)), broker=pool, store=store, watching=seen.append)
        assert raised.value.__notes__[-1] == "at item 7, in node 'picky', step 1 of 1"
        assert [f["fact"] for f in seen if f["fact"] != "machine"] == ["items", "failed", "kept", "broke"]
        assert all(f["host"] == host for f in seen if f["fact"] in ("items", "failed"))
        seen.clear()
        assert graph.forward(list(range(7)), broker=pool, store=store, watching=seen.append) == list(range(7))
        (items,) = [f for f in seen if f["fact"] == "items"]
        assert items["ran"] == "0"


def test_batches_and_generators(pool: Broker) -> None:
    def sizes(batch):
        return [len(batch)] * len(batch)

    graph = Graph.somatize(node(lambda n: (i for i in range(n))) >> node(sizes).at("pool").mapped(batch=4))
    assert graph.forward(10, broker=pool) == [4] * 8 + [2] * 2
    assert Graph.somatize(node(sizes).at("pool").mapped()).forward([], broker=pool) == []


def test_an_item_or_an_answer_that_cannot_travel_is_said_so_and_the_others_are_kept(
    pool: Broker, tmp_path: Path
) -> None:
    def odd(x):
        return (n for n in ()) if x == 3 else x

    items = node(odd).named("odd").frozen().cached().at("w1").mapped()
    with Store(tmp_path) as store:
        with pytest.raises(NotSendable, match="what the node returned cannot come back: generator") as raised:
            Graph.somatize(items).forward([1, 2, 3, 4], broker=pool, store=store)
        assert raised.value.__notes__[-1] == "at item 2, in node 'odd', step 1 of 1"
        seen: list[Any] = []
        assert Graph.somatize(items).forward([1, 2, 5], broker=pool, store=store, watching=seen.append) == [1, 2, 5]
        (counts,) = [fact for fact in seen if fact["fact"] == "items"]
        assert (counts["recalled"], counts["ran"]) == ("2", "1")
    lock = threading.Lock()
    with pytest.raises(NotSendable, match=r"an item of node 'far' cannot go to host 'pool': lock cannot travel"):
        Graph.somatize(node(abs).named("far").at("pool").mapped()).forward([-1, lock], broker=pool)


@pytest.mark.parametrize("host", ["w1", "pool"])
def test_a_text_is_refused_there_too(host: str, pool: Broker) -> None:
    graph = Graph.somatize(node(lambda text: text.upper()).named("shout").at(host).mapped())
    with pytest.raises(NoItems, match="node 'shout' is mapped and was given a str, whose items would be its char"):
        graph.forward("text", broker=pool)

"""An iterator that two nodes read is refused, with both their names: the second would find it used up."""

from __future__ import annotations

import csv
import io
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from somatize import Broker, Graph, node
from somatize.errors import GraphError
from tests.worker.conftest import spawned


class Numbers:
    """An iterator by hand."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Numbers:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at > 3:
            raise StopIteration
        return self.at


class BeginsAnew(Numbers):
    def __iter__(self) -> Numbers:
        self.at = 0
        return self


class Rows(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: int) -> int:
        return at


_CONNECTION = sqlite3.connect(":memory:")


def _file(folder: Path) -> Any:
    (folder / "file.txt").write_text("a\nb\n")
    return (folder / "file.txt").open()


ONE_SHOT: dict[str, Callable[[Path], Any]] = {
    "generator": lambda _: (n for n in range(3)),
    "list_iterator": lambda _: iter([1, 2, 3]),
    "map": lambda _: map(str, [1, 2]),
    "zip": lambda _: zip([1], [2], strict=True),
    "enumerate": lambda _: enumerate("ab"),
    "reversed": lambda _: reversed([1, 2]),
    "file": _file,
    "bytes file": lambda _: io.BytesIO(b"a\nb"),
    "temporary file": lambda _: tempfile.NamedTemporaryFile(),  # noqa: SIM115
    "reader": lambda _: csv.reader(["a,b"]),
    "cursor": lambda _: _CONNECTION.execute("select 1"),
    "by hand": lambda _: Numbers(),
    "loader": lambda _: iter(torch.utils.data.DataLoader(Rows())),
}

AGAIN: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, 2, 3],
    "range": lambda: range(3),
    "dict": lambda: {1: 2},
    "begins anew": BeginsAnew,
    "loader": lambda: torch.utils.data.DataLoader(Rows()),
    "text": lambda: "abc",
    "in a list": lambda: [iter([1])],
}


def count(values: Any) -> int:
    return len(list(values))


@pytest.mark.parametrize("how", [{}, {"watching": []}, {"threads": 2}, {"threads": 2, "watching": []}])
@pytest.mark.parametrize("kind", ONE_SHOT)
def test_an_iterator_with_two_readers_is_refused(kind: str, how: dict[str, Any], tmp_path: Path) -> None:
    told: list[dict[str, str]] = []
    how = {**how, "watching": told.append} if "watching" in how else how
    value = ONE_SHOT[kind](tmp_path)
    ran: list[str] = []
    readers = node(lambda v: ran.append("a")).named("a") | node(lambda v: ran.append("b")).named("b")
    words = r"a one-shot iterator \(\w+\), which 'a' and 'b' read: the first would leave nothing for the others"
    with pytest.raises(GraphError, match=f"node 'src' returned {words}"):
        Graph.somatize(node(lambda _: value).named("src") >> readers).forward(0, **how)
    if told:
        assert [(fact["fact"], fact.get("node")) for fact in told] == [("failed", "src"), ("broke", None)]
    with pytest.raises(GraphError, match=f"the graph was given {words}"):
        Graph.somatize(readers).forward(value, **how)
    assert ran == []
    if hasattr(value, "close"):
        value.close()


@pytest.mark.parametrize("kind", AGAIN)
def test_what_begins_anew_is_read_by_both(kind: str) -> None:
    value = AGAIN[kind]()
    graph = Graph.somatize(node(lambda _: value).named("src") >> (node(count).named("a") | node(count).named("b")))
    answer = graph.forward(0)
    assert answer["a"] == answer["b"] > 0


@pytest.mark.parametrize("kind", ["generator", "by hand"])
def test_one_reader_reads_it(kind: str, tmp_path: Path) -> None:
    value = ONE_SHOT[kind](tmp_path)
    assert Graph.somatize(node(lambda _: value) >> node(count)).forward(0) == 3
    again = ONE_SHOT[kind](tmp_path)
    assert Graph.somatize(node(count)).forward(again) == 3


@pytest.mark.parametrize("how", [{}, {"watching": [].append}, {"threads": 2}])
def test_leaves_that_return_the_same_one_are_refused(how: dict[str, Any]) -> None:
    iterator: Iterator[int] = iter([1, 2])
    leaves = node(lambda _: iterator).named("a") | node(lambda _: 1).named("b") | node(lambda _: iterator).named("c")
    with pytest.raises(GraphError, match="the leaves 'a' and 'c' returned one and the same list_iterator"):
        Graph.somatize(leaves).forward(0, **how)
    same = [1]
    both = Graph.somatize(node(lambda _: same).named("a") | node(lambda _: same).named("b"))
    assert both.forward(0, **how) == {"a": [1], "b": [1]}


def test_at_a_host_too() -> None:
    source = node(lambda _: iter([1, 2, 3])).named("src")  # which, unlike a generator, can travel
    a, b = node(count).named("a"), node(count).named("b")
    with Broker.embedded({"w1": spawned(send=[__name__]), "w2": spawned(send=[__name__])}) as broker:
        for graph in (
            source.at("w1") >> (a.at("w1") | b.at("w1")),
            source.at("w1") >> (a.at("w1") | b.at("w2")),
            source.at("w1") >> (a | b),
            source >> (a.at("w1") | b.at("w2")),
        ):
            with pytest.raises(GraphError, match=r"node 'src' returned a one-shot iterator .*'a' and 'b'"):
                Graph.somatize(graph).forward(0, broker=broker)
        with pytest.raises(GraphError, match=r"the graph was given a one-shot iterator .*'a' and 'b'"):
            Graph.somatize(a.at("w1") | b.at("w2")).forward(iter([1]), broker=broker)
        one = Graph.somatize(source.at("w1") >> a.at("w2"))
        assert one.forward(0, broker=broker) == 3

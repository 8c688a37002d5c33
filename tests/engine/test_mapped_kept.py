"""Answers of quick items are written down together, and none of them is lost by it."""

from __future__ import annotations

import threading

import pytest

from somatize import Graph, Node, Store
from somatize.errors import KeepWarning, StoreError


class Square(Node):
    __unkeyed__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: list[int] = []

    def forward(self, item, ctx):
        self._seen.append(item)
        if item < 0:
            raise ValueError(item)
        return item * item


class Squares(Node):
    def forward(self, items, ctx):
        return [item * item for item in items]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "kept") as opened:
        yield opened


def mapped(thing, batch=None):
    return Graph.somatize(thing.named("square").frozen().mapped(batch=batch).cached())


def counting(store, monkeypatch):
    """How many transactions were written, in a list of one for each."""
    # Transactions are counted where they are written: how many there were shows nowhere else.
    written, write = [], store.opened.values.write
    monkeypatch.setattr(store.opened.values, "write", lambda work: written.append(None) or write(work))
    return written


@pytest.mark.parametrize(("thing", "batch"), [(Square(), None), (Squares(), 64)])
def test_quick_items_do_not_wait_for_the_disk_one_by_one(store: Store, monkeypatch, thing, batch) -> None:
    written = counting(store, monkeypatch)
    # How items are gathered depends on how long they take.
    clock = iter(range(10**6))
    monkeypatch.setattr("somatize.engine.items.monotonic", lambda: next(clock) * 1e-3)  # a millisecond an item
    assert mapped(thing, batch).forward(range(500), store=store) == [item * item for item in range(500)]
    kept = store.kept(node="square")
    assert sum("item" in entry.meta for entry in kept) == 500
    assert len(written) <= 500 // 50 + 5  # once in 50 ms, and what is noted of use
    assert store.check() == []


def test_those_of_a_slow_node_are_kept_one_by_one(store: Store, monkeypatch) -> None:
    written = counting(store, monkeypatch)
    clock = iter(range(10**6))
    monkeypatch.setattr("somatize.engine.items.monotonic", lambda: float(next(clock)))
    mapped(Square()).forward(range(5), store=store)
    assert len(written) == 6  # and the names of all


def test_what_was_answered_before_one_fails_is_kept(store: Store) -> None:
    square, seen = Square(), []
    with pytest.raises(ValueError, match="-1"):
        mapped(square).forward([1, 2, 3, -1, 4], store=store, watching=seen.append)
    kept = [fact for fact in seen if fact["fact"] == "kept"]
    assert [fact["bytes"] for fact in kept] == [str(sum(entry.bytes for entry in store.kept(node="square")))]
    again = Square()
    assert mapped(again).forward([1, 2, 3, 4], store=store) == [1, 4, 9, 16]
    assert again._seen == [4]


def test_the_same_item_again_is_found_where_the_first_still_waits_to_be_written(store: Store) -> None:
    square = Square()
    assert mapped(square).forward([3, 3, 3, 5, 3], store=store) == [9, 9, 9, 25, 9]
    assert square._seen == [3, 5]


def test_threads_with_the_same_items_in_another_order_compute_each_once_and_none_waits_for_ever(store: Store) -> None:
    both = threading.Barrier(2)
    square, answers = Square(), {}

    def forward(name, given):
        both.wait()
        answers[name] = mapped(square).forward(given, store=store)

    orders = {"up": list(range(300)), "down": list(range(299, -1, -1))}
    threads = [threading.Thread(target=forward, args=order) for order in orders.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {name: [item * item for item in order] for name, order in orders.items()}
    assert sorted(square._seen) == list(range(300))


def test_where_they_cannot_be_written_they_are_handed_on_with_one_notice(store: Store, monkeypatch) -> None:
    def refuses(entries):
        raise StoreError("the disk is full")

    # A disk that is full only now cannot be had.
    monkeypatch.setattr(store, "keep_all", refuses)
    seen = []
    with pytest.warns(KeepWarning, match="results of items of node 'square' could not be kept.*the disk is full"):
        assert mapped(Square()).forward([1, 2], store=store, watching=seen.append) == [1, 4]
    assert [fact["fact"] for fact in seen] == ["items", "ran", "finished"]
    assert store.kept(node="square") == []

"""What changes between the naming of a node and its run is not kept, and one warning says who shared it."""

from __future__ import annotations

import copy
import threading
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize import Graph, Node, Store, node
from somatize.codecs import tensors
from somatize.engine.result_cache import CLAIMS
from somatize.errors import KeepWarning
from tests.engine.conftest import told

CONFIG = {"by": 2}


def total(x):
    return float(x.sum())


def centre(x):
    x -= x.mean()
    return x


def same(x):
    return x


def kept(thing, id):
    return node(thing).named(id).frozen().cached()


def frozen(thing, id):
    return node(thing).named(id).frozen()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_input_that_a_sibling_changed_first_is_not_kept_and_the_sibling_is_named(store, threads):
    graph = Graph.somatize(frozen(centre, "centre") | kept(total, "total"))
    if threads == 1:
        _, kinds, said = told(graph, np.ones(3), store)
        assert "kept total" not in kinds
        (sentence,) = said
        assert "'total' is not kept" in sentence
        assert "'centre'" in sentence
    else:
        told(graph, np.ones(3), store, threads=2)
    assert told(Graph.somatize(kept(total, "total")), np.ones(3), store)[0] == 3.0


def test_it_is_kept_where_the_sibling_runs_after(store):
    graph = Graph.somatize(kept(total, "total") | frozen(centre, "centre"))
    assert told(graph, np.ones(3), store)[1:] == (["ran total", "kept total", "ran centre"], [])
    assert told(graph, np.ones(3), store)[1] == ["recalled total", "ran centre"]


class TestValuesOnEdges:
    def test_one_that_another_reader_changed(self, store):
        make = frozen(lambda n: np.ones(n), "make")
        graph = Graph.somatize(make >> (frozen(centre, "centre") | kept(total, "total")))
        _, kinds, said = told(graph, 3, store)
        assert "kept total" not in kinds
        assert ["'make'" in one and "'centre'" in one and "'total'" in one for one in said] == [True]
        assert told(Graph.somatize(make >> kept(total, "total")), 3, store)[0] == 3.0

    def test_one_that_was_recalled_and_then_changed(self, store):
        make = kept(lambda n: np.ones(n), "make")
        Graph.somatize(make).forward(3, store=store)
        graph = Graph.somatize(make >> (frozen(centre, "centre") | kept(total, "total")))
        _, kinds, said = told(graph, 3, store)
        assert kinds == ["recalled make", "ran centre", "ran total"]
        assert len(said) == 1
        assert told(graph, 3, store)[2] == []  # said once
        assert told(Graph.somatize(make >> kept(total, "total")), 3, store)[0] == 3.0

    def test_one_that_shares_memory_with_another_value(self, store):
        ends = frozen(centre, "centre"), kept(total, "total")
        left, right = frozen(lambda x: x[:2], "left"), frozen(lambda x: x[1:], "right")
        graph = Graph.somatize((left >> ends[0]) | (right >> ends[1]))
        _, _, said = told(graph, np.arange(3.0), store)
        alone = Graph.somatize(right >> ends[1])
        assert told(alone, np.arange(3.0), store)[0] == 3.0
        assert len(said) == 1

    def test_what_follows_one_that_is_not_what_its_name_says_is_not_kept_either(self, store):
        chain = frozen(same, "same") >> kept(total, "total") >> kept(lambda x: x + 1, "more")
        graph = Graph.somatize(frozen(centre, "centre") | chain)
        _, kinds, said = told(graph, np.ones(3), store)
        assert [one for one in kinds if one.startswith("kept")] == []
        assert sorted(one.split("'")[1] for one in said) == ["more", "total"]
        assert told(Graph.somatize(chain), np.ones(3), store)[0] == 4.0

    def test_several_that_are_handed_over_together(self, store):
        ones = frozen(lambda n: np.ones(n), "ones")
        both = kept(lambda values: total(values["ones"]) + values["two"], "both")
        graph = Graph()
        for part in (ones, frozen(lambda n: 2, "two"), frozen(centre, "centre"), both):
            graph.node(part)
        for edge in (("ones", "centre"), ("ones", "both"), ("two", "both")):
            graph.edge(*edge)
        _, kinds, said = told(graph, 3, store)
        assert "kept both" not in kinds
        assert len(said) == 1
        assert "'centre'" in said[0]

    @pytest.mark.parametrize("shared", [True, False])
    def test_one_that_cannot_be_compared_is_trusted_only_where_nobody_else_has_it(self, store, shared):
        class Handle:
            __slots__ = ("lock", "number")

            def __init__(self, number):
                self.number, self.lock = number, threading.Lock()

        def spoil(handle):
            handle.number = 0

        read = kept(lambda handle: handle.number, "read")
        opened = frozen(lambda n: Handle(n), "open")
        if shared:
            graph = Graph.somatize(opened >> (frozen(spoil, "spoil") | read))
        else:
            graph = Graph.somatize((opened >> read) | frozen(same, "beside"))
        _, kinds, said = told(graph, 3, store)
        assert ("kept read" in kinds) is not shared
        assert len(said) == shared
        assert told(Graph.somatize(opened >> read), 3, store)[0] == 3


def made_with(n):
    def made():
        return n

    made.n = n
    return made


def closing_over(n):
    held = {"x": n}
    return (lambda: held["x"]), (lambda value: held.update(x=value))


class Box:
    def __init__(self, x):
        self._x, self.y = x, [x]

    def get(self):
        return self._x


KINDS = {
    "a private attribute": (lambda n: Box(n), lambda box: setattr(box, "_x", 9), lambda box: box._x),
    "within an attribute": (lambda n: Box(n), lambda box: box.y.append(9), lambda box: [*box.y]),
    "what a method is bound to": (lambda n: Box(n).get, lambda get: setattr(get.__self__, "_x", 9), lambda get: get()),
    "a closure": (closing_over, lambda pair: pair[1](9), lambda pair: pair[0]()),
    "a function's attribute": (made_with, lambda made: setattr(made, "n", 9), lambda made: made.n),
    "the order of a dict": (lambda n: {"a": n, "b": n}, lambda d: d.update(a=d.pop("a")), lambda d: [*d]),
    "two views": (
        lambda n: (lambda x: (x[:n], x[1:]))(np.arange(float(n))),
        lambda pair: pair[0].fill(9),
        lambda pair: pair[1].tolist(),
    ),
    "a shape": (
        lambda n: np.arange(6).reshape(n, 2),
        lambda x: x.resize((2, 3), refcheck=False),
        lambda x: x.tolist(),
    ),
    "a tensor's data": (lambda n: torch.ones(n), lambda x: x.data.zero_() is None, lambda x: x.tolist()),
    "a tensor's gradient": (lambda n: torch.ones(n), lambda x: setattr(x, "grad", x * 2), lambda x: x.grad is None),
    "a mode": (lambda n: torch.nn.Linear(n, 1), lambda net: net.eval() and None, lambda net: net.training),
    "objects in an array": (
        lambda n: np.array([[1], [2, n]], dtype=object),
        lambda x: x[0].append(9),
        lambda x: [*x[0]],
    ),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("threads", [1, 2])
def test_a_change_of_any_kind_of_value_is_seen(store, kind, threads):
    make, spoil, read = (node(thing).frozen() for thing in KINDS[kind])
    make, spoil, read = make.named("make"), spoil.named("spoil"), read.named("read").cached()
    _, kinds, said = told(Graph.somatize(make >> (spoil | read)), 3, store, threads=threads)
    if threads == 1:
        assert "kept read" not in kinds
        assert ["'make'" in one and "'spoil'" in one for one in said] == [True]
    alone = Graph.somatize(make >> read)
    answer, kinds, _ = told(alone, 3, store)
    assert answer == alone.forward(3)


class TestTheNodeItself:
    def test_a_captured_value_that_a_node_before_changed(self, store):
        settings = {"by": 2}

        def turn(x):
            settings["by"] = 3
            return x

        graph = Graph.somatize(frozen(turn, "turn") >> kept(lambda x: x * settings["by"], "times"))
        answer, kinds, said = told(graph, 1, store)
        assert (answer, kinds) == (3, ["ran turn", "ran times"])
        assert len(said) == 1
        assert "settings" in said[0]
        assert "'turn'" in said[0]
        settings["by"] = 2
        assert Graph.somatize(frozen(same, "turn") >> kept(lambda x: x * settings["by"], "times")).forward(1) == 2

    def test_a_global_that_a_node_before_changed(self, store, monkeypatch):
        monkeypatch.setitem(globals(), "CONFIG", {"by": 2})

        def turn(x):
            CONFIG["by"] = 5
            return x

        graph = Graph.somatize(frozen(turn, "turn") | kept(lambda x: x * CONFIG["by"], "times"))
        answer, kinds, said = told(graph, 1, store)
        assert answer["times"] == 5
        assert "kept times" not in kinds
        assert len(said) == 1

    def test_the_state_of_a_module_that_a_node_before_changed(self, store):
        net = torch.nn.Linear(1, 1, bias=False).requires_grad_(False)
        net.weight.data.fill_(1)

        def halve(x):
            net.weight.data.mul_(0.5)  # which raises no version
            return x

        net_node = node(net).named("net").frozen().cached()
        graph = Graph.somatize(frozen(halve, "halve") >> net_node)
        answer, kinds, said = told(graph, torch.ones(1, 1), store)
        assert float(answer) == 0.5
        assert "kept net" not in kinds
        assert "state" in said[0]
        net.weight.data.fill_(1)
        assert float(Graph.somatize(frozen(same, "halve") >> net_node).forward(torch.ones(1, 1), store=store)) == 1.0

    def test_a_mode_that_a_node_before_set(self, store):
        def half(x):
            torch.set_default_dtype(torch.float64)
            return x

        graph = Graph.somatize(frozen(half, "half") >> kept(lambda n: str(torch.ones(n).dtype), "made"))
        try:
            answer, kinds, said = told(graph, 1, store)
        finally:
            torch.set_default_dtype(torch.float32)
        assert answer == "torch.float64"
        assert "kept made" not in kinds
        assert "default dtype" in said[0]

    def test_what_it_changes_of_its_own_is_filed_under_what_was_handed_in(self, store):
        """C018."""

        def pad(xs, seen=[]):  # noqa: B006  a mutable default is a part of the case
            xs.extend([0, 0])
            seen.append(len(xs))
            return xs

        graph = Graph.somatize(kept(pad, "pad") >> frozen(len, "length"))
        assert told(graph, [5], store)[1:] == (["ran pad", "kept pad", "ran length"], [])

    @pytest.mark.parametrize("threads", [1, 2])
    def test_one_that_changes_its_own_input_is_kept_also_with_threads_if_it_runs_alone(self, store, threads):
        graph = Graph.somatize(kept(centre, "centre") >> kept(total, "total"))
        facts = told(graph, np.arange(3.0), store, threads=threads)[1:]
        assert facts == (["ran centre", "kept centre", "ran total", "kept total"], [])
        assert told(graph, np.arange(3.0), store, threads=threads)[1] == ["recalled total"]


@pytest.mark.parametrize("threads", [1, 4])
def test_a_miss_names_what_it_is_given_at_most_twice_and_what_nobody_else_has_not_at_all(store, monkeypatch, threads):
    hashed, named = [], tensors.named_apart
    # How often a value is hashed shows nowhere else.
    monkeypatch.setattr(tensors, "named_apart", lambda tensor: hashed.append(tuple(tensor.shape)) or named(tensor))
    graph = Graph.somatize(kept(lambda x: x[:2] * 1, "a") >> kept(lambda x: x[:1] * 1, "b"))
    graph.forward(torch.ones(3), store=store, threads=threads)
    assert [shape for shape in hashed if shape != (3,)] == []
    assert len(hashed) <= 2
    hashed.clear()
    graph.forward(torch.ones(3), store=store, threads=threads)
    assert hashed == [(3,)]


def test_an_input_changed_by_a_node_that_runs_beside_is_not_kept(store):
    begun, changed = threading.Event(), threading.Event()

    def slow(x):
        begun.set()
        assert changed.wait(20)
        return float(x.sum())

    def spoil(x):
        assert begun.wait(20)
        x[:] = 0
        changed.set()

    graph = Graph.somatize(kept(slow, "slow") | frozen(spoil, "spoil"))
    answer, kinds, said = told(graph, np.ones(3), store, threads=2)
    assert answer["slow"] == 0.0
    assert "kept slow" not in kinds
    assert len(said) == 1
    assert "'spoil'" in said[0]
    assert "beside" in said[0]
    assert store.kept() == []


def test_where_a_kept_result_is_damaged_it_is_made_again_and_kept_at_the_latest_by_the_next_forward(store):
    make = frozen(lambda n: np.arange(float(n)), "make")
    graph = Graph.somatize(make >> (frozen(centre, "centre") | kept(lambda x: x + 1, "more")))
    Graph.somatize(make >> kept(lambda x: x + 1, "more")).forward(200_000, store=store)
    (file,) = (store.path / "files").iterdir()
    file.write_bytes(file.read_bytes()[:-8] + bytes(8))
    told(graph, 200_000, store)
    alone = Graph.somatize(make >> kept(lambda x: x + 1, "more"))
    for _ in range(2):
        assert told(alone, 200_000, store)[0][-1] == 200_000.0


class TestForwardsAtTheSameTime:
    """Two threads of one process, each with a forward of its own."""

    def both(self, store, first, second, inputs):
        """`first` waits in the middle of its run until the graph of `second` ran."""
        begun, over = threading.Event(), threading.Event()

        def slow(x):
            begun.set()
            assert over.wait(20)
            return first(x)

        graph, found = Graph.somatize(kept(slow, "slow")), []
        thread = threading.Thread(target=lambda: found.append(told(graph, inputs[0], store)))
        thread.start()
        assert begun.wait(20)
        Graph.somatize(frozen(second, "second") | kept(same, "same")).forward(inputs[1], store=store)
        over.set()
        thread.join(20)
        return found[0]

    def test_an_input_that_another_forward_changes_is_not_kept(self, store):
        x = np.ones(3)
        answer, kinds, _ = self.both(store, total, lambda x: x.fill(0), [x, x])
        assert (answer, kinds) == (0.0, ["ran slow"])

    def test_captured_values_that_another_forward_changes(self, store):
        captured = {"by": 2}

        def times(x):
            return x * captured["by"]

        answer, kinds, _ = self.both(store, times, lambda x: captured.update(by=3), [1, 1])
        assert (answer, kinds) == (3, ["ran slow"])

    def test_one_that_changes_an_input_of_its_own_is_kept(self, store):
        answer, kinds, _ = self.both(store, centre, lambda x: x.fill(0), [np.arange(3.0), np.arange(3.0)])
        assert (answer.tolist(), kinds) == ([-1.0, 0.0, 1.0], ["ran slow", "kept slow"])


def test_who_waited_for_another_thread_that_failed_compares_before_it_runs(store, monkeypatch):
    started, go, waiting, wait = threading.Event(), threading.Event(), threading.Event(), CLAIMS.wait
    # The first thread goes on only when the second one waits for it.
    monkeypatch.setattr(CLAIMS, "wait", lambda name: (waiting.set(), wait(name))[1])
    lists = [[1, 2], [1, 2]]
    calls = []

    class Once(Node):
        __unkeyed__ = ("_do",)

        def forward(self, value, ctx):
            return self._do(value)

    def do(value):
        calls.append(list(value))
        if len(calls) == 1:
            started.set()
            assert go.wait(20)
            raise ValueError("the first")
        return sum(value)

    once = Once()
    once._do = do
    graph = Graph.somatize(once.named("once").frozen("settled").cached())
    answers = []

    def first():
        with pytest.raises(ValueError, match="the first"):
            graph.forward(lists[0], store=store)

    def second():
        answers.append(graph.forward(lists[1], store=store))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert started.wait(20)
    threads[1].start()
    assert waiting.wait(20)
    lists[1].append(100)
    go.set()
    for thread in threads:
        thread.join(20)
    assert answers == [103]
    assert store.kept() == []


class TestMapped:
    def test_items_made_in_one_buffer_are_not_kept_as_what_they_were(self, store):
        def reusing():
            buffer = np.zeros(1)
            for number in range(4):
                buffer[:] = number
                yield buffer

        class Doubles(Node):
            def forward(self, items, ctx):
                return [float(item[0]) * 2 for item in items]

        graph = Graph.somatize(Doubles().named("doubles").frozen().mapped(batch=4).cached())
        answer, _, said = told(graph, reusing(), store)
        assert answer == [6.0] * 4  # what running it gives without a store, too
        assert len(said) == 1
        assert told(graph, [np.array([float(number)]) for number in range(4)], store)[0] == [0.0, 2.0, 4.0, 6.0]

    def test_the_same_item_as_one_that_changed_is_run_for_itself(self, store):
        def spoiling():
            first = np.zeros(1)
            yield first
            yield np.zeros(1)
            first[:] = 9

        class Doubles(Node):
            def forward(self, items, ctx):
                return [float(item[0]) * 2 for item in items]

        graph = Graph.somatize(Doubles().named("doubles").frozen().mapped(batch=4).cached())
        assert told(graph, spoiling(), store)[0] == [18.0, 0.0]
        assert told(graph, [np.array([9.0]), np.zeros(1)], store)[0] == [18.0, 0.0]

    def test_items_that_a_node_before_changed_are_kept_as_they_are_and_the_whole_is_not(self, store):
        def spoil(items):
            for item in items:
                item *= 0

        each = node(total).named("each").frozen().mapped().cached()
        graph = Graph.somatize(frozen(spoil, "spoil") | each)
        answer, _, said = told(graph, [np.ones(2), np.ones(3)], store)
        assert answer["each"] == [0.0, 0.0]
        assert len(said) == 1
        assert "only its items are" in said[0]
        alone = Graph.somatize(each)
        assert told(alone, [np.ones(2), np.ones(3)], store)[0] == [2.0, 3.0]
        assert told(alone, [np.zeros(2)], store)[1] == ["recalled each"]

    def test_items_that_overlap_and_are_changed_are_what_running_them_gives(self, store):
        def windows(n):
            x = np.arange(float(n))
            return [x[at : at + 2] for at in range(n - 1)]

        graph = Graph.somatize(
            frozen(windows, "windows") >> node(lambda w: centre(w).tolist()).named("each").frozen().mapped().cached()
        )
        plain = graph.forward(4)
        assert graph.forward(4, store=store) == plain
        assert graph.forward(4, store=store) == plain

    @pytest.mark.parametrize("how", [{}, {"keeping": False}])
    def test_equal_items_have_answers_of_their_own(self, store, how):
        def touch(answers):
            for answer in answers:
                answer.append(2)
            return answers

        graph = Graph.somatize(
            node(lambda item: [*item]).named("each").frozen().mapped().cached() >> frozen(touch, "touch")
        )
        for _ in range(2):
            assert graph.forward([[1], [1], [3]], store=store, **how) == [[1, 2], [1, 2], [3, 2]]

    def test_what_the_node_is_made_of_changing_from_item_to_item_is_not_kept(self, store):
        seen = []

        def count(item):
            seen.append(item)
            return len(seen)

        graph = Graph.somatize(node(count).named("count").frozen().mapped().cached())
        assert told(graph, ["a", "b"], store)[0] == [1, 2]
        seen.clear()
        assert told(graph, ["b"], store)[0] == [1]


# Programs in which any node may change what it was given: what is kept is what running gives.


def add(x):
    x.append(1)
    return x


def double(x):
    x[:] = [2 * one for one in x]
    return x


def copied(x):
    return [*x, 7]


def summed(x):
    return [sum(x)]


ACTIONS = {"add": add, "double": double, "copied": copied, "summed": summed, "same": same}


@st.composite
def programs(draw):
    """Nodes with what each does, what feeds it, and whether it is kept."""
    nodes = []
    for number in range(draw(st.integers(1, 6))):
        feeds = draw(st.integers(-1, number - 1))
        nodes.append((draw(st.sampled_from(sorted(ACTIONS))), feeds, draw(st.booleans())))
    return nodes


def built(nodes, chosen=None):
    graph = Graph()
    for number, (action, feeds, keep) in enumerate(nodes):
        if chosen is not None and number not in chosen:
            continue
        piece = frozen(ACTIONS[action], f"n{number}")
        graph.node(piece.cached() if keep else piece)
        if feeds >= 0:
            graph.edge(f"n{feeds}", f"n{number}")
    return graph


def line(nodes, number):
    found = []
    while number >= 0:
        found.append(number)
        number = nodes[number][1]
    return set(found)


@given(programs(), st.sampled_from([1, 1, 3]), st.lists(st.integers(0, 3), max_size=3))
@settings(max_examples=40, deadline=None)
def test_each_kept_result_is_what_its_own_line_of_nodes_gives_alone(tmp_path_factory, nodes, threads, value):
    """However siblings change what they share, and whichever runs first."""
    with Store(tmp_path_factory.mktemp("store")) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepWarning)
        for _ in range(2):
            built(nodes).forward(copy.deepcopy(value), store=store, threads=threads)
        for number, (_, _, keep) in enumerate(nodes):
            if keep:
                alone = built(nodes, line(nodes, number))
                truth = alone.forward(copy.deepcopy(value))
                assert alone.forward(copy.deepcopy(value), store=store, keeping=False) == truth

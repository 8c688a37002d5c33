"""Kept results: what hits, what misses, what is told, and what happens when something about it is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from somatize import Graph, Node, Recorder, Store, node
from somatize.errors import GraphError, KeepWarning, NotFrozen, UnknownNode
from somatize.record import facts


class Count(Node):
    """Adds what it was made with, and counts how often it ran."""

    __unkeyed__ = ("_calls",)

    def __init__(self, add=0):
        self.add = add
        self._calls = []

    def forward(self, value, ctx):
        self._calls.append(value)
        return value + self.add


def kinds(graph, value, **kwargs):
    seen = []
    answer = graph.forward(value, watching=seen.append, **kwargs)
    return answer, [f"{fact['fact']} {fact.get('node', '')}".strip() for fact in seen]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "kept") as store:
        yield store


@pytest.fixture
def chain():
    return Graph.somatize(Count(1).named("a").frozen() >> Count(2).named("b").frozen().cached() >> Count(3).named("c"))


def test_the_second_time_it_is_recalled_and_what_is_above_does_not_run(store, chain):
    assert kinds(chain, 0, store=store) == (6, ["ran a", "ran b", "kept b", "ran c", "finished"])
    assert kinds(chain, 0, store=store) == (6, ["recalled b", "ran c", "finished"])
    assert chain.implementation("a")._calls == [0]


def test_kept_and_recalled_tell_size_and_time(store, chain):
    seen = []
    chain.forward(0, store=store, watching=seen.append)
    chain.forward(0, store=store, watching=seen.append)
    kept, recalled = (next(fact for fact in seen if fact["fact"] == kind) for kind in ("kept", "recalled"))
    assert list(kept) == list(recalled) == ["fact", "node", "bytes", "took_us"]
    assert kept["bytes"] == recalled["bytes"] == str(store.kept()[0].bytes)


def test_a_path_will_do_for_a_store(tmp_path, chain):
    chain.forward(0, store=tmp_path / "made" / "here")
    assert kinds(chain, 0, store=str(tmp_path / "made" / "here"))[1] == ["recalled b", "ran c", "finished"]


def test_without_a_store_nothing_is_kept_and_nothing_is_said(chain):
    assert kinds(chain, 0) == (6, ["ran a", "ran b", "ran c", "finished"])


@pytest.mark.parametrize("threads", [1, 3])
def test_what_also_feeds_others_runs_all_the_same(store, threads):
    graph = Graph.somatize(
        Count(1).named("a").frozen() >> (Count(2).named("b").frozen().cached() | Count(3).named("c"))
    )
    graph.forward(0, store=store)
    answer, told = kinds(graph, 0, store=store, threads=threads)
    assert answer == {"b": 3, "c": 4}
    assert sorted(told) == ["finished", "ran a", "ran c", "recalled b"]


@pytest.mark.parametrize("value", [None, 0, "", [], {}, False])
def test_none_and_what_is_false_are_hits(store, value):
    graph = Graph.somatize(node(lambda x: x).named("same").frozen().cached())
    graph.forward(value, store=store)
    answer, told = kinds(graph, value, store=store)
    assert (answer, type(answer), told) == (value, type(value), ["recalled same", "finished"])


def test_a_cached_node_that_learns_or_is_fed_by_one_is_refused_naming_both(store):
    ran = []
    above = Graph.somatize(node(ran.append).named("a") >> Count().named("b").frozen().cached())
    with pytest.raises(NotFrozen, match="'b' is cached and is fed by 'a', which is not frozen"):
        above.forward(1, store=store)
    itself = Graph.somatize(node(ran.append).named("a").cached())
    with pytest.raises(NotFrozen, match="'a' is cached and is not frozen itself"):
        itself.forward(1, store=store)
    assert ran == []


def test_changing_an_attribute_or_an_argument_runs_again(store):
    count = Count(1)
    graph = Graph.somatize(count.named("n").frozen().cached())
    assert graph.forward(0, store=store) == 1
    count.add = 5
    assert kinds(graph, 0, store=store) == (5, ["ran n", "kept n", "finished"])
    other = Graph.somatize(Count(1).named("n").frozen().cached())
    assert kinds(other, 0, store=store) == (1, ["recalled n", "finished"])


def test_ids_do_not_count_and_salts_do(store):
    Graph.somatize(Count(1).named("n").frozen().cached()).forward(0, store=store)
    assert kinds(Graph.somatize(Count(1).named("other").frozen().cached()), 0, store=store)[1][0] == "recalled other"
    assert kinds(Graph.somatize(Count(1).named("n").frozen().cached("v2")), 0, store=store)[1][0] == "ran n"


def test_mapped_and_plain_results_are_told_apart(store):
    class Twice(Node):
        def forward(self, value, ctx):
            return value * 2

    plain = Graph.somatize(Twice().named("n").frozen().cached())
    each = Graph.somatize(Twice().named("n").frozen().mapped().cached())
    batches = Graph.somatize(Twice().named("n").frozen().mapped(batch=1).cached())
    assert plain.forward([1], store=store) == [1, 1]
    assert each.forward([1], store=store) == [2]
    with pytest.raises(GraphError):
        batches.forward([1], store=store)


def test_the_name_is_that_of_the_input_as_it_was_handed_in(store):
    def pad(xs, seen=[]):  # noqa: B006  a mutable default is a part of the case
        xs.extend([0, 0])
        return xs

    graph = Graph.somatize(node(pad).named("pad").frozen().cached())
    assert graph.forward([5], store=store) == [5, 0, 0]
    answer, told = kinds(graph, [5], store=store)
    assert (answer, told) == ([5, 0, 0], ["recalled pad", "finished"])
    answer.append("mine")
    assert graph.forward([5], store=store) == [5, 0, 0]


def test_a_recalled_array_or_tensor_belongs_to_the_caller(store):
    graph = Graph.somatize(node(lambda x: x * 2).named("n").frozen().cached())
    for value in (np.ones(3), torch.ones(3)):
        first = graph.forward(value, store=store)
        again = graph.forward(value, store=store)
        again[:] = 0
        third = graph.forward(value, store=store)
        assert (type(first), type(again)) == (type(value), type(value))
        assert float(third.sum()) == 6.0
        assert not getattr(first, "requires_grad", False)


def test_what_has_no_name_runs_and_one_notice_says_why(store):
    graph = Graph.somatize(node(lambda pair: pair[1]).named("second").frozen().cached())
    with pytest.warns(KeepWarning, match=r"'second' is not kept, as it has no name: .*lock") as said:
        assert graph.forward((threading.Lock(), "first"), store=store) == "first"
    assert len(said) == 1
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        assert graph.forward((threading.Lock(), "second"), store=store) == "second"
    assert again == []  # of one node one reason is said once
    with pytest.warns(KeepWarning, match="generator"):
        assert graph.forward(((one for one in ()), "third"), store=store) == "third"
    assert store.kept() == []


def test_a_result_nothing_can_write_down_is_handed_on_with_one_notice(store):
    class Opaque:
        pass

    graph = Graph.somatize(node(lambda x: Opaque()).named("odd").frozen().cached())
    with pytest.warns(KeepWarning, match=r"'odd' is not kept: .*Opaque.*`codec`") as said:
        assert type(graph.forward(1, store=store)) is Opaque
    assert len(said) == 1


def test_what_raises_as_it_is_named_does_not_stop_the_work(store):
    class Untold(Count):
        def state_dict(self):
            raise KeyError(0)

    graph = Graph.somatize(Untold().named("untold").frozen() >> Count(1).named("after").frozen().cached())
    with pytest.warns(KeepWarning, match=r"'after' is not kept, .* raised KeyError: 0, at node 'untold'"):
        assert graph.forward(1, store=store) == 2
    items = Graph.somatize(Untold().named("untold").frozen().mapped().cached())
    with pytest.warns(KeepWarning, match=r"'untold' is not kept, .* raised KeyError: 0"):
        assert items.forward([1, 2], store=store) == [1, 2]


@pytest.mark.parametrize("make", [lambda _: np.ones(2_500_000), lambda _: torch.ones(2_500_000, dtype=torch.float64)])
def test_keeping_what_a_node_gave_takes_its_size_once_more(store, make):
    graph = Graph.somatize(node(make).named("large").frozen().cached())
    tracemalloc.start()
    try:
        first = graph.forward(1, store=store)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * 20_000_000
    first[:] = 7  # the memory it lies in is its own
    assert float(graph.forward(1, store=store).sum()) == 2_500_000.0
    assert kinds(graph, 1, store=store)[1] == ["recalled large", "finished"]


def test_where_warnings_are_errors_the_work_goes_on(store, capsys):
    graph = Graph.somatize(node(lambda x: Path(os.devnull).open()).named("odd").frozen().cached())  # noqa: SIM115
    with warnings.catch_warnings():
        warnings.simplefilter("error", KeepWarning)
        graph.forward(1, store=store).close()
    assert "'odd' is not kept" in capsys.readouterr().err


def damage(store):
    """Overwrite every large file of the store."""
    for path in (store.path / "files").iterdir():
        path.write_bytes(path.read_bytes()[:-8] + b"\x00" * 8)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_damaged_entry_is_a_miss_with_a_notice_and_is_replaced(store, threads):
    graph = Graph.somatize(
        node(lambda n: np.arange(float(n))).named("a").frozen() >> node(lambda x: x + 1).named("b").frozen().cached()
    )
    graph.forward(200_000, store=store)
    damage(store)
    with pytest.warns(KeepWarning, match="cannot be used and is made again"):
        answer, told = kinds(graph, 200_000, store=store, threads=threads)
    assert (answer[-1], told) == (200_000.0, ["ran a", "ran b", "kept b", "finished"])
    assert kinds(graph, 200_000, store=store)[1] == ["recalled b", "finished"]


def test_two_threads_that_want_one_result_compute_it_once(store):
    started, go = threading.Event(), threading.Event()
    calls = []

    class Slow(Node):
        __unkeyed__ = ("_note",)

        def forward(self, value, ctx):
            self._note(value)
            return value + 1

    slow = Slow()
    slow._note = lambda value: (calls.append(value), started.set(), go.wait(20))
    graph = Graph.somatize(slow.named("slow").frozen("settled").cached())
    told = []
    threads = [
        threading.Thread(target=lambda: told.append(kinds(graph, 1, store=store)), name=f"caller {n}") for n in range(2)
    ]
    threads[0].start()
    assert started.wait(20)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(20)
    assert calls == [1]
    assert [answer for answer, _ in told] == [2, 2]
    assert sorted(kind for _, seen in told for kind in seen) == [
        "finished", "finished", "kept slow", "ran slow", "recalled slow",
    ]  # fmt: skip


def test_a_graph_may_keep_within_a_node_that_is_kept(store):
    inner = Graph.somatize(Count(1).named("inner").frozen().cached())
    outer = Graph.somatize(node(lambda x: inner.forward(x, store=store)).named("outer"))
    assert outer.forward(1) == outer.forward(1) == 2
    assert inner.implementation("inner")._calls == [1]


def test_refresh_runs_a_node_again_with_all_it_feeds_and_keeps_the_new_value(store):
    count = Count(1)
    graph = Graph.somatize(count.named("a").frozen("settled").cached() >> Count(1).named("b").frozen().cached())
    graph.forward(0, store=store)
    assert kinds(graph, 0, store=store)[1] == ["recalled b", "finished"]
    assert kinds(graph, 0, store=store, refresh=["a"])[1] == ["ran a", "kept a", "ran b", "kept b", "finished"]
    assert kinds(graph, 0, store=store)[1] == ["recalled b", "finished"]
    with pytest.raises(UnknownNode, match="'aa'; did you mean 'a'"):
        graph.forward(0, store=store, refresh=["aa"])
    for wrong in ("a", None, 1):
        with pytest.raises(GraphError, match="a list of ids"):
            graph.forward(0, store=store, refresh=wrong)
    with pytest.raises(GraphError, match="names 1, which is no id"):
        graph.forward(0, store=store, refresh=["a", 1])
    plain = Graph.somatize(Count().named("plain") >> Count().named("kept"))
    plain2 = Graph.somatize(Count().named("p").frozen() >> Count().named("k").frozen().cached())
    assert plain.forward(1, store=store) == 1
    with pytest.raises(GraphError, match="'p', which is not cached"):
        plain2.forward(0, store=store, refresh=["p"])


@pytest.mark.parametrize("wrong", [5, b"x", ["a"], Store])
def test_what_is_no_store_is_refused_before_anything_runs(wrong):
    count = Count(1)
    graph = Graph.somatize(count.named("a").frozen().cached())
    for ask in (graph.forward, graph.foreseen):
        with pytest.raises(GraphError, match=r"store=.*: it is a Store, or the path of one"):
            ask(0, store=wrong)
    assert count._calls == []


def test_keeping_false_looks_without_storing(store, chain):
    assert kinds(chain, 0, store=store, keeping=False)[1] == ["ran a", "ran b", "ran c", "finished"]
    assert store.kept() == []
    chain.forward(0, store=store)
    assert kinds(chain, 0, store=store, keeping=False)[1] == ["recalled b", "ran c", "finished"]


def test_where_a_result_came_from_is_kept_beside_it(store, chain):
    with Recorder(store, run="tuesday") as recorder:
        chain.forward(0, store=store, watching=recorder)
        (entry,) = store.kept(run="tuesday", node="b")
        found = store.provenance(entry.name)
        assert (found["node"], found["run"], found["bytes"]) == ("b", "tuesday", entry.bytes)
        assert set(found) == {"name", "when", "node", "run", "host", "versions", "parts", "bytes"}
        assert set(found["versions"]) >= {"python", "somatize", "numpy", "torch"}
        assert "kept" in [fact["fact"] for fact in facts(store, run="tuesday")]
    assert store.kept(run="wednesday") == []


def test_dropping_and_pruning_what_is_kept(store):
    for number in range(3):
        graph = Graph.somatize(Count(number).named(f"n{number}").frozen().cached())
        graph.forward(0, store=store)
    assert [entry.meta["node"] for entry in store.drop("n1")] == ["n1"]
    assert sorted(entry.meta["node"] for entry in store.kept()) == ["n0", "n2"]
    graph = Graph.somatize(Count(0).named("n0").frozen().cached())
    assert kinds(graph, 0, store=store)[1][0] == "recalled n0"
    size = store.kept()[0].bytes
    assert [entry.meta["node"] for entry in store.prune(max_bytes=size)] == ["n2"]
    assert store.prune(older_than=3600, unused_for=3600) == []
    assert len(store.prune(max_bytes="0 MB")) == 1
    with pytest.raises(ValueError, match="needs to know what"):
        store.prune()
    with pytest.raises(ValueError, match="no size"):
        store.prune("a lot")


def test_a_limit_is_held_by_letting_go_of_what_was_used_least_recently(tmp_path):
    make = Graph.somatize(node(lambda n: np.full(1000, n)).named("n").frozen().cached())
    with Store(tmp_path, keep_at_most="20kB") as store:
        for number in range(3):
            make.forward(number, store=store)
        assert len(store.kept()) == 2
        assert sum(entry.bytes for entry in store.kept()) <= 20_000
        assert kinds(make, 1, store=store)[1][0] == "recalled n"
        make.forward(3, store=store)
        assert kinds(make, 1, store=store)[1][0] == "recalled n"
        assert kinds(make, 2, store=store, keeping=False)[1][0] == "ran n"


def test_foreseeing_runs_nothing_and_says_what_differs(store):
    first = Graph.somatize(Count(0.25).named("scale").frozen().cached() >> Count(1).named("after"))
    first.forward(1, store=store)
    graph = Graph.somatize(Count(0.5).named("scale").frozen().cached() >> Count(1).named("after"))
    foreseen = graph.foreseen(1, store=store)
    assert list(foreseen) == ["scale", "after"]
    assert foreseen["scale"].would == "run"
    assert any("`add` 0.5 was 0.25" in sentence for sentence in foreseen["scale"].why)
    assert foreseen["after"] == ("after", "run", ())
    assert str(first.foreseen(1, store=store)).splitlines() == ["scale would be recalled", "after would run"]
    assert any("input" in sentence for sentence in first.foreseen(2, store=store)["scale"].why)
    assert graph.implementation("scale")._calls == []


def test_foreseeing_says_what_would_be_skipped(store, chain):
    chain.forward(0, store=store)
    assert [str(one) for one in chain.foreseen(0, store=store).values()] == [
        "a would be skipped", "b would be recalled", "c would run",
    ]  # fmt: skip


def test_a_node_is_compared_with_what_it_kept_itself_and_never_with_another(store):
    total = node(lambda d: sum(d)).frozen().cached()
    Graph.somatize(total.named("total")).forward([1, 2], store=store)

    def mean(d):
        return sum(d) / len(d)

    new = [node(lambda d: max(d)).named("biggest"), node(mean), node(Count(3)), node(lambda d: min(d)).named("total")]
    graphs = [Graph.somatize(total.named("sum") | one.frozen().cached()) for one in new[:3]]
    for graph, id in zip(graphs, ["biggest", "mean", "count"], strict=True):
        assert str(graph.foreseen([1, 2], store=store)[id]) == f"{id} would run: nothing of this node is kept"
    Graph.somatize(total).forward([3], store=store)  # as `lambda`, which is the id of another one here
    both = Graph.somatize(node(lambda d: max(d)).frozen().cached() | total).foreseen([3], store=store)
    assert str(both) == "lambda would run: nothing of this node is kept\nlambda_2 would be recalled"
    edited = Graph.somatize(new[3].frozen().cached()).foreseen([1, 2], store=store)
    assert "would run: code of `" in str(edited["total"])
    assert "input" in str(Graph.somatize(total.named("total")).foreseen([1, 3], store=store)["total"])


MODULE = """
from somatize import node
import helpers

FACTOR = 2

def inner(x):
    return x * FACTOR

@node
def work(x):
    return inner(x) + helpers.offset()
"""

MAIN = """
import sys
from somatize import Graph
import work
graph = Graph.somatize(work.work.named("work").frozen().cached())
graph.forward(3, store=sys.argv[1], watching=lambda f: print(f["fact"], end=" "))
print(graph.forward(3))
"""


class TestEdits:
    """Real files, edited; real processes, each with a hash seed of its own (C015)."""

    @pytest.fixture
    def run(self, tmp_path):
        (tmp_path / "main.py").write_text(MAIN)
        (tmp_path / "helpers.py").write_text("def offset():\n    return 0\n")
        (tmp_path / "work.py").write_text(MODULE)
        seeds = iter(range(1, 100))

        def run(**edits):
            for name, (old, new) in edits.items():
                path = tmp_path / f"{name}.py"
                text = path.read_text()
                assert old in text
                path.write_text(text.replace(old, new))
            environment = {**os.environ, "PYTHONHASHSEED": str(next(seeds)), "PYTHONDONTWRITEBYTECODE": "1"}
            done = subprocess.run(
                [sys.executable, "main.py", str(tmp_path / "kept")],
                cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True,
            )  # fmt: skip
            return done.stdout.split()

        return run

    def test_another_process_recalls(self, run):
        assert run() == ["ran", "kept", "finished", "6"]
        assert run() == ["recalled", "finished", "6"]

    def test_an_edited_helper_of_the_module_and_an_edited_constant_run_again(self, run):
        run()
        assert run(work=("x * FACTOR", "x * FACTOR + 1")) == ["ran", "kept", "finished", "7"]
        assert run(work=("FACTOR = 2", "FACTOR = 3")) == ["ran", "kept", "finished", "10"]

    def test_comments_docstrings_and_moved_lines_still_recall(self, run):
        run()
        assert run(work=("@node", "# why\n\n\n@node"))[0] == "recalled"
        assert run(work=("def inner(x):\n", 'def inner(x):\n    """What for."""\n'))[0] == "recalled"
        assert (
            run(work=("inner(x) + helpers.offset()", "(\n        inner(x)\n        + helpers.offset()\n    )"))[0]
            == "recalled"
        )

    def test_back_to_the_old_code_recalls_the_old_result(self, run):
        run()
        run(work=("FACTOR = 2", "FACTOR = 3"))
        assert run(work=("FACTOR = 3", "FACTOR = 2")) == ["recalled", "finished", "6"]


class TestClosures:
    """The same text with other values in it (C016)."""

    def test_captured_values_count(self, store):
        def make(k):
            return node(lambda x: x * k).named("n").frozen().cached()

        assert Graph.somatize(make(2)).forward(3, store=store) == 6
        assert Graph.somatize(make(10)).forward(3, store=store) == 30
        assert kinds(Graph.somatize(make(2)), 3, store=store) == (6, ["recalled n", "finished"])
        answer, told = kinds(Graph.somatize(make(2.0)), 3, store=store)
        assert (answer, type(answer), told[0]) == (6.0, float, "ran n")

    def test_partials_defaults_and_bound_methods_count(self, store):
        import functools

        class Scaler:
            def __init__(self, by):
                self.by = by

            def apply(self, x):
                return x * self.by

        def add(x, k):
            return x + k

        families = [
            [functools.partial(add, k=1), functools.partial(add, k=2)],
            [lambda x, i=i: x + 10 * i for i in range(3)],
            [Scaler(1).apply, Scaler(2).apply],
        ]
        for family in families:
            graphs = [Graph.somatize(node(thing).named("n").frozen().cached()) for thing in family]
            answers = [graph.forward(3, store=store) for graph in graphs]
            assert len(set(answers)) == len(family)
            assert [kinds(graph, 3, store=store) for graph in graphs] == [
                (answer, ["recalled n", "finished"]) for answer in answers
            ]


def same(x):
    return x


class TestInputs:
    """What of an input counts (C017, C020)."""

    @pytest.fixture
    def graph(self):
        return Graph.somatize(node(same).named("n").frozen().cached())

    def test_the_order_of_keys_counts_at_any_depth(self, store):
        graph = Graph.somatize(node(lambda record: [*record, *record["b"].values()]).named("n").frozen().cached())
        for given in ({"a": 1, "b": {"x": [1], "y": 2}}, {"a": 1, "b": {"y": 2, "x": [1]}}, {"b": {"x": 1}, "a": 1}):
            truth = [*given, *given["b"].values()]
            assert kinds(graph, given, store=store) == (truth, ["ran n", "kept n", "finished"])
            assert kinds(graph, given, store=store) == (truth, ["recalled n", "finished"])
        graph.forward({"a": 1, "b": {1: "two", None: 0}}, store=store)

    def test_the_order_of_an_items_keys_counts(self, store):
        graph = Graph.somatize(node(lambda record: [*record]).named("n").frozen().cached().mapped())
        items = [{"a": 1, "b": 2}, {"b": 2, "a": 1}]
        for _ in range(2):
            assert graph.forward(items, store=store) == [["a", "b"], ["b", "a"]]

    def test_the_order_of_sets_does_not_count(self, store, graph):
        graph.forward({"a", "b", "c"}, store=store)
        assert kinds(graph, {"c", "b", "a"}, store=store)[1][0] == "recalled n"

    def test_types_are_told_apart(self, store, graph):
        for value in (1, True, 1.0, "1", [1], (1,), np.float32(1), np.ones(1), np.ones(1, "f4"), torch.ones(1)):
            assert kinds(graph, value, store=store)[1][0] == "ran n"

    def test_equal_tensors_recall_whatever_they_are_views_of(self, store, graph):
        graph.forward(torch.ones(3), store=store)
        assert kinds(graph, torch.ones(4)[:3], store=store)[1][0] == "recalled n"
        with torch.no_grad():
            assert kinds(graph, torch.ones(3, requires_grad=True), store=store)[1][0] == "recalled n"
        assert kinds(graph, torch.ones(4), store=store)[1][0] == "ran n"


class TestState:
    """Weights that changed (C020)."""

    @pytest.fixture
    def layer(self):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))

    def test_new_weights_run_again_however_they_came(self, store, layer):
        graph = Graph.somatize(node(layer.eval()).named("enc").frozen().cached())
        x = torch.ones(1, 3)
        graph.forward(x, store=store)
        assert kinds(graph, x, store=store)[1][0] == "recalled enc"
        layer[0].weight.data.add_(1)  # raises no version
        assert kinds(graph, x, store=store)[1][0] == "ran enc"
        layer.load_state_dict({key: value * 2 for key, value in layer.state_dict().items()})
        assert kinds(graph, x, store=store)[1][0] == "ran enc"
        assert kinds(graph, x, store=store)[1][0] == "recalled enc"

    def test_training_and_evaluating_are_told_apart(self, store, layer):
        graph = Graph.somatize(node(layer).named("enc").frozen().cached())
        x = torch.ones(1, 3)
        graph.forward(x, store=store)
        layer.eval()
        assert kinds(graph, x, store=store)[1][0] == "ran enc"


def test_a_class_typed_in_a_cell_recalls_in_another_kernel(tmp_path):
    cell = textwrap.dedent("""
        from somatize import Graph, Node
        class Scale(Node):
            def __init__(self, by): self.by = by
            def forward(self, x, ctx): return x * self.by
        graph = Graph.somatize(Scale(3).named("n").frozen().cached())
        graph.forward(2, store=path, watching=lambda f: print(f["fact"], end=" "))
    """)
    script = f"path = {str(tmp_path / 'kept')!r}\nexec(compile({cell!r}, '<cell>', 'exec'))\n"
    (tmp_path / "kernel.py").write_text(script)
    told = [
        subprocess.run([sys.executable, str(tmp_path / "kernel.py")], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert told == ["ran kept finished ", "recalled finished "]


def test_where_nothing_may_be_written_results_are_recalled_and_computed(tmp_path):
    """As a user who may only read (C011): in a process of its own, as root may write anywhere."""
    path = tmp_path / "kept"
    script = textwrap.dedent(f"""
        import os, tempfile
        from somatize import Graph, Store, node
        def same(x): return x
        graph = Graph.somatize(node(same).named("n").frozen().cached())
        store = Store({str(path)!r})
        graph.forward(1, store=store)  # all that is imported is imported while it may be
        store.close()
        for folder, _, files in os.walk({str(path)!r}):
            for name in files:
                os.chmod(os.path.join(folder, name), 0o444)
            os.chmod(folder, 0o555)
        before = sorted(os.listdir({str(path)!r}))
        for parent in {[str(parent) for parent in tmp_path.parents if parent != Path("/")]!r} + [{str(tmp_path)!r}]:
            os.chmod(parent, os.stat(parent).st_mode | 0o055)
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        for value in (1, 2):
            told = []
            with Store({str(path)!r}) as store:
                print(graph.forward(value, store=store, watching=lambda f: told.append(f["fact"])), told)
        assert sorted(os.listdir({str(path)!r})) == before
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["1 ['recalled', 'finished']", "2 ['ran', 'finished']"], done.stderr

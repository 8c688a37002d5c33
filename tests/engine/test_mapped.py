"""Mapped nodes: item by item and by batches, what is told of them, and where one that fails was."""

from __future__ import annotations

import collections
import gc
import types
import weakref

import pandas as pd
import pytest

from somatize import Graph, Node, Store, node
from somatize.errors import NoItems


class Double(Node):
    __unkeyed__ = ("_seen",)

    def __init__(self):
        self._seen = []

    def forward(self, item, ctx):
        self._seen.append(item)
        return item * 2


class Doubles(Double):
    def forward(self, items, ctx):
        self._seen.append(list(items))
        return [item * 2 for item in items]


class NoLength:
    """Liars and unknown lengths: says one thing, or nothing, and yields another."""

    def __init__(self, says, yields):
        self.says, self.yields = says, yields

    def __len__(self):
        return self.says

    def __iter__(self):
        return iter(range(self.yields))


def told(graph, given, **kwargs):
    seen = []
    value = graph.forward(given, watching=seen.append, **kwargs)
    return value, [{k: v for k, v in fact.items() if k not in ("began_us", "took_us")} for fact in seen]


def mapped(thing, batch=None):
    return Graph.somatize(node(thing).named("n").mapped(batch))


def items(node="n", **counts):
    given = {"items": 0, "ran": 0, "recalled": 0, "failed": 0, **counts}
    return {"fact": "items", "node": node} | {name: str(count) for name, count in given.items()}


@pytest.mark.parametrize("given", [[1, 2, 3], (1, 2, 3), range(1, 4), {1: "a", 2: "b", 3: "c"}.keys()])
def test_each_item_of_an_iterable_is_called_once_in_order(given):
    double = Double()
    value, facts = told(mapped(double), given)
    assert (value, double._seen) == ([2, 4, 6], [1, 2, 3])
    assert facts == [items(items=3, ran=3), {"fact": "ran", "node": "n"}, {"fact": "finished"}]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("text", "a str, whose items would be its characters: give \\[it\\]"),
        ("", "a str, whose items would be its characters"),
        (b"bytes", "a bytes, whose items would be its bytes, each a number"),
        (bytearray(b"bytes"), "a bytearray, whose items would be its bytes"),
        ({1: "a"}, r"a dict, whose items would be its keys: give list\(it.values\(\)\)"),
        (collections.OrderedDict(a=1), "an? OrderedDict, whose items would be its keys"),
        (collections.UserDict(a=1), "a UserDict, whose items would be its keys"),
        (types.MappingProxyType({"a": 1}), "a mappingproxy, whose items would be its keys"),
        (pd.DataFrame({"a": [1]}), "a DataFrame, whose items would be its columns: give a list of its rows"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_parts_that_are_hardly_meant_as_items_is_refused(given, parts):
    double = Double()
    with pytest.raises(NoItems, match=f"node 'n' is mapped and was given {parts}"):
        mapped(double).forward(given)
    with pytest.raises(NoItems, match=f"node 'n' is mapped and was given {parts}"):
        mapped(double, batch=2).forward(given, threads=2)
    assert double._seen == []


def test_items_of_a_generator_are_taken_one_at_a_time():
    class Item:
        pass

    made, alive = [], []

    def generate():
        for _ in range(4):
            item = Item()
            made.append(weakref.ref(item))
            yield item
            del item
            gc.collect()
            alive.append(sum(ref() is not None for ref in made))

    value, _ = told(mapped(lambda item: 1), generate())
    assert value == [1, 1, 1, 1]
    assert max(alive) <= 1


def test_batches_are_full_but_for_the_last():
    doubles = Doubles()
    value, facts = told(mapped(doubles, batch=2), (i for i in range(5)))
    assert (value, doubles._seen) == ([0, 2, 4, 6, 8], [[0, 1], [2, 3], [4]])
    assert facts[0] == items(items=5, ran=5)


@pytest.mark.parametrize("batch", [None, 3])
def test_no_items_are_an_empty_list_and_no_call(batch):
    doubles = Doubles()
    value, facts = told(mapped(doubles, batch), [])
    assert (value, doubles._seen) == ([], [])
    assert facts == [items(), {"fact": "ran", "node": "n"}, {"fact": "finished"}]


@pytest.mark.parametrize(
    ("answer", "words"), [(lambda xs: xs[1:], "3 items at once and answered with 2"), (len, "answered with int")]
)
def test_a_batch_answered_with_another_number_is_an_error_with_both(answer, words):
    with pytest.raises(NoItems, match=words):
        mapped(lambda xs: answer(xs), batch=3).forward([1, 2, 3])


def test_what_has_no_items_is_an_error_that_names_node_and_type():
    with pytest.raises(NoItems, match="node 'n' is mapped and was given int, which has no items"):
        mapped(Double()).forward(3)


def test_several_predecessors_are_refused_before_anything_runs():
    ran = []
    a, b = node(ran.append).named("a"), node(ran.append).named("b")
    graph = Graph.somatize((a | b) >> Double().named("n").mapped())
    with pytest.raises(NoItems, match="'n' is mapped and is fed by 2 nodes"):
        graph.forward(1)
    assert ran == []


@pytest.mark.parametrize(("batch", "place"), [(None, "at item 3"), (2, "at items 2 to 3")])
def test_a_failing_item_is_named_in_the_note_and_in_the_fact(batch, place):
    def fails(given):
        if given == 3 or given == [2, 3]:
            raise ValueError("no")
        return given

    seen = []
    with pytest.raises(ValueError, match="no") as raised:
        mapped(fails, batch).forward(range(10), watching=seen.append)
    assert raised.value.__notes__ == [f"{place}, in node 'n', step 1 of 1"]
    assert seen[0] == items(items=4, ran=2 if batch else 3, failed=batch or 1)
    assert (seen[1]["fact"], seen[1]["why"]) == ("failed", f"ValueError: no, {place}")
    assert seen[2]["fact"] == "broke"


def test_a_generator_that_raises_is_told_from_an_item_that_fails():
    def generate():
        yield 1
        raise OSError("gone")

    seen = []
    with pytest.raises(OSError, match="gone") as raised:
        mapped(Double()).forward(generate(), watching=seen.append)
    assert raised.value.__notes__ == ["while item 1 was made, in node 'n', step 1 of 1"]
    assert seen[0] == items(items=1, ran=1)


def test_progress_says_how_many_of_how_many():
    class Opener:
        def __init__(self):
            self.said = []

        def opens(self, graph):
            return self

        def tell(self, fact):
            """Facts are not what is looked at here."""

        def progress(self, node, done, total):
            self.said.append((node, done, total))

    for given, total in (([1, 2, 3], 3), ((i for i in range(3)), None), (NoLength(5, 3), 5), (NoLength(1, 3), 1)):
        opener = Opener()
        mapped(Double()).forward(given, watching=opener)
        assert opener.said == [("n", 1, total), ("n", 2, total), ("n", 3, total)]


def test_interrupts_in_an_item_pass_through():
    def interrupted(item):
        raise KeyboardInterrupt

    seen = []
    with pytest.raises(KeyboardInterrupt):
        mapped(interrupted).forward([1], watching=seen.append)
    assert [fact["fact"] for fact in seen] == ["items", "failed", "broke"]


def test_mapped_nodes_run_in_branches_and_take_a_ctx():
    class Say(Node):
        def forward(self, item, ctx):
            ctx.tell({"fact": "said", "item": item})
            return ctx.node

    graph = Graph.somatize(Say().named("a").mapped() | Say().named("b").mapped())
    seen = []
    assert graph.forward([1, 2], watching=seen.append, threads=2) == {"a": ["a", "a"], "b": ["b", "b"]}
    assert [fact["item"] for fact in seen if fact["fact"] == "said" and fact["node"] == "a"] == ["1", "2"]


def test_without_a_store_a_cached_mapped_node_keeps_nothing_and_says_nothing(tmp_path):
    graph = Graph.somatize(node(abs).named("n").frozen().mapped().cached())
    value, facts = told(graph, [-1, -1])
    assert value == [1, 1]
    assert facts[0] == items(items=2, ran=2)


class TestCached:
    @pytest.fixture
    def store(self, tmp_path):
        with Store(tmp_path) as store:
            yield store

    @pytest.fixture
    def graph(self):
        return Graph.somatize(Doubles().named("n").frozen("settled").mapped(batch=2).cached())

    def test_only_unseen_items_reach_the_node_each_distinct_one_once(self, store, graph):
        doubles = graph.implementation("n")
        assert graph.forward([1, 2, 1, 3], store=store) == [2, 4, 2, 6]
        assert doubles._seen == [[1, 2], [3]]
        value, facts = told(graph, [3, 4, 1], store=store)
        assert (value, doubles._seen[2:]) == ([6, 8, 2], [[4]])
        assert facts[:2] == [items(items=3, ran=1, recalled=2), {"fact": "ran", "node": "n"}]
        assert (facts[2]["fact"], facts[3]["fact"]) == ("kept", "finished")

    def test_a_whole_input_is_recalled_by_its_name_alone(self, store, graph):
        graph.forward([1, 2], store=store)
        value, facts = told(graph, [1, 2], store=store)
        assert value == [2, 4]
        assert facts[0] == items(items=2, recalled=2)
        assert facts[1]["fact"] == "recalled"
        assert graph.implementation("n")._seen == [[1, 2]]

    def test_a_generator_needs_no_whole_name(self, store, graph, recwarn):
        graph.forward((i for i in [1, 2]), store=store)
        value, facts = told(graph, (i for i in [2, 1]), store=store)
        assert value == [4, 2]
        assert facts[0] == items(items=2, recalled=2)
        assert [str(one.message) for one in recwarn] == []

    def test_all_items_kept_under_another_order_are_recalled(self, store, graph):
        graph.forward([1, 2, 3], store=store)
        _, facts = told(graph, [3, 1], store=store)
        assert [fact["fact"] for fact in facts] == ["items", "recalled", "finished"]

    def test_what_succeeded_is_kept_when_one_fails_and_the_rest_is_done_next_time(self, store):
        broken, calls = [True], []

        def fails(item):
            calls.append(item)
            if item == 7 and broken:
                raise ValueError(item)
            return item

        class Shaky(Node):
            __unkeyed__ = ("_call",)

            def forward(self, item, ctx):
                return self._call(item)

        shaky = Shaky()
        shaky._call = fails
        graph = Graph.somatize(shaky.named("n").frozen("settled").mapped().cached())
        seen = []
        with pytest.raises(ValueError, match="7"):
            graph.forward(range(10), store=store, watching=seen.append)
        assert [fact["fact"] for fact in seen] == ["items", "failed", "kept", "broke"]
        assert seen[0] == items(items=8, ran=7, failed=1)
        broken.clear(), calls.clear()
        value, facts = told(graph, range(10), store=store)
        assert (value, calls) == (list(range(10)), [7, 8, 9])
        assert facts[0] == items(items=10, ran=3, recalled=7)

    def test_an_item_that_is_gone_is_made_again(self, store, graph):
        graph.forward([1, 2], store=store)
        _drop(store, next(entry for entry in store.kept() if entry.meta.get("item")).name)
        value, facts = told(graph, [1, 2], store=store)
        assert value == [2, 4]
        assert facts[0] == items(items=2, ran=1, recalled=1)

    def test_foreseeing_says_that_it_depends_on_its_items(self, store, graph):
        graph.forward([1, 2], store=store)
        assert graph.foreseen([1, 2], store=store)["n"].would == "be recalled"
        foreseen = graph.foreseen([1, 5], store=store)["n"]
        assert foreseen.would == "run"
        assert foreseen.why[0] == "it depends on its items"


def _drop(store, name):
    from somatize.store import values

    values.forget(store.opened, lambda entries: [entry for entry in entries if entry.name == name])

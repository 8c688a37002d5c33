"""What a graph has to learn, gathered, saved, given back; and `synchronise=True`."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

import pytest
import torch

from somatize import Graph, Node, Store, node
from somatize.codecs import tensors
from somatize.errors import GraphError


class Classifier(Node):
    def __init__(self) -> None:
        self.net = torch.nn.Linear(4, 2)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.heads = {"a": torch.nn.Linear(2, 2), "b": 3}
        self.layers = [torch.nn.Identity(), torch.nn.Linear(2, 2, bias=False)]
        self.name = "text"

    def forward(self, value: Any, ctx: Any) -> Any:
        return self.net(value) * self.scale


def graph() -> Graph:
    embed = node(torch.nn.Linear(3, 4)).named("embed")
    frozen = node(torch.nn.Linear(4, 4)).named("fixed").frozen()
    return Graph.somatize(embed >> frozen >> Classifier().named("classifier"))


def test_parameters_are_named_by_node_and_frozen_ones_left_out() -> None:
    g = graph()
    names = [name for name, _ in g.named_parameters()]
    assert names == [
        "embed.weight",
        "embed.bias",
        "classifier.net.weight",
        "classifier.net.bias",
        "classifier.scale",
        "classifier.heads.a.weight",
        "classifier.heads.a.bias",
        "classifier.layers.1.weight",
    ]
    assert [id(p) for p in g.parameters()] == [id(p) for _, p in g.named_parameters()]


def test_what_is_shared_is_there_once() -> None:
    shared = torch.nn.Linear(2, 2)
    g = Graph.somatize(node(shared).named("a") >> node(shared).named("b"))
    assert [name for name, _ in g.named_parameters()] == ["a.weight", "a.bias"]
    tied = torch.nn.Linear(2, 2)
    tied.weight = shared.weight
    g = Graph.somatize(node(shared).named("a") >> node(tied).named("b"))
    assert [name for name, _ in g.named_parameters()] == ["a.weight", "a.bias", "b.bias"]


def test_methods_partials_and_inner_graphs() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2, bias=False)

        def encode(self, value: Any) -> Any:
            return self.layer(value)

    class Inner(Node):
        def __init__(self) -> None:
            self.graph = Graph.somatize(node(torch.nn.Linear(2, 2, bias=False)).named("deep"))

        def forward(self, value: Any, ctx: Any) -> Any:
            return self.graph.forward(value)

    g = Graph.somatize(
        node(Model().encode).named("method")
        >> node(partial(Model().encode)).named("partial")
        >> Inner().named("inner")
        >> node(lambda x: x).named("nothing")
    )
    assert [name for name, _ in g.named_parameters()] == [
        "method.layer.weight",
        "partial.layer.weight",
        "inner.graph.deep.weight",
    ]
    g.load_state_dict({name: value + 1 for name, value in g.state_dict().items()})


def linear() -> torch.nn.Module:
    return torch.nn.Linear(2, 2, bias=False)


GLOBAL, UNTOUCHED = linear(), linear()


def helper(value: Any) -> Any:
    return GLOBAL(value)


def through_helper(value: Any) -> Any:
    return helper(value)


def test_functions_learn_what_their_code_names() -> None:
    captured, wrapping, given, listed = linear(), linear(), linear(), [[linear()], {"a": (linear(),)}]

    def decorated(function: Any) -> Any:
        @wraps(function)
        def wrapper(value: Any) -> Any:
            return wrapping(function(value))

        return wrapper

    @decorated
    def closure(value: Any) -> Any:
        return captured(value)

    def apply(module: Any, value: Any, *, late: Any = None) -> Any:
        return module(value)

    class Slotted:
        __slots__ = ("net",)

        def __init__(self) -> None:
            self.net = linear()

        def encode(self, value: Any) -> Any:
            return self.net(value)

    g = Graph.somatize(
        node(closure)
        >> node(through_helper)
        >> node(partial(apply, given)).named("partial")
        >> node(lambda value: listed[0][0](value)).named("listed")
        >> node(Slotted().encode).named("method")
        >> node(lambda value: value.UNTOUCHED).named("attribute")
    )
    assert [name for name, _ in g.named_parameters()] == [
        "closure.wrapping.weight",
        "closure.captured.weight",
        "through_helper.helper.GLOBAL.weight",
        "partial.0.weight",
        "listed.listed.0.0.weight",
        "listed.listed.1.a.0.weight",
        "method.net.weight",
    ]
    g.eval()
    assert not any(module.training for module in (captured, wrapping, given, GLOBAL))
    g.load_state_dict({name: value + 1 for name, value in g.state_dict().items()})


def test_who_holds_a_module_says_more_of_it_than_whose_code_names_it() -> None:
    model = linear()
    penalty = node(lambda value: value + model.weight.sum()).named("penalty")
    g = Graph.somatize(penalty.frozen() >> node(model).named("model"))
    assert [name for name, _ in g.named_parameters()] == ["model.weight"]
    g = Graph.somatize(penalty >> node(model).named("model").frozen())
    assert ([*g.parameters()], [*g.state_dict()]) == ([], ["model.weight"])


@pytest.mark.parametrize("frozen_first", [True, False])
def test_what_one_node_holds_frozen_is_left_out_of_the_others_too(frozen_first: bool) -> None:
    shared, tied = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    tied.weight = shared.weight
    a, b, c = node(shared).named("a"), node(shared).named("b"), node(tied).named("c")
    g = Graph.somatize(a.frozen() >> b >> c if frozen_first else a >> b.frozen() >> c)
    assert [name for name, _ in g.named_parameters()] == ["c.bias"]
    assert not shared.train(False).training
    g.train()
    assert (shared.training, tied.training) == (False, True)


def test_a_frozen_module_within_one_that_trains_does_not() -> None:
    whole = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    g = Graph.somatize(node(whole[0]).named("part").frozen() >> node(whole).named("whole")).train()
    assert (whole.training, whole[0].training, whole[1].training) == (True, False, True)
    assert [name for name, _ in g.named_parameters()] == ["whole.1.weight", "whole.1.bias"]


def test_a_million_plain_values_are_no_trouble() -> None:
    class Holds(Node):
        def __init__(self) -> None:
            self.paths = ["a path"] * 1_000_000
            self.itself = [self.paths]
            self.itself.append(self.itself)

        def forward(self, value: Any) -> Any:
            return value

    assert list(Graph.somatize(Holds()).parameters()) == []


def test_training_through_the_graph() -> None:
    g = graph()
    optimizer = torch.optim.SGD(g.parameters(), lr=0.1)
    before = {name: value.clone() for name, value in g.state_dict().items()}
    g.forward(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    changed = {name for name, value in g.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {
        "embed.weight",
        "embed.bias",
        "classifier.net.weight",
        "classifier.net.bias",
        "classifier.scale",
    }


def test_a_state_goes_out_and_in_with_frozen_nodes() -> None:
    one, other = graph(), graph()
    state = one.state_dict()
    assert "fixed.weight" in state
    assert "classifier.scale" in state
    other.load_state_dict(state)
    x = torch.randn(2, 3)
    assert torch.equal(one.forward(x), other.forward(x))
    before = {name: value.clone() for name, value in other.state_dict().items()}
    for wrong, sentence in (
        ({**state, "embed.wieght": 1}, r"no node has a state 'embed.wieght'; did you mean 'embed.weight'\?"),
        ({name: value for name, value in state.items() if name != "embed.bias"}, "the state has no 'embed.bias'"),
    ):
        with pytest.raises(GraphError, match=sentence):
            other.load_state_dict(wrong)
    other.load_state_dict({"embed.bias": state["embed.bias"]}, strict=False)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    changed = {name: value + 1 for name, value in state.items()}
    for name, shape in (("embed.bias", r"\(4,\)"), ("classifier.scale", r"\(1,\)")):
        for strict in (True, False):
            with pytest.raises(GraphError, match=rf"'{name}' has shape {shape}, and the state's \(9,\)"):
                other.load_state_dict({**changed, name: torch.zeros(9)}, strict=strict)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    other.load_state_dict({**state, "classifier.scale": torch.tensor(2.0)})
    assert other.implementation("classifier").scale.item() == 2


def test_what_a_module_refuses_names_the_node() -> None:
    class Refuses(torch.nn.Linear):
        def load_state_dict(self, *given: Any, **named: Any) -> Any:
            raise RuntimeError("not this one")

    g = Graph.somatize(node(Refuses(2, 2)).named("embed"))
    with pytest.raises(RuntimeError, match="not this one") as raised:
        g.load_state_dict(g.state_dict())
    assert raised.value.__notes__ == ["while loading the state of 'embed'"]


def test_frozen_nodes_never_train() -> None:
    g = graph()
    modules = {id: g.implementation(id) for id in ("embed", "fixed")}
    assert g.train() is g
    assert (modules["embed"].training, modules["fixed"].training) == (True, False)
    assert g.implementation("classifier").net.training
    assert g.eval() is g
    assert (modules["embed"].training, modules["fixed"].training) == (False, False)


def test_a_frozen_part_can_be_cached(tmp_path: Any) -> None:
    told: list[Any] = []
    fixed = node(torch.nn.Linear(3, 3)).named("fixed").frozen().cached()
    g = Graph.somatize(fixed >> node(torch.nn.Linear(3, 2)).named("head"))
    optimizer = torch.optim.SGD(g.parameters(), lr=0.1)
    with Store(tmp_path / "s") as store:
        for _ in range(3):
            optimizer.zero_grad()
            g.forward(torch.ones(4, 3), store=store, watching=told.append).sum().backward()
            optimizer.step()
    assert [fact["fact"] for fact in told if fact.get("node") == "fixed"] == ["ran", "kept", "recalled", "recalled"]


def test_an_empty_graph_has_nothing_to_learn() -> None:
    assert (list(Graph().parameters()), Graph().state_dict()) == ([], {})


@pytest.mark.parametrize("threads", [1, 2])
def test_synchronise_waits_after_each_placed_node(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    # On a CPU there is nothing to wait for, so that it would show nowhere.
    monkeypatch.setattr(tensors, "synchronise", waited.append)
    placed = (node(lambda x: x + 1).named("a") | node(lambda x, ctx: x * 2).named("b")).on("cpu")
    g = Graph.somatize(node(lambda x: x).named("free") >> placed)
    facts: list[Any] = []
    for synchronise in (False, True, True):
        found = g.forward(torch.ones(1), watching=facts.append, threads=threads, synchronise=synchronise)
        assert found == {"a": torch.tensor([2.0]), "b": torch.tensor([2.0])}
        assert g.forward(torch.ones(1), synchronise=synchronise) == found
        assert len(waited) == 4 * synchronise
        waited.clear()
    assert {fact.get("device") for fact in facts if fact.get("node") in ("a", "b")} == {"cpu"}


def test_the_cpu_needs_no_waiting() -> None:
    tensors.synchronise("cpu")
    tensors.synchronise("meta")


@pytest.mark.gpu
def test_on_cuda_the_time_is_that_of_the_work() -> None:
    big = torch.randn(4096, 4096, device="cuda")
    g = Graph.somatize(node(lambda x: [x @ x for _ in range(20)][-1]).on("cuda"))

    def took(synchronise: bool) -> int:
        facts: list[Any] = []
        g.forward(big, watching=facts.append, synchronise=synchronise)
        return int(facts[0]["took_us"])

    took(True)
    assert took(True) > 2 * took(False)

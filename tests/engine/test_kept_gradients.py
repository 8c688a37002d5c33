"""A gradient that is to flow through a kept node does flow, and what draws or counts in training mode is not kept."""

from __future__ import annotations

import dataclasses
import functools
import types
import warnings
from collections import OrderedDict, UserDict, deque
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize import Graph, Node, Store, node
from somatize.codecs import codec
from somatize.errors import KeepWarning
from tests.engine.conftest import told

nn = torch.nn


class Pair(NamedTuple):
    left: int
    right: torch.Tensor


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: object = None


class Slotted:
    __slots__ = ("_x",)

    def __init__(self, x):
        self._x = x


class Hidden:
    """Of which a codec writes nothing but numbers."""

    def __init__(self, x):
        self._x = x


codec("tests.Hidden", Hidden, dump=lambda one: one._x.detach().tolist(), load=lambda plain: Hidden(torch.tensor(plain)))


def prompt():
    return nn.Parameter(torch.ones(3))


def holding(x):
    module = nn.Module()
    module.inner = nn.ParameterList([x])
    return module


WAYS = {
    "itself": (lambda x: x, lambda v: v),
    "no leaf": (lambda x: x * 2, lambda v: v),
    "list": (lambda x: [1, [x]], lambda v: v[1][0]),
    "dict": (lambda x: {"a": {"b": x}}, lambda v: v["a"]["b"]),
    "tuple": (lambda x: (0, x), lambda v: v[1]),
    "named tuple": (lambda x: Pair(1, x), lambda v: v.right),
    "ordered dict": (lambda x: OrderedDict(a=x), lambda v: v["a"]),
    "deque": (lambda x: deque([x]), lambda v: v[0]),
    "dataclass": (lambda x: Batch(torch.ones(2), [x]), lambda v: v.y[0]),
    "mapping proxy": (lambda x: types.MappingProxyType({"a": x}), lambda v: v["a"]),
    "namespace": (lambda x: types.SimpleNamespace(a=x), lambda v: v.a),
    "a class of the user's": (lambda x: UserDict(a=x), lambda v: v["a"]),
    "slots": (Slotted, lambda v: v._x),
    "with a codec": (Hidden, lambda v: v._x),
    "a module": (holding, lambda v: v.inner[0]),
    "a partial": (lambda x: functools.partial(torch.add, x), lambda v: v(0)),
    "a closure": (lambda x: lambda: x, lambda v: v()),
    "among many": (lambda x: [*([[1, "a"]] * 5000), {"x": [x]}], lambda v: v[-1]["x"][0]),
}


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("threads", [1, 2])
def test_a_gradient_flows_from_wherever_it_lies_in_the_input(store, way, threads):
    pack, unpack = WAYS[way]
    graph = Graph.somatize(
        node(lambda v: v).named("same").frozen() >> node(lambda v: unpack(v) * 3).named("times").frozen().cached()
    )
    for _ in range(2):
        x = prompt()
        answer, kinds, said = told(graph, pack(x), store, threads=threads)
        assert kinds == ["ran same", "ran times"]
        answer.sum().backward()
        assert x.grad is not None
        assert float(x.grad.sum()) in (9.0, 18.0)
    assert store.kept() == []
    assert said == []  # once for the node and the reason


def test_one_warning_says_why_and_without_a_gradient_it_is_kept(store):
    graph = Graph.somatize(node(lambda x: x * 2).named("twice").frozen().cached())
    (sentence,) = told(graph, prompt(), store)[2]
    assert "'twice' is not kept" in sentence
    assert "requires a gradient" in sentence
    assert "torch.no_grad()" in sentence
    assert "gradient" in str(graph.foreseen(prompt(), store=store))
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            answer, _, said = told(graph, prompt(), store)
            assert not answer.requires_grad
            assert said == []
            assert told(graph, prompt(), store)[1] == ["recalled twice"]
    assert told(graph, torch.ones(3), store)[1] == ["ran twice", "kept twice"]  # a Parameter is told from a tensor


def test_what_was_kept_without_a_gradient_is_not_recalled_where_one_is_to_flow(store):
    graph = Graph.somatize(node(lambda x: x * 2).named("twice").frozen().cached())
    with torch.no_grad():
        told(graph, prompt(), store)
    x = prompt()
    answer, kinds, _ = told(graph, x, store)
    assert kinds == ["ran twice"]
    answer.sum().backward()
    assert x.grad is not None


def test_a_node_below_one_that_lets_the_gradient_end_is_kept(store):
    graph = Graph.somatize(
        node(lambda x: x.detach() * 1).named("end").frozen() >> node(lambda x: x * 2).named("twice").frozen().cached()
    )
    assert told(graph, prompt(), store)[1:] == (["ran end", "ran twice", "kept twice"], [])
    assert told(graph, prompt(), store)[1] == ["ran end", "recalled twice"]


@pytest.mark.parametrize("above", [True, False])
def test_a_frozen_node_s_own_weights_do_not_count_and_its_result_is_detached_always(store, above):
    encoder = nn.Linear(3, 2)
    assert encoder.weight.requires_grad
    graph = node(encoder).named("encoder").frozen()
    graph = graph >> node(nn.Linear(2, 2)).named("head").frozen().cached() if above else graph.cached()
    graph = Graph.somatize(graph)
    for kind in ("kept", "recalled"):
        answer, kinds, said = told(graph, torch.ones(1, 3), store)
        assert kinds[-1].split()[0] == kind
        assert said == []
        assert not answer.requires_grad


@pytest.mark.parametrize("mapped", [False, True])
def test_also_a_result_that_could_not_be_kept_is_detached(store, mapped):
    piece = node(nn.Linear(3, 2)).named("encoder").frozen().cached()
    graph = Graph.somatize(piece.mapped() if mapped else piece)
    x = torch.ones(1, 3)
    answer, kinds, _ = told(graph, [x] if mapped else x, store, keeping=False)
    assert kinds == ["ran encoder"]
    assert not (answer[0] if mapped else answer).requires_grad


def test_items_that_require_a_gradient_run_and_the_others_are_kept(store):
    graph = Graph.somatize(node(lambda x: x * 2).named("twice").frozen().mapped().cached())
    x, y = prompt(), torch.full((3,), 5.0)
    answer, _, said = told(graph, [x, y], store)
    (answer[0] + answer[1]).sum().backward()
    assert x.grad is not None
    assert len(said) == 1
    assert told(graph, [y], store)[1] == ["recalled twice"]
    x.grad = None
    told(graph, [x, y], store)[0][0].sum().backward()
    assert x.grad is not None


def test_items_of_a_generator_that_require_a_gradient_run(store):
    graph = Graph.somatize(node(lambda x: x * 2).named("twice").frozen().mapped().cached())
    for _ in range(2):
        x = prompt()
        told(graph, (one for one in (x, torch.ones(3))), store)[0][0].sum().backward()
        assert x.grad is not None


def test_the_warning_points_at_the_line_that_called(store):
    graph = Graph.somatize(node(lambda x: x * 2).named("twice").frozen().cached())
    with pytest.warns(KeepWarning) as said:
        graph.forward(prompt(), store=store)
    assert [one.filename for one in said] == [__file__]


def test_transforms_and_forward_gradients_flow_too(store):
    graph = Graph.somatize(node(lambda x: (x**2).sum()).named("square").frozen().cached())

    def through(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KeepWarning)
            return graph.forward(x, store=store)

    warnings.simplefilter("ignore")  # what torch says of itself
    for _ in range(2):
        assert torch.equal(torch.func.grad(through)(torch.ones(3)), torch.full((3,), 2.0))
        assert torch.equal(torch.func.vmap(through)(torch.ones(2, 3)), torch.full((2,), 3.0))
        ones = (torch.ones(3),)
        assert float(torch.func.jvp(through, ones, ones)[1]) == 6.0
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(torch.ones(3), torch.ones(3))
            assert float(torch.autograd.forward_ad.unpack_dual(through(dual)).tangent) == 6.0
        assert float(through(torch.ones(3))) == 3.0


class Drops(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=self.training)


class Holds(Node):
    def __init__(self, *nets):
        self.nets = {"all": list(nets)}

    def forward(self, x, ctx):
        for net in self.nets["all"]:
            x = net(x)
        return x


TRAINING = {
    "dropout": lambda: nn.Dropout(0.5),
    "alpha dropout": lambda: nn.AlphaDropout(0.5),
    "channels": lambda: nn.Sequential(nn.Unflatten(1, (2, 2, 1)), nn.Dropout2d(0.5)),
    "batch norm": lambda: nn.BatchNorm1d(4),
    "instance norm": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True)),
    "deep": lambda: nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"a": nn.Dropout(0.1)})["a"]),
    "rnn": lambda: nn.LSTM(4, 4, num_layers=2, dropout=0.5),
    "rrelu": lambda: nn.RReLU(),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 1, 8, batch_first=True),
    "functional": Drops,
    "spectral norm by a hook": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
    "a compiled module": lambda: torch.compile(nn.Dropout(0.5), backend="eager"),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
}


def held_by_a_node(net):
    return Holds(nn.Identity(), net)


@pytest.mark.parametrize("how", [node, held_by_a_node])
@pytest.mark.parametrize("way", sorted(TRAINING))
def test_what_draws_or_counts_in_training_mode_is_not_kept_until_it_evaluates(store, way, how):
    net = TRAINING[way]().requires_grad_(False)
    graph = Graph.somatize(how(net).named("net").frozen() >> node(lambda x: str(x)).named("text").frozen().cached())
    x = torch.ones(3, 4)
    _, kinds, (sentence,) = told(graph, x, store)
    assert kinds == ["ran net", "ran text"]
    assert "'text' is not kept" in sentence
    assert "'net' is frozen and in training mode" in sentence
    assert ".eval()" in sentence
    assert told(graph, x, store)[1:] == (["ran net", "ran text"], [])
    assert "'net' is frozen and in training mode" in graph.foreseen(x, store=store)["text"].why[0]
    itself = Graph.somatize(how(net).named("net").frozen().cached())
    assert "training mode" in str(itself.foreseen(x, store=store))
    assert [len(told(itself, x, store)[2]) for _ in range(2)] == [1, 0]
    net.eval()
    assert told(itself, x, store)[1:] == (["ran net", "kept net"], [])
    assert told(itself, x, store)[1] == ["recalled net"]


def linear_that_says(name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x)

    Net.__name__ = name
    return Net()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(4, 4),
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4)),
        lambda: nn.Dropout(0.0),
        lambda: nn.BatchNorm1d(4, track_running_stats=False),
        lambda: nn.LSTM(4, 4, dropout=0.0),
        lambda: torch.compile(nn.Linear(4, 4), backend="eager"),
        lambda: linear_that_says("Net"),
    ],
)
def test_what_is_the_same_in_both_modes_is_kept_in_training_mode(store, make):
    net = make().requires_grad_(False)
    assert net.training
    assert told(Graph.somatize(node(net).named("net").frozen().cached()), torch.ones(3, 4), store)[1:] == (
        ["ran net", "kept net"],
        [],
    )


def test_dropout_that_no_mode_turns_off_is_kept_with_a_warning(store):
    graph = Graph.somatize(node(lambda x: nn.functional.dropout(x)).named("drop").frozen().cached())
    _, kinds, (sentence,) = told(graph, torch.ones(4), store)
    assert kinds == ["ran drop", "kept drop"]
    assert "torch.nn.functional.dropout" in sentence


def test_a_module_that_was_scripted_is_kept_once_it_evaluates(store):
    warnings.simplefilter("ignore")  # what torch says of scripting
    net = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).requires_grad_(False))
    graph = Graph.somatize(node(net).named("net").frozen().cached())
    assert "training mode" in told(graph, torch.ones(1, 4), store)[2][0]
    net.eval()
    assert told(graph, torch.ones(1, 4), store)[1:] == (["ran net", "kept net"], [])


def test_a_mapped_module_in_training_mode_keeps_no_item(store):
    graph = Graph.somatize(node(nn.Dropout(0.5)).named("drop").frozen().mapped().cached())
    _, _, said = told(graph, [torch.ones(4), torch.ones(4)], store)
    assert len(said) == 1
    assert store.kept() == []


def test_a_function_that_names_a_module_in_training_mode(store):
    net = nn.Dropout(0.5)
    graph = Graph.somatize(node(lambda x: net(x)).named("drop").frozen().cached())
    assert len(told(graph, torch.ones(4), store)[2]) == 1
    assert store.kept() == []
    net.eval()
    assert told(graph, torch.ones(4), store)[1] == ["ran drop", "kept drop"]


def test_a_prompt_learns_with_a_store_as_without(store):
    def loss(**how):
        torch.manual_seed(0)
        encoder = nn.Linear(3, 2).requires_grad_(False)
        graph = Graph.somatize(node(encoder).named("encoder").frozen().cached())
        tuned, head = nn.Parameter(torch.zeros(1, 3)), nn.Linear(2, 1)
        optimizer = torch.optim.SGD([tuned, *head.parameters()], lr=0.1)
        for _ in range(5):
            found = (head(graph.forward(tuned, **how)) - 1).pow(2).mean()
            optimizer.zero_grad()
            found.backward()
            optimizer.step()
        return tuned.detach()

    with pytest.warns(KeepWarning):
        assert torch.equal(loss(store=store), loss())


def summed(value):
    if isinstance(value, torch.Tensor):
        return value
    return sum(summed(one) for one in (value.values() if isinstance(value, dict) else value))


class Through:
    def __init__(self, net):
        self.net = net

    def forward(self, value):
        return self.net(summed(value))


torch.manual_seed(0)
STEPS = [
    lambda value: summed(value) * 2,
    lambda value: summed(value).detach() + 1,
    lambda value: [value, {"a": summed(value)}],
    lambda value: summed(value) ** 2,
    lambda value: summed(value).clone().add_(1),
    Through(nn.Linear(3, 3)),
    Through(nn.Linear(3, 3).requires_grad_(False)),
]


@st.composite
def programs(draw):
    """Nodes with what each does, what feeds it, and whether it is kept."""
    nodes = []
    for number in range(draw(st.integers(1, 6))):
        feeds = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        nodes.append((draw(st.integers(0, len(STEPS) - 1)), feeds, draw(st.booleans())))
    return nodes


@given(programs(), st.lists(st.tuples(st.booleans(), st.sampled_from([1, 3])), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_values_and_gradients_are_those_without_a_store(tmp_path_factory, nodes, forwards):
    graph = Graph()
    for number, (step, feeds, keep) in enumerate(nodes):
        piece = node(STEPS[step]).named(f"n{number}").frozen()
        graph.node(piece.cached() if keep else piece)
        for source in feeds:
            graph.edge(f"n{source}", f"n{number}")

    def found(requires_grad, **how):
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=requires_grad)
        value = summed(graph.forward({"k": [x]}, **how)).sum()
        if value.requires_grad:
            value.backward()
        return value.detach(), torch.zeros(3) if x.grad is None else x.grad

    with Store(tmp_path_factory.mktemp("store")) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepWarning)
        for requires_grad, threads in forwards:
            for ours, plain in zip(
                found(requires_grad, store=store, threads=threads), found(requires_grad), strict=True
            ):
                assert torch.allclose(ours, plain)

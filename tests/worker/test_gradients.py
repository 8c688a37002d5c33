"""Torch's modes go with a slice, and a gradient that cannot cross is an error, at whatever depth it lies."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from somatize import Broker, Graph, node
from somatize.errors import GradientCut, SomatizeWarning

from .conftest import spawned


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """What is defined here goes along."""
    worker = spawned(send=[__name__])
    with Broker.embedded({"w1": worker, "w2": worker, "pool": [worker, worker]}) as made:
        yield made


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def autocast_dtype_only() -> Iterator[None]:
    """Autocast is off, and its dtype is another one for whoever turns it on."""
    before = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        yield
    finally:
        torch.set_autocast_dtype("cpu", before)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def precision(words: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(words)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def precision_of(torch: Any) -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "set by backend"


@contextmanager
def settings() -> Iterator[None]:
    backends = torch.backends
    before = backends.cuda.matmul.fp32_precision
    backends.cudnn.deterministic = backends.cudnn.benchmark = True
    backends.cuda.enable_flash_sdp(False)
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    # The switch itself: the public one of torch is a context manager.
    torch._C._set_mkldnn_enabled(False)
    backends.cuda.matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        backends.cudnn.deterministic = backends.cudnn.benchmark = False
        backends.cuda.enable_flash_sdp(True)
        backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
        torch._C._set_mkldnn_enabled(True)
        backends.cuda.matmul.fp32_precision = before


def seen(_: Any) -> list[Any]:
    """The modes as node code sees them."""
    import torch

    with torch.autocast("cpu"):
        inner = str(torch.get_autocast_dtype("cpu"))
    return [
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        str(torch.get_autocast_dtype("cuda")),
        torch.is_autocast_cache_enabled(),
        inner,
        str(torch.get_default_dtype()),
        torch.are_deterministic_algorithms_enabled(),
        precision_of(torch),
        str(torch.empty(0).device),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        torch.backends.mkldnn.enabled,
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.matmul.fp32_precision.replace("none", "ieee"),  # which are one
        torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
        str((torch.ones(2, 2) @ torch.ones(2, 2)).dtype),
    ]


@contextmanager
def autocast_for_cuda() -> Iterator[None]:
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", torch.float16)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "none": lambda: torch.enable_grad(),
    "no_grad": lambda: torch.no_grad(),
    "inference": lambda: torch.inference_mode(),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast half, no cache": lambda: torch.autocast("cpu", dtype=torch.float16, cache_enabled=False),
    "autocast of a device that is not here": autocast_for_cuda,
    "dtype of autocast alone": autocast_dtype_only,
    "default dtype": lambda: default_dtype(torch.float64),
    "deterministic": deterministic,
    "precision": lambda: precision("medium"),
    "settings of backends": settings,
    "device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_node_sees_the_modes_of_the_one_who_runs_the_forward(name: str, mapped: bool, broker: Broker) -> None:
    far = node(seen).at("w1")
    far, given = (far.mapped(), [0, 1]) if mapped else (far, 0)
    with MODES[name]():
        expected = seen(0)
        assert Graph.somatize(far).forward(given, broker=broker) == ([expected] * 2 if mapped else expected)
        assert seen(0) == expected
    plain = Graph.somatize(node(seen).at("w1"))
    assert plain.forward(0, broker=broker) == seen(0)  # nothing of it is left there


def test_what_a_node_sets_ends_with_its_slice(broker: Broker) -> None:
    def leaves_it_off(x):
        import torch

        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        return x

    Graph.somatize(node(leaves_it_off).at("w1")).forward(0, broker=broker)
    assert Graph.somatize(node(seen).at("w1")).forward(0, broker=broker) == seen(0)


def test_slices_in_threads_have_them_too(broker: Broker) -> None:
    graph = Graph.somatize(node(seen).named("a").at("w1") | node(seen).named("b").at("w2") | node(seen).named("c"))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = seen(0)
        assert graph.forward(0, broker=broker, threads=2) == {"a": expected, "b": expected, "c": expected}


def test_a_worker_where_torch_was_not_needed_does_not_import_it() -> None:
    with Broker.embedded({"w1": spawned()}) as broker:
        graph = Graph.somatize(node(lambda _: "torch" in __import__("sys").modules).at("w1"))
        assert graph.forward(0, broker=broker) is False


# -- gradients


@dataclass
class Batch:
    x: Any


class Holder:
    def __init__(self, x: Any) -> None:
        self.x = x


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


class Mine(torch.Tensor):
    pass


def closing_over(x: Any) -> Any:
    return lambda: x


def array_of(x: Any) -> Any:
    array = np.empty(1, object)
    array[0] = x
    return array


def module_with(x: Any) -> Any:
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(x.detach())
    return module


SHAPES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "a list": lambda x: [1, [x]],
    "a dict": lambda x: {"a": {"b": (x,)}},
    "a dataclass": Batch,
    "an object": Holder,
    "an object with slots": Slotted,
    "a namespace": lambda x: types.SimpleNamespace(x=x),
    "a closure": closing_over,
    "a partial": lambda x: functools.partial(max, x),
    "a bound method": lambda x: Holder(x).__init__,  # type: ignore[misc]
    "a module": module_with,
    "a tensor class": lambda x: x.as_subclass(Mine),
    "a leaf": lambda x: x.detach().requires_grad_(),
    "a parameter": lambda x: torch.nn.Parameter(x.detach()),
    "an object array": array_of,
}


def requiring() -> Any:
    return torch.ones(3, requires_grad=True) * 2


def gone_through(value: Any) -> list[Any]:
    """The tensors in a value, wherever they lie, found without this library."""
    import io
    import pickle

    import cloudpickle
    import torch

    found: list[Any] = []

    class Finds(cloudpickle.Pickler):
        def reducer_override(self, thing):
            if isinstance(thing, torch.Tensor):
                found.append(thing)
                return str, ("",)
            return super().reducer_override(thing)

    Finds(io.BytesIO(), pickle.HIGHEST_PROTOCOL).dump(value)
    return found


def requires(value: Any) -> list[bool]:
    return [tensor.requires_grad for tensor in gone_through(value)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_value_that_requires_a_gradient_does_not_go_to_a_host(shape: str, broker: Broker) -> None:
    value = SHAPES[shape](requiring())
    assert requires(value) == [True]
    far = node(lambda x: "ran").named("far")
    words = r"{} would lose its gradient on the way to node 'far' at host 'w1'.*no_grad.*at\('w1', detached=True\)"
    with pytest.raises(GradientCut, match=words.format("the graph's input")):
        Graph.somatize(far.at("w1")).forward(value, broker=broker)
    with pytest.raises(GradientCut, match=words.format("the value of node 'here'")):
        Graph.somatize(node(lambda _: value).named("here") >> far.at("w1")).forward(0, broker=broker)
    with pytest.raises(GradientCut, match=words.format("an item of node 'far'").replace("w1", "pool")):
        Graph.somatize(far.at("pool").mapped()).forward([0, value], broker=broker)
    with torch.no_grad():
        assert Graph.somatize(far.at("w1")).forward(value, broker=broker) == "ran"
    there = Graph.somatize(node(requires).at("w1", detached=True))
    assert there.forward(value, broker=broker) == [False]
    assert requires(value) == [True]  # here nothing changed


def maker(shape: str) -> Any:
    make = SHAPES[shape]

    def far(_):
        import torch

        return make(torch.ones(3, requires_grad=True) * 2)

    return far


@pytest.mark.parametrize("shape", SHAPES)
def test_nor_does_one_come_back_to_a_node(shape: str, broker: Broker) -> None:
    words = (
        r"what node 'far' returned would lose its gradient on the way back from host 'w1'.*at\('w1', detached=True\)"
    )
    far, here = node(maker(shape)).named("far"), node(requires).named("here")
    for host, mapped in (("w1", False), ("w1", True), ("pool", True)):
        piece = far.at(host).mapped() if mapped else far.at(host)
        with pytest.raises(GradientCut, match=words.replace("w1", host)):
            Graph.somatize(piece >> here).forward([1], broker=broker)
    with pytest.raises(GradientCut, match=words):
        Graph.somatize(far.at("w1") >> here.at("w2")).forward(0, broker=broker)
    assert Graph.somatize(far.at("w1", detached=True) >> here).forward(0, broker=broker) == [False]
    with torch.no_grad():
        assert Graph.somatize(far.at("w1") >> here).forward(0, broker=broker) == [False]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_forward_returns_requires_none_and_one_warning_says_so(shape: str, broker: Broker) -> None:
    words = r"what node 'far' returned came back without its gradient.*at\('\w+', detached=True\)"
    for host, mapped in (("w1", False), ("w1", True), ("pool", True)):
        piece = node(maker(shape)).named("far").at(host)
        graph = Graph.somatize(piece.mapped() if mapped else piece)
        with pytest.warns(SomatizeWarning, match=words) as said:
            answers = [graph.forward([1], broker=broker) for _ in range(2)]
        assert [requires(answer) for answer in answers] == [[False], [False]]
        assert len(said) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loose = Graph.somatize(node(maker(shape)).named("far").at(host, detached=True))
            assert requires(loose.forward([1], broker=broker)) == [False]
            with torch.no_grad():
                assert requires(Graph.somatize(piece).forward(0, broker=broker)) == [False]


def test_a_tensor_that_one_of_two_readers_wants_with_its_gradient_is_refused(broker: Broker) -> None:
    source = node(lambda _: requiring()).named("source")
    a, b = node(lambda x: 1).named("a"), node(lambda x: 2).named("b")
    both = Graph.somatize(source >> (a.at("w1", detached=True) | b.at("w1")))
    with pytest.raises(GradientCut, match="node 'b'"):
        both.forward(0, broker=broker)
    given = requiring()
    two = node(lambda d: 1).named("two").at("w1", detached=True) | node(lambda _: 2).named("root").at("w1")
    with pytest.raises(GradientCut, match=r"the graph's input .* node 'root'"):
        Graph.somatize(two).forward(given, broker=broker)
    same = (node(lambda x: x).named("same") >> a.at("w1", detached=True)) | b.at("w1")
    with pytest.raises(GradientCut, match="node 'b'"):
        Graph.somatize(same).forward(given, broker=broker)


def test_what_stays_at_a_host_keeps_its_gradient(broker: Broker) -> None:
    first = node(torch.nn.Linear(3, 3)).named("first").at("w1")
    second = node(lambda x: bool(x.requires_grad)).named("second").at("w1")
    assert Graph.somatize(first >> second).forward(torch.ones(1, 3), broker=broker) is True


def test_a_frozen_nodes_own_weights_do_not_count(broker: Broker) -> None:
    frozen = node(torch.nn.Linear(3, 3)).named("frozen").frozen().at("w1")
    here = node(lambda x: bool(x.requires_grad)).named("here")
    assert Graph.somatize(frozen >> here).forward(torch.ones(1, 3), broker=broker) is False
    assert not Graph.somatize(frozen).forward(torch.ones(1, 3), broker=broker).requires_grad
    learner = node(torch.nn.Linear(3, 3)).named("learner").at("w1")
    with pytest.raises(GradientCut, match="what node 'frozen' returned"):
        Graph.somatize(learner >> frozen >> here).forward(torch.ones(1, 3), broker=broker)


def test_weights_go_along_as_state_and_learn_there(broker: Broker) -> None:
    class Learns:
        def __init__(self):
            self.net = torch.nn.Linear(4, 1)
            self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01)

        def forward(self, x):
            loss = self.net(x).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            return float(loss.detach())

    graph = Graph.somatize(node(Learns()).at("w1"))
    losses = [graph.forward(torch.ones(2, 4), broker=broker) for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[2]


def test_in_project_mode_too() -> None:
    with Broker.embedded({"w1": spawned(mode="project")}) as broker:
        graph = Graph.somatize(node(torch.relu).named("relu").at("w1"))
        with pytest.raises(GradientCut, match="the graph's input would lose its gradient on the way to node 'relu'"):
            graph.forward(requiring(), broker=broker)
        assert not graph.forward(requiring().detach(), broker=broker).requires_grad
        with torch.no_grad():
            assert graph.forward(requiring(), broker=broker).tolist() == [2, 2, 2]


def test_an_exception_that_holds_a_tensor_comes_back_without_its_gradient(broker: Broker) -> None:
    def raises(_):
        import torch

        raise ValueError("no", torch.ones(2, requires_grad=True))

    with pytest.raises(ValueError, match="no") as raised:
        Graph.somatize(node(raises).at("w1")).forward(0, broker=broker)
    assert not raised.value.args[1].requires_grad

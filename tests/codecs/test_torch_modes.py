"""What is asked of torch: devices, modes, and tensors that cross edges as they are."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import namedtuple
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from somatize import Graph, Node, node
from somatize.codecs import tensors
from somatize.errors import DeviceMismatch


class Pass(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        return value


def placed(forward: Any, device: Any = "cpu") -> Graph:
    return Graph.somatize(node(forward).named("n").on(device))


META = torch.zeros(2, device="meta")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("watching", [None, [].append])
def test_a_gradient_flows_through_the_edges(watching: Any, threads: int) -> None:
    torch.manual_seed(0)
    left, right = nn.Linear(3, 3), nn.Linear(3, 3)
    graph = Graph.somatize(
        Pass().named("in")
        >> (node(left).named("left") | node(right).named("right"))
        >> node(lambda both: both["left"] * both["right"]).named("mul")
        >> node(lambda x: x.pow(2).sum()).named("loss")
    )
    x = torch.randn(4, 3, requires_grad=True)
    graph.forward(x, watching=watching, threads=threads).backward()
    ours = [p.grad.clone() for p in (*left.parameters(), *right.parameters(), x)]
    for p in (*left.parameters(), *right.parameters(), x):
        p.grad = None
    (left(x) * right(x)).pow(2).sum().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(ours, (*left.parameters(), *right.parameters(), x), strict=True))


def test_a_module_s_hooks_and_its_mode_are_its_own() -> None:
    heard: list[str] = []
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval()
    module.register_forward_hook(lambda *_: heard.append("outer"))
    module[0].register_forward_pre_hook(lambda *_: heard.append("inner"))
    x = torch.ones(1, 2)
    assert torch.equal(Graph.somatize(module).forward(x), module(x))
    assert heard == ["inner", "outer"] * 2


def test_a_module_that_is_a_node_runs_through_its_call() -> None:
    class Both(nn.Module, Node):
        def forward(self, value: Any, ctx: Any) -> Any:
            return ctx.node

    both, heard = Both(), []
    both.register_forward_hook(lambda *_: heard.append("hook"))
    assert Graph.somatize(both.named("me")).forward(1) == "me"
    assert heard == ["hook"]


# Devices


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("watched", [True, False])
def test_a_tensor_elsewhere_is_an_error_naming_node_and_both_devices(watched: bool, threads: int) -> None:
    seen: list[dict[str, str]] = []
    ran: list[Any] = []
    graph = Graph.somatize(node(lambda x: META).named("moves").on("cpu") >> node(ran.append))
    with pytest.raises(DeviceMismatch) as raised:
        graph.forward(watching=seen.append if watched else None, threads=threads)
    assert str(raised.value) == (
        "node 'moves' was placed on 'cpu' and returned a tensor on 'meta'; "
        "move it to ctx.device in the node, or place the node elsewhere"
    )
    assert raised.value.__notes__ == ["in node 'moves', step 1 of 2"]
    assert ran == []
    if watched:
        assert [(fact["fact"], fact.get("device")) for fact in seen] == [("failed", "cpu"), ("broke", None)]
        assert seen[0]["why"] == seen[1]["why"] == f"DeviceMismatch: {raised.value}"


Pair = namedtuple("Pair", "left right")  # noqa: PYI024  the old kind of tuple


@pytest.mark.parametrize(
    "value",
    [META, (1, META), [META], {"a": 1, "b": META}, Pair(1, META), nn.Parameter(META)],
    ids=["tensor", "tuple", "list", "dict", "namedtuple", "parameter"],
)
def test_a_tensor_is_found_where_it_lies_directly(value: Any) -> None:
    assert tensors.elsewhere(value, "cpu") == "meta"
    with pytest.raises(DeviceMismatch, match="placed on 'cuda:1' and returned a tensor on 'meta'"):
        placed(lambda x: value, "cuda:1").forward()


class HasDevice:
    device = "cuda:9"


@pytest.mark.parametrize("value", [1, "cuda", None, [], {}, HasDevice(), [HasDevice()], object(), torch.device("cuda")])
def test_values_without_a_device_are_not_checked(value: Any) -> None:
    assert placed(lambda x: value).forward() is value


@pytest.mark.parametrize(
    ("device", "value"),
    [
        ("cpu", torch.zeros(1)),
        ("cpu:0", torch.zeros(1)),
        ("meta", META),
        ("meta:0", META),
        (torch.device("cpu"), torch.zeros(1)),
        ("cpu", (torch.zeros(1), [META])),  # deeper than one level is not looked at
    ],
)
def test_a_tensor_on_its_node_s_device_is_right(device: Any, value: Any) -> None:
    assert placed(lambda x: value, device).forward() is value
    assert placed(lambda x: value, device).forward(watching=[].append) is value


class Somewhere:
    """As much of a tensor's device as is looked at, for devices that are not here."""

    @staticmethod
    def of(name: str) -> Any:
        return type("Device", (), {"__str__": lambda self: name})()


@pytest.mark.parametrize(
    ("placed_on", "actual", "wrong"),
    [
        ("cuda", "cuda:0", False),
        ("cuda", "cuda:3", False),
        ("cuda:0", "cuda:0", False),
        ("cuda:0", "cuda:1", True),
        ("cuda:1", "cuda:0", True),
        ("cuda:1", "cuda:11", True),
        ("cuda", "cpu", True),
        ("cpu", "cuda:0", True),
        ("mps", "mps:0", False),
        ("mps:0", "mps:0", False),
        ("xpu:0", "xpu:0", False),
        ("cpu:0", "cpu", False),
        ("cuda:1", "cuda", True),
        ("cuda:0", "cuda", False),
    ],
)
def test_a_device_without_a_number_is_any_of_them(
    placed_on: str, actual: str, wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fake:
        device = Somewhere.of(actual)

    # No machine has all of these devices.
    monkeypatch.setattr(torch, "Tensor", Fake)
    assert tensors.elsewhere(Fake(), placed_on) == (actual if wrong else None)


def test_a_node_moves_its_tensors_to_what_on_said() -> None:
    moved = placed(lambda x, ctx: x.to(ctx.device), "meta").forward(torch.zeros(2))
    assert moved.device.type == "meta"


# Without torch


def alone(code: str) -> str:
    """What a fresh interpreter prints that runs `code`."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout


def test_a_graph_runs_where_torch_was_never_imported_and_does_not_import_it() -> None:
    code = """
import sys, threading
from somatize import Graph, node
both = threading.Barrier(2)
g = Graph.somatize((node(lambda x: both.wait(9)).on("cuda") | node(lambda x: both.wait(9))) >> (lambda x: len(x)))
print(g.forward(1, threads=2, watching=[].append), "torch" in sys.modules)
"""
    assert alone(code) == "2 False\n"


def test_torch_imported_by_a_branch_does_no_harm() -> None:
    code = """
import sys
from somatize import Graph, node
def late(x):
    import torch
    return torch.ones(1)
g = Graph.somatize((node(late).on("cpu") | node(late)) >> (lambda x: sum(x.values()).item()))
print("torch" in sys.modules, g.forward(threads=2), "torch" in sys.modules)
"""
    assert alone(code) == "False 2.0 True\n"


def test_modes_are_read_and_set_again_in_another_thread() -> None:
    seen: list[Any] = []
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        those = tensors.modes()

    def other() -> None:
        with tensors.within(those):
            seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(20)
    assert seen == [(False, True, torch.bfloat16), (True, False)]


def test_torch_half_imported_by_another_thread_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    half: Any = ModuleType("torch")
    half.__spec__ = SimpleNamespace(_initializing=True)
    monkeypatch.setitem(sys.modules, "torch", half)
    both = threading.Barrier(2)
    graph = Graph.somatize(node(lambda x: both.wait(10) * 0).on("cpu") | node(lambda x: both.wait(10) * 0).on("cpu"))
    assert graph.forward(threads=2) == {"lambda": 0, "lambda_2": 0}

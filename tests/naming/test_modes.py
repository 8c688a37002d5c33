"""Modes that change what the same code computes count in a name, and only while they are not the default ones."""

from __future__ import annotations

import contextlib
import decimal
import locale

import numpy as np
import pytest
import torch

from somatize import Graph, Store, node
from somatize.naming import names


@contextlib.contextmanager
def set_for_now(get, set, value):
    before = get()
    set(value)
    try:
        yield
    finally:
        set(before)


def attribute(holder, name, value):
    return set_for_now(lambda: getattr(holder, name), lambda now: setattr(holder, name, now), value)


@contextlib.contextmanager
def default_device(name):
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * 2 if func is torch.Tensor.add else found


WAYS = {
    "autocast cpu bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast cpu float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast of another device": lambda: torch.autocast("xpu", dtype=torch.float16),
    "default dtype": lambda: set_for_now(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default device": lambda: default_device("meta"),
    "device as a context": lambda: torch.device("meta"),
    "matmul precision": lambda: set_for_now(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "tf32 cuda": lambda: attribute(torch.backends.cuda.matmul, "allow_tf32", True),
    "tf32 cudnn": lambda: attribute(torch.backends.cudnn, "allow_tf32", False),
    "cudnn deterministic": lambda: attribute(torch.backends.cudnn, "deterministic", True),
    "cudnn benchmark": lambda: attribute(torch.backends.cudnn, "benchmark", True),
    "deterministic": lambda: set_for_now(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    # The switch itself: the public one of torch is a context manager.
    "mkldnn": lambda: set_for_now(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, False),
    "denormal numbers": lambda: set_for_now(lambda: False, torch.set_flush_denormal, True),
    "a mode of the user's": Doubling,
    "decimal precision": lambda: decimal.localcontext(prec=5),
    "decimal rounding": lambda: decimal.localcontext(rounding=decimal.ROUND_UP),
    "numpy raises": lambda: np.errstate(divide="raise"),
}


@pytest.fixture
def run(tmp_path):
    store, calls = Store(tmp_path / "kept"), []

    def work(x):
        return x + 1

    graph = Graph.somatize(node(work).named("n").frozen().cached())

    def run():
        facts = []
        graph.forward(1, store=store, watching=facts.append)
        calls.append(facts[0]["fact"])
        return calls[-1]

    run.foreseen = lambda: str(graph.foreseen(1, store=store)["n"])
    yield run
    store.close()


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_mode_that_changes_results_is_another_name_and_the_default_one_is_found_again(run, way):
    assert names.modes() == {}
    assert run() == "ran"
    with WAYS[way]():
        assert "mode `" in run.foreseen()
        assert [run(), run()] == ["ran", "recalled"]
    assert names.modes() == {}
    assert run() == "recalled"
    with WAYS[way]():
        assert run() == "recalled"


def test_two_values_of_a_mode_are_two_names(run):
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            assert run() == "ran"


@pytest.mark.parametrize(
    "way",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", enabled=False),
        lambda: set_for_now(torch.get_num_threads, torch.set_num_threads, 1),
        lambda: np.errstate(divide="ignore"),
        lambda: np.printoptions(precision=2),
    ],
)
def test_what_changes_no_number_is_the_same_name(run, way):
    run()
    with way():
        assert run() == "recalled"


def test_a_locale_that_reads_numbers_otherwise_counts(run):
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"):
        with contextlib.suppress(locale.Error):
            with set_for_now(
                lambda: locale.setlocale(locale.LC_NUMERIC), lambda now: locale.setlocale(locale.LC_NUMERIC, now), name
            ):
                assert "locale LC_NUMERIC" in names.modes()
            break
    assert names.modes() == {}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kept_result_of_half_precision_is_not_recalled_outside_of_autocast(tmp_path, threads):
    torch.manual_seed(0)
    net, x = torch.nn.Linear(16, 4).requires_grad_(False), torch.randn(8, 16)
    graph = Graph.somatize(node(net).named("features").frozen().cached() | node(len).named("rows"))
    with Store(tmp_path / "kept") as store:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert graph.forward(x, store=store, threads=threads)["features"].dtype is torch.bfloat16
        for _ in range(2):
            assert torch.equal(graph.forward(x, store=store, threads=threads)["features"], net(x))


def test_the_default_device_of_the_caller_is_that_of_nodes_in_branches():
    def made(x):
        return str(torch.zeros(x).device)

    with default_device("meta"):
        found = Graph.somatize(node(made).named("a") | node(made).named("b")).forward(1, threads=2)
    assert found == {"a": "meta", "b": "meta"}

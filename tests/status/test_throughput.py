"""Throughput: counts, rates, waiting, and what is said of FLOPs. Case C026."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import textwrap
import threading
from collections import UserDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import Graph
from somatize.errors import BadOption
from somatize.status import Status, TaskEvent, ThroughputStats
from somatize.status.flops import Counter, samples_in, size_of

A = torch.ones(8, 8)
MATMUL = 2 * 8**3


def counted(work: Any, steps: int = 1, batch: Any = None) -> ThroughputStats:
    status = Status()
    throughput = status.throughput("t")
    for _ in range(steps):
        with throughput.step(A if batch is None else batch):
            work()
    status.close()
    return throughput.stats()


def test_nothing_yet(clock: Any) -> None:
    status = Status(clock=clock)
    throughput = status.throughput("train")
    assert throughput.stats() == ThroughputStats(0, 0, None, None, None, None, None)
    assert status.throughput("train") is throughput
    assert [stream.stream for stream in status.throughputs] == ["train"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        throughput.stats().samples = 3  # type: ignore[misc]


def test_rates_and_the_share_of_waiting(clock: Any) -> None:
    status = Status(clock=clock, window=4)
    throughput = status.throughput("train")

    def loader() -> Any:
        for number in range(10):
            clock.pass_(0.25 if number < 6 else 0.75)
            yield [0] * 8

    for batch in throughput.iterate(loader()):
        with throughput.step(batch):
            clock.pass_(0.25)
    stats = throughput.stats()
    assert (stats.samples, stats.batches) == (80, 10)
    assert (stats.samples_per_s, stats.batches_per_s) == (pytest.approx(8.0), pytest.approx(1.0))
    assert stats.waiting == pytest.approx(0.75)
    assert stats.flops_per_s is None


def test_what_passes_between_steps_counts_and_between_passes_does_not(clock: Any) -> None:
    status = Status(clock=clock)
    throughput = status.throughput("train")
    for _ in range(2):
        for _ in throughput.iterate([1, 2]):
            with throughput.step(samples=10):
                clock.pass_(0.5)
            clock.pass_(0.5)
        clock.pass_(100)
    stats = throughput.stats()
    assert stats.samples_per_s == pytest.approx(40 / 3)  # what follows the last step of a pass is after it
    assert stats.waiting == 0


def test_steps_alone_are_timed_by_themselves(clock: Any) -> None:
    throughput = (status := Status(clock=clock)).throughput("t")
    for _ in range(3):
        with throughput.step([1, 2]):
            clock.pass_(2)
        clock.pass_(50)
    assert throughput.stats() == ThroughputStats(6, 3, 1.0, 0.5, None, None, None)
    status.close()


def test_steps_of_several_threads_at_once_are_as_fast_as_they_are_together(clock: Any) -> None:
    with Status(clock=clock, profile_flops=False) as status:
        throughput = status.throughput("t")
        for _ in range(3):
            steps = [throughput.step([1, 2]) for _ in range(4)]
            for step in steps:
                step.__enter__()
            clock.pass_(2)
            for step in steps:
                step.__exit__(None, None, None)
            clock.pass_(50)
        stats = throughput.stats()
    assert (stats.samples, stats.samples_per_s, stats.batches_per_s) == (24, 4, 2)


def test_a_step_that_raises_is_not_counted(clock: Any) -> None:
    throughput = (status := Status(clock=clock)).throughput("t")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), throughput.step(A):
            torch.mm(A, A)
            raise error
    assert throughput.stats().batches == 0
    with throughput.step(A):
        torch.mm(A, A)
        clock.pass_(1)
    assert throughput.stats().flops_per_s == MATMUL
    status.close()


def test_no_time_no_rate(clock: Any) -> None:
    throughput = (status := Status(clock=clock)).throughput("t")
    with throughput.step(A):
        torch.mm(A, A)
    stats = throughput.stats()
    assert (stats.samples_per_s, stats.batches_per_s, stats.flops_per_s, stats.flops_exact) == (None, None, None, None)
    status.close()


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_the_wait_for_the_first_batch_is_a_task(batches: int) -> None:
    status = Status()
    seen: list[Any] = []
    status.subscribe(lambda event: seen.append((event.kind.value, event.task.name)))

    def loader() -> Any:
        assert status.current is not None
        assert status.current.name == "train: waiting for the first batch"
        yield from range(batches)

    for _ in status.throughput("train").iterate(loader()):
        assert status.current is None
    assert [kind for kind, _ in seen] == ["started", "finished"]


def test_a_loader_that_raises_fails_that_task() -> None:
    status = Status()
    over: list[Any] = []
    status.subscribe(lambda event: over.append(event.task) if isinstance(event, TaskEvent) else None)

    class Loader:
        def __iter__(self) -> Any:
            raise OSError("no shard")

    with pytest.raises(OSError, match="no shard"):
        list(status.throughput("t").iterate(Loader()))
    assert over[-1].why == "OSError: no shard"


class Pair(NamedTuple):
    x: Any
    y: Any


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (None, None),
        ([1, 2, 3], 3),
        ((), 0),
        ({"a": [1, 2]}, 2),
        ({"x": torch.zeros(5, 2), "y": torch.zeros(5)}, 5),
        (UserDict(a=[1, 2, 3]), 3),
        (UserDict(input_ids=torch.zeros(5, 9), labels=torch.zeros(5)), 5),
        ({"weight": torch.tensor(1.0), "name": "a", "x": torch.zeros(5, 2)}, 5),
        ({"names": ["a", "b", "c"], "epoch": 1}, 3),
        ({"inputs": {"x": torch.zeros(5, 2)}}, 5),
        ({}, None),
        (torch.zeros(4, 7), 4),
        (torch.tensor(3.0), None),
        (np.zeros((6, 2)), 6),
        ((torch.zeros(4, 7), torch.zeros(4)), 4),
        ([torch.zeros(4, 7), torch.zeros(4)], 4),
        (Pair(np.zeros(3), np.zeros(3)), 3),
        (((torch.zeros(4, 7), torch.zeros(4)), torch.zeros(4)), 4),
        ((["a", "b", "c"], torch.zeros(3)), 3),
        (({"x": torch.zeros(5, 2)}, torch.zeros(5)), 5),
        (([np.zeros((3, 8, 8)), np.zeros((3, 9, 8)), np.zeros((1, 8, 8)), np.zeros((3, 9, 9))], [1, 2, 3, 4]), 4),
        ([{"x": torch.zeros(5, 2)}], 5),
        ([{"x": torch.zeros(3, 2)}, {"x": torch.zeros(3, 2)}], 2),
        ([["a"], ["b"], ["c"]], 3),
        ([{"a": 1}, {"a": 2}, {"a": 3}], 3),
        ("a text", None),
        (b"bytes", None),
        (7, None),
        (object(), None),
        (iter([1]), None),
        (SimpleNamespace(num_graphs=16, batch_size=3), 16),
        (SimpleNamespace(batch_size=3, num_nodes=90), 3),
        (SimpleNamespace(batch_size=torch.Size([12, 2])), 12),
        (SimpleNamespace(num_nodes=90), 90),
        (SimpleNamespace(num_nodes=np.int64(90)), 90),
        (SimpleNamespace(num_graphs=torch.tensor(8)), 8),
        (SimpleNamespace(num_nodes=lambda: 1, batch_size=True), None),
    ],
)
def test_how_many_samples_a_batch_holds(batch: Any, size: int | None) -> None:
    assert samples_in(batch) == size


def test_a_batch_whose_size_raises_is_counted_without() -> None:
    class Torn:
        def __len__(self) -> int:
            raise RuntimeError("torn")

    status = Status()
    throughput = status.throughput("t")
    with throughput.step([1]):
        pass
    with throughput.step(Torn()):
        pass
    stats = throughput.stats()
    assert (stats.samples, stats.batches, stats.samples_per_s) == (None, 2, None)


# -- FLOPs


def test_a_matmul_is_counted_and_later_batches_are_told_by_it(clock: Any) -> None:
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for size, flops, exact in ((8, MATMUL, True), (8, MATMUL, True), (4, MATMUL * 3 / 4, False)):
            with throughput.step(torch.ones(size, 8)):
                torch.mm(torch.ones(size, 8), A).relu()
                clock.pass_(1)
            stats = throughput.stats()
            assert (stats.flops_per_s, stats.flops_exact) == (flops, exact)  # the counted one takes longer
        with throughput.step(torch.ones(4, 8)):
            torch.mm(torch.ones(4, 8), A)
        assert throughput.stats().flops_exact is True, "the second of a shape is counted"


class Graphs:
    """What a batch of graphs of torch_geometric says of itself."""

    def __init__(self, nodes: int) -> None:
        self.x = torch.ones(nodes, 8)
        self.edge_index = torch.zeros(2, 3 * nodes, dtype=torch.long)
        self.batch = torch.zeros(nodes, dtype=torch.long)

    @property
    def num_graphs(self) -> int:
        return 2


class CallableGraphs:
    """What one of dgl says of itself."""

    batch_size = 2

    def __init__(self, nodes: int) -> None:
        self.x = torch.ones(nodes, 8)

    def num_nodes(self) -> int:
        return len(self.x)


def padded(length: int) -> Any:
    return {"ids": torch.zeros(4, length, dtype=torch.long), "labels": torch.zeros(4)}


UNEVEN = {
    "graphs": Graphs,
    "methods": CallableGraphs,
    "with targets": lambda nodes: (Graphs(nodes), torch.zeros(2)),
    "a mapping": lambda nodes: {"x": torch.ones(nodes, 8), "edge_index": torch.zeros(2, 17), "y": torch.zeros(2)},
    "a list": lambda nodes: [Graphs(nodes - 3), Graphs(3)],
    "a list of sequences": lambda length: [torch.zeros(length - 2, 8), torch.zeros(1, 8), torch.zeros(1, 8)],
    "tokens": lambda length: [[1] * (length - 2), [1], [1]],
    "texts": lambda length: ["a" * (length - 1), "b"],
    "an array": lambda length: np.zeros((2, length)),
}


@pytest.mark.parametrize("batch", UNEVEN.values(), ids=UNEVEN)
def test_batches_of_few_samples_are_scaled_by_how_much_is_in_them(batch: Any, clock: Any) -> None:
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for length in (10, 1000):
            with throughput.step(batch(length)):
                torch.mm(torch.ones(length, 8), A)
                clock.pass_(1)
        stats = throughput.stats()
    assert (stats.flops_per_s, stats.flops_exact) == (2 * 1000 * 8 * 8, False)


def test_a_mapping_that_makes_what_it_is_asked_for_is_asked_for_no_more_than_its_samples() -> None:
    class Lazy(Mapping[str, Any]):
        asked = 0

        def __getitem__(self, name: str) -> Any:
            Lazy.asked += 1
            return torch.zeros(4, 2)

        def __iter__(self) -> Any:
            return iter(["x", "y"])

        def __len__(self) -> int:
            return 2

    assert samples_in(Lazy()) == 4
    asked = Lazy.asked
    assert size_of(Lazy(), 4) == ("samples", 4, None)
    assert Lazy.asked == asked


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (None, ("samples", 9, None)),
        (object(), ("samples", 9, None)),
        ([A, object()], ("samples", 9, None)),
        (torch.eye(3).to_sparse(), ("samples", 9, None)),
        ([[[[[[[[1]]]]]]]], ("samples", 9, None)),
        ([A] * 300, ("samples", 9, None)),
        ((A, 3), ("elements", 64, (("tuple", 2), (8, 8), ("int", 3)))),
        ((A, torch.tensor(3)), ("elements", 64, (("tuple", 2), (8, 8), ()))),
        ({"x": np.zeros((2, 3)), "y": [1, 2]}, ("elements", 8, (("dict", 2, "x", "y"), (2, 3), (2,)))),
    ],
)
def test_how_much_work_a_batch_may_be(batch: Any, size: Any) -> None:
    assert size_of(batch, 9) == size


def test_padded_batches_are_scaled_by_their_elements(clock: Any) -> None:
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for length in (10, 1000):
            with throughput.step(padded(length)):
                torch.mm(torch.ones(4 * length, 8), A)
                clock.pass_(1)
        stats = throughput.stats()
    assert stats.flops_per_s == pytest.approx(2 * 4000 * 8 * 8, rel=0.1)
    assert stats.flops_exact is False


@pytest.mark.parametrize("first", [3, 0.5, np.float32(2), torch.tensor(7)])
def test_work_that_is_said_is_what_batches_are_scaled_by(first: Any, clock: Any) -> None:
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for factor, exact in ((1, True), (1, True), (10, False)):
            with throughput.step(A, work=first * factor):
                torch.mm(torch.ones(8 * factor, 8), A)
                clock.pass_(1)
            assert throughput.stats().flops_exact is exact
        assert throughput.stats().flops_per_s == pytest.approx((MATMUL + 10 * MATMUL) / 2)


@pytest.mark.parametrize("work", [-1, math.nan, math.inf, "4", [1], object()])
def test_work_that_is_no_amount_is_refused_before_the_step(work: Any) -> None:
    with Status() as status, pytest.raises(BadOption, match="work="):
        status.throughput("train").step(A, work=work)


@pytest.mark.parametrize("how", [{"samples": 8}, {}, {"batch": object()}], ids=["samples", "nothing", "opaque"])
def test_batches_nobody_sees_the_shapes_of_are_never_said_to_be_alike(how: Any, clock: Any) -> None:
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for _ in range(3):
            with throughput.step(**how):
                torch.mm(A, A)
                clock.pass_(1)
        stats = throughput.stats()
    assert (stats.flops_per_s, stats.flops_exact) == (MATMUL, False)


def test_what_other_batches_did_is_unknown_where_only_some_say_their_size(clock: Any) -> None:
    with Status(clock=clock, window=1) as status:
        throughput = status.throughput("t")
        for batch in (A, object(), Graphs(3)):
            with throughput.step(batch):
                torch.mm(A, A)
                clock.pass_(1)
        assert throughput.stats().flops_per_s is None


def evaluate_outside(step: Any, net: Any, clock: Any) -> None:
    with torch.no_grad(), step:
        net(A)
        clock.pass_(1)


def evaluate_inside(step: Any, net: Any, clock: Any) -> None:
    with step, torch.no_grad():
        net(A)
        clock.pass_(1)


def evaluate_recording(step: Any, net: Any, clock: Any) -> None:
    with step:
        net(A)
        clock.pass_(1)


@pytest.mark.parametrize("evaluate", [evaluate_outside, evaluate_inside, evaluate_recording])
@pytest.mark.parametrize("first", ["train", "evaluate"])
def test_training_and_evaluation_in_one_stream_are_told_apart(evaluate: Any, first: str, clock: Any) -> None:
    net = torch.nn.Linear(8, 8)
    with Status(clock=clock, window=6) as status:
        throughput = status.throughput("both")

        def train(step: Any) -> None:
            with step:
                net(A).sum().backward()
                clock.pass_(1)

        work = {"train": train, "evaluate": lambda step: evaluate(step, net, clock)}
        expected = {"train": 2 * MATMUL, "evaluate": MATMUL}  # the input needs no gradient
        other = "evaluate" if first == "train" else "train"
        for phase in (first, other, first, other):
            for _ in range(8):
                work[phase](throughput.step(A))
            stats = throughput.stats()
            assert (stats.flops_per_s, stats.flops_exact) == (expected[phase], True)
        for _ in range(3):
            train(throughput.step(A))
            work["evaluate"](throughput.step(A))
        stats = throughput.stats()
        assert (stats.flops_per_s, stats.flops_exact) == (1.5 * MATMUL, True)


def test_steps_that_record_more_or_less_are_told_apart(clock: Any) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    with Status(clock=clock, window=5) as status:
        throughput = status.throughput("unfrozen on the way")
        for number in range(30):
            layers[0].requires_grad_(number >= 20)
            with throughput.step(A):
                layers(A).sum().backward()
                clock.pass_(1)
            stats = throughput.stats()
            if number in (19, 29):
                assert (stats.flops_per_s, stats.flops_exact) == ((3 if number == 19 else 5) * MATMUL, True)
            elif number == 20:
                assert stats.flops_exact is False


def test_whole_numbers_in_a_batch_may_say_how_much_is_done(clock: Any) -> None:
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for number in range(20):
            with throughput.step({"x": A, "times": 1 + number % 2}), torch.no_grad():
                for _ in range(1 + number % 2):
                    torch.mm(A, A)
                clock.pass_(1)
        stats = throughput.stats()
    assert (stats.flops_per_s, stats.flops_exact) == (1.5 * MATMUL, True)


def test_steps_that_do_more_or_less_on_batches_of_one_shape_are_no_exact_count(clock: Any) -> None:
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for number in range(40):
            with throughput.step(A), torch.no_grad():
                for _ in range(1 + number % 3):
                    torch.mm(A, A)
                clock.pass_(1)
        assert throughput.stats().flops_exact is False


def test_the_steps_that_are_counted_are_few(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted_at: list[int] = []
    # Which steps are counted shows nowhere else.
    begin = Counter.begin
    monkeypatch.setattr(Counter, "begin", lambda self: (counted_at.append(number), begin(self))[1])
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for number in range(1, 301):  # noqa: B007  it is in `counted_at`
            with throughput.step(A), torch.no_grad():
                torch.mm(A, A)
        assert counted_at == [1, 4, 14, 45, 139]
        for number in range(1000, 1400):
            with throughput.step(torch.ones(number, 8)), torch.no_grad():
                torch.mm(A, A)
        assert counted_at[5:] == [1121], "of shapes that never come again few are counted"
        for _ in range(2):
            for number in range(2000, 2100):
                with throughput.step(torch.ones(number, 8)), torch.no_grad():
                    torch.mm(A, A)
        assert len(counted_at) <= 64


def test_a_counted_step_is_left_out_of_the_rates(clock: Any) -> None:
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for number in range(4):
            with throughput.step(A):
                torch.mm(A, A)
                clock.pass_(9 if number in (0, 3) else 1)
        stats = throughput.stats()
    assert (stats.samples_per_s, stats.batches_per_s, stats.flops_per_s) == (8, 1, MATMUL)
    assert (stats.samples, stats.batches) == (32, 4)


def test_with_a_device_no_backward_pass_is_begun_before_the_loop_s_own(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from somatize.codecs import tensors

    # There is no device here: that torch sees one, and what it does then with a pass, is played.
    monkeypatch.setattr(tensors, "_has_no_device", lambda torch: False)
    monkeypatch.setattr(tensors, "_seen_in_backward", False)
    monkeypatch.setattr(tensors, "_passes_known", None)
    begun: list[Any] = []
    monkeypatch.setattr(
        tensors, "_begin_a_pass", lambda torch, begin=tensors._begin_a_pass: begun.append(1) or begin(torch)
    )
    net = torch.nn.Linear(8, 8)
    with Status(clock=clock) as status:
        throughput = status.throughput("t")
        for _ in range(3):
            with throughput.step(A):
                net(A)
                clock.pass_(1)
        stats = throughput.stats()
        assert (stats.flops_per_s, stats.flops_exact, begun) == (MATMUL, False, []), "these may have been trained on"
        for _ in range(10):
            with throughput.step(A):
                net(A).sum().backward()
                clock.pass_(1)
        assert begun
    with Status(clock=clock, window=2) as status:
        throughput = status.throughput("t")
        for _ in range(3):
            with throughput.step(A):
                net(A)
                clock.pass_(1)
        assert throughput.stats().flops_exact is True


def test_backward_passes_are_counted_without_those_that_count_them() -> None:
    from somatize.codecs import tensors

    before = tensors.backward_passes()
    assert before is not None
    assert tensors.backward_passes() == before
    for context in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with context():
            assert tensors.backward_passes() == before
    torch.ones(3, requires_grad=True).sum().backward()
    assert tensors.backward_passes() == before + 1


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_it_is_counted_right_in_every_mode(context: Any) -> None:
    layer = torch.nn.Linear(8, 8)
    with context():
        stats = counted(lambda: layer(A))
    assert stats.flops_exact is True
    assert stats.flops_per_s is not None


def test_a_training_step_is_counted_wholly(clock: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters())
    status = Status(clock=clock)
    throughput = status.throughput("t")
    with throughput.step(A):
        loss = F.cross_entropy(model(A), torch.zeros(8, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.pass_(1)
    stats = throughput.stats()
    forward = 2 * 8 * 8 * 8 + 2 * 8 * 8 * 3
    assert stats.flops_per_s == forward + (2 * 8 * 8 * 8) + 2 * (2 * 8 * 8 * 3)  # the first layer's input needs none
    assert stats.flops_exact is True
    status.close()


def custom() -> Any:
    if not hasattr(torch.ops, "somatize_test") or not hasattr(torch.ops.somatize_test, "triple"):

        @torch.library.custom_op("somatize_test::triple", mutates_args=())
        def triple(x: torch.Tensor) -> torch.Tensor:
            return x @ x @ x

        return triple
    return torch.ops.somatize_test.triple


def in_a_pool(work: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


@pytest.mark.parametrize(
    "work",
    [
        lambda: F.scaled_dot_product_attention(*[torch.randn(1, 2, 16, 16)] * 3),
        lambda: np.ones((64, 64)) @ np.ones((64, 64)),
        lambda: custom()(A),
        lambda: torch.linalg.inv(A + torch.eye(8)),
        lambda: in_a_pool(lambda: A @ A),
        lambda: A + A,
        lambda: None,
    ],
    ids=["attention", "numpy", "custom", "inverse", "pool", "elementwise", "nothing"],
)
def test_never_a_confident_zero(work: Any) -> None:
    stats = counted(work)
    if stats.flops_per_s is None:
        assert stats.flops_exact is None
    else:
        assert stats.flops_per_s > 0
        assert stats.flops_exact is False


@pytest.mark.parametrize(
    ("work", "exact"),
    [
        (lambda: F.scaled_dot_product_attention(*[torch.randn(1, 2, 16, 16)] * 3), False),
        (lambda: custom()(A), False),
        (lambda: torch.fft.fft(A), False),
        (lambda: in_a_pool(lambda: A @ A), False),
        (lambda: A.relu().sum().softmax(0), True),
        (lambda: torch.cat([A, A]).view(-1)[:3].clone().mean(), True),
        (lambda: F.max_pool2d(F.batch_norm(A[None, None], torch.zeros(1), torch.ones(1)), 2), True),
    ],
)
def test_at_least_where_not_all_is_seen(work: Any, exact: bool) -> None:
    assert counted(lambda: (A @ A, work())).flops_exact is exact


def test_a_thread_that_was_there_before_is_seen_too() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: None).result()
        big = torch.ones(400, 400)

        def work() -> None:
            torch.mm(A, A)
            pool.submit(lambda: [big @ big for _ in range(10)]).result()

        assert counted(work).flops_exact is False


def test_nodes_in_threads_and_outside_torch_are_seen() -> None:
    status = Status()

    def flops_exact(graph: Graph, **how: Any) -> bool | None:
        throughput = status.throughput(f"stream {len(status.throughputs)}")
        with throughput.step(A):
            graph.forward(A, watching=status, **how)
        return throughput.stats().flops_exact

    from somatize import node

    square = node(lambda x: x @ x).named("square")
    pair = Graph.somatize(square >> (node(lambda x: x @ x).named("b") | node(lambda x: x @ x).named("c")))
    assert flops_exact(Graph.somatize(square)) is True
    assert flops_exact(pair) is True
    again = Graph.somatize(square >> (node(lambda x: x @ x).named("b") | node(lambda x: x @ x).named("c")))
    assert flops_exact(again, threads=2) is False
    heavy = np.ones((600, 600))
    assert flops_exact(Graph.somatize(square >> node(lambda x: (heavy @ heavy, x)[1]).named("numpy"))) is False
    status.close()


def test_a_forward_inside_no_step_is_not_counted() -> None:
    status = Status()
    throughput = status.throughput("t")
    Graph.somatize(lambda x: x @ x).forward(A, watching=status)
    assert throughput.stats().batches == 0
    status.close()


def test_an_operator_of_higher_order_runs_and_is_said_as_at_least() -> None:
    def work() -> Any:
        out = torch.cond(A.sum() > 0, lambda x: x @ x, lambda x: x.sin(), (A,))
        assert torch.equal(out, A @ A)
        return torch.mm(A, A)

    stats = counted(work)
    assert stats.batches == 1
    assert stats.flops_exact is not True


@pytest.mark.parametrize("where", ["formula", "begin", "end"])
def test_an_error_in_the_counter_drops_the_rate_and_never_the_step(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import flop_counter

    def torn(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("torn counter")

    if where == "formula":
        monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.mm, torn)
    elif where == "begin":
        # Errors in torch itself have to be made.
        monkeypatch.setattr(flop_counter.FlopCounterMode, "__init__", torn)
    else:
        monkeypatch.setattr(flop_counter.TorchDispatchMode, "__exit__", torn)
    values: list[Any] = []
    stats = counted(lambda: values.append(A @ A))
    monkeypatch.undo()
    if where == "end":  # what was torn there is still on torch's stack
        from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode

        while _get_current_dispatch_mode_stack():
            _pop_mode()
    assert torch.equal(values[0], A @ A)
    assert (stats.batches, stats.flops_per_s) == (1, None)


def test_tensors_of_other_kinds_work_as_they_do_without_a_counter(clock: Any) -> None:
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, held: torch.Tensor) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

        def __init__(self, held: torch.Tensor) -> None:
            self.held = held

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return Wrapped(func(*(one.held if isinstance(one, Wrapped) else one for one in args), **(kwargs or {})))

    layer = torch.nn.Linear(8, 8)
    nested = [torch.nested.nested_tensor([torch.ones(n, 8), torch.ones(3, 8)], layout=torch.jagged) for n in (5, 37)]
    expected = torch.autograd.grad(layer(nested[0]).values().sum(), layer.weight)[0]
    with Status(clock=clock) as status:
        throughput = status.throughput("ragged")
        with throughput.step(nested[0]):
            layer(nested[0]).values().sum().backward()
            clock.pass_(1)
        assert layer.weight.grad is not None
        assert torch.equal(layer.weight.grad, expected)
        assert throughput.stats().flops_per_s == 2 * 2 * 8 * 8 * 8
        for _ in range(2):
            with throughput.step(nested[1]):
                layer(nested[1]).values().sum().backward()
                clock.pass_(1)
        assert throughput.stats().flops_per_s == 2 * 2 * 40 * 8 * 8, "scaled by the elements in it"
        assert throughput.stats().flops_exact is False
        with status.throughput("wrapped").step(samples=1):
            assert (Wrapped(A) @ Wrapped(A)).held.sum() == 512
            clock.pass_(1)
        assert status.throughput("wrapped").stats().flops_per_s == MATMUL


def test_counters_within_each_other_add_up(clock: Any) -> None:
    status = Status(clock=clock)
    outer, inner = status.throughput("outer"), status.throughput("inner")
    with outer.step(A):
        torch.mm(A, A)
        with inner.step(A):
            torch.mm(A, A)
            clock.pass_(1)
    assert outer.stats().flops_per_s == 2 * MATMUL
    assert inner.stats().flops_per_s == MATMUL
    status.close()


def test_a_compiled_model_still_compiles_afterwards() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = torch.compile(torch.nn.Linear(8, 8), backend=backend)
    status = Status()
    throughput = status.throughput("t")
    with throughput.step(A):
        model(A)
    assert graphs == []
    for _ in range(3):
        with throughput.step(A):
            model(A)
    assert len(graphs) == 1
    assert throughput.stats().flops_exact is True
    status.close()


def test_what_counting_takes_to_prepare_is_not_the_loop_s(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The time that counting itself takes is played.
    begin, end = Counter.begin, Counter.end

    def slow_to_begin(self: Counter) -> bool:
        clock.pass_(50)
        return begin(self)

    def slow_to_end(self: Counter) -> Any:
        clock.pass_(30)
        return end(self)

    monkeypatch.setattr(Counter, "begin", slow_to_begin)
    monkeypatch.setattr(Counter, "end", slow_to_end)
    with Status(clock=clock) as status:
        stream = status.throughput("t")
        for _ in stream.iterate([A, A]):
            with stream.step(A):
                torch.mm(A, A)
                clock.pass_(0.5)
        stats = stream.stats()
    assert (stats.batches_per_s, stats.waiting, stats.flops_per_s) == (2, 0, 2 * MATMUL)


def test_flops_can_be_left_out() -> None:
    status = Status(profile_flops=False)
    with status.throughput("t").step(A):
        # Torch shows in nothing public that its counter is gone.
        assert torch.utils._python_dispatch._get_current_dispatch_mode_stack() == []
        torch.mm(A, A)
    assert status.throughput("t").stats().flops_per_s is None


def test_torch_is_never_imported_for_it() -> None:
    script = """
        import sys
        from somatize.status import Status
        status = Status()
        with status.throughput("t").step([1, 2]):
            pass
        stats = status.throughput("t").stats()
        assert (stats.batches, stats.flops_per_s, stats.flops_exact) == (1, None, None)
        assert not {"torch", "rich", "numpy"} & sys.modules.keys()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_threads_profiling_is_put_back() -> None:
    before = threading.getprofile()
    counted(lambda: in_a_pool(lambda: A @ A))
    assert threading.getprofile() is before
    assert not math.isnan(1.0)


@pytest.mark.parametrize("samples", [-1, 2.5, "4", [1]])
def test_samples_that_are_no_count_are_refused_before_the_step(samples: Any) -> None:
    with Status() as status, pytest.raises(BadOption, match="samples="):
        status.throughput("train").step(samples=samples)


def test_a_stream_is_known_by_its_name(clock: Any) -> None:
    import numpy as np

    status = Status(clock=clock)
    with status.throughput(3).step(samples=np.int64(4)):  # type: ignore[arg-type]
        clock.pass_(1)
    assert status.throughput("3").stats().samples == 4
    assert [stream.stream for stream in status.throughputs] == ["3"]


KINDS = ("train", "evaluate", "evaluate recording", "train the last", "train twice")
SIZES = (8, 8, 8, 3, 20)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(SIZES), st.sampled_from([1, 2, 5, 9])),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 9),
)
def test_whatever_the_steps_were_what_is_called_exact_is(
    clock: Any, phases: list[tuple[str, int, int]], window: int
) -> None:
    first, last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def run(kind: str, batch: torch.Tensor) -> None:
        first.requires_grad_(kind != "train the last")
        with torch.set_grad_enabled(kind != "evaluate"):
            for _ in range(1 + (kind == "train twice")):
                loss = last(first(batch)).sum()
                if "train" in kind:
                    loss.backward()

    # Products of the batch's rows with 8 x 8 weights: forwards, for the weights, and for what goes into the last layer.
    products = {"train": 5, "evaluate": 2, "evaluate recording": 2, "train the last": 3, "train twice": 10}
    truths: list[int] = []
    with Status(clock=clock, window=window) as status:
        throughput = status.throughput("t")
        for kind, size, times in phases:
            batch = torch.ones(size, 8)
            for _ in range(times):
                with throughput.step(batch):
                    run(kind, batch)
                    clock.pass_(1)
                truths.append(products[kind] * 2 * size * 8 * 8)
                stats = throughput.stats()
                # Which steps were counted, and so not timed, is nowhere said; the truth depends on it.
                steps = list(zip(throughput._window, truths[-window:], strict=True))
                timed = [truth for step, truth in steps if step.ran.counted is None] or truths[-window:]
                if stats.flops_exact:
                    assert stats.flops_per_s == pytest.approx(sum(timed) / len(timed))
        assert throughput.stats().batches == len(truths)

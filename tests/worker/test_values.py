"""Values on their way to a worker and back: exact, large ones without copies, and never written under a reader."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from somatize import Broker, Graph, node
from somatize.codecs import tensors
from somatize.errors import StoreWarning
from somatize.worker import payload, wire

from .conftest import spawned

BIG = wire.SMALLEST * 4


def there_and_back(value: Any, broker: Broker) -> Any:
    return Graph.somatize(node(lambda x: x).at("w1")).forward(value, broker=broker)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**200,
        -0.0,
        "tëxt\ud800",
        b"",
        b"x" * BIG,
        bytearray(b"y" * 100_000),
        (1, [2, {3}], {"a": frozenset({4})}),
        {1: "int key", (2, 3): "tuple key"},
        dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
        decimal.Decimal("1.10"),
        range(3),
        1 + 2j,
    ],
    ids=lambda value: type(value).__name__ + str(len(value) if hasattr(value, "__len__") else ""),
)
def test_plain_values_arrive_as_they_are(value: Any, broker: Broker) -> None:
    answer = there_and_back(value, broker)
    assert (type(answer), answer) == (type(value), value)


@pytest.mark.parametrize("size", [0, 10, 5_000, BIG // 8 + 1])
@pytest.mark.parametrize("dtype", ["f8", "i2", "?", "U3", "M8[s]"])
def test_arrays(size: int, dtype: str, broker: Broker) -> None:
    value = np.arange(size).astype("i8").astype(dtype)
    answer = there_and_back({"a": value, "same": value}, broker)
    assert answer["a"].dtype == value.dtype
    assert np.array_equal(answer["a"], value)
    assert answer["a"] is answer["same"]
    if size and dtype == "f8":
        answer["a"][0] = 7  # it is the receiver's own
        assert value[0] == 0


@pytest.mark.parametrize(
    "value",
    [
        np.arange(3.0),
        np.arange(BIG // 8 + 1.0),
        np.arange(60_000.0)[::3],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.arange(3.0), (2, 3)),
        np.array([1, "a", None], object),
        np.zeros(3, [("a", "f4"), ("b", "i8")]),
        np.zeros((0, 3)),
    ],
    ids=["small", "big", "strided", "fortran", "broadcast", "objects", "structured", "empty"],
)
def test_a_read_only_array_is_so_there_and_when_it_comes_back(value: Any, broker: Broker) -> None:
    value.flags.writeable = False
    there, answer = Graph.somatize(node(lambda x: (x.flags.writeable, x)).at("w1")).forward(value, broker=broker)
    assert (there, answer.flags.writeable) == (False, False)
    assert (answer.dtype, answer.tolist()) == (value.dtype, value.tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_tensors(dtype: Any, broker: Broker) -> None:
    for value in (torch.zeros(0, 3), torch.arange(12.0).reshape(3, 4), torch.ones(1200, 1200)):
        answer = there_and_back(value.to(dtype), broker)
        assert answer.dtype == dtype
        assert torch.equal(answer, value.to(dtype))
        answer.zero_()


@pytest.fixture
def as_if_on_cuda(monkeypatch: Any) -> str:
    """Tensors that leave this process say that they were on a device which no machine has."""
    dump = tensors.dump_tensor

    def elsewhere(tensor: Any) -> Any:
        (dtype, shape, _, order), data = dump(tensor)
        return [dtype, shape, "cuda:63", order], data

    # No machine has that device.
    monkeypatch.setattr(tensors, "dump_tensor", elsewhere)
    return "a tensor was on cuda:63, which cannot take it here"


def test_a_tensor_of_a_device_a_host_does_not_have_is_on_its_cpu_with_one_warning(
    as_if_on_cuda: str, broker: Broker
) -> None:
    graph = Graph.somatize(node(lambda x: (str(x[0].device), str(x[1].device), float(x[0].sum()))).at("w1"))
    with pytest.warns(StoreWarning, match=as_if_on_cuda) as told:
        assert graph.forward([torch.ones(3), torch.ones(9000)], broker=broker) == ("cpu", "cpu", 3.0)
    assert [str(each.message).endswith("(on host w1)") for each in told] == [True]


def test_so_is_a_module_that_goes_along_as_code(as_if_on_cuda: str, broker: Broker) -> None:
    layer = torch.nn.Linear(2, 1, bias=False)
    with pytest.warns(StoreWarning, match=as_if_on_cuda), torch.no_grad():
        answer = Graph.somatize(node(lambda x: [1.0, 2.0]) >> node(lambda x, f=layer: f(torch.tensor(x)).tolist())
                                .at("w1")).forward(0, broker=broker)  # fmt: skip
    assert answer == layer(torch.tensor([1.0, 2.0])).tolist()


@pytest.mark.gpu
def test_a_cuda_tensor_stays_on_its_device_where_there_is_one_and_comes_to_the_cpu_where_not() -> None:
    graph = Graph.somatize(node(lambda x: (str(x.device), x * 2)).at("w1"))
    value = torch.arange(3.0, device="cuda")
    with Broker.embedded({"w1": spawned()}) as broker:
        device, twice = graph.forward(value, broker=broker)
        assert (device, twice.device, twice.tolist()) == ("cuda:0", value.device, [0, 2, 4])
    with Broker.embedded({"w1": spawned(env={"CUDA_VISIBLE_DEVICES": ""})}) as broker:
        with pytest.warns(StoreWarning, match="was on cuda:0, which cannot take it here"):
            device, twice = graph.forward(value, broker=broker)
        assert (device, twice.device.type, twice.tolist()) == ("cpu", "cpu", [0, 2, 4])


def test_a_slice_of_a_big_tensor_sends_its_elements_only() -> None:
    whole = torch.zeros(1000, 1000)
    buffers = payload.pack([whole[:2, :3]], "network")
    assert sum(len(bytes(piece)) for buffer in buffers for piece in buffer) < 2000


def test_what_the_graph_and_the_node_hold_is_not_written_by_later_trips(broker: Broker) -> None:
    class Keeps:
        def __init__(self):
            self._first = None

        def forward(self, x):
            self._first = x if self._first is None else self._first
            return float(self._first.sum()), x * 2

    graph = Graph.somatize(node(Keeps()).at("w1"))
    answers = []
    for n in range(1, 6):
        total, twice = graph.forward(np.full(BIG // 8, n, "f8"), broker=broker)
        assert total == BIG // 8
        answers.append(twice)
    assert [answer[0] for answer in answers] == [2, 4, 6, 8, 10]
    assert [answer[-1] for answer in answers] == [2, 4, 6, 8, 10]


def pool_of(broker: Broker) -> wire.Segments:
    live = broker._connections["w1"][0]._live  # shared memory is an inside of the connection: nothing public shows it
    assert live is not None
    found = live.wire.segments
    assert found is not None
    return found


def test_segments_are_used_again_and_freed_when_idle(monkeypatch: Any) -> None:
    # Else it takes seconds.
    monkeypatch.setattr(wire, "IDLE", 0.3)
    with Broker.embedded({"w1": spawned()}) as broker:
        graph = Graph.somatize(node(lambda x: float(x.sum())).at("w1"))
        for _ in range(10):
            graph.forward(np.ones(BIG // 8), broker=broker)
        pool = pool_of(broker)
        assert pool.held() <= 2 * BIG
        until = time.monotonic() + 5
        while pool.held() and time.monotonic() < until:
            time.sleep(0.02)
        assert pool.held() == 0


def test_beyond_the_limit_values_are_copied() -> None:
    with Broker.embedded({"w1": spawned()}) as broker:
        assert there_and_back(1, broker) == 1
        pool_of(broker).limit = BIG
        answer = there_and_back([np.ones(BIG // 8), np.ones(BIG // 8), np.full(BIG // 4, 3.0)], broker)
        assert [each.sum() for each in answer] == [BIG // 8, BIG // 8, 3 * (BIG // 4)]


def test_a_large_value_while_the_worker_dies_or_this_end_is_interrupted(own: Broker) -> None:
    from somatize.errors import WorkerDied

    def dies(x):
        import os

        if x[0] == 1:
            os._exit(1)
        return x

    graph = Graph.somatize(node(dies).at("w1"))
    for _ in range(2):
        with pytest.raises(WorkerDied):
            graph.forward(np.ones(BIG // 8), broker=own)
        assert graph.forward(np.zeros(BIG // 8), broker=own).sum() == 0


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_is_left_open(monkeypatch: Any) -> None:
    gc.collect()
    before, threads = descriptors(), threading.active_count()
    for _ in range(2):
        with Broker.embedded({"w1": spawned()}) as broker:
            there_and_back(np.ones(BIG // 8), broker)
    gc.collect()
    until = time.monotonic() + 3
    while (descriptors() > before or threading.active_count() > threads) and time.monotonic() < until:
        time.sleep(0.05)
    assert descriptors() <= before
    assert threading.active_count() <= threads


def held_by(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


@pytest.mark.parametrize("size", [256 << 20, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_a_large_input_takes_at_most_two_and_a_half_times_its_size(size: int, tmp_path: Path) -> None:
    read, seen = tmp_path / "read", tmp_path / "seen"

    def total(x):
        import os
        import time

        # It reads all of it, so that the pages both see are counted: once, half at each.
        found = float(x.sum())
        read.touch()
        while x.size > 3 and not seen.exists():
            time.sleep(0.01)
        return found, os.getpid()

    with Broker.embedded({"w1": spawned()}) as broker:
        graph = Graph.somatize(node(total).at("w1"))
        _, pid = graph.forward(np.ones(3), broker=broker)
        read.unlink()
        gc.collect()
        base = held_by(os.getpid()) + held_by(pid)
        value = np.ones(size // 8)
        peak = [0]

        def look() -> None:
            while True:
                all_read = read.exists()
                peak[0] = max(peak[0], held_by(os.getpid()) + held_by(pid))
                if all_read:
                    break
            seen.touch()

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        assert graph.forward(value, broker=broker)[0] == size // 8
        looking.join()
        assert 1.6 * size < peak[0] - base < 2.5 * size


@pytest.mark.slow
def test_more_than_four_gigabytes() -> None:
    with Broker.embedded({"w1": spawned()}) as broker:
        graph = Graph.somatize(node(lambda x: (len(x), int(x[-1]))).at("w1"))
        value = np.ones((1 << 32) + 5, "u1")
        assert graph.forward(value, broker=broker) == (len(value), 1)
        pool_of(broker).limit = 0
        assert graph.forward(value, broker=broker) == (len(value), 1)

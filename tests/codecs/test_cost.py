"""Memory and time."""

from __future__ import annotations

import random
import time
import tracemalloc

import numpy as np
import pytest

from somatize import codecs


def extra(work):
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = work()
        return tracemalloc.get_traced_memory()[1] - before, result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda: np.zeros(2_500_000), 20_000_000),
        (lambda: np.zeros((2500, 2000))[:, ::2], 20_000_000),
        (lambda: b"x" * 20_000_000, 20_000_000),
        (lambda: bytearray(20_000_000), 20_000_000),
        (lambda: "é" * 10_000_000, 20_000_000),
        (lambda: ["x" * 900 + str(i) for i in range(10_000)], 9_500_000),
        (lambda: {f"{i}": "x" * 5000 + str(i) for i in range(2000)}, 10_100_000),
        (lambda: [i + 0.5 for i in range(300_000)], 9_600_000),
        (lambda: [(i + 1000, i + 0.5) for i in range(50_000)], 50_000 * (56 + 8 + 28 + 24)),
        (lambda: [[i + 0.5] * 3 for i in range(50_000)], 50_000 * (88 + 8 + 24)),
    ],
    ids=["array", "slice", "bytes", "bytearray", "text", "texts", "long texts", "floats", "tuples", "lists"],
)
def test_writing_and_reading_take_at_most_twice_the_size(make, size):
    value = make()
    codecs.loads(codecs.dumps([(1, 2.5)]))
    peak, data = extra(lambda: codecs.dumps(value))
    assert peak <= 2.1 * size
    peak, again = extra(lambda: codecs.loads(data))
    assert peak <= 2.1 * size
    assert len(again) == len(value)


def test_a_large_array_is_written_in_parts_without_a_copy():
    array = np.zeros(2_500_000)
    peak, _ = extra(lambda: codecs.dump_parts([array]))
    assert peak < 1_000_000


def test_floats_are_written_about_as_fast_as_msgpack_does():
    import msgpack

    floats = [random.random() for _ in range(100_000)]

    def best(work):
        took = []
        for _ in range(7):
            began = time.perf_counter()
            work()
            took.append(time.perf_counter() - began)
        return min(took)

    assert best(lambda: codecs.dumps(floats)) < 8 * best(lambda: msgpack.packb(floats))

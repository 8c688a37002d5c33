"""What cannot be written down, said by type and place; and how deep and how shared a value may be."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import math
import threading

import numpy as np
import pytest

from somatize import codecs
from somatize.errors import NotKeepable


class Pair(tuple):
    __slots__ = ()


class MyList(list):
    pass


class Zone(dt.tzinfo):
    pass


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Pair((1, 2)), "Pair"),
        (MyList([1]), "MyList"),
        (np.zeros((1, 1)).view(np.matrix), "numpy.matrix"),
        (np.ma.masked_array([1]), "MaskedArray"),
        (np.rec.array([(1,)], dtype=[("a", "i4")]), "recarray"),
        (np.array([None]), "dtype object"),
        (np.array([(1, None)], dtype=[("a", "i4"), ("b", "O")]), "dtype"),
        (np.zeros(1, np.dtype("i4", metadata={"a": 1})), "dtype"),
        (np.zeros(1, np.dtype((np.record, [("a", "i4")]))), "dtype"),
        (threading.Lock(), "lock"),
        ((i for i in ()), "generator"),
        (memoryview(b"x"), "memoryview"),
        (int, "type"),
        (len, "builtin_function_or_method"),
        (math, "module"),
        (dt.datetime(2026, 1, 1, tzinfo=Zone()), "Zone"),
        (collections.defaultdict(lambda: 1), "defaultdict"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_codec_knows_is_refused_by_type_and_place(value, name):
    for holder, place in (
        (value, r"value\b"),
        ([1, 2, (value,)], r"value\[2\]\[0\]"),
        ([0, 1, 2, {"a": value}], r"value\[3\]\['a'\]"),
        (collections.OrderedDict(k=[value]), r"value\['k'\]\[0\]"),
    ):
        with pytest.raises(NotKeepable, match=f"(?s)^{place}.*{name}.*codec"):
            codecs.dumps(holder)


def test_a_refused_key_says_which():
    with pytest.raises(NotKeepable, match=r"value\['x'\]\.keys\(\)\[1\] .*Pair"):
        codecs.dumps({"x": {"a": (), Pair((1,)): 1}})


def test_a_key_whose_repr_raises_does_not_hide_the_refusal():
    class Odd:
        def __repr__(self):
            raise RuntimeError

    with pytest.raises(NotKeepable, match="Odd"):
        codecs.dumps({Odd(): 1})


def circles():
    inner: list = []
    inner.append((1, {"a": inner}))
    yield inner
    mapping: dict = {}
    mapping["self"] = mapping
    yield mapping
    ordered = collections.OrderedDict()
    ordered["x"] = [ordered]
    yield ordered
    queue = collections.deque()
    queue.append(queue)
    yield queue


@pytest.mark.parametrize("value", list(circles()), ids=["list", "dict", "ordered", "deque"])
def test_a_circle_is_refused(value):
    with pytest.raises(NotKeepable, match="circle"):
        codecs.dumps({"at": [value]})


@pytest.mark.parametrize("depth", [380, 450, 600, 4000])
@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: [v, np.int8(1)]])
def test_a_deep_value_comes_back(back, depth, wrap):
    value: object = "bottom"
    for _ in range(depth):
        value = wrap(value)
    again = back(value)
    for _ in range(depth):
        assert type(again) is type(value)
        again = again["k"] if isinstance(again, dict) else again[0]
        value = value["k"] if isinstance(value, dict) else value[0]
    assert again == "bottom"


def test_a_place_far_down_is_shortened():
    value: object = threading.Lock()
    for _ in range(3000):
        value = [value]
    with pytest.raises(NotKeepable, match="lock") as told:
        codecs.dumps(value)
    assert len(str(told.value)) < 400


def test_a_deeper_value_than_allowed_is_refused():
    value: object = ()
    for _ in range(codecs.DEEPEST + 1):
        value = (value, 1)
    with pytest.raises(NotKeepable, match="5000 levels"):
        codecs.dumps(value)


def test_what_is_shared_is_written_once_and_is_one_again(back):
    row = [1, 2]
    array = np.arange(10_000.0)
    again = back({"a": [row, row], "b": (array, array), "c": row})
    assert again["a"][0] is again["a"][1] is again["c"]
    assert again["b"][0] is again["b"][1]
    assert len(codecs.dumps([array] * 50)) < 81_000
    text, raw = "t" * 5000, b"r" * 5000
    assert len(codecs.dumps([[text, raw, 1]] + [[text, raw]] * 50 + [{i: text} for i in range(50)])) < 12_000
    texts = back([text, (raw, text, [raw]), {text: row}, decimal.Decimal("1" * 2000), row])
    assert texts == [text, (raw, text, [raw]), {text: row}, decimal.Decimal("1" * 2000), row]
    assert texts[0] is texts[1][1]
    assert texts[2][text] is texts[4]
    again["c"].append(3)
    assert again["a"] == [[1, 2, 3], [1, 2, 3]]


def test_sharing_that_would_grow_without_end_stays_small(back):
    value: object = [1]
    for _ in range(200):
        value = [value, value]
    assert len(codecs.dumps(value)) < 5000
    again = back(value)
    assert again[0] is again[1]
    value = (1,)
    for _ in range(200):
        value = (value, value)
    assert len(codecs.dumps(value)) < 5000


def test_equal_values_at_two_places_stay_two(back):
    again = back([[1], [1], (1,), (1,)])
    assert again[0] is not again[1]

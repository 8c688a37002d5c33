"""Values to bytes and back: the same types, the same bits, the same keys in the same order."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import math
import pathlib
import random
import struct
import uuid
import zoneinfo
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

zones = st.one_of(
    st.none(),
    st.just(dt.UTC),
    st.just(dt.timezone(dt.timedelta(hours=5, minutes=30), "IST")),
    st.sampled_from(["Europe/Paris", "America/New_York", "UTC"]).map(zoneinfo.ZoneInfo),
)
texts = st.text(st.characters(exclude_categories=()), max_size=20)
keyable = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**200), max_value=2**200),
    st.floats(),
    st.complex_numbers(),
    texts,
    st.binary(max_size=20),
    st.datetimes(timezones=zones),
    st.dates(),
    st.times(timezones=zones),
    st.timedeltas(),
    st.builds(pathlib.PurePosixPath, st.sampled_from(["a", "/b/c", ".", ""])),
    st.builds(pathlib.PureWindowsPath, st.sampled_from(["a", "C:\\b", "."])),
    st.builds(pathlib.Path, st.sampled_from(["a", "/b/c"])),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.builds(range, st.integers(-5, 5), st.integers(-5, 5), st.integers(1, 3)),
    st.just(...),
)
hashables = st.recursive(
    keyable,
    lambda inner: st.one_of(st.lists(inner, max_size=4).map(tuple), st.frozensets(inner, max_size=4)),
    max_leaves=6,
)
arrays = st.builds(
    lambda shape, dtype, order, step: np.array(
        np.frombuffer(random.Random(sum(shape)).randbytes(math.prod(shape) * np.dtype(dtype).itemsize), dtype).reshape(
            shape
        ),
        order=order,
    )[::step],
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.sampled_from(
        ["f2", "<f4", ">f8", "i1", "<u8", "c8", "M8[ns]", "m8[D]", "S3", "V5", [("a", "<i2"), ("b", ">f4", (2,))]]
    ),
    st.sampled_from("CF"),
    st.sampled_from([1, 2, -1]),
)
values = st.recursive(
    st.one_of(hashables, st.builds(slice, st.integers(), st.none(), st.integers()), st.binary().map(bytearray), arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(hashables, inner, max_size=5),
        st.sets(hashables, max_size=5),
        st.lists(inner, max_size=5).map(lambda items: collections.deque(items, 7)),
        st.dictionaries(hashables, inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(hashables, inner, max_size=3).map(lambda d: collections.defaultdict(list, d)),
    ),
    max_leaves=25,
)
plain_trees = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.one_of(texts, st.integers()), inner, max_size=5)
    ),
    max_leaves=30,
)
few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@given(values)
@few
def test_any_value_comes_back_as_it_was(back, same, value):
    assert same(back(value), value)


@given(plain_trees)
@few
def test_a_plain_tree_comes_back_as_it_was(back, same, value):
    assert same(back(value), value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**64,
        -(2**63) - 1,
        2**1000,
        -(2**1000),
        0.0,
        -0.0,
        math.inf,
        math.nan,
        struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\xff")[0],
        complex(-0.0, math.nan),
        "",
        "\ud800 alone, and a pair apart \ud83d\ude00",
        "\ud800" * 3000,
        b"",
        b"x" * 3000,
        bytearray(b"y" * 3000),
        [],
        (),
        {},
        set(),
        frozenset(),
        ((),),
        [[]],
        {(): ()},
        {"": {}},
        [1, [2, [3, (4, {5: {6}})]]],
        list(range(5000)),
        {str(i): i for i in range(3000)},
        {i: (i,) for i in range(3000)},
        ["t" * 2000, b"b" * 2000, "short", 1],
        [["t" * 2000], {"k" * 2000: "v" * 2000}],
        decimal.Decimal("-0.00"),
        decimal.Decimal("1e-400"),
        Fraction(-3, 7),
        uuid.UUID(int=5),
        slice(None, 3, (1, 2)),
        range(10, 0, -3),
        ...,
        dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")),
        dt.time(2, 30, fold=1),
        dt.datetime.max,
        dt.timezone(dt.timedelta(seconds=-1)),
        dt.timedelta.min,
        pathlib.Path("name with \udcff"),
        collections.OrderedDict([(2, 1), (1, 2)]),
        collections.Counter({"a": -1, "b": 0}),
        collections.defaultdict(None, {1: 2}),
        collections.deque([1, (2,)], maxlen=2),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_an_edge_comes_back_as_it_was(back, same, value):
    assert same(back(value), value)


def test_the_names_and_limits_of_what_comes_back(back):
    assert back(dt.timezone(dt.timedelta(hours=1), "mine")).tzname(None) == "mine"
    assert back(collections.deque([1], maxlen=3)).maxlen == 3
    assert back(collections.deque([1])).maxlen is None
    assert back(collections.defaultdict(int)).default_factory is int


def test_keys_stay_apart_and_in_order(back, same):
    value = {1: ".5", ("a", 2): ".7", None: 1, b"raw": 2, "ok": 3, "1": 4, (1, ("x",)): 5, 1.5: 6, frozenset({1}): 7}
    assert same(back(value), value)
    assert list(back({"b": 1, "a": [()]})) == ["b", "a"]
    assert same(back({True: [()]}), {True: [()]})


def test_a_dict_keyed_by_nan_keeps_every_key(back):
    value = {float("nan"): 1, float("nan"): (2,)}
    assert list(back(value).values()) == [1, (2,)]

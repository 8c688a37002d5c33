"""numpy's arrays and scalars, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from somatize import codecs


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5),
        np.array((1, 2.5), dtype=[("a", "i4"), ("b", "f8")]),
        np.empty((0, 3)),
        np.zeros((0,), dtype=[("a", "i4")]),
        np.zeros(3, dtype=[]),
        np.array(["", "añb", "\U0001f600"]),
        np.array([b"a\0b", b""]),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array([1.5, np.nan], np.float16),
        np.array([1.5], np.longdouble),
        np.array([1], np.longlong),
        np.array([1], ">u2"),
        np.array(["2026-01-01", "NaT"], "M8[us]"),
        np.array([1], "m8[25s]"),
        np.arange(6000.0).reshape(60, 100),
        np.zeros(2, np.dtype({"names": ["a", "b"], "formats": ["<f8", "u1"], "offsets": [4, 0], "itemsize": 20})),
        np.zeros(2, np.dtype({"names": ["a"], "formats": ["i4"], "titles": ["The A"]})),
        np.zeros(2, np.dtype([("a", "u1"), ("b", "f8")], align=True)),
        np.zeros(2, np.dtype([("a", "u1", (2, 3)), ("b", [("c", "S4")])])),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}"[:60],
)
def test_an_array_comes_back_bit_for_bit(back, same, array):
    again = back(array)
    assert same(again, array)
    assert again.dtype.type is array.dtype.type
    assert again.dtype.isalignedstruct == array.dtype.isalignedstruct
    assert again.flags.writeable
    assert again.flags.owndata


def test_a_read_only_array_comes_back_writable_and_shares_nothing(same):
    array = np.arange(4000)
    array.flags.writeable = False
    data = codecs.dumps(array)
    first = codecs.loads(data)
    first[:] = 0
    assert same(codecs.loads(data), array)


def test_order_is_kept_and_a_slice_keeps_only_its_elements(back, same):
    fortran = np.asfortranarray(np.arange(20_000.0).reshape(100, 200))
    again = back(fortran)
    assert again.flags.f_contiguous
    assert not again.flags.c_contiguous
    assert same(again, fortran)
    assert back(fortran.T).flags.c_contiguous
    big = np.arange(1_000_000)
    assert same(back(big[::-100_000]), big[::-100_000])
    assert len(codecs.dumps(big[:10])) < 400
    assert same(back(np.broadcast_to(np.arange(3), (2, 3))), np.array([[0, 1, 2]] * 2))
    shuffled = np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2)
    assert same(back(shuffled), shuffled)


@pytest.mark.parametrize(
    "scalar",
    [
        np.float64(-0.0),
        np.float32(1.5),
        np.float16("nan"),
        np.longdouble(1) / 3,
        np.int8(-3),
        np.longlong(3),
        np.uint64(2**64 - 1),
        np.bool_(True),
        np.complex64(1j),
        np.str_("a\0\0"),
        np.str_("\ud800"),
        np.bytes_(b"b\0\0"),
        np.datetime64("NaT"),
        np.datetime64("2026-01-01T00:00", "ns"),
        np.timedelta64(3, "D"),
        np.zeros(1, [("a", "i4"), ("b", "S2")])[0],
    ],
    ids=repr,
)
def test_a_numpy_scalar_keeps_its_type(back, same, scalar):
    again = back([scalar])[0]
    assert same(again, scalar)
    assert str(again) == str(scalar)


def test_numpy_scalars_are_keys(back, same):
    value = {np.int64(1): "a", np.str_("b"): ()}
    assert same(back(value), value)

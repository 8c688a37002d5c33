"""numpy's arrays and scalars, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import codecs
from somatize.errors import NotKeepable
from somatize.naming import content


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
    assert len(codecs.dumps(np.arange(1_000_000)[:10])) < 400
    shuffled = np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2)
    assert same(back(shuffled), shuffled)


BASE = np.arange(2400.0).reshape(20, 30, 4)
VIEWS = {
    "backwards": BASE[::-1, :, ::-1],
    "transposed": BASE.transpose(2, 0, 1),
    "transposed and backwards": BASE.transpose(2, 0, 1)[:, ::-1],
    "of every other": BASE[:, ::2, 1:3],
    "of every other backwards": BASE.transpose(1, 2, 0)[::-3, :, ::-2],
    "a column": BASE[:, 3, 2],
    "a diagonal": BASE[:, :, 0].diagonal(),
    "windows": np.lib.stride_tricks.sliding_window_view(np.arange(50), 7),
    "windows with gaps": np.lib.stride_tricks.sliding_window_view(np.arange(50)[::3], 7),
    "one short axis": BASE[:, 3:4, :].transpose(1, 2, 0),
    "without elements": BASE[:0, ::2],
    "of one field": np.zeros(5, [("a", "i2"), ("b", "f8")])["b"],
    "of a structure": np.zeros((4, 6), [("a", "i2"), ("b", "f8")])[:, ::-2],
    "of an imaginary part": np.arange(6, dtype="c16").imag,
    "of another byte order": BASE.astype(">f4").T,
    "of long doubles": BASE.astype(np.longdouble).T[::2],
    "of instants": BASE.astype("M8[s]").T[::2],
    "repeated": np.broadcast_to(BASE[0], (50, 30, 4)),
    "repeated between": np.broadcast_to(BASE[:, :1, ::-1], (20, 9, 4)),
    "repeated and turned": np.broadcast_to(BASE[0].T[::-1], (50, 4, 30)),
    "repeated with gaps": np.broadcast_to(BASE[0, :, 0], (50, 30)),
    "of one element": np.broadcast_to(np.float32(3), (10, 10)),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_comes_back_with_its_strides(back, same, kind):
    view = VIEWS[kind]
    again = back([view, "beside"])[0]
    assert same(again, view)
    assert again.flags.writeable == ("repeated" not in kind and "windows" not in kind and "of one element" not in kind)
    assert content(again) == content(view)
    if view.size > 1 and not view.flags.c_contiguous:
        assert content(view) != content(np.ascontiguousarray(view))


@pytest.mark.parametrize("kind", ["transposed and backwards", "of every other", "repeated between", "of a structure"])
def test_a_large_view_comes_back_from_memory_that_was_given(same, kind):
    small = VIEWS[kind]
    large = np.resize(small, (4000, *small.shape[1:])).transpose(*range(small.ndim)[::-1])[::-1]
    large = np.broadcast_to(large, (3, *large.shape)) if "repeated" in kind else large
    large = large[:, ::2] if "every" in kind else large
    written = codecs.dumps(large)
    data = codecs.room(written, len(written))
    data[:] = written
    made = codecs.take(data)
    assert same(made, large)
    made.flags.writeable = True
    made[...] = 0
    assert (data[-1000:] == bytes(1000)) is ("every" not in kind)


def test_what_repeats_is_written_once_and_what_is_scattered_is_refused():
    assert len(codecs.dumps(np.broadcast_to(np.arange(10), (100_000, 10)))) < 400
    assert len(codecs.dumps(np.broadcast_to(np.arange(10)[::2, None], (5, 100_000)))) < 400
    assert len(codecs.dumps(np.lib.stride_tricks.sliding_window_view(np.arange(2000), 1000))) < 17_000
    assert len(codecs.dumps(np.zeros((1000, 20))[:, 3])) < 8400
    with pytest.raises(NotKeepable, match=r"value\[1\] .* a view of 10 elements .* 7,200,008 bytes .*array.copy\(\)"):
        codecs.dumps([1, np.arange(1_000_000)[::-100_000]])


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
steps = st.sampled_from([1, -1, 2, -3])


@st.composite
def views(draw):
    """An array cut, turned and repeated in any way."""
    shape = draw(shapes)
    base = np.arange(np.prod(shape)).astype(draw(st.sampled_from(["u1", "<f4", ">i8", "c16", "U2", "M8[D]"])))
    view = base.reshape(shape, order=draw(st.sampled_from("CF")))[tuple(slice(None, None, draw(steps)) for _ in shape)]
    view = view.transpose(draw(st.permutations(range(len(shape)))))
    if draw(st.booleans()):
        view = np.broadcast_to(np.expand_dims(view, 0), (draw(st.integers(0, 5)), *view.shape))
    return view


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(views(), views())
def test_any_view_comes_back_and_is_named_by_its_strides(back, same, one, other):
    assert same(back(one), one)
    assert content(back(one)) == content(one)
    relevant = lambda view: [s for s, n in zip(view.strides, view.shape, strict=True) if n > 1]  # noqa: E731
    if one.size and other.size:
        alike = one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
        if alike and relevant(one) == relevant(other):
            pass  # whether the stride of an axis of one element counts is left open
        else:
            assert content(one) != content(other)


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

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize.errors import Unnameable
from somatize.naming import content


def test_the_order_in_memory_counts_where_it_is_not_c_order():
    base = np.arange(600.0).reshape(20, 30)
    same = [
        base,
        base[::-1][::-1],
        base.T.copy().T.copy(),
        np.repeat(base, 2, 0)[::2].copy(),
        base.reshape(20, 1, 30)[:, 0],
    ]
    assert len({content(one) for one in same}) == 1
    apart = [base, np.asfortranarray(base), np.repeat(base, 2, 1)[:, ::2], np.repeat(base, 2, 0)[::2]]
    apart += [base.T, np.ascontiguousarray(base.T), base[::-1], base[::-1].copy()]
    apart += [np.ones((3, 2)), np.broadcast_to(np.ones(2), (3, 2)), np.broadcast_to(1.0, (3, 2))]
    apart += [np.array([[1, "a"], [None, 2]], object), np.array([[1, None], ["a", 2]], object).T]
    assert len({content(one) for one in apart}) == len(apart)
    assert content(np.asfortranarray(base)) == content(base.T.copy().T)
    large = np.zeros((3, 400_000), "f4", order="F")
    large[1, 7] = 1
    other = large.copy(order="F")
    assert content(large) == content(other)
    other[1, 7] = 2
    assert content(large) != content(other)


def test_what_repeats_is_hashed_once():
    assert content(np.broadcast_to(np.arange(3), (1 << 40, 3))) != content(np.broadcast_to(np.arange(3), (1 << 39, 3)))


APART = [
    *(np.zeros(3), np.zeros(3, "f4"), np.zeros((3, 1)), np.zeros((1, 3)), np.zeros(3, ">f8")),
    *(-np.zeros(3), np.zeros(3, int)),
    *(np.zeros(()), np.float64(0), 0.0, np.float32(0), np.int64(0), np.bool_(False), False),
    *(np.zeros(0), np.zeros((0, 3))),
    *(np.array(["a"]), np.array(["a"], "U2"), np.array([b"a"]), np.str_("a"), np.str_("a\0")),
    *(np.bytes_(b"a"), np.bytes_(b"a\0")),
    *(np.array(["2024-01-01"], "M8[D]"), np.array(["2024-01-01"], "M8[s]")),
    *(np.array([1], "m8[s]"), np.array(["NaT"], "M8[s]")),
    *(np.array([(1, 2)], "i4,i8"), np.array([(1, 2)], "i8,i4"), np.array([(1, 2)], [("a", "i4"), ("b", "i8")])),
    *(np.array([1, "a", None], object), np.array([1, "a", 0], object), np.array([True, "a", None], object)),
    *(np.zeros(3, np.longdouble), np.zeros(3, np.clongdouble), np.longdouble(0), np.zeros(3, "c8"), np.zeros(3, "f2")),
    *(np.dtype("f4"), np.dtype("f8"), np.dtype([("a", "f4")]), [np.zeros(3), np.zeros(3)], (np.zeros(3),), [0.0] * 3),
    *(np.zeros(2, "V3"), np.zeros(2, "V4"), np.zeros(8, np.uint8), np.nan, np.float64(np.nan), np.array([np.nan])),
]  # fmt: skip


def test_types_dtypes_and_shapes_are_apart():
    seen = {}
    for value in APART:
        made = content(value)
        assert made not in seen, (seen[made], value)
        assert content(value) == made
        seen[made] = value


def test_what_no_element_holds_does_not_count():
    padded = np.dtype({"names": ["a", "b"], "formats": ["i1", "i8"], "offsets": [0, 8], "itemsize": 16})
    one, other = np.frombuffer(bytes(32), padded), np.frombuffer(b"\1" * 32, padded).copy()
    other["a"], other["b"] = one["a"], one["b"]
    assert content(one) == content(other)
    clean, dirty = (
        np.zeros(4, np.longdouble),
        np.frombuffer(b"\xff" * 4 * np.dtype(np.longdouble).itemsize, np.longdouble).copy(),
    )
    dirty[:] = 0
    assert content(clean) == content(dirty)


def test_maps_of_files_are_arrays_and_other_kinds_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(4))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert content(mapped) == content(np.load(tmp_path / "a.npy", mmap_mode="r"))
    with pytest.raises(Unnameable, match=r"input is a numpy\.ma\.MaskedArray"):
        content(np.ma.masked_array([1, 2], [True, False]))
    with pytest.raises(Unnameable, match=r"input\.flat\[1\] is an object"):
        content(np.array([1, object()], object))


def test_large_arrays_are_not_copied():
    import tracemalloc

    from somatize.naming import content as digest

    arrays = [
        np.zeros((4000, 2000), "f4"),
        np.zeros((4000, 2000), "f4", order="F"),
        np.zeros((4000, 4000), "f4")[:, ::2],
    ]
    digest(arrays[0])
    for array in arrays:
        tracemalloc.start()
        digest([array])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_element_is_noticed_in_any_order(data):
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple))
    array = (
        np.arange(np.prod(shape)).astype(data.draw(st.sampled_from(["i2", "f4", "c16", "U3", "M8[s]"]))).reshape(shape)
    )
    axes = data.draw(st.permutations(range(len(shape))))
    turned = array.transpose(axes)
    order = data.draw(st.sampled_from("CFKA"))
    turned = turned.copy(order=order)
    changed = turned.copy(order="K")
    assert content(turned) == content(changed)
    spot = tuple(data.draw(st.integers(0, size - 1)) for size in turned.shape)
    changed[spot] = np.array(77).astype(changed.dtype)
    assert (content(changed) == content(turned)) is bool(changed[spot] == turned[spot])


def test_numpy_is_not_imported_for_what_is_none_of_it():
    code = "import sys; from somatize.naming import given; given([1, {'a': (2,)}, {3}]); "
    code += "assert not {'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

"""Frames, series, indexes and scalars of pandas, frames of polars, tables and arrays of Arrow."""

from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys
import warnings
import zoneinfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import Graph, Store, codecs, node
from somatize.errors import KeepWarning, NotKeepable, StoreError, Unnameable
from somatize.naming import content

PARIS = zoneinfo.ZoneInfo("Europe/Paris")


def with_attrs(frame, **attrs):
    frame.attrs.update(attrs)
    return frame


def flagged(frame):
    return frame.set_flags(allows_duplicate_labels=False)


def fragmented():
    made = pd.DataFrame({"a": [1, 2]})
    made["b"] = [3, 4]
    made["c"] = [0.5, 1]
    return made


INDEXES = {
    "range": lambda: pd.RangeIndex(1, 10, 3, name="r"),
    "range without elements": lambda: pd.RangeIndex(0),
    "whole": lambda: pd.Index([3, 1, 2], name=("a", 1)),
    "small": lambda: pd.Index(np.array([1, 2], "int8")),
    "real": lambda: pd.Index([0.5, np.nan]),
    "truths": lambda: pd.Index([True, False]),
    "texts": lambda: pd.Index(["b", "a"], name="n"),
    "texts as objects": lambda: pd.Index(["b", "a"], dtype=object),
    "objects": lambda: pd.Index([1, "a", None, (1, 2)], dtype=object),
    "texts of Python": lambda: pd.Index(["a", None], dtype=pd.StringDtype("python")),
    "instants": lambda: pd.DatetimeIndex(["2024-01-01", None, "2024-01-03"]),
    "instants of a frequency": lambda: pd.date_range("2024", periods=4, freq="2MS", name="t"),
    "instants of a zone": lambda: pd.date_range("2024-10-27", periods=5, freq="h", tz=PARIS),
    "instants of UTC": lambda: pd.date_range("2024", periods=2, tz="UTC", unit="s"),
    "spans": lambda: pd.timedelta_range("1D", periods=3, freq="6h"),
    "periods": lambda: pd.period_range("2024-01", periods=3, freq="Q-FEB"),
    "intervals": lambda: pd.interval_range(0, 4, closed="left"),
    "intervals of time": lambda: pd.interval_range(pd.Timestamp("2024", tz=PARIS), periods=3, freq="D"),
    "categories": lambda: pd.CategoricalIndex(["b", "a", None], categories=["b", "c", "a"], ordered=True),
    "levels": lambda: pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["x", None]),
    "levels unused": lambda: pd.MultiIndex.from_tuples([("a", dt.date(2024, 1, 1)), ("b", None)])[:1],
    "nullable": lambda: pd.Index([1, None], dtype="Int64"),
    "of Arrow": lambda: pd.Index([1, None], dtype="int32[pyarrow]"),
}
COLUMNS = {
    "whole": lambda: [1, 2, 3],
    "real": lambda: [0.5, -0.0, np.nan],
    "half": lambda: np.array([1, 2, 3], "f2"),
    "complex": lambda: [1j, 2, 3],
    "truths": lambda: [True, False, True],
    "texts": lambda: ["a", None, "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")],
    "objects": lambda: pd.Series(["a", None, [1, {"k": dt.date(2024, 1, 1)}]], dtype=object),
    "missing": lambda: pd.Series([pd.NA, np.nan, None], dtype=object),
    "not a time": lambda: pd.Series([pd.NaT, pd.Timestamp("2024", tz=PARIS), pd.Timedelta("1h")], dtype=object),
    "decimals": lambda: [decimal.Decimal("1.0"), decimal.Decimal("1.00"), None],
    "categories": lambda: pd.Categorical(["b", None, "a"], categories=["b", "z", "a"]),
    "ordered": lambda: pd.Categorical([2, None, 1], categories=[2, 1], ordered=True),
    "instants": lambda: pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
    "instants of seconds": lambda: np.array(["2024-01-01", "NaT", "2024-01-03"], "M8[s]"),
    "instants of a zone": lambda: pd.date_range("2024-10-27", periods=3, freq="h", tz=PARIS),
    "spans": lambda: pd.to_timedelta(["1s", None, "2D"]),
    "periods": lambda: pd.period_range("2024", periods=3, freq="M"),
    "intervals": lambda: pd.arrays.IntervalArray.from_tuples([(0, 1), None, (2, 3)], closed="both"),
    "nullable whole": lambda: pd.array([1, None, 3], dtype="UInt8"),
    "nullable real": lambda: pd.arrays.FloatingArray(np.array([np.nan, 1, 2]), np.array([False, True, False])),
    "nullable truths": lambda: pd.array([True, None, False], dtype="boolean"),
    "texts of Python": lambda: pd.array(["a", None, "b"], dtype=pd.StringDtype("python")),
    "texts of Python with nan": lambda: pd.array(["a", None, "b"], dtype=pd.StringDtype("python", na_value=np.nan)),
    "texts of Arrow": lambda: pd.array(["a", None, "b"], dtype=pd.StringDtype("pyarrow")),
    "whole of Arrow": lambda: pd.array([1, None, 3], dtype="int64[pyarrow]"),
    "lists of Arrow": lambda: pd.array([[1], None, []], dtype=pd.ArrowDtype(pa.list_(pa.int8()))),
    "instants of Arrow": lambda: pd.array([dt.datetime(2024, 1, 1), None, None], dtype="timestamp[ms][pyarrow]"),
}
FRAMES = {
    "all columns": lambda: pd.DataFrame({name: make() for name, make in COLUMNS.items()}),
    "attributes": lambda: with_attrs(pd.DataFrame({"x": [1.0]}), unit="m", more={"b": [1], "a": (2,)}),
    "no duplicates": lambda: flagged(pd.DataFrame({"x": [1.0]})),
    "order of columns": lambda: pd.DataFrame({"b": [1], "a": [2]}),
    "another order of columns": lambda: pd.DataFrame({"a": [2], "b": [1]}),
    "names of columns": lambda: pd.DataFrame([[1, 2, 3]], columns=pd.Index([1, "a", None], dtype=object, name="c")),
    "one name twice": lambda: pd.DataFrame([[1, 2.5]], columns=["a", "a"]),
    "levels of columns": lambda: pd.DataFrame(
        [[1, 2.5]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", "y"])
    ),
    "in rows": lambda: pd.DataFrame(np.arange(12.0).reshape(3, 4), copy=False),
    "in columns": lambda: pd.DataFrame(np.asfortranarray(np.arange(12.0).reshape(3, 4)), copy=False),
    "in pieces": fragmented,
    "in one piece": lambda: fragmented().copy(),
    "without rows": lambda: pd.DataFrame({"a": np.zeros(0, "i2"), "b": pd.Series([], dtype="category")}),
    "without columns": lambda: pd.DataFrame(index=[1, 2]),
    "empty": lambda: pd.DataFrame(),
    "objects in columns": lambda: pd.DataFrame({"a": [[1], 2], "b": ["x", None]}, dtype=object),
    "sliced": lambda: pd.DataFrame({"a": range(9), "b": range(9)})[::2],
    "of an index": lambda: pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2024", periods=2, freq="D", name="t")),
}
SCALARS = {
    "timestamp": lambda: pd.Timestamp("2024-01-01 10:00:00.123456789"),
    "timestamp of a zone": lambda: pd.Timestamp(dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=PARIS)),
    "timestamp of seconds": lambda: pd.Timestamp("2024-01-01").as_unit("s"),
    "timedelta": lambda: pd.Timedelta("1D 2ns"),
    "period": lambda: pd.Period("2024-01", freq="M"),
    "interval": lambda: pd.Interval(0, 1.5, closed="both"),
    "not a time": lambda: pd.NaT,
    "missing": lambda: pd.NA,
}
ALL = {
    **{f"index {name}": make for name, make in INDEXES.items()},
    **{f"series {name}": lambda make=make, name=name: pd.Series(make(), name=name) for name, make in COLUMNS.items()},
    **{f"series at {name}": lambda make=make: with_attrs(pd.Series(range(len(make())), make()), a=1)
       for name, make in INDEXES.items()},
    **{f"frame {name}": make for name, make in FRAMES.items()},
    **{f"scalar {name}": make for name, make in SCALARS.items()},
    "array": lambda: pd.array([1, None], dtype="Int64"),
    "array of categories": lambda: pd.Categorical(["a"]),
}  # fmt: skip


def alike(one, other):
    """Raise unless both are of one type, hold the same with the same types, and lie in memory alike."""
    assert type(one) is type(other)
    for cls, compare in COMPARED:
        if isinstance(one, cls):
            compare(one, other)
            return
    assert one is other or one == other


def alike_frames(one, other):
    pd.testing.assert_frame_equal(one, other, check_exact=True, check_freq=True, check_flags=True)
    # Which columns lie together in memory is shown by pandas in nothing public.
    for a, b in zip(one._mgr.blocks, other._mgr.blocks, strict=True):
        assert a.mgr_locs.as_array.tolist() == b.mgr_locs.as_array.tolist()
        if a.dtype.kind != "O":
            assert getattr(a.values, "strides", None) == getattr(b.values, "strides", None)
    assert list(map(repr, one.dtypes)) == list(map(repr, other.dtypes))
    assert repr(one.attrs) == repr(other.attrs)
    alike(one.index, other.index)
    alike(one.columns, other.columns)
    for at in range(one.shape[1]):
        assert list(map(type, one.iloc[:, at])) == list(map(type, other.iloc[:, at]))


def alike_series(one, other):
    pd.testing.assert_series_equal(one, other, check_exact=True, check_freq=True, check_flags=True)
    assert repr(one.attrs) == repr(other.attrs)
    assert (one.name, repr(one.dtype)) == (other.name, repr(other.dtype))
    alike(one.index, other.index)
    assert list(map(type, one)) == list(map(type, other))


def alike_indexes(one, other):
    pd.testing.assert_index_equal(one, other, exact=True, check_exact=True)
    assert getattr(one, "freq", None) == getattr(other, "freq", None)
    assert list(one.names) == list(other.names)
    assert list(map(type, one.names)) == list(map(type, other.names))
    for a, b in zip(getattr(one, "levels", ()), getattr(other, "levels", ()), strict=True):
        alike(a, b)


def alike_arrays(one, other):
    assert one.equals(other)
    assert one.dtype == other.dtype


def alike_instants(one, other):
    assert one == other
    for name in ("unit", "tz", "fold"):
        assert getattr(one, name, None) == getattr(other, name, None)


COMPARED = [
    (pd.DataFrame, alike_frames),
    (pd.Series, alike_series),
    (pd.Index, alike_indexes),
    (pd.api.extensions.ExtensionArray, alike_arrays),
    ((pd.Timestamp, pd.Timedelta), alike_instants),
]


@pytest.mark.parametrize("kind", ALL)
def test_a_value_of_pandas_comes_back_as_it_is(back, kind):
    value = ALL[kind]()
    again = back({"at": [value]})["at"][0]
    alike(again, value)
    assert content(again) == content(value) == content(ALL[kind]())


def test_what_differs_has_another_name():
    digests = {}
    for name, make in ALL.items():
        digest = content(make())
        assert digest not in digests, (name, digests.get(digest))
        digests[digest] = name


def test_what_a_recalled_frame_is_can_be_changed(back):
    frame = pd.DataFrame({"a": [1.0, 2], "b": [3.0, 4]})
    data = codecs.dumps(frame)
    again = codecs.loads(data)
    again.loc[0, "a"] = 7
    again["c"] = 1
    alike(codecs.loads(data), frame)


def custom():
    return pd.date_range("2024", periods=3, freq=pd.offsets.CustomBusinessDay(holidays=["2024-01-02"]))


class MyFrame(pd.DataFrame):
    pass


def with_own():
    made = pd.DataFrame({"a": [1]})
    object.__setattr__(made, "mine", 1)
    return made


REFUSED = {
    "sparse": (lambda: pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "Sparse"),
    "an object": (lambda: pd.Series([object()], dtype=object), "object"),
    "a frequency of holidays": (custom, "frequency"),
    "a frequency of several units": (
        lambda: pd.date_range("2024", periods=3, freq=pd.DateOffset(months=1, days=2)),
        "frequency",
    ),
    "a subclass": (lambda: MyFrame({"a": [1]}), "MyFrame"),
    "attributes of its own": (with_own, r"attributes of its own \(mine\)"),
    "attrs": (lambda: with_attrs(pd.DataFrame({"a": [1]}), f=iter([])), "list_iterator"),
    "structures": (lambda: pd.arrays.NumpyExtensionArray(np.zeros(1, [("a", "O")])), "dtype"),
    "rows without columns": (lambda: pa.table({"a": [1]}).select([]), "rows without columns"),
    "objects of polars": (lambda: pl.DataFrame({"o": pl.Series([object()], dtype=pl.Object)}), "Object"),
    "lazy": (lambda: pl.DataFrame({"a": [1]}).lazy(), "LazyFrame|PyLazyFrame"),
    "lazy expression": (lambda: pl.col("a"), "Expr"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_not_come_back_is_refused(kind):
    make, words = REFUSED[kind]
    with pytest.raises(NotKeepable, match=rf"(?s)value\[1\].*{words}.*codec\("):
        codecs.dumps([1, make()])


def test_a_registered_codec_goes_first(clean):
    class Own(pd.DataFrame):
        pass

    codecs.codec("frames-own", pd.DataFrame, dump=lambda f: f.to_dict("list"), load=pd.DataFrame)
    assert b"frames-own" in codecs.dumps(pd.DataFrame({"a": [1]}))


# polars


def polars_frame():
    texts = pl.Series(["u", None], dtype=pl.Categorical)
    instants = pl.Series([dt.datetime(2024, 1, 1), None])
    return pl.DataFrame(
        {
            "whole": [1, None], "texts": ["x", None], "real": [float("nan"), -0.0], "truths": [True, None],
            "categories": texts, "enum": pl.Series(["u", "v"], dtype=pl.Enum(["v", "u", "z"])),
            "instants": instants, "of a zone": instants.dt.replace_time_zone("Europe/Paris"),
            "time": [dt.time(1), None], "span": [dt.timedelta(1), None], "date": [dt.date(2024, 1, 1), None],
            "decimal": [decimal.Decimal("1.20"), None], "lists": [[1, None], None], "nothing": [None, None],
            "arrays": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)), "raw": [b"a", None],
            "structs": [{"x": 1, "y": ["q"]}, None], "wide": pl.Series([1, 2], dtype=pl.Int128),
            "small": pl.Series([1, 2], dtype=pl.UInt8),
        }
    )  # fmt: skip


POLARS = {
    "all": polars_frame,
    "another order": lambda: polars_frame().select(polars_frame().columns[::-1]),
    "sorted": lambda: pl.DataFrame({"a": [3, 1, 2]}).sort("a"),
    "not known to be sorted": lambda: pl.DataFrame({"a": [1, 2, 3]}),
    "without rows": lambda: polars_frame().clear(),
    "empty": pl.DataFrame,
    "series": lambda: pl.Series("name", [1, None]),
    "series of structs": lambda: pl.Series([{"a": [1]}, None]),
    "series without a name": lambda: pl.Series([1, None]),
    "falling": lambda: pl.Series([1, 3, 2]).sort(descending=True),
}


@pytest.mark.parametrize("kind", POLARS)
def test_a_value_of_polars_comes_back_as_it_is(back, kind):
    value = POLARS[kind]()
    again = back([value])[0]
    assert type(again) is type(value)
    assert again.equals(value, null_equal=True)
    if isinstance(value, pl.Series):
        assert (again.name, again.dtype, again.flags) == (value.name, value.dtype, value.flags)
    else:
        assert again.schema == value.schema
        assert [c.flags for c in again.get_columns()] == [c.flags for c in value.get_columns()]
    assert content(again) == content(value) == content(POLARS[kind]())


def test_values_of_polars_that_differ_have_other_names():
    digests = [content(make()) for make in POLARS.values()]
    assert len(set(digests)) == len(digests)


# Arrow


class Tag(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int64(), "somatize-test.tag")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


@pytest.fixture
def tag():
    pa.register_extension_type(Tag())
    yield Tag()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            pa.unregister_extension_type("somatize-test.tag")
        except pa.ArrowKeyError:
            pass


ARROW = {
    "whole": lambda: pa.array([1, None, 3], pa.int16()),
    "sliced": lambda: pa.array(range(20), pa.int16())[3:6],
    "truths": lambda: pa.array([True, None, False])[1:],
    "texts": lambda: pa.array(["a", None, "bc"]),
    "large texts": lambda: pa.array(["a", None, "bc"], pa.large_string()),
    "views": lambda: pa.array(["a", None, "a text that is long enough to lie elsewhere"], pa.string_view()),
    "raw": lambda: pa.array([b"a", None], pa.binary(1)),
    "lists": lambda: pa.array([[1, None], None, []]),
    "lists of two": lambda: pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    "structs": lambda: pa.array([{"a": 1, "b": ["x"]}, None]),
    "maps": lambda: pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())),
    "dictionary": lambda: pa.array(["a", None, "a"]).dictionary_encode(),
    "decimals": lambda: pa.array([decimal.Decimal("1.20"), None]),
    "instants": lambda: pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("ms", "Europe/Paris")),
    "nothing": lambda: pa.nulls(3),
    "half": lambda: pa.array(np.array([1, 2], "f2")),
    "runs": lambda: pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]),
    "union": lambda: pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]),
    "chunks": lambda: pa.chunked_array([[1], [], [2, None]]),
    "other chunks": lambda: pa.chunked_array([[1, 2, None]]),
    "no chunk": lambda: pa.chunked_array([], pa.int8()),
    "chunks of dictionaries": lambda: pa.chunked_array(
        [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    ),
    "table": lambda: pa.table(
        {"a": pa.chunked_array([[1], [2]]), "b": pa.chunked_array([["x", None]])}, metadata={"k": "v"}
    ),
    "table of other metadata": lambda: pa.table(
        {"a": pa.chunked_array([[1], [2]]), "b": pa.chunked_array([["x", None]])}, metadata={"k": "w"}
    ),
    "table of a field's metadata": lambda: pa.table(
        [[1]], schema=pa.schema([pa.field("a", pa.int64(), nullable=False, metadata={"unit": "m"})])
    ),
    "one name twice": lambda: pa.table([[1], [2]], names=["a", "a"]),
    "empty table": lambda: pa.table({}),
    "batch": lambda: pa.record_batch({"a": [1, None], "b": ["x", "y"]}),
    "schema": lambda: pa.schema({"a": pa.int8()}, metadata={"k": "v"}),
}


@pytest.mark.parametrize("kind", ARROW)
def test_a_value_of_arrow_comes_back_as_it_is(back, kind):
    value = ARROW[kind]()
    again = back([value])[0]
    assert type(again) is type(value)
    same = {"check_metadata": True} if hasattr(value, "schema") or isinstance(value, pa.Schema) else {}
    assert again.equals(value, **same)
    if isinstance(value, pa.Table):
        chunks = [[len(c) for c in column.chunks] for column in value.columns]
        assert [[len(c) for c in column.chunks] for column in again.columns] == chunks
    elif isinstance(value, pa.ChunkedArray):
        assert list(map(len, again.chunks)) == list(map(len, value.chunks))
    assert content(again) == content(value) == content(ARROW[kind]())


def test_values_of_arrow_that_differ_have_other_names():
    digests = {}
    for name, make in ARROW.items():
        digest = content(make())
        assert digest not in digests, (name, digests.get(digest))
        digests[digest] = name


def test_what_lies_in_memory_where_nobody_sees_it_does_not_count():
    behind = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1, 99]).tobytes())])
    assert content(behind) == content(pa.array([1, None]))
    nested = [pa.ListArray.from_arrays(pa.array([0, 1]), one) for one in (behind[:1], pa.array([1]))]
    assert content(nested[0]) == content(nested[1])
    assert content(pa.array(range(9))[4:6]) == content(pa.array([4, 5]))
    assert content(pa.array(["a", "b", "c"])[1:]) == content(pa.array(["b", "c"]))
    one = pd.arrays.IntegerArray(np.array([1, 5]), np.array([False, True]))
    assert content(one) == content(pd.array([1, None], dtype="Int64"))


def test_a_type_that_is_not_registered_any_more_is_named(tag, back):
    value = pa.ExtensionArray.from_storage(tag, pa.array([1, 2]))
    data = codecs.dumps(value)
    assert codecs.loads(data).equals(value)
    assert content(value) != content(pa.array([1, 2]))
    pa.unregister_extension_type("somatize-test.tag")
    with pytest.raises(StoreError, match="not registered here"):
        codecs.loads(data)


# Whole kinds

cells = {
    "i4": st.integers(-(2**31), 2**31 - 1),
    "f8": st.floats(),
    "bool": st.booleans(),
    "str": st.text(max_size=3) | st.none(),
    "object": st.one_of(
        st.none(), st.integers(-5, 5), st.text(max_size=2), st.floats(), st.lists(st.integers(), max_size=2)
    ),
    "Int64": st.integers(-5, 5) | st.none(),
    "boolean": st.booleans() | st.none(),
    "category": st.sampled_from(["a", "b", None]),
    "M8[us]": st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1)),
    "int32[pyarrow]": st.integers(-5, 5) | st.none(),
}


@st.composite
def frames(draw):
    """A frame of any columns with an index, and attributes."""
    rows = draw(st.integers(0, 3))
    kinds = draw(st.lists(st.sampled_from(sorted(cells)), max_size=4))
    columns = [pd.Series(draw(st.lists(cells[kind], min_size=rows, max_size=rows)), dtype=kind) for kind in kinds]
    made = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(rows))
    made.columns = pd.Index(
        draw(st.lists(st.text(max_size=2) | st.integers(0, 3), min_size=len(kinds), max_size=len(kinds))), dtype=object
    )
    if draw(st.booleans()):
        made.index = pd.date_range("2024", periods=rows, freq=draw(st.sampled_from(["D", "h", "MS"])))
    made.attrs.update(draw(st.dictionaries(st.text(max_size=2), st.integers(0, 2), max_size=2)))
    return made


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(frames())
def test_any_frame_comes_back(back, frame):
    again = back(frame)
    alike(again, frame)
    assert content(again) == content(frame)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(frames(), st.data())
def test_any_change_of_a_frame_is_another_name(frame, data):
    before = content(frame)
    assert content(frame.copy()) != b""
    other = frame.copy()
    ways = ["attrs", "index"]
    if other.shape[1]:
        ways += ["columns", "drop"]
    way = data.draw(st.sampled_from(ways))
    if way == "attrs":
        other.attrs["more"] = 1
    elif way == "index":
        other.index.name = "named"
    elif way == "columns":
        other.columns = pd.Index([*other.columns[:-1], "another"], dtype=object)
    else:
        other = other.iloc[:, :-1]
    assert content(other) != before


# In a graph

TABLE = pd.DataFrame({"a": [1]})


@pytest.mark.parametrize(
    "make", [FRAMES["all columns"], polars_frame, ARROW["table"]], ids=["pandas", "polars", "arrow"]
)
def test_frames_are_kept_and_recalled(tmp_path, make):
    def same(frame):
        ran.append(1)
        return {"frame": frame}

    ran = []
    with Store(tmp_path) as store:
        graph = Graph.somatize(node(same).named("n").frozen().cached(ignoring=["ran"]))
        first = graph.forward(make(), store=store)
        again = graph.forward(make(), store=store)
        assert len(ran) == 1
        assert type(first["frame"]) is type(again["frame"]) is type(make())
        assert content(again) == content({"frame": make()})


def test_a_frame_that_cannot_be_kept_says_the_cure(tmp_path):
    graph = Graph.somatize(node(lambda x: pd.DataFrame({"a": [object()]})).named("n").frozen().cached())
    with Store(tmp_path) as store, pytest.warns(KeepWarning, match=r"codec\("):
        graph.forward(1, store=store)
    graph = Graph.somatize(node(lambda x: 1).named("n").frozen().cached())
    with Store(tmp_path) as store, pytest.warns(KeepWarning, match=r"input.*SparseArray|Sparse"):
        graph.forward(pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), store=store)
    table = pd.DataFrame({"a": [1]})

    def reads(x):
        return len(table) + len(TABLE)

    with (
        Store(tmp_path) as store,
        pytest.warns(KeepWarning, match=r"`TABLE` of .* is a pandas\.DataFrame, which may change"),
    ):
        Graph.somatize(node(reads).named("n").frozen().cached()).forward(1, store=store)
    with pytest.raises(NotKeepable, match=r"value\['k'\]\.<pandas\.DataFrame>.* object;"):
        codecs.dumps({"k": pd.DataFrame({"a": [object()]})})
    with pytest.raises(Unnameable, match=r"input\['k'\]\.<DataFrame>.* is an object;"):
        content({"k": pd.DataFrame({"a": [object()]})})
    with pytest.raises(Unnameable, match="LazyFrame"):
        content(pl.DataFrame({"a": [1]}).lazy())


def test_none_of_the_libraries_is_loaded_for_values_of_others():
    code = (
        "import sys, numpy as np; from somatize import codecs; from somatize.naming import content;"
        "class_ = type('C', (), {}); one = class_(); one.x = [1, (2, {3: b'x'})]; content([one, np.ones(2)]);"
        "codecs.loads(codecs.dumps([1, np.ones(2)]));"
        "assert not {'pandas', 'polars', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

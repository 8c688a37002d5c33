"""Frames of pandas and polars and a table of Arrow, kept and recalled as they were."""

import tempfile

import pandas as pd
import polars as pl
import pyarrow as pa

from somatize import Graph, Store, node

g = Graph.somatize(node(lambda x: {"given": x}).named("n").frozen().cached())
store = Store(tempfile.mkdtemp())
frame = pd.DataFrame(
    {"a": [1.5, None], "b": ["x", None], "c": pd.Categorical(["u", "v"]), "d": pd.array([1, None], dtype="Int64")},
    index=pd.date_range("2024", periods=2, tz="UTC", name="t"),
)
frame.attrs["unit"] = "m"
for given in (frame, pl.DataFrame({"a": [1, None], "b": ["x", "y"]}), pa.table({"a": [1, None]}, metadata={"k": "v"})):
    told = []
    g.forward(given, store=store)
    answer = g.forward(given, store=store, watching=told.append)["given"]
    assert [fact["fact"] for fact in told] == ["recalled", "finished"], (type(given), told)
    assert type(answer) is type(given)
    assert answer.equals(given)
    if given is frame:
        pd.testing.assert_frame_equal(answer, frame, check_freq=True)
        assert answer.attrs == {"unit": "m"}

"""A column of said values gives back the very texts, whether they came as texts or as the floats they were."""

from __future__ import annotations

import math
from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from somatize import Graph, Recorder, Store, node
from somatize.record import forwards
from somatize.store import record_format
from somatize.store.record_format import Chunk, pack_chunk, pack_integers, pack_texts

# A NaN has a sign and a payload that no text tells; `nan` is read as the one there is in `math`.
FLOATS = st.floats().map(lambda value: math.nan if math.isnan(value) else value)
SAID = st.none() | FLOATS | st.text(max_size=8) | st.integers().map(str) | FLOATS.map(repr)


def as_texts(said: list[str | float | None]) -> list[str | None]:
    return [repr(one) if isinstance(one, float) else one for one in said]


@given(st.lists(SAID, min_size=1, max_size=20) | st.lists(FLOATS, min_size=1, max_size=20))
@example([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e16])
@example([1.0, "1", "1.0", None, ""])
def test_texts_come_back_as_they_were_said(said: list[str | float | None]) -> None:
    chunk = Chunk(pack_chunk(len(said), {"x": pack_texts(said)}))
    assert chunk.texts("x") == as_texts(said)
    assert as_texts(chunk.said("x")) == as_texts(said)
    assert pack_texts(chunk.said("x")) == pack_texts(as_texts(said))


@given(
    st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 255, 256, 2**32 - 1, 2**32])), min_size=1),
    st.integers(-(2**63), 2**63 - 9),
)
def test_integers_come_back_from_the_fewest_bytes(column: list[int], first: int) -> None:
    for values in (column, sorted(column), [abs(n) % 2**32 for n in column], list(range(first, first + 8))):
        chunk = Chunk(pack_chunk(len(values), {"x": pack_integers(array("q", values))}))
        assert list(chunk.integers("x")) == values
    assert [
        len(pack_integers(values)[1]) for values in ([7] * 9, [4, 5, 6], [0, 9, 1], [0, 256, 1], [0, 2**32, 1])
    ] == [*(8, 8, 3, 6, 24)]


def test_floats_and_texts_of_one_run_are_read_the_same_before_and_after_the_commit(tmp_path) -> None:
    values = [0.1, "0.1", math.nan, 3, "three", None, -0.0, True]
    store = Store(tmp_path / "s")
    recorder = Recorder(store, run="r", summarising=["x"])
    for value in values:
        Graph.somatize(node(abs)).forward(-1, watching=recorder)
        recorder({"fact": "x", "value": 1.5})
        recorder({"fact": "x", "value": value})
    want = ["0.1", "0.1", "nan", "3", "three", "None", "-0.0", "True"]
    assert [row["x.value"] for row in forwards(store, "r")] == want
    recorder.close()
    assert [row["x.value"] for row in forwards(store, "r")] == want
    assert store.check() == []
    store.close()


def test_a_fact_without_the_summarised_field_has_no_summary() -> None:
    packer = record_format.Packer(["loss.value", "ran.took_us"])
    for fact in ({"fact": "loss", "node": "a"}, {"fact": "other", "value": "1"}):
        assert packer.pack_one(fact, fact)[1:] == (b"", None)
    told = {"fact": "loss", "value": "0.5"}
    assert packer.pack_one(told, {"fact": "loss", "value": 0.5})[2] == [0.5, None]


def test_what_a_sequence_of_kinds_holds_is_found_whether_or_not_it_is_remembered() -> None:
    packer = record_format.Packer(["loss.value"])
    for count in (1, 2, 5000, 5000):
        ran = [{"fact": "ran", "node": str(n), "took_us": "1"} for n in range(count)]
        facts = [*ran, {"fact": "loss", "value": "3"}, {"fact": "loss"}, {"fact": "finished", "took_us": "2"}]
        for _ in range(2):
            body, nodes, texts = packer.pack(facts)
            assert (list(record_format.unpack([body])), nodes, texts) == (facts, count, ["3"])
    assert sorted(map(len, packer._shapes)) == [4, 5]  # those of thousands take no room

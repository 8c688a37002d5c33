"""A run as CSV, Parquet, Arrow and pandas: the rows of the readers, in typed columns."""

from __future__ import annotations

import csv
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import Graph, Recorder, Store, node
from somatize.errors import ExportError, ExtraMissing, RecordWarning, UnknownRun, WhichRun
from somatize.record import about, facts, forwards, logs, nodes, runs, tasks, throughput
from somatize.record.export import Exported, tables, to_arrow, to_csv, to_pandas, to_parquet

G = Graph.somatize(node(abs))

SHARED = ("node", "host", "device", "began_us", "took_us", "bytes", "items", "ran", "recalled", "failed", "why")


def as_said(row: dict[str, Any], name: str) -> str | None:
    """The text that a value and the words beside it stand for."""
    word, value = row.get(f"{name} (text)"), row[name]
    if word is not None:
        assert value is None
        return word
    return value if value is None or isinstance(value, str) else repr(value)


def same(text: str | None, read: str | None) -> bool:
    """The same text, or the same whole number among fractions."""
    return text == read or (text is not None and text.lstrip("-").isdigit() and read == repr(float(int(text))))


def us(when: datetime | float | None) -> int | None:
    """An instant in microseconds since 1970."""
    if when is None:
        return None
    return round((when.timestamp() if isinstance(when, datetime) else when) * 1e6)


def assert_forwards(typed: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    assert [row["forward"] for row in typed] == [row["forward"] for row in rows]
    for row, want in zip(typed, rows, strict=True):
        assert set(want) == {name for name in row if not name.endswith(" (text)")}
        assert us(row["when"]) == us(want["when"])
        for name in set(want) - {"when"}:
            assert same(want[name], as_said(row, name)) if "." in name else row[name] == want[name]


def told(row: dict[str, Any]) -> dict[str, str | None]:
    """The fact that a row of the table of facts was made of."""
    kind = row["fact"]
    fields = {name: name for name in SHARED}
    fields |= {path: path.removeprefix(f"{kind}.") for path in row if path.startswith(f"{kind}.")}
    texts = {name: as_said(row, path) for path, name in fields.items() if not path.endswith(" (text)")}
    return {"fact": kind, **{name: text for name, text in texts.items() if text is not None}}


def assert_facts(typed: list[dict[str, Any]], want: list[dict[str, str]]) -> None:
    assert len(typed) == len(want)
    for row, fact in zip(typed, want, strict=True):
        read = told(row)
        assert read.keys() == fact.keys()
        assert all(same(fact[name], read[name]) for name in fact)


def plain(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame as Python's values, None where one is absent."""
    columns = {}
    for name in frame.columns:
        array = frame[name].array
        # Missing and nan are told apart by pandas in nothing public.
        absent = array._mask if hasattr(array, "_mask") else frame[name].isna()
        columns[name] = [
            None if gone else value.item() if hasattr(value, "item") else value
            for value, gone in zip(frame[name], absent, strict=True)
        ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def every_way(store: Store, run: str | None, of: str, place: Path, **stretch: int) -> list[list[dict[str, Any]]]:
    """The rows of a table by way of Parquet, Arrow and pandas."""
    done = to_parquet(store, run, place / "t.parquet", of, **stretch)
    read = pq.read_table(place / "t.parquet")
    assert done == Exported(place / "t.parquet", {of: read.num_rows})
    arrow, frame = to_arrow(store, run, of, **stretch), to_pandas(store, run, of, **stretch)
    assert frame.attrs == {name.decode(): text.decode() for name, text in arrow.schema.metadata.items()}
    assert list(frame.columns) == arrow.schema.names
    assert arrow.schema.remove_metadata() == read.schema.remove_metadata()
    return [read.to_pylist(), arrow.to_pylist(), plain(frame)]


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_forwards(odd: Store, tmp_path: Path) -> None:
    rows = forwards(odd, "odd")
    assert {"ok", "broke"} == {row["state"] for row in rows}
    for typed in every_way(odd, "odd", "forwards", tmp_path):
        assert_forwards(typed, rows)
    for stretch in ({"last": 3}, {"since": 15}, {"last": 5, "since": 14}, {"last": 0}):
        for typed in every_way(odd, "odd", "forwards", tmp_path, **stretch):
            assert_forwards(typed, forwards(odd, "odd", **stretch))
    wrote = to_csv(odd, "odd", tmp_path / "t.csv")
    assert wrote.path == tmp_path / "t.csv"
    assert wrote.wrote == {"forwards": len(rows)}
    assert wrote.left_out == ('1 empty text written as "", which some readers (Python\'s csv, pandas) take for absent',)
    assert str(wrote).startswith(f"{len(rows)} forwards to ")
    for line, row in zip(csv_rows(tmp_path / "t.csv"), rows, strict=True):
        assert datetime.fromisoformat(line.pop("when")).timestamp() == row.pop("when")
        assert line == {name: "" if value is None else str(value) for name, value in row.items()}


def test_types_and_units_do_not_depend_on_what_is_missing(odd: Store) -> None:
    named = pa.dictionary(pa.int32(), pa.string())
    schema_of = {field.name: field for field in to_arrow(odd, "odd").schema}
    assert {name: field.type for name, field in schema_of.items()} == {
        "forward": pa.int64(),
        "state": named,
        "nodes": pa.int64(),
        "took_us": pa.int64(),
        "loss.value": pa.float64(),
        "loss.value (text)": pa.string(),
        "when": pa.timestamp("us", "UTC"),
    }
    assert schema_of["took_us"].metadata == {b"unit": b"us"}
    metadata = to_arrow(odd, "odd").schema.metadata
    assert (metadata[b"somatize.run"], metadata[b"somatize.table"]) == (b"odd", b"forwards")
    assert json.loads(metadata[b"somatize.units"]) == {"took_us": "us"}
    assert metadata[b"somatize.store_format"] == b"1"
    assert json.loads(metadata[b"somatize.left_out"]) == []
    assert {name: str(dtype) for name, dtype in to_pandas(odd, "odd").dtypes.items()} == {
        "forward": "Int64",
        "state": "category",
        "nodes": "Int64",
        "took_us": "Int64",
        "loss.value": "Float64",
        "loss.value (text)": "string",
        "when": "datetime64[us, UTC]",
    }


def test_a_nan_that_was_said_is_no_missing_value_and_both_are_nan_as_floats(odd: Store) -> None:
    said = [row["loss.value"] for row in forwards(odd, "odd")]
    loss = to_pandas(odd, "odd")["loss.value"]
    assert str(loss[said.index("nan")]) == "nan"
    assert loss.array._mask.tolist() == [text in _WORDS for text in said]
    assert loss.astype(float).isna().tolist() == [text in (*_WORDS, "nan") for text in said]
    assert to_arrow(odd, "odd")["loss.value"].is_null().to_pylist() == [text in _WORDS for text in said]


_WORDS = (str(2**53 + 1), str(2**63), "True", "None", "", "n/a", 'a,"b"\r\nc ', "ü\u2028")


def test_a_column_of_words_takes_no_name_that_a_field_has(store: Store) -> None:
    with Recorder(store, run="r") as recorder:
        G.forward(1, watching=recorder)
        for value in (1, 2, "x"):
            recorder({"fact": "loss", "value": value, "value (text)": "mine"})
    table = to_arrow(store, "r", "facts").slice(2).to_pydict()
    assert table["loss.value"] == [1, 2, None]
    assert table["loss.value (text)"] == ["mine"] * 3
    assert table["loss.value (text) (text)"] == [None, None, "x"]


def test_facts(odd: Store, tmp_path: Path) -> None:
    own = about(odd, "odd")["facts"]
    assert own[0] == {"fact": "hello", "n": "1", "node": "nowhere"}
    want = own + facts(odd, "odd", since=0)
    assert {"fact": "late, ümlaut\n", "a.b": "1"} in want
    for typed in every_way(odd, "odd", "facts", tmp_path):
        assert_facts(typed, want)
        assert [row["forward"] for row in typed[: len(own) + 1]] == [None] * len(own) + [0]
        assert [row["position"] for row in typed if row["forward"] == 3] == [0, 1, 2, 3]
    for typed in every_way(odd, "odd", "facts", tmp_path, last=2):
        assert_facts(typed, facts(odd, "odd", last=2))
    assert to_csv(odd, "odd", tmp_path / "t.csv", "facts").wrote == {"facts": len(want)}
    lines = csv_rows(tmp_path / "t.csv")
    assert [line["fact"] for line in lines] == [fact["fact"] for fact in want]
    assert [line["loss.value"] for line in lines if line["fact"] == "loss"] == [
        fact["value"] for fact in want if fact["fact"] == "loss"
    ]
    assert not any(name.endswith(" (text)") for name in lines[0])


def test_the_other_tables(odd: Store, tmp_path: Path) -> None:
    readers = {"nodes": nodes, "logs": logs, "tasks": tasks, "throughput": throughput}
    for of, reader in readers.items():
        rows = reader(odd, "odd")
        assert rows
        for typed in every_way(odd, "odd", of, tmp_path):
            assert typed == rows
        assert to_csv(odd, "odd", tmp_path / "t.csv", of).wrote == {of: len(rows)}
        for line, row in zip(csv_rows(tmp_path / "t.csv"), rows, strict=True):
            shown = {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()}
            assert line == {name: "" if value is None else str(value) for name, value in shown.items()}
    assert to_arrow(odd, "odd", "nodes", last=1).to_pylist() == nodes(odd, "odd", last=1)
    for typed in every_way(odd, None, "runs", tmp_path):
        for row, want in zip(typed, runs(odd), strict=True):
            assert [us(row.pop(name)) for name in ("first", "last", "ended")] == [
                us(want.pop(name)) for name in ("first", "last", "ended")
            ]
            assert row == want


def test_a_run_without_forwards(store: Store, tmp_path: Path) -> None:
    Recorder(store, run="empty").close()
    for of in ("forwards", "facts", "nodes", "logs", "tasks", "throughput"):
        assert every_way(store, "empty", of, tmp_path) == [[], [], []]
        assert to_csv(store, "empty", tmp_path / "t.csv", of).wrote == {of: 0}
    assert str(to_pandas(store, "empty")["took_us"].dtype) == "Int64"
    to_csv(store, "empty", tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "forward,state,nodes,took_us,when\n"


VALUES = st.one_of(
    st.none(),
    st.floats(),
    st.integers(),
    st.booleans(),
    st.text(max_size=4),
    st.sampled_from(["nan", "", "1.50", "a,b", '"', "\n", "\r", " x "]),
)
NAMES = st.sampled_from(["value", "b", "ü, \n"])
FACTS = st.tuples(st.sampled_from(["loss", "acc", "a.b"]), st.dictionaries(NAMES, VALUES, max_size=3))
Told = list[list[tuple[str, dict[str, Any]]]]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=st.lists(st.lists(FACTS, max_size=3), max_size=6))
def test_whatever_was_said_comes_back(told: Told, store: Store, tmp_path: Path) -> None:
    run = f"run {len(runs(store))}"
    with Recorder(store, run=run, summarising=["loss", "acc.b"]) as recorder:
        for said in told:
            G.forward(1, watching=recorder)
            for kind, fields in said:
                recorder({**fields, "fact": kind})
        # Before anything is committed, and after.
        assert_comes_back(store, run, tmp_path)
    assert_comes_back(store, run, tmp_path)


def assert_comes_back(store: Store, run: str, tmp_path: Path) -> None:
    rows, want = forwards(store, run), facts(store, run, since=0)
    for typed in every_way(store, run, "forwards", tmp_path):
        assert_forwards(typed, rows)
    for typed in every_way(store, run, "facts", tmp_path):
        assert_facts(typed, want)
    to_csv(store, run, tmp_path / "t.csv", "facts")
    for line, fact in zip(csv_rows(tmp_path / "t.csv"), want, strict=True):
        assert {name: text for name, text in told(line).items() if text} == {k: v for k, v in fact.items() if v}


def test_what_is_refused_leaves_what_was_there(odd: Store, tmp_path: Path) -> None:
    place = tmp_path / "t.csv"
    place.write_text("mine")
    for to in (to_csv, to_parquet):
        with pytest.raises(UnknownRun, match="did you mean 'odd'"):
            to(odd, "od", place)
        with pytest.raises(ExportError, match="no table of 'fact'; did you mean 'facts'"):
            to(odd, "odd", place, "fact")
        with pytest.raises(ExportError, match="is a directory"):
            to(odd, "odd", tmp_path)
        with pytest.raises(ExportError, match="there is no directory"):
            to(odd, "odd", tmp_path / "no" / "t.csv")
        with pytest.raises(ExportError, match="no regular file"):
            to(odd, "odd", "/dev/null")
        with pytest.raises(ExportError, match="not of the run 'odd'"):
            to(odd, "odd", place, "runs")
    for of in ("logs", "tasks", "throughput", "runs"):
        with pytest.raises(ExportError, match="last="):
            to_arrow(odd, None, of, last=1)
    with pytest.raises(ExportError, match="since="):
        to_pandas(odd, "odd", "nodes", since=1)
    with pytest.raises(ValueError, match="negative"):
        to_pandas(odd, "odd", last=-1)
    Recorder(odd, run="other").close()
    with pytest.raises(WhichRun):
        to_csv(odd, None, place)
    assert place.read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir() if one.suffix in (".csv", ".part")] == ["t.csv"]


def test_writers_at_once_are_in_the_order_of_the_reader(store: Store, tmp_path: Path) -> None:
    with Recorder(store, run="r", summarising=["loss"]) as one, Recorder(store, run="r", summarising=["acc"]) as other:
        for turn in range(60):
            G.forward(1, watching=other if turn % 7 == 3 else one)
            one({"fact": "loss", "value": turn})
            if turn == 30:
                assert_comes_back(store, "r", tmp_path)
    rows, want = forwards(store, "r"), facts(store, "r", since=0)
    assert [row["forward"] for row in rows] == list(range(60))
    for typed in every_way(store, "r", "forwards", tmp_path):
        assert_forwards(typed, rows)
    for typed in every_way(store, "r", "facts", tmp_path, since=0):
        assert_facts(typed, want)
    for typed in every_way(store, "r", "forwards", tmp_path, since=25):
        assert_forwards(typed, rows[25:])


def test_a_wide_table_has_batches_of_fewer_rows_and_all_of_them(
    odd: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else a batch takes thousands of forwards.
    monkeypatch.setattr(tables, "BATCH", 7)
    monkeypatch.setattr(tables, "_IN_MEMORY", 1)  # so that the batches lie in a file
    for typed in every_way(odd, "odd", "forwards", tmp_path):
        assert_forwards(typed, forwards(odd, "odd"))
    own = about(odd, "odd")["facts"]
    for typed in every_way(odd, "odd", "facts", tmp_path):
        assert_facts(typed, own + facts(odd, "odd", since=0))
    groups = pq.ParquetFile(tmp_path / "t.parquet").metadata
    assert groups.num_row_groups > 3
    monkeypatch.setattr(tables, "_CELLS", 1)
    assert to_arrow(odd, "odd", "nodes").to_pylist() == nodes(odd, "odd")
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["t.parquet"]


@pytest.mark.parametrize("to", [to_csv, to_parquet])
def test_an_interrupt_while_rows_wait_in_a_file_leaves_what_was_there(
    to: Any, odd: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "t"
    place.write_text("mine")
    # Else a batch takes thousands of forwards; and the interrupt comes at one of them.
    monkeypatch.setattr(tables, "BATCH", 3)
    monkeypatch.setattr(tables, "_IN_MEMORY", 1)
    added: list[int] = []

    def add(self: tables.Table, rows: int, columns: Any) -> None:
        if len(added) == 3:
            raise KeyboardInterrupt
        added.append(rows)
        whole(self, rows, columns)

    whole = tables.Table.add
    monkeypatch.setattr(tables.Table, "add", add)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        to(odd, "odd", place, "facts")
    assert added
    assert place.read_text() == "mine"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("library", "export", "says"),
    [
        ("pandas", lambda store: to_pandas(store), r"pip install 'somatize\[pandas\]'"),
        ("pyarrow", lambda store: to_arrow(store), r"pip install 'somatize\[arrow\]'"),
        ("pyarrow", lambda store: to_parquet(store, None, "x.parquet"), r"pip install 'somatize\[arrow\]'"),
    ],
)
def test_a_library_that_is_missing_is_named_before_anything_is_read(
    library: str, export: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ExtraMissing, match=says):
        export("no store at all")


def test_a_record_that_is_damaged_is_listed(odd: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd.close()
    with Store(odd.path) as store:
        # Damage that only this reading meets.
        monkeypatch.setattr(tables, "_own", lambda lines: lines.skip(5) or [])
        with pytest.warns(RecordWarning, match="the record run/odd/5 is damaged"):
            wrote = to_parquet(store, "odd", tmp_path / "t.parquet", "facts")
        assert wrote.left_out == ("the record run/odd/5 is damaged; it was skipped",)
        with pytest.warns(RecordWarning):
            metadata = to_arrow(store, "odd", "facts").schema.metadata
        assert json.loads(metadata[b"somatize.left_out"]) == list(wrote.left_out)

"""The names that numbers are asked for by: those they were said by, or an error that says what is near."""

from __future__ import annotations

from pathlib import Path

import pytest

from somatize import Graph, Live, Recorder, Store, node
from somatize.errors import RecordError, UnknownName
from somatize.record import Followed, curve, curve_costs, export, forwards, page, progress
from somatize.store import run_reader

GRAPH = Graph.somatize(node(abs).named("a"))
POINTS = [(step, 1 / (step + 1)) for step in range(3)]


def record(store: Store, run: str, summarising: list[str], *, outside: Live | None = None) -> None:
    with Recorder(store, run=run, summarising=summarising) as recorder:
        watchers = [recorder, outside] if outside is not None else [recorder]
        for step, value in POINTS:
            GRAPH.forward(step, watching=watchers)
            for say in watchers:
                say({"fact": "val.loss", "value": value})
                say({"fact": "val", "accuracy": value})
                say({"fact": "words", "value": "yes"})


@pytest.mark.parametrize("summarising", [[], ["val.loss", "val.accuracy", "words"], ["val.loss.value"]])
@pytest.mark.parametrize("committed", [True, False])
def test_a_number_is_read_by_the_name_it_was_said_by(
    way: str, store: Store, tmp_path: Path, summarising: list[str], committed: bool
) -> None:
    live = Live(of=["val.loss", "val.accuracy"], summarising=summarising or ["val.loss"])
    recorder = Recorder(store, run="r", summarising=summarising)
    for step, value in POINTS:
        GRAPH.forward(step, watching=[recorder, live])
        for say in (recorder, live):
            say({"fact": "val.loss", "value": value})
            say({"fact": "val", "accuracy": value})
            say({"fact": "words", "value": "yes"})
    if committed:
        recorder.close()
    for name in ("val.loss", "val.loss.value", "val.accuracy"):
        assert curve(store, of=name) == POINTS
    assert curve(store, of="words") == curve(store, of="loss") == []
    assert curve_costs(store, of="val.loss") == ("scan" if summarising else "fetch")
    figure = progress(store, of=["val.loss", "val.accuracy"])
    drawn = {trace.name: list(trace.y) for trace in figure.data}
    assert drawn["val.loss"] == drawn["val.accuracy"] == [value for _, value in POINTS]
    assert {trace.name: list(trace.y) for trace in live.figure().data}["val.loss"] == drawn["val.loss"]
    keys = {key for key in forwards(store)[0] if "." in key or key == "words.value"}
    expected = {"val.loss": "val.loss.value", "words": "words.value"}
    assert keys == {expected.get(name, name) for name in summarising}
    assert live.rows[-1]["val.loss.value"] == repr(POINTS[-1][1])
    with Followed(store.path, of=["val.loss", "val.accuracy"]) as followed:
        followed.look()
        assert followed.standing is not None
        assert [one.last for one in followed.standing.curves[1:]] == [(2, repr(POINTS[-1][1]))] * 2
    if summarising:
        table = export.to_csv(store, "r", tmp_path / "r.csv").path.read_text().splitlines()
        assert table[1].split(",")[table[0].split(",").index("val.loss.value")] == "1.0"
        assert "val.loss" in page(store, path=tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_name_that_nothing_said_is_an_error_with_the_nearest(store: Store) -> None:
    record(store, "r", ["val.loss"])
    record(store, "other", ["extra"])
    for ask in (curve, curve_costs, progress):
        with pytest.raises(UnknownName, match=r"no number said as 'val\.los'.* did you mean 'val\.loss'\?") as caught:
            ask(store, "r", of="val.los")
        assert isinstance(caught.value, RecordError)
        assert isinstance(caught.value, KeyError)
    for name in ("val", "val.", ".", "ran.foo", "x.y.z", "tookus"):
        with pytest.raises(UnknownName):
            curve(store, "r", of=name)
    for name in ("", None, 3):
        with pytest.raises(TypeError):
            curve(store, "r", of=name)  # type: ignore[arg-type]
    assert curve(store, "other", of="extra") == []  # which was declared, though nobody said it yet
    assert curve(store, "r", of="ran.took_us") != []
    assert len(progress(store, ["r", "other"], of=["extra"]).data) > 0
    assert len(progress(store, ["r", "other"], of=["extra", "nobody"]).data) > 0  # a panel says that nobody said it
    with pytest.raises(UnknownName):
        progress(store, ["r", "other"], of=["anybody", "nobody"])


def test_of_a_run_that_just_begins_nothing_is_unknown(store: Store) -> None:
    with Recorder(store, run="r"):
        assert curve(store, "r", of="val.loss") == []


def test_a_name_that_was_said_to_the_run_alone_is_known(store: Store) -> None:
    with Recorder(store, run="r") as recorder:
        recorder({"fact": "seed", "value": 3})
        GRAPH.forward(1, watching=recorder)
    assert curve(store, "r", of="seed") == []


def test_an_export_reads_each_block_once_whatever_its_columns(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    chunk = run_reader.Chunk

    def counted(packed: bytes) -> run_reader.Chunk:
        read.append(1)
        return chunk(packed)

    # How many blocks are unpacked shows nowhere else.
    monkeypatch.setattr(run_reader, "Chunk", counted)
    counts = []
    for columns in (2, 200):
        names = [f"m{number}" for number in range(columns)]
        run = f"of {columns}"
        with Recorder(store, run=run, summarising=names) as recorder:
            for step in range(5):
                GRAPH.forward(step, watching=recorder)
                for name in names:
                    recorder({"fact": name, "value": step})
        read.clear()
        export.to_csv(store, run, tmp_path / "r.csv")
        counts.append(len(read))
    assert counts[0] == counts[1]

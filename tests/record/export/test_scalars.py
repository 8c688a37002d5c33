"""Runs as event files and back, read by TensorBoard's own reader and written by others' writers."""

from __future__ import annotations

import json
import math
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.util import tensor_util

from somatize import Graph, Recorder, Store, node
from somatize.errors import ExportError, ExtraMissing, UnknownRun
from somatize.record import about, curve, curve_costs, facts, forwards, progress, runs
from somatize.record.export import from_tensorboard, to_tensorboard, to_trace
from somatize.store.writer import Writer

SAID = [0.5, 0.1, float("nan"), float("inf"), float("-inf"), -0.0, 1e300, -1e300, 5e-324, 2**53 + 1, 3, "text", True]


def read(folder: Path) -> EventAccumulator:
    made = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    made.Reload()
    return made


def points(reader: EventAccumulator, tag: str) -> list[tuple[int, str]]:
    if tag in reader.Tags()["scalars"]:
        return [(event.step, repr(event.value)) for event in reader.Scalars(tag)]
    return [(event.step, repr(tensor_util.make_ndarray(event.tensor_proto).item())) for event in reader.Tensors(tag)]


def texts(reader: EventAccumulator, tag: str) -> list[tuple[int, str]]:
    events = reader.Tensors(tag)
    return [(event.step, tensor_util.make_ndarray(event.tensor_proto).item().decode()) for event in events]


def float32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


@pytest.fixture
def said(store: Store) -> Store:
    """The run ``exp/1``: a forward for each value of `SAID`, said after it; the last one broke."""
    with Recorder(store, run="exp/1", config={"lr": 0.1, "net": "mlp", "deep": True, "sizes": [1, 2]}) as recorder:
        graph = Graph.somatize(node(abs) >> node(_picky))
        for turn, value in enumerate(SAID):
            graph.forward(turn, watching=recorder)
            recorder({"fact": "loss", "value": value, "k": turn})
        with pytest.raises(ValueError):
            graph.forward(99, watching=recorder)
        recorder({"fact": "log", "level": "WARNING", "logger": "train", "message": "it broke"})
    return store


def _picky(x: int) -> int:
    if x == 99:
        raise ValueError("99 is too many")
    return x


def test_each_number_comes_back_as_float32_and_what_that_changes_is_counted(said: Store, tmp_path: Path) -> None:
    exported = to_tensorboard(said, None, tmp_path / "logs")
    assert exported.path == tmp_path / "logs" / "exp" / "1"
    reader = read(tmp_path / "logs" / "exp" / "1")
    numbers = [(n, value) for n, value in enumerate(SAID) if not isinstance(value, str | bool)]
    assert points(reader, "loss") == [(n, repr(float32(float(value)))) for n, value in numbers]
    assert points(reader, "loss.k") == [(n, repr(float(n))) for n in range(len(SAID))]
    assert points(reader, "took_us") == [(n, repr(value)) for n, value in curve(said, "exp/1", "took_us")]
    rows = forwards(said, "exp/1")
    assert [event.wall_time for event in reader.Scalars("took_us")] == [row["when"] for row in rows]
    assert [n for n, _ in points(reader, "node/abs/took_us")] == list(range(len(SAID) + 1))
    assert exported.wrote == {"forwards": 14, "scalars": 14 + 28 + 13 + 11, "texts": 4}
    assert exported.left_out == (
        "28 turns: when in its forward it began, where it was and how it ended is not kept",
        "2 numbers: rounded to float32",
        "2 numbers: beyond float32, written as infinite",
        "1 whole number: rounded to float64",
        "2 said texts: no number",
    )


def test_with_double_every_number_is_the_one_that_was_said(said: Store, tmp_path: Path) -> None:
    exported = to_tensorboard(said, "exp/1", tmp_path, double=True)
    reader = read(tmp_path / "exp" / "1")
    assert points(reader, "loss") == [(n, repr(value)) for n, value in curve(said, "exp/1")]
    assert not any("float32" in sentence or "infinite" in sentence for sentence in exported.left_out)
    # What TensorBoard's page is given, where it is started with --load_fast=false.
    several = EventMultiplexer()
    several.AddRunsFromDirectory(str(tmp_path))
    several.Reload()
    shown = MultiplexerDataProvider(several, str(tmp_path)).read_scalars(
        RequestContext(), experiment_id="", plugin_name="scalars", downsample=1000
    )
    assert [(one.step, repr(one.value)) for one in shown["exp/1"]["loss"]] == points(reader, "loss")


def test_what_is_for_reading_is_text_and_what_was_given_are_hyperparameters(said: Store, tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import metadata

    to_tensorboard(said, "exp/1", tmp_path)
    reader = read(tmp_path / "exp" / "1")
    assert texts(reader, "why") == [(13, "ValueError: 99 is too many")]
    assert texts(reader, "why/picky") == [(13, "ValueError: 99 is too many")]
    assert texts(reader, "log") == [(13, "WARNING train: it broke")]
    ((step, page),) = texts(reader, "about")
    told = json.loads(page)
    assert (step, told["run"], told["config"]["sizes"]) == (0, "exp/1", [1, 2])
    content = reader.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    given = metadata.parse_session_start_info_plugin_data(content)
    assert given.group_name == "exp/1"
    assert {name: held.WhichOneof("kind") for name, held in given.hparams.items()} == {
        "lr": "number_value",
        "net": "string_value",
        "deep": "bool_value",
    }
    assert given.hparams["lr"].number_value == 0.1
    content = reader.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content
    assert metadata.parse_session_end_info_plugin_data(content).status == 2  # failure: a forward broke


def test_writing_again_replaces_the_file_and_others_files_are_not_mixed_with(said: Store, tmp_path: Path) -> None:
    to_tensorboard(said, "exp/1", tmp_path)
    with Recorder(said, run="exp/1") as recorder:
        Graph.somatize(node(abs)).forward(1, watching=recorder)
    to_tensorboard(said, "exp/1", tmp_path)
    (file,) = (tmp_path / "exp" / "1").iterdir()
    assert len(points(read(tmp_path / "exp" / "1"), "took_us")) == 15
    file.rename(file.with_name("events.out.tfevents.1.elsewhere"))
    before = (tmp_path / "exp" / "1" / "events.out.tfevents.1.elsewhere").read_bytes()
    with pytest.raises(ExportError, match=r"not of this run, such as 'events.out.tfevents.1.elsewhere'"):
        to_tensorboard(said, "exp/1", tmp_path)
    assert [path.read_bytes() for path in (tmp_path / "exp" / "1").iterdir()] == [before]
    with pytest.raises(UnknownRun):
        to_tensorboard(said, "exp", tmp_path)


def test_a_name_that_leads_elsewhere_stays_below_the_directory(store: Store, tmp_path: Path) -> None:
    with Recorder(store, run="../up") as recorder:
        Graph.somatize(node(abs)).forward(1, watching=recorder)
    assert to_tensorboard(store, "../up", tmp_path / "logs").path == tmp_path / "logs" / "%2E%2E%2Fup"


def test_a_run_that_went_out_and_came_back_is_the_same(said: Store, tmp_path: Path) -> None:
    to_tensorboard(said, "exp/1", tmp_path / "logs", double=True)
    exported = from_tensorboard(tmp_path / "logs", said, "old")
    assert exported.left_out == ("1 hyperparameter record: no number and no text",)
    assert exported.wrote == {"runs": 1, "forwards": 14, "numbers": 14 + 28 + 13 + 11 - 14, "texts": 4}
    for of in ("loss", "loss.k", "took_us"):
        again = [(n, repr(value)) for n, value in curve(said, "old/exp/1", of)]
        assert again == [(n, repr(value)) for n, value in curve(said, "exp/1", of)]
        assert curve_costs(said, "old/exp/1", of) == "scan"
    rows, old = forwards(said, "exp/1"), forwards(said, "old/exp/1")
    assert [row["when"] for row in old] == [row["when"] for row in rows]
    assert {key: about(said, "old/exp/1")["config"][key] for key in ("lr", "net", "deep")} == {
        "lr": 0.1,
        "net": "mlp",
        "deep": True,
    }
    assert said.check() == []
    figure = progress(said, run=["exp/1", "old/exp/1"])
    assert {trace.name for trace in figure.data} >= {"exp/1: loss", "old/exp/1: loss"}


def test_what_others_wrote_becomes_a_run_whatever_its_steps(store: Store, tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "logs" / "train")) as writer:
        for at, (step, value) in enumerate([(100, 0.1), (200, 0.2), (50, 0.3)]):
            writer.add_scalar("Loss/train", value, step, walltime=1000.25 + at)
            writer.add_scalar("lr", value / 10, step, walltime=1000.5 + at)
        writer.add_scalar("items", 7, 50, walltime=1003.5)
        writer.add_scalar("ran.took_us", 8, 50, walltime=1003.5)
        writer.add_scalar("a..b", 9, 50, walltime=1003.5, new_style=True, double_precision=True)
        writer.add_text("note", "hello", 50, walltime=1003.5)
        writer.add_histogram("weights", np.array([1.0, 2.0]), 50, walltime=1003.5)
    exported = from_tensorboard(tmp_path / "logs", store, names={"Loss/train": "loss"})
    assert [row["run"] for row in runs(store)] == ["logs/train"]
    assert exported.wrote == {"runs": 1, "forwards": 3, "numbers": 9, "texts": 1}
    assert exported.left_out == (
        "1 histogram: no number and no text",
        "1 tag 'items': its kind is the engine's, so it is called 'tensorboard/items' here",
        "1 tag 'ran.took_us': its kind is the engine's, so it is called 'tensorboard/ran.took_us' here",
    )
    assert curve(store, "logs/train") == [(0, float32(0.1)), (1, float32(0.2)), (2, float32(0.3))]
    assert curve(store, None, "loss.step") == [(0, 100.0), (1, 200.0), (2, 50.0)]
    assert curve(store, None, "loss.wall_time") == [(0, 1000.25), (1, 1001.25), (2, 1002.25)]
    assert curve(store, None, "lr") == [(n, float32(value / 10)) for n, value in enumerate([0.1, 0.2, 0.3])]
    assert curve(store, None, "tensorboard/items") == [(2, 7.0)]
    assert curve(store, None, "tensorboard/ran.took_us") == [(2, 8.0)]
    assert curve(store, None, "a..b") == [(2, 9.0)]
    assert [row["when"] for row in forwards(store)] == [1000.5, 1001.5, 1003.5]
    (note,) = [fact for fact in facts(store) if fact["fact"] == "text"]
    assert (note["tag"].removesuffix("/text_summary"), note["value"], note["step"]) == ("note", "hello", "50")


def test_a_time_that_cannot_be_is_1970_and_no_lost_forward(store: Store, tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "old")) as writer:
        writer.add_scalar("loss", 0.5, 0, walltime=-3.0)
    from_tensorboard(tmp_path / "old", store)
    assert [(row["state"], row["when"]) for row in forwards(store)] == [("ok", 0.0)]
    exported = to_tensorboard(store, None, tmp_path / "again", double=True)
    assert exported.wrote["forwards"] == 1
    assert not any("lost" in sentence for sentence in exported.left_out)
    assert to_trace(store)["otherData"]["left_out"] == []


def test_scalars_that_are_tensors_are_read_and_where_a_number_came_from_is_counted(
    store: Store, tmp_path: Path
) -> None:
    from tensorboard.compat.proto import event_pb2
    from tensorboard.plugins.scalar import summary_v2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path / "keras"))
    for step in range(3):  # as Keras and tf.summary write them
        summary = summary_v2.scalar_pb("epoch_loss", step / 10)
        writer.add_event(event_pb2.Event(wall_time=10.0 + step, step=step, summary=summary))
    writer.close()
    from_tensorboard(tmp_path / "keras", store, names={"epoch_loss": "loss"})
    assert curve(store, "keras") == [(n, float32(n / 10)) for n in range(3)]

    @node
    def says(x: int, ctx: Any) -> int:
        ctx.tell({"fact": "loss", "value": x})
        return x

    with Recorder(store, run="says") as recorder:
        for turn in range(2):
            Graph.somatize(says).forward(turn, watching=recorder)
    exported = to_tensorboard(store, "says", tmp_path)
    assert "2 origins: which node or host said a number, its name does not tell" in exported.left_out


def test_an_import_is_refused_before_anything_is_written(said: Store, tmp_path: Path) -> None:
    to_tensorboard(said, "exp/1", tmp_path / "logs")
    from_tensorboard(tmp_path / "logs" / "exp" / "1", said, "old")
    before = runs(said)
    with pytest.raises(ExportError, match="run 'old' is in the store already: forget it first"):
        from_tensorboard(tmp_path / "logs" / "exp" / "1", said, "old")
    with pytest.raises(ExportError, match=r"the tag 'los', which no event file has; did you mean 'loss'"):
        from_tensorboard(tmp_path / "logs", said, "new", names={"los": "loss"})
    with pytest.raises(ExportError, match="there are no event files"):
        from_tensorboard(tmp_path / "store", said, "new")
    assert runs(said) == before


def test_an_import_that_is_interrupted_leaves_no_run(
    said: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_tensorboard(said, "exp/1", tmp_path)
    left, brings = [5], Writer.import_forward

    def until(*given: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        brings(*given)

    # The interrupt comes in the middle, each time at the same forward.
    monkeypatch.setattr(Writer, "import_forward", until)
    with pytest.raises(KeyboardInterrupt):
        from_tensorboard(tmp_path, said, "old")
    assert [row["run"] for row in runs(said)] == ["exp/1"]
    monkeypatch.setattr(Writer, "import_forward", brings)
    from_tensorboard(tmp_path, said, "old")
    assert about(said, "old/exp/1")["facts"] == [{"fact": "imported", "forwards": "14"}]
    assert said.check() == []


def test_of_a_broken_file_what_can_be_read_is_and_the_rest_is_counted(store: Store, tmp_path: Path) -> None:
    with Recorder(store, run="exp") as recorder:
        for turn in range(10):
            Graph.somatize(node(abs)).forward(turn, watching=recorder)
            recorder({"fact": "loss", "value": turn})
    to_tensorboard(store, "exp", tmp_path)
    (file,) = (tmp_path / "exp").iterdir()
    whole = file.read_bytes()
    starts = [0]
    while starts[-1] < len(whole):
        starts.append(starts[-1] + 16 + int.from_bytes(whole[starts[-1] : starts[-1] + 8], "little"))
    # file version, hyperparameters, about, ten forwards, the end of the session
    in_forward_2, length_of_8 = starts[5] + 20, starts[11]

    def imported(data: bytes, run: str) -> Any:
        file.write_bytes(data)
        return from_tensorboard(file, store, run)

    damaged = bytearray(whole)
    damaged[in_forward_2] ^= 1
    exported = imported(bytes(damaged), "a")
    assert "1 damaged record: passed over" in exported.left_out
    assert [value for _, value in curve(store, "a")] == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    damaged = bytearray(whole)
    damaged[length_of_8] ^= 1
    exported = imported(bytes(damaged), "b")
    lost = len(whole) - length_of_8
    assert (
        f"{lost:,} bytes: after a damaged length or at a torn end, in which nothing can be found" in exported.left_out
    )
    assert [value for _, value in curve(store, "b")] == list(range(8))
    exported = imported(whole[: starts[12] - 1], "c")
    assert any(sentence.startswith(f"{starts[12] - starts[11] - 1:,} bytes") for sentence in exported.left_out)
    assert [value for _, value in curve(store, "c")] == list(range(8))
    assert store.check() == []


def test_without_the_library_it_says_how_to_get_it(
    said: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for call in (lambda: to_tensorboard(said, "exp/1", tmp_path / "x"), lambda: from_tensorboard(tmp_path, said)):
        with pytest.raises(ExtraMissing, match=r"pip install 'somatize\[tensorboard\]'"):
            call()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("state", "why", "told"),
    [
        ("failed", "ValueError: no", "failed: ValueError: no"),
        ("interrupted", "", "interrupted"),
        ("finished", "", None),
    ],
)
def test_why_a_run_did_not_finish_is_a_text(
    store: Store, tmp_path: Path, state: str, why: str, told: str | None
) -> None:
    with Recorder(store, run="r") as recorder:
        recorder.end(state, why)
    exported = to_tensorboard(store, "r", tmp_path / "logs")
    reader = read(tmp_path / "logs" / "r")
    assert exported.wrote["texts"] == 1 + (told is not None)
    assert (texts(reader, "state")[0][1] if "state" in reader.Tags()["tensors"] else None) == told

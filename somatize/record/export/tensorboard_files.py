"""Runs as TensorBoard's event files, and back. The only module that imports tensorboard.

An event file is a sequence of records, each with a checksum of its length and one of its content: an event, with a
step, a time and summaries, each under a tag.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from somatize.errors import ExportError, ExtraMissing, nearest
from somatize.facts import KINDS, Fact, encodable
from somatize.record import run_query
from somatize.record.forward_reader import Place
from somatize.record.recorder import Recorder
from somatize.record.run_info import about
from somatize.store.record_format import OK
from somatize.store.run_summary import FINISHED, RUNNING, flat
from somatize.store.store import Store
from somatize.utils.atomic_files import write_atomically

from .output import Exported, LossCounts, Steps, StoredForward, forwards_of, points_of, run_name, series_name, texts_of

_WRITER = "somatize"
_HEADER, _FOOTER = struct.Struct("<QI"), struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_FLOAT = struct.Struct("<f")


class Value(NamedTuple):
    """One summary: a number, a text or hyperparameters (`given`); `other` names the type of any other."""

    tag: str
    number: float | None = None
    text: str | None = None
    given: Mapping[str, Any] | None = None
    other: str = ""


class Event(NamedTuple):
    """The values written at one step, at a time in seconds since 1970."""

    step: int
    wall_time: float
    values: list[Value]


def require() -> None:
    """Raises `ExtraMissing` where tensorboard is not installed."""
    _protos()


def in_float32(value: float) -> float:
    """A number rounded to a float32, infinite if it is out of range."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class EventWriter:
    """Writes an event file. Numbers are float32, or float64 with `double`."""

    def __init__(self, file: IO[bytes], began: float, *, double: bool = False) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = _protos()
        self._records = RecordWriter(file)
        self._scalar = _number_64 if double else _number_32
        source = self._event.SourceMetadata(writer=_WRITER)
        self._write(self._event.Event(wall_time=began, file_version="brain.Event:2", source_metadata=source))

    def write_values(
        self, step: int, when: float, numbers: Sequence[tuple[str, float]], texts: Sequence[tuple[str, str]]
    ) -> None:
        """Write the values of a step."""
        summary = self._summary.Summary()
        for tag, number in numbers:
            self._scalar(summary, tag, number)
        for tag, text in texts:
            summary.value.append(_text(tag, text))
        self._write(self._event.Event(wall_time=when, step=step, summary=summary))

    def write_hyperparameters(self, name: str, given: Mapping[str, Any], began: float) -> None:
        """Write the hyperparameters, which are bools, numbers and texts."""
        from tensorboard.plugins.hparams import summary_v2

        summary = summary_v2.hparams_pb(dict(given), trial_id=name, start_time_secs=began)
        self._write(self._event.Event(wall_time=began, summary=summary))

    def write_end(self, when: float, *, well: bool) -> None:
        """Write the end of the run, which TensorBoard's page of hyperparameters shows."""
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        status = api_pb2.STATUS_SUCCESS if well else api_pb2.STATUS_FAILURE
        info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=when)
        summary = self._summary.Summary()
        value = summary.value.add(tag=metadata.SESSION_END_INFO_TAG, tensor=metadata.NULL_TENSOR)
        told = plugin_data_pb2.HParamsPluginData(session_end_info=info)
        value.metadata.CopyFrom(metadata.create_summary_metadata(told))
        self._write(self._event.Event(wall_time=when, summary=summary))

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())


def _number_32(summary: Any, tag: str, number: float) -> None:
    value = summary.value.add(tag=tag)
    value.simple_value = in_float32(number)


def _number_64(summary: Any, tag: str, number: float) -> None:
    from tensorboard.compat.proto import types_pb2

    value = summary.value.add(tag=tag)
    value.metadata.plugin_data.plugin_name = "scalars"
    value.tensor.dtype = types_pb2.DT_DOUBLE
    value.tensor.tensor_shape.SetInParent()
    value.tensor.double_val.append(number)


def _text(tag: str, text: str) -> Any:
    from tensorboard.plugins.text import summary_v2

    return summary_v2.text_pb(tag, text).value[0]


class Damage:
    """Counts of the unreadable parts of event files."""

    def __init__(self) -> None:
        self.records = 0
        """Records with a wrong checksum, or that are no event."""
        self.bytes = 0
        """Bytes after a damaged length, or of a torn record at the end."""


def events_in(path: Path, damage: Damage) -> Iterator[Event]:
    """The events of a file that hold summaries, in order; damaged records and a torn end are left out and counted.

    After a damaged length the next record cannot be found: the rest is counted in bytes.
    """
    for data in _records(path, damage):
        event = _protos()[0].Event()
        try:
            event.ParseFromString(data)
        except Exception:  # protobuf has several classes of errors
            damage.records += 1
            continue
        if event.HasField("summary"):
            values = [_value(value) for value in event.summary.value]
            yield Event(event.step, event.wall_time, values)


def _records(path: Path, damage: Damage) -> Iterator[bytes]:
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    size = path.stat().st_size
    with path.open("rb") as file:
        at = 0
        while at < size:
            head = file.read(_HEADER.size)
            length, checksum = _HEADER.unpack(head) if len(head) == _HEADER.size else (size, 0)
            end = at + _HEADER.size + length + _FOOTER.size
            if end > size or masked_crc32c(head[: _LENGTH.size]) != checksum:
                damage.bytes += size - at
                return
            data = file.read(length)
            if _FOOTER.unpack(file.read(_FOOTER.size))[0] == masked_crc32c(data):
                yield data
            else:
                damage.records += 1
            at = end


def _value(value: Any) -> Value:
    what = value.WhichOneof("value") or "nothing"
    if what == "simple_value":
        return Value(value.tag, float(value.simple_value))
    plugin = value.metadata.plugin_data.plugin_name
    if plugin == "hparams":
        return _given(value)
    if what != "tensor":
        return Value(value.tag, other={"histo": "histogram"}.get(what, what))
    held = _held(value.tensor)
    if plugin in ("scalars", "") and isinstance(held, int | float):
        return Value(value.tag, float(held))
    if plugin in ("text", "") and isinstance(held, bytes):
        return Value(value.tag, text=held.decode("utf-8", "backslashreplace"))
    return Value(value.tag, other=plugin or "tensor")


def _held(tensor: Any) -> Any:
    """The single element of a tensor; None if it has several or cannot be read."""
    from tensorboard.util import tensor_util

    try:
        array = tensor_util.make_ndarray(tensor)
        return array.item() if array.size == 1 else None
    except Exception:
        return None


def _given(value: Any) -> Value:
    from tensorboard.plugins.hparams import metadata

    if value.tag != metadata.SESSION_START_INFO_TAG:
        return Value(value.tag, other="hyperparameter record")
    start = metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
    given = {name: getattr(held, held.WhichOneof("kind") or "null_value") for name, held in start.hparams.items()}
    return Value(value.tag, given=given)


def _protos() -> tuple[Any, Any]:
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2
    except ImportError as error:
        raise ExtraMissing(
            "event files need tensorboard, which is not installed: pip install 'somatize[tensorboard]'"
        ) from error
    return event_pb2, summary_pb2


_SUFFIX = ".somatize"


def to_tensorboard(
    store: Place,
    run: str | None,
    logdir: str | os.PathLike[str],
    *,
    double: bool = False,
    last: int | None = None,
    since: int | None = None,
    step: str = "forward",
) -> Exported:
    """Write a run as an event file in ``logdir/<run>``, where TensorBoard finds it: ``tensorboard --logdir logdir``.

    A step is a forward's number, or with `step` what `curve` takes as ``x=``, such as ``"epoch"``: rounded down to a
    whole number, and forwards without it left out, both of which are counted in the result. Its time is that at which
    the forward was written down. Scalars are the recorded numbers in order, also several at a step, with the names that
    `curve` takes (``loss``, ``throughput.samples_per_s``); ``took_us``; and ``node/<id>/took_us`` for each node's turn.
    Texts are log records, errors, the run's metadata, and, unless it finished, its `state` with why; the configuration
    gives the hyperparameters.

    TensorBoard's scalars are float32: numbers that this changes are counted in the result. With `double` they are
    float64, which `EventAccumulator` reads as tensors, and TensorBoard's page shows only with ``--load_fast=false``.

    Writing a run again replaces its file; restart a TensorBoard that is open. Reads every fact. Raises `ExtraMissing`
    without ``pip install 'somatize[tensorboard]'``, `ExportError` if the directory holds other event files,
    `UnknownRun`, `WhichRun` and, for a `step` that was never said, `UnknownName`; what was there stays.
    """
    require()
    name = run_name(store, run)
    steps = Steps(store, name, step)
    folder = Path(logdir, _folder(name))
    _refuse_others(folder, name)
    known = about(store, name)
    folder.mkdir(parents=True, exist_ok=True)
    # TensorBoard takes no file of this name for an event file; it is renamed when it is whole.
    beside = folder / "somatize-run"

    def write(path: Path) -> Exported:
        with path.open("wb") as file:
            out = _ScalarOutput(EventWriter(file, known.get("began", 0.0), double=double), double=double)
            out.about(name, known)
            forwards = forwards_of(store, name, out.losses, last=last, since=since)
            for at, forward in steps.of(forwards, out.losses):
                out.forward(at, forward)
            out.end(known)
        return Exported(folder, out.wrote, out.losses.sentences())

    exported = write_atomically(beside, write)
    beside.replace(folder / f"events.out.tfevents.{int(known.get('began', 0.0)):010d}{_SUFFIX}")
    return exported


def _folder(run: str) -> str:
    """The run's name as a path below the log directory, percent-encoded if it would lead elsewhere."""
    if "\0" in run or any(part in ("", ".", "..") for part in run.split("/")):
        return quote(run, safe="").replace(".", "%2E")
    return run


def _refuse_others(folder: Path, run: str) -> None:
    if folder.exists() and not folder.is_dir():
        raise ExportError(f"{folder} is no directory, so run {run!r} cannot be written there")
    others = [path.name for path in folder.glob("*tfevents*") if not path.name.endswith(_SUFFIX)]
    if others:
        raise ExportError(
            f"{folder} holds event files that are not of this run, such as {others[0]!r}, and TensorBoard would draw "
            "them as one; give another logdir"
        )


class _ScalarOutput:
    """The event file of a run, and counts of the values written."""

    def __init__(self, writer: EventWriter, *, double: bool) -> None:
        self.wrote = {"forwards": 0, "scalars": 0, "texts": 0}
        self.losses = LossCounts()
        self._writer = writer
        self._double = double
        self._last = 0.0
        self._states: set[str] = set()

    def about(self, name: str, known: Mapping[str, Any]) -> None:
        began = known.get("began", 0.0)
        given = {key: value for key, value in flat(known["config"]).items() if type(value) in (str, int, float, bool)}
        self._writer.write_hyperparameters(name, given, began)
        told = {key: value for key, value in known.items() if key != "facts"}
        page = json.dumps(told, indent=1, ensure_ascii=False)
        texts = [("about", "\n".join(f"    {line}" for line in page.split("\n")))]
        if known["state"] not in (FINISHED, RUNNING):
            texts.append(("state", ": ".join(filter(None, (known["state"], known["why"])))))
        self._writer.write_values(0, began, [], texts)
        self.wrote["texts"] += len(texts)
        self.losses.add("fact", "said of the run as a whole", len(known["facts"]))

    def forward(self, step: int, forward: StoredForward) -> None:
        numbers = list(points_of(forward, self.losses))
        texts = list(texts_of(forward))
        if not self._double:
            for _, number in numbers:
                held = in_float32(number)
                if held != number and number == number:
                    why = "rounded to float32" if held - held == 0 else "beyond float32, written as infinite"
                    self.losses.add("number", why)
        self._last = forward.when_us / 1e6
        self._states.add(forward.state)
        self._writer.write_values(step, self._last, numbers, texts)
        self.wrote["forwards"] += 1
        self.wrote["scalars"] += len(numbers)
        self.wrote["texts"] += len(texts)

    def end(self, known: Mapping[str, Any]) -> None:
        """Write the end of the run, if no recorder has it open."""
        if not any(writer["alive"] for writer in known["writers"]):
            well = known["state"] == FINISHED and self._states <= {"ok"}
            self._writer.write_end(self._last or known.get("began", 0.0), well=well)


_STAMPS = frozenset({"fact", "node", "host", "step", "wall_time"})
"""Fields that no tag may be the name of."""
_TOOK = ("took_us", "value")
_COLUMNS = 200
"""The number of tags kept as columns; curves of others are read from facts."""
_FOREIGN = "tensorboard/"


def from_tensorboard(
    logdir: str | os.PathLike[str],
    store: Store | str | os.PathLike[str],
    run: str | None = None,
    *,
    names: Mapping[str, str] | None = None,
) -> Exported:
    """Import TensorBoard's event files as runs, to compare them with others: ``progress(store, run=["old", "new"])``.

    `logdir` is a directory or one event file. Each directory in it with event files becomes a run: the topmost is
    called `run`, or like the directory, one below it ``<run>/<its path>``. A tag becomes the name of a number, as
    `curve` takes it; `names` gives others: ``names={"Loss/train": "loss"}``. Tags that are kinds of the engine's facts
    get the prefix ``tensorboard/``. ``took_us`` is the duration of a forward, 0 if there is none. Texts become facts of
    the kind ``text``, hyperparameters the run's `about`.

    Forwards are numbered from 0 in the order of the files: consecutive values with the same step are one forward. So
    steps may be sparse, start anew or go back, and nothing is replaced; each fact has its ``step`` and ``wall_time``,
    and a forward's `when` is the time of its last value.

    An existing run is not extended: forget it first, or give another name. Damaged files are read as far as possible;
    the result counts what cannot be read, and values that are no number and no text. Raises `ExportError` before
    anything is written, `ExtraMissing` without ``pip install 'somatize[tensorboard]'``, OSError if the disk is full.
    """
    require()
    top, found = _runs_in(Path(logdir))
    imports = [
        _EventImport(f"{run or top}/{below}" if below else run or top, files, names or {})
        for below, files in found.items()
    ]
    _refuse_unknown(names or {}, imports)
    if isinstance(store, Store):
        return _imported(imports, store)
    with Store(store) as opened:
        return _imported(imports, opened)


def _runs_in(logdir: Path) -> tuple[str, dict[str, list[Path]]]:
    """The name of the topmost run, and the event files of each directory by path below `logdir`."""
    if logdir.is_file():
        return logdir.resolve().parent.name, {"": [logdir]}
    found: dict[str, list[Path]] = {}
    for path in sorted(logdir.rglob("*tfevents*")):
        if path.is_file():
            below = path.parent.relative_to(logdir).as_posix()
            found.setdefault("" if below == "." else below, []).append(path)
    if not found:
        raise ExportError(f"there are no event files in {logdir}: none whose name has 'tfevents' in it")
    return logdir.resolve().name, found


def _refuse_unknown(names: Mapping[str, str], imports: Sequence[_EventImport]) -> None:
    known = sorted({tag for one in imports for tag in one.tags})
    for tag in names:
        if tag not in known:
            raise ExportError(f"names= has the tag {tag!r}, which no event file has{nearest(tag, known)}")


def _imported(imports: Sequence[_EventImport], store: Store) -> Exported:
    there = {row["run"] for row in run_query.runs(store)} & {one.run for one in imports}
    if there:
        raise ExportError(f"run {min(there)!r} is in the store already: forget it first, or give another name as run=")
    losses, wrote = LossCounts(), dict.fromkeys(("runs", "forwards", "numbers", "texts"), 0)
    for one in imports:
        one.write(store, losses, wrote)
    return Exported(store.path, wrote, losses.sentences())


class _EventImport:
    """The import of a directory of event files, which reads them once for tags and once for values."""

    def __init__(self, run: str, files: Sequence[Path], names: Mapping[str, str]) -> None:
        self.run = run
        self.tags: dict[str, tuple[str, str]] = {}
        """The kind and the field of the facts that are made of each tag with numbers."""
        self._files = files
        self._damage = Damage()
        self._given: dict[str, Any] = {}
        for value in (value for event in self._events(self._damage) for value in event.values):
            if value.number is not None and value.tag not in self.tags:
                self.tags[value.tag] = _named(names.get(value.tag, value.tag))
            self._given.update(value.given or {})

    def write(self, store: Store, losses: LossCounts, wrote: dict[str, int]) -> None:
        """Make the run, and count what was written and lost. An interrupt leaves no such run."""
        paths = [f"{kind}.{field}" for kind, field in self.tags.values()]
        fields = [path for path in paths if all(path.split("."))][:_COLUMNS]
        config = {**self._given, "tensorboard": {"files": [str(path) for path in self._files]}}
        before = wrote["forwards"]
        made = Recorder(store, self.run, fields, config=config)
        try:
            with made as recorder:
                for step in _steps(self._events(Damage())):
                    self._add_forward(recorder, step, losses, wrote)
                recorder.say_of_run({"fact": "imported", "forwards": wrote["forwards"] - before})
        except BaseException:
            store.forget(self.run)
            raise
        wrote["runs"] += 1
        losses.add("damaged record", "passed over", self._damage.records)
        losses.add("byte", "after a damaged length or at a torn end, in which nothing can be found", self._damage.bytes)
        for tag, (kind, field) in self.tags.items():
            if kind.startswith(_FOREIGN):
                losses.add(
                    f"tag {tag!r}", f"its kind is the engine's, so it is called {series_name(kind, field)!r} here"
                )

    def _add_forward(
        self, recorder: Recorder, step: Sequence[Event], losses: LossCounts, wrote: dict[str, int]
    ) -> None:
        facts = [fact for event in step for value in event.values for fact in self._facts(value, event, losses)]
        texts = sum(value.text is not None for event in step for value in event.values)
        took_us = self._took(step)
        if not facts and not took_us:
            return
        wrote["texts"] += texts
        wrote["numbers"] += len(facts) - texts
        wrote["forwards"] += 1
        when = step[-1].wall_time
        sink = recorder.opens(None)
        sink.facts += [*facts, {"fact": "finished", "took_us": str(took_us)}]
        sink.writer.import_forward(sink, OK, took_us, round(when * 1e6) if 0 <= when < 2**43 else 0)

    def _events(self, damage: Damage) -> Iterator[Event]:
        for path in self._files:
            yield from events_in(path, damage)

    def _facts(self, value: Value, event: Event, losses: LossCounts) -> Iterator[Fact]:
        stamps = {"step": str(event.step), "wall_time": repr(event.wall_time)}
        if value.number is not None:
            kind, field = self.tags[value.tag]
            if (kind, field) != _TOOK:
                yield {"fact": kind, field: repr(value.number), **stamps}
        elif value.text is not None:
            yield {"fact": "text", "tag": encodable(value.tag), "value": value.text, **stamps}
        elif value.given is None:
            losses.add(value.other, "no number and no text")

    def _took(self, step: Sequence[Event]) -> int:
        """The duration of a forward in microseconds, if it was written."""
        values = (value for event in step for value in event.values if value.number is not None)
        took = [value.number or 0.0 for value in values if self.tags[value.tag] == _TOOK]
        return int(took[-1]) if took and 0 <= took[-1] < 2**62 else 0


def _named(name: str) -> tuple[str, str]:
    """The kind and the field of the fact that `curve` finds under a name."""
    kind, _, field = encodable(name).rpartition(".")
    if not kind or not field or field in _STAMPS:
        kind, field = encodable(name), "value"
    return (_FOREIGN + kind if kind in KINDS or not kind else kind), field


def _steps(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Consecutive events with the same step."""
    for _, together in groupby(events, key=lambda event: event.step):
        yield list(together)

"""TensorBoard's event files, written and read, and the only place that imports tensorboard.

An event file is a row of records, each with a checksum of its length and one of what it holds: an event, with a step, a
time and summaries, each under a tag.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from somatize.errors import ExtraMissing

_WRITER = "somatize"
_HEADER, _FOOTER = struct.Struct("<QI"), struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_FLOAT = struct.Struct("<f")


class Value(NamedTuple):
    """One summary: a number, a text, hyperparameters (`given`), or something that is none of these, by its name."""

    tag: str
    number: float | None = None
    text: str | None = None
    given: Mapping[str, Any] | None = None
    other: str = ""


class Event(NamedTuple):
    """What was written at one step, at a time in seconds since 1970."""

    step: int
    wall_time: float
    values: list[Value]


def require() -> None:
    """Raises `ExtraMissing` where tensorboard is not installed."""
    _protos()


def in_float32(value: float) -> float:
    """The number that is left of a number in 32 bits; beyond them it is infinite."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class EventWriter:
    """Writes an event file. Numbers are float32, or with `double` of 64 bits."""

    def __init__(self, file: IO[bytes], began: float, *, double: bool = False) -> None:
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

        self._event, self._summary = _protos()
        self._checksum = masked_crc32c
        self._file = file
        self._scalar = _number_64 if double else _number_32
        source = self._event.SourceMetadata(writer=_WRITER)
        self._write(self._event.Event(wall_time=began, file_version="brain.Event:2", source_metadata=source))

    def say(
        self, step: int, when: float, numbers: Sequence[tuple[str, float]], texts: Sequence[tuple[str, str]]
    ) -> None:
        """Write what was said at a step."""
        summary = self._summary.Summary()
        for tag, number in numbers:
            self._scalar(summary, tag, number)
        for tag, text in texts:
            summary.value.append(_text(tag, text))
        self._write(self._event.Event(wall_time=when, step=step, summary=summary))

    def given(self, name: str, given: Mapping[str, Any], began: float) -> None:
        """Write what a run was made with, for the hyperparameters' page: bool, numbers and texts."""
        from tensorboard.plugins.hparams import summary_v2

        summary = summary_v2.hparams_pb(dict(given), trial_id=name, start_time_secs=began)
        self._write(self._event.Event(wall_time=began, summary=summary))

    def ended(self, when: float, *, well: bool) -> None:
        """Write that the run ended, for the hyperparameters' page."""
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        status = api_pb2.STATUS_SUCCESS if well else api_pb2.STATUS_FAILURE
        info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=when)
        summary = self._summary.Summary()
        value = summary.value.add(tag=metadata.SESSION_END_INFO_TAG, tensor=metadata.NULL_TENSOR)
        told = plugin_data_pb2.HParamsPluginData(session_end_info=info)
        value.metadata.CopyFrom(metadata.create_summary_metadata(told))
        self._write(self._event.Event(wall_time=when, summary=summary))

    def _write(self, event: Any) -> None:
        data = event.SerializeToString()
        length = _LENGTH.pack(len(data))
        self._file.write(length + _FOOTER.pack(self._checksum(length)) + data + _FOOTER.pack(self._checksum(data)))


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
    """What could not be read of an event file."""

    def __init__(self) -> None:
        self.records = 0
        """Records whose checksum does not hold, or that are no event."""
        self.bytes = 0
        """Bytes at the end after which nothing can be found any more."""


def events_in(path: Path, damage: Damage) -> Iterator[Event]:
    """The events of a file that hold summaries, in order; a damaged record is passed over, a torn end left out.

    Where the length of a record is damaged nobody can say where the next one begins: the rest is counted in bytes.
    """
    for data in _records(path, damage):
        event = _protos()[0].Event()
        try:
            event.ParseFromString(data)
        except Exception:  # protobuf's own, of which there are several
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
    """The one thing that a tensor holds; None for more than one, and for what cannot be read."""
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

"""A stored run as an event file for TensorBoard."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from somatize.errors import ExportError
from somatize.record.asked import Place
from somatize.record.run_info import about

from . import event_files
from .event_files import EventWriter, in_float32
from .exported import Exported
from .files import whole
from .losses import Losses
from .points import points_of, texts_of
from .stored import forwards_of, name_of

_SUFFIX = ".somatize"


def to_tensorboard(
    store: Place,
    run: str | None,
    logdir: str | os.PathLike[str],
    *,
    double: bool = False,
    last: int | None = None,
    since: int | None = None,
) -> Exported:
    """Write a run as an event file in ``logdir/<run>``, where TensorBoard finds it: ``tensorboard --logdir logdir``.

    A step is a forward's number, its time when that was written down. A scalar is each number that was said, in order,
    also several at a step, under the name `curve` takes (``loss``, ``throughput.samples_per_s``), ``took_us``, and
    ``node/<id>/took_us`` for each node's turn. Texts are log records, why something failed, and what the run says of
    itself; what was given as `about` are its hyperparameters.

    TensorBoard's scalars are float32: the answer counts what is not the same in that. With `double` they are written
    in 64 bits, which its `EventAccumulator` reads as tensors and its page shows with ``--load_fast=false`` only.

    Writing a run again replaces its file; a TensorBoard that is open needs to be started again. Reads every fact.
    Raises `ExtraMissing` without ``pip install 'somatize[tensorboard]'``, `ExportError` where the directory holds
    event files of something else, `UnknownRun` and `WhichRun`; what was there stays.
    """
    event_files.require()
    name = name_of(store, run)
    folder = Path(logdir, _folder(name))
    _refuse_others(folder, name)
    known = about(store, name)
    folder.mkdir(parents=True, exist_ok=True)
    # Until it is whole it has a name in which TensorBoard sees no event file.
    beside = folder / "somatize-run"

    def write(path: Path) -> Exported:
        with path.open("wb") as file:
            out = _Out(EventWriter(file, known.get("began", 0.0), double=double), double=double)
            out.about(name, known)
            for forward in forwards_of(store, name, last=last, since=since):
                out.forward(forward)
            out.end(known)
        return Exported(folder, out.wrote, out.losses.sentences())

    exported = whole(beside, write)
    beside.replace(folder / f"events.out.tfevents.{int(known.get('began', 0.0)):010d}{_SUFFIX}")
    return exported


def _folder(run: str) -> str:
    """The run's name as a path below the log directory; one that would lead elsewhere is percent-encoded."""
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


class _Out:
    """What is written of a run, and counted."""

    def __init__(self, writer: EventWriter, *, double: bool) -> None:
        self.wrote = {"forwards": 0, "scalars": 0, "texts": 0}
        self.losses = Losses()
        self._writer = writer
        self._double = double
        self._last = 0.0
        self._states: set[str] = set()

    def about(self, name: str, known: Mapping[str, Any]) -> None:
        began = known.get("began", 0.0)
        given = {key: value for key, value in known["about"].items() if type(value) in (str, int, float, bool)}
        self._writer.given(name, given, began)
        told = {key: value for key, value in known.items() if key != "facts"}
        page = json.dumps(told, indent=1, ensure_ascii=False)
        self._writer.say(0, began, [], [("about", "\n".join(f"    {line}" for line in page.split("\n")))])
        self.wrote["texts"] += 1
        self.losses.add("fact", "said of the run as a whole", len(known["facts"]))

    def forward(self, forward: Any) -> None:
        if forward.when_us is None:
            self.losses.add("forward", "lost before anything of it was written down")
            return
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
        self._writer.say(forward.number, self._last, numbers, texts)
        self.wrote["forwards"] += 1
        self.wrote["scalars"] += len(numbers)
        self.wrote["texts"] += len(texts)

    def end(self, known: Mapping[str, Any]) -> None:
        """Say how the run ended, if nobody writes to it any more."""
        if not any(writer["alive"] for writer in known["writers"]):
            self._writer.ended(self._last or known.get("began", 0.0), well=self._states <= {"ok"})

"""What TensorBoard kept of runs, as runs of a store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from somatize.errors import ExportError, nearest
from somatize.facts import KINDS, Fact, encodable
from somatize.record import reader
from somatize.record.recorder import Recorder
from somatize.store.schema import OK
from somatize.store.store import Store

from . import event_files
from .event_files import Damage, Event, Value, events_in
from .exported import Exported
from .losses import Losses
from .points import name_of

_STAMPS = frozenset({"fact", "node", "host", "step", "wall_time"})
"""Fields that a tag cannot stand for."""
_TOOK = ("took_us", "value")
_COLUMNS = 200
"""How many tags are kept as columns; the curves of more are read from the facts."""
_FOREIGN = "tensorboard/"


def from_tensorboard(
    logdir: str | os.PathLike[str],
    store: Store | str | os.PathLike[str],
    run: str | None = None,
    *,
    names: Mapping[str, str] | None = None,
) -> Exported:
    """Make runs of what TensorBoard kept, to compare old ones with new: ``progress(store, run=["old", "new"])``.

    `logdir` is a directory or one event file. Each directory in it with event files becomes a run: the topmost is
    called `run`, or as the directory is, one below it ``<run>/<its path>``. A tag is a number's name as `curve` takes
    it; `names` gives others: ``names={"Loss/train": "loss"}``. Tags that are kinds of the engine's get
    ``tensorboard/`` before their name. ``took_us`` is how long a forward took, which else reads 0. Texts become facts
    of the kind ``text``, hyperparameters the run's `about`.

    Forwards are numbered from 0 in the order of the files: values that follow each other with the same step are one
    forward. So steps may be sparse, begin anew or go back, and nothing is replaced; each fact says its ``step`` and
    ``wall_time``, and a forward's `when` is the time of its last value.

    A run that is there already is not added to: forget it first, or give another name. Of broken files what can be
    read is; the answer counts what cannot, and what is no number and no text. Raises `ExportError` before anything is
    written, `ExtraMissing` without ``pip install 'somatize[tensorboard]'``, OSError where the disk is full.
    """
    event_files.require()
    top, found = _runs_in(Path(logdir))
    imports = [
        _Import(f"{run or top}/{below}" if below else run or top, files, names or {}) for below, files in found.items()
    ]
    _refuse_unknown(names or {}, imports)
    if isinstance(store, Store):
        return _imported(imports, store)
    with Store(store) as opened:
        return _imported(imports, opened)


def _runs_in(logdir: Path) -> tuple[str, dict[str, list[Path]]]:
    """What the topmost run is called, and the event files of each directory, by its path below `logdir`."""
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


def _refuse_unknown(names: Mapping[str, str], imports: Sequence[_Import]) -> None:
    known = sorted({tag for one in imports for tag in one.tags})
    for tag in names:
        if tag not in known:
            raise ExportError(f"names= has the tag {tag!r}, which no event file has{nearest(tag, known)}")


def _imported(imports: Sequence[_Import], store: Store) -> Exported:
    there = {row["run"] for row in reader.runs(store)} & {one.run for one in imports}
    if there:
        raise ExportError(f"run {min(there)!r} is in the store already: forget it first, or give another name as run=")
    losses, wrote = Losses(), dict.fromkeys(("runs", "forwards", "numbers", "texts"), 0)
    for one in imports:
        one.write(store, losses, wrote)
    return Exported(store.path, wrote, losses.sentences())


class _Import:
    """One directory of event files on its way into a run: read once for its tags, once for what is under them."""

    def __init__(self, run: str, files: Sequence[Path], names: Mapping[str, str]) -> None:
        self.run = run
        self.tags: dict[str, tuple[str, str]] = {}
        """Of each tag that has numbers, the kind and the field of the facts made of it."""
        self._files = files
        self._damage = Damage()
        self._given: dict[str, Any] = {}
        for value in (value for event in self._events(self._damage) for value in event.values):
            if value.number is not None and value.tag not in self.tags:
                self.tags[value.tag] = _named(names.get(value.tag, value.tag))
            self._given.update(value.given or {})

    def write(self, store: Store, losses: Losses, wrote: dict[str, int]) -> None:
        """Make the run, and count what became of it. If that is interrupted there is no such run."""
        paths = [f"{kind}.{field}" for kind, field in self.tags.values()]
        fields = [path for path in paths if all(path.split("."))][:_COLUMNS]
        about = {**self._given, "tensorboard": {"files": [str(path) for path in self._files]}}
        before = wrote["forwards"]
        made = Recorder(store, self.run, fields, about)
        try:
            with made as recorder:
                for step in _steps(self._events(Damage())):
                    self._bring(recorder, step, losses, wrote)
                recorder.note({"fact": "imported", "forwards": wrote["forwards"] - before})
        except BaseException:
            store.forget(self.run)
            raise
        wrote["runs"] += 1
        losses.add("damaged record", "passed over", self._damage.records)
        losses.add("byte", "after a damaged length or at a torn end, in which nothing can be found", self._damage.bytes)
        for tag, (kind, field) in self.tags.items():
            if kind.startswith(_FOREIGN):
                losses.add(f"tag {tag!r}", f"its kind is the engine's, so it is called {name_of(kind, field)!r} here")

    def _bring(self, recorder: Recorder, step: Sequence[Event], losses: Losses, wrote: dict[str, int]) -> None:
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
        sink.writer.brings(sink, OK, took_us, round(when * 1e6) if 0 <= when < 2**43 else 0)

    def _events(self, damage: Damage) -> Iterator[Event]:
        for path in self._files:
            yield from events_in(path, damage)

    def _facts(self, value: Value, event: Event, losses: Losses) -> Iterator[Fact]:
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
        """How long the forward took, in microseconds, where that was written."""
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
    """Events that follow each other with the same step, together."""
    for _, together in groupby(events, key=lambda event: event.step):
        yield list(together)

"""A stored run as a run of MLflow. The only module that imports mlflow."""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from somatize import facts
from somatize.errors import ExportError, ExtraMissing
from somatize.record.forward_reader import Place
from somatize.record.run_info import about

from .output import Exported, LossCounts, Steps, StoredForward, forwards_of, points_of, run_name, texts_of

RUN, BEGAN = "somatize.run", "somatize.began"
"""The tags that identify a run: its name, and the time at which it was begun."""
STEP = "somatize.step"
"""The tag that says what a step is, where it is not a forward's number."""
_METRICS, _PARAMS = 1000, 100
"""Limits of MLflow per request."""
_LONGEST_NAME, _LONGEST_PARAM, _LONGEST_TAG = 250, 6000, 5000
_ENDED = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", "killed": "KILLED"}


class Point(NamedTuple):
    """A number of a run, with all by which MLflow tells two numbers apart."""

    name: str
    step: int
    timestamp: int
    value: str


def to_mlflow(
    store: Place,
    run: str | None = None,
    tracking_uri: str | None = None,
    experiment: str = "somatize",
    *,
    last: int | None = None,
    since: int | None = None,
    step: str = "forward",
) -> Exported:
    """Write a run to an experiment of MLflow, as a run of the same name.

    A step is a forward's number, or with `step` what `curve` takes as ``x=``, such as ``"epoch"``: rounded down to a
    whole number, and forwards without it left out, both of which are counted in the result; a run that was exported by
    another `step` is refused. Its time in milliseconds is that at which the forward was written down. Metrics are the
    recorded numbers, also several at a step, with the names that `curve` takes (``loss``,
    ``throughput.samples_per_s``); ``took_us``; and ``node/<id>/took_us`` for each node's turn. The `about` given by the
    user are the params; command, user and commit are MLflow's own tags. ``about.json`` has all metadata of the run,
    ``log.txt`` its log records and errors.

    A run that exists, identified by its tags ``somatize.run`` and ``somatize.began``, is continued: what it lacks is
    added, and nothing twice, so an export that was stopped, or a run that goes on, can be exported again. With
    `tracking_uri` None MLflow's own setting counts. Sends 1,000 numbers at a time; reads every fact. Raises
    `ExtraMissing` without ``pip install 'somatize[mlflow]'``, `ExportError` for what MLflow refuses, `UnknownRun` and
    `WhichRun`.
    """
    mlflow = _mlflow()
    name = run_name(store, run)
    known, steps = about(store, name), Steps(store, name, step)
    try:
        out = _MlflowOutput(mlflow, tracking_uri, experiment, name, known, step)
        out.numbers(steps.of(forwards_of(store, name, out.losses, last=last, since=since), out.losses))
        out.finish()
    except mlflow.exceptions.MlflowException as error:
        raise ExportError(f"MLflow did not take run {name!r}: {error}") from error
    return Exported(None, out.wrote, out.losses.sentences())


class _MlflowOutput:
    """Writes a run of MLflow, and counts what was written and lost."""

    def __init__(
        self, mlflow: Any, tracking_uri: str | None, experiment: str, name: str, known: Mapping[str, Any], step: str
    ) -> None:
        self.losses = LossCounts()
        self.wrote = {"forwards": 0, "metrics": 0, "params": 0, "tags": 0, "artifacts": 0}
        self._entities = mlflow.entities
        self._client = mlflow.MlflowClient(tracking_uri=tracking_uri)
        self._known = known
        self._step = step
        self._names = _Names(self.losses)
        self._lines: list[str] = []
        self.losses.add("fact", "said of the run as a whole; about.json has it", len(known["facts"]))
        place = self._experiment(experiment)
        found = self._found(place, name)
        if found is None:
            self._id = self._created(place, name)
            self._there: Counter[Point] = Counter()
            self._params(_flat(known["config"]), {})
        else:
            before = found.data.tags.get(STEP, "forward")
            if before != step:
                raise ExportError(
                    f"run {name!r} was exported with step={before!r}: delete it there, or give another experiment"
                )
            self._id = found.info.run_id
            self._there = self._points_there(found.data.metrics)
            self._params(_flat(known["config"]), found.data.params)

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _found(self, experiment: str, name: str) -> Any:
        """The run of an earlier export, or None."""
        began = f"tags.\"{BEGAN}\" = '{self._known.get('began')!r}'"
        found = [one for one in self._client.search_runs([experiment], began) if one.data.tags.get(RUN) == name]
        if len(found) > 1:
            ids = ", ".join(one.info.run_id for one in found)
            raise ExportError(f"the experiment has run {name!r} several times ({ids}): delete all but one of them")
        return found[0] if found else None

    def _created(self, experiment: str, name: str) -> str:
        tags = self._tags(name)
        began = round(self._known.get("began", 0.0) * 1000)
        made = self._client.create_run(experiment, start_time=began, run_name=name, tags=tags)
        self.wrote["tags"] += len(tags)
        return str(made.info.run_id)

    def _tags(self, name: str) -> dict[str, str]:
        known, git = self._known, self._known.get("git") or {}
        tags = {
            RUN: name,
            BEGAN: repr(known.get("began")),
            "mlflow.user": known.get("user", ""),
            "mlflow.source.type": "LOCAL",
            "mlflow.source.name": known.get("argv0", ""),
            "mlflow.source.git.commit": git.get("commit", ""),
            "mlflow.source.git.branch": git.get("branch", ""),
            "mlflow.source.git.dirty": str(git["dirty"]) if git.get("dirty") is not None else "",
            "somatize.host": known.get("host", ""),
            "somatize.python": known.get("python", ""),
            STEP: self._step if self._step != "forward" else "",
        }
        cut = {key: value for key, value in tags.items() if len(value) > _LONGEST_TAG}
        self.losses.add("tag", f"cut to {_LONGEST_TAG:,} characters; about.json has it whole", len(cut))
        return {key: value[:_LONGEST_TAG] for key, value in tags.items() if value}

    def _points_there(self, names: Sequence[str]) -> Counter[Point]:
        return Counter(
            Point(name, one.step, one.timestamp, repr(one.value))
            for name in names
            for one in self._client.get_metric_history(self._id, name)
        )

    def _params(self, given: Mapping[str, str], there: Mapping[str, str]) -> None:
        params = []
        for key, value in given.items():
            name, short = self._names.of(key), value[:_LONGEST_PARAM]
            if len(value) > _LONGEST_PARAM:
                self.losses.add("param", f"cut to {_LONGEST_PARAM:,} characters; about.json has it whole")
            if name not in there:
                params.append(self._entities.Param(name, short))
            elif there[name] != short:
                self.losses.add("param", "changed since the first export; MLflow keeps the first, about.json has both")
        for some in _by(params, _PARAMS):
            self._client.log_batch(self._id, params=some)
        self.wrote["params"] += len(params)

    def numbers(self, forwards: Iterator[tuple[int, StoredForward]]) -> None:
        """Write the numbers of these forwards that the run does not have yet."""
        points = (point for step, forward in forwards for point in self._of(step, forward))
        while some := list(islice(points, _METRICS)):
            metrics = [self._entities.Metric(one.name, float(one.value), one.timestamp, one.step) for one in some]
            self._client.log_batch(self._id, metrics=metrics)
            self.wrote["metrics"] += len(metrics)

    def _of(self, step: int, forward: StoredForward) -> Iterator[Point]:
        self.wrote["forwards"] += 1
        self._lines += [f"forward {forward.number}: {name}: {text}" for name, text in texts_of(forward)]
        self.losses.add("time", "rounded to a millisecond", int(forward.when_us % 1000 > 0))
        told: set[Point] = set()
        for name, value in points_of(forward, self.losses):
            point = Point(self._names.of(name), step, forward.when_us // 1000, repr(value))
            if point.value in _IN_DATABASE:
                self.losses.add(
                    "number", "infinite or -0.0: in a database MLflow keeps the largest float64 or 0.0 instead"
                )
            if point in told:
                self.losses.add("number", "said again in its forward with the same value, which MLflow keeps once")
            elif not self._is_there(point):
                yield point
            told.add(point)

    def _is_there(self, point: Point) -> bool:
        return self._there[point] > 0 or self._there[point._replace(value=_IN_DATABASE.get(point.value, ""))] > 0

    def finish(self) -> None:
        """Write the artifacts, and the end of the run if no recorder has it open."""
        self._names.tell()
        page = json.dumps(self._known, indent=1, ensure_ascii=False, default=str)
        self._artifact("about.json", page)
        if self._lines:
            self._artifact("log.txt", "\n".join(self._lines) + "\n")
        if not any(writer["alive"] for writer in self._known["writers"]):
            status = _ENDED[self._known["state"]]
            ended = round(self._known["ended"] * 1000) if self._known["ended"] else None
            self._client.set_terminated(self._id, status, ended)

    def _artifact(self, name: str, content: str) -> None:
        try:
            self._client.log_text(self._id, content, name)
            self.wrote["artifacts"] += 1
        except Exception as error:  # any library that the artifact store needs; the numbers are written all the same
            self.losses.add(f"artifact {name}", facts.why(error))


class _Names:
    """Unique names for numbers and params with the characters that MLflow allows."""

    def __init__(self, losses: LossCounts) -> None:
        self._losses = losses
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()
        self._changed, self._example = 0, ""

    def of(self, name: str) -> str:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._made(name)
            self._taken.add(found)
        return found

    def _made(self, name: str) -> str:
        made = re.sub(r"[^\w/.\-: ]", "_", name)[:_LONGEST_NAME]
        if posixpath.normpath(made) != made or made.startswith((".", "/")):
            made = re.sub(r"^[./]|(?<=/)[./]|/$", "_", made)
        number = 2
        first = made
        while made in self._taken:
            made = f"{first[: _LONGEST_NAME - 8]}_{number}"
            number += 1
        if made != name:
            self._example = self._example or f"{made!r} for {name!r}"
            self._changed += 1
        return made

    def tell(self) -> None:
        """Count the names that were changed."""
        self._losses.add(
            "name", f"not one MLflow takes, so another stands for it, such as {self._example}", self._changed
        )


_IN_DATABASE = {"inf": repr(sys.float_info.max), "-inf": repr(-sys.float_info.max), "-0.0": "0.0"}
"""Numbers that MLflow with a database changes, and what it returns instead."""


def _flat(given: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested values under one dotted name each; lists are JSON."""
    found: dict[str, str] = {}
    for key, value in given.items():
        if isinstance(value, Mapping) and value:
            found.update(_flat(value, f"{before}{key}."))
        else:
            found[f"{before}{key}"] = json.dumps(value) if isinstance(value, list | Mapping) else facts.text(value)
    return found


def _by(things: Sequence[Any], count: int) -> Iterator[Sequence[Any]]:
    return (things[start : start + count] for start in range(0, len(things), count))


def _mlflow() -> Any:
    try:
        import mlflow
        import mlflow.entities
        import mlflow.exceptions
    except ImportError as error:
        raise ExtraMissing(
            "a run of MLflow needs mlflow, which is not installed: pip install 'somatize[mlflow]'"
        ) from error
    return mlflow

"""One fixed script whose stores, tables, exports, pages, figures and screens are kept in `tests/data/golden`.

`python -m tests.golden.scene DIRECTORY` writes them. Only public names are used, so that modules may move. The clock
stands still except where a node moves it on, and what C measures is measured by Python.
"""

# ruff: noqa: E402 - the clock is stopped before somatize is imported

from __future__ import annotations

import sys
import time
from importlib.machinery import ModuleSpec


class NoSpeedups:
    """Refuses the part in C, which reads the clock of the system; its results are those of Python's way."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.endswith("._speedups"):
            raise ModuleNotFoundError(name)
        return None


class Clock:
    """Microseconds that pass only when they are told to."""

    us = 1_700_000_000_000_000

    def pass_ms(self, ms: int) -> None:
        self.us += ms * 1000


CLOCK = Clock()
if __name__ == "__main__":  # before somatize is imported
    sys.meta_path.insert(0, NoSpeedups())  # type: ignore[arg-type]
    time.time = lambda: CLOCK.us / 1e6
    time.time_ns = lambda: CLOCK.us * 1000
    time.perf_counter = lambda: CLOCK.us / 1e6
    time.perf_counter_ns = lambda: CLOCK.us * 1000
    formatted = time.strftime
    time.strftime = lambda shape, when=None: formatted(shape, when or time.gmtime(CLOCK.us // 1_000_000))

import importlib
import inspect
import io
import json
import logging
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from click import Context
from click.testing import CliRunner
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyarrow import parquet
from rich.console import Console

import somatize
from somatize import Graph, Node, Recorder, Store, errors, record
from somatize.cli.command import somatize as command
from somatize.record import export
from somatize.status import Status
from somatize.ui import LogView, RunView, StatusView

ROOT = Path(__file__).parents[2]
READERS = ["forwards", "curve", "curve_costs", "facts", "nodes", "about", "unfinished", "writers", "tasks", "logs"]
READERS += ["throughput", "fleet"]
TABLES = ["forwards", "facts", "nodes", "logs", "tasks", "throughput", "runs"]
FIGURES = ["progress", "spent", "timeline", "machines"]


def passes(ms: int) -> None:
    """Lets time pass; a node that is kept does not, as what changes would be a part of its name."""
    CLOCK.pass_ms(ms)


class Step(Node):
    def __init__(self, ms: int, breaks_at: int = -1) -> None:
        self.ms, self.breaks_at = ms, breaks_at

    def forward(self, value: Any, ctx: Any) -> Any:
        passes(self.ms)
        if value == self.breaks_at:
            raise ValueError(f"batch {value} holds no images")
        return value


class Double(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        passes(2)
        ctx.tell({"fact": "loss", "value": 1 / (1 + value)})
        return value * 2


class Doubles(Node):
    """Doubles the items of a batch."""

    def forward(self, values: Any, ctx: Any) -> Any:
        passes(2)
        ctx.tell({"fact": "batch", "value": len(values)})
        return [value * 2 for value in values]


class Triple(Node):
    """Takes no time of the clock's, which would be a part of its name."""

    def forward(self, value: Any, ctx: Any) -> Any:
        ctx.tell({"fact": "loss", "value": 1 / (1 + value)})
        return value * 3


class Holds(Node):
    """Holds something of ours, whose class is a part of its name."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def forward(self, value: Any) -> Any:
        return value + 1


class Triples(Node):
    """Triples the items of a batch."""

    def forward(self, values: Any, ctx: Any) -> Any:
        return [value * 3 for value in values]


class Inner(Node):
    def forward(self, value: Any, ctx: Any) -> Any:
        nested = Graph.somatize(Step(1).named("first") >> Step(2).named("second"))
        return nested.forward(value)


def declared() -> dict[str, Graph]:
    """The graphs of the scene, by name."""
    text = (Step(1).named("tokenize") >> Step(2).named("embed")).at("w1")
    image = Step(1).named("resize").mapped(8) >> (Step(3).named("encode").on("cuda:0").frozen() | Step(1).named("bins"))
    return {
        "learning": Graph.somatize(
            Step(3, breaks_at=4).named("load") >> (Double().named("learn") | Step(1).named("encoder/layer.0")) >> len
        ),
        "keeping": Graph.somatize(
            Triple().named("read").frozen().cached() >> Triple().named("triple").frozen().cached()
        ),
        "mapping": Graph.somatize(Doubles().named("each").mapped(2) >> sum),
        "caching": Graph.somatize(Triples().named("item").mapped(2).frozen().cached() >> sum),
        "nesting": Graph.somatize(Inner().named("outer") >> Step(1).named("after")),
        "declared": Graph.somatize(Step(1).named("start").cached() >> (text | image) >> Step(1).named("fuse")),
    }


def recorded(store: Store) -> tuple[Recorder, Status]:
    """Runs of each kind; what is returned is the run that goes on."""
    graphs = declared()
    with Recorder(store, "learning", summarising=["loss", "score"], config={"rate": 0.1}) as recorder:
        with Status(watching=[recorder]) as status, status.task("epochs", total=8) as task:
            for step in range(8):
                with suppress(ValueError):
                    graphs["learning"].forward(step, watching=recorder)
                recorder({"fact": "score", "value": step / 8, "step": step * 10})
                task.advance()
            with suppress(KeyError), status.task("that fails"):
                raise KeyError("k")
            stream = status.throughput("train")
            for _ in range(3):
                with stream.step(samples=8):
                    CLOCK.pass_ms(4)
        recorder({"fact": "log", "level": "WARNING", "logger": "train", "message": "slow [red]disk[/red]"})
        recorder({"fact": "log", "level": "INFO", "logger": "train", "message": "going on, 训练"})
    for name, values in {
        "keeping": [3, 3, 5],
        "mapping": [[1, 2, 3, 4, 5]],
        "caching": [[1, 2, 3], [1, 2, 3], [2, 3, 4]],
        "nesting": [1, 2],
    }.items():
        CLOCK.pass_ms(60_000)
        with Recorder(store, name, summarising=["loss"]) as recorder:
            for value in values:
                graphs[name].forward(value, watching=recorder, store=store)
    with Recorder(store, "empty"):
        pass
    CLOCK.pass_ms(1000)
    going = Recorder(store, "going", summarising=["loss"])
    status = Status(watching=[going])
    graphs["learning"].forward(1, watching=going)
    status.task("epoch 1", total=50).advance(10)
    logging.getLogger("somatize.scene").warning("slow [b]disk[/b]")
    CLOCK.pass_ms(2000)
    return going, status


def lost(path: str) -> None:
    """Ends as a killed process does, within a forward and a task."""

    def kill(value: Any) -> Any:
        while len(record.forwards(path, "lost")) < 2:  # a thread notes that it is open
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    store = Store(path)
    recorder = Recorder(store, "lost", summarising=["loss"])
    status = Status(watching=[recorder])
    status.task("never done", total=9)
    declared()["learning"].forward(0, watching=recorder)
    Graph.somatize(Step(1).named("first") >> somatize.node(kill).named("kill")).forward(0, watching=recorder)


class Writing:
    """Files of a directory, with what differs between two runs of the same code masked."""

    def __init__(self, place: Path, scratch: Path) -> None:
        self.place, self.scratch = place, scratch

    def mask(self, text: str) -> str:
        text = text.replace(sys.executable, "<python>").replace(sys.argv[1], "<place>")
        text = text.replace(str(self.scratch), "<scratch>").replace(str(ROOT), "<root>")
        text = text.replace(platform.platform(), "<platform>").replace(platform.python_version(), "<python>")
        text = re.sub(rf"\b{re.escape(platform.node())}\b", "<host>", text)
        text = re.sub(r"\b\d+-[0-9a-f]{8}(?=-)", "<task>", text)
        text = re.sub(r"\b(lmdb|msgpack|somatize|numpy|plotly) \d+\.\d+[.\w]*", r"\1 <version>", text)
        text = re.sub(r"(<dt>(?:git|commit|command|python|user|versions)</dt><dd>).*?(</dd>)", r"\1<masked>\2", text)
        text = re.sub(r"<dt>git</dt><dd>.*?</dd>", "", text)
        seen: dict[str, int] = {}
        text = re.sub(r"\b[0-9a-f]{32,64}\b", lambda found: f"<hash {seen.setdefault(found[0], len(seen))}>", text)
        text = re.sub(r"\b\d+ B;", "<size>;", re.sub(r"\b[\d.]+ [kM]?B (given|on)", r"<size> \1", text))
        text = re.sub(r"\bat 0x[0-9a-f]+", "at <address>", text)
        return re.sub(r"(?i)\b(pid|process|opened by)([\"']?[ :=]+)\d+", r"\1\2<pid>", text)

    def text(self, name: str, text: str) -> None:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.mask(text).rstrip("\n") + "\n", encoding="utf-8", errors="backslashreplace")

    def json(self, name: str, value: Any) -> None:
        shown = json.dumps(plain(value), ensure_ascii=False, indent=1)
        # a list or dict of scalars on one line
        shown = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda found: re.sub(r"\n\s*", " ", found[0]), shown)
        self.text(name, shown)


MASKED = {
    "command",
    "pid",
    "host",
    "user",
    "argv",
    "cwd",
    "commit",
    "dirty",
    "git",
    "python",
    "platform",
    "version",
    "versions",
}
MASKED |= {"packages", "cpu", "cores", "memory", "boot", "started", "argv0", "executable", "writer", "machine"}


def plain(value: Any, key: str = "") -> Any:
    """A value as JSON holds it; of this machine and of libraries only that it is said."""
    if key == "git" or (key in MASKED and value is not None):
        return f"<{key}>"
    if isinstance(value, Mapping):
        return {str(name): plain(held, str(name)) for name, held in value.items()}
    if isinstance(value, (list, tuple)):
        if hasattr(value, "_asdict"):
            return plain(value._asdict())
        return [plain(held) for held in value]
    if isinstance(value, (str, int, bool, type(None))):
        return value
    if isinstance(value, float):
        return float(f"{value:.9g}") if value == value and abs(value) != float("inf") else repr(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return repr(value)


def said(ask: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """The answer, or the error of somatize's as text."""
    try:
        answer = ask(*given, **more)
        return answer if not inspect.isgenerator(answer) else list(answer)
    except (errors.SomatizeError, ValueError, LookupError) as error:
        return f"{type(error).__name__}: {error}"


def figure(made: Any) -> Any:
    """A figure without its template, which is plotly's."""
    if isinstance(made, str):
        return made
    found = json.loads(made.to_json())
    found["layout"].pop("template", None)
    return found


def read(write: Writing, store: Store, runs: list[str]) -> None:
    write.json("readers/runs.json", record.runs(store))
    for reader in READERS:
        write.json(f"readers/{reader}.json", {run: said(getattr(record, reader), store, run) for run in runs})
    for run in runs:
        told: list[Any] = []
        record.replay(store, run, to=told.append)
        write.json(f"readers/replay/{run}.json", told)
    write.json("readers/tail.json", {run: said(record.tail, store, run, wait=0) for run in runs if run != "going"})
    write.json(
        "kept.json",
        {
            "kept": sorted(
                store.kept(), key=lambda kept: (kept.meta["node"], kept.bytes, kept.when, str(kept.meta["parts"]))
            ),
            "bound": store.bound(),
            "check": store.check(),
        },
    )


def named(write: Writing, store: Store) -> None:
    """The names of kept results as they are: where one changes, all that users kept is computed again."""
    with Store(write.scratch / "held") as held:
        for number, thing in enumerate(
            [Graph.somatize(Triple()), somatize.node(Triple()), somatize.node(abs), Triple()]
        ):
            Graph.somatize(Holds(thing).named(f"holds {number}").frozen().cached()).forward(1, store=held)
        kept = [*store.kept(), *held.kept()]
    names = sorted([one.meta["node"], one.name] for one in kept)
    (write.place / "names.json").write_text(json.dumps(names, indent=1) + "\n", "utf-8")


def draw(write: Writing, store: Store, runs: list[str]) -> None:
    for name in FIGURES:
        write.json(f"figures/{name}.json", {run: figure(said(getattr(record, name), store, run)) for run in runs})
    graphs = declared()
    write.json("figures/graph.json", {name: figure(graph.figure()) for name, graph in graphs.items()})
    shown = [f"== {name}\n{graph!r}\n{graph}\n{graph.plan()}\n{graph.mermaid()}" for name, graph in graphs.items()]
    write.text("graphs.txt", "\n".join(shown))
    made = record.page(store, "learning", write.scratch / "page.html").read_text("utf-8")
    made = re.sub(r"(<script[^>]*>)(.{100000,}?)(</script>)", r"\1<plotly>\3", made, flags=re.DOTALL)
    write.text("page.html", re.sub(r"plotly(\.js)? v?\d+\.\d+\.\d+", "plotly <version>", made))


def exported(write: Writing, store: Store) -> None:
    for of in TABLES:
        path, run = write.scratch / f"{of}.csv", None if of == "runs" else "learning"
        export.to_csv(store, run, path, of)
        write.text(f"exports/{of}.csv", path.read_text("utf-8"))
        table = export.to_arrow(store, run, of)
        write.json(
            f"exports/{of}.arrow.json", {"schema": str(table.schema.remove_metadata()), "rows": table.to_pylist()}
        )
    write.json("exports/trace.json", export.to_trace(store, "learning", forward=range(3)))


def handed_over(write: Writing, store: Store) -> None:
    """Exports to other tools, read back by those."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    export.to_opentelemetry(store, "learning", provider, last=5)
    spans = kept.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans}
    write.json(
        "exports/opentelemetry.json",
        [
            {
                "name": span.name,
                "in": span.parent and names.get(span.parent.span_id),
                "began_ns": span.start_time,
                "ended_ns": span.end_time,
                "status": span.status.status_code.name,
                "attributes": dict(span.attributes or {}),
                "events": [[event.name, event.timestamp, dict(event.attributes or {})] for event in span.events],
            }
            for span in spans
        ],
    )
    wrote = export.to_tensorboard(store, "learning", write.scratch / "logs", double=True)
    with Store(write.scratch / "again") as again:
        export.from_tensorboard(write.scratch / "logs", again, "again")
        found = {of: record.curve(again, "again/learning", of) for of in ("loss", "score")}
        rows = record.forwards(again, "again/learning")
        write.json(
            "exports/tensorboard.json", {"wrote": wrote.wrote, "left_out": wrote.left_out, **found, "rows": rows}
        )
    path = write.scratch / "facts.parquet"
    export.to_parquet(store, "learning", path, "facts")
    write.json("exports/facts.parquet.json", parquet.read_table(path).to_pylist())
    foreseen = [f"{value}\n{declared()['keeping'].foreseen(value, store=store)}" for value in (3, 4)]
    write.text("foreseen.txt", "\n".join(foreseen))


def json_masked(answer: str) -> str:
    """A document of JSON, or one in each line."""
    try:
        found = [json.loads(answer)]
    except ValueError:
        found = [json.loads(line) for line in answer.split("\n")]
    return "\n".join(json.dumps(plain(held), ensure_ascii=False) for held in found)


def about_masked(answer: str) -> str:
    """What `somatize about` says, without what it says of the machine and the process."""
    if answer.startswith("{"):
        return json_masked(answer)
    answer = re.sub(r"(?m)^(writers\.\d+\.)?(git|commit)\b.*\n", "", answer)
    keys = "|".join(sorted(MASKED))
    answer = re.sub(rf"(?m)^((?:writers\.\d+\.)?(?:{keys})\b[^,\n]*,).*$", r"\1<masked>", answer)
    return re.sub(rf"(?m)^({keys})( +).*$", r"\1\2<masked>", answer)


def commanded(write: Writing, path: Path) -> None:
    """The command in a copy of the store, as text, JSON and CSV."""
    names = sorted(command.list_commands(Context(command)))
    asked = [[name, str(path), "learning"] for name in [*READERS, "runs", "kept"] if name in names]
    asked = [words[:2] if words[0] in ("runs", "kept") else words for words in asked]
    shown = ["facts", str(path), "learning", "-2"], ["check", str(path)], ["watch", str(path), "learning", "--lines"]
    mistaken = ["runs", str(write.scratch / "absent")], ["nodes", str(path), "absent"], ["nothing"]
    house = (
        ["rename", str(path), "empty", "renamed"],
        ["forget", str(path), "renamed", "--yes"],
        ["prune", str(path)],
        ["compact", str(path)],
        ["runs", str(path)],
    )
    lines = []
    forms: list[list[str]] = [[], ["--json"], ["--csv"]]
    every = [[*words, *form] for words in asked for form in forms] + [*shown, *mistaken, *house]
    for words in every + [[name, "--help"] for name in names] + [["--help"]]:
        result = CliRunner().invoke(command, words, prog_name="somatize")
        answer = result.output.rstrip()
        if words[0] == "kept" and "--help" not in words:  # in the order of their names, which Python's version is in
            answer = re.sub(r"\b[0-9a-f]{32,64}\b", "<hash>", answer)
            found = json.loads(answer) if "--json" in words else answer.split("\n")
            answer = "\n".join(sorted(json.dumps(plain(one)) if isinstance(one, dict) else one for one in found))
        elif words[0] == "about":
            answer = about_masked(answer)
        elif words[-1] == "--json" and answer[:1] in "[{":
            answer = json_masked(answer)
        lines += [f"$ somatize {' '.join(words)}", answer, f"exit code {result.exit_code}", ""]
    write.text("command.txt", "\n".join(lines))


def rendered(view: Any, colour: bool = False) -> str:
    stream = io.StringIO()
    system = "truecolor" if colour else None
    Console(file=stream, width=100, height=40, force_terminal=colour, color_system=system, legacy_windows=False).print(
        view
    )
    return stream.getvalue().replace("\x1b", "<esc>")


def screens(write: Writing, store: Store, status: Status, runs: list[str]) -> None:
    write.text("screens/status.txt", rendered(StatusView(status)) + rendered(LogView(status)))
    write.text("screens/status.colour.txt", rendered(StatusView(status), colour=True))
    for run in runs:
        followed = record.Followed(store.path, run, ("loss",), clock=time.time)
        followed.look()
        write.text(f"screens/watch/{run}.txt", rendered(RunView(followed, clock=time.time)))


def signature(thing: Any) -> str:
    try:
        return re.sub(r"somatize\.[\w.]+\.(?=\w)", "", str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return ""


def surface(write: Writing) -> None:
    """Each name that the reference documents and each that a package offers, with its signature."""
    lines = []
    for module in ("somatize", "somatize.record", "somatize.record.export", "somatize.status", "somatize.ui"):
        loaded = importlib.import_module(module)
        lines += [f"{module}.{name}{signature(getattr(loaded, name))}" for name in sorted(loaded.__all__)]
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for kind, name in re.findall(r":: (?:auto)?()(somatize[\w.]+)", page.read_text("utf-8")):
            parts = name.split(".")
            found: Any = somatize
            for at, part in enumerate(parts[1:], 2):
                found = getattr(found, part, None) or importlib.import_module(".".join(parts[:at]))
            lines.append(f"{page.stem}: {name}{kind}{signature(found)}")
            if inspect.isclass(found):
                own = [part for part in sorted(vars(found)) if not part.startswith("_")]
                lines += [f"{page.stem}: {name}.{part}{signature(getattr(found, part, None))}" for part in own]
    for name in sorted(vars(errors)):
        held = getattr(errors, name)
        if inspect.isclass(held) and issubclass(held, BaseException):
            lines.append(f"errors: {' < '.join(base.__name__ for base in held.__mro__[:-2])}")
    write.text("surface.txt", "\n".join(dict.fromkeys(lines)))


def main(place: Path) -> None:
    os.environ.update(TZ="UTC", COLUMNS="100", LINES="40", LANG="C.UTF-8", NO_COLOR="1", TERM="xterm")
    time.tzset()
    scratch = Path(tempfile.mkdtemp(prefix="golden-"))
    try:
        write = Writing(place, scratch)
        path = scratch / "runs"
        words = [sys.executable, "-m", "tests.golden.scene", "--lost", str(path)]
        subprocess.run(words, cwd=ROOT, check=False, stderr=subprocess.DEVNULL)
        with Store(path) as store:
            going, status = recorded(store)
            until = time.monotonic() + 60
            while not record.tasks(store, "going") and time.monotonic() < until:  # a thread tells of it
                time.sleep(0.01)
            runs = sorted(row["run"] for row in record.runs(store))
            read(write, store, runs)
            named(write, store)
            draw(write, store, runs)
            exported(write, store)
            handed_over(write, store)
            screens(write, store, status, runs)
            surface(write)
            store.copy(scratch / "copy").close()
            status.close()
            going.close()
        commanded(write, scratch / "copy")
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    if sys.argv[1] == "--lost":
        lost(sys.argv[2])
    main(Path(sys.argv[1]))

"""Information about a run: provenance as it is recorded, and `about`, writers and Status data as they are read.

Facts of a Status said inside a forward are in that forward's record, others in the record of the run. Readers give
both, with the number of the forward or None.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from datetime import date, time
from enum import Enum
from functools import partial
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryFile
from types import BuiltinFunctionType, FunctionType
from typing import IO, Any

import msgpack

from somatize.codecs.tensors import is_module
from somatize.errors import RecordError, nearest
from somatize.facts import Fact, encodable, text, whole_number
from somatize.naming import bytecode
from somatize.naming.module_origin import is_library
from somatize.store import record_format
from somatize.store.journal import console_name
from somatize.store.lmdb_environment import BadValue
from somatize.store.record_format import unpack
from somatize.store.run_reader import RunLines, Stored, lines_of, look
from somatize.store.run_summary import KILLED, RUNNING, WriterEnd, flat, why_killed, writer_ends
from somatize.utils.units import duration, rate

from .forward_reader import Place, opened_at

MASK = "***"
_SECRET = frozenset({
    *("password", "passwd", "passphrase", "passcode", "pwd", "pass", "pw", "secret", "secrets", "token", "key"),
    *("apikey",),
    *("accesskey", "secretkey", "privatekey", "credential", "credentials", "cred", "creds"),
    *("auth", "authorization", "bearer", "cookie", "pat", "dsn"),
})  # fmt: skip
_ENDS = ("password", "passwd", "passphrase", "secret", "token", "apikey")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NAMED = re.compile(r"""(?P<name>[\w.+-]*\w)(?P<between>["']?\s*[=:]\s*)(?P<value>"[^"]*"|'[^']*'|[^\s&;,"'})\]]+)""")
_IN_URL = re.compile(r"(?P<scheme>\b[\w+.-]+://)(?P<user>[^/\s:@?#]*):(?P<password>[^/\s?#]*)@")
_ALONE_IN_URL = re.compile(r"(?P<scheme>\bhttps?://)[^/\s:@?#]{12,}@")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+")
_KNOWN = re.compile(r"\b(?:gh[opsu]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|eyJ)[\w.-]{12,}")


def masked(argv: Sequence[str]) -> list[str]:
    """The words of a command line, with the values of ``--password``, ``--token``, ``API_KEY=`` and their like hidden.

    A name is secret by its last word; a value is what follows its ``=`` or ``:`` or, of an option, the next word. So
    are passwords in URLs, and what looks like a token of a service.
    """
    made: list[str] = []
    hide = False
    for word in argv:
        if hide and not word.startswith("--"):
            made.append(MASK)
            hide = False
            continue
        hide = False
        name, equals, _ = word.partition("=")
        if equals and " " not in name and is_secret(name):
            made.append(f"{name}={MASK}")
            continue
        hide = word.startswith("--") and not equals and is_secret(word)
        made.append(_within(word))
    return made


def is_secret(name: str) -> bool:
    """Whether a name, by its last word, is that of a password, token or the like."""
    words = [word.lower() for word in _WORD.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    return bool(words) and (words[-1] in _SECRET or words[-1].endswith(_ENDS))


def _within(text: str) -> str:
    """A URL, header, program or JSON with its secrets hidden."""
    text = _IN_URL.sub(rf"\g<scheme>\g<user>:{MASK}@", text)
    text = _ALONE_IN_URL.sub(rf"\g<scheme>{MASK}@", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _NAMED.sub(_hidden, text)
    return _KNOWN.sub(MASK, text)


def _hidden(found: re.Match[str]) -> str:
    value = found["value"]
    if not is_secret(found["name"]) or value.startswith("//") or MASK in value:
        return found[0]
    if value.lower() in ("bearer", "basic"):  # what follows is hidden already
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{found['name']}{found['between']}{quote}{MASK}{quote}"


_MOST_DIFF = 1 << 20
_PATIENCE = 10.0
_known_code: dict[tuple[str, bool], dict[str, Any]] = {}


def process_provenance() -> dict[str, Any]:
    """The command line, directory, Python and platform of this process; cheap."""
    return {
        "argv": list(getattr(sys, "orig_argv", sys.argv)),
        "cwd": _cwd(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "user": os.environ.get("USER", ""),
    }


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def code_provenance(*, diff: bool) -> dict[str, Any]:
    """Versions of loaded libraries and the git commit; slow, so it runs once."""
    key = (_cwd(), diff)
    if key not in _known_code:
        _known_code[key] = {"git": _git(diff=diff), "versions": _versions()}
    return _known_code[key]


def knows_code(*, diff: bool) -> bool:
    """Whether `of_code` answers at once."""
    return (_cwd(), diff) in _known_code


def _versions() -> dict[str, str]:
    found = {}
    for name, module in sorted(sys.modules.items()):
        if "." not in name and name not in sys.stdlib_module_names:
            # Asked of no module, as it might answer with a warning; and one that may not be imported stands as None.
            version = getattr(module, "__dict__", {}).get("__version__")
            if isinstance(version, str):
                found[name] = version
    return found


def _git(*, diff: bool) -> dict[str, Any] | None:
    commit = _asked("rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _asked("status", "--porcelain", "--untracked-files=no")
    found = {
        "commit": commit.strip(),
        "branch": (_asked("rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "dirty": None if changes is None else bool(changes.strip()),
    }
    if diff:
        whole = _asked("diff", "HEAD") or ""
        cut = f"\n… <cut: {len(whole)} characters in all>"
        found["diff"] = whole if len(whole) <= _MOST_DIFF else whole[:_MOST_DIFF] + cut
    return found


def _asked(*words: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    # Workers of a loader may be forked at this moment. They would inherit the end of a pipe, also of the one that Popen
    # makes unless it may spawn with close_fds=False, which would then stay open as long as they live; and the locks of
    # a module such as tempfile, for ever.
    try:
        with _memory() as said:
            answer = subprocess.run(
                [git, "--no-optional-locks", *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE,
                check=False,
                close_fds=False,
            )
            said.seek(0)
            return said.read().decode("utf-8", "replace") if answer.returncode == 0 else None
    except (OSError, subprocess.SubprocessError):
        return None


def _memory() -> IO[bytes]:
    """A file without a name."""
    memory = getattr(os, "memfd_create", None)
    return TemporaryFile() if memory is None else os.fdopen(memory("git"), "w+b")


def graph_provenance(graph: Any) -> tuple[str, dict[str, Any]]:
    """A graph as data, and a name for it by its content."""
    nodes = list(graph.nodes())
    described = {
        "nodes": [{"id": node, "class": _class_of(graph.implementation(node))} for node in nodes],
        "edges": [list(edge) for edge in graph.edges()],
        "marks": {
            mark: {
                node: asdict(said) if is_dataclass(said) and not isinstance(said, type) else said
                for node, said in told.items()
            }
            for mark, told in (
                ("hosts", graph.hosts()),
                ("devices", graph.devices()),
                ("cached", graph.cached()),
                ("frozen", dict.fromkeys(graph.frozen(), True)),
                ("mapped", graph.mapped_nodes()),
            )
            if told
        },
    }
    described = plain(described)
    return blake2b(msgpack.packb(described), digest_size=8).hexdigest(), described


def node_code(graph: Any) -> dict[str, str]:
    """Digests of the project's own code of nodes: of a function, or of the methods of a class and of those it extends.

    Modules of torch within a node count, and functions that it calls do not; a node of a library has none.
    """
    found = {}
    for node in graph.nodes():
        thing = graph.implementation(node)
        while isinstance(thing, partial):
            thing = thing.func
        thing = getattr(thing, "__func__", thing)
        with suppress(Exception):  # a class may be made of anything
            functions = [thing] if isinstance(thing, FunctionType) else _methods(thing)
            own = [function for function in functions if not is_library(function.__module__)]
            if own:
                read = b"".join(bytecode.read(function.__code__).digest for function in own)
                found[node] = blake2b(read, digest_size=4).hexdigest()
    return found


def _methods(thing: Any) -> list[FunctionType]:
    parts = thing.modules() if is_module(thing) else [thing]
    kinds = dict.fromkeys(kind for part in parts for kind in type(part).__mro__ if not is_library(kind.__module__))
    members = [vars(kind)[name] for kind in kinds for name in sorted(vars(kind))]
    functions = [getattr(one, "__func__", getattr(one, "fget", one)) for one in members]
    return [one for one in functions if isinstance(one, FunctionType)]


def _class_of(thing: Any) -> str:
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', type(thing).__name__)}"


def plain(value: Any, depth: int = 0) -> Any:
    """The same value in plain types: mappings, lists, text, numbers, None; others become their text.

    What UTF-8 cannot write, as a command line may hold, stands as an escape.
    """
    if isinstance(value, Mapping) and depth < 20:
        return {encodable(str(key)): plain(held, depth + 1) for key, held in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < 20:
        return [plain(held, depth + 1) for held in value]
    if value is None or type(value) in (str, bool, float) or (type(value) is int and abs(value) < 2**63):
        return text(value) if type(value) is str else value
    return text(value)


MOST_KEYS = 10_000
"""The number of values that a configuration may have."""


def nested(config: Any) -> dict[str, Any]:
    """A configuration as nested mappings of plain data, with the values of secret keys masked.

    It takes mappings, dataclasses, `argparse.Namespace`, `SimpleNamespace`, OmegaConf and pydantic objects, at any
    depth. Arrays of up to 100 elements become lists, sets sorted lists, dates, classes and functions their text; other
    values a marked text, with a warning that names the key. Raises `RecordError` for anything else and for more than
    10,000 values.
    """
    found = _parts(config)
    if found is None:
        raise RecordError(
            f"config={config!r:.200} is no configuration: give a mapping, a dataclass, an argparse.Namespace, or an "
            "object of OmegaConf or pydantic"
        )
    made: dict[str, Any] = _masked(plain(_plainly(found)))
    count = len(flat(made))
    if count > MOST_KEYS:
        raise RecordError(f"config= has {count:,} values, and {MOST_KEYS:,} are kept: give what the run depends on")
    return made


_SETS = (set, frozenset)
_BY_TEXT = ("Decimal", "Fraction", "UUID", "complex", "range", "timedelta", "device", "dtype")
"""The types that their text says all of, by name, so that none of them is imported."""
_MOST_ELEMENTS = 100
"""The size of an array whose elements a configuration keeps; of a larger one it keeps shape and type."""


def _plainly(value: Any, key: str = "config", depth: int = 0) -> Any:
    found = _parts(value)
    if found is not None and depth < 20:
        return {str(name): _plainly(part, f"{key}.{name}", depth + 1) for name, part in found.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < 20:
        # The order of a set differs between processes.
        return [
            _plainly(part, key, depth + 1) for part in (sorted(value, key=repr) if isinstance(value, _SETS) else value)
        ]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if type(value).__name__ in _BY_TEXT:
        return str(value)
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    # Numbers of numpy and torch are compared as numbers; as texts "10" would be less than "9".
    elements = getattr(value, "tolist", None)
    if callable(elements) and math.prod(getattr(value, "shape", (_MOST_ELEMENTS + 1,))) <= _MOST_ELEMENTS:
        return _plainly(elements(), key, depth + 1)
    return value if value is None or isinstance(value, str | bool | int | float) else text(value, key)


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """The named parts of a value; None if it has none."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(value):
        whole = omegaconf.OmegaConf.to_container(value, resolve=True)
        return dict(whole) if isinstance(whole, Mapping) else None
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, argparse.Namespace) or type(value).__name__ == "SimpleNamespace":
        named: dict[str, Any] = vars(value)
        return named
    dumped = getattr(value, "model_dump", None)
    parts: Mapping[Any, Any] | None = dumped() if callable(dumped) else None
    return parts


def _masked(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _masked(part, name) for name, part in value.items()}
    if isinstance(value, list) and not (key and is_secret(key)):
        return [_masked(part) for part in value]
    return MASK if key and value is not None and is_secret(key) else value


_GRAPH, _CODE = "graph ", "code "
_HIDDEN = frozenset({"run", "name", "fields", "machine_id", "oom"})
_OF_WRITER = ("writer", "alive", "first", "last", "forwards")


def config_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The differences between two flat configurations in words, the first five keys; empty unless both were given."""
    different = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if not before or not now:
        return ""
    named = ", ".join(f"{key} {before.get(key)!r} -> {now.get(key)!r}" for key in different[:5])
    return named + (f" and {len(different) - 5} more" if len(different) > 5 else "")


def about(store: Place, run: str | None = None) -> dict[str, Any]:
    """Provenance of a run: when, where and with what it was made, and facts of the run itself.

    `began` is when its first recorder was opened; `argv`, `cwd`, `python`, `platform`, `host`, `pid`, `versions` and
    `git` are of that one (of `argv` the values of ``--password``, ``--token`` and their like are hidden). `state`,
    `why` and `ended` say how the run ended, as `runs` does; `tags` and `note` are what it was marked with; `config` is
    the configuration of its last recorder, nested as it was given. `writers` has all of this for each recorder, in the
    order of opening, with the first and the last forward it made. `graphs` are those the run had, as data, and `facts`
    what was said before its first forward. `git` and `versions` are gathered while the run goes on; they are there at
    the latest when the recorder was closed.
    """
    with opened_at(store) as opened:
        found = look(opened, lambda view: about_of(lines_of(view, run)))
    del found["node_code"]
    return found


def about_of(lines: RunLines) -> dict[str, Any]:
    """The result of `about` for a run, with the digests of code that are on record of its last graph."""
    writers = writers_of(lines)
    code: dict[str, dict[str, str]] = {}
    first = {key: value for key, value in writers[0].items() if key not in _OF_WRITER} if writers else {}
    graphs: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for one in writers:
        code.update(one.pop("code"))
        for name, graph in one.pop("graphs").items():
            graphs.pop(name, None)  # what was run again comes later
            graphs[name] = graph
        config = one["config"] or config
    for key in ("graphs", "code", "config", "tags", "note", "state", "why", "ended"):
        first.pop(key, None)
    summary = lines.summary()
    end = summary.end
    facts = list(unpack(lines.bodies(record_format.OWN) or []))
    return {
        "run": lines.name,
        **first,
        **(
            {}
            if end is None
            else {"state": end.state, "why": end.why or None, "ended": end.when / 1e6 if end.when else None}
        ),
        "config": config,
        "tags": summary.tags,
        "note": summary.note or None,
        "facts": facts,
        "graphs": list(graphs.values()),
        "node_code": code.get(next(reversed(graphs), "").replace(_GRAPH, _CODE, 1), {}),
        "writers": writers,
    }


def writers_of(lines: RunLines) -> list[dict[str, Any]]:
    """Each writer of a run, alive or not, with what it said of itself and of the run."""
    found: dict[int, dict[str, Any]] = {}
    reading, prefix = lines.view.reading, record_format.run_prefix(b"v", lines.run)
    for key, _ in reading.items(prefix):
        if not key.startswith(prefix):
            break
        writer = record_format.writer_of(key)
        try:
            at = record_format.writer_key(writer)
            info = record_format.unpack_writer(at, reading.get(at) or b"")
            found[writer] = dict(info.about)
            at = record_format.run_writer_key(b"a", lines.run, writer)
            sealed = reading.get(at)
            found[writer] |= {"said": record_format.unpack_map(at, sealed) if sealed is not None else {}}
        except BadValue:
            found[writer] = {}
    for tail in lines.view.tails_of(lines.run):
        known = found.setdefault(tail.writer, dict(tail.about))
        known["said"] = {**known.get("said", {}), **tail.gathered.about}
        known["heard"] = tail.gathered.heard() or lines.info.last or tail.about.get("opened", 0)
    ends = {one.writer: one for one in writer_ends(reading, lines.run)}
    made, journals, alive = _forwards_by_writer(lines), lines.view.opened.journals, lines.view.is_alive
    rows = [
        _writer(writer, known, ends.get(writer), made.get(writer, _NONE_MADE), journals, alive=alive(writer))
        for writer, known in found.items()
    ]
    return sorted(rows, key=lambda row: row["began"])


_Made = tuple[int | None, int | None, int]
"""The first and the last forward of a writer, and how many it made."""
_NONE_MADE: _Made = (None, None, 0)


def _forwards_by_writer(lines: RunLines) -> dict[int, _Made]:
    found: dict[int, _Made] = {}
    parts = [(block.writer, block.forwards[0], block.forwards[-1], len(block.forwards)) for block in lines.blocks()]
    parts += [(line.writer, line.forward, line.forward, 1) for line in lines.lines.values()]
    for writer, first, last, count in parts:
        low, high, before = found.get(writer, (first, last, 0))
        found[writer] = min(low or 0, first), max(high or 0, last), before + count
    return found


def _writer(
    writer: int, known: dict[str, Any], end: WriterEnd | None, made: _Made, journals: Path, *, alive: bool
) -> dict[str, Any]:
    said = dict(known.pop("said", {}))
    heard = known.pop("heard", 0)
    state, why, when = said.pop("end", None) or (("", "", 0) if end is None else (end.state, end.why, end.when))
    if not state:
        state, when = (RUNNING, 0) if alive else (KILLED, when or heard)
        why = "" if alive else why_killed(known, journals / console_name(writer))
    if isinstance(said.get("argv"), list):
        said["argv"] = masked(list(map(str, said["argv"])))
    graphs = {key: value for key, value in said.items() if key.startswith(_GRAPH)}
    code = {key: value for key, value in said.items() if key.startswith(_CODE)}
    return {
        "writer": f"{writer:015x}",
        "alive": alive,
        "began": known.pop("opened", 0) / 1e6,
        **dict(zip(("first", "last", "forwards"), made, strict=True)),
        **{key: value for key, value in known.items() if key not in _HIDDEN},
        **{key: value for key, value in said.items() if key not in {**graphs, **code, "about": 0, "config": 0}},
        "config": said.get("config", said.get("about", {})),
        "state": state,
        "why": why or None,
        "ended": when / 1e6 if when else None,
        "graphs": graphs,
        "code": code,
    }


def unfinished(store: Place, run: str | None = None) -> list[dict[str, Any]]:
    """A row per forward that is open or lost, by number: `forward`, `state`, `inside`, `nodes`, `when`, `writer`.

    `inside` lists the nodes it was in when it was last written down, at most a quarter of a second before its end, and
    `progress` how far they were: of each node that said so (`ctx.progress`, the items of a mapped one) `node`, `done`,
    `total`, `rate` (a second) and `left_s` (seconds until the total at that rate), None where unknown.
    """
    with opened_at(store) as opened:
        return look(opened, lambda view: unfinished_of(lines_of(view, run)))


def progress_rows(progress: Iterable[record_format.Progress]) -> list[dict[str, Any]]:
    """How far nodes are, as rows of `unfinished` have it."""
    return [
        {"node": one.node, "done": one.done, "total": one.total, "rate": one.rate, "left_s": one.remaining}
        for one in progress
    ]


def progress_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """How far nodes are, in words: ``3,112 of 5,000, 42/s, 45 s left``, with names if they are several."""
    words = []
    for row in rows:
        name = f"{row['node']}: " if len(rows) > 1 else ""
        total = f" of {row['total']:,}" if row["total"] is not None else ""
        speed = f", {rate(row['rate'])}" if row["rate"] else ""
        left = f", {duration(row['left_s'])} left" if row["left_s"] is not None else ""
        words.append(f"{name}{row['done']:,}{total}{speed}{left}")
    return "; ".join(words)


def unfinished_words(row: Mapping[str, Any]) -> str:
    """Where an unfinished forward is or was, in words; empty if it was in no node."""
    far = progress_words(row["progress"])
    return f"in {', '.join(row['inside'])}" + (f", {far}" if far else "") if row["inside"] else ""


def unfinished_of(lines: RunLines) -> list[dict[str, Any]]:
    """The result of `unfinished` for a run."""
    rows = [
        _row(line.forward, line.state, line.inside, line.progress, line.nodes, line.when, line.writer)
        for line in lines.lines.values()
        if line.state in (record_format.OPEN, record_format.LOST)
    ]
    if lines.info.lost:
        rows += [row for block in lines.blocks() for row in _lost_of(lines, block)]
    return sorted(rows, key=lambda row: row["forward"])


def _lost_of(lines: RunLines, block: Stored) -> list[dict[str, Any]]:
    try:
        states, nodes, whens = (block.chunk.integers(name) for name in ("state", "nodes", "when"))
    except BadValue as error:
        lines.damaged(block, error)
        return []
    if record_format.LOST not in states:
        return []
    return [
        _row(forward, state, lines.inside(forward), lines.progress(forward), count, when, block.writer)
        for forward, state, count, when in zip(block.forwards, states, nodes, whens, strict=True)
        if state == record_format.LOST
    ]


def _row(
    forward: int,
    state: int,
    inside: list[str],
    progress: Sequence[record_format.Progress],
    nodes: int,
    when: int,
    writer: int,
) -> dict[str, Any]:
    return {
        "forward": forward,
        "state": record_format.STATES[state],
        "inside": list(inside),
        "progress": progress_rows(progress),
        "nodes": nodes,
        "when": when / 1e6,
        "writer": f"{writer:015x}",
    }


def writers(store: Place, run: str | None = None) -> list[dict[str, Any]]:
    """A row per recorder that was opened on a run, in the order of opening, as `about` has them.

    `first` and `last` are the numbers of its first and last forward, None before there is one, and `forwards` counts
    them: of recorders at work at once the numbers alternate.
    """
    with opened_at(store) as opened:
        rows: list[dict[str, Any]] = look(opened, lambda view: about_of(lines_of(view, run))["writers"])
    return rows


_Said = tuple[int | None, Fact]
LOG_FIELDS = ("level", "logger", "message", "task", "node", "host")
"""The fields of a row of `logs`, after the forward."""


def tasks(store: Place, run: str | None = None) -> list[dict[str, Any]]:
    """A row per task that was said, in the order they were last said within each record, those not over at the end.

    `state` is ``"finished"``, ``"failed"``, ``"open"``, or ``"lost"`` where its process died; `took_us` is until then.
    `why` is there for one that failed, and `mark` says if it was left open or broken off. Reads every fact of the run.
    """
    with opened_at(store) as opened:
        return look(opened, lambda view: _tasks(lines_of(view, run)))


def logs(store: Place, run: str | None = None, level: int | str | None = None) -> list[dict[str, Any]]:
    """A row per log record that was said, from `level` on: a name or number of `logging`. Reads every fact."""
    lowest = _level(level)
    rows = _rows(store, run, "log", lambda fact: {field: fact.get(field) for field in LOG_FIELDS})
    return [row for row in rows if lowest is None or _number_of(row["level"]) >= lowest]


def throughput(store: Place, run: str | None = None, stream: str | None = None) -> list[dict[str, Any]]:
    """A row per time a stream's `stats` were said, of all streams or of one. Reads every fact of the run."""
    rows = _rows(store, run, "throughput", stats_of)
    if stream is None:
        return rows
    known = {row["stream"] for row in rows}
    if stream not in known:
        raise RecordError(f"no stream {stream!r} was said{nearest(stream, sorted(map(str, known)))}")
    return [row for row in rows if row["stream"] == stream]


def _rows(store: Place, run: str | None, kind: str, row: Callable[[Fact], dict[str, Any]]) -> list[dict[str, Any]]:
    with opened_at(store) as opened:
        said = look(opened, lambda view: list(said_in(lines_of(view, run), kind)))
    return [{"forward": forward, **row(fact)} for forward, fact in said]


def said_in(lines: RunLines, kind: str) -> Iterator[_Said]:
    """Every fact of a kind, each with its forward: those of the run itself first."""
    own = unpack(lines.bodies(record_format.OWN) or [])
    yield from ((None, fact) for fact in own if fact.get("fact") == kind)
    for forward, told in lines.facts():
        yield from ((forward, fact) for fact in told if fact.get("fact") == kind)


def _tasks(lines: RunLines) -> list[dict[str, Any]]:
    return tasks_of(lines, said_in(lines, "task"))


def tasks_of(lines: RunLines, facts: Iterable[tuple[int | None, Fact]]) -> list[dict[str, Any]]:
    """The rows of `tasks` from facts of tasks with their forwards, and from open tasks."""
    latest: dict[object, _Said] = {}
    for said in facts:
        key = said[1].get("id") or object()
        latest.pop(key, None)
        latest[key] = said
    for told in lines.open_tasks():
        latest[told.fact["id"]] = (None if told.forward == record_format.OWN else told.forward), told.fact
    alive: set[str] | None = None
    rows = []
    for forward, fact in latest.values():
        row = _task(forward, fact)
        if row["state"] == "open":
            if alive is None:
                alive = {str(one.get("pid")) for one in writers_of(lines) if one.get("alive")}
            row["state"] = "open" if fact.get("id", "").partition("-")[0] in alive else "lost"
        rows.append(row)
    return rows


def _task(forward: int | None, fact: Fact) -> dict[str, Any]:
    return {
        "forward": forward,
        "name": fact.get("name"),
        "state": fact.get("state"),
        "took_us": _number(fact.get("took_us")),
        "done": _number(fact.get("done")),
        "total": _number(fact.get("total")),
        "parent": fact.get("parent"),
        "node": fact.get("node"),
        "host": fact.get("host"),
        "why": fact.get("why"),
        "mark": fact.get("mark"),
    }


def stats_of(fact: Fact) -> dict[str, Any]:
    """A row of `throughput` from a fact."""
    numbers = ("samples", "batches", "samples_per_s", "batches_per_s", "flops_per_s", "waiting")
    exact = {"True": True, "False": False}.get(fact.get("flops_exact", ""))
    row: dict[str, Any] = {"stream": fact.get("stream")}
    row.update({field: _number(fact.get(field)) for field in numbers})
    return row | {"flops_exact": exact}


def _number(text: str | None) -> float | int | None:
    try:
        return None if text is None else int(text) if len(text) < 19 and text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return None


def _level(level: int | str | None) -> int | None:
    if level is None or (isinstance(level, int) and not isinstance(level, bool)):
        return level
    known = logging.getLevelNamesMapping()
    if level not in known:
        raise RecordError(f"level={level!r} is no level of logging{nearest(str(level).upper(), list(known))}")
    return known[level]


def _number_of(level: str | None) -> int:
    """The number of a level by its name; one that only the recording process knew counts as the highest."""
    known = logging.getLevelNamesMapping()
    if level in known:
        return known[level]
    digits = (level or "").rpartition(" ")[2]  # "Level 35", as logging names what has no name
    return logging.CRITICAL if (number := whole_number(digits)) is None else number

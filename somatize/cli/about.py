"""``somatize about``: where, when and with what a run was made."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from . import words
from .answers import Answer, answering, write_json
from .arguments import Reader, path_argument, run_argument
from .stores import reading, run_named
from .tables import print_pairs

_MOST_VERSIONS = 30
_MOST_FACTS = 20
_OWN_COMMAND = frozenset({"task", "log", "throughput"})


@click.command(cls=Reader, examples=("about runs/ tuesday", "about runs/ tuesday --json | jq .git"))
@path_argument
@run_argument
@answering
def about(path: Path, run: str | None, answer: Answer) -> None:
    """Where, when and with what a run was made: command, directory, commit, versions, writers, graphs.

    In CSV a row per value, its place written with dots. Price: no forward is read.
    """
    from somatize import record

    with reading(path) as store:
        said = record.about(store, run_named(store, run))
    if answer.json:
        write_json(said)
    elif answer.csv:
        answer.rows([{"key": key, "value": value} for key, value in _flat(said, "")], (), ("key", "value"))
    else:
        print_pairs([(what, says) for what, says in _told(said) if says])


def _flat(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Each value that has no parts, with the way to it."""
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if parts is None or not value:
        yield place, value
        return
    for key, part in parts:
        yield from _flat(part, f"{place}.{key}" if place else str(key))


def _told(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "run", said["run"]
    yield "began", f"{words.clock(said.get('began'))} ({words.ago(said.get('began'))})" if said.get("began") else ""
    yield "command", shlex.join(map(str, said.get("argv", ())))
    yield "in", str(said.get("cwd", ""))
    yield "on", " ".join(filter(None, (said.get("user", ""), "at" * bool(said.get("user")), said.get("host", ""))))
    yield "python", f"{said.get('python', '')} on {said.get('platform', '')}" if "python" in said else ""
    yield "commit", _commit(said.get("git"))
    yield "with", _versions(said.get("versions") or {})
    yield from ((key, _plain(value)) for key, value in said.get("about", {}).items())
    for number, graph in enumerate(said.get("graphs", ())):
        yield "graph" if not number else "", _graph(graph)
    for number, writer in enumerate(said.get("writers", ())):
        yield "writer" if not number else "", _writer(writer)
    others = [fact for fact in said.get("facts", ()) if fact.get("fact") not in _OWN_COMMAND]
    for number, fact in enumerate(others[-_MOST_FACTS:]):
        yield "said" if not number else "", " ".join(f"{key}={value}" for key, value in fact.items())


def _commit(git: Mapping[str, Any] | None) -> str:
    if not git:
        return ""
    dirty = ", with changes that are not in it" if git.get("dirty") else ""
    return f"{git.get('commit', '')[:12]} on {git.get('branch') or 'no branch'}{dirty}"


def _versions(versions: Mapping[str, str]) -> str:
    named = [f"{name} {version}" for name, version in versions.items()]
    return words.listed(named[:_MOST_VERSIONS]) + (
        f" and {len(named) - _MOST_VERSIONS} more" * (len(named) > _MOST_VERSIONS)
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else words.listed(value) if isinstance(value, list) else str(value)


def _graph(graph: Mapping[str, Any]) -> str:
    names = [node["id"] for node in graph["nodes"]]
    return f"{len(names)} nodes, {len(graph['edges'])} edges: {words.listed(names)}"


def _writer(writer: Mapping[str, Any]) -> str:
    alive = "recording now" if writer.get("alive") else "gone"
    began = words.clock(writer.get("began"))
    return f"process {writer.get('pid', '?')} at {writer.get('host', '?')}, {alive}, opened {began}"

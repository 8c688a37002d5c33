"""What a run says of itself, who wrote it, and which of its forwards never ended."""

from __future__ import annotations

from typing import Any

from somatize.store import schema
from somatize.store.lmdb_environment import BadValue
from somatize.store.record_format import unpack
from somatize.store.run_reader import RunLines, Stored, look

from .forward_reader import Place, lines_of, opened_at
from .provenance import masked

_GRAPH = "graph "
_HIDDEN = frozenset({"run", "name", "fields"})


def about(store: Place, run: str | None = None) -> dict[str, Any]:
    """Where, when and with what a run was made, and what it says of itself.

    `began` is when its first recorder was opened; `argv`, `cwd`, `python`, `platform`, `host`, `pid`, `versions` and
    `git` are of that one (of `argv` the values of ``--password``, ``--token`` and their like are hidden); `writers`
    has the same of each. `graphs` are those it ran, as data, `about` what was given to its recorders (the later one's
    word counts), and `facts` what was said before its first forward. `git` and `versions` are gathered while the run
    goes on; they are there at the latest when the recorder was closed.
    """
    with opened_at(store) as opened:
        return look(opened, lambda view: about_of(lines_of(view, run)))


def about_of(lines: RunLines) -> dict[str, Any]:
    """What `about` gives of a run."""
    writers = writers_of(lines)
    first = {key: value for key, value in writers[0].items() if key not in ("writer", "alive")} if writers else {}
    graphs: dict[str, Any] = {}
    said: dict[str, Any] = {}
    for one in writers:
        graphs.update(one.pop("graphs"))
        said.update(one.pop("about"))
    first.pop("graphs", None)
    first.pop("about", None)
    facts = list(unpack(lines.bodies(schema.OWN) or []))
    return {
        "run": lines.name,
        **first,
        "about": said,
        "facts": facts,
        "graphs": list(graphs.values()),
        "writers": writers,
    }


def writers_of(lines: RunLines) -> list[dict[str, Any]]:
    """Each writer of a run, alive or not, with what it said of itself and of the run."""
    found: dict[int, dict[str, Any]] = {}
    reading, prefix = lines.view.reading, schema.run_prefix(b"v", lines.run)
    for key, _ in reading.items(prefix):
        if not key.startswith(prefix):
            break
        writer = schema.writer_of(key)
        try:
            at = schema.writer_key(writer)
            info = schema.unpack_writer(at, reading.get(at) or b"")
            found[writer] = dict(info.about)
            at = schema.run_writer_key(b"a", lines.run, writer)
            sealed = reading.get(at)
            found[writer] |= {"said": schema.unpack_map(at, sealed) if sealed is not None else {}}
        except BadValue:
            found[writer] = {}
    for tail in lines.view.tails_of(lines.run):
        known = found.setdefault(tail.writer, dict(tail.about))
        known["said"] = {**known.get("said", {}), **tail.gathered.about}
    rows = [_writer(writer, known, alive=lines.view.is_alive(writer)) for writer, known in found.items()]
    return sorted(rows, key=lambda row: row["began"])


def _writer(writer: int, known: dict[str, Any], *, alive: bool) -> dict[str, Any]:
    said = dict(known.pop("said", {}))
    if isinstance(said.get("argv"), list):
        said["argv"] = masked(list(map(str, said["argv"])))
    graphs = {key: value for key, value in said.items() if key.startswith(_GRAPH)}
    return {
        "writer": f"{writer:015x}",
        "alive": alive,
        "began": known.pop("opened", 0) / 1e6,
        **{key: value for key, value in known.items() if key not in _HIDDEN},
        **{key: value for key, value in said.items() if key not in graphs and key != "about"},
        "about": said.get("about", {}),
        "graphs": graphs,
    }


def unfinished(store: Place, run: str | None = None) -> list[dict[str, Any]]:
    """A row per forward that is open or lost, by number: `forward`, `state`, `inside`, `nodes`, `when`, `writer`.

    `inside` lists the nodes it was in when it was last written down, at most a quarter of a second before its end.
    """
    with opened_at(store) as opened:
        return look(opened, lambda view: _unfinished(lines_of(view, run)))


def _unfinished(lines: RunLines) -> list[dict[str, Any]]:
    rows = [
        _row(line.forward, line.state, line.inside, line.nodes, line.when, line.writer)
        for line in lines.lines.values()
        if line.state in (schema.OPEN, schema.LOST)
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
    if schema.LOST not in states:
        return []
    return [
        _row(forward, state, lines.inside(forward), count, when, block.writer)
        for forward, state, count, when in zip(block.forwards, states, nodes, whens, strict=True)
        if state == schema.LOST
    ]


def _row(forward: int, state: int, inside: list[str], nodes: int, when: int, writer: int) -> dict[str, Any]:
    return {
        "forward": forward,
        "state": schema.STATES[state],
        "inside": list(inside),
        "nodes": nodes,
        "when": when / 1e6,
        "writer": f"{writer:015x}",
    }


def writers(store: Place, run: str | None = None) -> list[dict[str, Any]]:
    """A row per stretch of forwards that one writer made, by number: `writer`, `first`, `last`, `forwards`.

    A resumed run has a stretch for each time it was opened; writers at work at once have many. Nothing should join
    the values of two stretches with one stroke.
    """
    with opened_at(store) as opened:
        return look(opened, lambda view: _stretches(lines_of(view, run)))


def _stretches(lines: RunLines) -> list[dict[str, Any]]:
    runs = [(forward, block.writer) for block in lines.blocks() for forward in block.forwards]
    runs += [(line.forward, line.writer) for line in lines.lines.values()]
    rows: list[dict[str, Any]] = []
    for forward, writer in sorted(runs):
        name = f"{writer:015x}"
        if rows and rows[-1]["writer"] == name:
            rows[-1] |= {"last": forward, "forwards": rows[-1]["forwards"] + 1}
        else:
            rows.append({"writer": name, "first": forward, "last": forward, "forwards": 1})
    return rows

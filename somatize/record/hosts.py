"""Hosts of a run: how often each was called, how long that took, and the figure of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from somatize.facts import Fact
from somatize.figures import plotly_backend
from somatize.figures import theme as themes
from somatize.store.node_tally import micro
from somatize.store.run_reader import RunLines, lines_of, look

from .forward_reader import Place, opened_at
from .progress_figure import Picture

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure


HERE = "here"
"""The name of the place that has no host."""

_WORKED = ("ran", "failed", "recalled")


def fleet(store: Place, run: str | None = None) -> list[dict[str, Any]]:
    """A row per host, ``"here"`` first and the busiest next: what it did, and how its machine was last.

    `slices` went there and came back, in `trip` microseconds in all; its nodes `ran` for so many, also in slices that
    did not come back, and what of the trips they did not run was `waiting`: the way, and whatever was prepared.
    `failures` are nodes that failed there. `workers` said last how they are, those started anew in place of the ones
    before; `busy` (processors kept busy) is theirs together, `memory` (the share of the machine's that is in use) and
    `cores` those of one; None where none did. What ran here has no trips. Reads every fact of the run.
    """
    return fleet_in(store, run)[1]


def fleet_in(store: Place, run: str | None) -> tuple[str, list[dict[str, Any]]]:
    """The run's name, and a row per host."""

    def work(lines: RunLines) -> tuple[str, list[dict[str, Any]]]:
        return lines.name, fleet_of(told for _, told in lines.facts(0))

    with opened_at(store) as opened:
        return look(opened, lambda view: work(lines_of(view, run)))


def fleet_of(told: Iterable[Sequence[Fact]]) -> list[dict[str, Any]]:
    """A row per host of these forwards."""
    hosts = Hosts()
    for facts in told:
        hosts.went(facts)
        for fact in facts:
            if fact.get("fact") in _WORKED:
                hosts.worked(fact.get("host", HERE), fact["fact"], micro(fact, "took_us"))
    return hosts.rows()


class Hosts:
    """Hosts as facts tell of them, put together into rows."""

    def __init__(self) -> None:
        self._rows = {HERE: _row(HERE)}
        self._returned: dict[str, int] = {}
        """By host: how long nodes ran in slices that came back."""
        self._machines: dict[str, dict[str, Fact]] = {}
        self._known: set[tuple[str, str]] = set()

    def worked(self, host: str, kind: str, us: int, turns: int = 1) -> None:
        """Nodes had their turns there."""
        row = self._of(host)
        row["ran"] += us
        row["failures"] += turns * (kind == "failed")

    def went(self, facts: Sequence[Fact]) -> None:
        """Take what one forward was told of its slices and of machines."""
        ran: dict[str, int] = {}
        heard: set[tuple[str, str]] = set()
        for fact in facts:
            kind, host = fact.get("fact", ""), fact.get("host", HERE)
            if kind in _WORKED:
                ran[host] = ran.get(host, 0) + micro(fact, "took_us")
            elif kind == "left":
                row = self._of(host)
                row["slices"] += 1
                row["trip"] += micro(fact, "took_us")
                self._returned[host] = self._returned.get(host, 0) + ran.pop(host, 0)
            elif kind == "machine":
                self._hears(host, fact, heard)

    def _hears(self, host: str, fact: Fact, heard: set[tuple[str, str]]) -> None:
        """A machine says how it is; a new one takes the place of those of its host that are silent in this forward."""
        self._of(host)
        one = host, fact.get("id", "")
        heard.add(one)
        there = self._machines.setdefault(host, {})
        if one not in self._known:
            self._known.add(one)
            for gone in [id for id in there if (host, id) not in heard]:
                del there[gone]
        there[one[1]] = fact

    def _of(self, host: str) -> dict[str, Any]:
        if host not in self._rows:
            self._rows[host] = _row(host)
        return self._rows[host]

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `fleet`."""
        for host, said in self._machines.items():
            self._rows[host] |= _latest(list(said.values()))
        for host, row in self._rows.items():
            row["waiting"] = max(0, row["trip"] - self._returned.get(host, 0))
        here, *others = self._rows.values()
        return [here, *sorted(others, key=lambda row: (-row["trip"], row["host"]))]


def _row(host: str) -> dict[str, Any]:
    counts = {"slices": 0, "trip": 0, "ran": 0, "waiting": 0, "failures": 0, "workers": 0}
    return {"host": host, **counts, "busy": None, "memory": None, "cores": None}


def _latest(said: list[Fact]) -> dict[str, Any]:
    busy = [_number(fact["busy"]) for fact in said if "busy" in fact]
    memory = [_number(fact["memory"]) for fact in said if "memory" in fact]
    shares = [share for share in memory if share <= 1]  # version 0.1 said how many bytes the worker held
    return {
        "workers": len(said),
        "busy": round(sum(busy), 3) if busy else None,
        "memory": max(shares) if shares else None,
        "cores": micro(said[-1], "cores"),
    }


def processors(row: Mapping[str, Any]) -> str:
    """The number of processors a host's workers kept busy, of how many; empty if unknown."""
    if row["cores"] is None:
        return ""
    return f"{row['cores']}" if row["busy"] is None else f"{row['busy']:.3g} of {row['cores']}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


_ROW, _BAR, _TO_LEGEND = 44, 0.5, 32


def machines(store: Place, run: str | None = None, *, theme: str | None = None) -> Figure:
    """The hosts of a run, as `fleet` has them: working against waiting, and what went wrong there.

    Needs plotly, ``pip install 'somatize[viz]'``. Reads every fact of the run. Raises `UnknownRun`, `WhichRun`,
    `FigureError`, `ExtraMissing`.
    """
    plotly_backend.require()
    name, rows = fleet_in(store, run)
    picture = machines_picture(name, rows, theme=theme)
    return plotly_backend.figure(picture.data, picture.layout)


def machines_picture(run: str, rows: list[dict[str, Any]], *, theme: str | None = None) -> Picture:
    """Rows of `fleet` drawn; plain dicts."""
    look = themes.theme_of(theme)
    longest = max((row["ran"] + row["waiting"] for row in rows), default=0)
    unit, size = themes.unit(longest)
    slices = sum(row["slices"] for row in rows)
    title, above = themes.title(
        look, f"run {themes.plain(run)}: where it was worked and waited", [_notes(rows, slices)]
    )
    data = [_bars(rows, "ran", "working", size, themes.hue(0)), _bars(rows, "waiting", "waiting", size, None)]
    inside, below = _ROW * max(2, len(rows)), _TO_LEGEND + themes.legend_height(data)
    layout = themes.layout(
        look,
        height=above + inside + below,
        margin={"t": above, "b": below, "l": 110, "r": 14},
        title=title,
        barmode="stack",
        hovermode="closest",
        showlegend=True,
        legend=themes.legend(-_TO_LEGEND / inside) | {"traceorder": "normal"},
        annotations=[] if longest else [themes.in_the_middle(look, "nothing ran yet")],
        xaxis=themes.axis(
            look,
            ticksuffix=f" {unit}",
            nticks=6,
            range=[0, longest / size * 1.02 or 1],
            showticklabels=longest > 0,
            showgrid=longest > 0,
        ),
        yaxis={
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": list(range(len(rows))),
            "ticktext": [themes.escaped(row["host"], 14) for row in rows],
            "tickfont": {"size": themes.TEXT, "color": look.ink},
            "fixedrange": True,
            "showgrid": False,
        },
    )
    return Picture(data, layout)


def _notes(rows: list[dict[str, Any]], slices: int) -> str:
    failures = sum(row["failures"] for row in rows)
    words = f"{themes.counted(len(rows) - 1, 'host')}, {themes.counted(slices, 'slice')} sent"
    return words + (f"; {failures:,} failed" if failures else "")


def _bars(rows: list[dict[str, Any]], field: str, name: str, size: float, colour: str | None) -> dict[str, Any]:
    filled = colour if colour is not None else themes.tint(themes.hue(0), 0.25)
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [row[field] / size for row in rows],
        "y": list(range(len(rows))),
        "width": _BAR,
        "marker": {"color": filled, "line": {"color": themes.hue(0), "width": 1}},
        "hovertext": [_words(row) for row in rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _words(row: dict[str, Any]) -> str:
    lines = [f"<b>{themes.escaped(row['host'], 60)}</b>", f"worked {themes.took(row['ran'])}"]
    if row["host"] != HERE:
        lines.append(f"{themes.counted(row['slices'], 'slice')}, {themes.took(row['trip'])} there and back")
        lines.append(f"{themes.took(row['waiting'])} waiting")
    if row["failures"]:
        lines.append(f"{row['failures']:,} failed")
    if row["cores"] is not None:
        memory = "" if row["memory"] is None else f", {escape(themes.share(row['memory']))} of the memory in use"
        lines.append(f"last: {processors(row)} processors{memory}")
    return "<br>".join(lines)

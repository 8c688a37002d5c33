"""Hosts as a picture: a bar for each, how long it worked against how long was waited for it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from somatize.figures import plotly_backend
from somatize.figures import theme as themes

from .asked import Place
from .drawn import Picture
from .fleet import HERE, fleet_in, processors

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure

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

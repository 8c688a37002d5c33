"""Every kind of figure, as a person sees it: on a light and on a dark page, 400, 900 and 1600 pixels wide.

    python tests/gallery DIRECTORY [NAME...]     # NAME: the groups to draw; all without one

Writes sheets, a few figures each: narrow and light beside middling and dark, the other way round, and wide ones.
Looked at by a person, not by a test. Needs Chromium and playwright.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bars import time_more, where_time_went
from boxes import drawn_graphs, drawn_more
from lines import progress_common, progress_long, progress_many, progress_names, progress_odd, progress_values
from playwright.sync_api import sync_playwright

from somatize.figures import plotly_backend

LIGHT, DARK = "#ffffff", "#111111"
SHEETS = {"a": ((400, LIGHT), (900, DARK)), "b": ((400, DARK), (900, LIGHT)), "wide": ((1600, LIGHT),)}
HIGH = 1700
"""About how high a sheet may be, in pixels: more cannot be made out at one glance."""

GROUPS = {
    "progress": progress_common,
    "odd": progress_odd,
    "long": progress_long,
    "names": progress_names,
    "many": progress_many,
    "values": progress_values,
    "time": where_time_went,
    "timemore": time_more,
    "graphs": drawn_graphs,
    "graphsmore": drawn_more,
}


def shown(figure):
    return figure if hasattr(figure, "to_html") else plotly_backend.figure(figure.data, figure.layout)


def sheets(figures):
    """The figures in handfuls that fit on a sheet."""
    made, high = [{}], 0
    for name, figure in figures.items():
        height = int(figure.layout.height or 450) + 20
        if made[-1] and high + height > HIGH:
            made.append({})
            high = 0
        made[-1][name] = figure
        high += height
    return made


DRAW = """async ({figures, columns}) => {
    document.body.replaceChildren();
    for (const [name, figure] of figures) {
        const words = document.body.appendChild(document.createElement("p"));
        words.textContent = name;
        words.style = "font:11px monospace;color:#888;margin:2px";
        const row = document.body.appendChild(document.createElement("div"));
        row.style = "display:flex;align-items:flex-start";
        for (const [width, page] of columns) {
            const cell = row.appendChild(document.createElement("div"));
            cell.style = `width:${width}px;background:${page};overflow:hidden`;
            const {data, layout} = JSON.parse(figure);
            await Plotly.newPlot(cell, data, layout, {responsive: true, displaylogo: false});
        }
    }
}"""


def main(out, groups):
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        tab = browser.new_page()
        tab.set_content(f"<meta charset=utf-8><body style='margin:4px'><script>{plotly_backend.script()}</script>")
        for group in groups:
            figures = {name: shown(figure) for name, figure in GROUPS[group]().items()}
            for number, few in enumerate(sheets(figures)):
                drawn = [(name, figure.to_json()) for name, figure in few.items()]
                for kind, columns in SHEETS.items():
                    tab.set_viewport_size({"width": sum(width for width, _ in columns) + 8, "height": 800})
                    tab.evaluate(DRAW, {"figures": drawn, "columns": columns})
                    tab.screenshot(path=out / f"{group}-{number}-{kind}.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(GROUPS))

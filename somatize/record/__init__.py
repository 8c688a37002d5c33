"""Forwards recorded, and read back.

`Recorder` writes; `runs`, `best`, `compare`, `forwards`, `facts`, `nodes`, `curve` and `curve_costs` read, and so do
`about`, `unfinished`, `writers`, `replay` and `tail`; `progress`, `spent`,
`timeline`, `graph` and `sweep` draw and `Live` draws while it runs, with plotly from ``pip install 'somatize[viz]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from somatize.utils import names_of

from .hosts import fleet
from .reader import curve, curve_costs, facts, forwards, nodes, replay, tail
from .recorder import Recorder
from .run_info import about, unfinished, writers
from .run_query import best, compare, runs

if TYPE_CHECKING:
    from .figures import graph, progress, spent, timeline
    from .hosts import machines
    from .html_page import page
    from .live import Live
    from .run_follower import Followed
    from .run_info import logs, tasks, throughput
    from .sweep_figure import sweep

__all__ = [
    "Followed",
    "Live",
    "Recorder",
    "about",
    "best",
    "compare",
    "curve",
    "curve_costs",
    "facts",
    "fleet",
    "forwards",
    "graph",
    "logs",
    "machines",
    "nodes",
    "page",
    "progress",
    "replay",
    "runs",
    "spent",
    "sweep",
    "tail",
    "tasks",
    "throughput",
    "timeline",
    "unfinished",
    "writers",
]

_HOMES = {
    "graph": "figures",
    "logs": "run_info",
    "tasks": "run_info",
    "throughput": "run_info",
    "Followed": "run_follower",
    "Live": "live",
    "machines": "hosts",
    "page": "html_page",
    "progress": "figures",
    "spent": "figures",
    "sweep": "sweep_figure",
    "timeline": "figures",
}
"""Modules of lazily loaded names, because recording must not wait for drawing."""

__getattr__, __dir__ = names_of(__name__, _HOMES)

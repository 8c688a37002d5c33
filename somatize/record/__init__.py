"""Forwards recorded, and read back.

`Recorder` writes; `runs`, `forwards`, `facts`, `nodes`, `curve` and `curve_costs` read.
"""

from .reader import curve, curve_costs, facts, forwards, nodes, runs
from .recorder import Recorder

__all__ = ["Recorder", "curve", "curve_costs", "facts", "forwards", "nodes", "runs"]

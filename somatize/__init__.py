"""A computation declared as a graph, run, watched while it runs and read back afterwards, by the same dicts.

    from somatize import Graph, Node, Recorder, Store

The public names are loaded when first asked for: importing somatize loads no heavy library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazily import names_of

if TYPE_CHECKING:
    from .codecs import codec
    from .context import Ctx
    from .facts import Fact, Watcher
    from .graph import Graph
    from .pieces import Node, Piece, node
    from .record import Live, Recorder
    from .store import Store
    from .watching import Sink
    from .worker import Broker, Worker

__version__ = "0.1.0"

__all__ = [
    "Broker",
    "Ctx",
    "Fact",
    "Graph",
    "Live",
    "Node",
    "Piece",
    "Recorder",
    "Sink",
    "Store",
    "Watcher",
    "Worker",
    "codec",
    "node",
]

_HOMES = {
    "Broker": "worker",
    "Ctx": "context",
    "Fact": "facts",
    "Graph": "graph",
    "Live": "record.live",
    "Node": "pieces",
    "Piece": "pieces",
    "Recorder": "record",
    "Sink": "watching",
    "Store": "store",
    "Watcher": "facts",
    "Worker": "worker",
    "codec": "codecs",
    "node": "pieces",
}

__getattr__, __dir__ = names_of(__name__, _HOMES)

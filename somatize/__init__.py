"""A computation declared as a graph, run, watched while it runs and read back afterwards, by the same dicts.

    from somatize import Graph, Node, Recorder, Store

The public names are loaded when first asked for: importing somatize loads no heavy library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .utils import names_of

if TYPE_CHECKING:
    from somatize.dag.pieces import Node, Piece, node
    from somatize.store.store import Store
    from somatize.watching.context import Ctx
    from somatize.watching.watchers import Sink

    from .codecs import codec
    from .facts import Fact, Watcher
    from .graph import Graph
    from .record import Live, Recorder
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
    "Ctx": "watching.context",
    "Fact": "facts",
    "Graph": "graph",
    "Live": "record.live",
    "Node": "dag.pieces",
    "Piece": "dag.pieces",
    "Recorder": "record",
    "Sink": "watching.watchers",
    "Store": "store.store",
    "Watcher": "facts",
    "Worker": "worker",
    "codec": "codecs",
    "node": "dag.pieces",
}

__getattr__, __dir__ = names_of(__name__, _HOMES)

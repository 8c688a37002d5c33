"""Nodes on other machines: a worker process, and the broker that sends slices of a graph to it.

A worker is a program we start, here or through ``ssh``, and all that is said goes over its stdin and stdout: nothing
listens. Its reply is unpickled here and the code it is sent is run there, so that a worker is as trusted as the command
that starts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker import Broker
    from .process import Worker

__all__ = ["Broker", "Worker"]


def __getattr__(name: str) -> object:
    # Lazy, because a worker process imports this package too and does not need the client's modules.
    if name in __all__:
        from . import broker

        return getattr(broker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Watchers and their sinks, the forward that runs here, and `Ctx`: what the engine and recorders share."""

from __future__ import annotations

from .watchers import Opener, Sink, sink_here

__all__ = ["Opener", "Sink", "sink_here"]

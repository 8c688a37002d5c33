"""The state of a frozen node: what it has learned, as it is now."""

from __future__ import annotations

import functools
from typing import Any

from somatize.codecs import tensors

from .content import content
from .hashing import worded


def state_of(thing: Any, called: str | None) -> bytes | None:
    """The digest of a thing's state, or None where it has none.

    `called` is what the user called it, which settles it but for the mode, train or eval, of torch's modules. Else it
    is the content of its `state_dict()`, and of the buffers a Module leaves out there, gone through each time: torch
    counts the writes to a tensor, but not all of them, so that nothing short of its elements says that they are the
    same.
    """
    while isinstance(thing, functools.partial):
        thing = thing.func
    holder = getattr(thing, "__self__", thing)
    modes = [inner.training for inner in holder.modules()] if tensors.is_module(holder) else None
    if called is not None:
        return worded("called", called, modes)
    state = getattr(holder, "state_dict", None)
    if isinstance(holder, type) or not callable(state):
        return None
    held = tensors.state_of(holder) if modes is not None else state()
    return worded("state", content(dict(held) if isinstance(held, dict) else held, "the state"), modes)

"""What a recalled result would not do as a run does: carry a gradient, draw dropout, count batch statistics."""

from __future__ import annotations

import types
from typing import Any

from somatize.codecs import tensors

from .hashing import SCALARS
from .object_walk import objects_in


def carries_gradient(value: Any) -> bool:
    """Whether a gradient is to flow through a tensor or a Module's parameter in `value`, however deep it lies."""
    if type(value) in SCALARS or not tensors.watches_gradients():
        return False
    try:
        return any(map(tensors.carries_gradient, objects_in(value)))
    except RuntimeError:  # another thread changes it just now
        return True


def training_in(thing: Any) -> str | None:
    """What the Modules of a node do only in training mode, in a few words; None if they do nothing, or have another."""
    if tensors.loaded() is None:
        return None
    training = False
    reading: list[types.FunctionType] = []
    methods: set[int] = set()  # which are looked at with their Module
    for one in objects_in(thing, code=True):
        if tensors.is_module(one):
            training = training or one.training
            words = tensors.in_training(one)
            if words is not None:
                return words
        elif isinstance(one, types.FunctionType):
            reading += [one] if tensors.reads_training(one) else []
        elif isinstance(one, type) and tensors.is_module_class(one):
            methods.update(map(id, vars(one).values()))
    reads = any(id(one) not in methods for one in reading)
    return "a Module and code that reads `training`" if training and reads else None

"""Whether a value holds what has to be looked at again whenever a name is asked for."""

from __future__ import annotations

import functools
import types
from typing import Any

from somatize import tensors

from .expansion import Expansion
from .hashing import worded

_MET = worded("met")
_KINDS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
    type(functools.lru_cache(len)),
)


class Probe:
    """Takes the place of what resolves functions, classes, torch's modules and nodes, and tells if any was met."""

    def __init__(self) -> None:
        self.met = False

    def __call__(self, value: Any, last: bool) -> Expansion | None:
        node = hasattr(type(value), "__somatize_node__")
        named = callable(value) and isinstance(getattr(value, "__qualname__", None), str)
        if last or not (node or named or isinstance(value, _KINDS) or tensors.is_module(value)):
            return None
        self.met = True
        return Expansion(_MET, [])

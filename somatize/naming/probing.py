"""Whether a value holds what has to be looked at again whenever a name is asked for, and of which classes it holds."""

from __future__ import annotations

import functools
import types
from typing import Any

from somatize.codecs import tensors

from .hashing import worded
from .module_origin import is_library
from .value_walker import Expansion

_MET = worded("met")
_KINDS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    functools.partial,
    type(functools.lru_cache(len)),
)


class Probe:
    """Takes the place of what resolves functions, classes, torch's modules and nodes, and tells if any was met."""

    def __init__(self) -> None:
        self.met = False
        self.classes: dict[type, None] = {}

    def code_of(self, cls: type) -> bytes | None:
        if not is_library(cls.__module__):
            self.classes[cls] = None
        return None

    def __call__(self, value: Any, last: bool) -> Expansion | None:
        node = hasattr(type(value), "__somatize_node__")
        named = callable(value) and isinstance(getattr(value, "__qualname__", None), str)
        if last or not (node or named or isinstance(value, _KINDS) or tensors.is_module(value)):
            return None
        self.met = True
        return Expansion(_MET, [])

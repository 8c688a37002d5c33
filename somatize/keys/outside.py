"""What code refers to that is not gone into: loggers and locks, which say nothing of what it does, and libraries."""

from __future__ import annotations

import functools
import site
import sys
from pathlib import Path
from sysconfig import get_paths
from typing import Any

_LOCKING = {"_thread", "threading", "multiprocessing.synchronize", "asyncio.locks"}
_LOCKS = {"lock", "Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"}


def is_apart(value: Any) -> bool:
    """Whether a value that code refers to says nothing of what the code does: a logger, a lock, a bare object()."""
    cls = type(value)
    logging = sys.modules.get("logging")
    if logging is not None and isinstance(value, logging.Logger | logging.LoggerAdapter):
        return True
    return cls is object or (cls.__module__ in _LOCKING and cls.__name__.lstrip("_") in _LOCKS)


@functools.lru_cache(maxsize=4096)
def is_library(module: str) -> bool:
    """Whether a module belongs to Python, to somatize, or was installed; one that is being written does not."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "somatize":
        return top != "__main__"
    path = getattr(sys.modules.get(module), "__file__", None)
    return path is not None and any(Path(path).is_relative_to(place) for place in _installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = get_paths()
    found = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]}
    return tuple({*found, *site.getsitepackages(), site.getusersitepackages()})

"""The origin of a module: Python, an installed distribution, a compiled file, or the user's project.

Also the neutral values: loggers, locks, consoles and streams, which say nothing of what the code does that uses them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import io
import os
import site
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from sysconfig import get_paths
from types import ModuleType
from typing import Any, NamedTuple

_LOCKING = {"_thread", "threading", "multiprocessing.synchronize", "asyncio.locks"}
_LOCKS = {"lock", "Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"}
_SPEAKING = {("rich.console", "Console"), ("loguru._logger", "Logger")}
_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")


def is_apart(value: Any) -> bool:
    """Whether a value is of a neutral kind, and does not count.

    These are loggers (of `logging` and loguru), locks (of `threading`, `multiprocessing` and `asyncio`), rich's
    consoles, the standard output and error streams and files open on them, and a bare ``object()``.
    """
    cls = type(value)
    if cls is object or (cls.__module__ in _LOCKING and cls.__name__.lstrip("_") in _LOCKS):
        return True
    if isinstance(value, type | ModuleType):
        return False
    logging = sys.modules.get("logging")
    if logging is not None and isinstance(value, logging.Logger | logging.LoggerAdapter):
        return True
    return any((base.__module__, base.__qualname__) in _SPEAKING for base in cls.__mro__) or _is_output(value)


def _is_output(value: Any) -> bool:
    if any(value is getattr(sys, name, None) for name in _STREAMS):
        return value is not None
    if not isinstance(value, io.TextIOWrapper | io.BufferedWriter | io.FileIO):
        return False
    try:
        return value.fileno() in (1, 2)
    except (OSError, ValueError):
        return False


class Origin(NamedTuple):
    """The origin of a module that is not followed: its distribution and version."""

    name: str
    version: str


PYTHON = Origin("python", f"{sys.version_info[0]}.{sys.version_info[1]}")


def origin(module: str) -> Origin | None:
    """The origin of a module, or None for one of the user's project, whose code is followed.

    It is decided by the module's file, once: Python's own, one that an installed distribution lists, or a compiled
    one, which counts by the hash of its file. All others are the project's, also one that has no file.
    """
    if module == "__main__":  # also where a tool runs what is typed
        return None
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if not isinstance(file, str):
        return _without_file(module, found)
    known = _KNOWN.get(module)
    if known is None or known[0] != file:
        known = _KNOWN[module] = file, origin_of_file(module, file)
    return known[1]


_KNOWN: dict[str, tuple[str, Origin | None]] = {}


def is_library(module: str) -> bool:
    """Whether a module is not of the user's project, so that it is not followed."""
    return origin(module) is not None


def _without_file(module: str, found: ModuleType | None) -> Origin | None:
    places = [*getattr(found, "__path__", ())]
    if places:  # a namespace package
        return origin_of_file(module, f"{places[0]}/__init__.py")
    parent, _, name = module.rpartition(".")
    if parent and name:  # made by its parent package, or not imported
        return origin(parent)
    return PYTHON if module in sys.builtin_module_names or module in sys.stdlib_module_names else None


def origin_of_file(module: str, file: str) -> Origin | None:
    """The origin of a module by its file, imported or not."""
    top = module.partition(".")[0]
    if top == "somatize" and module != "__main__":
        return _OURS
    if _lies_in(file, _pythons()) and not _lies_in(file, _libraries()):
        return PYTHON
    found = _owner(file)
    if found is not None:
        return found
    if file.endswith(tuple(EXTENSION_SUFFIXES)):
        return Origin(module, _hash_of(file))
    return None


def _lies_in(file: str, places: tuple[str, ...]) -> bool:
    return any(file.startswith(place) for place in places)


@functools.cache
def _libraries() -> tuple[str, ...]:
    paths = get_paths()
    found = [paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
    return tuple(dict.fromkeys(_within(place) for place in found))


@functools.cache
def _pythons() -> tuple[str, ...]:
    paths = get_paths()
    found = [paths["stdlib"], paths["platstdlib"], str(Path(os.__file__).parent)]
    return tuple(dict.fromkeys(_within(place) for place in found))


_OURS = Origin("somatize", "")
"""Ours counts by the version of the scheme of names."""


def _owner(file: str) -> Origin | None:
    """The distribution that lists a file, if there is one in the directory of `sys.path` that the file lies in."""
    base = _base_of(file)
    if base is None or not _lists(base):
        return None
    parts = Path(file).relative_to(base).parts
    for depth in range(1, len(parts)):  # the outermost package decides for all modules within it
        package = "/".join((*parts[:depth], "__init__.py"))
        found = _listed(base, package)
        if found is not None:
            return found
    return _listed(base, "/".join(parts))


def _base_of(file: str) -> str | None:
    places = {*map(os.path.abspath, sys.path), *map(os.path.normpath, _libraries())}
    return max((place for place in places if file.startswith(_within(place))), key=len, default=None)


def _within(place: str) -> str:
    """The prefix of all paths in a directory."""
    return place.rstrip(os.sep) + os.sep


@functools.cache
def _lists(base: str) -> tuple[str, ...]:
    """The directories in which distributions that are installed in a directory say what they are."""
    try:
        return tuple(sorted(one.name for one in Path(base).iterdir() if one.suffix in (".dist-info", ".egg-info")))
    except OSError:
        return ()


@functools.lru_cache(maxsize=16)
def _files_of(base: str, name: str) -> str:
    one = importlib.metadata.Distribution.at(Path(base, name))
    text = one.read_text("RECORD")
    if text is None and _within(base) in _libraries():
        # An older tool or a system's package manager installed it; elsewhere it is the project's own metadata.
        tops = (one.read_text("top_level.txt") or "").split()
        text = "".join(f"{top}/__init__.py,\n{top}.py,\n" for top in tops)
    return "\n" + (text or "")


@functools.cache
def _listed(base: str, file: str) -> Origin | None:
    top = file.partition("/")[0].removesuffix(".py").lower()
    for name in sorted(_lists(base), key=lambda name: name.partition("-")[0].lower() != top):
        files = _files_of(base, name)
        if f"\n{file}," in files or f'\n"{file}",' in files:
            return _origin_of(importlib.metadata.Distribution.at(Path(base, name)), files)
    return None


def _origin_of(one: importlib.metadata.Distribution, files: str) -> Origin:
    version = str(one.version)
    if one.read_text("direct_url.json") is not None:  # whose version says nothing of what was in the directory
        version += "+" + hashlib.sha256(files.encode("utf-8", "replace")).hexdigest()[:16]
    return Origin(str(one.metadata["Name"]), version)


def _hash_of(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as missing:
        return f"not readable: {type(missing).__name__}"

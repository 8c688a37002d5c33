"""The modules of ``send=``, so that node code at a worker can also import them.

A worker that sees this machine imports them from where they lie here. Another one is sent their files, data files
included, and imports them from a folder among its temporary files that is named by their content.

What goes there by value and what is imported there are the same: a function of such a module that arrives has the
globals of the imported module, a class that arrives is the imported one with what came assigned to it, and plain
values of globals (numbers, texts, and containers of them) are as they are here.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from somatize.errors import SomatizeWarning

from .wire import Pieces

MOST_DATA = 32 << 20
"""Bytes of files other than code that are sent."""

_CODE = (".py", *importlib.machinery.EXTENSION_SUFFIXES)


def offered(send: Sequence[str], *, shares: bool) -> tuple[dict[str, Any], list[Pieces]]:
    """The modules offered to a worker: their paths, or their files with contents."""
    roots = {root: place for root in dict.fromkeys(name.partition(".")[0] for name in send) if (place := _place(root))}
    if shares:
        return {"places": {root: str(place) for root, place in roots.items()}}, []
    files = {path: file for root, place in roots.items() for path, file in _files(root, place, send)}
    sent = dict(_within_limit(files, send))
    return {"roots": list(roots), "files": list(sent)}, [[data] for data in sent.values()]


def _place(root: str) -> Path | None:
    """The folder that contains a module or package; None if there is none."""
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):  # a module made by hand goes only by value
        return None
    if spec is None:
        return None
    locations = list(spec.submodule_search_locations or ())
    origin = locations[0] if locations else spec.origin if spec.has_location else None
    return Path(origin).absolute().parent if origin and Path(origin).exists() else None


def _files(root: str, place: Path, send: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The files of a module, or of a package as far as it is sent, by their paths from its folder."""
    package = place / root
    if not package.is_dir():
        yield from ((file.name, file) for file in place.glob(f"{root}.*") if file.name.endswith(_CODE))
        return
    for name in (one for one in send if one.partition(".")[0] == root):
        parts = name.split(".")
        for deep in range(1, len(parts)):
            start = place.joinpath(*parts[:deep], "__init__.py")
            if start.is_file():
                yield start.relative_to(place).as_posix(), start
        whole = place.joinpath(*parts)
        if whole.is_dir():
            for folder, inner, names in os.walk(whole):
                inner[:] = sorted(one for one in inner if one != "__pycache__" and not one.startswith("."))
                for file in (Path(folder, one) for one in sorted(names) if not one.endswith(".pyc")):
                    yield file.relative_to(place).as_posix(), file
        else:
            found = (file for file in whole.parent.glob(f"{parts[-1]}.*") if file.name.endswith(_CODE))
            yield from ((file.relative_to(place).as_posix(), file) for file in found)


def _within_limit(files: dict[str, Path], send: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    room, left_out = MOST_DATA, []
    for path, file in sorted(files.items(), key=lambda one: (not one[0].endswith(_CODE), one[0])):
        if not path.endswith(_CODE):
            size = file.stat().st_size if file.is_file() else room + 1
            if size > room:
                left_out.append(path)
                continue
            room -= size
        yield path, file.read_bytes()
    if left_out:
        named = ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")
        warnings.warn(
            f"send={list(send)!r}: {len(left_out)} data files of them do not go to another machine, as only "
            f"{MOST_DATA >> 20} MB do: {named}; node code there will not find them, put them where it runs",
            SomatizeWarning,
            stacklevel=2,
        )


def taken(said: dict[str, Any], buffers: Sequence[memoryview]) -> None:
    """At a worker: make the modules importable that the client offered."""
    places = said.get("places")
    if places is None:
        folder = str(_written(said["files"], buffers))
        places = dict.fromkeys(said["roots"], folder)
    _OFFERED.update(places)
    sys.meta_path.insert(0, _Finder(places))


def _written(names: list[str], buffers: Sequence[memoryview]) -> Path:
    """The folder with these files, named by their content, so that workers of one user share it."""
    digest = hashlib.sha256()
    for name, data in zip(names, buffers, strict=True):
        digest.update(f"{len(name)} {name} {data.nbytes} ".encode())
        digest.update(data)
    home = Path(tempfile.gettempdir(), f"somatize-modules-{os.getuid()}")
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid() or home.stat().st_mode & 0o022:
        home = Path(tempfile.mkdtemp(prefix="somatize-modules-"))  # somebody else may write there
    folder = home / digest.hexdigest()[:32]
    if not folder.exists():
        made = Path(tempfile.mkdtemp(dir=home))
        for name, data in zip(names, buffers, strict=True):
            file = made / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        try:
            made.rename(folder)
        except OSError:  # another worker was first
            return folder if folder.exists() else made
    return folder


class Values:
    """The plain values of the globals of modules that are loaded here; and which of them changed since they went."""

    def __init__(self, send: Sequence[str]) -> None:
        self._send = send
        self._sent: dict[tuple[str, str], Any] = {}

    def changed(self) -> dict[str, dict[str, Any]]:
        """By module and name, the values that are new or changed since the last call."""
        found: dict[str, dict[str, Any]] = {}
        for name, module in list(sys.modules.items()):
            if any(name == one or name.startswith(f"{one}.") for one in self._send):
                for key, value in list(getattr(module, "__dict__", {}).items()):
                    copy = _copied(value, [_MOST]) if key[:2] != "__" else None
                    if copy is not None and self._sent.get((name, key)) != copy:
                        self._sent[name, key] = copy
                        found.setdefault(name, {})[key] = value
        return found


def _copied(value: Any, room: list[int]) -> Any:
    """An immutable copy of a plain value, to compare with later; None for other values and for large ones."""
    cls = type(value)
    room[0] -= 1
    if cls in _SCALARS:
        return cls, value
    if cls not in (list, tuple, dict, set, frozenset) or len(value) > room[0]:
        return None
    parts = [*value.keys(), *value.values()] if cls is dict else list(value)
    if cls in (set, frozenset):
        return (cls, frozenset(value)) if all(type(part) in _SCALARS for part in parts) else None
    copies = [_copied(part, room) for part in parts]
    return None if None in copies else (cls, copies)


_SCALARS = frozenset({str, bytes, int, float, complex, bool, type(None)})
_MOST = 1000
"""Values within one global that are compared one by one; a larger one is not sent."""

_VALUES: dict[str, dict[str, Any]] = {}
"""At a worker: the values that globals have at the client, by module."""


def values_taken(values: dict[str, dict[str, Any]]) -> None:
    """At a worker: set globals of modules to the client's values, also in modules that are imported later."""
    for name, those in values.items():
        _VALUES.setdefault(name, {}).update(those)
        if name in sys.modules:
            vars(sys.modules[name]).update(those)


def here(name: str) -> types.ModuleType | None:
    """At the worker: a module that the other end offered, imported; None for others, and where that fails."""
    if name.partition(".")[0] not in _OFFERED:
        return None
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit):  # then only the values that came exist
        return None


_OFFERED: set[str] = set()


class _Finder:
    """Finds modules by their folders, before any other finder does."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        root = name.partition(".")[0]
        if root not in self._places:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, [self._places[root]] if name == root else path, target)
        loader: Any = getattr(spec, "loader", None)
        execute = getattr(loader, "exec_module", None)
        if execute is not None:

            def execute_and_update(module: types.ModuleType) -> None:
                del loader.exec_module  # restore the loader
                execute(module)
                vars(module).update(_VALUES.get(name, {}))

            with contextlib.suppress(AttributeError):  # that of a namespace takes no attribute, and runs nothing
                loader.exec_module = execute_and_update
        return spec

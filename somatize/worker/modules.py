"""The modules of ``send=``, so that node code at a worker can also import them.

A worker that sees this machine imports them from where they lie here. Another one is sent their files, data files
included, and imports them from a folder among its temporary files that is named by their content.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
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
    """What a worker is told of the modules: where they lie, or which files they are, and these."""
    roots = {root: place for root in dict.fromkeys(name.partition(".")[0] for name in send) if (place := _place(root))}
    if shares:
        return {"places": {root: str(place) for root, place in roots.items()}}, []
    files = {path: file for root, place in roots.items() for path, file in _files(root, place, send)}
    sent = dict(_within_limit(files, send))
    return {"roots": list(roots), "files": list(sent)}, [[data] for data in sent.values()]


def _place(root: str) -> Path | None:
    """The folder in which a module or a package lies; None for one that is in no folder."""
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):  # made by hand: it goes by value alone
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
    """At the worker: let the modules be found that the other end offered."""
    places = said.get("places")
    if places is None:
        folder = str(_written(said["files"], buffers))
        places = dict.fromkeys(said["roots"], folder)
    sys.meta_path.insert(0, _Finder(places))


def _written(names: list[str], buffers: Sequence[memoryview]) -> Path:
    """The folder with these files: named by what is in it, so that workers of one user share it."""
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


class _Finder:
    """Finds modules by their folders, before any other finder does."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        folder = self._places.get(name)
        return None if folder is None else importlib.machinery.PathFinder.find_spec(name, [folder], target)

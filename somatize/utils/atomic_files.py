"""Files that are replaced atomically."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from somatize.errors import ExportError

T = TypeVar("T")


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], T]) -> T:
    """Call `write` with a temporary path beside `path`, then move that file to `path`; returns its result.

    If `write` raises or is interrupted, the temporary file is removed and what was at `path` stays. The file is synced
    to the disk before it is moved. Raises as `checked_path` does.
    """
    place = checked_path(path)
    beside = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        answer = write(beside)
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(place)
    except OSError as error:
        if error.filename == str(beside):  # the caller does not know the temporary name
            error.filename = str(place)
        raise
    finally:
        beside.unlink(missing_ok=True)
    return answer


def checked_path(path: str | os.PathLike[str]) -> Path:
    """A path at which a file can be written. Raises `ExportError` for a directory, a pipe, or a missing directory."""
    place = Path(path)
    if place.is_dir():
        raise ExportError(f"{place} is a directory; give the name of a file in it")
    if place.exists() and not place.is_file():
        raise ExportError(f"{place} is no regular file, and could not be replaced by one that is whole")
    if not place.parent.is_dir():
        raise ExportError(f"{place} cannot be written: there is no directory {place.parent}")
    return place

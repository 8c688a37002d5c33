"""How much of the disk something takes."""

from __future__ import annotations

from pathlib import Path

from . import schema
from .opened import Opened
from .recovery import find_run
from .view import View, look


def of_runs(opened: Opened, names: list[str]) -> dict[str, int]:
    """Bytes of each run that is there: its committed records and columns, without what lies around them in pages.

    Reads no record: one step for each 2,048 of them at most.
    """

    def weighed(view: View) -> dict[str, int]:
        found = ((name, find_run(view.reading, name)) for name in names)
        return {name: _of_run(view, run) for name, run in found if run is not None}

    return look(opened, weighed)


def _of_run(view: View, run: int) -> int:
    total = 0
    for kind in schema.OF_RUN:
        prefix = schema.run_prefix(kind, run)
        for key, value in view.reading.items(prefix):
            if not key.startswith(prefix):
                break
            total += len(key) + len(value)
    return total


def of_directory(path: Path) -> int:
    """Bytes of the disk that a directory takes with all in it."""
    total = 0
    for one in path.rglob("*"):
        try:
            total += one.lstat().st_blocks * 512
        except FileNotFoundError:
            continue  # a journal that was committed meanwhile
    return total

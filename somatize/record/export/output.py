"""What an exporter writes and answers: files that are whole or absent, and what had to be left out."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from somatize.errors import ExportError
from somatize.figures.theme import counted


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written of a run into another tool's format.

    `path` is where it lies, None where it went to no file. `wrote` counts by what it is: ``{"forwards": 1000}``.
    `left_out` has a sentence for each thing that the format could not hold, with how often; it is empty where nothing
    was lost.
    """

    path: Path | None
    wrote: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What was written, in words: ``3 forwards, 1 span``."""
        counted = [f"{count:,} {what.removesuffix('s') if count == 1 else what}" for what, count in self.wrote.items()]
        return ", ".join(counted) or "nothing"

    def __str__(self) -> str:
        where = f" to {self.path}" if self.path is not None else ""
        return "\n".join([f"{self.words}{where}", *(f"left out: {sentence}" for sentence in self.left_out)])


class LossCounts:
    """Counts of what was left out, by what it is and why."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, what: str, why: str, count: int = 1) -> None:
        """So many more: `what` in the singular, `why` the end of a sentence that fits one and many."""
        self._counts[what, why] += count

    def sentences(self) -> tuple[str, ...]:
        """A sentence for each, with its count, in the order they were first met."""
        return tuple(f"{counted(count, what)}: {why}" for (what, why), count in self._counts.items() if count)


T = TypeVar("T")


def whole(path: str | os.PathLike[str], write: Callable[[Path], T]) -> T:
    """What `write` answers, given a path beside `path` to write to; that file then takes the place of `path`.

    If it raises, or is interrupted, what it wrote is removed and what was at `path` stays. The file is on the disk
    before it has its name. Raises `ExportError` where there can be no such file.
    """
    place = checked(path)
    beside = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        answer = write(beside)
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(place)
    except OSError as error:
        if error.filename == str(beside):  # the name that was asked for is the one to speak of
            error.filename = str(place)
        raise
    finally:
        beside.unlink(missing_ok=True)
    return answer


def checked(path: str | os.PathLike[str]) -> Path:
    """The path of a file that can be written. Raises `ExportError` for a directory, a pipe, or a place in none."""
    place = Path(path)
    if place.is_dir():
        raise ExportError(f"{place} is a directory; give the name of a file in it")
    if place.exists() and not place.is_file():
        raise ExportError(f"{place} is no regular file, and could not be replaced by one that is whole")
    if not place.parent.is_dir():
        raise ExportError(f"{place} cannot be written: there is no directory {place.parent}")
    return place

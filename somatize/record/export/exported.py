"""What an exporter answers: what it wrote and what it had to leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


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

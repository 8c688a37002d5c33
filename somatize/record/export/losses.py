"""What an export had to leave out, counted as it goes."""

from __future__ import annotations

from collections import Counter

from somatize.figures.theme import counted


class Losses:
    """Counts of what was left out, by what it is and why."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, what: str, why: str, count: int = 1) -> None:
        """So many more: `what` in the singular, `why` the end of a sentence that fits one and many."""
        self._counts[what, why] += count

    def sentences(self) -> tuple[str, ...]:
        """A sentence for each, with its count, in the order they were first met."""
        return tuple(f"{counted(count, what)}: {why}" for (what, why), count in self._counts.items() if count)

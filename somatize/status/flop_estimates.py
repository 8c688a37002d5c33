"""What the steps of a stream did, going by those of them that were counted.

Counted are the first step, the first in each further mode, the second on each further kind of batch, and of each kind
one more now and then. What another step did is told by those that were alike, else scaled by how much work it was.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from .flops import Count
from .sizes import Size

_MOST_COUNTED, _MOST_KINDS, _MOST_WANTED, _TRIES = 64, 256, 16, 8


class Mode(NamedTuple):
    """How a step ran, which tells training from evaluation.

    `recording` is whether gradients were recorded as it began; `passes` is how many backward passes ran meanwhile,
    None where that cannot be told.
    """

    recording: bool
    passes: int | None


class Ran(NamedTuple):
    """A step: how it ran, on how large a batch, and what was counted of it, where it was counted.

    `recorded` is how many operations were recorded for a backward pass; None where that says nothing.
    """

    mode: Mode
    size: Size
    counted: Count | None = None
    recorded: int | None = None


class FlopEstimates:
    """The steps of one stream that were counted, and which are to be."""

    def __init__(self) -> None:
        self._times: dict[Hashable, int] = {}
        """How often steps began that recorded or not, on any batch and on each kind of batch."""
        self._counted: dict[Hashable, int] = {}
        """How often such were counted."""
        self._kinds: dict[tuple[Mode, Hashable, int | None], _Counts] = {}
        self._units: dict[tuple[Mode, str], _Counts] = {}
        self._modes: dict[Mode, _Counts] = {}
        self._wanted: dict[Mode, int] = {}
        """Modes that steps were in and none that was counted, and how often one was counted in the hope of it."""
        self._unlike: dict[Hashable, int] = {}
        """Of kinds of batch that were counted, how often a step then recorded what no counted one did."""
        self._again: set[Hashable] = set()
        self._left = _MOST_COUNTED

    @property
    def idle(self) -> bool:
        """Whether some steps were counted, and none of them is known to have done arithmetic."""
        return bool(self._modes) and not any(counts.flops for counts in self._modes.values())

    def begins(self, recording: bool, size: Size) -> bool:
        """Whether to count the step that begins."""
        key = recording, size.alike
        due = self._is_due(recording) | self._is_due(key)
        if not self._left:
            return False
        if all(mode.recording is not recording for mode in self._modes):
            return True
        if any(mode.recording is recording and tries < _TRIES for mode, tries in self._wanted.items()):
            return True
        return due or key in self._again

    def _is_due(self, key: Hashable) -> bool:
        """Whether a kind comes for the how-manieth time at which it is counted once more."""
        if key not in self._times and len(self._times) >= _MOST_KINDS:
            return False
        times = self._times[key] = self._times.get(key, 0) + 1
        return times >= _due(self._counted.get(key, 0))

    def ran(self, step: Ran) -> None:
        """A step has run."""
        mode, size, count, recorded = step
        key = mode.recording, size.alike
        if count is None:
            if mode not in self._modes and len(self._wanted) < _MOST_WANTED:
                self._wanted.setdefault(mode, 0)
            elif key in self._counted and (mode, size.alike, recorded) not in self._kinds:
                tries = self._unlike[key] = self._unlike.get(key, 0) + 1
                if tries <= _TRIES:
                    self._again.add(key)
            return
        self._left -= 1
        self._again.discard(key)
        for one in (key, mode.recording):
            self._counted[one] = self._counted.get(one, 0) + 1
        for other in self._wanted:
            self._wanted[other] += other.recording is mode.recording
        self._wanted.pop(mode, None)
        self._kinds.setdefault((mode, size.alike, recorded), _Counts()).add(count, size.work)
        self._units.setdefault((mode, size.unit), _Counts()).add(count, size.work)
        self._modes.setdefault(mode, _Counts()).add(count, size.work)

    def of(self, step: Ran) -> Count:
        """What a step did; not exact where it was neither counted itself nor like those that were."""
        mode, size, count, recorded = step
        if count is not None:
            return count
        alike = self._kinds.get((mode, size.alike, recorded)) if size.alike is not None else None
        if alike is not None:
            each = alike.of_each()
            return Count(each.flops, each.exact and mode.passes is not None)
        modes = [mode] if mode.passes is not None else [one for one in self._modes if one.recording is mode.recording]
        if size.work is None:
            found = [counts for one in modes if (counts := self._modes.get(one)) is not None]
            return Count(_share(found, sum(counts.steps for counts in found), 1), False)
        found = [counts for one in modes if (counts := self._units.get((one, size.unit))) is not None]
        return Count(_share(found, sum(counts.work for counts in found), size.work), False)


class _Counts:
    """What was counted of several steps."""

    def __init__(self) -> None:
        self.steps = self.flops = 0
        self.work = 0.0
        self._different: set[Count] = set()

    def add(self, count: Count, work: float | None) -> None:
        if len(self._different) < 2:
            self._different.add(count)
        if count.flops is not None:
            self.steps += 1
            self.flops += count.flops
            self.work += work or 0.0

    def of_each(self) -> Count:
        """What each of them did: exactly, where all did the same; None where that of one is unknown."""
        if any(count.flops is None for count in self._different):
            return Count(None, False)
        return Count(self.flops // self.steps, len(self._different) == 1 and all(one.exact for one in self._different))


def _share(found: list[_Counts], whole: float, part: float) -> int | None:
    flops = sum(counts.flops for counts in found)
    return round(flops * part / whole) if flops and whole else None


def _due(counted: int) -> int:
    """At the how-manieth time a kind is counted that was so many times: 2, 4, 14, 45, 139, 421, ...

    Not at places that are a fixed number apart, or its powers: what comes round in turns would look always the same.
    """
    due = 1
    for number in range(1, counted + 1):
        due = 3 * due + number
    return max(2, due)

"""What the steps of a stream did, going by those of them that were counted.

Counted are the first step, the first in each further mode, the second on each further kind of batch, and of each kind
one more now and then. What another step did is told by those that were alike, else scaled by how much work it was.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from .batch_size import Size
from .flops import Count

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

    `recorded` is how many operations were recorded for a backward pass; None where that says nothing, as where
    something was compiled in it. `compiled` is whether anything was so far: what is compiled records others than where
    it is counted.
    """

    mode: Mode
    size: Size
    counted: Count | None = None
    recorded: int | None = None
    compiled: bool = False


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
        self._recorded: dict[Hashable, set[int | None]] = {}
        """By mode and kind of batch, what counted steps recorded."""
        self._uncounted: set[Hashable] = set()
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

    def ran(self, step: Ran) -> Ran:
        """A step has run; returns it as it is to be asked about."""
        mode, size, count = step[:3]
        if count is None:
            return self._ran_uncounted(step)
        key = mode.recording, size.alike
        self._left -= 1
        self._again.discard(key)
        for one in (key, mode.recording):
            self._counted[one] = self._counted.get(one, 0) + 1
        for other in self._wanted:
            self._wanted[other] += other.recording is mode.recording
        self._wanted.pop(mode, None)
        self._recorded.setdefault((mode, size.alike), set()).add(step.recorded)
        self._kinds.setdefault((mode, size.alike, step.recorded), _Counts()).add(count, size.work)
        self._units.setdefault((mode, size.unit), _Counts()).add(count, size.work)
        self._modes.setdefault(mode, _Counts()).add(count, size.work)
        return step

    def _ran_uncounted(self, step: Ran) -> Ran:
        mode, size = step[:2]
        if mode not in self._modes:
            if step.recorded is not None and len(self._wanted) < _MOST_WANTED:
                self._wanted.setdefault(mode, 0)
            return step
        key, kind = (mode.recording, size.alike), (mode, size.alike)
        known = self._recorded.get(kind, set())
        if step.recorded is None and len(known) == 1 and kind not in self._uncounted:
            step = step._replace(recorded=next(iter(known)))  # the first after a count, which only had to be compiled
        if kind in self._recorded:
            self._uncounted.add(kind)
        if key in self._counted and step.recorded not in known and step.recorded is not None:
            tries = self._unlike[key] = self._unlike.get(key, 0) + 1
            if tries <= (1 if step.compiled else _TRIES):
                self._again.add(key)
        return step

    def of(self, step: Ran) -> Count:
        """What a step did; not exact where it was neither counted itself nor like those that were."""
        mode, size, count = step[:3]
        if count is not None:
            return count
        if size.alike is not None and (alike := self._kinds.get((mode, size.alike, step.recorded))) is not None:
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

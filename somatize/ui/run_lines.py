"""A run as it goes on in plain lines, for a file or a pipe: few enough to read, often enough to know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from somatize.record.run_follower import DIED, ENDED, RECORDED, Followed
from somatize.record.standing import Count, Log, Standing
from somatize.utils.units import count, duration, rate

from .run_parts import at, died, pace
from .text_plot import short

_MOST = 20
"""Log records that are written at once; of more, how many there were."""
_QUIET = 6
"""After how many times as long a line is written though nothing changed."""


class Sentences:
    """The lines that are due: what happened since the last time, and every so often how the run stands."""

    def __init__(self, followed: Followed, every: float, clock: Callable[[], float] = time.time) -> None:
        self._followed = followed
        self._every = every
        self._clock = clock
        self._waited_for = ""
        self._standing: Standing | None = None
        self._state = ""
        self._logs = 0
        self._broken = -1
        self._next = 0.0
        self._said: tuple[float, str] = (0.0, "")

    def due(self) -> Iterator[str]:
        """What is to be written now."""
        followed, standing = self._followed, self._followed.standing
        if standing is None:
            if followed.waits_for != self._waited_for:
                yield f"waiting: {followed.waits_for}"
            self._waited_for, self._standing = followed.waits_for, None
            return
        if standing is not self._standing:
            yield from self._begins(standing)
        yield from self._happened(standing)
        yield from self._stands(standing)
        if followed.state != self._state and followed.state != RECORDED:
            yield self._timed(self.ending())
        self._state = followed.state

    def ending(self) -> str:
        """How the run ended, as far as it did."""
        followed, standing = self._followed, self._followed.standing
        if standing is None:
            return followed.waits_for
        forwards, *otherwise = _counted(standing.count)
        if followed.state == DIED:
            words = ", ".join([f"{forwards} on record", *otherwise])
            return f"{standing.run}: {died(followed, self._clock())}; {words}"
        if followed.state == ENDED:
            return f"{standing.run}: ended after {', '.join([forwards, *otherwise])}"
        return f"{standing.run}: {_how(followed, standing, self._clock())}"

    def _begins(self, standing: Standing) -> Iterator[str]:
        followed = self._followed
        which = f", the newest of {followed.runs:,} runs" if followed.run is None and followed.runs > 1 else ""
        yield self._timed(f"following run {standing.run}{which}")
        self._standing, self._state = standing, RECORDED
        self._logs, self._next = max(0, standing.said - _MOST), 0.0
        self._broken = -1

    def _happened(self, standing: Standing) -> Iterator[str]:
        """Log records and forwards that broke."""
        new = standing.said - self._logs
        self._logs = standing.said
        if new > _MOST:
            yield self._timed(f"and {new - _MOST:,} log records more")
        found = [(log.when, self._log(log)) for log in list(standing.logs)[-min(new, _MOST) :] if new]
        for one in standing.broken:
            if one.forward > self._broken:
                found.append((one.when, f"{at(one.when, self._clock())} forward {one.forward:,} broke: {one.why}"))
                self._broken = one.forward
        yield from (words for _, words in sorted(found, key=lambda pair: pair[0]))

    def _log(self, log: Log) -> str:
        fact = log.fact
        where = f"@{fact['host']} " if fact.get("host") else ""
        source = fact.get("task") or fact.get("node")
        name = f"{source}: " if source else ""
        return f"{at(log.when, self._clock())} {fact.get('level', '')} {where}{name}{fact.get('message', '')}"

    def _stands(self, standing: Standing) -> Iterator[str]:
        now = self._clock()
        if now < self._next:
            return
        words = _how(self._followed, standing, now)
        if self._followed.state == RECORDED or not self._said[1]:
            key = f"{standing.count} {standing.going_on} {[one.done for one in standing.tasks.values()]}"
            if key != self._said[1] or now - self._said[0] >= _QUIET * self._every:
                self._said = now, key
                yield self._timed(f"{standing.run}: {words}")
        self._next = now + self._every

    def _timed(self, words: str) -> str:
        now = self._clock()
        return f"{at(now, now)} {words}"


def _counted(counts: Count) -> list[str]:
    """How many forwards there are, and how many of them ended otherwise than well."""
    named = ((counts.broke, "broke"), (counts.interrupted, "interrupted"), (counts.lost, "lost"))
    words = f"{counts.forwards:,} forward{'s' * (counts.forwards != 1)}"
    return [words, *(f"{number:,} {word}" for number, word in named if number)]


def _how(followed: Followed, standing: Standing, now: float) -> str:
    """How a run stands, in one line."""
    words = _counted(standing.count)
    speed = pace(followed, standing, now)
    words += [rate(speed)] if speed is not None else []
    words += [f"{curve.name} {_short(curve.last[1])}" for curve in standing.curves[1:] if curve.last is not None]
    if followed.state == RECORDED:
        for task in standing.open_tasks(followed.alive):
            total = f"/{count(task.total)}" if task.total else ""
            left = f", {duration(task.remaining)} left" if task.remaining is not None else ""
            words.append(f"{task.fact.get('name', '')} {count(task.done)}{total}{left}")
        for one in standing.going_on[:3]:
            inside = f"in {', '.join(one.inside)}" if one.inside else "between nodes"
            words.append(f"forward {one.forward:,} {inside} for {duration(max(0.0, now - one.since))}")
    return ", ".join(words)


def _short(text: str) -> str:
    try:
        return short(float(text))
    except ValueError:
        return text[:24]

"""The terminal view of a run that another process records: `RunView`, a renderable of Rich.

`Parts` makes its parts from the state of the run. A part has a least and a most number of lines; `_arranged` shares
out the height of the terminal among them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from somatize.facts import Fact
from somatize.figures import theme
from somatize.figures.theme import counted
from somatize.record.run_follower import DIED, RECORDED, Followed
from somatize.record.run_info import progress_words
from somatize.record.run_state import Broken, Curve, GoingOn, HostSpent, Log, OpenTaskState, Standing
from somatize.status.throughput import ThroughputStats
from somatize.store.node_tally import Spent
from somatize.store.run_summary import FAILED, FINISHED, INTERRUPTED
from somatize.utils.units import count, duration, rate

from .rich_backend import (
    Console,
    ConsoleOptions,
    Group,
    RenderableType,
    RenderResult,
    Table,
    Text,
    cut,
    filled,
    literal,
    overflow,
    text_line,
)
from .status_views import log_line, stream_line, throughput_words
from .text_plot import TextPlot, short_text

_BAR, _GAP, _LEAST_NAME, _NARROW = 18, 2, 10, 50
_LOW, _HIGH = 5, 16
"""The smallest and the largest number of lines of a plot."""
_WIDE, _BESIDE = 120, 0.55
"""From how many columns on there are two columns, and how much of them the first has."""
_AIRY = 34
"""From how many lines on there is an empty line between parts."""
_DAY = 86400.0


class Part(NamedTuple):
    """A part of the view: it gets `least` lines before another gets more, and can use `most`.

    `render` takes a number of lines and returns renderables of at most that height in all.
    """

    least: int
    most: int
    render: Callable[[int], Sequence[RenderableType]]


class Parts:
    """The parts of the view for one console; `now` is in seconds since 1970."""

    def __init__(self, followed: Followed, standing: Standing, options: ConsoleOptions, now: float) -> None:
        self.followed = followed
        self.standing = standing
        self.options = options
        self.now = now
        self._width = options.max_width

    # -- the heading

    def head(self, most: int = 3) -> list[Text]:
        """The run, its state, its number of forwards, and at most `most` of the forwards that are open."""
        line = self._line(self._cut(self.standing.run, max(8, self._width - 30)), "bold")
        mark, words, style = self._state()
        line.append(f"  {mark} {self._shown(words)}", style=f"not bold {style}")
        found = self.standing.going_on if self.followed.state == RECORDED else []
        lines = [line, self._counts(), *map(self._open, found[:most])]
        if len(found) > most:
            lines.append(self._line(f"and {len(found) - most:,} more go on", "dim"))
        return lines

    def _state(self) -> tuple[str, str, str]:
        followed, ascii_only = self.followed, self.options.ascii_only
        if followed.state == RECORDED:
            alive = [one for one in followed.writers.values() if one.alive]
            who = f"process {alive[0].pid} on {alive[0].host}" if len(alive) == 1 else f"{len(alive)} processes"
            return "*" if ascii_only else "●", f"recorded by {who}", "green"
        if followed.state == DIED:
            return "x" if ascii_only else "✗", died(followed, self.now), "red"
        how, why = how_ended(followed)
        ended = f"{how}, {at(followed.last, self.now)}" if followed.last else how
        if how == _ENDED:
            return "-" if ascii_only else "○", ended, "dim"
        return "x" if ascii_only else "✗", f"{ended}{why}", "red"

    def _counts(self) -> Text:
        standing, counts = self.standing, self.standing.count
        line = self._line(counted(counts.forwards, "forward"))
        for number, word in ((counts.broke, "broke"), (counts.interrupted, "interrupted"), (counts.lost, "lost")):
            if number:
                line.append(", ").append(f"{number:,} {word}", style="red")
        speed = pace(self.followed, standing, self.now)
        if speed is not None:
            line.append(f", {rate(speed)}")
        if standing.last is not None:
            line.append(self._shown(f", the last took {duration(standing.last.took_us / 1e6)}"))
            if speed is None and self.followed.state == RECORDED:
                line.append(self._shown(f", {duration(max(0.0, self.now - standing.last.when))} ago"), style="dim")
        return line

    def _open(self, one: GoingOn) -> Text:
        line = self._line(f"forward {one.forward:,} ", "dim")
        took = duration(max(0.0, self.now - one.began))
        if not one.inside:
            return line.append(self._shown(f"goes on for {took}, between nodes"), style="not dim")
        line.append("is in ", style="not dim")
        line.append(self._cut(", ".join(one.inside), max(8, self._width - 50)), style="bold not dim")
        if one.progress:
            return line.append(self._shown(f", {progress_words(one.progress)}, {took} in all"), style="not dim")
        inside = duration(max(0.0, self.now - one.since))
        return line.append(self._shown(f" for {inside}, {took} in all"), style="not dim")

    # -- curves

    def curves(self, height: int) -> Part:
        """The curves above each other; without any, the durations of forwards."""
        curves = [curve for curve in self.standing.curves[1:] if curve.last is not None] or [self.standing.took]
        if not any(curve.buckets.extents() for curve in curves):
            return Part(1, 1, partial(self._plot, curves[0]))
        most = min(_HIGH * len(curves), max(_LOW, height * 2 // 3))

        def render(lines: int) -> list[RenderableType]:
            each, more = divmod(lines, len(curves))
            if each < _LOW:
                return self._plot(curves[0], lines)
            return [one for place, curve in enumerate(curves) for one in self._plot(curve, each + (place < more))]

        return Part(min(_LOW * len(curves), height // 3), most, render)

    def _plot(self, curve: Curve, lines: int) -> list[RenderableType]:
        """A plot with its title and last value."""
        extents = curve.buckets.extents()
        name, unit, size = curve.name, "", 1.0
        if name == "took_us":
            unit, size = theme.unit(max((high for _, _, high in extents), default=0.0))
            name = "a forward took"
        title = self._line(name, "bold")
        end = 0
        if curve.last is not None:
            end, value = curve.last
            title.append(self._shown(f"  {short_text(value, unit, size)}"), style="cyan")
            title.append(f"  in forward {end:,}", style="not bold dim")
        if lines < 3:
            return [title]
        return [title, TextPlot(extents, lines - 1, unit=size, suffix=unit, end=end)]

    # -- where the time goes

    def nodes(self, most: int) -> Part:
        """The nodes that took longest lately, with bars."""
        spent = self.standing.lately.nodes()
        whole = sum(one.us for one in spent)

        def render(lines: int) -> list[RenderableType]:
            shown = spent[: lines - 1]
            title = f"where the time goes, in {counted(self.standing.lately.forwards, 'forward')} lately"
            more = f"; {len(spent) - len(shown):,} more nodes" if len(spent) > len(shown) else ""
            return [self._line(title + more, "dim"), self._table([one.node, *self._node(one, whole)] for one in shown)]

        return Part(4, min(most, len(spent) + 1) if whole else 0, render)

    def _node(self, spent: Spent, whole: int) -> list[Text]:
        share = spent.us / whole
        failed, recalled = spent.count("failed"), spent.count("recalled")
        words = [str(where) for where in dict.fromkeys(where for where, _ in spent.turns) if any(where)]
        words += [f"{recalled:,} recalled"] * bool(recalled)
        said = self._line(", ".join(words), "cyan")
        if failed:
            said.append(f"{', ' * bool(words)}{failed:,} failed", style="red")
        mean = "" if spent.mean_us is None else duration(spent.mean_us / 1e6)
        return [self._bar(share), Text(theme.share(share)), self._line(mean, "dim"), said]

    def hosts(self, most: int) -> Part:
        """The totals and recent times of each host."""
        lately = self.standing.lately
        hosts = list(lately.hosts().items())

        def render(lines: int) -> list[RenderableType]:
            busy = {lately.home.get(node) for one in self.standing.going_on for node in one.inside}
            title = self._line("hosts, working of the time waited for them", "dim")
            rows = ([host, *self._host(host, spent, host in busy)] for host, spent in hosts[: lines - 1])
            return [title, self._table(rows)]

        return Part(3, min(most, len(hosts) + 1) if hosts else 0, render)

    def _host(self, host: str, spent: HostSpent, working: bool) -> list[Text]:
        words = [counted(spent.slices, "slice")]
        said = list(self.standing.machines.get(host, {}).values())
        if said:
            busy = [number for one in said if (number := _number(one.get("busy"))) is not None]
            cores = f"{said[-1].get('cores', '?')} cores"
            words.append(f"{sum(busy):.3g} of {cores}" if busy else cores)
        line = self._line(", ".join(words), "dim")
        if spent.failures:
            line.append(f", {spent.failures:,} failed", style="red not dim")
        state = Text("working", style="green") if working else Text("waiting", style="dim")
        if not spent.trip_us:  # nothing came back yet
            return [Text(""), Text(""), state, line]
        share = min(1.0, spent.ran_us / spent.trip_us)
        return [self._bar(share), Text(theme.share(share)), state, line]

    # -- tasks, streams, errors, logs

    def tasks(self, most: int) -> Part:
        """The open tasks, with bars and what remains."""
        found = list(self.standing.open_tasks(self.followed.alive))
        return Part(2, min(most, len(found)), lambda lines: [self._table(map(self._task, found[-lines:]))])

    def _task(self, task: OpenTaskState) -> list[str | Text]:
        since = max(0.0, self.now - task.when)
        total = task.total
        done = "" if not task.done and total is None else count(task.done) + (f"/{count(total)}" if total else "")
        remaining = "" if task.remaining is None else f"{duration(max(0.0, task.remaining - since))} left"
        return [
            task.fact.get("name", ""),
            self._bar(min(0.99, task.done / total)) if total and task.done <= total else Text(""),
            Text(done),
            self._line(duration(task.elapsed + since)),
            self._line(remaining, "dim"),
        ]

    def streams(self, most: int) -> Part:
        """The throughput of each stream of batches."""
        lines = [
            stream_line(name, throughput_words(_stats(fact)) or "0 batches", self.options)
            for name, fact in self.standing.streams.items()
        ]
        return Part(1, min(most, len(lines)), lambda number: lines[:number])

    def broken(self, most: int) -> Part:
        """The errors of the last broken forwards."""
        found = list(self.standing.broken)
        return Part(1, min(most, len(found)), lambda lines: [*map(self._broke, found[-lines:])])

    def _broke(self, one: Broken) -> Text:
        line = self._line(f"{at(one.when, self.now)} ", "dim")
        line.append(f"forward {one.forward:,} broke: ", style="red not dim")
        return line.append(self._shown(one.why), style="not dim")

    def logs(self, most: int) -> Part:
        """The last log records."""
        found = list(self.standing.logs)
        return Part(2, min(most, len(found)), lambda lines: [*map(self._log, found[-lines:])])

    def _log(self, log: Log) -> Text:
        fact, when = log.fact, at(log.when, self.now)
        level, message, host = (fact.get(field) or "" for field in ("level", "message", "host"))
        source = fact.get("task") or fact.get("node") or ""
        return log_line(when, level, message, self.options, host=host, source=source)

    # -- pieces of lines

    def _table(self, rows: Iterable[Sequence[Any]]) -> Table:
        """Rows of a name, a bar where there is room, two values aligned to the right, and a remark.

        A name that is too long is cut in its middle; at most a quarter of the width is kept free for the remarks.
        """
        rows = list(rows)
        bar = _BAR if self._width >= _NARROW else 0
        first, second, remark = (max((row[at].cell_len for row in rows), default=0) + _GAP for at in (2, 3, 4))
        free = self._width - (bar + _GAP) * bool(bar)
        second = min(second, (free - _LEAST_NAME - _GAP) // 2)
        first = min(first, free - _LEAST_NAME - _GAP - second)
        room = free - first - second - min(remark, self._width // 4) - _GAP
        table = Table.grid(padding=(0, _GAP, 0, 0))
        table.add_column(no_wrap=True)
        if bar:
            table.add_column(width=bar)
        for width in (first - _GAP, second - _GAP):
            table.add_column(justify="right", no_wrap=True, overflow=overflow(self.options), width=max(1, width))
        table.add_column()
        for name, *cells in rows:
            table.add_row(self._line(self._cut(name, max(_LEAST_NAME, room))), *(cells if bar else cells[1:]))
        return table

    def _bar(self, share: float) -> Text:
        """A share as a bar; unlike Rich's `ProgressBar` it shows the rest without colours too."""
        full = round(min(1.0, max(0.0, share)) * _BAR)
        if self.options.ascii_only:
            return Text("#" * full + "." * (_BAR - full))
        return Text("━" * full, style="cyan").append("┄" * (_BAR - full), style="bright_black")

    def _line(self, words: str = "", style: str = "") -> Text:
        return text_line(words, self.options, style)

    def _shown(self, words: object) -> str:
        return literal(words, self.options.encoding)

    def _cut(self, words: str, width: int) -> str:
        return cut(self._shown(words), width)


def at(when: float, now: float) -> str:
    """The time of day, with the date where that is another."""
    if not when:
        return "--:--:--"
    shape = "%H:%M:%S" if abs(now - when) < _DAY / 2 else "%Y-%m-%d %H:%M:%S"
    return time.strftime(shape, time.localtime(when))


def died(followed: Followed, now: float) -> str:
    """A note that a run's writer died, and when, as far as known."""
    last = max(followed.writers.values(), key=lambda one: one.heard)
    who = f"its writer, process {last.pid} on {last.host}, died"
    if followed.died_at is not None:
        return f"{who} at {at(followed.died_at, now)}"
    return f"{who} after {at(last.heard, now)}"


def pace(followed: Followed, standing: Standing, now: float) -> float | None:
    """Forwards per second; None if the run stands still or has no live writer."""
    speed = standing.rate()
    if speed is None or followed.state != RECORDED or standing.last is None:
        return None
    return speed if now - standing.last.when <= max(10.0, 10 / speed) else None


def _stats(fact: Fact) -> ThroughputStats:
    """The statistics of a stream from the fact that reported them."""
    rates = ("samples_per_s", "batches_per_s", "flops_per_s", "waiting")
    numbers = {field: _number(fact.get(field)) for field in rates}
    exact = fact.get("flops_exact") == "True"
    return ThroughputStats(samples=None, batches=int(_number(fact.get("batches")) or 0), flops_exact=exact, **numbers)


def _number(text: str | None) -> float | None:
    """The finite number that a fact has as text, else None."""
    try:
        number = float(text or "nan")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


_ENDED = "ended"


def how_ended(followed: Followed) -> tuple[str, str]:
    """How a run that nobody records any more ended, and why, behind a colon if that is known."""
    end = followed.end
    if end is None or end.state == FINISHED:
        return _ENDED, ""
    words = {FAILED: "failed", INTERRUPTED: "was interrupted"}.get(end.state, "was killed")
    return words, f": {theme.brief(end.why)}" if end.why else ""


class RunView:
    """A run that is followed: its curves and rate, where its time goes, what is open, what broke, its logs.

    A renderable for any layout of Rich; it shows the state after the last ``followed.look()``, which the caller does.
    It fills ``options.height`` where that is given, else it is at most as high as the console. Readable from 80 by 24.
    """

    def __init__(
        self, followed: Followed, *, footer: str = "", note: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        """`footer` is the text at the lower right, `note` the line above it."""
        self.followed = followed
        self.footer = footer
        self.note = note
        self._clock = clock

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        foot = self._foot(options)
        lines = Group(*self._lines(options, (options.height or console.height) - len(foot)))
        yield Group(lines, *foot) if options.height is None else filled(lines, foot)

    def _lines(self, options: ConsoleOptions, height: int) -> Sequence[RenderableType]:
        standing, now = self.followed.standing, self._clock()
        if standing is None:
            lines = theme.wrapped(f"waiting: {self.followed.waits_for}", max(20, options.max_width - 2))
            return [text_line(line, options) for line in lines]
        whole = Parts(self.followed, standing, options, now)
        if options.max_width < _WIDE:
            head = whole.head(1 if height < _AIRY else 3)
            return [*head, *_arranged(_stacked(whole, height), height - len(head), airy=height >= _AIRY)]
        head = [*whole.head(), Text("")]
        left = int(options.max_width * _BESIDE)
        columns = Table.grid(padding=(0, _GAP, 0, 0))
        cells = []
        for width, parts in ((left - _GAP, _left), (options.max_width - left, _right)):
            columns.add_column(width=width)
            narrow = Parts(self.followed, standing, options.update(width=width), now)
            cells.append(Group(*_arranged(parts(narrow, height - len(head)), height - len(head), airy=True)))
        columns.add_row(*cells)
        return [*head, columns]

    def _foot(self, options: ConsoleOptions) -> list[Text]:
        followed = self.followed
        words = f"{followed.path.name}: "
        if followed.run is not None:
            words += "this run only"
        elif followed.runs > 1:
            words += f"the newest of {followed.runs:,} runs"
        else:
            words += "its runs, the newest first" if not followed.runs else "its only run"
        line = text_line(words, options, "dim")
        line.truncate(max(0, options.max_width - len(self.footer) - 2), overflow="crop", pad=True)
        if self.footer:
            line.append(f"  {self.footer}")
        return [text_line(self.note, options, "yellow"), line] if self.note else [line]


def _stacked(parts: Parts, height: int) -> list[Part]:
    return [
        parts.curves(height),
        parts.nodes(9),
        parts.hosts(6),
        parts.tasks(6),
        parts.streams(3),
        parts.broken(4),
        parts.logs(12),
    ]


def _left(parts: Parts, height: int) -> list[Part]:
    return [parts.curves(height), parts.broken(4), parts.logs(height // 2)]


def _right(parts: Parts, height: int) -> list[Part]:
    return [parts.nodes(max(5, height // 2)), parts.hosts(10), parts.tasks(10), parts.streams(4)]


def _arranged(parts: Sequence[Part], height: int, *, airy: bool) -> list[RenderableType]:
    """The parts above each other: each its minimum in order, then the rest in turns."""
    parts = [part for part in parts if part.most > 0]
    room = height - airy * max(0, len(parts) - 1)
    given = []
    for part in parts:
        given.append(max(0, min(part.least, part.most, room)))
        room -= given[-1]
    while room > 0 and any(have < part.most for have, part in zip(given, parts, strict=True)):
        for place, part in enumerate(parts):
            if given[place] < part.most and room > 0:
                given[place] += 1
                room -= 1
    lines: list[RenderableType] = []
    for part, have in zip(parts, given, strict=True):
        if have > 0:
            lines += [Text("")] * (airy and bool(lines))
            lines += part.render(have)
    return lines

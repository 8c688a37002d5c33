"""A run as it stands, for a terminal: its parts, and the room they get."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from somatize.facts import Fact
from somatize.figures import theme
from somatize.figures import theme as themes
from somatize.record.reader import Spent
from somatize.record.run_follower import DIED, ENDED, RECORDED, Followed
from somatize.record.run_state import Broken, Curve, GoingOn, HostSpent, Log, OpenTaskState, Standing
from somatize.utils.units import count, duration, rate, scaled

from .rich_backend import Console, ConsoleOptions, Group, RenderResult, Text, cell_len, cut, literal
from .status_views import COLOURS
from .text_plot import TextPlot, short

_BAR, _GAP, _LEAST_NAME, _NARROW = 18, 2, 10, 50
_DAY = 86400.0


class Parts:
    """Makes the parts for one console; `now` is the time it is, in seconds since 1970."""

    def __init__(self, followed: Followed, standing: Standing, options: ConsoleOptions, now: float) -> None:
        self.followed = followed
        self.standing = standing
        self.width = options.max_width
        self.now = now
        self._encoding = options.encoding
        self._plain = options.ascii_only

    # -- how it stands

    def head(self) -> list[Text]:
        """The heading: the run, whether it is being recorded, and its number of forwards."""
        line = self._line()
        line.append(self._cut(self.standing.run, max(8, self.width - 30)), style="bold")
        mark, words, style = self._state()
        line.append(f"  {mark} ", style=style)
        line.append(self._shown(words), style=style)
        return [line, self._counts()]

    def _state(self) -> tuple[str, str, str]:
        followed = self.followed
        if followed.state == RECORDED:
            alive = [one for one in followed.writers.values() if one.alive]
            who = f"process {alive[0].pid} on {alive[0].host}" if len(alive) == 1 else f"{len(alive)} processes"
            return "*" if self._plain else "●", f"recorded by {who}", "green"
        if followed.state == DIED:
            return "x" if self._plain else "✗", died(followed, self.now), "red"
        return "-" if self._plain else "○", f"ended, {self._at(followed.last)}" if followed.last else "ended", "dim"

    def _counts(self) -> Text:
        standing, counts = self.standing, self.standing.count
        line = self._line()
        line.append(f"{counts.forwards:,} forward{'s' * (counts.forwards != 1)}")
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

    def going_on(self, most: int = 3) -> list[Text]:
        """The forwards that are open: the nodes each is in, and for how long."""
        found = self.standing.going_on if self.followed.state == RECORDED else []
        lines = [self._open(one) for one in found[:most]]
        if len(found) > most:
            lines.append(self._line(f"and {len(found) - most:,} more go on", style="dim"))
        return lines

    def _open(self, one: GoingOn) -> Text:
        line = self._line(f"forward {one.forward:,} ", style="dim")
        took = duration(max(0.0, self.now - one.began))
        if not one.inside:
            return line.append(self._shown(f"goes on for {took}, between nodes"), style="not dim")
        line.append("is in ", style="not dim")
        line.append(self._cut(", ".join(one.inside), max(8, self.width - 50)), style="bold not dim")
        inside = duration(max(0.0, self.now - one.since))
        return line.append(self._shown(f" for {inside}, {took} in all"), style="not dim")

    # -- where the time goes

    def nodes(self, most: int) -> list[Text]:
        """The nodes that took longest lately, with bars."""
        spent = self.standing.lately.nodes()
        whole = sum(one.us for one in spent)
        if not whole or most < 2:
            return []
        shown = spent[: most - 1]
        rows = [self._node(one, whole) for one in shown]
        forwards = self.standing.lately.forwards
        title = f"where the time goes, in {forwards:,} forward{'s' * (forwards != 1)} lately"
        more = f"; {len(spent) - len(shown):,} more nodes" if len(spent) > len(shown) else ""
        return [self._title(title + more), *self._table(rows, [one.node for one in shown])]

    def _node(self, spent: Spent, whole: int) -> list[Text]:
        share = spent.us / whole
        failed, recalled = spent.count("failed"), spent.count("recalled")
        words = [str(where) for where in dict.fromkeys(where for where, _ in spent.turns) if any(where)]
        words += [f"{recalled:,} recalled"] * bool(recalled)
        said = Text(self._shown(", ".join(words)), style="cyan")
        if failed:
            said.append(f"{', ' * bool(words)}{failed:,} failed", style="red")
        mean = "" if spent.mean_us is None else duration(spent.mean_us / 1e6)
        return [self._bar(share), Text(themes.share(share)), Text(self._shown(mean), style="dim"), said]

    def hosts(self) -> list[Text]:
        """The totals and recent times of each host."""
        hosts = self.standing.lately.hosts()
        if not hosts:
            return []
        inside = {node for one in self.standing.going_on for node in one.inside}
        busy = {self.standing.lately.home[node] for node in inside if node in self.standing.lately.home}
        rows = [self._host(host, spent, working=host in busy) for host, spent in hosts.items()]
        return [self._title("hosts, working of the time waited for them"), *self._table(rows, list(hosts))]

    def _host(self, host: str, spent: HostSpent, *, working: bool) -> list[Text]:
        share = min(1.0, spent.ran_us / spent.trip_us) if spent.trip_us else None
        words = [f"{spent.slices:,} slice{'s' * (spent.slices != 1)}"]
        said = list(self.standing.machines.get(host, {}).values())
        if said:
            busy = [_number(one["busy"]) for one in said if "busy" in one]
            cores = f"{said[-1].get('cores', '?')} cores"
            words.append(f"{sum(busy):.3g} of {cores}" if busy else cores)
        line = Text(self._shown(", ".join(words)), style="dim")
        if spent.failures:
            line.append(f", {spent.failures:,} failed", style="red not dim")
        state = Text("working", style="green") if working else Text("waiting", style="dim")
        if share is None:  # nothing came back yet
            return [Text(""), Text(""), state, line]
        return [self._bar(share), Text(themes.share(share)), state, line]

    # -- what a Status said

    def tasks(self, most: int) -> list[Text]:
        """The open tasks, with bars and what remains."""
        found = list(self.standing.open_tasks(self.followed.alive))
        if not found or most < 1:
            return []
        shown = found[-most:]
        return self._table([self._task(one) for one in shown], [one.fact.get("name", "") for one in shown])

    def _task(self, task: OpenTaskState) -> list[Text]:
        since = max(0.0, self.now - task.when)
        total = task.total
        done = "" if not task.done and total is None else count(task.done) + (f"/{count(total)}" if total else "")
        remaining = "" if task.remaining is None else f"{duration(max(0.0, task.remaining - since))} left"
        return [
            self._bar(min(0.99, task.done / total)) if total and task.done <= total else Text(""),
            Text(done),
            Text(self._shown(duration(task.elapsed + since))),
            Text(self._shown(remaining), style="dim"),
        ]

    def streams(self, most: int) -> list[Text]:
        """The throughput of each stream of batches."""
        lines = []
        for name, fact in list(self.standing.streams.items())[:most]:
            line = self._line(f"{name}  ", style="bold")
            lines.append(line.append(self._shown(", ".join(stream(fact))), style="not bold dim"))
        return lines

    # -- what was said

    def broken(self, most: int) -> list[Text]:
        """The errors of the last broken forwards."""
        return [self._broke(one) for one in list(self.standing.broken)[-most:]] if most > 0 else []

    def _broke(self, one: Broken) -> Text:
        line = self._line(f"{self._at(one.when)} ", style="dim")
        line.append(f"forward {one.forward:,} broke: ", style="red not dim")
        return line.append(self._shown(one.why), style="not dim")

    def logs(self, most: int) -> list[Text]:
        """The last log records."""
        return [self.log(one) for one in list(self.standing.logs)[-most:]] if most > 0 else []

    def log(self, log: Log) -> Text:
        """One log record."""
        fact = log.fact
        name = fact.get("level", "")
        line = self._line(f"{self._at(log.when)} ", style="dim")
        line.append(f"{self._shown(name):8}", style=f"{COLOURS.get(level_of(name), 'none')} not dim")
        if fact.get("host"):
            line.append(f"@{self._shown(fact['host'])} ", style="cyan not dim")
        if fact.get("task") or fact.get("node"):
            line.append(f"{self._shown(fact.get('task') or fact.get('node'))}: ")
        return line.append(self._shown(fact.get("message", "")), style="not dim")

    # -- made of

    def _table(self, rows: Sequence[Sequence[Text]], names: Sequence[str]) -> list[Text]:
        """A line for each row: its name, the bar, two words at the right of their columns, and the rest."""
        shown = [self._shown(name) for name in names]
        first, second, rest = (max((row[at].cell_len for row in rows), default=0) for at in (1, 2, 3))
        bar = _BAR if self.width >= _NARROW else 0
        taken = first + second + 2 * _GAP + (bar + _GAP) * bool(bar)
        room = self.width - taken - min(rest + _GAP, self.width // 4)
        room = max(_LEAST_NAME, min(room, max(map(cell_len, shown), default=0)))
        return [self._row(name, row, room, bar, first, second) for name, row in zip(shown, rows, strict=True)]

    def _row(self, name: str, row: Sequence[Text], room: int, bar: int, first: int, second: int) -> Text:
        line = self._line(_padded(cut(name, room), room))
        for cell, width in ((row[0], bar), (row[1], -first), (row[2], -second)):
            if width:
                space = " " * (abs(width) - cell.cell_len)
                line.append(" " * _GAP)
                line.append_text(cell if width > 0 else Text(space).append_text(cell))
                line.append(space if width > 0 else "")
        return line.append(" " * _GAP).append_text(row[3])

    def _bar(self, share: float) -> Text:
        """A share as a bar."""
        full = round(min(1.0, max(0.0, share)) * _BAR)
        if self._plain:
            return Text("#" * full + "." * (_BAR - full))
        return Text("━" * full, style="cyan").append("┄" * (_BAR - full), style="bright_black")

    def _title(self, words: str) -> Text:
        return self._line(words, style="dim")

    def _line(self, words: str = "", style: str = "") -> Text:
        return Text(self._shown(words), style=style, no_wrap=True, overflow="crop" if self._plain else "ellipsis")

    def _shown(self, words: object) -> str:
        return literal(words, self._encoding)

    def _cut(self, words: str, width: int) -> str:
        return cut(self._shown(words), width)

    def _at(self, when: float) -> str:
        return at(when, self.now)


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


def stream(fact: Fact) -> list[str]:
    """The last throughput of a stream, in words."""
    batches = _number(fact.get("batches"))
    words = [f"{count(batches)} batch{'es' * (batches != 1)}"]
    for field, unit in (("samples_per_s", "samples/s"), ("batches_per_s", "batches/s")):
        if field in fact:
            words.append(f"{scaled(_number(fact[field]))} {unit}")
            break
    if "flops_per_s" in fact:
        about = "" if fact.get("flops_exact") == "True" else "about "
        words.append(about + scaled(_number(fact["flops_per_s"]), "FLOP/s"))
    if "waiting" in fact:
        words.append(f"{themes.share(_number(fact['waiting']))} waiting for data")
    return words


def level_of(name: str) -> int:
    """The number of a level of logging by its name."""
    return logging.getLevelNamesMapping().get(name, logging.INFO)


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _padded(words: str, width: int) -> str:
    return words + " " * (width - cell_len(words))


__all__ = ["ENDED", "Parts", "at", "died", "level_of", "pace", "stream"]


_LOW, _HIGH = 5, 16
"""The smallest and the largest number of lines of a plot."""
_WIDE, _BESIDE = 120, 0.55
"""From how many columns on there are two columns, and how much of them the first has."""
_AIRY = 34
"""From how many lines on parts stand apart."""


class RunView:
    """A run that is followed: its loss, rate and time, what is open, what broke and what was said.

    A renderable: put it in any layout of Rich; it shows what `followed` knows. `look` first, or give it to something
    that does. It is as high as it is given room for, ``options.height`` or the console's, and readable from 80 by 24.
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
        room = (options.height or console.height) - len(foot)
        lines = self._lines(options, room)
        if options.height is not None:
            lines += [Text("")] * (room - len(lines))
        yield Group(*lines[: max(0, room)], *foot)

    def _lines(self, options: ConsoleOptions, room: int) -> list[Text]:
        standing = self.followed.standing
        if standing is None:
            return _waiting(self.followed, options)
        if options.max_width >= _WIDE:
            return self._beside(standing, options, room)
        return _stacked(Parts(self.followed, standing, options, self._clock()), standing, options, room)

    def _foot(self, options: ConsoleOptions) -> list[Text]:
        followed = self.followed
        words = f"{followed.path.name}: "
        if followed.run is not None:
            words += "this run only"
        elif followed.runs > 1:
            words += f"the newest of {followed.runs:,} runs"
        else:
            words += "its runs, the newest first" if not followed.runs else "its only run"
        line = Text(literal(words, options.encoding), style="dim", no_wrap=True, overflow="crop")
        room = options.max_width - len(self.footer) - 2
        line.truncate(max(0, room), pad=True)
        if self.footer:
            line.append(f"  {self.footer}")
        note = Text(literal(self.note, options.encoding), style="yellow", no_wrap=True, overflow="crop")
        return [note, line] if self.note else [line]

    def _beside(self, standing: Standing, options: ConsoleOptions, height: int) -> list[Text]:
        """Two columns below the heading: logs at the left, times at the right."""
        left = int(options.max_width * _BESIDE)
        now = self._clock()
        whole = Parts(self.followed, standing, options, now)
        head = [*whole.head(), *whole.going_on(), Text("")]
        room = height - len(head)
        first, second = options.update(width=left - 2), options.update(width=options.max_width - left)
        ones = _curves_and_logs(Parts(self.followed, standing, first, now), standing, first, room)
        others = _time_and_tasks(Parts(self.followed, standing, second, now), room)
        return [*head, *(_side_by_side(pair, left) for pair in _zipped(ones[:room], others[:room]))]


class _Wanted(NamedTuple):
    """A part: makes its lines for a number of them, of which it needs some at least, and can use some at most."""

    make: Callable[[int], list[Text]]
    least: int
    most: int


def _stacked(parts: Parts, standing: Standing, options: ConsoleOptions, height: int) -> list[Text]:
    head = [*parts.head(), *parts.going_on(1 if height < _AIRY else 3)]
    wanted = [
        _plotted(standing, options, height),
        _Wanted(parts.nodes, 4, 9),
        _Wanted(lambda most: parts.hosts()[:most], 3, 6),
        _Wanted(parts.tasks, 2, 6),
        _Wanted(parts.streams, 1, 3),
        _Wanted(parts.broken, 1, 4),
        _Wanted(parts.logs, 2, 12),
    ]
    return [*head, *_arranged(wanted, height - len(head), airy=height >= _AIRY)]


def _curves_and_logs(parts: Parts, standing: Standing, options: ConsoleOptions, height: int) -> list[Text]:
    wanted = [_plotted(standing, options, height), _Wanted(parts.broken, 1, 4), _Wanted(parts.logs, 2, height // 2)]
    return _arranged(wanted, height, airy=True)


def _time_and_tasks(parts: Parts, height: int) -> list[Text]:
    wanted = [
        _Wanted(parts.nodes, 4, max(5, height // 2)),
        _Wanted(lambda most: parts.hosts()[:most], 3, 10),
        _Wanted(parts.tasks, 2, 10),
        _Wanted(parts.streams, 1, 4),
    ]
    return _arranged(wanted, height, airy=True)


def _arranged(wanted: list[_Wanted], height: int, *, airy: bool) -> list[Text]:
    """The parts above each other: each its minimum in order, then the rest in turns."""
    sizes = [len(part.make(part.most)) for part in wanted]
    apart = airy * max(0, sum(size > 0 for size in sizes) - 1)
    room = height - apart
    given = []
    for part, size in zip(wanted, sizes, strict=True):
        given.append(max(0, min(part.least, size, room)))
        room -= given[-1]
    while room > 0 and any(have < size for have, size in zip(given, sizes, strict=True)):
        for place, size in enumerate(sizes):
            if given[place] < size and room > 0:
                given[place] += 1
                room -= 1
    lines: list[Text] = []
    for part, have in zip(wanted, given, strict=True):
        made = part.make(have)[:have] if have else []
        if made and lines and airy:
            lines.append(Text(""))
        lines += made
    return lines[:height]


# -- curves


def _plotted(standing: Standing, options: ConsoleOptions, height: int) -> _Wanted:
    """The curves above each other; without any, the durations of forwards."""
    curves = [curve for curve in standing.curves[1:] if curve.last is not None] or [standing.took]
    most = min(_HIGH * len(curves), max(_LOW, height * 2 // 3))

    def make(lines: int) -> list[Text]:
        each, more = divmod(lines, len(curves))
        if each < _LOW:
            return _plot(curves[0], options, lines)
        heights = [each + (place < more) for place in range(len(curves))]
        return [line for curve, high in zip(curves, heights, strict=True) for line in _plot(curve, options, high)]

    return _Wanted(make, min(_LOW * len(curves), height // 3), most)


def _plot(curve: Curve, options: ConsoleOptions, lines: int) -> list[Text]:
    """A plot with its title and last value."""
    extents = curve.buckets.extents()
    unit, size = ("", 1.0)
    name = curve.name
    if curve.name == "took_us":
        unit, size = theme.unit(max((high for _, _, high in extents), default=0.0))
        name = "a forward took"
    title = Text(literal(name, options.encoding), style="bold", no_wrap=True, overflow="crop")
    if curve.last is not None:
        title.append(literal(f"  {_value(curve, unit, size)}", options.encoding), style="bold cyan")
        title.append(f"  in forward {curve.last[0]:,}", style="not bold dim")
    if lines < 3:
        return [title][:lines]
    end = curve.last[0] if curve.last is not None else 0
    plot = TextPlot(extents, lines - 1, unit=size, suffix=unit, end=end)
    drawn = plot.lines(options.max_width, ascii_only=options.ascii_only)
    return [title, *(Text(literal(line, options.encoding), no_wrap=True, overflow="crop") for line in drawn)]


def _value(curve: Curve, unit: str, size: float) -> str:
    """The last value, shortened."""
    assert curve.last is not None
    try:
        return f"{short(float(curve.last[1]) / size)} {unit}".rstrip()
    except ValueError:
        return theme.cut(curve.last[1], 24)


# -- waiting, and two columns


def _waiting(followed: Followed, options: ConsoleOptions) -> list[Text]:
    lines = theme.wrapped(f"waiting: {followed.waits_for}", max(20, options.max_width - 2))
    return [Text(literal(line, options.encoding), no_wrap=True, overflow="crop") for line in lines]


def _zipped(ones: list[Text], others: list[Text]) -> list[tuple[Text, Text]]:
    count = max(len(ones), len(others))
    blank = Text("")
    return [(ones[at] if at < len(ones) else blank, others[at] if at < len(others) else blank) for at in range(count)]


def _side_by_side(pair: tuple[Text, Text], left: int) -> Text:
    one, other = pair
    line = one.copy()
    line.truncate(left - 2, pad=True)
    return line.append("  ").append_text(other)

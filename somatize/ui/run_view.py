"""A run as it stands, for a terminal: a renderable that finds room for what matters most."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from somatize.figures import theme
from somatize.record.run_follower import Followed
from somatize.record.standing import Curve, Standing

from .rich_backend import Console, ConsoleOptions, Group, RenderResult, Text, literal
from .run_parts import Parts
from .text_plot import TextPlot, short

_LOW, _HIGH = 5, 16
"""How many lines a plot has at least, and at most."""
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
        """`footer` is what stands at the bottom at the right, `note` what is said above it."""
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
        """Two columns under the head: what was said at the left, where the time goes at the right."""
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
    """The parts one above the other: each what it needs, in their order, and then what is left, in turns."""
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
    """The curves, one above the other; where nothing was said, how long forwards took."""
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
    """What it is and what was said last, and under it the plot."""
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
    """What was said last, in few letters."""
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

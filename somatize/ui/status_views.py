"""Views of a Status: running tasks as a tree, streams with their rates, recent logs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from somatize.figures import theme
from somatize.status.tasks import OPEN, Task
from somatize.utils.units import count, duration, rate, scaled

from .rich_backend import (
    Console,
    ConsoleOptions,
    Group,
    ProgressBar,
    RenderResult,
    Table,
    Text,
    cell_len,
    cut,
    literal,
    overflow,
    text_line,
)

if TYPE_CHECKING:
    from somatize.status import LogEntry, Status
    from somatize.status.throughput import ThroughputStats

_BAR = 18
_GAP = 2
_LEAST_NAME = 14
"""The width that is kept for a name before anything is shown beside it."""

_LEAST_FOR_TASK = 50
"""The width from which on a log line names its task."""

_ORDER = ("bar", "count", "percent", "rate", "elapsed", "remaining")
_WORTH = ("count", "elapsed", "percent", "bar", "remaining", "rate")
"""The columns beside a name by priority, where there is no room for all."""

_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}


class _Row(NamedTuple):
    guide: str
    task: Task


class StatusView:
    """The running tasks of a Status as a tree, with bars, counts, rates, elapsed and remaining; and its streams.

    A renderable for any layout of Rich, which shows the current state at each refresh. Tasks younger than `min_age`
    seconds are left out, so that a loop of short forwards does not flicker; tasks beyond `rows` are only counted.
    """

    def __init__(self, status: Status, *, min_age: float = 0.0, rows: int | None = None) -> None:
        self._status = status
        self._min_age = min_age
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        rows = list(_tree(self._status.tasks, self._min_age, options.ascii_only))
        most = self._rows or (options.height or 1000)
        left_out = len(rows) - most if len(rows) > most else 0
        yield _table(rows[:most], width, options)
        if left_out:
            yield Text(f"and {left_out} more", style="dim")
        for stream in self._status.throughputs:
            words = throughput_words(stream.stats())
            if words is not None:
                yield stream_line(stream.stream, words, options)


class LogView:
    """The recent log records of a Status, the newest last; a renderable, `rows` lines high at most."""

    def __init__(self, status: Status, *, rows: int = 10) -> None:
        self._status = status
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        most = min(self._rows, options.height or self._rows)
        entries = self._status.logs[-most:] if most > 0 else ()
        yield Group(*(_entry_line(entry, options) for entry in entries))


def _tree(tasks: tuple[Task, ...], min_age: float, ascii_only: bool) -> Iterator[_Row]:
    """The open tasks, depth first, with their tree guides; without recursion, as tasks may nest deeply."""
    bend, pipe, gap = ("`- ", "|  ", "   ") if ascii_only else ("└ ", "│ ", "  ")
    tee = "|- " if ascii_only else "├ "
    pending = [(task, "", "") for task in reversed(tasks)]
    while pending:
        task, guide, below = pending.pop()
        if task.state != OPEN or task.elapsed < min_age:
            continue
        yield _Row(guide, task)
        children = task.children
        for number, child in enumerate(reversed(children)):
            last = number == 0
            pending.append((child, below + (bend if last else tee), below + (gap if last else pipe)))


def _table(rows: list[_Row], width: int, options: ConsoleOptions) -> Table:
    beside = [_beside(row.task, options.encoding) for row in rows]
    widths = {name: max((cell_len(words[name]) for words in beside), default=0) for name in _ORDER}
    widths["bar"] = _BAR if any(row.task.total is not None for row in rows) else 0
    shown = _with_room(widths, width)
    room = width - sum(widths[name] + _GAP for name in shown)
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(no_wrap=True, overflow=overflow(options), max_width=max(1, room))
    for name in shown:
        table.add_column(justify="left" if name == "bar" else "right", no_wrap=True, width=widths[name])
    for row, words in zip(rows, beside, strict=True):
        cells = [_bar(row.task) if name == "bar" else Text(words[name], style=_style(name)) for name in shown]
        table.add_row(_name(row, room, options.encoding), *cells)
    return table


def _with_room(widths: dict[str, int], width: int) -> list[str]:
    room = width - _LEAST_NAME
    chosen = set()
    for name in _WORTH:
        if widths[name] and widths[name] + _GAP <= room:
            room -= widths[name] + _GAP
            chosen.add(name)
    return [name for name in _ORDER if name in chosen]


def _name(row: _Row, room: int, encoding: str) -> Text:
    host = f" @{literal(row.task.host, encoding)}" if row.task.host else ""
    name = Text(row.guide, style="dim")
    name.append(cut(literal(row.task.name, encoding), max(4, room - len(row.guide) - len(host))), style="not dim")
    name.append(host, style="cyan not dim")
    return name


def _beside(task: Task, encoding: str) -> dict[str, str]:
    percent, speed, remaining = task.percent, task.rate, task.remaining
    words = {
        "bar": "",
        "count": _count(task),
        "percent": "" if percent is None else f"{percent} %",
        "rate": "" if speed is None else rate(speed),
        "elapsed": duration(task.elapsed),
        "remaining": "" if remaining is None else f"{duration(remaining)} left",
    }
    return {name: literal(said, encoding) for name, said in words.items()}


def _style(column: str) -> str:
    return "dim" if column in ("rate", "remaining") else "none"


def _bar(task: Task) -> Any:
    """A progress bar; empty without a known total."""
    total = task.total
    if total is None or task.done > total:
        return Text("")
    part = min(task.done / total, 0.99) if total else 0
    return ProgressBar(total=1, completed=part, width=_BAR)


def _count(task: Task) -> str:
    if task.total is None:
        return count(task.done) if task.done else ""
    return f"{count(task.done)}/{count(task.total)}"


def throughput_words(stats: ThroughputStats) -> str | None:
    """The batches and rates of a stream in one line; None before the first batch."""
    if not stats.batches:
        return None
    words = [f"{count(stats.batches)} batch{'es' * (stats.batches != 1)}"]
    if stats.samples_per_s is not None:
        words.append(f"{scaled(stats.samples_per_s)} samples/s")
    elif stats.batches_per_s is not None:
        words.append(f"{scaled(stats.batches_per_s)} batches/s")
    if stats.flops_per_s is not None:
        about = "" if stats.flops_exact else "about "
        words.append(f"{about}{scaled(stats.flops_per_s, 'FLOP/s')}")
    if stats.waiting is not None:
        words.append(f"{theme.share(stats.waiting)} waiting for data")
    return ", ".join(words)


def stream_line(name: str, words: str, options: ConsoleOptions) -> Text:
    """The name of a stream and its `throughput_words`."""
    return text_line(f"{name}  ", options, "bold").append(words, style="not bold dim")


def log_line(when: str, level: str, message: str, options: ConsoleOptions, *, host: str = "", source: str = "") -> Text:
    """One log record; `source` is the task or node that logged it, shown where there is room."""
    line = text_line(f"{when} ", options, "dim")
    line.append(f"{literal(level, options.encoding):8}", style=f"not dim {_COLOURS.get(level, '')}")
    if host:
        line.append(f"@{literal(host, options.encoding)} ", style="cyan not dim")
    if source and options.max_width >= _LEAST_FOR_TASK:
        line.append(f"{cut(literal(source, options.encoding), options.max_width // 4)}: ")
    return line.append(literal(message, options.encoding), style="not dim")


def _entry_line(entry: LogEntry, options: ConsoleOptions) -> Text:
    when = time.strftime("%H:%M:%S", time.localtime(entry.when))
    source = entry.task.name if entry.task is not None else ""
    line = log_line(when, entry.levelname, entry.message, options, host=entry.host or "", source=source)
    if entry.traceback:
        line.append(f"  {literal(entry.traceback.rsplit(chr(10), 1)[-1], options.encoding)}", style="red not dim")
    return line

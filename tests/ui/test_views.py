"""The views: literal text, widths, encodings, and counts as they are. Case C025."""

from __future__ import annotations

import contextvars
import io
import logging
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel

from somatize import Graph, node
from somatize.status import Status
from somatize.ui import LogView, StatusView

log = logging.getLogger("somatize.test")

HOSTILE = [
    "open [/usr/bin/x] [bold",
    "a [/b] c",
    "expected [/s], got [red]",
    "\x1b[2J\x1b[31mred",
    "tab\tand\nline\r\x00\x07",
    "zero\u200bwidth\u202eturned",
    "漢字 wide",
    "e\u0301 accent",
    "lone \ud800 half",
    ":smile: [link=x]y[/link]",
    "",
    "x" * 10_000,
]


class Clock:
    now = 10**9

    def __call__(self) -> int:
        return self.now


def rendered(view: Any, width: int = 100, encoding: str = "utf-8", height: int | None = None) -> list[str]:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=stream, width=width, force_terminal=False, color_system=None, height=height or 50)
    console.print(view)
    stream.flush()
    return raw.getvalue().decode(encoding).splitlines()


def test_a_tree_with_bars_counts_rates_elapsed_and_remaining() -> None:
    clock = Clock()
    status = Status(clock=clock)
    with status.task("Indexing shards", total=1000) as task, status.task("reading") as inner:
        clock.now += 2 * 10**9
        task.advance(999)
        inner.advance(1234)
        first, second = rendered(StatusView(status))
    assert first.split("  ") == ["Indexing shards", "━" * 17 + "╸", "999/1,000", "99 %", "500/s", "2 s", "2 ms left"]
    assert second.split() == ["└", "reading", "1,234", "617/s", "2", "s"]
    assert rendered(StatusView(status)) == []


def test_siblings_and_depth_are_drawn() -> None:
    status = Status()
    a = status.task("a")
    within_a = contextvars.copy_context()
    a1 = status.task("a1")
    status.task("a11")
    status.carried(lambda: None)()
    b = within_a.run(status.task, "a2")
    names = [line.split("  ")[0].rstrip() for line in rendered(StatusView(status))]
    assert names[0].startswith("a")
    assert [line[:4].rstrip() for line in rendered(StatusView(status))] == ["a", "├ a1", "│ └", "└ a2"]
    assert [line[:6].rstrip() for line in rendered(StatusView(status), encoding="ascii")] == [
        "a",
        "|- a1",
        "|  `-",
        "`- a2",
    ]
    assert (a1.state, b.state) == ("open", "open")
    a.finish()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("width", [1, 7, 20, 40, 80, 200])
def test_any_text_is_shown_and_nothing_is_wider_than_the_terminal(encoding: str, width: int) -> None:
    status = Status()
    for words in HOSTILE:
        status.task(words, 3)
        log.warning("%s", words)
    status.throughput(HOSTILE[0])
    with status.throughput(HOSTILE[1]).step([1, 2]):
        pass
    for view in (StatusView(status), LogView(status, rows=50)):
        for line in rendered(view, width, encoding):
            assert cell_len(line) <= width
            assert line.isprintable() or not line
    status.close()


def test_markup_is_shown_literally_everywhere() -> None:
    status = Status()
    seen: list[str] = []

    def load(value: Any) -> Any:
        log.info("open [/usr/bin/x] [bold")
        log.warning("open [/usr/bin/x] [bold")
        seen.extend(rendered(StatusView(status), 200) + rendered(LogView(status), 200))
        raise ValueError("expected [/s], got [red]")

    load.__name__ = "load[/b]"
    with status, pytest.raises(ValueError, match="expected"):
        Graph.somatize(node(load).named("load[/b]")).forward(1, watching=status)
    assert any("load[/b]" in line for line in seen)
    assert any("open [/usr/bin/x] [bold" in line for line in seen)
    try:
        raise ValueError("expected [/s], got [red]")
    except ValueError:
        with Status() as other:
            log.exception("of [it]")
            assert "of [it]" in rendered(LogView(other), 200)[0]
            assert "ValueError: expected [/s], got [red]" in rendered(LogView(other), 200)[0]


@pytest.mark.parametrize(("total", "done", "shown"), [(0, 0, "0/0"), (5, 8, "8/5"), (None, 3, "3"), (10, 10, "10/10")])
def test_odd_totals(total: Any, done: int, shown: str) -> None:
    status = Status()
    with status.task("x", total) as task:
        task.advance(done)
        (line,) = rendered(StatusView(status))
        assert shown in line.split()
        assert "100 %" not in line
        assert "inf" not in line
        assert "nan" not in line


def test_many_tasks_are_counted_and_young_ones_left_out() -> None:
    clock = Clock()
    status = Status(clock=clock)
    root = status.task("root")
    for number in range(30):
        contextvars.copy_context().run(status.task, f"task {number}")
    lines = rendered(StatusView(status, rows=5))
    assert len(lines) == 6
    assert lines[-1] == "and 26 more"
    assert rendered(StatusView(status, min_age=0.1)) == []
    clock.now += 10**9
    assert len(rendered(StatusView(status, min_age=0.1))) == 31
    root.finish()


def test_deep_trees_need_no_recursion() -> None:
    status = Status()
    for number in range(3000):
        status.task(f"{number}")
    assert len(rendered(StatusView(status, rows=10))) == 11
    status.close()


def test_streams_are_shown_with_what_is_known() -> None:
    clock = Clock()
    status = Status(clock=clock)
    stream = status.throughput("train")
    assert rendered(StatusView(status)) == []
    for _ in stream.iterate(range(4)):
        with stream.step(samples=8):
            clock.now += 10**9
    assert rendered(StatusView(status)) == ["train  4 batches, 8 samples/s, 0% waiting for data"]


def test_a_log_line_leaves_room_for_what_was_said() -> None:
    with Status() as status, status.task("Indexing shards of " + "a" * 200):
        log.warning("shard 12 is torn")
        wide, narrow, least = (rendered(LogView(status), width)[0] for width in (100, 60, 40))
    assert [line[9:] for line in (wide, narrow, least)] == [
        "WARNING Indexing shards...aaaaaaa: shard 12 is torn",
        "WARNING Indexing...aaaa: shard 12 is torn",
        "WARNING shard 12 is torn",
    ]


def test_they_go_in_any_layout_of_rich() -> None:
    status = Status()
    layout = Layout()
    layout.split_column(Layout(Panel(StatusView(status))), Layout(Panel(LogView(status))))
    console = Console(file=io.StringIO(), width=60, height=20, force_terminal=True)
    with status.task("shown"), Live(layout, console=console, refresh_per_second=20) as live:
        log.warning("said")
        live.refresh()
    assert "shown" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "said" in console.file.getvalue()  # type: ignore[attr-defined]

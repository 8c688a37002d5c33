"""The ready display: on a terminal, in a file, by rank, broken, and gone again."""

from __future__ import annotations

import io
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest

from somatize.status import Status
from somatize.ui.status_display import Region


class Clock:
    now = 10**9

    def __call__(self) -> int:
        return self.now


def screen(written: str, width: int = 200) -> list[str]:
    """What a terminal shows after `written`: as much of one as the display makes use of."""
    rows, row, column = [""], 0, 0
    position = 0
    while position < len(written):
        if written[position] == "\x1b":
            end = position + 2
            while not written[end].isalpha():
                end += 1
            number = int(written[position + 2 : end] or 1) if written[end] == "A" else 0
            if written[end] == "A":
                row -= number
                assert row >= 0
            elif written[end] == "K":
                rows[row] = rows[row][:column]
            elif written[end] == "J":
                rows[row:] = [rows[row][:column]]
            position = end + 1
            continue
        character = written[position]
        if character == "\n":
            row, column = row + 1, 0
            if row == len(rows):
                rows.append("")
        elif character == "\r":
            column = 0
        else:
            rows[row] = rows[row][:column].ljust(column) + character + rows[row][column + 1 :]
            column += 1
            assert column < width
        position += 1
    return rows[:-1] if rows[-1] == "" else rows


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def test_what_is_printed_and_logged_goes_above(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    # Here and below: the display takes the standard streams there are.
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    handler = logging.StreamHandler(terminal)
    logger = logging.getLogger("myproject")
    logger.addHandler(handler)
    try:
        clock = Clock()
        with Status(clock=clock) as status:
            display = status.display(live=True, refresh=False)
            with status.task("Indexing", total=4) as task:
                clock.now += 10**9
                display.draw()
                print("printed")
                logger.warning("logged")
                print("be", end="")
                display.draw()
                print("gun")
                task.advance()
                late = logging.StreamHandler()
                display.draw()
                shown = screen(terminal.getvalue())
                assert shown[:3] == ["printed", "logged", "begun"]
                assert shown[3].startswith("Indexing")
                assert len(shown) == 4
            display.close()
            assert sys.stdout is sys.stderr is handler.stream is late.stream is terminal
            print("after")
        assert screen(terminal.getvalue())[-1] == "after"
        assert screen(terminal.getvalue())[-2].startswith("Indexing: finished in 1 s, 1 of 4")
    finally:
        logger.removeHandler(handler)


def test_a_file_gets_plain_lines_at_a_sensible_pace() -> None:
    clock, file = Clock(), io.StringIO()
    with Status(clock=clock) as status, status.display(file=file, refresh=False) as display:
        with status.task("Indexing [x]", total=86_400) as task:
            for _ in range(86_400):
                clock.now += 10**9
                task.advance()
                display.draw()
        with pytest.raises(ValueError), status.task("short"):
            raise ValueError("[/red]")
    lines = file.getvalue().splitlines()
    assert lines[0] == "Indexing [x]: 10 of 86,400 (0 %), 10 s, 1/s, 23:59:50 left"
    assert 100 < len(lines) < 200
    assert lines[-2:] == [
        "Indexing [x]: finished in 1 d 00:00, 86,400",
        "short: failed in 0 µs: ValueError: [/red]",
    ]
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize(("rank", "all_ranks", "shows"), [("0", False, True), ("1", False, False), ("1", True, True)])
def test_by_rank(rank: str, all_ranks: bool, shows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", rank)
    clock, file = Clock(), io.StringIO()
    with Status(clock=clock) as status, status.display(file=file, all_ranks=all_ranks), status.task("x"):
        clock.now += 10**9
    assert bool(file.getvalue()) is shows


def test_a_broken_display_stops_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    class Torn(Terminal):
        def write(self, text: str) -> int:
            raise OSError("gone")

    before = sys.stdout, sys.stderr
    clock = Clock()
    with Status(clock=clock) as status:
        for live in (True, False):
            display = status.display(file=Torn(), live=live, refresh=False, every=0)
            with pytest.raises(ValueError), status.task("x"):
                clock.now += 10**9
                display.draw()
                raise ValueError
            display.draw()
            display.close()
    assert (sys.stdout, sys.stderr) == before
    assert "goes on" in caplog.text


@pytest.mark.parametrize("bar", ["\r{} of 20000", "{} of 20000\r"])
def test_a_bar_of_others_is_kept_as_it_is_now(bar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with Status() as status, status.display(live=True, refresh=False):
        for number in range(20_001):
            sys.stdout.write(bar.format(number))
        assert len(sys.stdout._begun) < 2 * 4096  # type: ignore[attr-defined]  # its memory
        print()
    assert screen(terminal.getvalue()) == ["20000 of 20000"]


@pytest.mark.parametrize("by", ["draw", "print", "close"])
def test_a_terminal_that_is_gone_after_a_while_stops_nothing(
    by: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Leaves(Terminal):
        gone = False

        def write(self, text: str) -> int:
            if self.gone:
                raise OSError("gone")
            return super().write(text)

    drawn_on, errors = Leaves(), Terminal()
    monkeypatch.setattr(sys, "stdout", drawn_on)
    monkeypatch.setattr(sys, "stderr", errors)
    clock = Clock()
    with Status(clock=clock) as status, status.task("x"):
        display = status.display(live=True, refresh=False)
        clock.now += 10**9
        display.draw()
        assert screen(drawn_on.getvalue()) != []
        drawn_on.gone = True
        {"draw": display.draw, "print": lambda: print("said", file=sys.stderr), "close": display.close}[by]()
        print("still said", file=sys.stderr)
        display.draw()
        display.close()
    assert errors.getvalue() == ("said\n" if by == "print" else "") + "still said\n"
    assert (sys.stdout, sys.stderr) == (drawn_on, errors)


def test_a_display_keeps_no_status_alive() -> None:
    import gc
    import weakref

    file = Terminal()
    status = Status()
    display = status.display(file=file, live=True, refresh=False)
    reference = weakref.ref(status)
    del status
    gc.collect()
    assert reference() is None
    display.draw()
    display.close()


def test_a_second_display_takes_the_place_of_the_first() -> None:
    first, second = Terminal(), Terminal()
    clock = Clock()
    with Status(clock=clock) as status, status.task("x"):
        clock.now += 10**9
        one = status.display(file=first, live=True, refresh=False)
        one.draw()
        two = status.display(file=second, live=True, refresh=False)
        two.draw()
        one.draw()
        assert screen(first.getvalue()) == []
        assert len(screen(second.getvalue())) == 1


def test_a_region_in_a_forked_child_prints_plainly() -> None:
    terminal = Terminal()
    region = Region(terminal)
    region.draw(["one", "two"])
    region.forked()
    assert not region.open
    region.draw(["three"])
    assert screen(terminal.getvalue()) == ["one", "two"]


def in_terminal(script: str, interrupt_after: str | None = None, **environ: str) -> tuple[str, list[Any], list[Any]]:
    """What a script writes to a real terminal, and the terminal's attributes before and after."""
    import termios

    parent, child = pty.openpty()
    before = termios.tcgetattr(child)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "CI": "", **environ},
        start_new_session=True,
    )
    written = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        ready, _, _ = select.select([parent], [], [], 0.1)
        if ready:
            written += os.read(parent, 65536)
        elif process.poll() is not None:
            break
        if interrupt_after and interrupt_after.encode() in written:
            process.send_signal(signal.SIGINT)
            interrupt_after = None
    after = termios.tcgetattr(child)
    process.wait(10)
    os.close(parent)
    os.close(child)
    return written.decode(errors="replace").replace("\r\n", "\n"), before, after


LONG = """
    import time
    from somatize.status import Status
    with Status() as status, status.display():
        with status.task("Indexing é", total=100) as task:
            for _ in range(100):
                time.sleep(0.05); task.advance()
"""


def test_ctrl_c_leaves_the_terminal_as_it_was() -> None:
    written, before, after = in_terminal(LONG, interrupt_after="Indexing")
    assert before == after
    assert "\x1b[?25l" not in written  # the cursor was never hidden, so no way out can leave it so
    assert "\x1b[?1049h" not in written
    shown = screen(written)
    assert "KeyboardInterrupt" in shown[-1]
    assert [line for line in shown if "━" in line] == []
    assert sum("Indexing" in line and "failed" in line for line in shown) == 1


def test_a_terminal_that_is_not_utf_8() -> None:
    written, _, _ = in_terminal(LONG.replace("range(100)", "range(10)"), PYTHONIOENCODING="ascii")
    assert "Indexing \\xe9" in written
    assert "Error" not in written

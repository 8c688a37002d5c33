"""``somatize watch`` as a person meets it: in a terminal of tmux, and in a pipe; its writers are real processes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from somatize import Recorder, Store
from somatize.ui.screen import speaks_utf8
from tests.cli.conftest import call
from tests.programs import program

WRITER = """
import sys, time
from somatize import Graph, Recorder, Store, node
def learn(step):
    if step == "hang":
        time.sleep(1000)
    if step % 10 == 7:
        raise ValueError(f"batch {step} [red]holds[/red]\\x1b[2J nothing")
    return step
graph = Graph.somatize(node(lambda step: step).named("load") >> node(learn).named("learn"))
with Recorder(Store(sys.argv[1]), sys.argv[2], summarising=["loss"]) as recorder:
    for line in sys.stdin:
        if line == "hang\\n":
            print("hangs", flush=True)
            graph.forward("hang", watching=recorder)
        for step in range(int(line)):
            try:
                graph.forward(step, watching=recorder)
                recorder({"fact": "loss", "value": 2 * 0.9**step})
            except ValueError:
                recorder({"fact": "log", "level": "WARNING", "logger": "train", "message": f"batch {step} left out"})
        print("did", flush=True)
"""


class Writer:
    """A process that records a run and does as it is told."""

    def __init__(self, place: Path, run: str) -> None:
        command = [sys.executable, "-c", textwrap.dedent(WRITER), str(place), run]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def does(self, what: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def ends(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0

    def dies(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Callable[[str], Writer]]:
    made: list[Writer] = []

    def start(run: str) -> Writer:
        made.append(Writer(tmp_path / "runs", run))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.dies()
        for pipe in (one.process.stdin, one.process.stdout):
            assert pipe is not None
            pipe.close()


class Terminal:
    """A terminal of tmux's with a shell in it."""

    def __init__(self, place: Path, columns: int = 80, rows: int = 24) -> None:
        self.socket = place / "tmux"
        path = os.environ["PATH"]
        shell = f"env -i PATH={shlex.quote(path)} HOME={place} TERM=tmux-256color PS1='shell> ' LANG=C.UTF-8 sh -i"
        self.asks("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), shell)
        self.until("shell>")

    def asks(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-S", str(self.socket), *words], check=True, capture_output=True, text=True)
        return done.stdout

    def lines(self) -> list[str]:
        return self.asks("capture-pane", "-p").splitlines()

    def screen(self) -> str:
        return "\n".join(self.lines())

    def types(self, *keys: str) -> None:
        self.asks("send-keys", *keys)

    def until(self, *words: str, seconds: float = 15.0) -> str:
        """What is on the screen once all these words are."""
        deadline = time.monotonic() + seconds
        while not all(word in (screen := self.screen()) for word in words):
            assert time.monotonic() < deadline, f"waited for {words}:\n{screen}"
            time.sleep(0.05)
        return screen

    def mode(self) -> str:
        """How the terminal is set: echo, line by line, the cursor."""
        tty = self.asks("display", "-p", "#{pane_tty}").strip()
        set_so = subprocess.run(["stty", "-a", "-F", tty], check=True, capture_output=True, text=True).stdout
        return set_so.split(";", 3)[-1] + self.asks("display", "-p", "#{cursor_flag} #{alternate_on}")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    program("tmux")
    made = Terminal(tmp_path)
    yield made
    made.asks("kill-server")


def watch(*words: object) -> str:
    return shlex.join([sys.executable, "-m", "somatize", "watch", *map(str, words)])


def test_a_run_is_watched_from_before_it_begins_until_after_it_died(
    terminal: Terminal, writer: Callable[[str], Writer], tmp_path: Path
) -> None:
    before = terminal.mode()
    terminal.types(watch(tmp_path / "runs", "--every", "0.1"), "Enter")
    terminal.until("waiting: no store at", "q quits")
    first = writer("first [b]run[/b]")
    first.does(30)
    pid = first.process.pid
    screen = terminal.until("30 forwards, 3 broke", "WARNING batch 27 left out")
    lines = screen.splitlines()
    assert lines[0].startswith(f"first [b]run[/b]  ● recorded by process {pid} on ")
    assert lines[2].split() == ["loss", "0.0942", "in", "forward", "29"]
    assert any("⣀" in line or "⠉" in line or "⡀" in line for line in lines)
    assert "forward 27 broke: ValueError: batch 27 [red]holds[/red]\\x1b[2J nothing" in screen
    assert {line.split()[0] for line in lines if "━" in line or "┄" in line} == {"learn", "load"}
    assert len(lines) == 24
    assert lines[-1].endswith("q quits")
    assert "runs: its only run" in lines[-1]

    first.process.stdin.write("hang\n")  # type: ignore[union-attr]
    first.process.stdin.flush()  # type: ignore[union-attr]
    terminal.until("forward 30 is in learn for ", " in all")

    terminal.asks("resize-window", "-x", "132", "-y", "36")
    screen = terminal.until("where the time goes")
    deadline = time.monotonic() + 20
    while not any("loss" in line and "where the time goes" in line for line in terminal.lines()):
        assert time.monotonic() < deadline, terminal.screen()
        time.sleep(0.05)
    assert max(map(len, terminal.lines())) <= 132

    first.dies()
    terminal.until(f"✗ its writer, process {pid} on ", " died at ", "1 lost")

    second = writer("second")
    second.does(5)
    screen = terminal.until("second  ● recorded by", "5 forwards, ", "runs: the newest of 2 runs")
    assert "[b]" not in screen
    second.ends()
    terminal.until("second  ○ ended, ")
    terminal.types("q")
    screen = terminal.until("second: ended after 5 forwards", "shell>")
    assert terminal.mode() == before
    assert "where the time goes" not in screen


@pytest.mark.parametrize(("way", "code"), [("q", 0), ("C-c", 0), ("TERM", 143), ("C-\\", 131)])
def test_the_terminal_is_given_back_as_it_was(terminal: Terminal, recorded: Path, way: str, code: int) -> None:
    before = terminal.mode()
    terminal.types(watch(recorded, "steady", "--of", "took_us"), "Enter")
    screen = terminal.until("steady  ○ ended", "a forward took")
    assert "this run only" in screen
    assert terminal.mode() != before
    if way == "TERM":
        pid = terminal.asks("display", "-p", "#{pane_pid}").strip()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
    else:
        terminal.types(way)
    terminal.until("shell>")
    terminal.types("echo it ended with $?", "Enter")
    screen = terminal.until(f"it ended with {code}")
    assert terminal.mode() == before
    assert "Traceback" not in screen


def test_it_stops_and_goes_on_and_draws_in_ascii_where_nothing_else_is_read(terminal: Terminal, recorded: Path) -> None:
    before = terminal.mode()
    terminal.types(f"LANG=C {watch(recorded, 'steady')}", "Enter")
    screen = terminal.until("steady  - ended")
    assert screen.isascii()
    terminal.types("C-z")
    terminal.until("shell>")
    assert terminal.mode() == before
    terminal.types("fg", "Enter")
    terminal.until("steady  - ended", "where the time goes")
    terminal.types("q")
    terminal.until("steady: ended after 6 forwards")
    assert terminal.mode() == before


STOPPED_AMID_A_WRITE = """
import io, os, signal, sys
from somatize.record import Followed
from somatize.ui.screen import on_screen
class Raw(io.FileIO):
    stopped = False
    def write(self, data):
        if b"steady" in bytes(data) and not self.stopped:
            self.stopped = True
            os.kill(os.getpid(), signal.SIGTSTP)
        return super().write(data)
stream = io.TextIOWrapper(io.BufferedWriter(Raw(1, "w", closefd=False)), encoding="utf-8")
with Followed(sys.argv[1], "steady") as followed:
    print(on_screen(followed, stream))
"""


def test_it_stops_after_the_write_that_a_signal_arrives_in(terminal: Terminal, recorded: Path, tmp_path: Path) -> None:
    before = terminal.mode()
    (tmp_path / "stopped.py").write_text(STOPPED_AMID_A_WRITE)
    terminal.types(shlex.join([sys.executable, str(tmp_path / "stopped.py"), str(recorded)]), "Enter")
    terminal.until("Stopped", "shell>")
    assert terminal.mode() == before
    terminal.types("fg", "Enter")
    terminal.until("steady  ○ ended", "where the time goes")
    terminal.types("q")
    terminal.until("steady: ended after 6 forwards")
    assert terminal.mode() == before


def test_a_pipe_gets_lines_and_ends_with_the_run(writer: Callable[[str], Writer], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "somatize", "watch", str(tmp_path / "runs"), "--every", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == f"waiting: no store at {tmp_path / 'runs'} yet\n"
        one = writer("tuesday")
        one.does(10)
        lines: list[str] = []
        while not any("10 forwards" in line for line in lines):
            lines.append(watching.stdout.readline())
        one.dies()
        lines += watching.stdout.readlines()
    words = [line.split(" ", 1)[1].strip() for line in lines if not line.startswith("waiting")]
    assert watching.returncode == 12
    assert words[0] == "following run tuesday"
    assert "WARNING batch 7 left out" in words
    assert "forward 7 broke: ValueError: batch 7 [red]holds[/red]\\x1b[2J nothing" in words
    assert any(line.startswith("tuesday: 10 forwards, 1 broke, ") and "loss 0.7748" in line for line in words)
    assert words[-1].startswith(f"tuesday: its writer, process {one.process.pid} on ")
    assert words[-1].endswith("; 10 forwards on record, 1 broke")


def test_a_run_that_ended_is_told_at_once(recorded: Path) -> None:
    lines = [line.split(" ", 1)[1] for line in call("watch", recorded, "steady").stdout.splitlines()]
    assert lines[0] == "following run steady"
    assert sorted(lines[1:4]) == [
        "INFO going on",
        "WARNING slow disk",
        "forward 3 broke: ValueError: the [red]rate[/red] ⏎ is too large",
    ]
    assert lines[-2] == "steady: 6 forwards, 1 broke, loss 0.1667"
    assert lines[-1] == "steady: ended after 6 forwards, 1 broke"


def test_what_can_be_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "notes.txt is a file; " in call("watch", tmp_path / "notes.txt", code=3).stderr
    assert "no file FORMAT" in call("watch", tmp_path, code=3).stderr
    assert "0.05" in call("watch", tmp_path, "--every", "0", code=2).stderr


def test_a_writer_is_not_held_up(tmp_path: Path) -> None:
    """What a look reads needs no lock that a writer takes: one goes on recording while the other holds its view."""
    from somatize.record import Followed
    from somatize.store.run_reader import look

    with Store(tmp_path / "runs") as store, Recorder(store, "tuesday") as recorder, Followed(store.path) as followed:
        followed.look()

        def within(view: object) -> int:
            recorder({"fact": "finished", "took_us": "1"})
            store.opened.flush()
            return 1

        assert look(store.opened, within) == 1
        followed.look()
        assert followed.standing is not None
        assert followed.standing.count.forwards == 1


def test_ascii_is_all_that_is_shown_unless_the_locale_is_of_utf8() -> None:
    class Stream:
        def __init__(self, encoding: str | None) -> None:
            self.encoding = encoding

    utf8, ascii_ = Stream("utf-8"), Stream("ascii")
    assert speaks_utf8(utf8, {"LANG": "en_GB.UTF-8"})  # type: ignore[arg-type]
    assert speaks_utf8(utf8, {"LANG": "C", "LC_CTYPE": "en_GB.utf8"})  # type: ignore[arg-type]
    assert not speaks_utf8(utf8, {"LANG": "en_GB.UTF-8", "LC_ALL": "C"})  # type: ignore[arg-type]
    assert not speaks_utf8(utf8, {})  # type: ignore[arg-type]
    assert not speaks_utf8(utf8, {"LANG": "C", "LC_CTYPE": "C.UTF-8"})  # type: ignore[arg-type]
    assert not speaks_utf8(ascii_, {"LANG": "en_GB.UTF-8"})  # type: ignore[arg-type]

"""The recorded output of a process: passed on as it was, kept at a limited rate, and its last lines after a crash."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from somatize import Recorder, Store
from somatize.record import about, runs
from somatize.store import console

START = """
import ctypes, faulthandler, os, signal, subprocess, sys, threading
from somatize import Recorder, Store
libc = ctypes.CDLL(None)
def puts(text):
    libc.puts(text.encode()); libc.fflush(None)
recorder = Recorder(Store(sys.argv[1]), run="r", console=True)
"""


def script(place: Path, code: str, *, start: str = START, **how: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", start + code, str(place)],
        **{"capture_output": True, "timeout": 60, "check": False, **how},
    )


def why(place: Path) -> tuple[str, str]:
    """The state and `why` of the run, which a recorder that takes in the dead one's journal leaves as they are."""
    (row,) = runs(place)
    with Store(place) as store:
        Recorder(store, run="later").close()
        assert runs(store)[0]["why"] == about(store, "r")["writers"][0]["why"] == row["why"]
        assert store.check() == []
    assert not list((place / "journals").iterdir())
    return row["state"], row["why"] or ""


def said(place: Path, stream: str) -> list[str]:
    facts = [fact for fact in about(place, "r")["facts"] if fact["fact"] == "console" and fact["stream"] == stream]
    return "\n".join(fact["text"] for fact in facts).split("\n")


def test_output_of_python_c_and_children_goes_on_and_into_the_run(tmp_path: Path) -> None:
    ran = script(
        tmp_path / "s",
        """
print("from Python", flush=True)
puts("from C")
subprocess.run(["sh", "-c", "echo from a child; echo wrong >&2"])
print("\\x1b[31mred\\x1b[0m", "10%\\r 20%\\rdone")
print("no line end", end="")
recorder.close()
print("after")
""",
    )
    shown = ["from Python", "from C", "from a child", "\x1b[31mred\x1b[0m 10%\r 20%\rdone", "no line endafter"]
    assert ran.stdout.decode().split("\n") == [*shown, ""]
    assert ran.stderr == b"wrong\n"
    assert said(tmp_path / "s", "stdout") == ["from Python", "from C", "from a child", "done", "no line end"]
    assert said(tmp_path / "s", "stderr") == ["wrong"]
    assert why(tmp_path / "s") == ("finished", "not closed" * 0)


def test_a_segmentation_fault_stands_in_why(tmp_path: Path) -> None:
    ran = script(tmp_path / "s", "faulthandler.enable(); print('x', flush=True); ctypes.string_at(0)")
    assert ran.returncode == -11
    assert b"Fatal Python error: Segmentation fault" in ran.stderr
    state, reason = why(tmp_path / "s")
    assert state == "killed"
    assert "Fatal Python error: Segmentation fault" in reason
    assert "in string_at" in reason
    assert "Thread 0x" not in reason.replace("Current thread", "")
    assert "Extension modules" not in reason
    listed = subprocess.run(
        [sys.executable, "-m", "somatize", "runs", str(tmp_path / "s")], capture_output=True, check=True, timeout=60
    ).stdout.decode()
    assert "last output: Fatal Python error: Segmentation fault … File" in listed


def test_what_c_wrote_before_a_kill_is_shown_and_stands_in_why(tmp_path: Path) -> None:
    code = "for i in range(5000): puts(f'line {i}')\nos.write(2, b'at last')\nos.kill(os.getpid(), 9)"
    ran = script(tmp_path / "s", code)
    assert ran.stdout.split(b"\n") == [*(f"line {i}".encode() for i in range(5000)), b""]
    state, reason = why(tmp_path / "s")
    assert (state, reason.startswith("last output: line 49")) == ("killed", True)
    assert reason.endswith("line 4998\nline 4999\nat last")


@pytest.mark.parametrize("way", ["recorder.end('failed', 'no'); recorder.close()", "1 / 0"])
def test_the_last_lines_stand_in_why_of_a_run_that_failed(tmp_path: Path, way: str) -> None:
    script(tmp_path / "s", f"print('CUDA error', file=sys.stderr)\n{way}")
    state, reason = why(tmp_path / "s")
    assert state == "failed"
    assert reason.startswith(("no\nlast output: CUDA error", "ZeroDivisionError: division by zero\nlast output: CUDA"))


def test_what_is_beyond_the_rate_is_counted_and_shown(tmp_path: Path) -> None:
    ran = script(tmp_path / "s", "for i in range(20000): print('x' * 99)\nrecorder.close()")
    assert len(ran.stdout) == 20000 * 100
    facts = [fact for fact in about(tmp_path / "s", "r")["facts"] if fact["fact"] == "console"]
    assert all(len(fact["text"]) <= 2100 for fact in facts)
    kept = sum(len(fact["text"].split("\n")) for fact in facts)
    assert kept + sum(int(fact.get("left_out", 0)) for fact in facts) == 20000


def test_a_terminal_stays_one_and_its_two_streams_keep_their_order(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    code = """
print(os.isatty(1), os.isatty(2), sys.stdout.isatty(), tuple(os.get_terminal_size(1)) == (0, 0), flush=True)
for i in range(50):
    os.write(1 + i % 2, b"%d\\n" % i)
recorder.close()
"""
    script(tmp_path / "s", code, capture_output=False, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 1 << 16):
            shown += data
    except OSError:
        pass  # the end of a terminal
    os.close(ours)
    assert shown.decode().split() == ["True", "True", "True", "True", *map(str, range(50))]
    assert said(tmp_path / "s", "output") == ["True True True True", *map(str, range(50))]


def test_a_stream_that_stands_for_a_descriptor_is_read_too(tmp_path: Path) -> None:
    start = "import io, sys\nsys.stdout = page = io.StringIO()\n" + START
    code = """
print("in the page")
puts("below it")
recorder.close()
assert sys.stdout is page and page.getvalue() == "in the page\\n", page.getvalue()
"""
    ran = script(tmp_path / "s", code, start=start)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"below it\n", b"")
    assert sorted(said(tmp_path / "s", "stdout")) == ["below it", "in the page"]


def test_recorders_in_one_process_may_be_closed_in_any_order(tmp_path: Path) -> None:
    code = """
other = Recorder(recorder.store, run="other", console=True)
puts("both")
recorder.close()
puts("the other")
other.close()
puts("shown")
"""
    ran = script(tmp_path / "s", code)
    assert ran.stdout == b"both\nthe other\nshown\n"
    assert [fact["text"] for fact in about(tmp_path / "s", "other")["facts"]] == ["both\nthe other"]
    code = """
with Recorder(recorder.store, run="inner", console=True):
    puts("both")
puts("outer")
recorder.close()
"""
    script(tmp_path / "t", code)
    assert said(tmp_path / "t", "stdout") == ["both", "outer"]
    assert [fact["text"] for fact in about(tmp_path / "t", "inner")["facts"]] == ["both"]


def test_a_forked_child_writes_on_and_restores_nothing(tmp_path: Path) -> None:
    code = """
child = os.fork()
if not child:
    puts("child")
    recorder({"fact": "x"})
    recorder.close()
    puts("child closed")
    os._exit(0)
os.waitpid(child, 0)
puts("parent")
recorder.close()
"""
    ran = script(tmp_path / "s", code)
    assert ran.stdout == b"child\nchild closed\nparent\n"
    assert said(tmp_path / "s", "stdout") == ["child", "child closed", "parent"]


def test_closing_waits_for_no_child_that_writes_on(tmp_path: Path) -> None:
    code = """
child = subprocess.Popen([sys.executable, "-c", "while True: print('on' * 500)"])
recorder.close()
print("closed", file=sys.stderr)
child.kill()
child.wait()
"""
    ran = script(tmp_path / "s", code, stdout=subprocess.DEVNULL, capture_output=False, stderr=subprocess.PIPE)
    assert ran.stderr == b"closed\n"
    assert why(tmp_path / "s") == ("finished", "")


def test_closing_while_threads_and_a_signal_handler_write(tmp_path: Path) -> None:
    code = """
signal.signal(signal.SIGALRM, lambda *_: os.write(1, b"a" * 70000 + b"\\n"))
signal.siginterrupt(signal.SIGALRM, False)  # else C loses a line
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
over = threading.Event()
def write():
    while not over.is_set():
        os.write(1, b"t" * 999 + b"\\n")
threads = [threading.Thread(target=write) for _ in range(3)]
for thread in threads: thread.start()
for i in range(500): puts("m" * 99)
recorder.close()
over.set()
for thread in threads: thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    ran = script(tmp_path / "s", code)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.count(b"m") == 500 * 99
    assert why(tmp_path / "s") == ("finished", "")


def test_output_larger_than_a_pipe_by_c_that_holds_the_interpreter_is_no_deadlock(tmp_path: Path) -> None:
    code = """
data = b"x" * 99 + b"\\n"
assert ctypes.PyDLL(None).write(1, data * 50000, 5000000) == 5000000
recorder.close()
"""
    ran = script(tmp_path / "s", code)
    assert (ran.returncode, len(ran.stdout)) == (0, 5000000)
    assert why(tmp_path / "s") == ("finished", "")


def test_a_process_that_takes_no_facts_is_waited_for_by_nobody() -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(console.__file__).parent)!r})
from console import Sender
reads, writes = os.pipe()
os.dup2(1, 9)
os.dup2(writes, 1)
os.close(writes)
sender = Sender()
fact = {{"fact": "console", "stream": "stdout", "text": "x" * 2000}}
refused = [one for _ in range(500) for one in sender.send([fact])]
assert 100 < len(refused) < 400 and refused[0] == fact
os.close(reads)
assert sender.send([fact]) == [fact] and sender.send([fact]) == []
os.write(9, b"done")
"""
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == (b"done", b"")


def test_a_full_disk_stops_no_output() -> None:
    (source, sink), (control, end), full = os.pipe(), os.pipe(), os.open("/dev/full", os.O_WRONLY)
    helper = subprocess.Popen(
        [sys.executable, "-I", "-S", console.__file__, json.dumps([control, full, [[source, 2, "stdout"]]])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[source, control, full],
    )
    for fd in (source, control, full):
        os.close(fd)
    os.write(sink, b"one\ntwo\n")
    os.close(end)
    os.close(sink)
    told, shown = helper.communicate(timeout=60)
    assert (helper.returncode, shown) == (0, b"one\ntwo\n")
    assert json.loads(told) == {"fact": "console", "stream": "stdout", "text": "one\ntwo"}


def test_where_the_helper_dies_the_process_writes_on(tmp_path: Path) -> None:
    code = """
helper = recorder._writer.console._helper
os.kill(helper.pid, signal.SIGKILL)
recorder._writer.console._told.wait()
puts("goes on")
recorder.close()
"""
    ran = script(tmp_path / "s", code)
    assert (ran.returncode, ran.stdout) == (0, b"goes on\n")


def test_a_reader_that_leaves_is_seen_by_the_writer(tmp_path: Path) -> None:
    code = """
try:
    while True: os.write(1, b"x" * 1000)
except BrokenPipeError:
    recorder.end("interrupted", why="nobody reads")
recorder.close()
"""
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", START + code, str(tmp_path / "s")], stdout=write)
    os.close(write)
    assert os.read(read, 1) == b"x"
    os.close(read)
    assert process.wait(60) == 0
    assert why(tmp_path / "s") == ("interrupted", "nobody reads")

"""A worker ends with the process that started it, whatever either is doing, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

CLIENT = """
import os, subprocess, sys, time
from somatize import Broker, Graph, Worker, node

def work(x):
    if {child}:
        subprocess.Popen(["sleep", "60"], start_new_session={session})
    print("pid", os.getpid(), flush=True)
    if x == "sleep":
        time.sleep(60)
    while x == "spin":
        pass
    if x == "hold":
        sum(range(10**11))  # one call, which lets no thread run beside it
    return x

broker = Broker.embedded({{"w1": Worker.spawn([sys.executable, "-m", "somatize.worker"])}})
Graph.somatize(node(work).at("w1")).forward({what!r}, broker=broker)
print("idle", file=sys.stderr, flush=True)
time.sleep(60)
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def ends(pid: int, within: float = 5) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        if gone(pid):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("what", ["sleep", "spin", "hold", "idle"])
@pytest.mark.parametrize("child", ["no child", "a child", "a child of its own session"])
def test_a_worker_ends_with_its_client(what: str, child: str, tmp_path: Any) -> None:
    code = CLIENT.format(what=what, child=child != "no child", session="session" in child)
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, cwd=tmp_path) as client:
        assert client.stderr is not None
        pid = 0
        for line in client.stderr:
            if "pid" in line:
                pid = int(line.split()[-1])
            if pid and (what != "idle" or "idle" in line):
                break
        assert not gone(pid)
        client.send_signal(signal.SIGKILL)
        client.wait()
        assert ends(pid)


def test_a_terminals_interrupt_reaches_only_the_client() -> None:
    code = CLIENT.format(what="idle", child=False, session=False)
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as client:
        assert client.stderr is not None
        pid = 0
        for line in client.stderr:
            pid = int(line.split()[-1]) if "pid" in line else pid
            if "idle" in line:
                break
        assert os.getpgid(pid) == pid != os.getpgid(client.pid)
        os.killpg(client.pid, signal.SIGKILL)
    assert ends(pid)


def test_a_fork_of_the_client_does_not_keep_a_worker_alive() -> None:
    code = CLIENT.format(what="idle", child=False, session=False).replace(
        'print("idle"', 'os.fork() or time.sleep(5) or os._exit(0)\nprint("idle"'
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as client:
        assert client.stderr is not None
        pid = 0
        for line in client.stderr:
            pid = int(line.split()[-1]) if "pid" in line else pid
            if "idle" in line:
                break
        client.kill()
        client.wait()
        assert ends(pid, 3)


def test_closing_waits_for_no_grandchild() -> None:
    from somatize import Broker, Graph, Worker, node

    def starts(x):
        import subprocess

        return subprocess.Popen(["sleep", "60"]).pid, subprocess.Popen(["sleep", "60"], start_new_session=True).pid

    broker = Broker.embedded({"w1": Worker.spawn([sys.executable, "-m", "somatize.worker"])})
    inside, outside = Graph.somatize(node(starts).at("w1")).forward(0, broker=broker)
    began = time.monotonic()
    broker.close()
    assert time.monotonic() - began < 4
    assert ends(inside)
    assert not gone(outside)
    os.kill(outside, signal.SIGKILL)


@pytest.mark.parametrize(
    ("argv", "code", "said"), [(["--help"], 0, "listens on"), (["--port", "1"], 2, "unrecognized")]
)
def test_help_helps_and_unknown_flags_are_refused(argv: list[str], code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "somatize.worker", *argv], capture_output=True, text=True, timeout=30)
    assert done.returncode == code
    assert said in done.stdout + done.stderr

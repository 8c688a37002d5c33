"""Processes that are killed, and the fixtures of the record's tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.record.conftest import place, ran, script, store, way

__all__ = ["place", "ran", "script", "store", "way"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system takes rights that this user does not have")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


class Child:
    """A forked child that runs a function with a way to report; forked, as starting Python anew takes too long."""

    def __init__(self, work: Callable[[Callable[[str], None]], None]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            code = 1
            try:
                work(lambda line: os.write(writing, f"{line}\n".encode()))  # type: ignore[func-returns-value]
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        os.close(writing)
        self.reading = reading
        self.ended = False

    def line(self) -> str:
        """The next line it reports; empty if it ended."""
        found = b""
        while not found.endswith(b"\n"):
            part = os.read(self.reading, 1)
            if not part:
                break
            found += part
        return found.decode().strip()

    def end(self, sign: int | None = signal.SIGKILL) -> tuple[int, list[str]]:
        """Send it a signal if any, wait for its end, and give its status and the whole lines not read yet."""
        if sign is not None:
            os.kill(self.pid, sign)
        found = b""
        while part := os.read(self.reading, 1 << 16):
            found += part
        os.close(self.reading)
        self.ended = True
        _, status = os.waitpid(self.pid, 0)
        return status, found.decode().rpartition("\n")[0].split("\n") if b"\n" in found else []


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    started: list[Child] = []

    def start(work: Callable[[Callable[[str], None]], None]) -> Child:
        started.append(Child(work))
        return started[-1]

    yield start
    for one in started:
        if not one.ended:
            one.end()

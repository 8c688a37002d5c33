"""The programs that some tests need beside Python, how each is found, and how to get it.

Where one is absent the tests that need it are skipped, and the end of the run names it; with ``CI`` set, as `.ci/run`
does after it installed them, its absence is a failure.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest


class Program(NamedTuple):
    """How a program is found, what it is for in the tests, and how Debian gets it."""

    find: Callable[[], str | None]
    use: str
    install: str


def _first(*names: str) -> Callable[[], str | None]:
    return lambda: next((found for name in names if (found := shutil.which(name))), None)


def _daemon(name: str) -> Callable[[], str | None]:
    """A server's program, which is not on the path of every user."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    return lambda: shutil.which(name, path=places)


def _compiler() -> str | None:
    """The C compiler, if Python's headers are there as well."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    return _first("cc", "gcc", "clang")() if header.exists() else None


PROGRAMS = {
    "Chromium": Program(
        _first("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        "figures and pages are looked at in a browser, and made pictures",
        "apt-get install chromium",
    ),
    "tmux": Program(_first("tmux"), "views are looked at in a terminal", "apt-get install tmux"),
    "sshd": Program(_daemon("sshd"), "a worker is reached over ssh", "apt-get install openssh-server"),
    "ssh": Program(_first("ssh"), "a worker is reached over ssh", "apt-get install openssh-client"),
    "a C compiler with Python's headers": Program(
        _compiler, "the part in C is compiled into a wheel", "apt-get install gcc libc6-dev python3-dev"
    ),
    "ip and unshare": Program(
        lambda: _first("unshare")() and _daemon("ip")(),
        "Ray runs in a network namespace of its own",
        "apt-get install iproute2 util-linux",
    ),
    "git": Program(_first("git"), "a run notes its commit", "apt-get install git"),
    "bash": Program(_first("bash"), "a shell completes what is typed", "apt-get install bash"),
}


def program(name: str) -> str:
    """The path of a program of `PROGRAMS`; where it is absent the test is skipped, or fails if ``CI`` is set."""
    wanted = PROGRAMS[name]
    found = wanted.find()
    if found is not None:
        return found
    sentence = lacking(name)
    if "CI" in os.environ:
        pytest.fail(f"{sentence} (CI is set, where no program may be absent)")
    pytest.skip(sentence)


def lacking(name: str) -> str:
    """Why a test is skipped where a program of `PROGRAMS` is absent."""
    return f"needs {name}: {PROGRAMS[name].install}"


def absent(reasons: Iterable[str]) -> list[str]:
    """One line for each program for whose absence a test was skipped, given the reasons of all skipped tests."""
    said = list(reasons)
    lines = []
    for name, wanted in PROGRAMS.items():
        count = sum(reason == f"Skipped: {lacking(name)}" for reason in said)
        if count:
            tests = "1 test was" if count == 1 else f"{count} tests were"
            lines.append(f"{name} is absent, so {tests} skipped ({wanted.use}): {wanted.install}")
    return lines

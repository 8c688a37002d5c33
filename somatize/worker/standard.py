"""The standard streams as node code finds them, whatever the node before it did to them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys

HIGH = 100
"""From which number on the descriptors of this process' own lie, out of the way of those that node code opens."""

_spare = -1
_three = select.poll()
for _number in (0, 1, 2):
    _three.register(_number, 0)


def set_apart() -> None:
    """Stdin is at its end, and what goes to stdout goes to stderr, by its descriptor as well."""
    global _spare
    _spare = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, HIGH)
    _empty()
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


def flush() -> None:
    """What a node wrote is on its way, before its answer is."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # node code closed one, or put something else in its place
        with contextlib.suppress(Exception):
            sys.stderr.flush()


def settle() -> None:
    """What a node closed is open again for the next one."""
    if _spare < 0:
        return
    found = _three.poll(0)
    if found:
        _open_again({number for number, state in found if state & select.POLLNVAL})
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(getattr(sys, name), "closed", False):
            made = open(number, mode, buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, made)
            setattr(sys, f"__{name}__", made)


def _open_again(closed: set[int]) -> None:
    if 2 in closed:
        os.dup2(_spare, 2)
    if 1 in closed:
        os.dup2(2, 1)
    if 0 in closed:
        _empty()


def _empty() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing:
        os.dup2(nothing, 0)
        os.close(nothing)
    os.set_inheritable(0, True)

"""``python -m somatize.worker``: a worker, started by the one who sends it work, and talking over stdin and stdout."""

from __future__ import annotations

import argparse
import faulthandler
import fcntl
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable

from .host_process import HIGH, Life, end_soon, set_streams_apart


def main() -> int:
    """Serve the process that started this one until it is gone."""
    argparse.ArgumentParser(
        prog="python -m somatize.worker",
        description="Runs nodes of a graph for the process that started it, over its stdin and stdout. It listens on "
        "nothing and takes no options: Worker.spawn([sys.executable, '-m', 'somatize.worker']) starts it, or any other "
        "command that does, such as ssh gpu1 python -m somatize.worker.",
    ).parse_args()
    if os.isatty(0):
        print("This is one end of a connection and nothing to type into: see --help.", file=sys.stderr)  # noqa: T201
        return 2
    reading, writing = _take_wire()
    from .server import Server
    from .wire import Wire

    server = Server(Wire(reading, writing), _where())
    pipe = _life_pipe()
    server.life = Life(reading, lambda: server.computing, pipe)
    os.register_at_fork(after_in_child=lambda: os.closerange(reading, writing + 1))
    served = server.serve()
    threading.Thread(target=end_soon, args=(1.0,), daemon=True).start()  # even if node code left threads running
    return 0 if served else 2


def _take_wire() -> tuple[int, int]:
    """The descriptors of stdin and stdout for the wire; in their place, nothing to read and stderr.

    Before any code of a user is there: what it prints, or reads, or its child processes do, is then never the wire.
    """
    reading = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, HIGH)
    writing = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, HIGH)
    set_streams_apart()
    faulthandler.enable(all_threads=False)  # a crash prints where it was
    return reading, writing


def _life_pipe() -> int | None:
    """The pipe that the client holds open as long as it lives, if it is on this machine."""
    given = os.environ.pop("SOMATIZE_WORKER_LIFE", "")
    try:
        pipe = int(given)
        is_pipe = stat.S_ISFIFO(os.fstat(pipe).st_mode)
    except (ValueError, OSError):
        return None
    if is_pipe:
        os.set_inheritable(pipe, False)
    return pipe if is_pipe else None


def _where() -> Callable[[int, str], None]:
    """A function that notes the current step in memory that outlives this process."""
    given = os.environ.pop("SOMATIZE_WORKER_PAGE", "")
    if not given.isdigit():
        return lambda *_: None
    import mmap

    page = mmap.mmap(int(given), mmap.PAGESIZE)
    os.close(int(given))
    pack = struct.Struct("<q").pack_into
    return lambda number, _node: pack(page, 0, number + 1)


if __name__ == "__main__":
    sys.exit(main())

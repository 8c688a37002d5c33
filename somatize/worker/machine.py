"""What a worker says of its machine, now and then: a fact of the kind ``machine``, read as a slice arrives."""

from __future__ import annotations

import os
import platform
import time

from somatize.facts import Fact

EVERY = 1.0
"""Seconds that a reading is over, at least: from the start, or from the reading before."""


class Machine:
    """Reads how long this process is up, what it served, how busy it kept processors, and how full the memory is."""

    def __init__(self, id: str | None = None) -> None:
        self.id = id or f"{platform.node()}-{os.getpid()}"
        self.served = 0
        """The slices that arrived."""
        self._began = self._last = time.monotonic()
        self._cpu = time.process_time()

    def arrived(self, *, watched: bool) -> Fact | None:
        """Count a slice; where somebody watches and it is time, a reading, over the time since the one before."""
        self.served += 1
        now = time.monotonic()
        if not watched or now - self._last < EVERY:
            return None
        cpu = time.process_time()
        busy, over = (cpu - self._cpu) / (now - self._last), now - self._last
        self._last, self._cpu = now, cpu
        fact = {
            "fact": "machine",
            "id": self.id,
            "up_us": f"{int((now - self._began) * 1e6)}",
            "served": f"{self.served}",
            "busy": f"{min(busy, cores()):.3f}",
            "over_us": f"{int(over * 1e6)}",
            "cores": f"{cores()}",
        }
        share = memory_in_use()
        return fact if share is None else {**fact, "memory": f"{share:.3f}"}


def cores() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def memory_in_use() -> float | None:
    """The share of the machine's memory that is in use, from 0 to 1; None where the system does not say."""
    try:
        with open("/proc/meminfo", "rb") as file:  # noqa: PTH123  read each second
            lines = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        total, free = (int(lines[name].split()[0]) for name in (b"MemTotal", b"MemAvailable"))
    except (OSError, KeyError, ValueError):
        return None
    return 1 - free / total if total else None

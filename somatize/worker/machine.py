"""What a worker says of its machine, now and then: a fact of the kind ``machine``, sampled between trips."""

from __future__ import annotations

import os
import platform
import time

from somatize.facts import Fact

EVERY = 1.0
"""Seconds between two samples, at least."""


class Machine:
    """Samples this process: how long it is up, what it served, how busy it was, what it holds."""

    def __init__(self, id: str | None = None) -> None:
        self.id = id or f"{platform.node()}-{os.getpid()}"
        self.served = 0
        self._began = self._last = time.monotonic()
        self._cpu = time.process_time()
        self.sample: Fact | None = None
        self._take()

    def look(self) -> None:
        """Sample, if it is time; to be called when nothing is being done."""
        if time.monotonic() - self._last >= EVERY:
            self._take()

    def taken(self) -> Fact | None:
        """The sample that was not said yet."""
        sample, self.sample = self.sample, None
        return sample

    def _take(self) -> None:
        now, cpu = time.monotonic(), time.process_time()
        busy = (cpu - self._cpu) / (now - self._last) if now > self._last else 0.0
        self._last, self._cpu = now, cpu
        self.sample = {
            "fact": "machine",
            "id": self.id,
            "up_us": f"{int((now - self._began) * 1e6)}",
            "served": f"{self.served}",
            "busy": f"{min(busy, cores()):.3f}",
            "memory": f"{resident()}",
            "cores": f"{cores()}",
        }


def cores() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def resident() -> int:
    """Bytes of memory this process holds."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123  read each second
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

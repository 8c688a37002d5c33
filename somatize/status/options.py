"""What a Status may be told when it is made, checked before anything is touched."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from time import perf_counter_ns
from typing import Any

from somatize.errors import BadOption, nearest
from somatize.watching import watchers


@dataclass(frozen=True)
class Options:
    """The options of a Status; see there."""

    log_history: int = 200
    window: int = 50
    profile_flops: bool = True
    loggers: Iterable[str] = ("somatize",)
    warnings: bool = False
    watching: watching.Watching = None
    log_facts: int | str | None = "INFO"
    clock: Callable[[], int] = perf_counter_ns

    def __post_init__(self) -> None:
        self._whole("log_history", 0)
        self._whole("window", 1)
        for name in ("profile_flops", "warnings"):
            if not isinstance(getattr(self, name), bool):
                raise BadOption(f"{name}={getattr(self, name)!r}: it is True or False")
        if not callable(self.clock):
            raise BadOption(f"clock={self.clock!r}: it is called and gives nanoseconds, as time.perf_counter_ns does")
        object.__setattr__(self, "loggers", self._names())
        self.lowest()

    def _whole(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or value < least:
            raise BadOption(f"{name}={value!r}: it is a whole number, {least} or more")

    def _names(self) -> tuple[str, ...]:
        if isinstance(self.loggers, str):
            raise BadOption(f'loggers={self.loggers!r} is one text; give a tuple of names: loggers=("{self.loggers}",)')
        names = tuple(self.loggers)
        for name in names:
            if not isinstance(name, str):
                raise BadOption(f'loggers holds {name!r}; it takes names as for logging.getLogger, "" for the root')
        return names

    def lowest(self) -> int | None:
        """The level from which a log record is said as a fact, as a number; None for none."""
        level = self.log_facts
        if level is None or (isinstance(level, int) and not isinstance(level, bool)):
            return level
        known = logging.getLevelNamesMapping()
        if level not in known:
            raise BadOption(f"log_facts={level!r} is no level of logging{nearest(str(level).upper(), list(known))}")
        return known[level]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options in a mapping. Raises `BadOption` for one that there is not, with the nearest."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                offered = nearest(str(name), known) or f"; there are {', '.join(known)}"
                raise BadOption(f"a Status has no option {name!r}{offered}")
        return cls(**{name: value for name, value in given.items() if value is not None or name == "log_facts"})

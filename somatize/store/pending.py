"""A forward as its writer knows it while it goes on, and the one way bytes get into a journal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import write
from typing import TYPE_CHECKING, Protocol

from .batch import Batch, Line

if TYPE_CHECKING:
    from somatize.facts import Fact

    from .writer import Writer


class Running(Protocol):
    """A forward whose nodes are called one after another."""

    @property
    def node(self) -> str | None:
        """The node that runs just now; None between nodes."""


class Tell(Protocol):
    """What takes a fact."""

    def __call__(self, fact: Fact, /) -> object: ...


class Pending:
    """A forward as its writer knows it: what is not written down yet, and its number once something is.

    Forwards are begun tens of thousands of times a second, so it has no constructor and its defaults stand on the
    class: `Writer.begins` sets what has none.
    """

    writer: Writer
    facts: list[Fact]
    """What it told and is not written down yet."""
    tell: Tell
    """Takes a fact of it."""
    since: float
    """When it was last written down, or opened."""

    number: int | None = None
    over = False
    """Whether its last fact was told."""
    forgotten = False
    """Whether nothing of it is on record, as an interrupt came before anything was told."""
    parted = False
    """Whether a part of it was written down while it went on."""
    place: Running | None = None
    """Where one node is called after another, the forward itself, of which can be asked which one runs."""
    entered: list[str] | None = None
    """Else, the nodes that were entered and are not known to have had their turn."""
    told_inside: Sequence[str] = ()
    """The nodes it was in when a part was written."""
    ended: Fact | None = None
    """The fact that ended it, if that is written in a part already."""
    batch: Batch | None = None
    line: Line
    """Its record, in the batch it was written in."""

    def is_over(self) -> None:
        """Its end is written."""
        self.over = True

    def has_begun(self) -> bool:
        """Whether there is anything to say of it."""
        return bool(self.facts or self.parted or self.place or self.entered)

    def inside(self) -> list[str]:
        """The nodes it is in, as far as is known."""
        place = self.place
        if place is None:
            return list(self.entered or ())
        node = place.node
        return [] if node is None else [node]

    def without(self, inside: list[str], done: set[str | None]) -> list[str]:
        """Of the nodes it was in, those that are not done; the others are forgotten."""
        left = [node for node in inside if node not in done]
        if self.entered is not None:
            self.entered[: len(inside)] = left
        return left

    def ended_by(self) -> Fact:
        """The fact that ended it, though more was said since or a part of it was written; empty if none did."""
        return next((fact for fact in reversed(self.facts) if ends(fact)), self.ended or {})


class Part:
    """What is written of a forward that goes on, and leaves its hands once it is."""

    def __init__(self, pending: Pending, facts: int, inside: list[str], ended: Fact | None) -> None:
        self._pending = pending
        self._facts = facts
        self._inside = inside
        self._ended = ended
        self._left = False

    def leaves(self) -> None:
        """It is written; said twice, it is done once."""
        pending = self._pending
        if not self._left:
            self._left = True
            del pending.facts[: self._facts]
            pending.parted, pending.ended, pending.told_inside = True, self._ended, self._inside


def ends(fact: Fact) -> bool:
    """Whether this is the fact that ends a forward."""
    return fact.get("fact") in ("finished", "broke")


def write_whole(fd: int, data: bytes, at: int) -> None:
    """Append to a file of `at` bytes; if that stops half way, leave it as it was and raise OSError."""
    done = 0
    try:
        while done < len(data):
            done += write(fd, data[done:])
    except OSError:
        if done:
            os.ftruncate(fd, at)
        raise

"""The tasks that are open: of each the fact that was said of it last, kept apart from what is history.

A task that goes on is said again and again, and only the last saying counts. So it is no part of a record: it stands
under a key of its own, by the task's `id`, is replaced by the next, and goes when the task's end is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import msgpack

from somatize.facts import Fact

from . import schema
from .environment import BadValue, Reading, Writing
from .packing import unpack

KIND = b"t"


class Told(NamedTuple):
    """What was said of an open task last: of which forward (`schema.OWN` for none), when in µs, and the fact."""

    forward: int
    when: int
    fact: Fact


class OpenTasks:
    """What a stretch of a journal says of tasks: those open at its end, and those that ended in it."""

    __slots__ = ("ended", "told")

    def __init__(self) -> None:
        self.told: dict[str, Told] = {}
        self.ended: set[str] = set()

    def take(self, forward: int, when: int, body: bytes) -> bytes:
        """Packed facts, which are given back without those of open tasks."""
        try:
            facts = list(unpack([body]))
        except ValueError:
            return body  # damaged: it is for a reader to say so
        kept = [fact for fact in facts if not self._takes(forward, when, fact)]
        return body if len(kept) == len(facts) else b"".join(map(msgpack.packb, kept))

    def _takes(self, forward: int, when: int, fact: Fact) -> bool:
        identity = fact.get("id")
        if fact.get("fact") != "task" or not identity:
            return False
        if fact.get("state") != "open":
            self.told.pop(identity, None)
            self.ended.add(identity)
            return False
        self.ended.discard(identity)
        self.told[identity] = Told(forward, when, fact)
        return True


def task_key(run: int, identity: str) -> bytes:
    """Where an open task stands."""
    return schema.run_prefix(KIND, run) + blake2b(identity.encode(), digest_size=16).digest()


def store(txn: Writing, run: int, tasks: OpenTasks) -> None:
    """Put what is said of open tasks in the place of what was said before, and take away those that ended."""
    for identity in tasks.ended:
        txn.delete(task_key(run, identity))
    for identity, told in tasks.told.items():
        key = task_key(run, identity)
        txn.put(key, schema.pack_map(key, told))


def stored(reading: Reading, run: int) -> Iterable[Told]:
    """The tasks of a run that are open as far as is committed; a damaged one is left out, for `check` to name."""
    prefix = schema.run_prefix(KIND, run)
    for key, sealed in reading.items(prefix):
        if not key.startswith(prefix):
            return
        try:
            yield Told(*schema.unpack_map(key, sealed))
        except BadValue:
            continue


def after(committed: Iterable[Told], tails: Iterable[OpenTasks]) -> list[Told]:
    """The tasks that are open, with what journals say beyond what is committed."""
    found = {told.fact["id"]: told for told in committed}
    for tail in tails:
        for identity in tail.ended:
            found.pop(identity, None)
        found.update(tail.told)
    return sorted(found.values(), key=lambda told: told.when)

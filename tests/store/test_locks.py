"""Numbers of a run that several processes write to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from somatize.store.locks import BUSY, Locks, RunGate


class Interrupted(Exception):
    pass


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[tuple[RunGate, RunGate]]:
    """Of two processes, the first of which is in the middle of taking a number."""
    numbers, locks = tmp_path / "numbers", tmp_path / "locks"
    numbers.touch()
    locks.touch()
    held = Locks(locks, writable=True)
    first, second = RunGate(numbers, 1, held), RunGate(numbers, 1, held)
    first.begin(7)
    first.flags[BUSY] = 1
    yield first, second
    first.close()
    second.close()
    held.close()


def number(gate: RunGate) -> int:
    """Take the next number, as a writer does."""
    gate.enter()
    taken = gate.count[0]
    gate.count[0] = taken + 1
    gate.leave()
    return taken


def test_who_joins_after_one_that_was_interrupted_as_it_joined_waits_too(gates: tuple[RunGate, RunGate]) -> None:
    first, second = gates

    def interrupts() -> bool:
        raise Interrupted

    with pytest.raises(Interrupted):
        second.join(lambda: 0, interrupts)
    asked: list[bool] = []

    def still_lives() -> bool:
        asked.append(True)
        if len(asked) == 3:
            assert number(first) == 7
        return True

    second.join(lambda: 0, still_lives)
    assert len(asked) == 3
    assert number(second) == 8


def test_who_joins_later_does_not_wait_for_one_in_the_middle_of_a_number(tmp_path: Path, gates: Any) -> None:
    first, second = gates
    first.leave()
    second.join(lambda: 0, lambda: True)
    first.flags[BUSY] = 1  # as all know of each other, it holds the lock, or is about to wait for it
    held = Locks(tmp_path / "locks", writable=True)
    third = RunGate(tmp_path / "numbers", 1, held)
    third.join(lambda: pytest.fail("asked for a number"), lambda: pytest.fail("asked who lives"))
    assert number(third) == 7
    third.close()
    held.close()

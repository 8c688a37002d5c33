"""Whether the values of a slice stay what they were when they came or were made, for results that are to be kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Comparison:
    """Compares values before some steps read them, and at the end; steps and values go by their numbers at home.

    Only values of `values` are compared, before the steps of `readers`; and those that stay, or stayed (`held`), also
    at the end. One that cannot be is taken as changed where several steps read it (`shared`), else as it was.
    """

    def __init__(
        self, readers: Iterable[int], values: Iterable[int], shared: Iterable[int], held: Iterable[int]
    ) -> None:
        self.held = frozenset(held)
        self._readers = frozenset(readers)
        self._values = frozenset(values)
        self._shared = frozenset(shared)
        self._digests: dict[int, str | None] = {}
        self._when: dict[int, int] = {}
        self._begun = 0
        self.steps: list[int] = []
        """The steps that were given what had changed."""
        self.values: list[int] = []
        """The values that changed after they were there."""

    def there(self, number: int, value: Any) -> None:
        """A value came, or was made."""
        if number in self._values:
            self._digests[number], self._when[number] = _digest(value), self._begun

    def begins(self, step: int, given: Iterable[tuple[int, Any]]) -> None:
        """A step is about to run; `given` are the values it reads."""
        if step in self._readers and any(self._changed(number, value) for number, value in given):
            self.steps.append(step)
        self._begun += 1

    def ends(self, left: Iterable[tuple[int, Any]]) -> None:
        """No step of the slice reads these values any more; they are sent back or stay."""
        self.values += [number for number, value in left if self._changed(number, value)]

    def _changed(self, number: int, value: Any) -> bool:
        if number not in self._digests or self._when[number] == self._begun:  # nothing ran since
            return False
        before = self._digests[number]
        return number in self._shared if before is None else _digest(value) != before


def _digest(value: Any) -> str | None:
    from somatize.naming import as_it_is

    try:
        return as_it_is(value)
    except Exception:
        return None

"""Integrity of names: checks that what the names of a forward were made of has not changed when its nodes run.

Names are made before anything runs, of the input and the nodes as they are then. What another node, the caller or
another thread changes afterwards makes the result of a node another one than its name says. So it is compared when a
node begins to run, for each node that is to be kept and those that feed it; where nodes run side by side, also when it
has run. Only what runs is compared: a hit costs nothing.
"""

from __future__ import annotations

import bisect
import itertools
import threading
import weakref
from collections.abc import Collection
from typing import Any, NamedTuple

from somatize.dag.plan import Compared, Slice
from somatize.naming import as_it_is, difference

from .program import INPUT, Role, roles
from .remote_calls import HELD
from .result_cache import Cache

_NOTHING = object()
_TICKETS = itertools.count()
"""One for each step that begins to run in this process, in a forward that keeps and runs inside of no other."""
_RUNNING: dict[int, weakref.ref[Integrity]] = {}
"""By ticket, the forwards whose steps run just now. No lock guards it, as a signal's handler may run a forward."""
_FORWARDS: dict[int, weakref.ref[Integrity]] = {}
"""The forwards that keep and run inside of no other."""


class Run(NamedTuple):
    """One run of a step, and what ran at the same time when it began."""

    ticket: int
    started: int
    tickets: int
    beside: bool
    others: bool


_FIXED = frozenset((type(None), bool, int, float, str, bytes))


class Integrity:
    """Compares the values and nodes of one forward with what their names were made of. Thread-safe.

    `ordered` says that nodes run one after another, in the order of their numbers, and `inner` that this forward runs
    inside of another.
    """

    def __init__(self, cache: Cache, input_: Any, *, ordered: bool, inner: bool = False) -> None:
        self._cache = cache
        self._input = input_
        self._ordered = ordered
        self._steps = cache.plan.steps
        self._broken: dict[int, str] = {}
        """Reasons by step whose value differs from its name."""
        self._spoiled: dict[int, str] = {}
        """Reasons by step whose value changed at its host after it was read there."""
        self._digests: dict[int, str | None] = {}
        """Digests by value that other code could change before it is read; None if it cannot be compared."""
        self._objects: dict[int, int] = {}
        self._when: dict[int, int] = {}
        """By value: the id of the object, and the number of steps begun when it was made."""
        self._lock = threading.Lock()
        self._started = self._running = self._tickets = 0
        self._inner = inner
        self._shares_input = False
        if not inner:
            self._meet_others()
        self._order: list[int] = []
        self._went: dict[int, int] = {}
        """By first step of a slice at a host: the number of steps begun here when it was sent."""
        self._readers: dict[int, list[int]] = {}
        for step in self._steps:
            for source in step.inputs:
                self._readers.setdefault(source, []).append(step.number)
        self._hits = set(cache.hits)
        self._look_ahead(self._hits)

    def _look_ahead(self, hits: Collection[int]) -> None:
        found = roles(self._cache.plan, hits)
        self._runs = [number for number, role in enumerate(found) if role is Role.RUN]
        running = set(self._runs)
        self.checked: set[int] = set()
        """The steps that run and whose results are to be kept, and those that feed them and run too."""
        for step in reversed(self._steps):
            if step.number not in running:
                continue
            kept = step.marks.cached is not None and (step.number in self._cache.names or step.marks.mapped is not None)
            if kept or step.number in self.checked:
                self.checked.add(step.number)
                self.checked.update(source for source in step.inputs if source in running)

    def missed(self, number: int) -> None:
        """Note that a step which was to be recalled has to run, out of order."""
        with self._lock:
            self._ordered = False
            self._hits.discard(number)
            self._look_ahead(self._hits)

    # What runs when

    def _meet_others(self) -> None:
        number = id(self)
        if type(self._input) not in _FIXED:
            for other in [one() for one in list(_FORWARDS.values())]:
                if other is not None and other._input is self._input:
                    self._shares_input = other._shares_input = True
        _FORWARDS[number] = weakref.ref(self, lambda _: _FORWARDS.pop(number, None))

    def starts(self, number: int) -> Run:
        """Note that a step begins to run; the answer is an argument of `beside` and `ends`."""
        with self._lock:
            self._started += 1
            self._running += 1
            beside = self._running > 1
            self._order.append(number)
            started = self._started
        ticket = self._ticket()
        others = not self._inner and any(one() not in (None, self) for one in list(_RUNNING.values()))
        if not self._inner:
            _RUNNING[ticket] = weakref.ref(self)
        return Run(ticket, started, self._tickets, beside, others)

    def _ticket(self) -> int:
        if self._inner:
            return -1
        with self._lock:
            self._tickets += 1
            return next(_TICKETS)

    def ends(self, run: Run) -> None:
        """Note that a step has run."""
        _RUNNING.pop(run.ticket, None)
        with self._lock:
            self._running -= 1

    def alone(self, run: Run) -> bool:
        """Whether no other step of this forward ran between when this one began and now."""
        return not run.beside and self._started == run.started

    def beside(self, run: Run) -> tuple[bool, bool]:
        """Whether a node that ran at the same time could change a step's node or input."""
        alone = self.alone(run)
        with_others = run.others or (not self._inner and self._ticket() - run.ticket > self._tickets - run.tickets)
        return not alone or with_others, not alone or (with_others and self._shares_input)

    # What is compared

    def produced(self, number: int, value: Any) -> None:
        """Note the value of a step; its digest is taken if it is compared later."""
        self._objects[number], self._when[number] = id(value), self._started
        if not self._cache.keeping:
            return
        readers = [reader for reader in self._readers.get(number, ()) if reader in self.checked]
        if not readers or type(value) in _FIXED:
            return
        if self._ordered and len(self._readers[number]) == 1 and self._steps[readers[0]].marks.mapped is None:
            following = bisect.bisect_right(self._runs, number)
            if readers[0] == self._runs[following]:  # nothing runs between its making and its reading
                return
        self._digests[number] = self._digest(value)

    def broken(self, number: int) -> str | None:
        """The reason why the input of a step differs from its name, or None."""
        return next((self._broken[one] for one in self._steps[number].inputs if one in self._broken), None)

    def why(self, number: int) -> str | None:
        """The reason why the value of a step or its input differs from its name, or None."""
        return self._spoiled.get(number) or self._broken.get(number) or self.broken(number)

    def breaks(self, number: int, why: str) -> None:
        """Note that the value of a step is not what its name says, and so are not those made of it."""
        self._broken[number] = why

    def changed(self, number: int, value: Any, *, own: bool = True, given: bool = True) -> str | None:
        """The changes since a step was named, in words; None if nothing changed.

        Compared are the values that it is `given`, and what it is made of itself (`own`).
        """
        if not self._cache.keeping:
            return None
        if given:
            wrong = self._input_changed(number, value)
            if wrong is not None:
                return wrong
        return self._own_changed(number) if own else None

    # At a host: what comes there is compared here, and there what is made of it

    def goes(self, one: Slice) -> None:
        """Note that a slice is about to go to its host."""
        self._went[one.steps[0]] = self._started

    def changed_before_it_went(self, number: int, one: Slice, slots: list[Any]) -> str | None:
        """The changes between the naming of a step and its departure to a host, in words."""
        return self._given_changed(number, one, slots) or self._own_changed(number)

    def changed_on_the_way(self, one: Slice, slots: list[Any]) -> None:
        """A slice came back: what it took may have been changed here before it was packed, by what ran meanwhile."""
        if not self._running and self._started == self._went.get(one.steps[0]):
            return
        for number in one.steps:
            if number in self.checked and self.why(number) is None:
                why = self._given_changed(number, one, slots)
                if why is not None:
                    self.breaks(number, why)

    def _given_changed(self, number: int, one: Slice, slots: list[Any]) -> str | None:
        inputs = self._steps[number].inputs
        if not inputs:
            return self._input_changed(number, None)
        for source in inputs:
            if source in one.steps or slots[source] is HELD:
                continue
            if self._value_changed(source, number, slots[source]):
                return self._value_words(source, number)
        return None

    def compared_at_host(self, one: Slice, held: list[int]) -> Compared:
        """The comparison orders for the host of a slice: steps, values, and which values are shared and held."""
        readers = [number for number in one.steps if number in self.checked]
        kept = [number for number in readers if self._steps[number].marks.cached is not None]
        values = {source for number in self.checked for source in self._steps[number].inputs or (INPUT,)}
        shared = [source for source in values if len(self._readers_of(source)) > 1]
        return readers, sorted({*values, *kept}), shared, held

    def changed_at_host(self, one: Slice, steps: Collection[int], values: Collection[int]) -> None:
        """Take over a returned slice's findings: steps whose input had changed, and values that changed later."""
        for number in one.steps:
            if number in steps:
                sources = self._steps[number].inputs or (INPUT,)
                others = [other for source in sources for other in self._others(source, number)]
                self.breaks(number, f"what it was given changed at host {one.host!r}{self._sharing(others)}")
        for number in values:
            others = [self._steps[reader].node for reader in self._readers_of(number)]
            why = f"what {self._steps[number].node!r} gave changed at host {one.host!r}{self._sharing(others)}"
            if number in one.steps:
                self._spoiled[number] = why
            for reader in self._readers_of(number):
                if reader not in one.steps and reader not in self._when:
                    self.breaks(reader, why)

    def _readers_of(self, source: int) -> list[int]:
        if source == INPUT:
            return [step.number for step in self._steps if not step.inputs]
        return self._readers.get(source, [])

    def _input_changed(self, number: int, value: Any) -> str | None:
        step = self._steps[number]
        if not step.inputs:
            if type(self._input) in _FIXED or self._cache.input_is_as_named(self._input):
                return None
            return f"the input changed before it was run{self._sharing(self._others(INPUT, number))}"
        for name, source in zip(step.names, step.inputs, strict=True):
            handed = value[name] if len(step.inputs) > 1 else value
            if self._value_changed(source, number, handed):
                return self._value_words(source, number)
        return None

    def _value_words(self, source: int, reader: int) -> str:
        node = self._steps[source].node
        if source not in self._digests:  # not needed before a kept result proved damaged
            return f"what {node!r} gave it may have changed, as what is kept was damaged; the next forward keeps it"
        return f"what {node!r} gave it changed before it was run{self._sharing(self._others(source, reader))}"

    def _value_changed(self, source: int, reader: int, value: Any) -> bool:
        if type(value) in _FIXED:
            return False
        if self._ordered and self._when.get(source) == self._started - 1:  # nothing ran since
            return False
        before = self._digests.get(source, _NOTHING)
        if before is _NOTHING:
            return True
        if before is None:
            return bool(self._others(source, reader))
        return self._digest(value) != before

    def _own_changed(self, number: int) -> str | None:
        step, before = self._steps[number], self._cache.names.get(number)
        if before is None:
            return None
        try:
            now = self._cache.named_now(number)
        except Exception as error:
            return f"it cannot be named any more ({type(error).__name__}: {error})"
        if now.digest == before.digest:
            return None
        what = "; ".join(difference(before.parts, now.parts)) or "what it is made of"
        ran = [self._steps[one].node for one in self._order if one != number]
        after = f" after {', '.join(map(repr, ran[-3:]))} ran" if ran else ""
        return f"what node {step.node!r} is made of changed{after} and before it was run: {what}"

    def _others(self, source: int, reader: int) -> list[str]:
        """The nodes beside `reader` that are given the value of a step, or have the same object as another's value."""
        same = {one for one, object_ in self._objects.items() if object_ == self._objects.get(source, -1)} | {source}
        numbers = {one for step in same for one in (*self._readers_of(step), step)} - {reader, source}
        if self._objects.get(source) == id(self._input):
            numbers |= set(self._readers_of(INPUT)) - {reader, source}
        return [self._steps[one].node for one in sorted(numbers) if one != INPUT]

    def _sharing(self, others: list[str]) -> str:
        if not others:
            return ", by whoever else has it"
        return f", and is shared with {', '.join(map(repr, others[:5]))}: let a node that changes its input copy it"

    def _digest(self, value: Any) -> str | None:
        try:
            return as_it_is(value)
        except Exception:
            return None

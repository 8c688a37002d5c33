"""Keep and recall, for the engine: what each node's result is called in this forward, and what the store has of it.

The one sin is a wrong answer in silence, so a name is whole or there is none; the second is never hitting, so whoever
goes without a name, or without being kept, is told once and why.
"""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from time import perf_counter_ns as clock
from typing import Any, NamedTuple

from . import codecs
from .claims import Claims
from .errors import KeepWarning, NotKeepable, NotStored, SomatizeError, StoreError, Unnameable
from .keys import Name, Namer, Naming, given
from .pieces import Marks
from .plan import Step
from .program import Program
from .storage import kept as storage
from .store import Store

CLAIMS = Claims()
"""What threads of this process compute just now, by store and name."""


class Found(NamedTuple):
    """A value from the store, or just put there: what the forward goes on with, its size, and how long that took."""

    value: Any
    bytes: int
    took: int


class Cache:
    """What one forward knows of kept results. Its names are those of the input as it was handed in."""

    def __init__(
        self,
        program: Program,
        store: Store,
        input_: Any,
        *,
        refresh: Collection[int] = (),
        keeping: bool = True,
        run: str | None = None,
    ) -> None:
        if program.namer is None:
            program.namer = Namer()
        self.plan = program.plan
        self.store = store
        opened = store.opened
        self.keeping = keeping and opened.writable
        self.unnamed: dict[int, str] = {}
        """Of each step that has no name, why."""
        self._implementations = program.implementations
        self._named = program.named
        self._naming: Naming = program.namer.opened()
        self._refresh = frozenset(refresh)
        self._run = run
        self._held: set[int] = set()
        self.names = self._name_all(input_)
        wanted = self._wanted()
        self._at_hand = storage.there(opened, wanted.values())
        self.hits = {number for number, digest in wanted.items() if digest in self._at_hand}

    def name(self, number: int) -> Name | None:
        """What the result of a step is called if it is to be kept; None if it is not, or has no name."""
        return self.names.get(number) if self.plan.steps[number].marks.cached is not None else None

    def refreshes(self, number: int) -> bool:
        """Whether a step is to run whatever is kept of it."""
        return number in self._refresh

    def item_name(self, number: int, item: Any) -> Name:
        """What the result of one item of a mapped node is called. Raises `Unnameable`."""
        step = self.plan.steps[number]
        thing = self._implementations[step.node].thing
        try:
            ignoring = step.marks.cached.ignoring if step.marks.cached is not None else ()
            return self._naming.name_of(thing, step.marks, given(item, _item_kind(step.marks), ignoring, self._held))
        except Exception as error:
            raise Unnameable(_why(error)) from error

    def recall(self, digest: str) -> Found | None:
        """What is kept under a name, made anew; None where there is nothing. What is damaged is nothing, and said."""
        began = clock()
        try:
            data = storage.recall(self.store.opened, digest, self._at_hand.pop(digest, None))
            value = storage.value_of(data)
        except NotStored:
            return None
        except StoreError as error:
            notice(f"a kept result cannot be used and is made again: {error}")
            return None
        return Found(value, len(data), clock() - began)

    def keep(
        self,
        step: Step,
        name: Name,
        value: Any,
        also: Mapping[str, Any] | None = None,
        write: Callable[[str, bytes | memoryview, Mapping[str, Any]], object] | None = None,
    ) -> Found | None:
        """Write a result down; handed on is what a recall would give. None where it cannot be kept, which is said.

        `write` does it in place of `Store.keep_bytes`.
        """
        if not self.keeping:
            return None
        began = clock()
        write = write or self.store.keep_bytes
        try:
            meta = {**self._meta(step, name), **(also or {})}
            made, size = codecs.handed_on(value, lambda data: write(name.digest, data, meta))
        except NotKeepable as error:
            notice(f"the result of node {step.node!r} is not kept: {error}; a `codec` for its type would let it be")
            return None
        except (SomatizeError, OSError) as error:
            notice(f"the result of node {step.node!r} could not be kept, and is handed on as it is: {error}")
            return None
        return Found(made, size, clock() - began)

    def _meta(self, step: Step, name: Name) -> dict[str, Any]:
        meta = {"node": step.node, "parts": name.parts, "host": platform.node(), "versions": _versions()}
        return meta if self._run is None else {**meta, "run": self._run}

    def _name_all(self, input_: Any) -> dict[int, Name]:
        """The name of each cached step and of all above it, from the roots down; the input is hashed once."""
        names: dict[int, Name] = {}
        root: Name | None = None
        steps, implementations, name_of = self.plan.steps, self._implementations, self._naming.name_of
        for number in self._named:
            step = steps[number]
            missing = [source for source in step.inputs if source in self.unnamed] if self.unnamed else None
            if missing:
                self.unnamed[number] = self.unnamed[missing[0]]
                continue
            try:
                if step.inputs:
                    before: Name | dict[str, Name] = {
                        id: names[source] for id, source in zip(step.names, step.inputs, strict=True)
                    }
                else:
                    before = root = root or given(input_, "input", self._ignoring(), self._held)
                name = names[number] = name_of(implementations[step.node].thing, step.marks, before)
                if step.marks.mapped is not None and step.marks.mapped.batch is not None:
                    # Given batches, the same code gives something else than given items one by one.
                    names[number] = name.marked("by batches")
            except Exception as error:
                self.unnamed[number] = f"{_why(error)}, at node {step.node!r}"
        return names

    def _ignoring(self) -> tuple[str, ...]:
        """What does not count in the code that comes with the input: all that a node says it does not depend on."""
        marks = [self.plan.steps[number].marks.cached for number in self._named]
        return tuple(sorted({name for one in marks if one is not None for name in one.ignoring}))

    def _wanted(self) -> dict[int, str]:
        """What is looked for in the store, by step."""
        steps, refresh = self.plan.steps, self._refresh
        return {
            number: name.digest
            for number, name in self.names.items()
            if steps[number].marks.cached is not None and number not in refresh
        }

    def say_unnamed(self, number: int) -> None:
        """One notice for a step that is to be kept and has no name."""
        if number in self.unnamed and self.plan.steps[number].marks.cached is not None:
            node = self.plan.steps[number].node
            notice(f"the result of node {node!r} is not kept, as it has no name: {self.unnamed[number]}")


def notice(sentence: str) -> None:
    """Say once, as a `KeepWarning`, what the user should know; never an exception out of a forward that works."""
    try:
        warnings.warn(sentence, KeepWarning, stacklevel=6)
    except KeepWarning:
        print(f"KeepWarning: {sentence}", file=sys.stderr)  # noqa: T201


def _why(error: Exception) -> str:
    """Why something has no name: what stands in the way, or what code of the user's raised when it was asked."""
    return str(error) if isinstance(error, Unnameable) else f"naming it raised {type(error).__name__}: {error}"


def _item_kind(marks: Marks) -> str:
    return "item" if marks.mapped is None or marks.mapped.batch is None else "item of a batch"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for library in ("somatize", "numpy", "torch"):
        version = getattr(sys.modules.get(library), "__version__", None)
        if version is not None:
            found[library] = str(version)
    return found

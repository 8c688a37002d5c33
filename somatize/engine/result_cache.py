"""Kept results in a forward: what each node's result is called, what the store has of it, and which thread computes it.

A name covers everything or there is none, so that no recalled result is wrong. A result that has no name, or is not
kept, is warned about once, with the reason.
"""

from __future__ import annotations

import copy
import platform
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from threading import get_ident
from time import perf_counter_ns as clock
from typing import Any, NamedTuple

from somatize import codecs
from somatize.dag.pieces import Marks
from somatize.dag.plan import Step
from somatize.errors import KeepWarning, NotKeepable, NotStored, SomatizeError, StoreError, Unnameable
from somatize.naming import (
    Looked,
    Name,
    Namer,
    Naming,
    Read,
    carries_gradient,
    given,
    is_seeded,
    training_in,
    unseen,
)
from somatize.store import values as storage
from somatize.store.store import Store
from somatize.utils.interrupts import Wakeup

from .program import Program

_LOOKS = 0.1
"""Seconds after which who waits looks whether the other is still there."""


class Claims:
    """Names that threads of this process are computing. For names of any hashable kind.

    No lock is taken: a signal's handler may come in the middle of anything here.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, _HeldClaim] = {}

    def take(self, names: Iterable[Hashable], owner: object = None) -> set[Hashable]:
        """Claim those of `names` that no other thread is computing; the caller must `release` them.

        A name another thread has is left out: `wait` for it, then look again. One that this very thread has already (a
        graph that runs within the node that computes it) is not waited for and not taken twice. With an `owner`, names
        are given up when that is gone, as after an interrupt.
        """
        taken: set[Hashable] = set()
        for name in names:
            mine = _HeldClaim(owner)
            held = self._held.setdefault(name, mine)
            if held is not mine and held.is_left():
                self._give_up(name, held)
                held = self._held.setdefault(name, mine)
            if held is mine:
                taken.add(name)
        return taken

    def release(self, names: Iterable[Hashable], owner: object = None) -> None:
        """Release claims, computed or given up; waiting threads look again. With `owner`, only its own."""
        for name in names:
            held = self._held.get(name)
            if held is not None and (owner is None or (held.owner is not None and held.owner() is owner)):
                self._give_up(name, held)

    def _give_up(self, name: Hashable, held: _HeldClaim) -> None:
        self._held.pop(name, None)
        held.over.set()

    def wait(self, name: Hashable) -> bool:
        """Until another thread that has `name` releases it. False if there is none to wait for."""
        held = self._held.get(name)
        if held is None or held.thread == get_ident():
            return False
        while self._held.get(name) is held and not held.is_left():
            held.over.wait(_LOOKS)
        held.over.set()  # for the others that wait
        return True


class Owner:
    """Owner of claims; they are released when it is garbage collected."""

    __slots__ = ("__weakref__",)


class _HeldClaim:
    __slots__ = ("over", "owner", "thread")

    def __init__(self, owner: object) -> None:
        self.thread = get_ident()
        self.over = Wakeup()
        self.owner = None if owner is None else weakref.ref(owner)

    def is_left(self) -> bool:
        return self.owner is not None and self.owner() is None


CLAIMS = Claims()
"""The results that threads of this process are computing, by store and name."""


class Found(NamedTuple):
    """A value from the store, or just stored: the value to go on with, its size and time."""

    value: Any
    bytes: int
    took: int


class _NotKept(Exception):
    """A result turned out, when it was about to be written, not to be what its name says."""


class Cache:
    """The kept results of one forward; names are those of the input as it was handed in."""

    def __init__(
        self,
        program: Program,
        store: Store,
        input_: Any,
        *,
        refresh: Collection[int] = (),
        keeping: bool = True,
        run: str | None = None,
        seed: int | None = None,
    ) -> None:
        if program.namer is None:
            program.namer = Namer()
        self.plan = program.plan
        self.store = store
        opened = store.opened
        self.place = opened.identity
        """The store's directory, equal for all its handles."""
        self.keeping = keeping and opened.writable
        self.unnamed: dict[int, str] = {}
        """Reasons by step that has no name."""
        self._implementations = program.implementations
        self._to_name = program.named
        self._namer: Namer = program.namer
        self._naming: Naming = program.namer.opened()
        self._said = program.said
        self._refresh = frozenset(refresh)
        self._run = run
        self._seed = seed
        self._held: set[int] = set()
        self._root: Name | None = None
        self._ignored = self._ignoring()
        self.names = self._name_all(input_)
        self.gradient = not self.names or carries_gradient(input_)
        """Whether the input requires a gradient, which what is recalled would cut off; one without a name may."""
        wanted = self._wanted()
        self._at_hand = storage.kept_among(opened, wanted.values())
        self.hits = {number for number, digest in wanted.items() if digest in self._at_hand}

    def name(self, number: int) -> Name | None:
        """The name of a step's result if it is to be kept; None if it is not, or has no name."""
        return self.names.get(number) if self.plan.steps[number].marks.cached is not None else None

    def reads(self, name: Name) -> tuple[Read, ...]:
        """External reads of a node's code that its name does not cover; a seed is part of the name."""
        return name.reads if self._seed is None else tuple(read for read in name.reads if not is_seeded(read))

    def refreshes(self, number: int) -> bool:
        """Whether a step is to run whatever is kept of it."""
        return number in self._refresh

    def looked_at(self, number: int) -> Looked:
        """A node as it is now, for the names of its items. Raises `Unnameable`."""
        step = self.plan.steps[number]
        try:
            return self._namer.opened().looked_at(self._implementations[step.node].thing, step.marks)
        except Exception as error:
            raise Unnameable(_why(error)) from error

    def item(self, number: int, item: Any) -> Name:
        """The name of one item of a mapped node, as it is now. Raises `Unnameable`."""
        marks = self.plan.steps[number].marks
        ignoring = marks.cached.ignoring if marks.cached is not None else ()
        try:
            return given(item, _item_kind(marks), ignoring, self._held)
        except Exception as error:
            raise Unnameable(_why(error)) from error

    def named_now(self, number: int) -> Name:
        """The name that a step's result would have if it were named now. Raises `Unnameable`."""
        return self._named(self._namer.opened(), number, self.names)

    def input_is_as_named(self, input_: Any) -> bool:
        """Whether the input still is what the names were made of."""
        if self._root is None:
            return True
        try:
            return given(input_, "input", self._ignored).digest == self._root.digest
        except Exception:
            return False

    def gradient_of(self, value: Any) -> str | None:
        """Why a result cannot be recalled because a gradient flows through the value from the input, or None."""
        if self.gradient and carries_gradient(value):
            return _GRADIENT
        return None

    def detached(self, value: Any, given: Any) -> Any:
        """A result that is not kept after all, made of `given`: as a recall would give it, where a gradient ends there.

        That is where one flows through the node's own weights, as it is frozen, and none from the graph's input.
        """
        if not carries_gradient(value) or self.gradient_of(given) is not None:
            return value
        try:
            return codecs.handed_on(value, _nowhere)[0]
        except (SomatizeError, OSError):
            return value

    def copied(self, value: Any) -> Any:
        """A value as a recall would give it; of what cannot be written down a deep copy, or itself."""
        try:
            return codecs.handed_on(value, _nowhere)[0]
        except (SomatizeError, OSError):
            pass
        try:
            return copy.deepcopy(value)
        except Exception:
            return value

    def gradient_of_input(self) -> str | None:
        """The reason why nothing is recalled because a gradient has to flow from the input, or None."""
        return _GRADIENT if self.gradient else None

    def training(self, number: int) -> str | None:
        """The reason why a step cannot be recalled because of the training mode of its modules, or None."""
        node = self.plan.steps[number].node
        words = training_in(self._implementations[node].thing)
        if words is None:
            return None
        return (
            f"node {node!r} is frozen and in training mode ({words}), so that no two runs are alike: call .eval() on it"
        )

    def recall(self, digest: str) -> Found | None:
        """The value kept under a name, decoded, or None. A damaged one counts as absent, with a warning."""
        began = clock()
        try:
            data = storage.recall(self.store.opened, digest, self._at_hand.pop(digest, None))
            value = storage.value_of(data)
        except NotStored:
            return None
        except StoreError as error:
            notice(f"a kept result cannot be used and is made again: {error}")  # each damage is one of its own
            return None
        return Found(value, len(data), clock() - began)

    def keep(
        self,
        step: Step,
        name: Name,
        value: Any,
        also: Mapping[str, Any] | None = None,
        write: Callable[[str, bytes | memoryview, Mapping[str, Any]], object] | None = None,
        check: Callable[[], str | None] | None = None,
    ) -> Found | None:
        """Keep a result; returns what a recall would give, or None with a warning if it cannot be kept.

        `write` does it in place of `Store.keep_bytes`; `check` is asked before, when the bytes are made, why not to.
        """
        if not self.keeping:
            return None
        began = clock()
        write = write or self.store.keep_bytes
        try:
            meta = {**self._meta(step, name), **(also or {})}
            made, size = codecs.handed_on(value, lambda data: _write_if(check, write, name.digest, data, meta))
        except _NotKept as stopped:
            self.say_not_kept(step.number, str(stopped))
            return None
        except NotKeepable as error:
            self.say_not_kept(step.number, f"{error}; a `codec` for its type would let it be")
            return None
        except (SomatizeError, OSError) as error:
            self.say(
                step.node, f"the result of node {step.node!r} could not be kept, and is handed on as it is: {error}"
            )
            return None
        reads = self.reads(name)
        if reads:
            self.say(step.node, f"the result of node {step.node!r} is kept, but {unseen(reads)}")
        return Found(made, size, clock() - began)

    def _meta(self, step: Step, name: Name) -> dict[str, Any]:
        meta = {"node": step.node, "parts": name.parts, "host": platform.node(), "versions": _versions()}
        return meta if self._run is None else {**meta, "run": self._run}

    def _name_all(self, input_: Any) -> dict[int, Name]:
        """The name of each cached step and of all above it, from the roots down; the input is hashed once."""
        names: dict[int, Name] = {}
        for number in self._to_name:
            step = self.plan.steps[number]
            missing = [source for source in step.inputs if source in self.unnamed] if self.unnamed else None
            if missing:
                self.unnamed[number] = self.unnamed[missing[0]]
                continue
            try:
                if not step.inputs and self._root is None:
                    self._root = given(input_, "input", self._ignored, self._held)
                names[number] = self._named(self._naming, number, names)
            except Exception as error:
                self.unnamed[number] = f"{_why(error)}, at node {step.node!r}"
        return names

    def _named(self, naming: Naming, number: int, names: Mapping[int, Name]) -> Name:
        step = self.plan.steps[number]
        before: Name | dict[str, Name] | None = self._root
        if step.inputs:
            before = {id: names[source] for id, source in zip(step.names, step.inputs, strict=True)}
        assert before is not None
        name = naming.name_of(self._implementations[step.node].thing, step.marks, before)
        # The same code gives another result for batches than for single items.
        batches = step.marks.mapped is not None and step.marks.mapped.batch is not None
        return self._drawn(name.marked("by batches") if batches else name, step.node)

    def _drawn(self, name: Name, *whose: Any) -> Name:
        """A name with the seed of the random generators, if the forward has one."""
        return name if self._seed is None else name.marked(f"drawn from {(self._seed, *whose)!r}")

    def item_drawn(self, name: Name, number: int, place: int) -> Name:
        """The same for an item of a mapped node."""
        return self._drawn(name, self.plan.steps[number].node, place)

    def _ignoring(self) -> tuple[str, ...]:
        """Attributes that do not count in code reached through the input: those that nodes declare as irrelevant."""
        marks = [self.plan.steps[number].marks.cached for number in self._to_name]
        return tuple(sorted({name for one in marks if one is not None for name in one.ignoring}))

    def _wanted(self) -> dict[int, str]:
        """The names to look up in the store, by step; empty if a gradient has to flow from the input."""
        if self.gradient:
            return {}
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
            self.say(node, f"the result of node {node!r} is not kept, as it has no name: {self.unnamed[number]}")

    def say_not_kept(self, number: int, why: str) -> None:
        """One notice for a step whose result is not kept."""
        node = self.plan.steps[number].node
        self.say(node, f"the result of node {node!r} is not kept: {why}")

    def say(self, node: str, sentence: str) -> None:
        """Say something of a node, once for each reason however many forwards there are."""
        said = node, re.sub(r"0x[0-9a-fA-F]+|\d+", "#", sentence)
        if said not in self._said:
            self._said.add(said)
            notice(sentence)


_GRADIENT = (
    "its input requires a gradient, which a recalled result would cut off; under torch.no_grad(), or given a detached "
    "input, it is kept"
)


def _nowhere(_data: bytes | memoryview) -> None:
    """A writer that discards its data."""


def _write_if(
    check: Callable[[], str | None] | None,
    write: Callable[[str, bytes | memoryview, Mapping[str, Any]], object],
    name: str,
    data: bytes | memoryview,
    meta: Mapping[str, Any],
) -> None:
    why = check() if check is not None else None
    if why is not None:
        raise _NotKept(why)
    write(name, data, meta)


def notice(sentence: str) -> None:
    """Warn once with a `KeepWarning`; never raises."""
    # `warnings.warn` can skip our frames by itself (`skip_file_prefixes`) only from Python 3.12 on.
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "somatize":
        level, frame = level + 1, frame.f_back  # where the user called
    try:
        warnings.warn(sentence, KeepWarning, stacklevel=level)
    except KeepWarning:
        print(f"KeepWarning: {sentence}", file=sys.stderr)  # noqa: T201


def _why(error: Exception) -> str:
    """The reason why something has no name: the obstacle, or the exception raised by user code."""
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

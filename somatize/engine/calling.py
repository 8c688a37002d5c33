"""One call of one node, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns as clock
from typing import Any, NamedTuple

from somatize.dag.slices import Compared, Slice
from somatize.facts import Fact
from somatize.watching.watchers import Forward

from .agenda import Role
from .program import Bound, held_to


class Outcome(NamedTuple):
    """What became of one step; times in nanoseconds.

    `before` and `after` are facts told around the step's own; `bytes` is the size of what was recalled. `place` says
    which items a mapped node was at. `missed` is a step that was to be recalled and has to run. `host` is where the
    items of a mapped node were sent.
    """

    step: int
    value: Any
    began: int
    took: int
    error: BaseException | None = None
    kind: str = "ran"
    bytes: int = 0
    before: tuple[Fact, ...] = ()
    after: tuple[Fact, ...] = ()
    place: str = ""
    missed: bool = False
    host: str | None = None


def call(step: Bound, value: Any, clock: Callable[[], int]) -> Outcome:
    """Call a node, whatever it raises."""
    began = clock()
    try:
        value = step.runner.forward(value) if step.ctx is None else step.runner.forward(value, step.ctx)
        took = clock() - began
        if step.device is not None:
            held_to(value, step.node, step.device)
    except BaseException as error:
        return Outcome(step.number, None, began, clock() - began, error)
    return Outcome(step.number, value, began, took)


class Calls:
    """Carries out the steps of a forward that keeps nothing and maps nothing: each is a call."""

    def __init__(self, forward: Forward) -> None:
        self.clock: Callable[[], int] = clock if forward.tell is not None else int  # which looks nowhere

    @property
    def hits(self) -> set[int]:
        """The steps whose result need not be made."""
        return set()

    def prepare(self) -> None:
        """Called in the caller's thread before the first step runs; not where all that is asked for is recalled."""

    def do(self, step: Bound, role: Role, value: Any) -> Outcome:  # noqa: ARG002  the others' is one of two
        """Carry out a step; never raises what the node does, but says it."""
        return call(step, value, self.clock)

    def sends(self, one: Slice, slots: list[Any]) -> Compared | None:  # noqa: ARG002
        """Steps are about to go to a host: what is to be compared there."""
        return None

    def landed(self, one: Slice, values: Mapping[int, Any], slots: list[Any]) -> None:
        """Steps came back from a host with the values of some of them."""

    def kept_far(self, number: int, value: Any) -> tuple[Any, Fact] | None:  # noqa: ARG002
        """Write down what a host gave for a step that is to be kept: what is handed on then, and the fact of it."""
        return None

"""A plan bound to its implementations: what the engine's loops read, made once per plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from . import tensors
from .context import Ctx
from .errors import DeviceMismatch, NotBuilt
from .implementation import Implementation
from .plan import Plan, Step
from .watching import Forward

Source: TypeAlias = int | tuple[tuple[str, int], ...] | None
"""Where a step's input lies: a slot, several by id, or None where the step before hands it on."""

INPUT = -1
"""The slot that holds the graph's own input: the last one."""


class Bound(NamedTuple):
    """A step as the loops want it: unpacked by position, in this order.

    `ctx` is None for an implementation that takes none. `keep` is the slot its value goes to, or -1 where it
    is handed on to the next step and never stored.
    """

    index: int
    node: str
    runner: Any
    ctx: Ctx | None
    source: Source
    frees: tuple[int, ...]
    keep: int
    device: str | None


class Program:
    """The steps of a graph, ready to run in any number of threads; nothing in it belongs to one forward."""

    def __init__(self, plan: Plan, implementations: Mapping[str, Implementation]) -> None:
        self.plan = plan
        self.key = object()
        """Shared by the program and its ctxs, so that neither keeps the other's graph alive."""
        self.running: list[Forward] = []
        """The watched forwards that run just now, for threads that have no context."""
        self.unbuilt = _unbuilt(plan)
        self.steps = [self._bind(step, implementations[step.node]) for step in plan.steps]
        ids = {leaf: plan.steps[leaf].node for leaf in plan.leaves}
        self.answer: Source = next(iter(ids), INPUT) if len(ids) <= 1 else tuple((ids[leaf], leaf) for leaf in ids)

    def _bind(self, step: Step, implementation: Implementation) -> Bound:
        steps = self.plan.steps
        handed = step.index > 0 and steps[step.index - 1].hands_on
        ctx = Ctx(step.node, step.marks.device, step.index, self.key, self.running)
        return Bound(
            index=step.index,
            node=step.node,
            runner=implementation.runner,
            ctx=ctx if implementation.takes_ctx else None,
            source=None if handed else self.source(step.index),
            frees=() if handed else step.frees,
            keep=-1 if step.hands_on else step.index,
            device=step.marks.device,
        )

    def source(self, index: int) -> Source:
        """Where the input of a step lies if every value is stored, none handed on."""
        step = self.plan.steps[index]
        if len(step.inputs) == 1:
            return step.inputs[0]
        return tuple(zip(step.names, step.inputs, strict=True)) or INPUT

    def slots(self, given: Any) -> list[Any]:
        """A place for each value of one forward, its input among them."""
        return [*[None] * len(self.steps), given]

    def refuse_unbuilt(self) -> None:
        """Raises `NotBuilt` where the plan asks for what no engine here can do."""
        if self.unbuilt is not None:
            raise NotBuilt(self.unbuilt)


def fetch(slots: list[Any], source: Source) -> Any:
    """The value at `source`: the very object, or a dict of several by id."""
    if isinstance(source, tuple):
        return {name: slots[slot] for name, slot in source}
    return slots[source]  # type: ignore[index]


def held_to(value: Any, node: str, device: str) -> None:
    """Raises `DeviceMismatch` if `value` holds a tensor that is not where its node was placed."""
    actual = tensors.elsewhere(value, device)
    if actual is not None:
        raise DeviceMismatch(
            f"node {node!r} was placed on {device!r} and returned a tensor on {actual!r}; "
            "move it to ctx.device in the node, or place the node elsewhere"
        )


def _unbuilt(plan: Plan) -> str | None:
    for step in plan.steps:
        for mark, asks in (("host", ".at"), ("cached", ".cached"), ("mapped", ".mapped")):
            said = getattr(step.marks, mark)
            if said is not None:
                return (
                    f"node {step.node!r} was declared {asks}({said!r} ...), which this version can declare and not "
                    f"run; take the mark away to run it plainly"
                )
    return None

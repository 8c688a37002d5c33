"""A dry run: what a forward would do with each node, found by names and by the contents of the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from somatize.dag.plan import Step
from somatize.naming import difference, unseen
from somatize.store.kept_values import KeptEntry

from .agenda import Role, roles
from .result_cache import Cache

_WOULD = {Role.RECALL: "be recalled", Role.RUN: "run", Role.SKIP: "be skipped"}


class Foresight(NamedTuple):
    """The predicted treatment of one node, and the reason."""

    node: str
    would: str
    """``"be recalled"``, ``"run"`` or ``"be skipped"``."""
    why: tuple[str, ...] = ()
    """For a cached node that would run: what its name differs in from the nearest result kept, or why it has none.

    For any cached node: what it reads that no name can see.
    """

    def __str__(self) -> str:
        return f"{self.node} would {self.would}" + (f": {'; '.join(self.why)}" if self.why else "")


class Foreseen(Mapping[str, Foresight]):
    """A predicted forward: one `Foresight` per node, in the order of the plan; prints one line per node."""

    def __init__(self, found: list[Foresight]) -> None:
        self._found = {one.node: one for one in found}

    def __getitem__(self, node: str) -> Foresight:
        return self._found[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __str__(self) -> str:
        return "\n".join(str(one) for one in self._found.values()) or "(no nodes)"

    __repr__ = __str__


def foresee(cache: Cache) -> Foreseen:
    """Predict a forward from the names in `cache`; nothing runs."""
    found = roles(cache.plan, cache.hits)
    missing = {step.number for step in cache.plan.steps if _would_miss(step, found[step.number])}
    kept = _kept_before(cache) if missing else {}
    training = _training(cache, found) if missing else {}
    return Foreseen(
        [
            Foresight(
                step.node,
                _WOULD[found[step.number]],
                (*(_why(cache, step, kept, training) if step.number in missing else ()), *_unseen(cache, step)),
            )
            for step in cache.plan.steps
        ]
    )


def _would_miss(step: Step, role: Role) -> bool:
    return role is Role.RUN and step.marks.cached is not None


def _training(cache: Cache, found: list[Role]) -> dict[int, str]:
    """The steps that would run and have no two runs alike, as they or what feeds them are in training mode, and why."""
    reasons: dict[int, str] = {}
    for number in cache.names:
        if found[number] is Role.RUN:
            above = (reasons[source] for source in cache.plan.steps[number].inputs if source in reasons)
            why = next(above, None) or cache.training(number)
            if why is not None:
                reasons[number] = why
    return reasons


def _unseen(cache: Cache, step: Step) -> list[str]:
    """The external reads of a kept node that its name does not cover."""
    name = cache.name(step.number)
    reads = cache.reads(name) if name is not None else ()
    return [unseen(reads)] if reads else []


def _why(cache: Cache, step: Step, kept: dict[str, list[KeptEntry]], training: dict[int, str]) -> list[str]:
    if step.number in cache.unnamed:
        reason = f"it has no name: {cache.unnamed[step.number]}"
        return [f"it depends on its items; {reason}"] if step.marks.mapped is not None else [reason]
    if cache.refreshes(step.number):
        return ["it is to be refreshed"]
    refused = cache.gradient_of_input() or training.get(step.number)
    if refused is not None:
        return [f"its result is not kept: {refused}"]
    said = ["it depends on its items"] if step.marks.mapped is not None else []
    parts = cache.names[step.number].parts
    before = kept.get(step.node, [])
    alike = [entry for entry in before if _parts(entry).get("class") == parts.get("class")]
    differences = [difference(_parts(entry), parts) for entry in alike or before]
    nearest = min((one for one in differences if one), key=len, default=None)
    return said + (nearest if nearest is not None else ["nothing of this node is kept"] * (not said))


def _kept_before(cache: Cache) -> dict[str, list[KeptEntry]]:
    """The results each node kept before, by node id, latest first.

    What is the present name of another node is that one's, which had this id before.
    """
    now = {name.digest: cache.plan.steps[number].node for number, name in cache.names.items()}
    found: dict[str, list[KeptEntry]] = {}
    for entry in sorted(cache.store.kept(), key=lambda entry: -entry.when):
        node = entry.meta.get("node")
        if isinstance(node, str) and now.get(entry.name, node) == node and not entry.meta.get("item") and _parts(entry):
            found.setdefault(node, []).append(entry)
    return found


def _parts(entry: KeptEntry) -> dict[str, Any]:
    parts = entry.meta.get("parts")
    return parts if isinstance(parts, dict) else {}

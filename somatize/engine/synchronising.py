"""`synchronise=True`: after each placed node, wait until its device has done what was launched.

The engine's loops know nothing of it: the nodes of such a forward are wrapped, in a program of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from somatize.codecs import tensors
from somatize.dag.implementation import Implementation
from somatize.dag.plan import Plan


def waiting(plan: Plan, implementations: Mapping[str, Implementation]) -> dict[str, Implementation]:
    """The implementations of a plan, those of placed nodes waiting for their device."""
    found = dict(implementations)
    for step in plan.steps:
        if step.marks.device is not None:
            patient = found[step.node] = copy(found[step.node])
            patient.runner = _Waiting(patient.runner, step.marks.device)
    return found


class _Waiting:
    """A runner that returns when its device is through."""

    __slots__ = ("_device", "_runner")

    def __init__(self, runner: Any, device: str) -> None:
        self._runner = runner
        self._device = device

    def forward(self, *given: Any) -> Any:
        value = self._runner.forward(*given)
        tensors.synchronise(self._device)
        return value

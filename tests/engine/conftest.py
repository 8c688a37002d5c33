"""A store for kept results, and what a forward did with them."""

from __future__ import annotations

import warnings

import pytest

from somatize import Store
from somatize.errors import KeepWarning


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "kept") as opened:
        yield opened


def told(graph, value, store, **how):
    """The answer, what was done with each node, and what was warned."""
    facts = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", KeepWarning)
        answer = graph.forward(value, store=store, watching=facts.append, **how)
    kinds = [f"{fact['fact']} {fact['node']}" for fact in facts if fact["fact"] in ("ran", "kept", "recalled")]
    return answer, kinds, [str(one.message) for one in said]

"""An argument that is large is held, and named when a name is asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from somatize import Node
from somatize.dag.pieces import Marks
from somatize.naming import Namer, constructor_arguments, given


class Holds(Node):
    __unkeyed__ = ("_what",)

    def __init__(self, what):
        self._what = what

    def forward(self, value, ctx):
        return value


def digest(node):
    return Namer().opened().name_of(node, Marks(), given(1)).digest


MAKERS = {
    "array": lambda n: np.full((1 << 23) + 1, n),
    "list": lambda n: [n] * 300_000,
    "frame": lambda n: pd.DataFrame(np.full(((1 << 20) + 1, 8), n)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_it_counts_by_its_content_though_it_was_not_named_at_construction(make, monkeypatch):
    asked = []
    # When a value is hashed shows nowhere else.
    content = constructor_arguments.content
    monkeypatch.setattr(constructor_arguments, "content", lambda *args: asked.append(args) or content(*args))
    one, same, other = Holds(make(1.0)), Holds(make(1.0)), Holds(make(2.0))
    assert asked == []
    assert digest(one) == digest(same) != digest(other)


def test_what_is_small_is_named_there_and_then():
    small = [1.0]
    node = Holds(small)
    before = digest(node)
    small.append(2.0)
    assert digest(node) == before

"""The name of a kept result: a digest of everything that its value depends on, and of nothing else.

A `Namer` is made once per program and remembers what it found of each node; each forward, and each look ahead,
opens it once, and asks for the names of its nodes from the roots down::

    naming = namer.opened()
    before = given(value)                                    # the root input, hashed once
    first = naming.name_of(implementation.thing, marks, before)     # a root: fed by the input
    second = naming.name_of(other.thing, marks, {"first": first})   # fed by nodes: their names by id
    each = naming.name_of(mapped, marks, given(item, "item")) # one item of a mapped node

A `Name` has the `digest`, as hex, under which the result is kept, and `parts`: plain values that msgpack can write, to
be kept beside it, so that `difference(old, new)` can tell in sentences what an edit changed. Naming raises
`Unnameable`, which says what could not be named and where; there is no shorter name to fall back to.
"""

from __future__ import annotations

from .attributes import carries_gradient, training_in
from .content_digest import content
from .external_reads import Read, is_seeded, unseen
from .names import Looked, Name, Namer, Naming, as_it_is, difference, given

__all__ = [
    "Looked",
    "Name",
    "Namer",
    "Naming",
    "Read",
    "as_it_is",
    "carries_gradient",
    "content",
    "difference",
    "given",
    "is_seeded",
    "training_in",
    "unseen",
]

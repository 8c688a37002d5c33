"""How many samples a batch holds, as far as can be seen of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from operator import index
from typing import Any

_DEEP = 2
_WIDE = 4
_COLUMNS = 32
"""How far is looked: how deep, how far into a list, and into a mapping. A step must not cost more where a batch is
lists of lists."""


def samples_in(batch: Any) -> int | None:
    """How many samples a batch seems to hold, or None; never raises, and looks at no element of an array.

    Of a batch of graphs its graphs or the nodes asked for; of an array or tensor its first dimension; of a tuple, list
    or mapping the first dimension of the first it holds, so ``(x, y)`` counts x; else its length, and that of the first
    column where it holds columns. A list of mappings holds samples.
    """
    try:
        return _samples(batch, _DEEP)
    except Exception:
        return None


def _samples(batch: Any, deep: int) -> int | None:
    if batch is None or isinstance(batch, str | bytes | int | float) or not deep:
        return None
    for name in ("num_graphs", "batch_size", "num_nodes"):
        said = _count(getattr(batch, name, None))
        if said is not None:
            return said
    if getattr(batch, "shape", None) is not None:
        return _first_dimension(batch)
    if isinstance(batch, Mapping):
        return _of_columns(batch.values(), deep)
    if isinstance(batch, tuple | list) and batch:
        if len(batch) > 1 and all(isinstance(held, Mapping) for held in batch):
            return len(batch)
        first_dimension = next(_first_dimensions(batch, deep), None)
        if first_dimension is not None:
            return first_dimension
        if len(batch) == 1 and isinstance(batch[0], Mapping):
            return _samples(batch[0], deep - 1)
    return len(batch)


def _of_columns(columns: Any, deep: int) -> int | None:
    first_dimension = next(_first_dimensions(columns, deep), None)
    if first_dimension is not None:
        return first_dimension
    lengths = (_samples(column, deep - 1) for column in islice(columns, _COLUMNS))
    return next((length for length in lengths if length is not None), None)


def _first_dimensions(held: Any, deep: int) -> Iterator[int]:
    """Those of the arrays in a container and in what it holds, in their order."""
    for thing in islice(held, _WIDE if isinstance(held, tuple | list) else _COLUMNS):
        own = _first_dimension(thing)
        if own is not None:
            yield own
        elif deep and isinstance(thing, Mapping):
            yield from _first_dimensions(thing.values(), deep - 1)
        elif deep and isinstance(thing, tuple | list):
            own_of_each = {_first_dimension(one) for one in islice(thing, _WIDE)}
            if len(own_of_each) > 1 and None not in own_of_each:  # images of several sizes, and no columns
                yield len(thing)
            else:
                yield from _first_dimensions(thing, deep - 1)


def _first_dimension(thing: Any) -> int | None:
    shape = getattr(thing, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) else None


def _count(said: Any) -> int | None:
    if isinstance(said, tuple) and said:
        said = said[0]
    if said is None or isinstance(said, bool) or callable(said):
        return None
    try:
        return index(said)
    except Exception:
        return None

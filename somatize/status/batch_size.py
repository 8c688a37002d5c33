"""The size of a batch: its samples, its shapes, and the amount of work in it."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice
from math import prod
from operator import index
from typing import Any, NamedTuple

_DEEP = 2
_WIDE = 4
_COLUMNS = 32
"""Limits of how deep, and how far into lists and mappings, a batch is inspected, so that lists of lists stay cheap."""
_DEEPEST, _LEAVES = 6, 256
"""Limits of the depth and number of shapes collected from a batch."""


def samples_in(batch: Any) -> int | None:
    """The number of samples a batch seems to contain, or None. Never raises, and reads no array elements.

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


_RAGGED = ("rows of several lengths",)


class BatchSize(NamedTuple):
    """The amount of work in a batch, its unit, and a key of batches that are alike.

    `work` is None where nothing can be said, `alike` None where it cannot be seen of which batches this is one.
    """

    unit: str = ""
    work: float | None = None
    alike: Hashable = None


def size_of(batch: Any, samples: int | None) -> BatchSize:
    """The size of a batch: the nodes of graphs, else the elements of its arrays, else its samples. Never raises.

    Batches are alike that hold arrays and rows of the same shapes, and the same whole numbers, in the same places.
    """
    unit, work, alike = "samples", samples, None
    try:
        shapes = list(_shapes(batch, _DEEPEST))
        lengths = [shape for shape in shapes if shape and type(shape[0]) is int]
        if lengths:
            unit, work = "elements", sum(map(prod, lengths))
            alike = tuple(shapes) if _RAGGED not in shapes else None
    except Exception:  # it holds something that does not say how large it is
        alike = None
    try:
        nodes = _nodes_in(batch)
    except Exception:
        nodes = None
    return BatchSize(unit, work, alike) if nodes is None else BatchSize("nodes", nodes, alike)


def _shapes(held: Any, deep: int) -> Iterator[tuple[Any, ...]]:
    """The shape of every array and row of numbers, and between them what tells where they stand.

    Raises ValueError for what has no shape that says how much there is of it.
    """
    if held is None or isinstance(held, bool | int | float | complex):
        yield (type(held).__name__, held)
    elif isinstance(held, str | bytes):
        yield (len(held),)
    elif getattr(held, "shape", None) is not None:
        if getattr(held, "is_nested", False):
            yield _RAGGED
            held = held.values()
        elif str(getattr(held, "layout", "torch.strided")) != "torch.strided":
            raise ValueError("a sparse tensor")
        yield tuple(int(length) for length in held.shape)
    elif isinstance(held, list | tuple) and held and _is_number(held[0]) and _is_number(held[-1]):
        yield (len(held),)
    else:
        yield from _shapes_within(held, deep)


def _shapes_within(held: Any, deep: int) -> Iterator[tuple[Any, ...]]:
    columns = _columns(held, deep)
    within = list(held) if columns is None else list(columns.values())
    yield (type(held).__name__, len(within), *(columns or ()))
    left = _LEAVES
    for value in within:
        for shape in _shapes(value, deep - 1):
            yield shape
            left -= 1
            if left < 0:
                raise ValueError("too many")


def _columns(held: Any, deep: int) -> Mapping[Any, Any] | None:
    """The named parts of an object; None for a sequence. Only plain mappings are read: others may compute."""
    if isinstance(held, list | tuple | dict | UserDict) and deep and len(held) <= _LEAVES:
        return held if isinstance(held, dict | UserDict) else None
    if deep < _DEEPEST - 1 or isinstance(held, list | tuple | Mapping):
        raise ValueError("too deep, too much, or too far from the batch to be asked")
    made = held.to_dict() if hasattr(held, "edge_index") and callable(getattr(held, "to_dict", None)) else vars(held)
    if not made:
        raise ValueError("nothing to see")
    return dict(made)


def _is_number(held: Any) -> bool:
    return isinstance(held, int | float) and not isinstance(held, bool)


def _nodes_in(batch: Any) -> int | None:
    """The number of graph nodes in a batch of graphs; None if it contains no graphs."""
    own = _nodes(batch)
    if own is not None or not isinstance(batch, list | tuple):
        return own
    each = [_nodes(one) for one in batch[:_LEAVES]]
    known = [nodes for nodes in each if nodes is not None]
    return sum(known) if known else None


def _nodes(graph: Any) -> int | None:
    get: Callable[[str], Any]
    if isinstance(graph, dict | UserDict) and "edge_index" in graph:
        get = graph.get
    elif hasattr(graph, "num_nodes") or hasattr(graph, "edge_index"):
        get = lambda name: getattr(graph, name, None)  # noqa: E731
    else:
        return None
    said = get("num_nodes")
    nodes = _count(said() if callable(said) else said)
    for name in ("x", "batch", "pos"):
        nodes = _first_dimension(get(name)) if nodes is None else nodes
    return nodes

"""How the elements of an array lie in memory: arithmetic on shapes and strides, the same for numpy and torch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

WIDEST = 32
"""How many times its elements the memory may be that a view spans, gaps included; a wider one is not kept."""

_SMALL = 1 << 20


class Layout(NamedTuple):
    """The memory that strided elements lie in, between their lowest address and the end of the highest element.

    The *core* is the array without axes that only repeat (stride 0), its axes ordered by falling stride, none of
    them backwards. Its elements, in C order, are those of the array in memory order, each repeated one once.
    """

    order: tuple[int, ...]
    """The axes of the array by falling stride: how to transpose it for the core."""
    shape: tuple[int, ...]
    """The shape of the core."""
    strides: tuple[int, ...]
    """The strides of the core; 0 for an axis of one element."""
    offset: int
    """How far the first element lies above the lowest address."""
    span: int
    """From the lowest address to the end of the highest element."""
    dense: bool
    """Whether each unit of the span is part of an element."""
    shared: bool
    """Whether elements of the core overlap."""
    item: int
    """The size of an element, in units of a stride."""

    @property
    def size(self) -> int:
        """The number of elements of the core."""
        return prod(self.shape)

    def is_wide(self, unit: int = 1) -> bool:
        """Whether the gaps are so many that the memory is not made again, where a unit is so many bytes."""
        return self.span * unit > max(WIDEST * self.size * self.item * unit, _SMALL)


def contiguous(shape: Sequence[int], item: int = 1) -> tuple[int, ...]:
    """The strides of C order."""
    found = []
    for size in reversed(shape):
        found.append(item)
        item *= max(size, 1)
    return tuple(reversed(found))


def layout(shape: Sequence[int], strides: Sequence[int], item: int = 1) -> Layout:
    """Where the elements of an array of at least one element lie; `item` is the size of one, in units of a stride."""
    steps = [abs(stride) if size > 1 else 0 for size, stride in zip(shape, strides, strict=True)]
    order = tuple(sorted(range(len(steps)), key=lambda axis: -steps[axis]))
    sizes = tuple(shape[axis] if steps[axis] else 1 for axis in order)
    offset = sum((size - 1) * -stride for size, stride in zip(shape, strides, strict=True) if stride < 0)
    reach, dense, shared = item, True, False
    for axis in reversed(order):
        if steps[axis]:
            dense = dense and steps[axis] <= reach
            shared = shared or steps[axis] < reach
            reach += (shape[axis] - 1) * steps[axis]
    return Layout(order, sizes, tuple(steps[axis] for axis in order), offset, reach, dense, shared, item)

"""The places in a tangle: in each layer nodes and passing arrows side by side, near what they are connected to."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise

_SWEEPS = 6

Spot = Hashable
"""A node of the tangle, or the place where an arrow passes through a layer."""


def spread(
    layers: Sequence[list[Spot]], widths: Mapping[Spot, float], links: Mapping[Spot, list[Spot]], gap: float
) -> dict[Spot, float]:
    """The middle of each spot from side to side; the leftmost edge is at 0.

    `links` go both ways and only to neighbouring layers. No two spots of a layer come nearer than `gap`.
    """
    _order(layers, links)
    middles: dict[Spot, float] = {}
    for layer in layers:
        at = 0.0
        for spot in layer:
            middles[spot] = at + widths[spot] / 2
            at += widths[spot] + gap
    for sweep in range(2 * _SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _pull(layer, widths, links, middles, gap)
    left = min(middles[spot] - widths[spot] / 2 for layer in layers for spot in layer)
    return {spot: middle - left for spot, middle in middles.items()}


def _order(layers: Sequence[list[Spot]], links: Mapping[Spot, list[Spot]]) -> None:
    """Sort each layer by where its neighbours stand, some times down and up."""
    place = {spot: float(at) for layer in layers for at, spot in enumerate(layer)}
    for sweep in range(2 * _SWEEPS):
        pairs = list(pairwise(layers))
        for above, below in pairs if sweep % 2 == 0 else [(b, a) for a, b in reversed(pairs)]:
            known = set(above)
            wanted = {
                spot: _mean([place[other] for other in links[spot] if other in known], place[spot]) for spot in below
            }
            below.sort(key=wanted.__getitem__)
            for at, spot in enumerate(below):
                place[spot] = float(at)


def _pull(
    layer: Sequence[Spot],
    widths: Mapping[Spot, float],
    links: Mapping[Spot, list[Spot]],
    middles: dict[Spot, float],
    gap: float,
) -> None:
    """Move each spot towards its neighbours as far as the order and the gaps allow: least squares."""
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + gap)
    wanted = [_mean([middles[other] for other in links[spot]], middles[spot]) for spot in layer]
    rising: list[tuple[float, int]] = []  # means over neighbours that want to be where the other is, and how many
    for goal, offset in zip(wanted, offsets, strict=True):
        mean, count = goal - offset, 1
        while rising and rising[-1][0] > mean:
            before, many = rising.pop()
            mean, count = (mean * count + before * many) / (count + many), count + many
        rising.append((mean, count))
    shifts = [mean for mean, count in rising for _ in range(count)]
    for spot, shift, offset in zip(layer, shifts, offsets, strict=True):
        middles[spot] = shift + offset


def _mean(numbers: list[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise

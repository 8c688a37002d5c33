"""What a forward would do about each node, on a drawing: a sign on its box, and the reasons in its hover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import theme as themes

Sights = Mapping[str, Any]
"""By node id, what `Graph.foreseen` says: `would` and `why`."""

SIGNS = {"run": "▶", "be recalled": "↺", "be skipped": "∅"}


def sign(sights: Sights | None, node: str) -> list[str]:
    """The sign of a node, if something was foreseen of it."""
    return [SIGNS[sights[node].would]] if sights is not None and node in sights else []


def reasons(sights: Sights | None, node: str) -> list[str]:
    """What the hover says of it, line by line."""
    if sights is None or node not in sights:
        return []
    return [f"would {sights[node].would}", *(f"   {themes.escaped(why, 100)}" for why in sights[node].why)]


def notes(sights: Sights | None, nodes: Sequence[str]) -> list[str]:
    """What the signs on a drawing mean, as far as there are any."""
    found = {sights[node].would for node in nodes if node in sights} if sights is not None else set()
    return [f"{sign} would {would}" for would, sign in SIGNS.items() if would in found]

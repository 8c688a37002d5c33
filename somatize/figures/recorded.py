"""A graph drawn from what a record says of it: its nodes are no longer there, their names and marks are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from somatize.dag.pieces import Cached, Frozen, Mapped, Marks
from somatize.dag.topology import Topology

from . import theme as themes
from .drawing import MOST, empty
from .graph_structure import Wiring
from .overview_picture import overview_picture
from .picture import Picture, picture_of


class _Absent:
    """Stands for what a node ran: all that is known of it is its class."""

    def __init__(self) -> None:
        self.__qualname__ = ""

    @classmethod
    def called(cls, name: object) -> _Absent:
        made = cls()
        made.__module__, _, made.__qualname__ = str(name or "?").rpartition(".")
        return made


def recorded(described: Mapping[str, Any], theme: str | None = None) -> Picture:
    """What the figure of a recorded graph is made of: traces and a layout, as for a graph that is there.

    `described` is one of the ``graphs`` that `record.about` gives. Raises KeyError for what is no such description.
    """
    look = themes.theme_of(theme)
    topology = Topology()
    classes = {node["id"]: node.get("class") for node in described["nodes"]}
    for name in classes:
        topology.add(name)
    for before, after in described["edges"]:
        topology.link(before, after)
    wiring = Wiring(topology)
    if not len(wiring):
        return empty(look)
    marks = [_marks(described.get("marks", {}), name) for name in wiring.names]
    if len(wiring) > MOST:
        return overview_picture(wiring, marks, look)
    return picture_of(wiring, marks, [_Absent.called(classes[name]) for name in wiring.names], look)


def _marks(said: Mapping[str, Any], name: str) -> Marks:
    cached, mapped = (said.get(mark, {}).get(name) for mark in ("cached", "mapped"))
    return Marks(
        id=name,
        host=said.get("hosts", {}).get(name),
        device=said.get("devices", {}).get(name),
        cached=None if cached is None else Cached(_field(cached, "salt")),
        frozen=Frozen() if name in said.get("frozen", {}) else None,
        mapped=None if mapped is None else Mapped(_field(mapped, "batch")),
    )


def _field(mark: Any, name: str) -> Any:
    """A part of a mark; records of before it was kept say no more than that there is one."""
    return mark.get(name) if isinstance(mark, Mapping) else None

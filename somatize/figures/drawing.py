"""A graph drawn, having never run: as a figure, as Mermaid text, and as what a notebook shows of it.

Boxes say *when*: what comes later lies lower, branches lie side by side in a frame, and a slice has a frame labelled
with its host. Arrows say *what feeds what*, and none crosses a box it does not belong to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from somatize.dag.declaration import Declaration

from . import plotly_backend
from . import theme as themes
from .graph_structure import Wiring
from .mermaid import mermaid_of
from .overview_picture import overview_picture
from .picture import Picture, picture_of
from .sights import Sights
from .theme import Theme

if TYPE_CHECKING:
    from .plotly_backend import Figure

__all__ = ["figure", "in_a_cell", "mermaid", "picture"]

MOST = 300
"""Up to how many nodes each has a box."""


def figure(declaration: Declaration, theme: str | None = None, foreseen: Sights | None = None) -> Figure:
    """A plotly figure of a graph. Raises `ExtraMissing` where plotly is not installed."""
    plotly_backend.require()
    return plotly_backend.figure(*picture(declaration, theme, foreseen))


def picture(declaration: Declaration, theme: str | None = None, foreseen: Sights | None = None) -> Picture:
    """What the figure is made of, as plain dicts; with `foreseen`, what a forward would do is on each box."""
    look = themes.theme_of(theme)
    wiring = Wiring(declaration.topology)
    if not len(wiring):
        return empty(look)
    marks = [declaration.marks[name] for name in wiring.names]
    if len(wiring) > MOST:
        return overview_picture(wiring, marks, look)
    things = [declaration.implementations[name].thing for name in wiring.names]
    return picture_of(wiring, marks, things, look, foreseen)


def empty(look: Theme) -> Picture:
    """The picture of a graph without nodes."""
    hidden: dict[str, Any] = {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    return [], themes.layout(look, height=160, **hidden, annotations=[themes.in_the_middle(look, "an empty graph")])


def mermaid(declaration: Declaration) -> str:
    """Mermaid text that GitHub draws."""
    wiring = Wiring(declaration.topology)
    return mermaid_of(wiring, [declaration.marks[name] for name in wiring.names])


def in_a_cell(declaration: Declaration) -> dict[str, Any]:
    """What a notebook shows of a graph, by media type; without plotly, Mermaid text, which JupyterLab draws."""
    shown: dict[str, Any] = {"text/plain": declaration.shown()}
    if not plotly_backend.installed():
        return {"text/markdown": f"```mermaid\n{mermaid(declaration)}```\n", **shown}
    return plotly_backend.bundle(figure(declaration)) | shown

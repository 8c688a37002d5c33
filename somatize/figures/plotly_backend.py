"""The interface to plotly, and the only module that imports it.

A figure is made elsewhere, as data: traces and a layout, plain dicts. Here it becomes plotly's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from somatize.errors import ExtraMissing

if TYPE_CHECKING:
    import plotly.graph_objects as go

    Figure: TypeAlias = go.Figure
    FigureWidget: TypeAlias = go.FigureWidget

Traces: TypeAlias = Sequence[Mapping[str, Any]]

PIP = "pip install 'somatize[viz]'"


def figure(data: Traces, layout: Mapping[str, Any]) -> go.Figure:
    """A plotly figure. Raises `ExtraMissing` where plotly is not installed."""
    return _plotly().Figure(data=list(data), layout=dict(layout))


def widget(data: Traces, layout: Mapping[str, Any]) -> go.FigureWidget:
    """A figure that a notebook redraws in place. Raises `ExtraMissing` without plotly, ipywidgets or anywidget."""
    graph_objects = _plotly()
    from importlib.util import find_spec

    missing = [name for name in ("anywidget", "ipywidgets") if find_spec(name) is None]
    if missing:
        raise ExtraMissing(f"a widget needs {' and '.join(missing)}, which is not installed: {PIP}")
    made = graph_objects.FigureWidget(data=list(data), layout=dict(layout))
    made._config = {**made._config, "responsive": True}  # as wide as its cell, also when that changes
    return made


def require() -> None:
    """Raises `ExtraMissing` where plotly is not installed: before a million forwards are read, not after."""
    _plotly()


def installed() -> bool:
    """Whether plotly is there, without importing it."""
    from importlib.util import find_spec

    try:
        return find_spec("plotly") is not None
    except (ImportError, ValueError):  # something stands in its place
        return False


def html(shown: go.Figure, *, alone: bool) -> str:
    """A figure as HTML: a page of its own with plotly's script in it, or a part of a page that has the script."""
    return str(
        shown.to_html(full_html=alone, include_plotlyjs=alone, config={"displaylogo": False, "responsive": True})
    )


def bundle(shown: go.Figure) -> dict[str, Any]:
    """The notebook output of a figure by media type: plotly's renderer's, and always plotly's own type."""
    return {"application/vnd.plotly.v1+json": json.loads(shown.to_json()), **shown._repr_mimebundle_(None, None)}


def script() -> str:
    """Plotly's script, for a page that holds several figures."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _plotly() -> Any:
    try:
        import plotly.graph_objects
    except ImportError as error:
        raise ExtraMissing(f"a figure needs plotly, which is not installed: {PIP}") from error
    return plotly.graph_objects

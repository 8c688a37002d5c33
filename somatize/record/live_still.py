"""The pictures a Live leaves in a saved notebook, and its traces made small enough to be sent ten times a second."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from somatize.figures import plotly_backend

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure

    from .live import Live

PNG = "image/png"
_WIDTH, _SCALE = 900, 2
_MARKS = 400
"""How many hover texts a trace keeps while it moves; the figure itself has all."""


def brief(data: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The same traces, those with a long text at every point thinned evenly."""
    return [_thinned(trace) if len(trace.get("hovertext") or ()) > _MARKS else trace for trace in data]


def _thinned(trace: Mapping[str, Any]) -> dict[str, Any]:
    step = -(-len(trace["hovertext"]) // _MARKS)
    return {key: value[::step] if isinstance(value, list) else value for key, value in trace.items()}


def still(live: Live, *, pictured: bool) -> dict[str, Any]:
    """The figure as an output that nobody redraws; `pictured` by kaleido, if that is installed.

    Pages that run no scripts show the picture. HTML, which needs the network to show, stands in only where there is
    no picture: what converts notebooks prefers it.
    """
    bundle: dict[str, Any] = {"text/plain": repr(live)}
    if not plotly_backend.installed():
        bundle["text/plain"] += f"\n(a figure needs plotly, which is not installed: {plotly_backend.PIP})"
        return bundle
    figure = live.figure()
    bundle["application/vnd.plotly.v1+json"] = json.loads(figure.to_json())
    return bundle | kept_picture(figure, pictured=pictured)


def kept_picture(figure: Figure, *, pictured: bool) -> dict[str, Any]:
    """A figure as a picture, if kaleido makes one, else as HTML."""
    png = kaleido_picture(figure) if pictured else None
    if png is not None:
        return {PNG: png}
    return {"text/html": figure.to_html(full_html=False, include_plotlyjs="cdn")}


def kaleido_picture(figure: Figure) -> str | None:
    """A figure as a PNG, in base64, made without a notebook; None without kaleido or the browser it drives."""
    if find_spec("kaleido") is None:
        return None
    try:
        return base64.b64encode(figure.to_image(format="png", width=_WIDTH, scale=_SCALE)).decode("ascii")
    except Exception:  # it finds no browser, or one that does not start: there is HTML
        return None

"""Views for terminals and notebooks: of a Status, its tasks and logs, and of a run that another process records.

`StatusView`, `LogView` and `RunView` are renderables for any layout of Rich; `Status.display` returns a `Display`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from somatize.utils import names_of

if TYPE_CHECKING:
    from .run_view import RunView
    from .status_display import Display
    from .status_views import LogView, StatusView

__all__ = ["Display", "LogView", "RunView", "StatusView"]

_HOMES = {"Display": "status_display", "LogView": "status_views", "RunView": "run_view", "StatusView": "status_views"}

__getattr__, __dir__ = names_of(__name__, _HOMES)

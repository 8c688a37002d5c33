"""Rich views: of a Status, its tasks and logs, and of a run that another process records.

`StatusView`, `LogView` and `RunView` are renderables for any layout of Rich; `Display` is what `Status.display` starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .display import Display
    from .run_view import RunView
    from .views import LogView, StatusView

__all__ = ["Display", "LogView", "RunView", "StatusView"]

_HOMES = {"Display": "display", "LogView": "views", "RunView": "run_view", "StatusView": "views"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Rich views of a Status: its tasks, its logs, and the ready display of both.

`StatusView` and `LogView` are renderables for any layout of Rich; `Display` is what `Status.display` starts.
"""

from .display import Display
from .views import LogView, StatusView

__all__ = ["Display", "LogView", "StatusView"]

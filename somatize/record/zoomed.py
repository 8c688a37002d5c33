"""A figure of progress in a notebook that reads a range again when it is zoomed into."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from somatize.figures import plotly_backend

from .asked import Place
from .column_reader import Stretch, columns_of
from .columns import Columns
from .drawn import Picture, progress_picture
from .streams import alike, keys_of

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import FigureWidget

_SETTLED = 0.15
"""Seconds without another change of the range before it is read again."""


def zoomable(store: Place, columns: Sequence[Columns], *, smooth: int | None, theme: str | None, title: str) -> Any:
    """A widget of these runs; whoever zooms into a range of forwards sees more of them."""
    picture = progress_picture(columns, smooth=smooth, theme=theme, title=title)
    shown = plotly_backend.widget(picture.data, picture.layout)
    keys = keys_of(columns[0])
    names = list(dict.fromkeys(name for name, _ in (*keys.series, *keys.outside)))

    def read(stretch: Stretch) -> Picture:
        again = [columns_of(store, one.run, names, stretch) for one in columns]
        alike(again, keys)
        for part, whole in zip(again, columns, strict=True):
            part.left_out, part.asked = whole.left_out, whole.asked
        return progress_picture(again, smooth=smooth, theme=theme, title=title, whole=picture)

    zoom = Zoom(shown, read, picture)
    shown.layout.on_change(zoom.changed, "xaxis.range")
    return shown


class Zoom:
    """What a change of the range leads to: the range is read and drawn again once the hand rests.

    The reading waits for the kernel's loop where there is one, so it happens at the latest when the kernel is
    idle; without a loop it happens at once.
    """

    def __init__(self, shown: FigureWidget, read: Callable[[Stretch], Picture], whole: Picture) -> None:
        self.shown = shown
        self.read = read
        self.whole = whole
        # Its unit goes by the longest that is drawn. The other axes stay as the one who zooms has set them.
        self.took = "yaxis" + next(str(trace["yaxis"])[1:] for trace in whole.data if trace["name"].endswith("took"))
        self.drawn = self._seen()
        self._waiting: Any = None
        self._busy = threading.Lock()

    def changed(self, _layout: Any = None, _range: Any = None) -> None:
        """The range is another one."""
        loop = _loop()
        if loop is None:
            self.draw()
            return
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = loop.call_later(_SETTLED, self.draw)

    def draw(self) -> None:
        """Draw the range that is shown now, read again; the whole as it was drawn at first."""
        seen = self._seen()
        if seen == self.drawn or not self._busy.acquire(blocking=False):
            return
        try:
            picture = self.whole if self._covers(seen) else self.read(seen)
            with self.shown.batch_update():
                for trace, drawn in zip(self.shown.data, picture.data, strict=True):
                    trace.update(_points(drawn), overwrite=False)
                self.shown.layout.title.subtitle.text = picture.layout["title"]["subtitle"]["text"]
                for key in ("hovermode", "annotations", self.took):
                    self.shown.layout[key] = picture.layout[key]
            self.drawn = seen
        finally:
            self._busy.release()

    def _seen(self) -> Stretch:
        low, high = self.shown.layout.xaxis.range or self.whole.layout["xaxis"]["range"]
        # One more on either side, so that the line runs on to the edge.
        return Stretch(max(0, int(low) - 1), max(0, int(high) + 1))

    def _covers(self, seen: Stretch) -> bool:
        low, high = self.whole.layout["xaxis"]["range"]
        return bool(seen.since <= max(0.0, low) + 1 and (seen.until or 0) >= high - 1)


def _points(drawn: dict[str, Any]) -> dict[str, Any]:
    """What of a trace depends on the range."""
    kept = ("x", "y", "customdata", "hovertext", "mode", "marker", "hovertemplate")
    return {key: drawn[key] for key in kept if key in drawn}


def _loop() -> Any:
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

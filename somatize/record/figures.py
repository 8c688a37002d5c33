"""Figures of what was recorded: `progress`, `spent` and `timeline`.

They need plotly, ``pip install 'somatize[viz]'``, and raise `ExtraMissing` without it. With ``theme=None`` they are
readable on a light and on a dark background; ``"light"`` and ``"dark"`` have a background of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from somatize.errors import FigureError, UnknownName
from somatize.figures import plotly_backend
from somatize.figures import theme as themes

from .column_reader import ForwardRange, columns_of
from .forward_reader import Place
from .node_turns import one_forward, spent_in
from .progress_figure import Picture, progress_figure, progress_picture
from .reader import curve_costs
from .run_columns import MOST_PANELS, Columns, alike, keys_of
from .time_figures import spent_picture, timeline_picture

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure, FigureWidget


_SETTLED = 0.15
"""Seconds without another change of the range after which the range is read."""


def zoomable(store: Place, columns: Sequence[Columns], *, smooth: int | None, theme: str | None, title: str) -> Any:
    """A widget of these runs that reads a range again, with more points, when the user zooms into it."""
    picture = progress_picture(columns, smooth=smooth, theme=theme, title=title)
    shown = plotly_backend.widget(picture.data, picture.layout)
    keys = keys_of(columns[0])
    names = list(dict.fromkeys(name for name, _ in (*keys.series, *keys.outside)))

    def read(stretch: ForwardRange) -> Picture:
        again = [columns_of(store, one.run, names, stretch) for one in columns]
        alike(again, keys)
        for part, whole in zip(again, columns, strict=True):
            part.left_out, part.asked = whole.left_out, whole.asked
        return progress_picture(again, smooth=smooth, theme=theme, title=title, whole=picture)

    zoom = Zoom(shown, read, picture)
    shown.layout.on_change(zoom.changed, "xaxis.range")
    return shown


class Zoom:
    """Reads and draws a range again after the user zoomed, once the range is stable.

    With an event loop in the kernel the loop calls it, as soon as the kernel is idle; without one it happens at once.
    """

    def __init__(self, shown: FigureWidget, read: Callable[[ForwardRange], Picture], whole: Picture) -> None:
        self.shown = shown
        self.read = read
        self.whole = whole
        # The unit of durations depends on the longest that is drawn. The other axes stay as the user has set them.
        self.took = "yaxis" + next(str(trace["yaxis"])[1:] for trace in whole.data if trace["name"].endswith("took"))
        self.drawn = self._seen()
        self._waiting: Any = None
        self._busy = False

    def changed(self, _layout: Any = None, _range: Any = None) -> None:
        """The callback for a new range."""
        loop = _loop()
        if loop is None:
            self.draw()
            return
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = loop.call_later(_SETTLED, self.draw)

    def draw(self) -> None:
        """Read and draw the range that is shown now; the first picture if that is the whole."""
        seen = self._seen()
        if seen == self.drawn or self._busy:
            return
        self._busy = True  # nothing is called since the look at it
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
            self._busy = False

    def _seen(self) -> ForwardRange:
        low, high = self.shown.layout.xaxis.range or self.whole.layout["xaxis"]["range"]
        # One more on either side, so that the line reaches the edges.
        return ForwardRange(max(0, int(low) - 1), max(0, int(high) + 1))

    def _covers(self, seen: ForwardRange) -> bool:
        low, high = self.whole.layout["xaxis"]["range"]
        return bool(seen.since <= max(0.0, low) + 1 and (seen.until or 0) >= high - 1)


def _points(drawn: dict[str, Any]) -> dict[str, Any]:
    """The data of a trace that depends on the range."""
    kept = ("x", "y", "customdata", "hovertext", "mode", "marker", "hovertemplate")
    return {key: drawn[key] for key in kept if key in drawn}


def _loop() -> Any:
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


Names = str | Sequence[str]
_NAMED, _NAME = 4, 28
"""The most runs that a title names, and the most letters of each name."""


def progress(
    store: Place,
    run: Names | None = None,
    of: Names | None = None,
    *,
    smooth: int | None = None,
    theme: str | None = None,
    widget: bool = False,
) -> Figure:
    """Recorded numbers over the forwards of a run, and below them the duration of each forward.

    `run` is one run or several, which are then compared; None is the only run of the store. `of` is the name of one
    number or several, as for `curve`; None means the loss. A thin line has the numbers as they were recorded, a bold
    one their centred mean over `smooth` numbers (0 for none, None for a twentieth of them), which ends half as many
    before each end. With None, a series whose values change rarely, such as ``lr`` or ``epoch`` (at most a quarter of
    its numbers differ from the one before), has no mean. A missing value is a gap; values that are no finite number are
    described in words; every forward that broke is marked; lines do not join what two writers wrote. A long run is
    drawn with few points that keep every extreme. A number of streams, such as ``"throughput.samples_per_s"``, has a
    line for each stream, 24 at most, joined from one window to the next; numbers of streams outside of any forward are
    drawn over their batches. The first 24 runs have a line style of their own, further ones are grey; at most the
    first hundred names of `of` are drawn.

    With ``widget=True`` the result is a widget for a notebook, which reads and draws a range again when the user zooms
    into it. Raises `UnknownRun`, `WhichRun`, `UnknownName`, `FigureError`, `ExtraMissing`.
    """
    plotly_backend.require()
    names = several("of", of) if of is not None else ["loss"]
    runs: Sequence[str | None] = [None] if run is None else several("run", run)
    title = title_of(columns := _columns(store, runs, names[:MOST_PANELS]))
    for one in columns:
        one.asked = len(names)
    alike(columns)
    if widget:
        return zoomable(store, columns, smooth=smooth, theme=theme, title=title)
    return progress_figure(columns, smooth=smooth, theme=theme, title=title)


def _columns(store: Place, runs: Sequence[str | None], names: Sequence[str]) -> list[Columns]:
    """The columns of runs. Raises `UnknownName` if no run has any of the names; a panel notes those missing."""
    try:
        return [columns_of(store, run, names) for run in runs]
    except UnknownName:
        if not any(_knows(store, run, name) for run in runs for name in names):
            raise
        return [columns_of(store, run, names, unsaid=True) for run in runs]


def _knows(store: Place, run: str | None, name: str) -> bool:
    try:
        curve_costs(store, run, name)
    except UnknownName:
        return False
    return True


def spent(store: Place, run: str | None = None, last: int | None = None, *, theme: str | None = None) -> Figure:
    """The time of a run, or of its last N forwards, as a bar per node, longest first, by host and device.

    Beside each are its total, its share of the time of all nodes, its number of turns and their mean; recalled and
    failed turns are drawn apart. Parallel branches, and a forward within a node, make the total longer than the
    forwards took. Reads all facts of these forwards. Raises as `progress` does.
    """
    plotly_backend.require()
    picture = spent_picture(spent_in(store, run, last), last=last, theme=theme)
    return plotly_backend.figure(picture.data, picture.layout)


def timeline(store: Place, run: str | None = None, forward: int = -1, *, theme: str | None = None) -> Figure:
    """The nodes of one forward, -1 for the last, on a time axis: branches overlap, slices lie in their round trips.

    A worker's clock starts with its slice, so a slice is drawn in the middle of the round trip that returned it.
    Raises `UnknownForward`, and as `progress` does.
    """
    plotly_backend.require()
    picture = timeline_picture(one_forward(store, run, forward), theme=theme)
    return plotly_backend.figure(picture.data, picture.layout)


def title_of(columns: Sequence[Columns]) -> str:
    """The title of a figure of these runs."""
    names = [one.run for one in columns]
    if len(names) == 1:
        return f"run {names[0]}"
    shown = themes.apart(names, _NAME)[:_NAMED]
    return f"runs {', '.join(shown)}" + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def several(what: str, given: Names) -> list[str]:
    """The names of an argument as a list without duplicates. Raises `FigureError`."""
    names = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise FigureError(f"{what}={given!r}: a name, or a list of names")
    return list(dict.fromkeys(names))

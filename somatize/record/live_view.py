"""A Live on the screen: one output in a notebook, redrawn by a thread of its own, and the still picture it leaves."""

from __future__ import annotations

import base64
import json
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from somatize.figures import notebook, plotly_backend
from somatize.figures.notebook import Canvas, FigureMessage, Parts
from somatize.utils.interrupts import Flag
from somatize.utils.notices import warn_not_drawn

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure

    from .progress_figure import Picture


PNG = "image/png"
_WIDTH, _SCALE = 900, 2
_MARKS = 400
"""The number of hover texts a trace keeps while it is redrawn; the final figure has all."""


def brief(data: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The same traces, those with a long text at every point thinned evenly."""
    return [_thinned(trace) if len(trace.get("hovertext") or ()) > _MARKS else trace for trace in data]


def _thinned(trace: Mapping[str, Any]) -> dict[str, Any]:
    step = -(-len(trace["hovertext"]) // _MARKS)
    return {key: value[::step] if isinstance(value, list) else value for key, value in trace.items()}


def still(live: Drawable, *, pictured: bool) -> dict[str, Any]:
    """The figure as a static output; `pictured` by kaleido, if that is installed.

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


PERIOD = 0.1
"""Seconds from one redraw to the next, at least."""
_SHARE = 0.02
"""The part of the time that drawing may take from the forwards."""
_BYTES_PER_SECOND = 400_000
"""Below the rate at which a notebook server drops messages."""
_MOST_BYTES, _MESSAGES_AT_END = 140_000, 100
"""The size limit of one redraw, the rest goes with the next ones; and the number of redraws at the end."""
_AGAIN = 0.25
"""Seconds after which to look again at forwards that have no row yet."""
ANSWER = 10.0
"""Seconds a browser has to send its picture: a busy one takes some to load plotly, and kaleido would not help it."""


class Drawable(Protocol):
    """The parts of a Live that its view uses."""

    changes: int

    @property
    def waits(self) -> bool:
        """Whether a forward goes on that has no row yet and will get one by going on."""

    def figure(self, theme: str | None = None) -> Figure:
        """The figure as plotly's object."""

    def picture(self, theme: str | None = None) -> Picture:
        """The figure as plain dicts."""


class LiveView:
    """The output in which a Live is shown. It does not keep the Live alive."""

    def __init__(self, live: Drawable) -> None:
        self._live = weakref.ref(live)
        self._display = f"somatize-live-{uuid4().hex}"
        self._canvas: Canvas | None = None
        self._sent: dict[str, FigureMessage] = {}
        self._sent_in: dict[str, int] = {}
        self._messages = 0
        self._left = False
        self._lock = threading.RLock()
        self._stirred = (
            Flag()
        )  # `Event` has a lock, which a handler or finaliser that stirs in its midst would wait for
        self._closed = Flag()
        self._answered = Flag()
        self._stop_listening: Callable[[], None] | None = None
        self._shown = self._ended = False
        self._looked_at = False
        self._kept = -1
        self._asked = 0
        for event in (self._closed, self._stirred):
            weakref.finalize(live, event.set).atexit = False

    # -- drawn again and again

    def stir(self) -> None:
        """Something changed. Cheap: it is called for every forward."""
        if not self._stirred.is_set:
            self._stirred.set()

    def canvas(self) -> Canvas:
        """The widget, made on first use; a thread then keeps it up to date."""
        with self._lock:
            if self._canvas is None:
                self._canvas = notebook.canvas(plotly_backend.script, self._whole, self.show, self._heard)
                if not self._closed.is_set:
                    threading.Thread(
                        target=_keep_drawn, args=(weakref.ref(self),), name="somatize-live", daemon=True
                    ).start()
            return self._canvas

    def draw(self) -> int:
        """Send what changed since the last time; gives the bytes sent, about."""
        with self._lock:
            self._stirred.clear()
            live = self._live()
            if self._canvas is None or live is None:
                return 0
            parts, traces = _parts_of(live)
            changed = {name: part for name, part in parts.items() if self._sent.get(name) != part}
            now = self._first_of(changed)
            if now:
                self._sent.update(now)
                self._canvas.push(now, traces)
            self._left = len(now) < len(changed)
            if self._left:
                self._stirred.set()
            return sum(part.size for part in now.values())

    def _first_of(self, changed: Parts) -> Parts:
        """As many of these parts as one message may hold, those that were sent longest ago before others."""
        self._messages += 1
        now: dict[str, FigureMessage] = {}
        size = 0
        for name in sorted(changed, key=lambda name: (name != "layout", self._sent_in.get(name, 0))):
            size += changed[name].size
            if now and size > _MOST_BYTES:
                break
            now[name] = changed[name]
            self._sent_in[name] = self._messages
        return now

    def _draw_last(self) -> None:
        """Send all that is left to send; whatever goes wrong with that is said and stops the drawing only."""
        try:
            self.draw()
            for _ in range(_MESSAGES_AT_END):
                if not self._left:
                    break
                self.draw()
        except Exception as error:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Stop drawing, as that failed, and say so once."""
        live = self._live()
        if not self._closed.is_set and live is not None:
            self._closed.set()
            self._stirred.set()
            warn_not_drawn(repr(live), error)

    def _whole(self) -> tuple[Parts, int]:
        """The whole figure, for a page that opens or loads again."""
        with self._lock:
            live = self._live()
            if live is not None and not (self._closed.is_set and self._sent):
                self._sent, _ = _parts_of(live)
            return self._sent, len(self._sent) - 1

    def wait(self) -> None:
        """Return when there may be something to draw, or to stop for."""
        live = self._live()
        timeout = _AGAIN if live is not None and live.waits else None
        del live
        self._stirred.wait(timeout)

    def pause(self, seconds: float) -> bool:
        """Wait that long, or until the end; says whether that has come."""
        return self._closed.wait(seconds) or self._live() is None

    # -- in a cell

    def show(self) -> None:
        """Put the figure into the cell that runs, or the text where there are no cells."""
        live = self._live()
        if live is None:
            return
        if notebook.kernel() is None:
            print(repr(live))  # noqa: T201  what IPython shows in a terminal
            return
        if notebook.able() and notebook.attended():
            try:
                self.canvas()
            except Exception as error:  # such as a version of a package that does not fit another
                self.give_up(error)
        with self._lock:
            if self._canvas is not None:
                about = notebook.about_view(self._canvas)
                notebook.show(self._with_view(live), self._display, again=False, metadata=about)
            else:
                notebook.show(still(live, pictured=False), self._display, again=False)
            self._shown = True
            self._kept = -1
            if self._stop_listening is None:
                self._listen()

    def _listen(self) -> None:
        me = weakref.ref(self)

        def ended() -> None:
            view = me()
            if view is not None:
                view.keep()

        self._stop_listening = notebook.at_cell_end(ended)
        weakref.finalize(self, self._stop_listening)

    def _with_view(self, live: Drawable) -> dict[str, Any]:
        return {"text/plain": repr(live), notebook.VIEW: notebook.view_of(self.canvas())}

    # -- the picture that stays

    def keep(self) -> None:
        """Draw the last state, and let the output hold a picture of it for the saved notebook."""
        live = self._live()
        if live is None:
            return
        self._draw_last()
        if not self._shown or self._kept == live.changes:
            return
        self._kept = live.changes
        if self._canvas is None:
            self._keep_still(live)
            return
        self._asked += 1
        self._answered = Flag()  # a thread may still wait for the picture before
        if not self._looked_at:  # for as long as it takes to know whether a browser is there
            self._show_kept(kept_picture(live.figure(), pictured=False))
        try:
            self._canvas.ask(self._asked)
        except Exception as error:
            self.give_up(error)
        threading.Thread(target=self._or_without_browser, args=(self._asked, self._answered), daemon=True).start()

    def _keep_still(self, live: Drawable) -> None:
        if notebook.attended():  # kaleido takes seconds; the one who waits for the next cell should not
            notebook.show(still(live, pictured=False), self._display, again=True)
            threading.Thread(target=self._show_still, daemon=True).start()
        else:
            self._show_still()

    def _show_still(self) -> None:
        live = self._live()
        if live is not None:
            bundle = still(live, pictured=True)
            if PNG in bundle or not notebook.attended():
                notebook.show(bundle, self._display, again=True)

    def _or_without_browser(self, asked: int, answered: Flag) -> None:
        if answered.wait(ANSWER) or asked != self._asked:
            return
        live = self._live()
        kept = kept_picture(live.figure(), pictured=True) if live is not None else {}
        if asked == self._asked and not answered.is_set:
            self._show_kept(kept)

    def _heard(self, content: Mapping[str, Any]) -> None:
        self._looked_at = True
        if content.get("said") == "picture" and content.get("asked") == self._asked:
            self._answered.set()
            self._show_kept({PNG: str(content["png"])})

    def _show_kept(self, kept: Mapping[str, Any]) -> None:
        live = self._live()
        if live is not None:
            about = notebook.about_view(self.canvas())
            notebook.show({**self._with_view(live), **kept}, self._display, again=True, metadata=about)

    def close(self) -> None:
        """Draw the last state, keep its picture, and end the drawing."""
        if self._ended:
            return
        self._ended = True
        self._closed.set()
        self._stirred.set()
        self.keep()
        if self._stop_listening is not None:
            self._stop_listening()


def _parts_of(live: Drawable) -> tuple[dict[str, FigureMessage], int]:
    picture = live.picture()
    data = brief(picture.data)
    parts = {f"trace_{place}": notebook.part_of(trace) for place, trace in enumerate(data)}
    return {"layout": notebook.part_of(picture.layout), **parts}, len(data)


def _keep_drawn(reference: weakref.ref[LiveView]) -> None:
    """Redraw a view when it was stirred, at a pace that leaves the forwards and the connection their room."""
    while (view := reference()) is not None:
        view.wait()
        began = time.thread_time(), time.perf_counter()
        try:
            size = view.draw()
        except Exception as error:  # such as a connection that is gone
            view.give_up(error)
            return
        # On a busy machine all takes longer, this too; but not that much: then it only waited.
        spent = min(time.perf_counter() - began[1], 4 * (time.thread_time() - began[0]))
        if view.pause(max(PERIOD, spent / _SHARE, size / _BYTES_PER_SECOND)):
            return
        del view

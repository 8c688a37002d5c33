"""Live: a run seen while it runs, in a notebook or a terminal, without a store."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from somatize.errors import FactError
from somatize.facts import KINDS, Fact, said, text
from somatize.figures import plotly_backend
from somatize.figures.theme import counted, took
from somatize.utils.interrupts import Alone
from somatize.watching.attribution import addressed

from .figures import several
from .live_columns import LiveColumns, paths_of
from .live_view import LiveView
from .manual_forwards import ByHand, ending
from .progress_figure import progress_picture
from .run_columns import BROKE, FIELD, INF, INTERRUPTED, LOST, MINUS_INF, NAN, NUMBER, Series

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure

    from .progress_figure import Picture


_ODD = {NAN: "nan", INF: "inf", MINUS_INF: "-inf"}


def status_line(tally: LiveColumns, *, going_on: bool) -> str:
    """One line: counts of forwards and failures, the last numbers said, the last duration."""
    rows = len(tally)
    if rows == 0:
        return "no forwards yet"
    words = [counted(rows, "forward")]
    states = tally.drawn.states
    for state, ended in ((BROKE, "broke"), (INTERRUPTED, "interrupted"), (LOST, "lost")):
        found = states.count(state)
        if found:
            words.append(f"{found:,} {ended}")
    for series in tally.drawn.series:
        said = next((row for row in range(rows - 1, -1, -1) if series.kinds[row]), None)
        if said is not None:
            words.append(f"{series.name} {_said(series, said)}")
    last = next((row for row in range(rows - 1, -1, -1) if tally.drawn.took_us[row] == tally.drawn.took_us[row]), None)
    if last is not None:
        words.append(f"the last took {took(tally.drawn.took_us[last])}")
    return ", ".join(words) + ("; one goes on" if going_on else "")


def _said(series: Series, row: int) -> str:
    """The last value of a series in a forward, shortened."""
    kind = series.kinds[row]
    return f"{series.values[row]:.6g}" if kind == NUMBER else _ODD.get(kind, "a text")


_COUNTED = frozenset({"ran", "recalled", "failed"})
NUMBERED_AFTER = 0.25
"""Seconds after which a forward still going on gets its number, as it does in a record."""


class LiveSink:
    """The sink of one forward. It outlives the forward, for facts that are said later."""

    library = True
    __slots__ = ("_live", "last", "nodes", "opened", "over", "row", "said", "token", "wanted")

    def __init__(self, live: weakref.ref[Live], wanted: Mapping[str, list[tuple[str, str]]]) -> None:
        self._live = live  # contexts remember sinks, and must not keep a Live alive
        self.wanted = wanted
        self.nodes = 0
        self.said: dict[str | tuple[str, str | None], str | float] = {}
        """The last value by path, or by path and stream."""
        self.last: Fact | None = None
        self.row = -1
        self.opened = time.monotonic()
        self.over = False
        self.token: Any = None

    def tell(self, fact: Fact) -> None:
        """Take a fact of this forward."""
        kind = fact["fact"]
        if kind in _COUNTED:
            self.nodes += 1
        if kind in self.wanted:
            for field, path in self.wanted[kind]:
                if field in fact:
                    self.said[path] = fact[field]
                    if kind in FIELD:
                        self.said[path, fact.get(FIELD[kind])] = fact[field]
        self.last = fact
        if self.over:
            live = self._live()
            if live is not None:
                live.late(self)

    def closed(self) -> None:
        """All was told: the forward gets its number, if it has none, and its row."""
        live = self._live()
        if live is not None:
            live.ended(self)


class Live:
    """Watches forwards and shows how they went so far: ``graph.forward(x, watching=live)``, alone or in a list.

    Called with a fact, it adds it to the forward that it belongs to, by the rule of a `Recorder`; whole facts of the
    engine's kinds said by hand make rows just the same, so a stored run can be played back into it.

    In a notebook with ipywidgets and anywidget, a bare ``live`` in a cell, or `widget`, is a figure that moves while
    a cell still runs. It is drawn at most ten times a second, less often where drawing is slow or much is sent.
    When a cell ends and when the Live is closed, the output also holds a picture of the last state for the saved
    notebook: one the browser made, or where no browser answers one made by kaleido if that is installed, else HTML.
    It was seen in JupyterLab with Chromium and under nbconvert; of VS Code and Colab only the kernel's side was. How
    each handles widgets, and what was not tried, is in the documentation's page on notebooks.
    Without these libraries, and where a notebook is run with nobody to look (nbconvert, papermill), the
    cell holds the figure as a still. In a terminal its `repr` says where the run stands.
    """

    library = True

    def __init__(
        self,
        title: str | None = None,
        *,
        of: str | Sequence[str] = "loss",
        summarising: Iterable[str] = ("loss",),
        x: str = "forward",
    ) -> None:
        """Begin with no forwards.

        `of` names what is drawn, one or several, and `x` over what, as `progress` takes them; `summarising` what the
        rows hold, as a `Recorder` takes it. Raises `FigureError`, TypeError and ValueError for what names nothing.
        """
        self._given = title
        self._title = "live" if title is None else str(title)
        self._shown = f"Live({'' if title is None else repr(self._title)})"
        self.take(LiveColumns(several("of", of), paths_of(summarising), *several("x", [x])))
        self._turns = Alone()
        self._lock = self._turns.lock
        self._going_on: dict[int, LiveSink] = {}
        self._by_hand: ByHand[LiveSink] = ByHand(self._open)
        self._view: LiveView | None = None
        self._closed = False
        self.changes = 0
        """Counts what there is to draw."""
        self.reference = weakref.ref(self)

    def take(self, tally: LiveColumns) -> None:
        """Go on from these rows."""
        self._tally = tally
        self._wanted = tally.wanted
        self._from_above = {kind: fields for kind, fields in tally.wanted.items() if kind not in KINDS}

    # -- told

    def opens(self, graph: object) -> LiveSink:  # noqa: ARG002  a part of the protocol
        """The sink of a forward that starts now."""
        if self._by_hand.used:
            self._by_hand.real_one_begins()
        return self._open()

    def _open(self) -> LiveSink:
        sink = LiveSink(self.reference, self._wanted)
        self._going_on[id(sink)] = sink
        view = self._view
        if view is not None:
            view.stir()
        return sink

    def __call__(self, fact: Mapping[str, Any]) -> None:
        """Say a fact. Raises `FactError` for what has no kind, or is of the engine's kinds and not whole."""
        # Quick where it is called between two steps of a training loop: only what is drawn or summarised is looked at.
        kind = fact.get("fact") if type(fact) is dict else None
        fields = self._from_above.get(kind) if type(kind) is str else None
        if fields is None:
            self._hear(fact)
            return
        sink = self._sink_here()
        if sink is None:
            self._take_outside(said(fact))
            return
        for field, path in fields:
            if field in fact:
                value = fact[field]
                sink.said[path] = value if type(value) is float else text(value, field)
                if kind in FIELD:
                    stream = text(fact[FIELD[kind]]) if FIELD[kind] in fact else None
                    sink.said[path, stream] = sink.said[path]
        self._heard(sink)

    def _heard(self, sink: LiveSink) -> None:
        """Note that something was said of a forward; an open one gets its number then, as in a record."""
        self._turns.alone(partial(self._take_heard, sink))
        self._stir()

    def _take_heard(self, sink: LiveSink) -> None:
        if sink.over:
            self._put(sink)
        elif sink.row < 0:
            self._tally.add(time.time(), sink)

    def say_of_run(self, fact: Mapping[str, Any]) -> None:
        """Say a fact of the run as a whole, as to a `Recorder`. What streams say so is drawn over their batches.

        Raises `FactError` for what has no kind or is the engine's.
        """
        made = said(fact)
        if made["fact"] in KINDS:
            raise FactError(f"a {made['fact']!r} fact is of a forward; the run as a whole has none")
        self._take_outside(made)

    def _take_outside(self, fact: Fact) -> None:
        if fact["fact"] in self._tally.outside.kinds:
            self._turns.alone(partial(self._tally.outside.take, 0, fact))
            self._stir()

    def _hear(self, fact: Mapping[str, Any]) -> None:
        """Take a fact of the engine or of a user; making the fact shows which it is."""
        made = said(fact)
        if made["fact"] in KINDS:
            self._by_hand.tell(made)
        elif made["fact"] in self._from_above:
            self(made)
        elif (sink := self._sink_here()) is not None and not sink.over:
            self._heard(sink)

    def _sink_here(self) -> LiveSink | None:
        if self._by_hand.used:
            going_on = self._by_hand.going_on()
            if going_on is not None:
                return going_on
        sink = addressed(self, going_on=bool(self._going_on))
        return sink if type(sink) is LiveSink else None

    def late(self, sink: LiveSink) -> None:
        """Something was said of a forward that has ended."""
        self._turns.alone(partial(self._put, sink))
        self._stir()

    def ended(self, sink: LiveSink) -> None:
        """A forward ended, or its sink is closed without an end. Called again where an interrupt came on the way."""
        last = sink.last
        if last is None:  # it never told anything, and leaves nothing
            self._going_on.pop(id(sink), None)
            sink.over = True
            return
        self._turns.alone(partial(self._end, sink, *ending(last)))
        self._stir()

    def _end(self, sink: LiveSink, state: int, took_us: int, why: str | None) -> None:
        going_on, tally, now = self._going_on, self._tally, time.time()
        going_on.pop(id(sink), None)
        if going_on:
            self._number_old()
        if sink.row < 0:
            tally.add(now, sink)
        tally.end(sink.row, sink.nodes, state, took_us, now, why)
        self._close(sink)
        sink.over, sink.last = True, None

    def retold(self, told: Sequence[Fact], state: int, writer: int) -> None:
        """Take a forward as a store has it, by its state, which no fact may tell, and by the number of its writer."""
        sink = LiveSink(self.reference, self._wanted)
        for fact in told:
            sink.tell(fact)
        sink.last, sink.over = None, True
        end = next((fact for fact in told if fact["fact"] in ("finished", "broke")), {})
        self._turns.alone(partial(self._take_retold, sink, end, state, writer))
        self._stir()

    def _take_retold(self, sink: LiveSink, end: Fact, state: int, writer: int) -> None:
        self._number_old()
        now, tally = time.time(), self._tally
        row = tally.add(now, sink)
        tally.wrote(row, writer)
        tally.end(row, sink.nodes, state, ending(end)[1], now, end.get("why"))
        self._close(sink)

    def _close(self, sink: LiveSink) -> None:
        if sink.said:
            self._put(sink)

    def _put(self, sink: LiveSink) -> None:
        tally, row, told = self._tally, sink.row, sink.said
        if row < 0:  # an interrupt came before it told anything: it has no row
            told.clear()
        while told:
            path, value = told.popitem()
            if type(path) is tuple:
                tally.put_of_stream(row, *path, value)
            else:
                tally.put(row, path, value)  # type: ignore[arg-type]

    def _number_old(self) -> None:
        """Forwards that have gone on for a while get their numbers before any that end after that."""
        now = time.monotonic()
        for sink in list(self._going_on.values()):
            if sink.row < 0 and sink.last is not None and now - sink.opened >= NUMBERED_AFTER:
                self._tally.add(time.time(), sink)

    def _settle(self) -> None:
        """Update the rows of open forwards."""
        self._number_old()
        for sink in list(self._going_on.values()):
            if sink.row >= 0:
                self._tally.nodes[sink.row] = sink.nodes
                self._put(sink)

    def _stir(self) -> None:
        self.changes += 1
        view = self._view
        if view is not None:
            view.stir()

    # -- read

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per forward, as `forwards` would give it; `when` is this process's clock when the row was made."""
        with self._lock:
            self._settle()
            return [self._tally.row(row) for row in range(len(self._tally))]

    def __len__(self) -> int:
        return len(self._tally)

    def __bool__(self) -> bool:
        """True, also before the first forward: a Live is a Live."""
        return True

    def figure(self, theme: str | None = None) -> Figure:
        """The figure that `progress` draws of the same facts, as of now.

        The last half window of a mean is an estimate, dotted and named as one. Raises `ExtraMissing` without plotly.
        """
        picture = self.picture(theme)
        return plotly_backend.figure(picture.data, picture.layout)

    def picture(self, theme: str | None = None) -> Picture:
        """The traces and the layout of `figure` as plain dicts, without plotly."""
        return progress_picture([self._snapshot()], theme=theme, title=self._title, live=True)

    def _snapshot(self) -> Any:
        with self._lock:
            self._settle()
            return self._tally.snapshot()

    @property
    def waits(self) -> bool:
        """Whether a forward goes on that has no row yet and will get one by going on."""
        return any(sink.row < 0 for sink in list(self._going_on.values()))

    def __repr__(self) -> str:
        with self._lock:
            self._settle()
            words = status_line(self._tally, going_on=any(sink.row >= 0 for sink in self._going_on.values()))
        return f"{self._shown}: {words}{', closed' if self._closed else ''}"

    # -- shown

    def widget(self) -> Any:
        """The figure as a widget that is redrawn in place; the same one each time.

        Raises `ExtraMissing` where plotly, ipywidgets or anywidget is not installed.
        """
        return self._viewed().canvas()

    def _viewed(self) -> LiveView:
        with self._lock:
            if self._view is None:
                self._view = LiveView(self)
            return self._view

    def _ipython_display_(self, **_: Any) -> None:
        self._viewed().show()

    def close(self) -> None:
        """Draw the last state and stop drawing; facts are still counted."""
        self._closed = True
        if self._view is not None:
            self._view.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied, pickled or sent away it is another Live, which has the rows of this one and is shown nowhere."""
        with self._lock:
            self._settle()
            return _again, (self._given, deepcopy(self._tally))


def _again(title: str | None, tally: LiveColumns) -> Live:
    """The Live that was pickled, where it arrives."""
    live = Live(title, of=tally.of, summarising=list(tally.texts))
    live.take(tally)
    return live

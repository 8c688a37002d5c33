"""Figures of what was recorded: `progress`, `spent`, `timeline` and `graph`.

They need plotly, ``pip install 'somatize[viz]'``, and raise `ExtraMissing` without it. With ``theme=None`` they are
readable on a light and on a dark background; ``"light"`` and ``"dark"`` have a background of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from somatize.errors import FigureError, RecordError, UnknownName
from somatize.figures import plotly_backend
from somatize.figures import theme as themes
from somatize.figures.graph_drawing import recorded
from somatize.figures.theme import Theme, counted
from somatize.store.node_tally import ENDINGS, Spent, Where, turns_in

from .column_reader import ForwardRange, columns_of
from .forward_reader import Place
from .node_turns import NodeTurn, OneForward, Total, lanes_of, one_forward, spent_in
from .progress_figure import Picture, Style, best_first, progress_figure, progress_picture
from .reader import curve_costs
from .run_columns import AXES, MOST_PANELS, Columns, alike, keys_of
from .run_info import about

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure, FigureWidget


_SETTLED = 0.15
"""Seconds without another change of the range after which the range is read."""


def zoomable(store: Place, columns: Sequence[Columns], style: Style, *, theme: str | None, title: str) -> Any:
    """A widget of these runs that reads a range of forwards again, with more points, when the user zooms into it."""
    picture = progress_picture(columns, style, theme=theme, title=title)
    shown = plotly_backend.widget(picture.data, picture.layout)
    if columns[0].axis is not None:
        return shown
    keys = keys_of(columns[0])
    names = list(dict.fromkeys(name for name, _ in (*keys.series, *keys.outside)))

    def read(stretch: ForwardRange) -> Picture:
        again = [columns_of(store, one.run, names, stretch) for one in columns]
        alike(again, keys)
        for part, whole in zip(again, columns, strict=True):
            part.left_out, part.asked = whole.left_out, whole.asked
            part.ended, part.config, part.changes = whole.ended, whole.config, whole.changes
        return progress_picture(again, style, theme=theme, title=title, whole=picture)

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
    x: str = "forward",
    smooth: float | None = None,
    log: str | None = None,
    panels: Sequence[Names] | None = None,
    theme: str | None = None,
    widget: bool = False,
) -> Figure:
    """Recorded numbers over the forwards of a run, and below them the duration of each forward.

    `run` is one run or several, which are then compared; None is the only run of the store. `of` is the name of one
    number or several, as for `curve`; None means the loss. Names that differ only by a leading or trailing ``train``,
    ``val``, ``valid``, ``validation``, ``test`` or ``eval`` share a panel, of up to six runs, and a colour; ``panels``
    says in place of `of` which numbers share one: ``[["loss", "val.loss"], ["accuracy"]]``. A thin line has the numbers
    as they were recorded, a bold one their centred mean over `smooth` numbers (0 for none, below 1 a share of them,
    None for a twentieth), which ends half as many before each end. With None, a series whose values change rarely, such
    as ``lr`` or ``epoch`` (at most a quarter of its numbers differ from the one before), has no mean. A forward in
    which a number was not said cuts no line; what was said in a fifth of them at most is points on a thin line. Values
    that are no finite number are gaps, described in words; every forward that broke is marked; lines do not join what
    two writers wrote. A long run is drawn with few points that keep every extreme. A number of streams, such as
    ``"throughput.samples_per_s"``, has a line for each stream, 24 at most, joined from one window to the next; numbers
    of streams outside of any forward are drawn over their batches. The first 24 runs have a line style of their own,
    further ones are grey, and then those have one that are the best by the first number: the lowest of a loss, an error
    or a time, else the highest; the pointer says in what the configuration of a run is particular; at most the first
    hundred names of `of` are drawn.

    ``log="y"`` makes the axes of numbers logarithmic. By default an axis is where its numbers are above 0 and span more
    than four decades; one number that would flatten all others is left outside of it, which its panel says.

    `x` is what they are drawn over, as for `curve`: ``"forward"``, ``"time"`` (in UTC), ``"elapsed"`` or a number that
    was said, such as ``"epoch"``, by which runs of unlike batch size can be compared. The subtitle counts the forwards
    without an x. Where x goes back, as in a run that was resumed and did steps again, a new line begins at a dotted
    mark.

    With ``widget=True`` the result is a widget for a notebook, which reads and draws a range of forwards again when the
    user zooms into it. Raises `UnknownRun`, `WhichRun`, `UnknownName`, `FigureError`, `ExtraMissing`.
    """
    plotly_backend.require()
    shared = None if panels is None else [several("panels", names) for names in panels]
    if shared is not None and of is not None:
        raise FigureError(f"of={of!r} and panels={panels!r}: panels= names the numbers already")
    names = several("of", of) if of is not None else ["loss"]
    if shared is not None:
        names = several("panels", [name for panel in shared for name in panel])
    style = Style(smooth, log, shared)
    runs: Sequence[str | None] = [None] if run is None else several("run", run)
    title = title_of(columns := _columns(store, runs, names[:MOST_PANELS], x))
    for one in columns:
        one.asked = len(names)
        one.describe(about(store, one.run))
    alike(columns)
    ordered, first = best_first(columns)
    columns, style = list(ordered), style._replace(first=first)
    if widget:
        return zoomable(store, columns, style, theme=theme, title=title)
    return progress_figure(columns, style, theme=theme, title=title)


def _columns(store: Place, runs: Sequence[str | None], names: Sequence[str], x: str) -> list[Columns]:
    """The columns of runs. Raises `UnknownName` if no run has any of the names, or x; a panel notes those missing."""
    try:
        return [columns_of(store, run, names, x=x) for run in runs]
    except UnknownName:
        if not any(_knows(store, run, name) for run in runs for name in names):
            raise
        if x not in AXES and not any(_knows(store, run, x) for run in runs):
            raise
        return [columns_of(store, run, names, unsaid=True, x=x) for run in runs]


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


def graph(store: Place, run: str | None = None, *, which: int = -1, theme: str | None = None) -> Figure:
    """The graph of a run, drawn from the record alone: time, runs, recalls and failures of each node on its box.

    A run in which several graphs ran, such as one for training and one for validation, or one that was edited, shows
    the last that was new to it, and says so; `which` is the place of another in the ``graphs`` of `about`. A node that
    failed has a red outline. Reads every fact of the run. Raises `RecordError` where no graph is on record, and as
    `progress` does.
    """
    plotly_backend.require()
    known = about(store, run)
    graphs = known["graphs"]
    if not -len(graphs) <= which < len(graphs):
        raise RecordError(f"run {known['run']!r} has {counted(len(graphs), 'graph')} on record; which={which} is none")
    place = which % len(graphs) + 1
    said = f"graph {place} of {len(graphs)} of this run" if place < len(graphs) else f"the last of {place} graphs"
    described = graphs[which]
    picture = recorded(described, theme, turns_in(store, known["run"]), said if len(graphs) > 1 else "")
    return plotly_backend.figure(*picture)


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


# -- where the time went

_MOST = 40
_SPENT_ROW, _TWO, _BAR, _FIRST, _SPENT_TO_LEGEND = 40, 50, 0.36, 0.8, 32
"""Heights in pixels: a row, a row with two lines; as fractions of a row: the bar, the top margin; then the legend."""
_WIDTH, _LETTER, _SMALL, _LINE = 365.0, 7.0, 6.0, 40
"""The width of a narrow figure and of letters of both sizes; the longest line of numbers beside a name."""
_PATTERNS = {"ran": "", "recalled": "/", "failed": "x", "left": ""}


def spent_picture(total: Total, *, last: int | None = None, theme: str | None = None) -> Picture:
    """The total time of each node of a run, longest first; those after the first forty share one bar."""
    look = themes.theme_of(theme)
    rows = _spent_rows(total.spent)
    unit, size = themes.unit(max((row.us for row in rows), default=0))
    two = any(len(_numbers(row, 1)) > 1 for row in rows)
    data, inside = _spent_bars(rows, size), round((_TWO if two else _SPENT_ROW) * (max(3, len(rows)) + _FIRST - 0.5))
    title, above = themes.title(look, f"run {total.run}: where the time went", _spent_notes(total, last))
    explained = _is_explained(rows)
    below = _SPENT_TO_LEGEND + (themes.legend_height(data) if explained else 0)
    layout = themes.layout(
        look,
        height=above + inside + below,
        margin={"t": above, "b": below, "l": 24, "r": 14},
        title=title,
        barmode="stack",
        hovermode="closest",
        showlegend=explained,
        legend=themes.legend(-_SPENT_TO_LEGEND / inside),
        annotations=_labels(look, rows) if rows else [themes.in_the_middle(look, "no node has had its turn yet")],
        xaxis=themes.axis(look, range=[0, _longest(rows) / size * 1.02], ticksuffix=f" {unit}", nticks=6),
        yaxis={"range": [len(rows) - 0.5, -_FIRST] if rows else [2.5, -0.5], "visible": False, "fixedrange": True},
    )
    if not rows:
        layout["xaxis"] |= {"showticklabels": False, "showgrid": False}
    return Picture(data, layout)


def _spent_rows(spent: Sequence[Spent]) -> list[Spent]:
    if len(spent) <= _MOST + 1:
        return list(spent)
    rest = Spent(f"{len(spent) - _MOST:,} others")
    for one in spent[_MOST:]:
        for (where, ending), (count, us) in one.turns.items():
            rest.add(where, ending, us, count)
    return [*spent[:_MOST], rest]


def _longest(rows: Sequence[Spent]) -> float:
    return max((row.us for row in rows), default=0) or 1.0


def _spent_notes(total: Total, last: int | None) -> list[str]:
    inside = sum(one.us for one in total.spent)
    which = counted(total.forwards, "forward")
    if last is not None:
        which = "the last forward" if total.forwards == 1 else f"the last {which}"
    words = [f"{which}, {themes.took(total.us)} in all"]
    if total.spent:
        words.append(f"{counted(len(total.spent), 'node')}, {themes.took(inside)} in them")
    for ending in ENDINGS[1:]:
        count = sum(one.count(ending) for one in total.spent)
        if count:
            words.append(f"{count:,} {ending}")
    return themes.wrapped("; ".join(words))


def _places(rows: Sequence[Spent]) -> list[Where]:
    """The places by time spent, longest first, after the process itself."""
    spent: dict[Where, int] = {}
    for row in rows:
        for (where, _), (_, us) in row.turns.items():
            spent[where] = spent.get(where, 0) + us
    return sorted(spent, key=lambda where: (where != Where(), -spent[where], where))


def _is_explained(rows: Sequence[Spent]) -> bool:
    """True if there is more than one kind of bar, so that a legend is needed."""
    return len({key for row in rows for key in row.turns}) > 1


def _spent_bars(rows: Sequence[Spent], size: float) -> list[dict[str, Any]]:
    whole = sum(row.us for row in rows)
    bars = []
    for order, where in enumerate(_places(rows)):
        for ending in ENDINGS:
            found = [
                (place, row, row.turns[where, ending]) for place, row in enumerate(rows) if (where, ending) in row.turns
            ]
            if found:
                bars.append(_spent_bar(order, where, ending, found, size, whole))
    return bars


def _spent_bar(
    order: int, where: Where, ending: str, found: list[tuple[int, Spent, tuple[int, int]]], size: float, whole: int
) -> dict[str, Any]:
    return _bar(
        order,
        where,
        ending,
        x=[us / size for _, _, (_, us) in found],
        y=[place for place, _, _ in found],
        width=_BAR,
        hovertext=[_spent_words(row, where, ending, turns, whole) for _, row, turns in found],
    )


def _bar(order: int, where: Where, ending: str, tint: float = 0.35, **drawn: Any) -> dict[str, Any]:
    """A trace of the turns with one place and ending. Its outline shows turns too short to fill a pixel."""
    colour = themes.hue(order)
    words = {"ran": "", "left": ", round trip"}.get(ending, f", {ending}")
    name = themes.escaped(str(where), 40) + words
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "legendgroup": name,
        **drawn,
        "marker": {
            "color": themes.fill(order) if ending == "ran" else themes.tint(colour, tint),
            "line": {"color": colour, "width": 1},
            "pattern": {"shape": _PATTERNS[ending], "fgcolor": colour, "size": 6, "solidity": 0.4},
        },
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _spent_words(row: Spent, where: Where, ending: str, turns: tuple[int, int], whole: int) -> str:
    count, us = turns
    mean = themes.took(us / count) if count else "0 µs"
    lines = [
        f"<b>{themes.escaped(row.node, 60)}</b> {ending} {counted(count, 'time')}",
        themes.escaped(str(where), 60),
        f"{themes.took(us)} in all, {mean} each",
        f"{_share(us, whole)} of all nodes' time",
    ]
    return "<br>".join(lines)


def _share(us: int, whole: int) -> str:
    return escape(themes.share(us / whole, 1)) if whole else "none"


def _labels(look: Theme, rows: Sequence[Spent]) -> list[dict[str, Any]]:
    """The labels above each bar: the node at the left; at the right its total time, share, and mean time."""
    whole = sum(row.us for row in rows)
    made = []
    for place, row in enumerate(rows):
        right = _numbers(row, whole)
        left = themes.escaped(row.node, max(5, int((_WIDTH - _SMALL * max(map(len, right))) / _LETTER)))
        made.append(_label(look, place, 0, "left", left) | {"font": {"size": themes.TEXT, "color": look.ink}})
        made.append(_label(look, place, 1, "right", "<br>".join(right)) | {"align": "right"})
    return made


def _numbers(row: Spent, whole: int) -> list[str]:
    """The numbers at the right of a node, in two lines if one would be too long."""
    words = [themes.took(row.us), _share(row.us, whole)]
    if row.mean_us is not None:
        words.append(f"{row.count('ran'):,} × {themes.took(row.mean_us)}")
    odd = [f"{row.count(ending):,} {ending}" for ending in ENDINGS[1:] if row.count(ending)]
    line = " · ".join([*words, *odd])
    return [line] if len(line) <= _LINE else [" · ".join(words), " · ".join(odd)]


def _label(look: Theme, place: int, x: int, side: str, words: str) -> dict[str, Any]:
    return {
        "text": words,
        "x": x,
        "xref": "paper",
        "xanchor": side,
        "y": place - _BAR / 2,
        "yref": "y",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": themes.SMALL, "color": look.faint},
    }


# -- the timeline of a forward

_EACH_ITS_ROW = 60
"""The most turns that have a row each; above that, turns that do not overlap share rows."""
_TIMELINE_ROW, _PACKED, _TIMELINE_TO_LEGEND = 22, 12, 32
_LABEL = 20
"""The number of letters of a name beside its row."""
_BEFORE = {"left": "to ", "failed": "✗ "}
"""Prefixes of the names of turns, as a failed turn may be too short to be visible."""
_INSIDE = 3
"""The most nodes that are named in which an unfinished forward was."""


def timeline_picture(one: OneForward, *, theme: str | None = None) -> Picture:
    """The turns of a forward from its start to its end, at the times that its facts tell."""
    look = themes.theme_of(theme)
    rows, packed = _timeline_rows(one.turns)
    count = max(rows, default=0) + 1
    end = max([turn.end for turn in one.turns] + [one.took or 0.0, 1.0])
    unit, size = themes.unit(end)
    height = max(3 * _TIMELINE_ROW, count * (_PACKED if packed else _TIMELINE_ROW))
    title, above = themes.title(look, f"run {one.run}, forward {one.number:,}", _timeline_notes(one, packed=packed))
    data = _timeline_bars(one.turns, rows, size)
    known = bool(one.turns) or one.took is not None
    if one.state != "ok":
        data.append(_end(one, end / size if known else 0.0, count))
    explained = len(data) > 1
    beside = 0.0 if packed else 6.5 * min(_LABEL, max((len(turn.name) for turn in one.turns), default=0))
    below = _TIMELINE_TO_LEGEND + (themes.legend_height(data, beside) if explained else 0)
    layout = themes.layout(
        look,
        height=above + height + below,
        margin={"t": above, "b": below, "l": 20 if packed else 8, "r": 18},
        title=title,
        barmode="overlay",
        hovermode="closest",
        showlegend=explained,
        legend=themes.legend(-_TIMELINE_TO_LEGEND / height),
        xaxis=themes.axis(look, range=[0, end / size * 1.03], ticksuffix=f" {unit}", nticks=6, showticklabels=known),
        yaxis=_names(look, one.turns, count, packed=packed),
        shapes=_trips(one.turns, rows, size),
        annotations=[] if one.turns else [themes.in_the_middle(look, "no node had its turn")],
    )
    return Picture(data, layout)


def _timeline_notes(one: OneForward, *, packed: bool) -> list[str]:
    state = {"ok": "finished", "open": "is still going"}.get(one.state, one.state)
    if one.state == "lost":
        state = "is lost: its process ended before it did"
    words = state + (f" after {themes.took(one.took)}" if one.took is not None and one.state != "open" else "")
    lines = themes.wrapped(f"{words}; {counted(len(one.turns), 'turn')} told")
    if one.inside:
        names = [themes.cut(name, 40) for name in one.inside[:_INSIDE]]
        more = [f"{len(one.inside) - _INSIDE} more"] if len(one.inside) > _INSIDE else []
        lines += themes.wrapped(f"it was last seen in {', '.join([*names, *more])}")
    if one.why:
        lines += themes.wrapped(themes.cut(one.why.removesuffix(": "), 240))
    if packed:
        lines.append("turns that do not overlap share a row; hover names them")
    return lines


def _timeline_rows(turns: Sequence[NodeTurn]) -> tuple[list[int], bool]:
    """The row of each turn, and True if turns share rows."""
    if len(turns) <= _EACH_ITS_ROW:
        return list(range(len(turns))), False
    return lanes_of((turn.began, turn.end) for turn in turns), True


def _timeline_bars(turns: Sequence[NodeTurn], rows: Sequence[int], size: float) -> list[dict[str, Any]]:
    order: dict[Where, int] = {}
    groups: dict[tuple[Where, str], list[int]] = {}
    for place, turn in enumerate(turns):
        where = turn.where if turn.ending != "left" else Where(turn.where.host)
        order.setdefault(where, len(order))
        groups.setdefault((where, turn.ending), []).append(place)
    return [
        _bar(
            order[where],
            where,
            ending,
            tint=0.3,
            base=[turns[place].began / size for place in places],
            x=[turns[place].took / size for place in places],
            y=[rows[place] for place in places],
            width=0.62,
            hovertext=[_timeline_words(turns[place]) for place in places],
        )
        for (where, ending), places in groups.items()
    ]


def _timeline_words(turn: NodeTurn) -> str:
    name = "to host " * (turn.ending == "left") + turn.name
    ending = "was there and back" if turn.ending == "left" else turn.ending
    lines = [
        f"<b>{themes.escaped(name, 60)}</b> {ending} in {themes.took(turn.took)}",
        f"from {themes.took(turn.began)} to {themes.took(turn.end)}"
        if turn.known
        else "when is not told; drawn after what came before it",
    ]
    if turn.ending != "left":
        lines.append(themes.escaped(str(turn.where), 60))
    return "<br>".join([*lines, *(themes.escaped(line) for line in themes.wrapped(themes.cut(turn.why, 240), 64))])


def _names(look: Theme, turns: Sequence[NodeTurn], count: int, *, packed: bool) -> dict[str, Any]:
    shown = not packed and bool(turns)
    names = [f"{_BEFORE.get(turn.ending, '')}{turn.name}" for turn in turns]
    return themes.axis(
        look,
        range=[count - 0.4, -0.6],
        fixedrange=True,
        showgrid=False,
        showticklabels=shown,
        tickvals=list(range(count)) if shown else [],
        ticktext=[themes.escaped(name, _LABEL) for name in names] if shown else [],
    )


def _trips(turns: Sequence[NodeTurn], rows: Sequence[int], size: float) -> list[dict[str, Any]]:
    """A frame around each round trip and the turns within it."""
    frames = []
    for place, trip in enumerate(turns):
        if trip.ending == "left":
            inside = [rows[other] for other, turn in enumerate(turns) if turn.inside is trip]
            frames.append(
                {
                    "type": "rect",
                    "layer": "below",
                    "x0": trip.began / size,
                    "x1": trip.end / size,
                    "y0": rows[place] - 0.45,
                    "y1": max([rows[place], *inside]) + 0.45,
                    "fillcolor": "rgba(128,128,128,0.10)",
                    "line": {"color": "rgba(128,128,128,0.45)", "width": 1},
                }
            )
    return frames


def _end(one: OneForward, at: float, count: int) -> dict[str, Any]:
    """A line at the moment at which a forward broke, or up to which its facts go."""
    return {
        "type": "scatter",
        "name": one.state,
        "x": [at, at],
        "y": [-0.6, count - 0.4],
        "mode": "lines",
        "line": {"color": themes.RED if one.state != "open" else "rgba(128,128,128,0.8)", "width": 2},
        "hovertext": "<br>".join(themes.escaped(line) for line in _timeline_notes(one, packed=False)),
        "hovertemplate": "%{hovertext}<extra></extra>",
    }

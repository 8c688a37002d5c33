"""A graph as traces for plotly: boxes, frames and arrows, and in the hover text what each node is."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from somatize.dag.pieces import Marks
from somatize.store.node_tally import RunTurns

from . import theme as themes
from .graph_layout import BOX, BRANCHES, CROWD, LABEL, PAD, Arrow, Frame, Placed, Rect, Wiring, placed, structure_of
from .theme import Theme, counted, cut

Sights = Mapping[str, Any]
"""By node id, what `Graph.foreseen` says: `would` and `why`."""

SIGNS = {"run": "▶", "be recalled": "↺", "be skipped": "∅"}


def foresight_sign(sights: Sights | None, node: str) -> list[str]:
    """The sign of a node, if something was foreseen of it."""
    return [SIGNS[sights[node].would]] if sights is not None and node in sights else []


def foresight_reasons(sights: Sights | None, node: str) -> list[str]:
    """The hover lines about what a forward would do with a node."""
    if sights is None or node not in sights:
        return []
    return [f"would {sights[node].would}", *(f"   {themes.escaped(why, 100)}" for why in sights[node].why)]


def foresight_legend(sights: Sights | None, nodes: Sequence[str]) -> list[str]:
    """The legend of the signs used on a drawing."""
    found = {sights[node].would for node in nodes if node in sights} if sights is not None else set()
    return [f"{sign} would {would}" for would, sign in SIGNS.items() if would in found]


def turn_words(turns: RunTurns | None, node: str) -> list[str]:
    """The lines on a node's box about its turns in a run: time and runs, then what was recalled or failed."""
    if turns is None:
        return []
    spent = turns.nodes.get(node)
    if spent is None:
        return ["no turn"]
    ran = spent.count("ran")
    words = [themes.took(spent.us)] + ([f"{ran:,} × {themes.took(spent.mean_us)}"] if spent.mean_us is not None else [])
    odd = [f"{count:,} {ending}" for ending in ("recalled", "failed") if (count := spent.count(ending))]
    return [" · ".join(words), *([" · ".join(odd)] if odd else [])]


def turn_reasons(turns: RunTurns | None, node: str) -> list[str]:
    """The hover lines about a node's turns in a run."""
    if turns is None or node not in turns.nodes:
        return []
    spent = turns.nodes[node]
    whole = turns.node_us
    lines = [
        f"{themes.took(spent.us)} in all, {themes.share(spent.us / whole, 1) if whole else 'none'} of all nodes' time"
    ]
    return lines + [
        themes.escaped(f"{ending} {counted(count, 'time')}, {themes.took(us / count)} each, {where}", 80)
        for (where, ending), (count, us) in sorted(spent.turns.items())
    ]


_MOST_LETTERS, _MOST_ARGUMENTS = 60, 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset, range)
_MISSING = object()


def class_of(thing: Any) -> str:
    """The name of a thing's class, or of a function, with the module it is from."""
    while isinstance(thing, partial):
        thing = thing.func
    named = thing if isinstance(getattr(thing, "__qualname__", None), str) else type(thing)
    return f"{named.__module__}.{named.__qualname__}".removeprefix("__main__.").removeprefix("builtins.")


def arguments_of(thing: Any) -> list[tuple[str, str]]:
    """Each argument of a thing's constructor that is there as a public attribute, and its value in words.

    Never runs code of the thing's own: a value is shown in full if it is of a plain type, else by what kind it is.
    """
    if isinstance(thing, partial):
        given = [(str(place), value) for place, value in enumerate(thing.args)] + list(thing.keywords.items())
        return [(name, shown(value)) for name, value in given[:_MOST_ARGUMENTS]]
    try:
        names = list(inspect.signature(type(thing)).parameters) if not inspect.isroutine(thing) else []
    except (TypeError, ValueError):
        return []
    found = [(name, _attribute(thing, name)) for name in names if not name.startswith("_")]
    return [(name, shown(value)) for name, value in found if value is not _MISSING][:_MOST_ARGUMENTS]


def _attribute(thing: Any, name: str) -> Any:
    try:
        return inspect.getattr_static(thing, name) if not _is_kept_apart(thing, name) else _kept_apart(thing, name)
    except AttributeError:
        return _MISSING


def _is_kept_apart(thing: Any, name: str) -> bool:
    return name not in getattr(thing, "__dict__", {}) and _kept_apart(thing, name) is not _MISSING


def _kept_apart(thing: Any, name: str) -> Any:
    """The attribute of a torch Module in its parameter, buffer and module dicts, or in a slot."""
    for place in ("_parameters", "_modules", "_buffers"):
        held = getattr(thing, "__dict__", {}).get(place)
        if isinstance(held, dict) and name in held:
            return held[name]
    slot = getattr(type(thing), name, None)
    if inspect.ismemberdescriptor(slot):
        return slot.__get__(thing)
    return _MISSING


def shown(value: Any) -> str:
    """A value in a few letters."""
    if type(value) in _PLAIN:
        return cut(_short.repr(value), _MOST_LETTERS)
    kind = type(value).__name__
    if isinstance(value, type) or inspect.isroutine(value):
        return cut(str(getattr(value, "__qualname__", kind)), _MOST_LETTERS)
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return f"<{kind} of {' × '.join(str(int(size)) for size in shape) or 'one'}>"
    except Exception:  # an object that looks like an array and is none
        return f"<{kind}>"
    return f"<{kind}>"


class _Short(reprlib.Repr):
    """`reprlib`, but an object inside a container is shown by its kind: its own repr may be long, slow or wrong."""

    def repr_instance(self, x: Any, level: int) -> str:
        return super().repr_instance(x, level) if type(x) in _PLAIN else shown(x)


_short = _Short()
_short.maxstring = _short.maxother = _MOST_LETTERS


_LETTER, _SMALL, _WIDEST, _LINE = 7.0, 6.4, 22, 15.0
_MARGIN = 16
_NARROWEST, _EDGE = 340, 2
_SHOWN = {"cached": "●", "frozen": "❄", "mapped": "⋮"}
"""The symbols of marks on a box."""
_FRAME = "rgba(128,128,128,0.55)"

Picture = tuple[list[dict[str, Any]], dict[str, Any]]


def picture_of(
    wiring: Wiring,
    marks: Sequence[Marks],
    things: Sequence[Any],
    look: Theme,
    foreseen: Sights | None = None,
    turns: RunTurns | None = None,
    said: str = "",
) -> Picture:
    """Traces and a layout of a graph that is not empty; a pixel is a unit of its axes.

    The boxes show what was `foreseen`, or the `turns` of a run, of which something may be `said`.
    """
    signs = [_marks(said) + foresight_sign(foreseen, name) for name, said in zip(wiring.names, marks, strict=True)]
    told = [turn_words(turns, name) for name in wiring.names]
    drawn = placed(
        wiring,
        structure_of(wiring, marks),
        lambda node: max(_width(wiring.names[node], signs[node]), *(20 + _SMALL * len(line) for line in told[node]), 0),
        BOX + _LINE * max(map(len, told)),
    )
    devices = _devices(marks)
    data = [_lines(look, drawn.arrows), _heads(look, drawn.arrows)]
    data += [
        _boxes(
            look,
            drawn,
            wiring,
            signs,
            told,
            lambda node: hover_text(wiring, node, marks[node], things[node], foreseen, turns),
            [node for node in drawn.boxes if marks[node].device == device],
            device,
        )
        for device in devices
    ]
    data += [_legend(look, device, fill) for device, fill in devices.items() if len(devices) > 1]
    notes = run_notes(turns, said) + notes_of(wiring, marks, drawn.frames, foreseen)
    title = title_of(wiring, turns)
    failed = {
        n for n, name in enumerate(wiring.names) if turns and name in turns.nodes and turns.nodes[name].count("failed")
    }
    return data, _layout(look, drawn, marks, devices, notes, title, failed)


def title_of(wiring: Wiring, turns: RunTurns | None) -> str:
    """The title of a drawing."""
    return (f"run {turns.run}: " if turns is not None else "") + counted(len(wiring), "node")


def run_notes(turns: RunTurns | None, said: str) -> list[str]:
    """The subtitle about a run."""
    if turns is None:
        return []
    words = (
        f"{counted(turns.forwards, 'forward')}, {themes.took(turns.us)} in all; {themes.took(turns.node_us)} in nodes"
    )
    return themes.wrapped(f"{words}; {said}" if said else words, 56)


def _width(name: str, signs: Sequence[str]) -> float:
    return 20 + _LETTER * (min(max(len(name), 5), _WIDEST) + 2 * len(signs))


def _marks(marks: Marks) -> list[str]:
    return [sign for word, sign in _SHOWN.items() if getattr(marks, word) is not None]


def _devices(marks: Sequence[Marks]) -> dict[str | None, str | None]:
    """The fill of each device, None for nodes that were placed on none."""
    found = sorted({said.device for said in marks if said.device is not None})
    fills: dict[str | None, str | None] = {device: themes.hue(place) for place, device in enumerate(found)}
    return {None: None, **fills} if any(said.device is None for said in marks) else fills


def _lines(look: Theme, arrows: Sequence[Arrow]) -> dict[str, Any]:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for arrow in arrows:
        for x, y in curved(arrow.points):
            xs.append(round(x, 1))
            ys.append(round(y, 1))
        xs.append(None)
        ys.append(None)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "feeds",
        "x": xs,
        "y": ys,
        "line": {"color": look.faint, "width": 1.3},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def curved(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same way, with what goes aslant in an S: it stays between its ends and between the same heights."""
    way = [points[0]]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 != x1:
            steps = [step / 8 for step in range(1, 8)]
            way += [(x0 + (x1 - x0) * at * at * (3 - 2 * at), y0 + (y1 - y0) * at) for at in steps]
        way.append((x1, y1))
    return way


def _heads(look: Theme, arrows: Sequence[Arrow]) -> dict[str, Any]:
    ends = list(dict.fromkeys(arrow.points[-1] for arrow in arrows))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "feeds",
        "x": [round(x, 1) for x, _ in ends],
        "y": [round(y - 4, 1) for _, y in ends],
        "marker": {"symbol": "triangle-down", "size": 8, "color": look.faint},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _boxes(
    look: Theme,
    drawn: Placed,
    wiring: Wiring,
    signs: Sequence[Sequence[str]],
    told: Sequence[Sequence[str]],
    hover: Callable[[int], str],
    nodes: list[int],
    device: str | None,
) -> dict[str, Any]:
    """The names of the boxes of one device, where the hover is; the boxes themselves are shapes."""
    labels = [
        "<br>".join([" ".join([themes.escaped(wiring.names[node], _WIDEST), *signs[node]]), *_small(look, told[node])])
        for node in nodes
    ]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "no device" if device is None else themes.escaped(device),
        "x": [drawn.boxes[node].middle for node in nodes],
        "y": [(drawn.boxes[node].top + drawn.boxes[node].bottom) / 2 for node in nodes],
        "text": labels,
        "textfont": {"color": look.ink, "size": themes.TEXT},
        "textposition": "middle center",
        "marker": {"size": 1, "opacity": 0},  # the shape below is what is seen
        "showlegend": False,
        "hovertext": [hover(node) for node in nodes],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _small(look: Theme, lines: Sequence[str]) -> list[str]:
    return [f'<span style="font-size:{themes.SMALL}px;color:{look.faint}">{line}</span>' for line in lines]


def _legend(look: Theme, device: str | None, fill: str | None) -> dict[str, Any]:
    """A legend entry for the fill of a device's boxes."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "no device" if device is None else themes.escaped(device),
        "x": [None],
        "y": [None],
        "marker": {
            "symbol": "square",
            "color": themes.tint(fill, 0.18) if fill else "rgba(128,128,128,0.12)",
            "line": {"color": fill or look.faint, "width": 1},
        },
        "hoverinfo": "skip",
    }


def hover_text(
    wiring: Wiring,
    node: int,
    marks: Marks,
    thing: Any,
    foreseen: Sights | None = None,
    turns: RunTurns | None = None,
) -> str:
    """The hover text of a node: class and arguments, place, marks, neighbours."""
    lines = [f"<b>{themes.escaped(wiring.names[node], 80)}</b>", themes.escaped(class_of(thing), 80)]
    lines += [f"   {themes.escaped(name)} = {themes.escaped(value)}" for name, value in arguments_of(thing)]
    said = {"on": marks.device, "at": marks.host}
    lines += [f"{word} {themes.escaped(value, 60)}" for word, value in said.items() if value is not None]
    lines += [themes.escaped(words, 80) for words in marked(marks)]
    lines += foresight_reasons(foreseen, wiring.names[node]) + turn_reasons(turns, wiring.names[node])
    for word, others in (("fed by", wiring.before[node]), ("feeds", wiring.after[node])):
        lines.append(
            f"{word} {_some(wiring, others)}" if others else {"fed by": "fed by the input", "feeds": "a leaf"}[word]
        )
    return "<br>".join(lines)


def marked(marks: Marks) -> list[str]:
    """The marks of a node in words."""
    words = []
    if marks.cached is not None:
        words.append("cached" + (f", salt {marks.cached.salt!r}" if marks.cached.salt is not None else ""))
    if marks.frozen is not None:
        words.append("frozen" + (f", state {marks.frozen.state!r}" if marks.frozen.state is not None else ""))
    if marks.mapped is not None:
        words.append("mapped" + (f", {marks.mapped.batch} at once" if marks.mapped.batch is not None else ""))
    return words


def _some(wiring: Wiring, nodes: Sequence[int]) -> str:
    shown = ", ".join(themes.escaped(wiring.names[node], 40) for node in nodes[:5])
    return shown + (f" and {len(nodes) - 5:,} more" if len(nodes) > 5 else "")


def _layout(
    look: Theme,
    drawn: Placed,
    marks: Sequence[Marks],
    devices: Mapping[str | None, str | None],
    notes: list[str],
    words: str,
    failed: Collection[int],
) -> dict[str, Any]:
    title, above = themes.title(look, words, notes)
    below = _MARGIN + (themes.legend_height([{"name": str(device)} for device in devices]) if len(devices) > 1 else 0)
    width = max(_NARROWEST, drawn.width + 2 * _MARGIN)
    spare = (width - 2 * _MARGIN - drawn.width) / 2 + _EDGE
    return themes.layout(
        look,
        width=round(width + 2 * _EDGE),
        height=round(drawn.height + 2 * _EDGE + above + below),
        margin={"l": _MARGIN, "r": _MARGIN, "t": above, "b": below},
        title=title,
        xaxis={"range": [-spare, drawn.width + spare], "visible": False},
        yaxis={"range": [drawn.height + _EDGE, -_EDGE], "visible": False},
        hovermode="closest",
        hoverdistance=40,
        dragmode="pan",
        showlegend=len(devices) > 1,
        legend=themes.legend(-8 / drawn.height)
        | {"itemclick": False, "itemdoubleclick": False, "itemsizing": "constant"},
        shapes=[_frame(frame) for frame in drawn.frames] + _rects(look, drawn, marks, devices, failed),
        annotations=[_label(look, frame) for frame in drawn.frames if frame.host is not None],
    )


def notes_of(
    wiring: Wiring, marks: Sequence[Marks], frames: Sequence[Frame], foreseen: Sights | None = None
) -> list[str]:
    """The legend of the signs used on a drawing."""
    said = [counted(sum(len(after) for after in wiring.after), "edge")]
    said += [f"{sign} {word}" for word, sign in _SHOWN.items() if any(getattr(one, word) is not None for one in marks)]
    said += foresight_legend(foreseen, wiring.names)
    kinds = {frame.kind for frame in frames}
    if BRANCHES in kinds:
        said.append("branches lie side by side in a frame")
    if CROWD in kinds and any(wiring.after):
        said.append("an arrow at a frame is one for each in it")
    return themes.wrapped("; ".join(said), 56)


def _rects(
    look: Theme,
    drawn: Placed,
    marks: Sequence[Marks],
    devices: Mapping[str | None, str | None],
    failed: Collection[int],
) -> list[dict[str, Any]]:
    made = []
    for node, rect in drawn.boxes.items():
        fill = devices[marks[node].device]
        shade = themes.tint(fill, 0.18) if fill else "rgba(128,128,128,0.10)"
        colour = themes.RED if node in failed else fill or look.faint
        made.append(rectangle(rect, shade, {"color": colour, "width": 1.2}))
    return made


def _frame(frame: Frame) -> dict[str, Any]:
    shade, dash = ("rgba(128,128,128,0.10)", "solid") if frame.host is not None else ("rgba(0,0,0,0)", "dot")
    return rectangle(frame.rect, shade, {"color": _FRAME, "width": 1, "dash": dash})


def rectangle(rect: Rect, fill: str, line: dict[str, Any]) -> dict[str, Any]:
    """A rectangle below the traces, as a shape of plotly."""
    corners = {"x0": rect.left, "y0": rect.top, "x1": rect.right, "y1": rect.bottom}
    return {"type": "rect", "layer": "below", **corners, "fillcolor": fill, "line": line}


def _label(look: Theme, frame: Frame) -> dict[str, Any]:
    assert frame.host is not None
    letters = int(((frame.rect.right - frame.rect.left) / 2 - 8) / _SMALL)
    return {
        "text": themes.escaped(f"at {frame.host}", letters),
        "x": frame.rect.left + 4,
        "y": frame.rect.top + LABEL / 2 + PAD / 4,
        "xref": "x",
        "yref": "y",
        "xanchor": "left",
        "yanchor": "middle",
        "showarrow": False,
        "font": {"size": themes.SMALL, "color": look.ink},
    }

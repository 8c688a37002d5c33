"""The figure `sweep`: a number that runs ended with, over the configuration keys in which the runs differ.

Parallel coordinates above, a small scatter plot per key below. Both place a value by the `SweepAxis` of its key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from somatize.errors import RecordError, UnknownName, nearest
from somatize.figures import plotly_backend
from somatize.figures import theme as themes
from somatize.figures.theme import Theme, counted
from somatize.store.run_summary import FAILED, KILLED

from .forward_reader import Place
from .panels import Panel, label, log_ticks
from .run_query import CONFIG, Where, condition_of, whole_rows

if TYPE_CHECKING:
    from somatize.figures.plotly_backend import Figure

_MOST_KEYS, _MOST_TEXTS, _MOST_TICKS, _FEW = 12, 12, 6, 30
_DECADE = 10.0
"""The ratio of largest to smallest from which an axis is logarithmic, if that brings the median nearer its middle."""
_BELOW, _APART = 0.13, 0.07
"""As fractions of an axis: the place of what is no number on it, and the least distance of two ticks."""
_SHADES, _LEAST = 8, 1e-290
_PARALLEL, _SMALL, _BETWEEN = 300, 140, 64
"""Heights in pixels: of the parallel coordinates, of a small plot, and between two."""
_ABSENT = object()


class SweepAxis(NamedTuple):
    """An axis from 0 to 1; None, and values that a run does not have, lie below it."""

    name: str
    places: Mapping[Any, float]
    """By value, as `_identity` has it."""
    ticks: Sequence[tuple[float, str]]

    def place(self, value: Any) -> float:
        """The place of a value."""
        return self.places[_identity(value)]


@dataclass
class SweepRun:
    """A run, its values by key, and its number, None where it said no finite one."""

    name: str
    state: str
    why: str | None
    config: Mapping[str, Any]
    value: float | None
    colour: str = ""
    symbol: str = ""
    size: int = 6

    @property
    def failed(self) -> bool:
        """Whether it failed or was killed."""
        return self.state in (FAILED, KILLED)


def sweep(
    store: Place, of: str = "loss", *, where: Where = None, mode: str | None = None, theme: str | None = None
) -> Figure:
    """A number of many runs over the configuration keys in which these differ.

    Above, a line per run through its value of each key, to its last value of `of`, or its largest with
    ``mode="max"`` and its smallest with ``"min"``; then the best run is drawn bold. Below, a small plot per key. Colour
    goes from the smallest value to the largest; runs that failed or were killed are red, and a run that said no finite
    value ends below the axis, as do keys that a run does not have. Keys over decades have a logarithmic axis. The first
    twelve keys that differ are drawn, less those of more than twelve texts; the subtitle names the others.
    `where` selects runs as in `runs`. No record is opened, but for a number that was not summarised.

    Raises `UnknownName` where no run said the number, `RecordError` for another mode, `BadFilter`, `FigureError`,
    `ExtraMissing`.
    """
    plotly_backend.require()
    if mode not in (None, "max", "min"):
        raise RecordError(f"mode={mode!r}: it is 'max', 'min', or None for the last value of each run")
    of, chosen = of.removesuffix(".value"), condition_of(where)
    rows = chosen(whole_rows(store, [of]))
    if not any(f"{of}.last" in row for row in rows):
        known = sorted({name.removesuffix(".last") for row in rows for name in row if name.endswith(".last")})
        raise UnknownName(f"no {of!r} was said in any of {counted(len(rows), 'run')}{nearest(of, known)}")
    return plotly_backend.figure(*_picture([_run(row, f"{of}.{mode or 'last'}") for row in rows], of, mode, theme))


def _run(row: Mapping[str, Any], column: str) -> SweepRun:
    value = row.get(column)
    config = {name.removeprefix(CONFIG): given for name, given in row.items() if name.startswith(CONFIG)}
    finite = value is not None and math.isfinite(value)
    return SweepRun(row["run"], row["state"], row["why"], config, value if finite else None)


# -- axes


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _identity(value: Any) -> Any:
    """A key that equal values share: 1 and 1.0 do, 1 and True do not."""
    return value if value is None or value is _ABSENT or _is_number(value) else repr(value)


def _axis(name: str, values: Sequence[Any], absent: str = "not set") -> SweepAxis:
    """The axis on which these values lie."""
    found = {_identity(value): value for value in values}
    on = [value for value in found.values() if value is not None and value is not _ABSENT]
    places, ticks = _scaled(on) if all(map(_is_number, on)) else _named(on)
    for what, words in ((None, "None"), (_ABSENT, absent)):
        if what in found:
            at = -_BELOW * (1 + (what is _ABSENT and None in found))
            places[what] = at
            ticks.append((at, words))
    return SweepAxis(name, places, ticks)


def _scaled(numbers: Sequence[float]) -> tuple[dict[Any, float], list[tuple[float, str]]]:
    if not numbers:
        return {}, []
    low, _, high = spread = min(numbers), median(numbers), max(numbers)
    logarithmic = low > 0 and high / low >= _DECADE and _off(*map(math.log10, spread)) < _off(*spread)
    scale = math.log10 if logarithmic else float
    start, size = scale(low), scale(high) - scale(low)
    if not math.isfinite(size) or 0 < size < _LEAST:  # of the largest and the smallest numbers there are
        return _named(numbers)

    def place(number: float) -> float:
        return (scale(number) - start) / size if size else 0.5

    if len(numbers) <= _MOST_TICKS:
        marked = [
            (number, themes.power(number if number % 1 == 0 else float(f"{number:.3g}"))) for number in sorted(numbers)
        ]
    else:
        marked = log_ticks(start, start + size, 1.0) if logarithmic else _round_numbers(low, high)
    ticks: list[tuple[float, str]] = []
    for number, words in marked:
        if not ticks or place(number) - ticks[-1][0] >= _APART:
            ticks.append((place(number), words))
    return {number: place(number) for number in numbers}, ticks


def _off(low: float, middle: float, high: float) -> float:
    """How far a median is from the middle of an axis, 1 at its ends."""
    return abs(2 * middle - low - high) / (high - low)


def _round_numbers(low: float, high: float) -> list[tuple[float, str]]:
    power = 10.0 ** math.floor(math.log10((high - low) / _MOST_TICKS))
    step = next(power * digit for digit in (1, 2, 5, 10, 20) if (high - low) / (power * digit) <= _MOST_TICKS)
    counts = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [(count * step, themes.power(float(f"{count * step:.12g}"))) for count in counts]


def _named(values: Sequence[Any]) -> tuple[dict[Any, float], list[tuple[float, str]]]:
    """Places of values that are not all numbers: evenly, numbers first."""
    ordered = sorted(values, key=lambda value: (not _is_number(value), value if _is_number(value) else 0, str(value)))
    at = {_identity(value): (n / (len(ordered) - 1) if len(ordered) > 1 else 0.5) for n, value in enumerate(ordered)}
    shown = [themes.escaped(words) for words in themes.apart([str(value) for value in ordered], 14)]
    every = math.ceil(len(ordered) * _APART)
    return at, [(at[_identity(value)], shown[n]) for n, value in enumerate(ordered) if n % every == 0]


def _key_axes(runs: Sequence[SweepRun]) -> tuple[list[SweepAxis], list[str]]:
    """The axes of keys that differ, and of those that are not drawn what is said of them."""
    axes: list[SweepAxis] = []
    left_out: list[str] = []
    for key in dict.fromkeys(key for run in runs for key in run.config):
        values = [run.config.get(key, _ABSENT) for run in runs]
        different = set(map(_identity, values))
        if len(different) < 2:
            continue
        if len(different) > _MOST_TEXTS and not all(map(_is_number, different - {None, _ABSENT})):
            left_out.append(f"{key} ({len(different):,} values)")
        elif len(axes) == _MOST_KEYS:
            left_out.append(key)
        else:
            axes.append(_axis(key, values))
    return axes, left_out


# -- the picture


def _dress(run: SweepRun, best: SweepRun | None, value: SweepAxis, look: Theme) -> None:
    """Give a run its colour, symbol and size."""
    if run.value is None:
        run.colour, run.symbol = look.faint, "circle-open"
    else:
        run.colour, run.symbol = _shade(value.place(run.value)), "circle"
    if run.failed:
        run.colour, run.symbol, run.size = themes.RED, "x", 7
    if run is best:
        run.colour, run.symbol, run.size = themes.RED if run.failed else look.ink, "star", 13


def _shade(share: float) -> str:
    """A colour between the first two hues, in a few steps."""
    step = min(_SHADES - 1, int(share * _SHADES)) / (_SHADES - 1)
    parts = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in themes.HUES[:2]]
    return "#" + "".join(f"{round(low + (high - low) * step):02x}" for low, high in zip(*parts, strict=True))


def _picture(
    runs: Sequence[SweepRun], of: str, mode: str | None, theme: str | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    look = themes.theme_of(theme)
    keys, left_out = _key_axes(runs)
    values = [_ABSENT if run.value is None else run.value for run in runs]
    value = _axis(of, values, "no value")
    there = [run for run in runs if run.value is not None]
    sign = -1 if mode == "max" else 1
    best = min(there, key=lambda run: sign * (run.value or 0.0)) if mode and there else None
    for run in runs:
        _dress(run, best, value, look)
    data = _lines(runs, keys, value, best)
    across = 2 if len(keys) <= 4 else 3
    down = math.ceil(len(keys) / across)
    height = _PARALLEL + down * (_SMALL + _BETWEEN)
    data += [_points(runs, key, value, n + 2) for n, key in enumerate(keys)]
    which = {"max": "the largest", "min": "the smallest", None: "the last"}[mode]
    title, above = themes.title(look, f"{which} {of} of {counted(len(runs), 'run')}", _notes(runs, best, left_out))
    below = 68 + themes.legend_height([trace for trace in data if trace["showlegend"]])
    axes, notes = _panels(look, keys, value, across, height)
    ticks = [(n, at, words) for n, axis in enumerate([*keys, value]) for at, words in axis.ticks]
    if not keys:
        notes.append(themes.in_the_middle(look, "no key of the configuration differs between these runs", 0.7))
    layout = themes.layout(
        look,
        height=height + above + 40 + below,
        margin={"t": above + 40, "b": below, "l": 24, "r": 38},
        title=title,
        hovermode="closest",
        showlegend=True,
        legend=themes.legend(-64 / height),
        shapes=[
            {"type": "line", "x0": n, "x1": n, "y0": 0, "y1": 1, "line": {"color": look.faint, "width": 1}}
            for n in range(len(keys) + 1)
        ],
        annotations=[*notes, *(_tick(look, *tick, last=tick[0] == len(keys)) for tick in ticks)],
        **axes,
    )
    return data, layout


def _notes(runs: Sequence[SweepRun], best: SweepRun | None, left_out: Sequence[str]) -> list[str]:
    words = ["blue is low, orange is high"]
    if best is not None and best.value is not None:
        words.insert(0, f"best: {themes.cut(best.name, 40)} with {best.value:.5g}")
    failed, without = sum(run.failed for run in runs), sum(run.value is None for run in runs)
    words += [f"{failed:,} failed or killed, in red"] if failed else []
    words += [f"{without:,} without a finite value"] if without else []
    words += [f"not drawn: {', '.join(left_out[:6])}" + f" and {len(left_out) - 6} more" * (len(left_out) > 6)] * bool(
        left_out
    )
    return themes.wrapped("; ".join(words))


def _lines(
    runs: Sequence[SweepRun], keys: Sequence[SweepAxis], value: SweepAxis, best: SweepRun | None
) -> list[dict[str, Any]]:
    """A trace per colour, the best run on top."""
    groups: dict[tuple[str, str], list[SweepRun]] = {}
    for run in runs:
        words = "failed or killed" if run.failed else "no value" if run.value is None else ""
        name = f"best: {run.name}" if run is best else words
        groups.setdefault((name, run.colour), []).append(run)
    many = len(runs) > _FEW
    traces = []
    for (name, colour), members in sorted(groups.items(), key=lambda group: group[0][0].startswith("best: ")):
        bold, red = members == [best], colour == themes.RED
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if not keys else "lines",
                "name": themes.escaped(name or "runs", 50),
                "showlegend": bool(name),
                "x": [x for _ in members for x in (*range(len(keys) + 1), None)],
                "y": [
                    y
                    for run in members
                    for y in (
                        *(axis.place(run.config.get(axis.name, _ABSENT)) for axis in keys),
                        value.place(_ABSENT if run.value is None else run.value),
                        None,
                    )
                ],
                "hovertext": [text for run in members for text in (*[_words(run, value)] * (len(keys) + 1), "")],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "line": {
                    "color": colour,
                    "width": 3.5 if bold else 0.9 if many else 1.6,
                    "dash": "dash" if red else "solid",
                },
                "opacity": 0.45 if many and not bold else 1.0,
            }
        )
    return traces


def _points(runs: Sequence[SweepRun], key: SweepAxis, value: SweepAxis, axis: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": themes.escaped(key.name, 50),
        "showlegend": False,
        "xaxis": f"x{axis}",
        "yaxis": f"y{axis}",
        "x": [key.place(run.config.get(key.name, _ABSENT)) for run in runs],
        "y": [value.place(_ABSENT if run.value is None else run.value) for run in runs],
        "hovertext": [_words(run, value, key.name) for run in runs],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {
            "color": [run.colour for run in runs],
            "symbol": [run.symbol for run in runs],
            "size": [run.size for run in runs],
            "opacity": 0.8,
            "line": {"width": 0},
        },
    }


def _words(run: SweepRun, value: SweepAxis, *keys: str) -> str:
    said = "no value" if run.value is None else f"{run.value:.6g}"
    lines = [f"<b>{themes.escaped(run.name, 60)}</b>", f"{themes.escaped(value.name, 40)} {said}"]
    lines += [f"{themes.escaped(key, 40)} {themes.escaped(run.config.get(key, 'not set'), 60)}" for key in keys]
    if run.failed:
        lines.append(themes.escaped(f"{run.state}{f': {run.why}' if run.why else ''}", 80))
    return "<br>".join(lines)


def _panels(
    look: Theme, keys: Sequence[SweepAxis], value: SweepAxis, across: int, height: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The axes of the layout, and the names of the small plots."""
    names = [themes.escaped(name) for name in themes.apart([axis.name for axis in [*keys, value]], 22)]
    extent = [min(0.0, *(at for axis in [*keys, value] for at, _ in axis.ticks), 0.0) - 0.07, 1.07]
    axes: dict[str, Any] = {
        "xaxis": themes.axis(
            look,
            range=[-0.5, len(keys) + 0.5],
            tickvals=list(range(len(keys) + 1)),
            ticktext=names,
            tickfont={"size": themes.TEXT, "color": look.ink},
            side="top",
            showgrid=False,
            fixedrange=True,
        ),
        "yaxis": {"range": extent, "domain": [1 - _PARALLEL / height, 1], "visible": False, "fixedrange": True},
    }
    notes = []
    width = (1 - 0.05 * (across - 1)) / across
    for n, key in enumerate(keys):
        left, top = n % across * (width + 0.05), 1 - (_PARALLEL + _BETWEEN + n // across * (_SMALL + _BETWEEN)) / height
        marked = {"tickvals": [at for at, _ in key.ticks], "ticktext": [words for _, words in key.ticks]}
        axes[f"xaxis{n + 2}"] = themes.axis(
            look,
            domain=[left, left + width],
            anchor=f"y{n + 2}",
            range=[min(0.0, *(at for at, _ in key.ticks), 0.0) - 0.07, 1.07],
            **marked,
        )
        axes[f"yaxis{n + 2}"] = themes.axis(
            look,
            domain=[max(0.0, top - _SMALL / height), top],
            anchor=f"x{n + 2}",
            range=extent,
            tickvals=[at for at, _ in value.ticks],
            ticktext=[words for _, words in value.ticks],
            showticklabels=n % across == 0,
        )
        notes.append(label(look, Panel(key.name, n + 2, 0.0, top), names[n]) | {"x": left})
    return axes, notes


def _tick(look: Theme, axis: int, at: float, words: str, *, last: bool) -> dict[str, Any]:
    """The label of a tick beside an axis of the parallel coordinates: at its left, of the last at its right."""
    return {
        "text": words,
        "x": axis,
        "y": at,
        "xref": "x",
        "yref": "y",
        "xanchor": "left" if last else "right",
        "yanchor": "middle" if last else "bottom",
        "xshift": 4 if last else -4,
        "showarrow": False,
        "bgcolor": look.background,
        "font": {"size": themes.SMALL, "color": look.faint},
    }

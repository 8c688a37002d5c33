"""Plots as text: in braille characters of eight dots each, or in ASCII where a terminal has no braille."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from somatize.figures import theme

from .rich_backend import Console, ConsoleOptions, RenderResult, Text, literal

Extents = Sequence[tuple[Any, float, float]]
"""Forwards, or another x, in order, each with the lowest and the highest value from it to the next."""

_LEAST_WIDE, _MOST_LABEL = 8, 9
_APART = 1e4
"""The ratio of highest to lowest above which the axis is logarithmic, as in figures."""
_BRAILLE_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = " " + "".join(map(chr, range(0x2801, 0x2900)))
_ASCII_BITS = ((1,), (2,))
_ASCII = " '.:"


class _Canvas:
    """Dots drawn with characters: two by four dots each in braille, one by two in ASCII."""

    def __init__(self, columns: int, rows: int, *, ascii_only: bool) -> None:
        self._bits = _ASCII_BITS if ascii_only else _BRAILLE_BITS
        self._shown = _ASCII if ascii_only else _BRAILLE
        self._cells = [[0] * columns for _ in range(rows)]
        self.width, self.height = columns * len(self._bits[0]), rows * len(self._bits)

    def dot(self, x: int, y: int) -> None:
        """Set a dot; `y` counts from the bottom."""
        row, down = divmod(self.height - 1 - y, len(self._bits))
        column, right = divmod(x, len(self._bits[0]))
        self._cells[row][column] |= self._bits[down][right]

    def lines(self) -> list[str]:
        """The lines of characters, from the top."""
        return ["".join(self._shown[cell] for cell in row) for row in self._cells]


class TextPlot:
    """A plot of a curve over forwards, `height` lines high including the axis below it; a renderable.

    Of forwards that share a column, the lowest and the highest value are drawn. The axis is logarithmic where the
    values span more than four orders of magnitude, as in the figures.
    """

    def __init__(
        self,
        extents: Extents,
        height: int,
        *,
        unit: float = 1.0,
        suffix: str = "",
        end: int = 0,
        place: Callable[[Any], str] = "{:,}".format,
    ) -> None:
        """Values are divided by `unit`, whose name is `suffix`; `end` is the last forward, where known.

        `place` writes an x.
        """
        self._place = place
        self._extents = [(forward, low / unit, high / unit) for forward, low, high in extents]
        self._height = max(2, height)
        self._suffix = suffix
        last = extents[-1][0] if extents else end
        self._end = max(end, last) if end else last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(options.max_width, ascii_only=options.ascii_only):
            yield Text(literal(line, options.encoding), no_wrap=True, overflow="crop")

    def lines(self, width: int, *, ascii_only: bool = False) -> list[str]:
        """The plot as text."""
        rows = self._height - 1
        if not self._extents:
            return ["no number yet"]
        low, high = min(one[1] for one in self._extents), max(one[2] for one in self._extents)
        scale = _Scale(low, high, logarithmic=low > 0 and high / low > _APART)
        labels = self._labels(scale, rows)
        wide = max(len(label) for label in labels)
        columns = max(_LEAST_WIDE, width - wide - 2)
        canvas = _Canvas(columns, rows, ascii_only=ascii_only)
        self._draw(canvas, scale)
        wall, corner = ("|", "+") if ascii_only else ("│", "└")
        drawn = [f"{label:>{wide}} {wall}{line}" for label, line in zip(labels, canvas.lines(), strict=True)]
        return [*drawn, f"{'':>{wide}} {corner}{self._axis(columns)}"]

    def _labels(self, scale: _Scale, rows: int) -> list[str]:
        """The labels of the value axis: at the top, at the bottom, and in the middle where there is room."""
        labels = [""] * rows
        if scale.flat:
            labels[rows // 2] = f"{short(scale.value(0))} {self._suffix}".rstrip()
            return labels
        for row in {0, rows - 1, *([rows // 2] if rows >= 5 else [])}:
            labels[row] = short(scale.value(1 - (row + 0.5) / rows if 0 < row < rows - 1 else float(row == 0)))
        if self._suffix:
            labels[0] += f" {self._suffix}"
        return labels

    def _axis(self, columns: int) -> str:
        first, last = self._place(self._extents[0][0]), self._place(self._end)
        room = columns - len(first) - len(last)
        return first + " " * room + last if room > 0 and first != last else first

    def _draw(self, canvas: _Canvas, scale: _Scale) -> None:
        before: tuple[int, int, int] | None = None
        for x, low, high in self._columns(canvas.width):
            bottom, top = (round(scale.place(value) * (canvas.height - 1)) for value in (low, high))
            if before is not None:
                _join(canvas, before, (x, bottom, top))
            for y in range(bottom, top + 1):
                canvas.dot(x, y)
            before = x, bottom, top

    def _columns(self, width: int) -> list[tuple[int, float, float]]:
        """The lowest and the highest value of each column of dots that has any."""
        first, last = self._extents[0][0], self._extents[-1][0]
        span = last - first or 1
        columns: dict[int, tuple[float, float]] = {}
        for forward, low, high in self._extents:
            x = int((forward - first) * (width - 1) // span)
            known = columns.get(x)
            columns[x] = (low, high) if known is None else (min(low, known[0]), max(high, known[1]))
        return [(x, *columns[x]) for x in sorted(columns)]


def _join(canvas: _Canvas, before: tuple[int, int, int], after: tuple[int, int, int]) -> None:
    """Draw a straight line from one column to the next that has values."""
    (x0, bottom0, top0), (x1, bottom1, top1) = before, after
    if bottom1 > top0:
        start, end = top0, bottom1
    elif top1 < bottom0:
        start, end = bottom0, top1
    elif x1 - x0 < 2:
        return
    else:
        start, end = (bottom0 + top0) // 2, (bottom1 + top1) // 2
    steps = max(x1 - x0, abs(end - start))
    for step in range(1, steps):
        canvas.dot(x0 + round((x1 - x0) * step / steps), start + round((end - start) * step / steps))


class _Scale:
    """Maps numbers to 0 (lowest) to 1 (highest)."""

    def __init__(self, low: float, high: float, *, logarithmic: bool) -> None:
        self._log = logarithmic
        self._low, self._high = (math.log10(low), math.log10(high)) if logarithmic else (low, high)

    @property
    def flat(self) -> bool:
        """Whether all numbers are the same."""
        return self._low == self._high

    def place(self, value: float) -> float:
        """The place of a number."""
        at = math.log10(value) if self._log else value
        half = self._high / 2 - self._low / 2  # halved, as the difference of large floats may be infinite
        return 0.5 if not half else min(1.0, max(0.0, (at / 2 - self._low / 2) / half))

    def value(self, place: float) -> float:
        """The number at a place."""
        at = self._low * (1 - place) + self._high * place
        return float(10**at) if self._log else at


def short(value: float) -> str:
    """A number in at most nine characters."""
    words = f"{value:.4g}"
    return words if len(words) <= _MOST_LABEL else f"{value:.2g}"


def short_text(text: str, unit: str = "", size: float = 1.0) -> str:
    """A number given as text, in units of `size` with the name `unit`; the beginning of a text that is no number."""
    try:
        return f"{short(float(text) / size)} {unit}".rstrip()
    except ValueError:
        return theme.cut(text, 24)

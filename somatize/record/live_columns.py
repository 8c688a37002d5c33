"""The data of a Live: a few numbers per forward in columns, so that a million forwards fit in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from somatize.store.record_format import field_path, number, readings

from .column_reader import on_axis
from .run_columns import (
    AXES,
    CLOCKS,
    GAP,
    LOST,
    MOST_PANELS,
    MOST_WHYS,
    NUMBER,
    OPEN,
    STATES,
    WORDS,
    Columns,
    Outside,
    Said,
    Series,
    alike,
    is_split,
)

_ABSENT, _FLOAT, _WHOLE, _TEXT = range(4)
_EXACT = 2**53
_BLOCK = 1024
_GAPS = array("d", [GAP]) * _BLOCK


class Texts:
    """One summarised field over the forwards: the text said last in each, or none.

    A text that its number writes again as it was is kept as that number; the few others as they are.
    """

    __slots__ = ("_texts", "kinds", "numbers")

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.numbers = array("d")
        self._texts: dict[int, str] = {}

    def put(self, row: int, text: str, value: float | None) -> None:
        """Set the text of a row, which is the number `value` or none; replaces the previous one."""
        if self.kinds[row] == _TEXT:
            del self._texts[row]
        if value is not None and repr(value) == text:
            self.kinds[row], self.numbers[row] = _FLOAT, value
        elif value is not None and -_EXACT < value < _EXACT and str(int(value)) == text:
            self.kinds[row], self.numbers[row] = _WHOLE, value
        else:
            self.kinds[row], self._texts[row] = _TEXT, text

    def put_number(self, row: int, value: float) -> None:
        """`put` of the text that a float has."""
        if self.kinds[row] == _TEXT:
            del self._texts[row]
        self.kinds[row], self.numbers[row] = _FLOAT, value

    def __getitem__(self, row: int) -> str | None:
        kind = self.kinds[row]
        if kind == _FLOAT:
            return repr(self.numbers[row])
        if kind == _WHOLE:
            return str(int(self.numbers[row]))
        return self._texts[row] if kind else None


class Numbered(Protocol):
    """A sink's handle of its row."""

    row: int


class LiveColumns:
    """One row per numbered forward. The caller holds the lock of its Live.

    The columns are longer than there are rows: they grow by blocks, so that a row costs no more than what is said.
    """

    def __init__(self, of: Sequence[str], summarising: Sequence[str], x: str = "forward") -> None:
        self.asked = len(of)
        of = self.of = of[:MOST_PANELS]
        self.x = x
        axis = [x] if x not in AXES else []
        self.drawn = Columns.of("", [*(name for name in of if not is_split(name)), *axis])
        """The numbers that are drawn, then the one that is x."""
        self.outside = Outside(of)
        """Facts said outside of any forward."""
        self._streams = {field_path(name): Said(name) for name in of if is_split(name)}
        self.nodes = array("l")
        self.when = array("d")
        self.texts = {path: Texts() for path in summarising}
        self._rows = 0
        self._kept: dict[str, tuple[list[Series], list[Texts]]] = {}
        for series in self.drawn.series:
            for path in readings(series.name):
                self._kept.setdefault(path, ([], []))[0].append(series)
        for path, texts in self.texts.items():
            self._kept.setdefault(path, ([], []))[1].append(texts)
        self.wanted: dict[str, list[tuple[str, str]]] = {}
        """By kind of fact, the fields that are kept and their paths."""
        for path in self._streams:
            self._kept.setdefault(path, ([], []))
        for path in self._kept:
            kind, _, field = path.rpartition(".")
            self.wanted.setdefault(kind, []).append((field, path))
        self._own = [series for series in self.drawn.series if series.name in ("took_us", "nodes")]

    def __len__(self) -> int:
        return self._rows

    def add(self, when: float, sink: Numbered | None = None) -> int:
        """Number a forward, of that sink: the next one."""
        if self._rows == len(self.nodes):
            self._grow()
        row = self._rows
        self.when[row] = when
        if sink is not None:  # here, as an interrupt may keep what is returned from it
            sink.row = row
        self._rows = row + 1
        return row

    def _grow(self) -> None:
        begin, drawn = len(self.nodes), self.drawn
        longer: list[tuple[Any, Any]] = [
            (drawn.forwards, range(begin, begin + _BLOCK)),
            (drawn.states, bytes([OPEN]) * _BLOCK),
            (drawn.took_us, _GAPS),
            *((series.values, _GAPS) for series in drawn.series),
            *((series.kinds, bytes(_BLOCK)) for series in drawn.series),
            *((texts.numbers, _GAPS) for texts in self.texts.values()),
            *((texts.kinds, bytes(_BLOCK)) for texts in self.texts.values()),
            (self.when, _GAPS),
            (self.nodes, bytes(_BLOCK)),  # the last, as its length says how far all of them go
        ]
        for column, more in longer:
            if len(column) == begin:  # else an interrupt came when this one was longer already
                column.extend(more)

    def wrote(self, row: int, writer: int) -> None:
        """Mark a row as replayed from a stored writer."""
        writers = self.drawn.writers
        self._fill_writers(writers, row)
        writers.append(writer)

    @staticmethod
    def _fill_writers(writers: array[int], rows: int) -> None:
        if len(writers) < rows:
            writers.extend([max(writers, default=-1) + 1] * (rows - len(writers)))

    def end(self, row: int, nodes: int, state: int, took_us: int, when: float, why: str | None) -> None:
        """Set the end of a numbered forward: ended, lost, or continued elsewhere."""
        drawn = self.drawn
        drawn.states[row] = state
        ended = state not in (LOST, OPEN)
        drawn.took_us[row] = took_us if ended else GAP
        self.nodes[row] = nodes
        self.when[row] = when
        for series in self._own:
            if ended or series.name == "nodes":
                series.put_number(row, float(took_us if series.name == "took_us" else nodes))
        if why is not None:
            self._because(row, why)

    def _because(self, row: int, why: str) -> None:
        whys = self.drawn.whys
        whys[row] = why
        if len(whys) > MOST_WHYS:
            del whys[min(whys)]

    def put_of_stream(self, row: int, path: str, stream: str | None, said: str | float) -> None:
        """The same as `put`, for the line of one stream."""
        if path in self._streams:
            self._streams[path].put(row, stream, repr(said) if type(said) is float else said)  # type: ignore[arg-type]

    def put(self, row: int, path: str, said: str | float) -> None:
        """A text, or the float that one stands for, was said of a path in a forward."""
        series, texts = self._kept[path]
        if type(said) is float:
            finite = said - said == 0.0
            for one in series:
                if finite and one.kinds[row] != WORDS:  # as `put_number` has it, without a call
                    one.values[row], one.kinds[row] = said, NUMBER
                else:
                    one.put_number(row, said)
            for other in texts:
                other.put_number(row, said)
            return
        value = number(said)  # type: ignore[arg-type]
        for one in series:
            if value is None:
                one.put(row, said)  # type: ignore[arg-type]
            else:
                one.put_number(row, value)
        for other in texts:
            other.put(row, said, value)  # type: ignore[arg-type]

    def row(self, row: int) -> dict[str, Any]:
        """A forward as `forwards` gives it."""
        took = self.drawn.took_us[row]
        return {
            "forward": row,
            "state": STATES[self.drawn.states[row]],
            "nodes": self.nodes[row],
            "took_us": int(took) if took == took else None,
            **{path: self.texts[path][row] for path in self._shown()},
            "when": self.when[row],
        }

    def _shown(self) -> list[str]:
        """The summarised fields, of two readings of one name the one that was said."""
        twins = {path: one for path in self.texts for one in readings(path)[1:] if one in self.texts}
        hidden = set()
        for path, twin in twins.items():
            said = [one for one in (path, twin) if any(self.texts[one].kinds)] or [path]
            hidden |= {path, twin} - set(said)
        return [path for path in self.texts if path not in hidden]

    def snapshot(self) -> Columns:
        """A copy of the columns for drawing, while forwards go on."""
        drawn, rows = self.drawn, self._rows
        copy = Columns("", drawn.forwards[:rows], drawn.states[:rows], drawn.took_us[:rows], whys=drawn.whys.copy())
        copy.asked = self.asked
        if drawn.writers:
            copy.writers = drawn.writers[:rows]
            self._fill_writers(copy.writers, rows)
        for series in drawn.series:
            short = Series(series.name)
            short.values, short.kinds, short.texts = series.values[:rows], series.kinds[:rows], series.texts.copy()
            copy.series.append(short)
        if self.x != "forward":
            axis = copy.axis = copy.series.pop() if self.x not in CLOCKS else Series(self.x)
            if self.x in CLOCKS:
                axis.extend(self.when[:rows])
        self.outside.fill(copy)
        if self._streams:
            copy.series += [series for said in self._streams.values() for series in said.series(rows)]
            copy.series.sort(key=lambda series: self.of.index(series.of))
            alike([copy])
        return copy if copy.axis is None else on_axis(copy, self.x)


def paths_of(summarising: Iterable[str]) -> list[str]:
    """The full paths of names such as ``loss`` and ``ran.took_us``, each once."""
    if isinstance(summarising, str):
        raise TypeError(f"summarising= is a list of names, as summarising=[{summarising!r}]")
    names: list[Any] = list(summarising)
    for name in names:
        if not isinstance(name, str) or not all(name.split(".")):
            raise ValueError(f"summarising= holds {name!r}; it takes names such as 'loss' or 'ran.took_us'")
    return list(dict.fromkeys(path for name in names for path in readings(name)))

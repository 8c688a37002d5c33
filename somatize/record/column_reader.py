"""The forwards of a run as columns, for figures: read from a store without making a dict of each."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from somatize.errors import UnknownName, nearest
from somatize.facts import Fact
from somatize.store.lmdb_environment import BadValue
from somatize.store.open_store import Opened
from somatize.store.record_format import OWN, field_path, last_said, unpack
from somatize.store.run_reader import Line, RunLines, Stored, StoreSnapshot, lines_of, look, path_in

from .forward_reader import Place, opened_at
from .run_columns import (
    AXES,
    BROKE,
    CLOCKS,
    GAP,
    INTERRUPTED,
    LOST,
    MOST_WHYS,
    Columns,
    Outside,
    Said,
    Series,
    is_silent,
    is_split,
)

WHEN = "\0when"
"""The series of the times at which forwards were written down, in seconds since 1970; nothing said has this name."""
_OWN = ("took_us", "nodes", WHEN)
"""Fields that every forward has."""


class ForwardRange(NamedTuple):
    """The forwards that are meant, both ends among them; no `until` means all that follow."""

    since: int = 0
    until: int | None = None

    def end(self, highest: int) -> int:
        """The last forward of the range in a run whose last is `highest`."""
        return highest if self.until is None else min(self.until, highest)


def columns_of(
    store: Place,
    run: str | None,
    of: Sequence[str],
    stretch: ForwardRange = ForwardRange(),  # noqa: B008
    *,
    unsaid: bool = False,
    x: str = "forward",
) -> Columns:
    """The forwards of a run in a stretch, with a series for each of the said numbers in `of`, and `x` as their axis.

    Names are those `curve` takes; of what streams say there is a series for each stream, in no certain order. A number
    that was given out and never written down is a lost forward. Raises `UnknownName` for what nothing said, unless it
    may be `unsaid`: then its series is empty. The x of a forward does not depend on the stretch.
    """
    if not isinstance(x, str) or not x:
        raise TypeError(f"x= is 'forward', 'time', 'elapsed' or the name of a number such as 'epoch', not {x!r}")
    with opened_at(store) as opened:
        if x == "forward":
            return _settled(opened, run, of, stretch, None, unsaid=unsaid)
        axis = WHEN if x in CLOCKS else x
        columns = on_axis(_settled(opened, run, of, ForwardRange(), axis, unsaid=unsaid), x)
    return _in_order(columns, stretch)


def x_values(store: Place, run: str | None, x: str) -> array[float]:
    """The x of each forward of a run, by its number; NaN where it has none.

    `x` is ``time`` (seconds since 1970), ``elapsed`` (seconds in which the run was recorded, without the gaps between
    launches), ``forward``, or the name of a number as `curve` takes it. Between two forwards of one writer that said
    the number, x is interpolated by the number of the forward; before the first and after the last there is none.
    Raises `UnknownName`. Reads columns if the number was summarised, else every fact.
    """
    columns = columns_of(store, run, [], x=x)
    found = array("d", [GAP]) * (1 + max(columns.forwards, default=-1))
    for forward, value in zip(columns.forwards, columns.at, strict=True):
        found[forward] = value
    return found


def on_axis(columns: Columns, x: str) -> Columns:
    """The forwards that have an x, in order; `columns.axis` has what was said of it, or when each was written down."""
    axis, segments = columns.axis, columns.segments()
    assert axis is not None
    if x == "elapsed":
        _take_out_gaps(columns, axis.values, segments)
    for rows in segments:
        _interpolate(axis.values, columns.forwards, rows)
    kept = [row for row, value in enumerate(axis.values) if value == value]
    made = columns if len(kept) == len(columns) else _sorted(columns, kept)
    made.off_axis = len(columns) - len(kept)
    made.asked, made.left_out = columns.asked, columns.left_out
    assert made.axis is not None
    made.axis.of = x
    return made


def _interpolate(values: array[float], forwards: Sequence[int], rows: Sequence[int]) -> None:
    """Put numbers in the gaps of these rows that have a number before and after them."""
    before = -1
    for place, row in enumerate(rows):
        if values[row] != values[row]:
            continue
        if 0 <= before < place - 1:
            start, low, high = rows[before], values[rows[before]], values[row]
            whole = forwards[row] - forwards[start]
            for gap in rows[before + 1 : place]:
                done = forwards[gap] - forwards[start]
                value = low + (high - low) * done / whole
                if value - value != 0.0:  # the difference is beyond a float, the value is not
                    value = low * (1 - done / whole) + high * (done / whole)
                values[gap] = min(max(value, min(low, high)), max(low, high))
        before = place


def _take_out_gaps(columns: Columns, when: array[float], segments: Sequence[Sequence[int]]) -> None:
    """Make times the seconds since the run began, without those between the last row of a writer and the next."""
    spans = []
    for rows in segments:
        known = [row for row in rows if when[row] == when[row]]
        took = (columns.took_us[row] for row in known)
        begins = [when[row] - (us / 1e6 if us == us else 0.0) for row, us in zip(known, took, strict=True)]
        if known:
            spans.append((min(begins), max(when[row] for row in known), known))
    spans.sort(key=lambda span: span[:2])
    passed, end = 0.0, -math.inf
    for begin, until, known in spans:
        passed += max(0.0, begin - end) if end > -math.inf else begin
        for row in known:
            when[row] -= passed
        end = max(end, until)


def _settled(
    opened: Opened, run: str | None, of: Sequence[str], stretch: ForwardRange, axis: str | None, *, unsaid: bool
) -> Columns:
    """Look once more for missing forwards, as `reader.forwards` does; those still missing are lost."""

    def work(view: StoreSnapshot) -> tuple[Columns, int]:
        lines = lines_of(view, run)
        return _read(lines, of, stretch, axis, unsaid=unsaid), lines.highest()

    columns, highest = look(opened, work)
    if len(columns) == max(0, stretch.end(highest) + 1 - stretch.since):
        return columns
    columns, now = look(opened, work)
    known = set(columns.forwards)
    missing = [forward for forward in range(stretch.since, stretch.end(now) + 1) if forward not in known]
    end = next((forward for forward in missing if forward > highest), now + 1)
    for forward in missing:
        _append_lost(columns, forward)
    return _sorted(columns, [row for row in range(len(columns)) if columns.forwards[row] < end])


def _append_lost(columns: Columns, forward: int) -> None:
    at = len(columns.writers)
    columns.forwards.append(forward)
    columns.states.append(LOST)
    columns.took_us.append(GAP)
    columns.writers.append(columns.writers[min(at - 1, forward)] if at else 0)  # nobody's; it begins no segment
    for series in columns.series if columns.axis is None else [*columns.series, columns.axis]:
        series.append(None)


def _read(lines: RunLines, of: Sequence[str], stretch: ForwardRange, axis: str | None, *, unsaid: bool) -> Columns:
    columns = Columns.of(lines.name, [name for name in of if not is_split(name)])
    streams = [Said(name) for name in of if is_split(name)]
    said = Series(axis) if axis is not None else None
    if said is not None and axis != WHEN:
        said.path = lines.path_of(said.of) if unsaid else _axis_path(lines, said.of)
    for series in columns.series:
        series.path = lines.path_of(series.of) if unsaid else path_in(lines, series.of)
    columns.series += [said] if said is not None else []
    for block in lines.blocks(stretch.since):
        if stretch.until is not None and block.forwards[0] > stretch.until:
            break
        _take_block(columns, streams, lines, block)
    for line in lines.lines.values():
        _take_line(columns, streams, lines, line)
    columns.axis = columns.series.pop() if said is not None else None
    _by_stream(columns, streams, of)
    columns = _in_order(columns, stretch)
    _explain(columns, lines)
    _hear_outside(columns, lines)
    return columns


def _axis_path(lines: RunLines, axis: str) -> str:
    """The path of the number that is x. Raises `UnknownName`, which names the nearest axis or number."""
    try:
        return path_in(lines, axis)
    except UnknownName as error:
        raise UnknownName(f"x={axis!r}: {error.args[0]}{nearest(axis, list(AXES))}") from None


def _by_stream(columns: Columns, streams: Sequence[Said], of: Sequence[str]) -> None:
    """Put the series of streams in the places they were requested for."""
    if streams:
        made = [series for said in streams for series in said.series(len(columns))]
        columns.series = sorted([*columns.series, *made], key=lambda series: of.index(series.of))


def _take_block(columns: Columns, streams: Sequence[Said], lines: RunLines, block: Stored) -> None:
    try:
        states, took = bytes(block.chunk.integers("state")), array("d", block.chunk.integers("took_us"))
        nodes = block.chunk.integers("nodes")
        whens = block.chunk.integers("when") if any(series.name == WHEN for series in columns.series) else ()
    except BadValue as error:
        lines.damaged(block, error)
        return
    columns.forwards.extend(block.forwards)
    columns.states += states
    columns.took_us.extend(took if min(took) >= 0 else [us if us >= 0 else GAP for us in took])
    columns.writers.extend(array("q", [block.writer]) * len(took))
    scanned = []
    for series in columns.series:
        if series.name == WHEN:
            series.extend(array("d", [us / 1e6 if us > 0 else GAP for us in whens]))
        elif series.name in _OWN:
            series.extend(array("d", nodes) if series.name == "nodes" else columns.took_us[-len(took) :])
        elif not _take_column(series, lines, block):
            scanned.append(series)
    by_stream = [said for said in streams if not _says_nothing(said, lines, block)]
    if scanned or by_stream:
        _scan(scanned, by_stream, lines, block, len(columns) - len(took))


def _says_nothing(said: Said, lines: RunLines, block: Stored) -> bool:
    """Whether a column shows that nothing was said in a block of what streams say; else its facts are read."""
    path, chunk = field_path(said.name), block.chunk
    if path not in chunk or any(path in texts for texts in lines.late.values()):
        return False
    try:
        return not any(text is not None for text in chunk.texts(path))
    except BadValue:
        return False


def _take_column(series: Series, lines: RunLines, block: Stored) -> bool:
    """Whether a block has the series as a column that can be read."""
    path, chunk = series.path, block.chunk
    if path not in chunk:
        return False
    try:
        kind, _ = chunk.raw(path)
        if kind.endswith("t"):
            for text in chunk.texts(path):
                series.append(text)
        else:
            _take_numbers(series, *chunk.numbers(path))
    except BadValue as error:
        lines.damaged(block, error)
        return False
    start = len(series.values) - chunk.rows
    for forward, texts in lines.late.items():
        if path in texts and block.forwards[0] <= forward <= block.forwards[-1] and forward in block.forwards:
            series.put(start + block.forwards.index(forward), texts[path])
    return True


def _take_numbers(series: Series, mask: bytes | None, values: Sequence[float]) -> None:
    if mask is None:
        series.extend(array("d", values))
        return
    start, following = len(series.values), iter(values)
    series.skip(len(mask))
    for row, there in enumerate(mask, start):
        if there:
            series.put_number(row, next(following))


def _scan(several: Sequence[Series], streams: Sequence[Said], lines: RunLines, block: Stored, begin: int) -> None:
    """The series of one block from its facts; its rows begin at `begin`."""
    row = {forward: place for place, forward in enumerate(block.forwards)}
    start = [len(series.values) for series in several]
    for series in several:
        series.skip(block.chunk.rows)
    for forward, told in lines.block_facts(block):
        for series, first in zip(several, start, strict=True):
            text = last_said(told, series.path)
            if text is not None:
                series.put(first + row[forward], text)
        for said in streams:
            said.take(begin + row[forward], told)


def _take_line(columns: Columns, streams: Sequence[Said], lines: RunLines, line: Line) -> None:
    columns.forwards.append(line.forward)
    columns.states.append(line.state)
    columns.took_us.append(line.took_us if line.took_us >= 0 else GAP)
    columns.writers.append(line.writer)
    told: list[Fact] | None = None
    for series in columns.series:
        path = series.path
        if series.name == WHEN:
            series.append(repr(line.when / 1e6) if line.when > 0 else None)
        elif series.name in _OWN:
            took = str(line.took_us) if line.took_us >= 0 else None
            series.append(took if series.name == "took_us" else str(line.nodes))
        elif lines.has_column(line.forward, path):
            series.append(line.texts.get(path))
        else:
            told = _facts_of(lines, line.forward) if told is None else told
            series.append(last_said(told, path))
    for said in streams:
        told = _facts_of(lines, line.forward) if told is None else told
        said.take(len(columns) - 1, told)


def _facts_of(lines: RunLines, forward: int) -> list[Fact]:
    try:
        return list(unpack(lines.bodies(forward) or []))
    except (BadValue, ValueError):
        lines.skip(forward)
        return []


def _explain(columns: Columns, lines: RunLines) -> None:
    """Add the errors of the last broken forwards."""
    broken = [row for row, state in enumerate(columns.states) if state in (BROKE, INTERRUPTED)]
    for row in broken[-MOST_WHYS:]:
        why = last_said(_facts_of(lines, columns.forwards[row]), "broke.why")
        if why is not None:
            columns.whys[row] = why


def _hear_outside(columns: Columns, lines: RunLines) -> None:
    """Add the numbers of streams outside of forwards; of other numbers only counts, if no forward has them."""
    outside = Outside(series.of for series in columns.series if is_split(series.of) or is_silent(series))
    names = [kind.encode() for kind in outside.kinds]
    for part in lines.own({}) if names else ():
        if any(name in part.body for name in names):
            for _, told in lines.unpacked(OWN, [part.body]):
                for fact in told:
                    outside.take(part.writer, fact)
    outside.fill(columns)


def _in_order(columns: Columns, stretch: ForwardRange) -> Columns:
    """The rows that are meant, by number."""
    forwards, last = columns.forwards, len(columns) - 1
    end = stretch.end(max(forwards, default=-1))
    if last < 0 or (forwards[0] >= stretch.since and forwards[last] <= end and _rises(forwards)):
        return columns
    return _sorted(columns, [row for row, forward in enumerate(forwards) if stretch.since <= forward <= end])


def _rises(forwards: array[int]) -> bool:
    return forwards[-1] - forwards[0] == len(forwards) - 1 and list(forwards) == list(
        range(forwards[0], forwards[-1] + 1)
    )


def _sorted(columns: Columns, rows: list[int]) -> Columns:
    """These rows, by number."""
    rows.sort(key=columns.forwards.__getitem__)
    made = Columns(columns.run)
    made.forwards = array("q", [columns.forwards[row] for row in rows])
    made.states = bytearray([columns.states[row] for row in rows])
    made.took_us = array("d", [columns.took_us[row] for row in rows])
    made.writers = array("q", [columns.writers[row] for row in rows if columns.writers])
    made.series = [_sorted_series(series, rows) for series in columns.series]
    made.axis = None if columns.axis is None else _sorted_series(columns.axis, rows)
    place = {row: at for at, row in enumerate(rows)}
    made.whys = {place[row]: why for row, why in columns.whys.items() if row in place}
    made.outside, made.said_outside = columns.outside, columns.said_outside
    made.off_axis = columns.off_axis
    return made


def _sorted_series(series: Series, rows: list[int]) -> Series:
    made = Series(series.of, series.stream)
    made.values = array("d", [series.values[row] for row in rows])
    made.kinds = bytearray([series.kinds[row] for row in rows])
    place = {row: at for at, row in enumerate(rows)} if series.texts else {}
    made.texts = {place[row]: text for row, text in series.texts.items() if row in place}
    return made

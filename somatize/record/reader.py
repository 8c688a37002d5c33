"""Readers of what was recorded: rows, curves, facts, totals of nodes; replay, and a tail that follows a run.

A reader takes a Store, or the path of one that exists; with no `run` the only one there is. It sees all that was
said in this process before the call, and what returned in another one. It keeps nothing open, changes nothing and
blocks no writer. One record that is damaged is named in a `RecordWarning` and skipped.

`last=N` means the last N forwards of the run, `since=n` those from number n on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgpack

from somatize.errors import UnknownForward
from somatize.facts import Fact
from somatize.store.lmdb_environment import BadValue
from somatize.store.open_store import Opened
from somatize.store.record_format import OWN, field_path, last_said, number, unpack
from somatize.store.run_reader import Line, RunLines, Stored, StoreSnapshot, first_of, lines_of, look, path_in

from .column_reader import columns_of
from .forward_reader import Pages, Place, all_rows, check_range, opened_at, told_in
from .run_columns import LOST, OPEN

_AT_ONCE = 1 << 20
"""Bytes of facts that are looked at in one go: a forward is quickly counted, and slowly begun with."""
PackedForwards: TypeAlias = list[tuple[int, bytes]]
"""Forwards with their packed facts."""
ENDINGS = ("ran", "recalled", "failed")
"""The ends of a node's turn."""


class Where(NamedTuple):
    """A host and a device, each empty where none was said."""

    host: str = ""
    device: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in self if part) or "here"


@dataclass
class Spent:
    """Totals of one node: count and time in microseconds, by place and ending."""

    node: str
    turns: dict[tuple[Where, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, where: Where, ending: str, us: int, turns: int = 1) -> None:
        """One turn more, or so many that took so long together."""
        count, total = self.turns.get((where, ending), (0, 0))
        self.turns[where, ending] = count + turns, total + us

    def count(self, *endings: str) -> int:
        """The number of turns with an ending; all turns if none is named."""
        return sum(count for (_, ending), (count, _) in self.turns.items() if not endings or ending in endings)

    @property
    def us(self) -> int:
        """The total time of all turns."""
        return sum(total for _, total in self.turns.values())

    @property
    def mean_us(self) -> float | None:
        """The mean time of a run; recalled and failed turns do not count. None if it never ran."""
        ran = [turns for (_, ending), turns in self.turns.items() if ending == "ran"]
        count = sum(count for count, _ in ran)
        return sum(total for _, total in ran) / count if count else None


class NodeTally:
    """Totals by node, in the order in which nodes first appear.

    Forwards in which a fact of one of the kinds `apart` was told are none that it counts packed.
    """

    def __init__(self, apart: tuple[str, ...] = ()) -> None:
        self.by_node: dict[str, Spent] = {}
        marks = [_packed(kind) for kind in (*apart, "failed")]
        self._apart = re.compile(b"|".join(map(re.escape, marks)))
        self._patterns = _Patterns(marks)

    def over(self, lines: RunLines, since: int = 0) -> NodeTally:
        """Count the turns of each forward of a run from `since` on."""
        for stretch in stretches(lines, since):
            for forward, body in self.not_counted(stretch):
                for _, told in lines.unpacked(forward, [body]):
                    self.take(told)
        return self

    def not_counted(self, stretch: PackedForwards) -> PackedForwards:
        """Count the turns of a stretch, and give the forwards of it that have to be unpacked: they are not counted."""
        is_apart = self._apart.search
        if not is_apart(stretch[0][1]) and self.take_packed([body for _, body in stretch]):
            return []
        odd = [row for row in stretch if is_apart(row[1])]
        numbers = {forward for forward, _ in odd}
        counted = self.take_packed([body for forward, body in stretch if forward not in numbers])
        return odd if counted else stretch

    def take(self, told: Iterable[Fact]) -> None:
        """Count the turns among these facts."""
        for fact in told:
            ending, node = fact.get("fact", ""), fact.get("node")
            if ending in ENDINGS and node is not None:
                self._of(node).add(where_of(fact), ending, micro(fact, "took_us"))

    def take_packed(self, bodies: Sequence[bytes]) -> bool:
        """Count the turns in packed facts; False, and nothing is counted, where these have to be unpacked.

        What it can count is what the engine tells of turns, among facts of short texts. Several times as fast as
        unpacking.
        """
        if not bodies:
            return True
        found = self._patterns.turns_in(bodies)
        if found is None:
            return False
        for fact, took in found:
            self._of(fact["node"]).add(where_of(fact), fact["fact"], sum(map(int, took)), len(took))
        return True

    def spent(self) -> list[Spent]:
        """The nodes, the one that took longest first."""
        return sorted(self.by_node.values(), key=lambda one: (-one.us, one.node))

    def _of(self, node: str) -> Spent:
        spent = self.by_node.get(node)
        if spent is None:
            spent = self.by_node[node] = Spent(node)
        return spent


def stretches(lines: RunLines, since: int = 0) -> Iterator[PackedForwards]:
    """The forwards of a run with their packed facts, as many at a time as can be held."""
    stretch: PackedForwards = []
    size = 0
    for forward, bodies in lines.packed(since):
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        stretch.append((forward, body))
        size += len(body)
        if size > _AT_ONCE:
            yield stretch
            stretch, size = [], 0
    if stretch:
        yield stretch


def where_of(fact: Fact) -> Where:
    """The place of a node's turn: host and device."""
    return Where(fact.get("host", ""), fact.get("device", ""))


def micro(fact: Fact, name: str) -> int:
    """A field of microseconds; 0 where it is none."""
    text = fact.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


# -- packed facts
#
# What may be counted are facts of ASCII texts, but for names. A byte of such a text is never one that begins the next
# text or fact, and in UTF-8 never stands before one that continues a character; so in what was packed these patterns
# end where its texts do. What they find one behind the other are the facts that unpacking gives, if it is all there is.

_TEXT = rb"(?:[\xa0-\xbf]|\xd9)[\x00-\x7f]*+"
_DIGITS = rb"[\xa1-\xb4][0-9]++"
_TURN = rb"[\x84-\x86]\xa4fact(?:\xa3ran|\xa8recalled)\xa4node[\xa0-\xbf\xd9][^\xa5\xa8]*+"
_TOOK = rb"(?:\xa8began_us|\xa5bytes)%s\xa7took_us[\xa1-\xb4]([0-9]++)" % _DIGITS
_PLACE = rb"(?:(?:\xa4host|\xa6device)%s)*+" % _TEXT
_MOST = 64
"""Turns of a forward for which a pattern of the whole of it is made, and other facts between two of them."""

_Turn: TypeAlias = tuple[bytes, bytes]
"""A packed fact less its times: what stands before them, and what behind."""


class _Patterns:
    """Finds turns in packed facts by their bytes, if none of them is of a kind in `marks`."""

    def __init__(self, marks: Sequence[bytes]) -> None:
        unlike = b"|".join(re.escape(mark) for mark in (*marks, *map(_packed, ("ran", "recalled"))))
        self._other = rb"(?:[\x81-\x8f]\xa4fact(?!%s)(?:%s)++)" % (unlike, _TEXT)
        self._fact = re.compile(rb"((%s)%s(%s)|%s)" % (_TURN, _TOOK, _PLACE, self._other))

    def turns_in(self, bodies: Sequence[bytes]) -> list[tuple[Fact, Sequence[bytes]]] | None:
        """Each different fact of a turn, less its times, with how long each of them took; None if not so plain."""
        packed = b"".join(bodies)
        took = self._alike(bodies[0], packed) or self._any(packed)
        try:
            return None if took is None else [(_without_times(*turn), us) for turn, us in took]
        except ValueError:
            return None

    def _alike(self, first: bytes, packed: bytes) -> list[tuple[_Turn, Sequence[bytes]]] | None:
        """The durations of turns, if every forward has the turns of the first in that order; else None."""
        turns = [(before, behind) for _, before, _, behind in self._fact.findall(first) if before]
        if not 0 < len(turns) <= _MOST:
            return None
        between = self._other + b"{0,%d}+" % _MOST
        alike = [re.escape(before) + _TOOK + re.escape(behind) + between for before, behind in turns]
        found = re.findall(b"(%s%s)" % (between, b"".join(alike)), packed)
        if not found:
            return None
        wholes, *took = zip(*found, strict=True)
        return list(zip(turns, took, strict=True)) if sum(map(len, wholes)) == len(packed) else None

    def _any(self, packed: bytes) -> list[tuple[_Turn, Sequence[bytes]]] | None:
        """The durations of turns by kind, in any order."""
        took: dict[_Turn, list[bytes]] = {}
        size = 0
        for whole, before, us, behind in self._fact.findall(packed):
            size += len(whole)
            if before:
                took.setdefault((before, behind), []).append(us)
        return list(took.items()) if size == len(packed) else None


def _packed(kind: str) -> bytes:
    """A short text as msgpack has it."""
    return bytes([0xA0 | len(kind)]) + kind.encode()


def _without_times(before: bytes, behind: bytes) -> Fact:
    """A fact less its two times. Raises ValueError if these bytes are none."""
    fact: Fact = msgpack.unpackb(bytes([before[0] - 2]) + before[1:] + behind)
    return fact


T = TypeVar("T")
_NUMBERS = ("took_us", "nodes")


def forwards(
    store: Place, run: str | None = None, *, last: int | None = None, since: int | None = None
) -> list[dict[str, Any]]:
    """A row per forward, by number: `forward`, `state`, `nodes`, `took_us`, each summarised field, `when`.

    `nodes` counts those that ran, were recalled or failed. `took_us` is None until the forward ended, a summarised
    field (such as ``loss.value``) is the text that was said last, or None. `when` is when the row was written
    down, in seconds since 1970. A number that was given out and never written down reads as `lost`.
    """
    check_range(last, since)
    with opened_at(store) as opened:
        return all_rows(opened, run, last, since)


def facts(
    store: Place, run: str | None = None, forward: int = -1, *, last: int | None = None, since: int | None = None
) -> list[Fact]:
    """The facts of one forward, as a watcher was told them, then those said after it; -1 is the last forward.

    With `last` or `since`, those of all these forwards, one after the other. Raises `UnknownForward`.
    """
    check_range(last, since)
    with opened_at(store) as opened:
        if last is None and since is None:
            return look(opened, lambda view: _facts_of(lines_of(view, run), forward))
        return look(opened, lambda view: _facts_from(lines_of(view, run), last, since))


def _facts_of(lines: RunLines, forward: int) -> list[Fact]:
    highest = lines.highest()
    wanted = forward if forward >= 0 else highest + 1 + forward
    if not 0 <= wanted <= highest:
        held = f"forwards 0 to {highest}" if highest >= 0 else "no forwards yet"
        raise UnknownForward(f"run {lines.name!r} holds {held}, and no forward {forward}")
    lines.only(wanted, wanted)
    try:
        return list(unpack(lines.bodies(wanted) or []))
    except (BadValue, ValueError):
        lines.skip(wanted)
        return []


def _facts_from(lines: RunLines, last: int | None, since: int | None) -> list[Fact]:
    found = sorted(lines.facts(first_of(lines, last, since)), key=lambda one: one[0])
    return [fact for _, told in found for fact in told]


def nodes(store: Place, run: str | None = None, last: int | None = None) -> list[dict[str, Any]]:
    """A row per node, the one that took longest first, over the whole run or its last N forwards.

    `ran`, `recalled` and `failed` count how its turns ended, `took_us` sums all of them and `mean_us` is the mean
    of those that ran, None where none did: what was recalled or failed does not count in it. `hosts` and `devices`
    list where it was. Times of branches that ran at once, and of a forward within a node, add up to more than the clock
    showed. Reads every fact it covers.
    """
    check_range(last, None)
    with opened_at(store) as opened:
        return look(opened, lambda view: _node_rows(lines_of(view, run), last))


def _node_rows(lines: RunLines, last: int | None) -> list[dict[str, Any]]:
    return [_node_row(spent) for spent in NodeTally().over(lines, first_of(lines, last, None)).spent()]


def _node_row(spent: Spent) -> dict[str, Any]:
    places = list(spent.turns)
    return {
        "node": spent.node,
        "ran": spent.count("ran"),
        "recalled": spent.count("recalled"),
        "failed": spent.count("failed"),
        "took_us": spent.us,
        "hosts": list(dict.fromkeys(where.host for where, _ in places if where.host)),
        "devices": list(dict.fromkeys(where.device for where, _ in places if where.device)),
        "mean_us": spent.mean_us,
    }


def curve(
    store: Place, run: str | None = None, of: str = "loss", *, last: int | None = None, since: int | None = None
) -> list[tuple[int, float]]:
    """The points of a said number over the forwards of a run: ``(forward, value)``, by number.

    ``"loss"`` means its ``loss.value``, ``"ran.took_us"`` the field of any fact, ``"val.loss"`` the `loss` of `val`
    facts or else the value of `val.loss` facts; ``"took_us"`` and ``"nodes"`` are those of the forward. One that was
    said several times in a forward counts once, with its last value; a forward without it, or with what is no number,
    is left out. It is the same whether it was summarised or not. Where a run was resumed and steps were done again,
    each forward has its own number: nothing is replaced. Raises `UnknownName` for what nothing in the run said; the
    loss may be missing.

    Values are floats: a whole number beyond 2**53 is rounded, and one beyond 1.8e308 is infinite; `facts` has the text.
    """
    check_range(last, since)
    with opened_at(store) as opened:
        return look(opened, lambda view: _points_of(lines_of(view, run), of, last, since))


def curve_costs(
    store: Place, run: str | None = None, of: str = "loss", *, last: int | None = None, since: int | None = None
) -> str:
    """The cost of `curve` with the same arguments: a ``"scan"`` of columns, or a ``"fetch"`` of each record's facts."""
    check_range(last, since)
    if of in _NUMBERS:
        return "scan"
    with opened_at(store) as opened:
        return look(opened, lambda view: _costs(lines_of(view, run), of, last, since))


def _points_of(lines: RunLines, of: str, last: int | None, since: int | None) -> list[tuple[int, float]]:
    path = path_in(lines, of)
    return _points(lines, path, last, since)


def _costs(lines: RunLines, of: str, last: int | None, since: int | None) -> str:
    path = path_in(lines, of)
    return "scan" if lines.summarised(path, first_of(lines, last, since)) else "fetch"


def _points(lines: RunLines, of: str, last: int | None, since: int | None) -> list[tuple[int, float]]:
    first = first_of(lines, last, since)
    points: list[tuple[int, float]] = []
    for block in lines.blocks(first):
        found = _block_points(lines, block, of)
        points += found if block.forwards[0] >= first else [point for point in found if point[0] >= first]
    points += [
        (line.forward, value)
        for line in lines.lines.values()
        if line.forward >= first and (value := _value_of(lines, line, of)) is not None
    ]
    # Sorting what is in order already, or nearly so, costs next to nothing.
    points.sort(key=lambda point: point[0])
    return points


def _block_points(lines: RunLines, block: Stored, of: str) -> list[tuple[int, float]]:
    try:
        if of in _NUMBERS:
            values = block.chunk.integers(of)
            return [(forward, float(v)) for forward, v in zip(block.forwards, values, strict=True) if v >= 0]
        path = field_path(of)
        if path in block.chunk:
            return _patched(lines, block, path, _column_points(block, path))
    except BadValue as error:
        lines.damaged(block, error)
        if of in _NUMBERS:
            return []
    return _scanned_points(lines, block, field_path(of))


def _column_points(block: Stored, path: str) -> list[tuple[int, float]]:
    mask, values = block.chunk.numbers(path)
    if mask is None:
        return list(zip(block.forwards, values, strict=True))
    return list(zip((forward for forward, bit in zip(block.forwards, mask, strict=True) if bit), values, strict=True))


def _patched(lines: RunLines, block: Stored, path: str, points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The points, corrected by facts that were said late and are not committed yet."""
    held = block.forwards
    late = {
        n: texts[path] for n, texts in lines.late.items() if path in texts and held[0] <= n <= held[-1] and n in held
    }
    if not late:
        return points
    kept = [point for point in points if point[0] not in late]
    return kept + [(forward, value) for forward, text in late.items() if (value := number(text)) is not None]


def _scanned_points(lines: RunLines, block: Stored, path: str) -> list[tuple[int, float]]:
    values = ((forward, _number_said(told, path)) for forward, told in lines.block_facts(block))
    return [(forward, value) for forward, value in values if value is not None]


def _value_of(lines: RunLines, line: Line, of: str) -> float | None:
    if of == "took_us":
        return float(line.took_us) if line.took_us >= 0 else None
    if of == "nodes":
        return float(line.nodes)
    path = field_path(of)
    if lines.has_column(line.forward, path):
        return number(line.texts[path]) if path in line.texts else None
    try:
        return _number_said(unpack(lines.bodies(line.forward) or []), path)
    except (BadValue, ValueError):
        lines.skip(line.forward)
        return None


def _number_said(told: Iterable[Fact], path: str) -> float | None:
    text = last_said(told, path)
    return None if text is None else number(text)


_PAUSE = 0.1


def tail(
    store: Place, run: str | None = None, *, since: int = 0, wait: float | None = None
) -> Iterator[dict[str, Any]]:
    """The records of a run as they arrive: each forward's row, with its `facts`, once it ended.

    A forward that is open is waited for, and those after it; so they come by number. It ends when the run's
    recorders are closed or dead and all was given, or, if `wait` is given, after so many seconds in which nothing
    came. Looks at the store ten times a second, and only at what grew.
    """
    following, quiet = since, time.monotonic()
    with opened_at(store) as opened:
        name = look(opened, lambda view: lines_of(view, run).name)
        while True:
            living = look(opened, lambda view: _is_written(view, name))
            for row in _ended(opened, store, name, following):
                yield row
                following, quiet = row["forward"] + 1, time.monotonic()
            if not living or (wait is not None and time.monotonic() - quiet >= wait):
                return
            time.sleep(_PAUSE)


def _is_written(view: StoreSnapshot, run: str) -> bool:
    """Whether a recorder has the run open: it then has a journal, and lives."""
    return any(view.is_alive(tail.writer) for tail in view.tails_of(lines_of(view, run).run))


def _ended(opened: Opened, store: Place, run: str, following: int) -> Iterator[dict[str, Any]]:
    for rows in Pages(store, run, None, following).rows():
        some = list(takewhile(lambda row: row["state"] != "open", rows))
        told = told_in(opened, run, [row["forward"] for row in some])
        yield from ({**row, "facts": facts} for row, (_, facts) in zip(some, told, strict=True))
        if len(some) < len(rows):
            return


def replay(store: Place, run: str | None = None, *, to: Callable[[Fact], Any], forward: int | None = None) -> int:
    """Tell a watcher the facts of one forward, or of all by number, each as a dict of its own; how many there were.

    A watcher that opens sinks (a Recorder) gets them by hand, and makes a record per forward of them; of one that was
    lost or is open it makes one without an end. A watcher with a `say_of_run` (a Recorder, a Live) is first told what
    was said of the run as a whole. What it raises passes through, and ends the replay.
    """
    count = 0
    if forward is not None:
        return _tell(to, facts(store, run, forward), ended=True)
    say_of_run, retold = getattr(to, "say_of_run", None), getattr(to, "retold", None)
    if say_of_run is not None:
        for fact in _own(store, run):
            say_of_run(fact)
            count += 1
    for told, state, writer in _records(store, run):
        if retold is not None:
            retold(told, state, writer)
            count += len(told)
        else:
            count += _tell(to, told, ended=state not in (LOST, OPEN))
    return count


def _tell(to: Any, told: Sequence[Fact], *, ended: bool) -> int:
    """Tell the facts of a forward; one that never ended must not be taken for the beginning of the next."""
    sink = to.opens(None) if not ended and hasattr(to, "opens") else None
    for fact in told:
        (to if sink is None else sink.tell)(fact)
    if sink is not None:
        sink.closed()
    return len(told)


def _own(store: Place, run: str | None) -> list[Fact]:
    def work(lines: Any) -> list[Fact]:
        return [fact for part in lines.own({}) for _, told in lines.unpacked(OWN, [part.body]) for fact in told]

    with opened_at(store) as opened:
        return look(opened, lambda view: work(lines_of(view, run)))


def _records(store: Place, run: str | None) -> Iterator[tuple[list[Fact], int, int]]:
    """The facts, state and writer of each forward."""
    columns = columns_of(store, run, [])
    with opened_at(store) as opened:
        told = told_in(opened, columns.run, columns.forwards)
        for (_, facts_of_it), state, writer in zip(told, columns.states, columns.writers, strict=True):
            yield facts_of_it, state, writer

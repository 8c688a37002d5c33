"""Common parts of exporters: the forwards they read, column types of texts, atomic files, what was left out.

A fact holds text. A text counts as a number only if the number's text is the same: ``1.50`` is a version and no number,
``9007199254740993`` no float64. So a column has a type and, if some texts do not fit it, a column of words beside it.
"""

from __future__ import annotations

import os
import secrets
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from somatize.errors import ExportError
from somatize.facts import KINDS, Fact
from somatize.figures.theme import counted
from somatize.record import reader
from somatize.record.forward_reader import Place, opened_at
from somatize.record.reader import ENDINGS, micro
from somatize.store.lmdb_environment import BadValue
from somatize.store.record_format import number, unpack
from somatize.store.run_reader import RunLines, lines_of, look

_EXACT = 2**53
"""Up to which every whole number is a float64 too."""

Said = Sequence[str | float | None]
"""Texts, where a float stands for the text that is its `repr`."""


class ColumnType(Enum):
    """The type of a column; each type allows missing values."""

    WHOLE = "int64"
    NUMBER = "float64"
    TRUTH = "bool"
    TEXT = "text"
    NAME = "name"
    """A text of which there are few: a node, a host, a level."""
    INSTANT = "instant"
    """Microseconds since 1970, UTC."""
    NAMES = "names"
    """A list of texts."""


class Survey:
    """Collects the texts of a column, and then gives the column's type."""

    def __init__(self, declared: ColumnType | None = None) -> None:
        self.declared = declared
        self._wholes = self._wide = self._floats = self._truths = self._words = 0

    def add(self, said: Iterable[str | float]) -> None:
        """Some texts more; none of them None."""
        if self.declared in (ColumnType.TEXT, ColumnType.NAME):
            return
        every = list(said)
        some = [one for one in every if isinstance(one, str)]
        self._floats += len(every) - len(some)
        if not some:
            return
        wholes = _all_whole(some)
        if wholes is not None:
            self._wholes += len(some)
            self._wide += sum(not -_EXACT <= value <= _EXACT for value in wholes)
        elif _all_floats(some) is not None:
            self._floats += len(some)
        else:
            self._add_one_by_one(some)

    def _add_one_by_one(self, texts: Sequence[str]) -> None:
        for text in texts:
            if (whole := whole_of(text)) is not None:
                self._wholes += 1
                self._wide += not -_EXACT <= whole <= _EXACT
            elif float_of(text) is not None:
                self._floats += 1
            elif text in _TRUTHS:
                self._truths += 1
            else:
                self._words += 1

    @property
    def kind(self) -> ColumnType:
        """The type of the column; if less than half of the texts are numbers, it is words."""
        if self.declared is not None:
            return self.declared
        numbers = self._wholes + self._floats
        every = numbers + self._truths + self._words
        if self._truths and self._truths == every:
            return ColumnType.TRUTH
        if 2 * numbers < every:
            return ColumnType.TEXT
        return ColumnType.WHOLE if self._wholes and not self._floats else ColumnType.NUMBER

    @property
    def has_words(self) -> bool:
        """Whether there are texts that the kind cannot hold."""
        if self.kind is ColumnType.WHOLE:
            return bool(self._floats + self._truths + self._words)
        if self.kind is ColumnType.NUMBER:
            return bool(self._truths + self._words + self._wide)
        return False


def held_by(kind: ColumnType, said: Said) -> list[Any]:
    """Each text as a value of the kind, None where it is absent or cannot be one."""
    types = set(map(type, said))
    if kind is ColumnType.NUMBER:
        if types <= {float, type(None)}:
            return list(said)
        if types == {str} and (floats := _all_floats(said)) is not None:
            return floats.tolist()
        return [number_of(one) if isinstance(one, str) else one for one in said]
    texts = as_texts(said)
    if kind is ColumnType.WHOLE:
        if types == {str} and (wholes := _all_whole(texts)) is not None:
            return wholes.tolist()
        return [None if text is None else whole_of(text) for text in texts]
    if kind is ColumnType.TRUTH:
        return [None if text is None else _TRUTHS.get(text) for text in texts]
    return texts


def as_texts(said: Said) -> list[str | None]:
    """The very texts that were said."""
    return [repr(one) if isinstance(one, float) else one for one in said]


def words_beside(said: Said, values: Sequence[Any]) -> list[str | None]:
    """The texts that are there where no value is."""
    return as_texts([one if value is None else None for one, value in zip(said, values, strict=True)])


def whole_of(text: str) -> int | None:
    """The int64 that a text is, if that reads back as the text."""
    if len(text) > 20:
        return None
    try:
        value = int(text)
    except ValueError:
        return None
    return value if str(value) == text and -(2**63) <= value < 2**63 else None


def float_of(text: str) -> float | None:
    """The float64 that a text is, if that reads back as the text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if repr(value) == text else None


def number_of(text: str) -> float | None:
    """The float64 that a text is: as `float_of`, or a whole number that is the same one as a float64."""
    whole = whole_of(text)
    if whole is not None:
        return float(whole) if -_EXACT <= whole <= _EXACT else None
    return float_of(text)


_TRUTHS = {"True": True, "False": False}


def _all_whole(texts: Sequence[Any]) -> array[int] | None:
    try:
        values = array("q", map(int, texts))
    except (ValueError, OverflowError):
        return None
    return values if list(map(str, values)) == list(texts) else None


def _all_floats(texts: Sequence[Any]) -> array[float] | None:
    try:
        values = array("d", map(float, texts))
    except (ValueError, OverflowError):
        return None
    return values if list(map(repr, values)) == list(texts) else None


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export to another tool's format.

    `path` is where it lies, None where it went to no file. `wrote` counts by what it is: ``{"forwards": 1000}``.
    `left_out` has a sentence for each thing that the format could not hold, with how often; it is empty where nothing
    was lost.
    """

    path: Path | None
    wrote: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """A summary in words: ``3 forwards, 1 span``."""
        counted = [f"{count:,} {what.removesuffix('s') if count == 1 else what}" for what, count in self.wrote.items()]
        return ", ".join(counted) or "nothing"

    def __str__(self) -> str:
        where = f" to {self.path}" if self.path is not None else ""
        return "\n".join([f"{self.words}{where}", *(f"left out: {sentence}" for sentence in self.left_out)])


class LossCounts:
    """Counts of what was left out, by what it is and why."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, what: str, why: str, count: int = 1) -> None:
        """So many more: `what` in the singular, `why` the end of a sentence that fits one and many."""
        self._counts[what, why] += count

    def sentences(self) -> tuple[str, ...]:
        """A sentence for each, with its count, in the order they were first met."""
        return tuple(f"{counted(count, what)}: {why}" for (what, why), count in self._counts.items() if count)


T = TypeVar("T")


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], T]) -> T:
    """Call `write` with a temporary path beside `path`, then move that file to `path`; returns its result.

    If it raises, or is interrupted, what it wrote is removed and what was at `path` stays. The file is on the disk
    before it has its name. Raises `ExportError` where there can be no such file.
    """
    place = checked_path(path)
    beside = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        answer = write(beside)
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(place)
    except OSError as error:
        if error.filename == str(beside):  # the name that was asked for is the one to speak of
            error.filename = str(place)
        raise
    finally:
        beside.unlink(missing_ok=True)
    return answer


def checked_path(path: str | os.PathLike[str]) -> Path:
    """The path of a file that can be written. Raises `ExportError` for a directory, a pipe, or a place in none."""
    place = Path(path)
    if place.is_dir():
        raise ExportError(f"{place} is a directory; give the name of a file in it")
    if place.exists() and not place.is_file():
        raise ExportError(f"{place} is no regular file, and could not be replaced by one that is whole")
    if not place.parent.is_dir():
        raise ExportError(f"{place} cannot be written: there is no directory {place.parent}")
    return place


_AT_ONCE = 2048
"""Forwards whose facts are in memory at once."""


class StoredForward(NamedTuple):
    """A forward as it was recorded; `took_us` is None if it did not end, `when_us` in microseconds since 1970."""

    number: int
    state: str
    took_us: int | None
    when_us: int | None
    facts: list[Fact]


def run_name(store: Place, run: str | None) -> str:
    """The run to export. Raises `UnknownRun` and `WhichRun`."""
    with opened_at(store) as opened:
        return look(opened, lambda view: lines_of(view, run).name)


def forwards_of(
    store: Place, run: str, *, last: int | None = None, since: int | None = None
) -> Iterator[StoredForward]:
    """The forwards there are now, by number, the facts of a stretch at a time. A damaged one is named and has none."""
    rows = reader.forwards(store, run, last=last, since=since)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        told = _facts_between(store, run, some[0]["forward"], some[-1]["forward"])
        for row in some:
            number, when = row["forward"], row["when"]
            when_us = None if when is None else round(when * 1e6)
            yield StoredForward(number, row["state"], row["took_us"], when_us, told.get(number, []))


def _facts_between(store: Place, run: str, first: int, last: int) -> dict[int, list[Fact]]:
    with opened_at(store) as opened:
        return look(opened, lambda view: _facts_in(lines_of(view, run), first, last))


def _facts_in(lines: RunLines, first: int, last: int) -> dict[int, list[Fact]]:
    found: dict[int, list[Fact]] = {}
    for block in lines.blocks(first):
        if block.forwards[0] > last:
            break
        found.update((one, told) for one, told in lines.block_facts(block) if first <= one <= last)
    for forward in lines.lines:
        if first <= forward <= last:
            try:
                found[forward] = list(unpack(lines.bodies(forward) or []))
            except (BadValue, ValueError):
                lines.skip(forward)
    return found


_STAMPS = frozenset({"fact", "node", "host"})
_LOGGED = frozenset({"level", "logger", "message"})
"""Fields of a log record that `texts_of` reports."""


def points_of(forward: StoredForward, losses: LossCounts) -> Iterator[tuple[str, float]]:
    """The numbers of a forward, in the order they were said: name and value.

    ``took_us`` is how long it took and ``node/<id>/took_us`` how long a node's turn did; a fact's number has the name
    by which `curve` finds it: ``loss`` for its ``value``, else ``kind.field``. What is no number is counted.
    """
    if forward.took_us is not None:
        yield "took_us", float(forward.took_us)
    for fact in forward.facts:
        kind = fact.get("fact", "")
        if kind not in KINDS:
            yield from _said(kind, fact, losses)
        elif kind in ENDINGS:
            losses.add("turn", "when in its forward it began, where it was and how it ended is not kept")
            yield f"node/{fact['node']}/took_us", float(micro(fact, "took_us"))
        elif kind not in ("finished", "broke"):
            losses.add("fact", "kept, items and left are no number of a forward")


def _said(kind: str, fact: Fact, losses: LossCounts) -> Iterator[tuple[str, float]]:
    for key, text in fact.items():
        if key in _STAMPS:
            if key != "fact":
                losses.add("origin", "which node or host said a number, its name does not tell")
            continue
        value = number(text)
        if value is None:
            if kind != "log" or key not in _LOGGED:
                losses.add("said text", "no number")
            continue
        if len(text) > 15 and text.lstrip("-").isdigit() and int(text) != value:
            losses.add("whole number", "rounded to float64")
        yield series_name(kind, key), value


def series_name(kind: str, field: str) -> str:
    """The name by which `curve` finds a field of a fact."""
    return kind if field == "value" and "." not in kind else f"{kind}.{field}"


def texts_of(forward: StoredForward) -> Iterator[tuple[str, str]]:
    """Texts of a forward: why it broke, why nodes failed, and what was logged; pairs of name and text."""
    for fact in forward.facts:
        kind = fact.get("fact")
        if kind == "broke":
            yield "why", fact["why"]
        elif kind == "failed":
            yield f"why/{fact['node']}", fact["why"]
        elif kind == "log":
            yield "log", f"{fact.get('level', '')} {fact.get('logger', '')}: {fact.get('message', '')}"

"""The type of a column of texts: whole numbers, numbers, truths or words, without loss.

A fact holds text. A text is a number here only where the number reads back as it: ``1.50`` is a version and no number,
``9007199254740993`` no float64. So a column has a kind, and beside it, where it needs one, a column of words for
the texts that its kind cannot hold.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

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
    """Counts what a column of texts holds, and then says what kind of column it is."""

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

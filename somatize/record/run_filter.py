"""Conditions on rows of runs, as text: ``config.lr < 0.01 and state == "failed"``.

The language has comparisons (``== != < <= > >=``), ``~`` (the text matches a pattern with ``*`` and ``?``), ``has`` (a
list or text contains), ``exists NAME``, ``and``, ``or``, ``not`` and parentheses. Nothing of Python is evaluated.

A name is a column of `runs`, ``config.KEY``, or a number with what is meant of it (``loss.last``, ``loss.min``,
``loss.max``, and ``_at`` behind these). What it is compared with is a number, true, false or a text, without quotes
if it is one word. A text is less or more than a number only if it is one. A comparison with what a row has not is
false, also ``!=``; a name that no row has at all is warned of, as it is mostly a slip.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

from somatize.errors import BadFilter, nearest
from somatize.store.record_format import number
from somatize.utils.notices import warn_of_record

Row: TypeAlias = Mapping[str, Any]
Test: TypeAlias = Callable[[Row], bool]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<sign>==|!=|<=|>=|<|>|~|\(|\)|=)
      | (?P<word>[^\s()=<>!~"']+)
    )""",
    re.VERBOSE,
)
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}
_EQUALS = (_COMPARED["=="], _COMPARED["!="])
_WORDS = ("and", "or", "not", "exists", "has")
_FIXED = {"true": True, "false": False, "True": True, "False": False}


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class Condition:
    """The condition that a text states. Raises `BadFilter` with the place where it cannot be read."""

    def __init__(self, where: str) -> None:
        parser = _Parser(where)
        self._holds = parser.whole()
        self._compared = parser.compared

    def chosen(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows that it holds for.

        Raises `BadFilter` for a number of which it does not say what is meant, and warns of other names no row has.
        """
        for name in self._compared if rows else ():
            summed = name.removesuffix(".odd")  # a column only of runs that have such values
            if not any(name in row or (summed != name and f"{summed}.last" in row) for row in rows):
                known = {column for row in rows for column in row}
                meant = [f"{name}.{what}" for what in ("last", "min", "max") if f"{name}.{what}" in known]
                if meant:
                    raise BadFilter(
                        f"where= compares {name!r}, of which a run has many values: give {' or '.join(meant)}"
                    )
                last = name.rpartition(".")[2]
                alike = sorted(column for column in known if column.rpartition(".")[2] == last)
                near = f"; did you mean {alike[0]!r}?" if alike else nearest(name, sorted(known))
                warn_of_record(f"where= compares {name!r}, which no run has, so that is never true{near}")
        return [row for row in rows if self._holds(row)]


class _Parser:
    def __init__(self, where: str) -> None:
        self._where = where
        self._tokens = list(self._split())
        self._next = 0
        self.compared: dict[str, None] = {}

    def _split(self) -> list[_Token]:
        found, at = [], 0
        end = len(self._where.rstrip())
        while at < end:
            match = _TOKEN.match(self._where, at)
            if match is None:
                raise self._wrong("cannot be read", at + len(self._where[at:]) - len(self._where[at:].lstrip()))
            kind = str(match.lastgroup)
            found.append(_Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return found

    def _wrong(self, why: str, at: int | None = None) -> BadFilter:
        place = len(self._where) if at is None else at
        return BadFilter(f"where= {why}, at position {place + 1}:\n  {self._where}\n  {' ' * place}^")

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self, expected: str) -> _Token:
        token = self._peek()
        if token is None:
            raise self._wrong(f"ends where {expected} should follow")
        self._next += 1
        return token

    def _is(self, word: str) -> bool:
        token = self._peek()
        return token is not None and token.kind == "word" and token.text == word

    def whole(self) -> Test:
        made = self._any()
        token = self._peek()
        if token is not None:
            raise self._wrong(f"has {token.text!r} where 'and', 'or' or the end should follow", token.at)
        return made

    def _any(self) -> Test:
        parts = [self._all()]
        while self._is("or"):
            self._next += 1
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def _all(self) -> Test:
        parts = [self._one()]
        while self._is("and"):
            self._next += 1
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def _one(self) -> Test:
        token = self._take("a name")
        if token.kind == "word" and token.text == "not":
            inner = self._one()
            return lambda row: not inner(row)
        if token.text == "(" and token.kind == "sign":
            made = self._any()
            closing = self._take("')'")
            if closing.text != ")":
                raise self._wrong(f"has {closing.text!r} where ')' should follow", closing.at)
            return made
        if token.kind == "word" and token.text == "exists":
            name = self._name(self._take("a name"))
            return lambda row: row.get(name) is not None
        return self._comparison(self._name(token))

    def _name(self, token: _Token) -> str:
        if token.kind != "word" or token.text in _WORDS:
            raise self._wrong(f"has {token.text!r} where a name should stand", token.at)
        return token.text

    def _comparison(self, name: str) -> Test:
        sign = self._take("a comparison")
        if sign.text == "=" and sign.kind == "sign":
            raise self._wrong("has '=': a comparison is '=='", sign.at)
        if sign.text not in (*_COMPARED, "~", "has"):
            raise self._wrong(f"has {sign.text!r} where a comparison should follow{_near(sign.text)}", sign.at)
        token = self._take("a value")
        if token.kind == "sign" or token.text in ("and", "or"):
            raise self._wrong(f"has {token.text!r} where a value should follow", token.at)
        value = _value(token)
        self.compared[name] = None
        if sign.text == "~":
            return lambda row: row.get(name) is not None and fnmatchcase(str(row[name]), str(value))
        if sign.text == "has":
            return lambda row: _holds(row.get(name), value)
        compared = _COMPARED[sign.text]
        return lambda row: _compare(row.get(name), value, token.text, compared)


def _near(word: str) -> str:
    return nearest(word, [*_COMPARED, "~", "has"])


def _value(token: _Token) -> Any:
    if token.kind == "text":
        return re.sub(r"\\(.)", r"\1", token.text[1:-1])
    if token.text in _FIXED:
        return _FIXED[token.text]
    for kind in (int, float):
        try:
            return kind(token.text)
        except ValueError:
            continue
    return token.text


def _holds(held: Any, value: Any) -> bool:
    if isinstance(held, list):
        return value in held or str(value) in held
    return held is not None and str(value) in str(held)


def _compare(held: Any, value: Any, text: str, compared: Callable[[Any, Any], bool]) -> bool:
    if held is None:
        return False
    if isinstance(held, str) and not isinstance(value, str):
        if compared in _EQUALS:
            return compared(held, text)
        read = None if isinstance(value, bool) else number(held)
        return read is not None and compared(read, value)
    try:
        return compared(held, value)
    except TypeError:
        return False

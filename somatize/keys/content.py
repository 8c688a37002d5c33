"""The digest of a value: equal for equal content, whoever made it, where, when, and in which order.

There are two ways. The *levels* are for what most values are, plain lists, tuples and dicts of scalars: all that lies
equally deep is hashed at once, at msgpack's own speed. The *tree* goes through a value part by part, from its
innermost ones; it follows any depth and finds circles. Which way is taken is decided by what the
value says (its types, its depth, its size, an object at two places counted twice), never by how it lies in memory, so
that equal values always go the same way.
"""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import Any

from somatize.errors import Unnameable

from .expansion import Resolve
from .hashing import LONG, PLACE, SCALARS, TEXTS, Ext, absorb, hasher, packer, shortened
from .tree import tree_digest

DEEPEST = 1000
LARGEST = 1 << 22
"""How deep a value may be and of how many parts, to go by levels; the size also bounds what circles and sharing do."""

_NUMBERS = frozenset(SCALARS - TEXTS)
_MARKS: dict[type, Any] = {list: Ext(PLACE, b"l"), tuple: Ext(PLACE, b"t"), dict: Ext(PLACE, b"d")}
_OTHER = Ext(PLACE, b"o")
_SORTED = ({str}, {int}, {bytes})  # keys that sort among themselves, and are equal only if they are the same


def _resolve_nothing(_value: Any, _last: bool) -> None:
    return None


def content(value: Any, place: str = "input", resolve: Resolve = _resolve_nothing) -> bytes:
    """The digest of a value, 32 bytes.

    Types are told apart (1, True, 1.0; list, tuple; dtypes, shapes), floats by their bits. The order of dict keys and
    set elements does not count, nor does sharing, how an array or tensor lies in memory, its device or its grad.
    Raises `Unnameable` for what cannot be named, saying where in `place` it lies.
    """
    cls = type(value)
    if cls in SCALARS and (cls in _NUMBERS or len(value) <= LONG):
        return hasher(packer(64)(value)).digest()
    try:
        found = _by_levels(value, resolve) if cls in _MARKS else None
    except Unnameable:
        found = None  # the tree says where
    return found if found is not None else tree_digest(value, place, resolve)


class _Beyond(Exception):
    """A value that is too deep or too large for the levels."""


def _by_levels(value: Any, resolve: Resolve) -> bytes | None:
    levels = _Levels(resolve)
    level: list[Any] = [value]
    try:
        for _ in range(DEEPEST):
            level = levels.descend(level)
            if not level:
                return levels.state.digest()
    except _Beyond:
        return None
    return None


class _Levels:
    """Hashes a value level by level: the words of one, then how its containers are filled, which is the next one.

    What is hashed of a level says how the next is cut up, so that no two values say the same.
    """

    def __init__(self, resolve: Resolve) -> None:
        self.state = hasher(b"levels")
        self._resolve = resolve
        self._pack = packer()
        self._room = LARGEST

    def descend(self, level: list[Any]) -> list[Any]:
        kinds = set(map(type, level))
        if kinds <= SCALARS:
            self._say(level if kinds <= _NUMBERS else shortened(level))
            return []
        if len(kinds) == 1:
            self.state.update(b"all")
            self._say([_MARKS.get(type(level[0]), _OTHER)])
        else:
            words = [item if type(item) in SCALARS else _MARKS.get(type(item), _OTHER) for item in level]
            self._say(words if not kinds & TEXTS else shortened(words))
        below: list[Any] = []
        for cls in (list, tuple, dict):
            if cls in kinds:
                items = level if len(kinds) == 1 else [item for item in level if type(item) is cls]
                below = self._joined(below, self._dicts(items) if cls is dict else self._rows(items))
        if not kinds <= _PLAIN:
            self._others([item for item in level if type(item) not in _PLAIN])
        return below

    def _say(self, words: list[Any]) -> None:
        absorb(self.state.update, self._pack, words)

    def _joined(self, below: list[Any], more: list[Any]) -> list[Any]:
        return below + more if below else more

    def _rows(self, rows: list[Any]) -> list[Any]:
        self._say(self._counted(rows))
        if len(rows) == 1:
            return list(rows[0]) if type(rows[0]) is tuple else rows[0]
        return list(chain.from_iterable(rows))

    def _counted(self, containers: list[Any]) -> list[int]:
        counts = list(map(len, containers))
        if len(counts) > 1:
            self._room -= sum(counts)
        self._room -= len(counts)
        if self._room < 0:
            raise _Beyond
        return counts

    def _dicts(self, dicts: list[Any]) -> list[Any]:
        self._counted(dicts)
        if set(map(type, chain.from_iterable(dicts))) <= {str}:
            self.state.update(b"texts")
            return self._records(dicts)
        self.state.update(b"each")
        below: list[Any] = []
        for one in dicts:
            if set(map(type, one)) in _SORTED:
                keys = sorted(one)
                self._say([len(keys), False])
                self._say(shortened(keys))
                below.extend([one[key] for key in keys])
            else:
                self._say([len(one), tree_digest(one, "", self._resolve)])
        return below

    def _records(self, dicts: list[Any]) -> list[Any]:
        """Dicts whose keys are texts: the sorted keys of each kind of record once, then which each is."""
        if len(dicts) == 1:
            keys = sorted(dicts[0])
            self._say([1, len(keys)])
            self._say(shortened(keys))
            return [dicts[0][key] for key in keys]
        forms = list(map(tuple, dicts))
        ordered = {form: tuple(sorted(form)) for form in set(forms)}
        kinds: dict[tuple[str, ...], int] = {}
        numbers = [kinds.setdefault(ordered[form], len(kinds)) for form in forms]
        self._say([len(kinds), *map(len, kinds)])
        self._say(shortened(list(chain.from_iterable(kinds))))
        self._say(numbers)
        fetch = list(map(_getter, kinds))
        return list(chain.from_iterable([fetch[number](one) for number, one in zip(numbers, dicts, strict=True)]))

    def _others(self, items: list[Any]) -> None:
        for item in items:
            self.state.update(tree_digest(item, "", self._resolve))


_PLAIN = SCALARS | set(_MARKS)


def _getter(keys: tuple[str, ...]) -> Any:
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda one: [one[key] for key in keys]


__all__ = ["content"]

"""The digest of a value: equal for equal content, in any process.

It follows any depth without recursion, takes an object at two places once, and refuses what holds itself.

There are two ways. The *levels* are for what most values are, plain lists, tuples and dicts of scalars: all that lies
equally deep is hashed at once, at msgpack's own speed. The *tree* goes through a value part by part, from its
innermost ones; it follows any depth and finds circles. Which way is taken is decided by what the
value says (its types, its depth, its size, an object at two places counted twice), never by how it lies in memory, so
that equal values always go the same way.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from somatize.errors import Unnameable

from .digests import BATCH, CHILD, LONG, SCALARS, TEXTS, Ext, Pack, absorb, hasher, packer, shortened
from .value_walker import PAIRS, SET, Expansion, Resolve, expanded


def tree_digest(value: Any, place: str, resolve: Resolve) -> bytes:
    """The digest of a value; `place` is what an `Unnameable` calls it."""
    if type(value) in SCALARS:
        return _closed(Expansion(b"scalar", [value]), packer(), None)
    return _Tree(place, resolve).digest(value)


class _OpenValue:
    """A container being hashed: its position, and the digests of its parts."""

    __slots__ = ("at", "expansion", "value", "words")

    def __init__(self, value: Any, expansion: Expansion) -> None:
        self.value = value
        self.expansion = expansion
        self.words: list[Any] = []
        self.at = 0


class _Tree:
    def __init__(self, place: str, resolve: Resolve) -> None:
        self._place = place
        self._resolve = resolve
        self._pack = packer()
        self._frames: list[_OpenValue] = []
        # By id, the digest of each value, or None while it is open; what has one is held, as ids are used again.
        self._digests: dict[int, bytes | None] = {}
        self._held: list[Any] = []

    def digest(self, value: Any) -> bytes:
        frames = self._frames
        made = self._enter(value)
        while frames:
            frame = frames[-1]
            if made is not None:
                frame.words.append(Ext(CHILD, made))
            made = self._go_on(frame)
        assert made is not None
        return made

    def _go_on(self, frame: _OpenValue) -> bytes | None:
        """The digest of the next part that was finished, or of the frame itself once all are."""
        parts, words = frame.expansion.parts, frame.words
        while frame.at < len(parts):
            part = parts[frame.at]
            frame.at += 1
            if type(part) in SCALARS:
                words.append(part)
                continue
            return self._enter(part)
        self._frames.pop()
        made = _closed(frame.expansion, self._pack, words)
        self._digests[id(frame.value)] = made
        return made

    def _enter(self, value: Any) -> bytes | None:
        """The digest of a value, or None where its parts have to be gone through first."""
        known = self._digests.get(id(value), b"")
        if known:
            return known
        if known is None:
            raise self._refusal("holds itself, and a circle has no end")
        try:
            expansion = expanded(value, self._resolve)
        except Unnameable as refused:
            raise self._refusal(str(refused)) from refused.__cause__
        self._held.append(value)
        if set(map(type, expansion.parts)) <= SCALARS:
            made = self._digests[id(value)] = _closed(expansion, self._pack, None)
            return made
        self._digests[id(value)] = None
        self._frames.append(_OpenValue(value, expansion))
        return None

    def _refusal(self, what: str) -> Unnameable:
        spot = "".join(map(_spot, self._frames))
        spot = spot if len(spot) <= 200 else f"{spot[:100]}...{spot[-80:]}"
        attribute = spot.startswith(".") and self._place.endswith("`")
        place = f"{self._place} -> `{spot}`" if attribute else self._place + spot
        return Unnameable(f"{place} {what}")


def _closed(expansion: Expansion, pack: Pack, words: list[Any] | None) -> bytes:
    """The digest of a value whose parts are words by now."""
    marker, parts, order = expansion
    said = shortened(parts if words is None else words)
    state = hasher(b"tree" + pack([marker, len(said)]))
    if order == SET:
        state.update(b"".join(sorted(map(pack, said))))
    else:
        absorb(state.update, pack, said)
    return state.digest()


# What the parts of a value are called, where they are no items of a row.
_SPOTS: dict[type, tuple[str, ...]] = {
    list: (),
    tuple: (),
    OrderedDict: (".keys()", ".values()", ".__dict__"),
    defaultdict: (".default_factory", ""),
    Counter: ("", ".__dict__"),
    deque: ("", ".maxlen"),
}


def _spot(frame: _OpenValue) -> str:
    number, order = frame.at - 1, frame.expansion.order
    if order == PAIRS:
        key = frame.expansion.parts[number // 2 * 2]
        if number % 2 == 0:
            return f".keys()[{number // 2}]"
        of_object = type(key) is str and not isinstance(frame.value, dict)
        return f".{key}" if of_object else f"[{_shown(key)}]"
    if order == SET:
        return ".pop()"
    spots = _SPOTS.get(type(frame.value))
    if spots == ():
        return f"[{number}]"
    if spots is None:
        return _spot_of_array(frame, number)
    return spots[number]


def _spot_of_array(frame: _OpenValue, number: int) -> str:
    kind = type(frame.value)
    if kind.__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
        return f".<{kind.__name__}>"
    return f".flat[{number}]" if hasattr(frame.value, "dtype") else ""


def _shown(key: object) -> str:
    try:
        text = repr(key)
    except Exception:
        text = f"<{type(key).__name__}>"
    return text if len(text) <= 60 else f"{text[:57]}..."


DEEPEST = 1000
LARGEST = 1 << 22
"""Limits of depth and size for hashing level by level; the size also bounds circles and shared parts."""

MANY = 256
"""From so many records of one form on they are gone through by column."""

_NUMBERS = frozenset(SCALARS - TEXTS)
# What stands for a container among the words of a level, where no word is a list or a dict otherwise.
_MARKS: dict[type, Any] = {list: [], tuple: [0], dict: {}}
_OTHER = [1]
_EXACT = {str, int, bytes}  # keys that are equal only if they are the same: 1 equals True and 1.0


def _resolve_nothing(_value: Any, _last: bool) -> None:
    return None


def content(value: Any, place: str = "input", resolve: Resolve = _resolve_nothing) -> bytes:
    """The digest of a value, 32 bytes.

    Types are told apart (1, True, 1.0; list, tuple; dtypes, shapes), floats by their bits. The order of dict keys
    counts, that of set elements does not; nor does sharing, nor the device of a tensor. Its `.grad` counts.
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


class _ValueTooDeep(Exception):
    """A value that is too deep or too large for the levels."""


def _by_levels(value: Any, resolve: Resolve) -> bytes | None:
    levels = _Levels(resolve)
    level: list[Any] = [value]
    depth = 0
    try:
        while True:
            levels.descend(level, depth + 1)
            if not levels.ahead:
                return levels.state.digest()
            level, depth = levels.ahead.popleft()
    except _ValueTooDeep:
        return None


class _Levels:
    """Hashes a value level by level: the words of one, then how its containers are filled, which is the next one.

    Many records of one form and several types are gone on with by column, as a column is mostly of one type. What is
    hashed of a level says how what comes below it is cut up, so that no two values say the same.
    """

    def __init__(self, resolve: Resolve) -> None:
        self.state = hasher(b"levels")
        self.ahead: deque[tuple[list[Any], int]] = deque()
        self._resolve = resolve
        self._pack = packer()
        self._room = LARGEST

    def descend(self, level: Sequence[Any], depth: int) -> None:
        """Hash one level, and put the level below it into `ahead`."""
        kinds = set(map(type, level))
        if kinds <= SCALARS:
            self._say(level if kinds <= _NUMBERS else shortened(level, kinds))
            return
        if depth > DEEPEST:
            raise _ValueTooDeep
        self._say_kinds(level, kinds)
        below: list[Any] = []
        for cls in (list, tuple, dict):
            if cls in kinds:
                items = level if len(kinds) == 1 else [item for item in level if type(item) is cls]
                columns = self._dicts(items) if cls is dict else self._rows(items)
                if len(columns) == 1:
                    below = below + columns[0] if below else columns[0]
                else:
                    self.ahead.extend([(column, depth) for column in columns])
        if not kinds <= _PLAIN:
            for item in level:
                if type(item) not in _PLAIN:
                    self.state.update(tree_digest(item, "", self._resolve))
        if below:
            self.ahead.append((below, depth))

    def _say_kinds(self, level: Sequence[Any], kinds: set[type]) -> None:
        if len(kinds) == 1:
            self.state.update(b"all")
            self._say([_MARKS.get(type(level[0]), _OTHER)])
            return
        if kinds <= _PLAIN:
            words = [_MARKS.get(type(item), item) for item in level]
        else:
            words = [item if type(item) in SCALARS else _MARKS.get(type(item), _OTHER) for item in level]
        self._say(shortened(words, kinds) if kinds & TEXTS else words)

    def _say(self, words: Sequence[Any]) -> None:
        if len(words) <= BATCH:
            self.state.update(self._pack(words))
        else:
            absorb(self.state.update, self._pack, words)

    def _rows(self, rows: Sequence[Any]) -> list[list[Any]]:
        counts = list(map(len, rows))
        if len(rows) == 1:
            self._spend(1)
            self._say(counts)
            return [list(rows[0]) if type(rows[0]) is tuple else rows[0]]
        self._spend(len(rows) + sum(counts))
        if len(set(counts)) == 1 and _mixed(rows, rows[0]):
            self._say([counts[0], False])
            return [list(map(itemgetter(place), rows)) for place in range(counts[0])]
        self._say(counts)
        return [list(chain.from_iterable(rows))]

    def _spend(self, parts: int) -> None:
        self._room -= parts
        if self._room < 0:
            raise _ValueTooDeep

    def _dicts(self, dicts: Sequence[Any]) -> list[list[Any]]:
        sizes = list(map(len, dicts))
        self._spend(len(sizes) + sum(sizes))
        kinds = set(map(type, chain.from_iterable(dicts)))
        if kinds <= SCALARS and (len(dicts) == 1 or (len(kinds) < 2 and kinds <= _EXACT)):
            self.state.update(b"dicts")
            return [self._record(dicts[0])] if len(dicts) == 1 else self._records(dicts, sizes)
        self.state.update(b"each")
        below: list[Any] = []
        for one in dicts:
            if set(map(type, one)) <= SCALARS:
                below += self._record(one)
            else:
                self._say([len(one), tree_digest(one, "", self._resolve)])
        return [below]

    def _record(self, one: dict[Any, Any]) -> list[Any]:
        self._say([len(one)])
        self._say(shortened(list(one)))
        return list(one.values())

    def _records(self, dicts: Sequence[Any], sizes: list[int]) -> list[list[Any]]:
        """Hash dicts that are compared by their keys: the keys of each kind of record, then the kind of each dict."""
        keys = list(dicts[0])
        if len(set(sizes)) == 1 and list(chain.from_iterable(dicts)) == keys * len(dicts):
            if _mixed(dicts, dicts[0].values()):
                columns = [list(map(itemgetter(key), dicts)) for key in keys]
            else:
                columns = [list(chain.from_iterable(map(dict.values, dicts)))]
            self._say([1, len(keys), len(columns)])
            self._say(shortened(keys))
            return columns
        kinds: dict[tuple[Any, ...], int] = {}
        numbers = [kinds.setdefault(form, len(kinds)) for form in map(tuple, dicts)]
        self._say([len(kinds), *map(len, kinds)])
        self._say(shortened(list(chain.from_iterable(kinds))))
        self._say(numbers)
        return [list(chain.from_iterable(map(dict.values, dicts)))]


def _mixed(records: Sequence[Any], first: Iterable[Any]) -> bool:
    """Whether there are many records, and their columns are of different types as far as the first one tells."""
    return len(records) >= MANY and len(set(map(type, first))) > 1


_PLAIN = SCALARS | set(_MARKS)

"""The digest of a value part by part: each part has one of its own, made of those of its parts.

It follows any depth without recursion, takes an object at two places once, and refuses what holds itself.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

from somatize.errors import Unnameable

from .hashing import CHILD, SCALARS, Ext, Pack, absorb, hasher, packer, shortened
from .value_walker import PAIRS, SET, Expansion, Resolve, expanded


def tree_digest(value: Any, place: str, resolve: Resolve) -> bytes:
    """The digest of a value; `place` is what an `Unnameable` calls it."""
    if type(value) in SCALARS:
        return _closed(Expansion(b"scalar", [value]), packer(), None)
    return _Tree(place, resolve).digest(value)


class _Frame:
    """A value taken apart: how far its parts are gone through, and what was made of each."""

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
        self._frames: list[_Frame] = []
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

    def _go_on(self, frame: _Frame) -> bytes | None:
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
        self._frames.append(_Frame(value, expansion))
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


def _spot(frame: _Frame) -> str:
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


def _spot_of_array(frame: _Frame, number: int) -> str:
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

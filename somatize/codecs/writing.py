"""One value to a script and its bulk."""

from __future__ import annotations

from itertools import chain
from typing import Any

from somatize.errors import NotKeepable

from . import arrays, tensors
from .registry import Registered, by_type, kind_of, library_kind, named
from .script import (
    AGAIN,
    BATCH,
    BYTES,
    CODEC,
    DEEPEST,
    DEEPEST_TREE,
    DICT,
    END,
    KIND,
    LARGEST_TREE,
    LIST,
    LONG,
    NUMBERS,
    SCALARS,
    TEXT,
    TEXTS,
    VIEW,
    Ext,
    header,
    numbered,
    op,
    packer,
)
from .standard_types import BUILTIN, POSITIONS, Kind

_TREE = SCALARS | {list, dict}


def _is_flat(items: list[Any]) -> bool:
    """Whether every one of the items is a scalar that goes into the script as it is."""
    kinds = set(map(type, items))
    if kinds <= NUMBERS:
        return True
    if not kinds <= SCALARS:
        return False
    texts = items if kinds <= TEXTS else [item for item in items if type(item) in TEXTS]
    return max(map(len, texts)) <= LONG


def _is_tree(value: object) -> bool:
    """Whether a value is lists, dicts and short scalars alone, each list and dict at one place, and not too large.

    Looked at level by level and not item by item, as this is the way to msgpack's own speed.
    """
    level: list[Any] = [value]
    seen: set[int] = set()
    containers = room = 0
    for _ in range(DEEPEST_TREE):
        seen.update(map(id, level))
        containers += len(level)
        room += sum(map(len, level))
        if room > LARGEST_TREE:
            return False
        dicts = [one for one in level if type(one) is dict]
        items = list(chain.from_iterable(chain(level, map(dict.values, dicts))))
        kinds = set(map(type, items))
        sizes = [len(one) for one in items if type(one) in TEXTS] if kinds & TEXTS else [0]
        room += sum(sizes)
        if not kinds <= _TREE or room > LARGEST_TREE or max(sizes) > LONG or len(seen) < containers:
            return False
        if kinds <= SCALARS:
            return True
        level = [one for one in items if type(one) is list or type(one) is dict]
    return False


class _Frame:
    """A container that has been begun: what is left to write of it, and what then closes it."""

    __slots__ = ("at", "code", "items", "name", "owner", "reuses")

    def __init__(self, code: int, items: list[Any], owner: object = None, name: str = "") -> None:
        self.code = code
        self.items = items
        self.owner = owner
        self.name = name
        self.at = 0
        self.reuses = False


class Writer:
    """Writes one value down, innermost parts first, with a stack of its own."""

    def __init__(self) -> None:
        self.script = bytearray()
        self.bulk: list[bytes | memoryview] = []
        self._pack = packer()
        self._frames: list[_Frame] = []
        self._deep = 0
        self._made = 0
        # By the id of each container: the place it has among those made, or -1 while it is open. What was
        # numbered is held on to, as an id is that of another object once the first is gone.
        self._places: dict[int, int] = {}
        self._held: list[object] = []

    def write(self, value: object) -> None:
        self._put(value)
        frames = self._frames
        while frames:
            frame = frames[-1]
            if frame.at < len(frame.items):
                item = frame.items[frame.at]
                frame.at += 1
                self._put(item)
            else:
                frames.pop()
                self._close(frame)
        self.script += op(END)

    def _put(self, value: Any) -> None:
        cls = type(value)
        if cls in SCALARS:
            self._scalar(value, cls)
            return
        place = self._places.get(id(value))
        if place is None:
            self._container(value, cls)
        elif place < 0:
            raise self._refusal(f"this {named(cls)} holds itself, and a circle has no end")
        else:
            self.script += numbered(AGAIN, place)

    def _scalar(self, value: Any, cls: type) -> None:
        if cls in NUMBERS or len(value) <= LONG:
            self.script += self._pack(value)
            return
        place = self._places.get(id(value))
        if place is not None:
            self.script += numbered(AGAIN, place)
            return
        data = value.encode("utf-8", "surrogatepass") if cls is str else value
        self.bulk.append(data)
        self.script += op(TEXT if cls is str else BYTES, len(data).to_bytes(8, "little"))
        self._held.append(value)
        self._note(value)

    def _container(self, value: Any, cls: type) -> None:
        self._places[id(value)] = -1
        self._held.append(value)
        if cls is list or cls is dict:
            self._plain(value, cls, owner=value)
        elif cls in BUILTIN:
            self._kind(value, BUILTIN[cls])
        elif cls in by_type:
            self._registered(value, by_type[cls])
        elif cls is bytearray:
            self._bulky(value, "bytearray", [], memoryview(value))
        else:
            self._library(value, cls)

    def _plain(self, value: Any, cls: type, owner: object = None) -> None:
        """A list or dict: at once where it holds nothing but scalars, else item by item."""
        items = value if cls is list else list(chain.from_iterable(value.items()))
        if not _is_flat(items):
            if not self._frames and _is_tree(value):
                self.script += self._pack(value)
                return
            self._open(_Frame(LIST if cls is list else DICT, items, owner))
            return
        if len(items) <= BATCH:
            self.script += self._pack(value)
        else:
            self._batches(items, cls)
        self._note(owner)

    def _batches(self, items: list[Any], cls: type) -> None:
        self.script += header(cls, len(items))
        for start in range(0, len(items), BATCH):
            batch = items[start : start + BATCH]
            # The batch's own header is left away: 1 byte for less than 16 items, else 3.
            self.script += memoryview(self._pack(batch))[1 if len(batch) < 16 else 3 :]

    def _kind(self, value: Any, kind: Kind) -> None:
        try:
            plain = kind.dump(value)
        except NotKeepable as refused:
            raise self._refusal(str(refused)) from refused
        except Exception as failed:  # of a value in an odd state: no reason for what computed it to fail
            raise self._refusal(
                f"taking this {named(type(value))} apart raised {type(failed).__name__}: {failed}"
            ) from failed
        if type(plain) is list and len(plain) <= BATCH and _is_flat(plain):  # the way of a small tuple, made short
            self.script += self._pack(plain) + op(KIND, kind.name.encode())
            self._note(value)
            return
        frame = _Frame(KIND, [], value, kind.name)
        frame.reuses = type(plain) in (list, dict)
        self._open(frame)
        if frame.reuses:
            self._plain(plain, type(plain))
        else:
            self._scalar(plain, type(plain))

    def _registered(self, value: Any, entry: Registered) -> None:
        try:
            plain = entry.dump(value)
        except Exception as failed:
            raise self._refusal(
                f"for this {named(entry.type)} the dump= of its codec {entry.kind!r} raised "
                f"{type(failed).__name__}: {failed}"
            ) from failed
        self._open(_Frame(CODEC, [plain], value, entry.kind))

    def _library(self, value: Any, cls: type) -> None:
        kind = library_kind(cls)
        if kind is None:
            way = kind_of(cls)
            if way is None:
                raise self._refusal(f"nothing here knows the type {named(cls)}")
            self._kind(value, way)
            return
        try:
            if kind == "tensor":
                form, data = tensors.dump_tensor(value)
            else:
                form, data = arrays.dump(value)
        except NotKeepable as refused:
            raise self._refusal(str(refused)) from refused
        self._bulky(value, kind, form, data)

    def _bulky(self, value: object, kind: str, form: list[Any], data: memoryview | bytes) -> None:
        """A description and many bytes, which go into the bulk unless they are few."""
        if len(data) <= LONG:
            form.append(bytes(data))
        else:
            self.bulk.append(data)
            form.append(Ext(VIEW, len(data).to_bytes(8, "little")))
        self.script += self._pack(form)
        self.script += op(KIND, kind.encode())
        self._note(value)

    def _open(self, frame: _Frame) -> None:
        self._deep += frame.owner is not None
        if self._deep > DEEPEST:
            raise NotKeepable(
                f"{self._place()} lies more than {DEEPEST} levels deep; no codec follows it; return something flatter"
            )
        self._frames.append(frame)

    def _close(self, frame: _Frame) -> None:
        self._deep -= frame.owner is not None
        if frame.code == LIST:
            self.script += numbered(LIST, frame.at)
        elif frame.code == DICT:
            self.script += numbered(DICT, frame.at // 2)
        else:
            self.script += op(frame.code, frame.name.encode("utf-8", "surrogatepass"))
        self._made -= frame.reuses
        self._note(frame.owner)

    def _note(self, owner: object) -> None:
        # The reader counts alike: each list, dict, long text and made thing has a place; one made of a list, its.
        if owner is not None:
            self._places[id(owner)] = self._made
        self._made += 1

    def _refusal(self, what: str) -> NotKeepable:
        return NotKeepable(
            f"{self._place()} cannot be written down: {what}; register a codec for it, somatize.codec(kind, type, "
            "dump=, load=), as howto/codec in the documentation shows, or return something plainer"
        )

    def _place(self) -> str:
        """Where in the value the writer is, as one would write it: ``value[3]['a']``."""
        place, within, around = "value", "", ""
        for frame in self._frames:
            if frame.code == DICT:
                key = frame.items[(frame.at - 1) // 2 * 2]
                if frame.at % 2:
                    place += f".keys()[{(frame.at - 1) // 2}]"
                else:
                    named = type(key) is str and "object" in (within, around)
                    place += f".{key}" if named or within == "namespace" else f"[{_shown(key)}]"
            elif frame.code == LIST and (not within or within in POSITIONS) and not (around and frame.at == 0):
                place += f"[{frame.at - 1}]"
            elif frame.code == CODEC or frame.name.startswith(("pandas.", "polars.", "pyarrow.")):
                place += f".<{frame.name}>"
            around, within = within, frame.name if frame.code == KIND else ""
        return place if len(place) <= 200 else f"{place[:100]}...{place[-80:]}"


def _shown(key: object) -> str:
    try:
        text = repr(key)
    except Exception:
        text = f"<{named(type(key))}>"
    return text if len(text) <= 60 else f"{text[:57]}..."

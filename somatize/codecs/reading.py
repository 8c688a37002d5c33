"""A script and its bulk to one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from somatize.errors import DamagedStore, NewerFormat, StoreError

from . import arrays, tensors
from .registry import by_kind, kind_named, named
from .script import (
    AGAIN,
    BYTES,
    CODEC,
    DICT,
    END,
    FORMAT,
    HEAD,
    INT,
    KIND,
    LIST,
    LONG,
    NEWER,
    TEXT,
    VIEW,
    op,
    unpacked,
    unpacker,
)
from .standard_types import BUILTIN

MISSING = object()
_END = op(END)
_FEW = 1 << 12


def plainly(data: bytes) -> Any:
    """The value of a few bytes whose script is one plain object: most of what is kept is, and asks for no stack.

    `MISSING` for all others, and for what is no value.
    """
    if len(data) > _FEW or not data.endswith(_END) or data[0] != FORMAT:
        return MISSING
    if int.from_bytes(data[1:HEAD], "little") != len(data) - HEAD:
        return MISSING
    try:
        return unpacked(data[HEAD : -len(_END)], _integer)
    except Exception:
        return MISSING


def _integer(code: int, data: bytes) -> int:
    if code != INT:
        raise ValueError(code)
    return int.from_bytes(data, "little", signed=True)


class Reader:
    """Puts one value together again."""

    def __init__(self, data: memoryview) -> None:
        self.size = len(data)
        self.absent: dict[str, str] = {}
        self._data = data
        self._taken = 0
        self._views = 0
        self._stack: list[Any] = []
        self._made: list[Any] = []

    def read(self) -> Any:
        script = self._script()
        objects = unpacker(script, self._ext)
        for token in objects:
            cls = type(token)
            if cls is tuple:  # what no plain object of a script is
                if token[0] == END:
                    return self._end(objects.tell() == len(script))
                self._apply(*token)
            else:
                self._stack.append(token)
                if cls is list or cls is dict or ((cls is str or cls is bytes) and len(token) > LONG):
                    self._made.append(token)
        raise DamagedStore(f"these {self.size} bytes end before the value does")

    def _script(self) -> memoryview:
        version = self._data[0] if self.size else 0
        if FORMAT < version < NEWER:
            raise NewerFormat(
                f"a value in format {version} was written by a later somatize; this one reads up to format {FORMAT}"
            )
        length = int.from_bytes(self._data[1:HEAD], "little")
        if not version or version > FORMAT or self.size < HEAD or not 0 < length <= self.size - HEAD:
            raise DamagedStore(f"these {self.size} bytes are no value as it was written; they may be cut short")
        self._taken = HEAD + length
        return self._data[HEAD : self._taken]

    def _end(self, complete: bool) -> Any:
        # A view that nothing was made of would show memory that is not the caller's, and may be gone.
        if not complete or self._taken != self.size or len(self._stack) != 1 or self._views:
            raise DamagedStore(f"these {self.size} bytes are not all of one value")
        return self._stack[0]

    def _ext(self, code: int, data: bytes) -> Any:
        if code == INT:
            return int.from_bytes(data, "little", signed=True)
        if code == TEXT:
            return str(self._bulk(data), "utf-8", "surrogatepass")
        if code == BYTES:
            return bytes(self._bulk(data))
        if code == VIEW:
            self._views += 1
            return self._bulk(data)
        return code, data

    def _bulk(self, length: bytes) -> memoryview:
        start, self._taken = self._taken, self._taken + int.from_bytes(length, "little")
        if self._taken > self.size:
            raise DamagedStore(f"these {self.size} bytes end before the value does")
        return self._data[start : self._taken]

    def _apply(self, code: int, data: bytes) -> None:
        if code == KIND:
            self._make(self._builtin(data, self._stack.pop()))
        elif code == LIST:
            self._make(self._pop(int.from_bytes(data, "little")))
        elif code == DICT:
            self._make(self._dict(int.from_bytes(data, "little")))
        elif code == AGAIN:
            self._stack.append(self._made[int.from_bytes(data, "little")])
        elif code == CODEC:
            self._make(self._registered(data.decode("utf-8", "surrogatepass"), self._stack.pop()))
        else:
            raise DamagedStore(f"a value holds the unknown code {code}")

    def _pop(self, count: int) -> list[Any]:
        start = len(self._stack) - count
        if start < 0:
            raise DamagedStore(f"a container of {count} items has {len(self._stack)} to take")
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _make(self, value: Any) -> None:
        self._stack.append(value)
        self._made.append(value)

    def _builtin(self, kind: bytes, plain: Any) -> Any:
        if type(plain) in (list, dict):
            self._made.pop()
        if kind in _BULKY:
            self._views -= type(plain[-1]) is memoryview
            return _BULKY[kind](plain, self.absent)
        load = _LOADS.get(kind)
        if load is None:
            way = kind_named(kind.decode())
            if way is None:
                raise DamagedStore(f"a value holds the unknown kind {kind!r}")
            load = way.load
        return load(plain)

    def _dict(self, count: int) -> dict[Any, Any]:
        items = iter(self._pop(2 * count))
        made = dict(zip(items, items, strict=True))
        if len(made) != count:
            raise DamagedStore(f"a dict of {count} keys has but {len(made)} different ones")
        return made

    def _registered(self, kind: str, plain: Any) -> Any:
        entry = by_kind.get(kind)
        if entry is None:
            raise StoreError(
                f"the value holds a {kind!r}, which no codec here can read; register it first, as when it was written: "
                f"somatize.codec({kind!r}, type, dump=, load=)"
            )
        try:
            value = entry.load(plain)
        except Exception as failed:
            raise StoreError(
                f"the load= of the codec {kind!r} raised {type(failed).__name__}: {failed}; what was written "
                "may be damaged, or of an earlier form of the type"
            ) from failed
        if type(value) is not entry.type:
            raise StoreError(
                f"the load= of the codec {kind!r} answered with a {named(type(value))}, not a {named(entry.type)}"
            )
        return value


_LOADS: Mapping[bytes, Callable[[Any], Any]] = {kind.name.encode(): kind.load for kind in BUILTIN.values()}
_BULKY: Mapping[bytes, Callable[[Any, dict[str, str]], Any]] = {
    b"bytearray": lambda plain, _: bytearray(plain[0]),
    b"ndarray": lambda plain, _: arrays.load(plain),
    b"npscalar": lambda plain, _: arrays.load_scalar(plain),
    b"tensor": lambda plain, absent: tensors.load_tensor(plain, absent, given=arrays.is_given(plain[-1])),
}

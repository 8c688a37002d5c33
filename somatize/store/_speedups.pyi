from array import array
from collections.abc import Sequence, Sized
from typing import Self, TypeAlias

VERSION: int

class Lock:
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class Pen:
    fd: int
    size: int
    def __init__(
        self,
        count: memoryview,
        flags: memoryview,
        fields: tuple[tuple[str, str], ...],
        kinds: frozenset[str],
        most: int,
        waiting: Sized,
        lock: Lock,
        /,
    ) -> None: ...
    def record(self, pending: object, facts: list[dict[str, str]], open: set[object], /) -> bool: ...
    def late(self, number: int | None, given: object, /) -> bool: ...
    def close(self) -> None: ...

Words: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes]

def words(column: array[int], /) -> tuple[str, bytes]: ...

Columns: TypeAlias = tuple[list[str | float | None], ...]

def heads(buffer: bytes, base: int, /) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes] | None: ...
def within(forwards: array[int], first: int, last: int, /) -> tuple[int, int]: ...
def highest(forwards: array[int], /) -> int: ...
def totals(
    kinds: bytes, states: bytes, whens: array[int], took: array[int], /
) -> tuple[int, int, int, int, int, int, int]: ...
def rows(
    buffer: bytes, fields: int, most_rows: int, most_bytes: int, /
) -> tuple[list[tuple[Words, Columns, bytes]], Sequence[int], int]: ...

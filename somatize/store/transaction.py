"""What is asked of a transaction: keys and values in order, read, and where it may write, written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

Buffer = bytes | memoryview


class Reading(Protocol):
    """One snapshot. What it gives is valid inside the `with` it came from, and no longer."""

    def get(self, key: bytes) -> Buffer | None:
        """The value of a key, or None."""

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, Buffer]]:
        """Keys and values in the order of the keys, from `start`."""


class Writing:
    """One write transaction."""

    __slots__ = ("_txn",)

    def __init__(self, txn: Any) -> None:
        self._txn = txn

    def get(self, key: bytes) -> Buffer | None:
        """The value of a key, or None."""
        return self._txn.get(key)  # type: ignore[no-any-return]

    def items(self, start: bytes = b"") -> Iterator[tuple[bytes, Buffer]]:
        """Keys and values in the order of the keys, from `start`. Write nothing meanwhile."""
        with self._txn.cursor() as cursor:
            if cursor.set_range(start):
                for key, value in cursor:
                    yield bytes(key), value

    def before(self, key: bytes) -> tuple[bytes, Buffer] | None:
        """The last key smaller than `key`, and its value."""
        with self._txn.cursor() as cursor:
            found = cursor.prev() if cursor.set_range(key) else cursor.last()
            return (bytes(cursor.key()), cursor.value()) if found else None

    def put(self, key: bytes, value: Buffer) -> None:
        """Set a key."""
        self._txn.put(key, value)

    def delete(self, key: bytes) -> bool:
        """Take a key away; False if there was none."""
        return self._txn.delete(key)  # type: ignore[no-any-return]

"""Kept values: written with where they came from, listed with their use, pruned to a limit.

A kept value is a name (kind ``k`` of `values`) that points at bytes by their content; its meta says its size, a
checksum, and whatever else its keeper says. The checksum is xxh3's, made for finding damage and not for telling
inputs apart: it is read along with the bytes, where their digest would take several times as long as reading them.

When a value was last used stands apart, under ``u``. Bytes that were put by hand are marked (``h``), so that
pruning, which takes away what no name points at any more, leaves them.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import xxhash

from somatize import codecs
from somatize.errors import BadName, DamagedStore, NotStored, NotWritten

from . import directory, schema, values
from .lmdb_environment import BadValue, ReadTransaction, WriteTransaction
from .open_store import Opened, last_used

_MADE_BY_HAND = b"h"
_AT_HAND, _LITTLE = 16, 1 << 14
"""The number and size of values that a listing reads along."""
_FEW = 1 << 12
_AT_FIRST, _AT_MOST = 4, 256
"""The number of entries deleted per transaction on a full disk: more as space becomes free."""


class KeptEntry(NamedTuple):
    """A kept value as a listing shows it."""

    name: str
    when: float
    """When it was kept, in seconds since 1970."""
    used: float
    """When it was last kept or recalled."""
    bytes: int
    meta: dict[str, Any]


def keep(opened: Opened, name: str, data: bytes | bytearray | memoryview, meta: Mapping[str, Any]) -> None:
    """Keep bytes under a name, in place of what was kept there; whole or not at all."""
    opened.must_be_writable()
    digest, key, sealed = _sealed(name, data, meta)
    large = len(data) >= values.LARGE
    if large:
        values.write_file(values.file_of(opened, digest), data)
    held = b"" if large else bytes(data)

    def work(txn: WriteTransaction) -> None:
        # Whoever prunes takes files away within a transaction: in this one, it is there to stay.
        if large and not values.file_of(opened, digest).exists():
            values.write_file(values.file_of(opened, digest), data)
        txn.put(b"d" + bytes.fromhex(digest), held)
        txn.put(key, sealed)

    opened.values.write(work)
    opened.used.note(opened, _key(name))


def keep_all(opened: Opened, entries: Sequence[tuple[str, bytes, Mapping[str, Any]]]) -> None:
    """`keep` for several that are not large, with one wait for the disk: all of them or none."""
    opened.must_be_writable()
    made = [(*_sealed(name, data, meta), data) for name, data, meta in entries]

    def work(txn: WriteTransaction) -> None:
        for digest, key, sealed, data in made:
            txn.put(b"d" + bytes.fromhex(digest), data)
            txn.put(key, sealed)

    opened.values.write(work)
    for name, _, _ in entries:
        opened.used.note(opened, _key(name))


def _sealed(name: str, data: bytes | bytearray | memoryview, meta: Mapping[str, Any]) -> tuple[str, bytes, bytes]:
    """The digest of bytes to be kept, the key of their name, and what stands there."""
    digest = values.digest_of(data)
    key = b"k" + _key(name)
    said = {**meta, "bytes": len(data), "xxh3": _checksum(data)}
    try:
        packed = msgpack.packb([name, digest, time.time(), said], unicode_errors="backslashreplace")
    except (TypeError, ValueError, OverflowError) as error:
        raise BadName(f"what is said of {name!r} must be plain: text, numbers, lists and dicts ({error})") from error
    return digest, key, schema.seal(key, packed)


def value_of(data: bytes | memoryview) -> Any:
    """The value that `recall` gave the bytes of."""
    return codecs.take(data) if isinstance(data, memoryview) else codecs.loads(data)


def recall(opened: Opened, name: str, at_hand: Held | None = None) -> bytes | memoryview:
    """The bytes kept under a name, `at_hand` if a look found them; for what is large, memory to make the value of.

    Raises `NotStored`, and `DamagedStore` rather than give other bytes.

    What is damaged is taken away, so that it is not in the way of what replaces it.
    """
    key = b"k" + _key(name)
    try:
        data: bytes | memoryview
        digest, entry, data = at_hand or opened.values.read_retried(lambda reading: _held(reading, key, name))
        if data == b"" and digest != values.digest_of(b""):
            data = _read_file(values.file_of(opened, digest))
        if not _is_as_kept(data, digest, entry):
            raise BadValue
    except (BadValue, FileNotFoundError):
        _discard(opened, name)
        raise DamagedStore(f"what {opened.path} keeps as {name!r} is damaged; it was taken away") from None
    opened.used.note(opened, key[1:])
    return data


Held = tuple[str, bytes, bytes]
"""Digest, what stands under the name, and the bytes, none for those that are a file."""


def there(opened: Opened, names: Iterable[str]) -> dict[str, Held | None]:
    """Those of `names` under which something is kept, with what is held where that is little; one look for all.

    None stands for what is left to `recall`: what is large, beyond the first few, or damaged.
    """
    keys = {name: b"k" + _key(name) for name in names}
    return opened.values.read_retried(lambda reading: _there(reading, keys)) if keys else {}


def _there(reading: ReadTransaction, keys: Mapping[str, bytes]) -> dict[str, Held | None]:
    found: dict[str, Held | None] = {}
    for name, key in keys.items():
        if len(found) >= _AT_HAND:
            if reading.get(key) is not None:
                found[name] = None
            continue
        try:
            held = _held(reading, key, name)
            found[name] = held if 0 < len(held[2]) <= _LITTLE else None
        except NotStored:
            continue
        except BadValue:
            found[name] = None
    return found


def entries(opened: Opened, prefix: str = "") -> list[KeptEntry]:
    """Every kept value whose name begins with `prefix`, by name. A damaged entry is left out."""
    opened.used.write(opened)
    return opened.values.read_retried(lambda reading: [entry for entry, _ in _entries(reading, prefix)])


def forget(opened: Opened, chosen: Callable[[list[KeptEntry]], list[KeptEntry]]) -> list[KeptEntry]:
    """Take away the entries that `chosen` picks of all, at once, and the bytes no other name points at.

    On a disk without room they go a few at a time, in the room that the store holds for this, and then in theirs.
    """
    opened.must_be_writable()
    try:
        opened.used.write(opened)
        return opened.values.write(lambda txn: _forget(opened, txn, chosen))
    except NotWritten as error:
        if not directory.is_for_want_of_room(error):
            raise
    directory.give_room(opened.path)
    try:
        return _forget_some_at_a_time(opened, chosen)
    finally:
        directory.reserve(opened.path)


def _forget_some_at_a_time(opened: Opened, chosen: Callable[[list[KeptEntry]], list[KeptEntry]]) -> list[KeptEntry]:
    noted = opened.used.noted()
    found = opened.values.read_retried(lambda reading: [entry for entry, _ in _entries(reading, "")])
    found = [entry._replace(used=max(entry.used, noted.get(_key(entry.name), 0.0))) for entry in found]
    left, gone, size = chosen(found), [], _AT_FIRST
    while left:
        names = {entry.name for entry in left[:size]}
        try:
            some = opened.values.write(
                lambda txn: _forget(opened, txn, lambda all: [one for one in all if one.name in names])  # noqa: B023
            )
        except NotWritten as error:
            if size == 1 or not directory.is_for_want_of_room(error):
                raise
            size //= 2
            continue
        gone += some
        left, size = left[size:], max(_AT_FIRST, min(len(gone) // 16, _AT_MOST))
    return gone


def shown(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata given by the writer of a value, without the store's own."""
    return {key: said for key, said in meta.items() if key != "xxh3"}


def to_prune(
    all_entries: list[KeptEntry], *, max_bytes: int | None, older_than: float | None, unused_for: float | None
) -> list[KeptEntry]:
    """The entries to delete, least recently used first: too old, too long unused, then over the size limit."""
    now = time.time()
    gone: list[KeptEntry] = []
    left: list[KeptEntry] = []
    for entry in sorted(all_entries, key=lambda entry: (entry.used, entry.name)):
        old = older_than is not None and now - entry.when > older_than
        unused = unused_for is not None and now - entry.used > unused_for
        (gone if old or unused else left).append(entry)
    if max_bytes is not None:
        total = sum(entry.bytes for entry in left)
        for entry in left:
            if total <= max_bytes:
                break
            gone.append(entry)
            total -= entry.bytes
    return gone


def by_hand(opened: Opened, digest: str) -> None:
    """Mark bytes as put by hand: they stay, whatever is pruned."""
    key = _MADE_BY_HAND + bytes.fromhex(digest)
    if opened.values.read_retried(lambda reading: reading.get(key) is not None):
        return
    opened.values.write(lambda txn: txn.put(key, b""))


def _held(reading: ReadTransaction, key: bytes, name: str) -> Held:
    """The value under a name, within one transaction."""
    sealed = reading.get(key)
    if sealed is None:
        raise NotStored(f"the store keeps nothing as {name!r}")
    entry = schema.unseal(key, sealed)
    digest = _digest_in(entry, name)
    data = reading.get(b"d" + bytes.fromhex(digest))
    if data is None:
        raise NotStored(f"the store holds nothing of what it kept as {name!r}")
    return digest, entry, bytes(data)


def _digest_in(entry: bytes, name: str) -> str:
    """The digest that an entry begins with, after its name: what else it says would take longer to unpack."""
    head = b"\x94" + msgpack.packb(name) + b"\xd9\x40"  # of four things: a name, and a text of 64 bytes
    if entry.startswith(head):
        return str(entry[len(head) : len(head) + 64], "ascii")
    return str(msgpack.unpackb(entry)[1])


def _is_as_kept(data: bytes | memoryview, digest: str, entry: bytes) -> bool:
    """Whether bytes are those that were kept: few by their digest, many by their checksum, which is faster then."""
    if len(data) <= _FEW:
        return values.digest_of(data) == digest
    return bool(_checksum(data) == msgpack.unpackb(entry)[3]["xxh3"])


def _read_file(path: Path) -> memoryview:
    """A file's bytes in memory of their own, to be given away: what is made of them need not be copied."""
    if not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb", buffering=0) as file:
        size = path.stat().st_size
        head = file.read(codecs.HEAD)
        memory = codecs.room(head, size)
        memory[: len(head)] = head
        at = len(head)
        while at < size:
            count = file.readinto(memory[at:])
            if not count:
                raise BadValue
            at += count
    return memory


def _checksum(data: bytes | bytearray | memoryview) -> str:
    return str(xxhash.xxh3_128_hexdigest(data))


def _discard(opened: Opened, name: str) -> None:
    """Take away a kept value that is damaged, with its bytes, whoever else points at them."""

    def work(txn: WriteTransaction) -> None:
        sealed = txn.get(b"k" + _key(name))
        try:
            digest = "" if sealed is None else msgpack.unpackb(schema.unseal(b"k" + _key(name), sealed))[1]
        except BadValue:
            digest = ""
        txn.delete(b"k" + _key(name))
        if digest:
            txn.delete(b"d" + bytes.fromhex(digest))
            values.file_of(opened, digest).unlink(missing_ok=True)

    if opened.writable:
        opened.values.write(work)


def _forget(
    opened: Opened, txn: WriteTransaction, chosen: Callable[[list[KeptEntry]], list[KeptEntry]]
) -> list[KeptEntry]:
    found = list(_entries(txn, ""))
    picked = chosen([entry for entry, _ in found])
    names = {entry.name for entry in picked}
    loose = {digest for entry, digest in found if entry.name in names}
    for name in names:
        txn.delete(b"k" + _key(name))
        txn.delete(b"u" + _key(name))
    loose -= {digest for _, digest in _entries(txn, "")} | _bound_by_hand(txn)
    for digest in loose:
        if txn.get(_MADE_BY_HAND + bytes.fromhex(digest)) is None:
            txn.delete(b"d" + bytes.fromhex(digest))
            # Within the transaction, which no other process can be in: a file that somebody is about to point
            # at is looked for in theirs.
            values.file_of(opened, digest).unlink(missing_ok=True)
    return picked


def _bound_by_hand(reading: ReadTransaction | WriteTransaction) -> set[str]:
    return {digest for _, _, digest, _ in _bindings(reading, b"n")}


def _entries(reading: ReadTransaction | WriteTransaction, prefix: str) -> Iterable[tuple[KeptEntry, str]]:
    for name, when, digest, meta in _bindings(reading, b"k"):
        if name.startswith(prefix):
            used = last_used(reading, _key(name), when)
            yield KeptEntry(name, when, used, int(meta.get("bytes", 0)), shown(meta)), digest


def _bindings(
    reading: ReadTransaction | WriteTransaction, kind: bytes
) -> Iterable[tuple[str, float, str, dict[str, Any]]]:
    for key, sealed in reading.items(kind):
        if key[:1] != kind:
            return
        try:
            name, digest, when, meta = msgpack.unpackb(schema.unseal(key, sealed))
        except BadValue:
            continue  # `check` names it; a listing goes on
        yield name, when, digest, meta


def _key(name: str) -> bytes:
    return values.name_key(b"", name)


_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kMGTP]?)(i?)B?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_LOOK_AGAIN = 64


def bytes_of(size: int | str) -> int:
    """A size in bytes: a whole number, or a text such as ``"20GB"`` or ``"1.5 GiB"``. Raises ValueError."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None:
        raise ValueError(f"{size!r} is no size; give bytes as a whole number, or a text such as '20GB' or '1.5 GiB'")
    number, power, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[power.lower()])


def seconds_of(span: float | timedelta | None, what: str) -> float | None:
    """A span in seconds, from seconds or a timedelta; None stays None. Raises ValueError."""
    if span is None:
        return None
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"{what}={span!r}: it is a span of time, in seconds or as a timedelta, zero or more")
    return float(seconds)


class Limit:
    """Holds what is kept in a store below so many bytes, the least recently used going first.

    It counts what this process keeps, and looks at the store itself when that passes the limit, and every so often, as
    other processes keep things too.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.RLock()
        self._looking = False
        self._total = most + 1  # not known yet
        self._since = 0

    def kept(self, opened: Opened, size: int) -> None:
        """So many bytes more were kept."""
        self._total += size
        self._since += 1
        if self._total <= self.most and self._since < _LOOK_AGAIN:
            return
        with self._lock:
            if not self._looking:  # else a signal's handler keeps something in the middle of this
                self._looking = True
                try:
                    self._hold(opened)
                finally:
                    self._looking = False

    def _hold(self, opened: Opened) -> None:
        self._since = 0
        self._total = sum(entry.bytes for entry in entries(opened))
        if self._total > self.most:
            gone = forget(opened, lambda all: to_prune(all, max_bytes=self.most, older_than=None, unused_for=None))
            self._total -= sum(entry.bytes for entry in gone)

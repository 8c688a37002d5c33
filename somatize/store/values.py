"""Values, in the second LMDB file of a store: bytes by their digest, names, large files, and kept results.

===========  ==============================================================================================
``d`` digest the bytes; empty for large ones, which are the file ``files/<digest>``
``n`` name   a name bound by hand: its digest, time and metadata
``k`` name   a kept value: the same
``u`` name   the time of last use of a kept value
``h`` digest empty; marks bytes that were put by hand, which pruning leaves alone
===========  ==============================================================================================

A name that is too long for an LMDB key is stored under its beginning and digest; the value has the whole name. The
values of names carry a checksum, as records do; the digest of bytes is their checksum.

The metadata of a kept value has its size, an xxh3 checksum, and whatever its keeper adds. The checksum only detects
damage; computing the digest would take several times as long as reading the bytes.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import xxhash

from somatize import codecs
from somatize.errors import BadName, DamagedStore, NotStored, NotWritten

from . import directory, record_format
from .lmdb_environment import BadValue, ReadTransaction, WriteTransaction
from .open_store import Opened, last_used

LARGE = 1 << 20
"""The size in bytes from which on a value is stored in a file."""
LONGEST_NAME = 4096
"""The maximum length of a name in bytes of UTF-8."""
_WHOLE_IN_KEY = 400


class Named(NamedTuple):
    """A name in a store: of a recorded forward, of bytes bound by hand, or of a kept value."""

    name: str
    when: float
    """Seconds since 1970, in UTC."""
    meta: dict[str, Any]


class Binding(NamedTuple):
    """A name with the digest it points at, its time and metadata."""

    name: str
    digest: str
    when: float
    meta: dict[str, Any]


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """The digest of bytes: 64 hexadecimal digits."""
    return sha256(data).hexdigest()  # three times as fast as blake2b, as processors have instructions for it


def check_name(name: str, what: str = "a name") -> str:
    """The name, if it is valid; raises `BadName`."""
    if not isinstance(name, str):
        raise BadName(f"{what} is a text, not {type(name).__name__}")
    if not name:
        raise BadName(f"{what} cannot be empty")
    try:
        length = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise BadName(f"{what} must be text that UTF-8 can write; {name!r} holds half a character") from None
    if length > LONGEST_NAME:
        raise BadName(f"{what} has at most {LONGEST_NAME} bytes of UTF-8; {name[:40]!r}… has {length}")
    return name


def put(opened: Opened, data: bytes | bytearray | memoryview) -> str:
    """Store bytes and return their digest. Equal bytes are stored once."""
    opened.must_be_writable()
    digest = digest_of(data)
    key = b"d" + bytes.fromhex(digest)
    known = opened.values.read_retried(lambda reading: reading.get(key) is not None)
    if known and (len(data) < LARGE or file_of(opened, digest).is_file()):
        return digest
    if len(data) >= LARGE:
        write_file(file_of(opened, digest), data)
    held = b"" if len(data) >= LARGE else bytes(data)

    def work(txn: WriteTransaction) -> None:
        # Files are only deleted within a write transaction, so the file cannot be deleted after this test.
        if len(data) >= LARGE and not file_of(opened, digest).is_file():
            write_file(file_of(opened, digest), data)
        txn.put(key, held)

    opened.values.write(work)
    return digest


def get(opened: Opened, digest: str) -> bytes:
    """The bytes of a digest. Raises `NotStored`, and `DamagedStore` if the digest does not match."""
    key = _digest_key(digest)
    held = opened.values.read_retried(lambda reading: _copied(reading.get(key)))
    if held is None:
        raise NotStored(f"the store holds nothing of digest {digest}")
    if not held and digest != digest_of(b""):
        file = file_of(opened, digest)
        if not file.is_file():  # opening a pipe would wait for ever
            raise DamagedStore(f"{file} is missing from the store")
        held = file.read_bytes()
    if digest_of(held) != digest:
        raise DamagedStore(f"what {opened.path} holds as {digest} has other content; it was not given")
    return held


def bind(opened: Opened, kind: bytes, name: str, digest: str, meta: Mapping[str, Any] | None, *, claim: bool) -> bool:
    """Bind a name to a digest; with `claim` only if it is unbound. Whether it did."""
    opened.must_be_writable()
    key = name_key(kind, check_name(name))
    try:
        value = msgpack.packb([name, digest, time.time(), dict(meta or {})], unicode_errors="backslashreplace")
    except (TypeError, ValueError, OverflowError) as error:
        raise BadName(f"what is said of {name!r} must be plain: text, numbers, lists and dicts ({error})") from error

    def work(txn: WriteTransaction) -> bool:
        if txn.get(_digest_key(digest)) is None:
            raise NotStored(f"{name!r} cannot be bound to {digest}: the store holds nothing of that digest")
        if claim and txn.get(key) is not None:
            return False
        txn.put(key, record_format.seal(key, value))
        return True

    return opened.values.write(work)


def resolve(opened: Opened, kind: bytes, name: str) -> Binding:
    """The binding of a name; raises `NotStored`."""
    key = name_key(kind, check_name(name))
    sealed = opened.values.read_retried(lambda reading: _copied(reading.get(key)))
    if sealed is None:
        raise NotStored(f"the store holds nothing named {name!r}")
    try:
        return Binding(*msgpack.unpackb(record_format.unseal(key, sealed)))
    except BadValue:
        raise DamagedStore(f"what {opened.path} holds under the name {name!r} is damaged") from None


def named(opened: Opened, kind: bytes, prefix: str) -> list[Named]:
    """The names that begin with `prefix`, sorted. Damaged ones are skipped with a warning."""
    from somatize.utils.notices import warn_of_record

    def work(reading: ReadTransaction) -> list[Named]:
        found = []
        start = kind + prefix.encode("utf-8", "surrogatepass")[:_WHOLE_IN_KEY]
        for key, sealed in reading.items(start):
            if not key.startswith(start):
                break
            try:
                name, _, when, meta = msgpack.unpackb(record_format.unseal(key, sealed))
            except BadValue:
                warn_of_record(f"the name under {key!r} in {opened.path} is damaged; it was skipped")
                continue
            if name.startswith(prefix):
                found.append(Named(name, when, meta))
        return found

    return sorted(opened.values.read_retried(work), key=lambda one: one.name)


def digests(reading: ReadTransaction) -> Iterator[tuple[str, bytes]]:
    """Every digest and the bytes stored under it."""
    for key, held in reading.items(b"d"):
        if key[:1] != b"d":
            return
        yield key[1:].hex(), bytes(held)


def file_of(opened: Opened, digest: str) -> Path:
    """The file of large bytes."""
    return opened.path / directory.FILES / digest


def _copied(held: bytes | memoryview | None) -> bytes | None:
    return None if held is None else bytes(held)


def _digest_key(digest: str) -> bytes:
    try:
        key = bytes.fromhex(digest)
    except (ValueError, TypeError):
        key = b""
    if len(key) != 32:
        raise NotStored(f"{digest!r} is no digest: a digest is the 64 hexadecimal digits that `put` gave")
    return b"d" + key


def name_key(kind: bytes, name: str) -> bytes:
    """The key of a name: its kind, then the name, or the beginning and the digest of a long one."""
    packed = name.encode("utf-8")
    if len(packed) <= _WHOLE_IN_KEY:
        return kind + packed
    return kind + packed[:_WHOLE_IN_KEY] + blake2b(packed, digest_size=32).digest()


def write_file(path: Path, data: bytes | bytearray | memoryview) -> None:
    """Write a file atomically: under a temporary name first."""
    making = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with making.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        making.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            making.unlink(missing_ok=True)
        raise


_MADE_BY_HAND = b"h"
_AT_HAND, _LITTLE = 16, 1 << 14
"""The number and the size of the values that `kept_among` reads at once."""
_FEW = 1 << 12
_AT_FIRST, _AT_MOST = 4, 256
"""The number of entries deleted per transaction on a full disk: it grows as space becomes free."""


class KeptEntry(NamedTuple):
    """A kept value in a listing."""

    name: str
    when: float
    """When it was kept, in seconds since 1970."""
    used: float
    """When it was last kept or recalled."""
    bytes: int
    meta: dict[str, Any]


def keep(opened: Opened, name: str, data: bytes | bytearray | memoryview, meta: Mapping[str, Any]) -> None:
    """Keep bytes under a name, replacing those kept before. Atomic."""
    opened.must_be_writable()
    digest, key, sealed = _kept_entry(name, data, meta)
    large = len(data) >= LARGE
    if large:
        write_file(file_of(opened, digest), data)
    held = b"" if large else bytes(data)

    def work(txn: WriteTransaction) -> None:
        # Files are only deleted within a write transaction, so the file cannot be deleted after this test.
        if large and not file_of(opened, digest).exists():
            write_file(file_of(opened, digest), data)
        txn.put(b"d" + bytes.fromhex(digest), held)
        txn.put(key, sealed)

    opened.values.write(work)
    opened.use_times.note(opened, _key(name))


def keep_all(opened: Opened, entries: Sequence[tuple[str, bytes, Mapping[str, Any]]]) -> None:
    """`keep` for several small values in one transaction: all of them or none."""
    opened.must_be_writable()
    made = [(*_kept_entry(name, data, meta), data) for name, data, meta in entries]

    def work(txn: WriteTransaction) -> None:
        for digest, key, sealed, data in made:
            txn.put(b"d" + bytes.fromhex(digest), data)
            txn.put(key, sealed)

    opened.values.write(work)
    for name, _, _ in entries:
        opened.use_times.note(opened, _key(name))


def _kept_entry(name: str, data: bytes | bytearray | memoryview, meta: Mapping[str, Any]) -> tuple[str, bytes, bytes]:
    """The digest of bytes to be kept, the key of their name, and the value of that key."""
    digest = digest_of(data)
    key = b"k" + _key(name)
    said = {**meta, "bytes": len(data), "xxh3": _checksum(data)}
    try:
        packed = msgpack.packb([name, digest, time.time(), said], unicode_errors="backslashreplace")
    except (TypeError, ValueError, OverflowError) as error:
        raise BadName(f"what is said of {name!r} must be plain: text, numbers, lists and dicts ({error})") from error
    return digest, key, record_format.seal(key, packed)


def value_of(data: bytes | memoryview) -> Any:
    """The value of the bytes that `recall` returned."""
    return codecs.take(data) if isinstance(data, memoryview) else codecs.loads(data)


def recall(opened: Opened, name: str, at_hand: Held | None = None) -> bytes | memoryview:
    """The bytes kept under a name; a writable memoryview, which the value may use, if they were in a file.

    `at_hand` is what `kept_among` found. Raises `NotStored`, and `DamagedStore` for damaged bytes, which are deleted,
    so that they can be replaced.
    """
    key = b"k" + _key(name)
    try:
        data: bytes | memoryview
        digest, entry, data = at_hand or opened.values.read_retried(lambda reading: _read_kept(reading, key, name))
        if data == b"" and digest != digest_of(b""):
            data = _read_file(file_of(opened, digest))
        if not _is_as_kept(data, digest, entry):
            raise BadValue
    except (BadValue, FileNotFoundError):
        _discard(opened, name)
        raise DamagedStore(f"what {opened.path} keeps as {name!r} is damaged; it was taken away") from None
    opened.use_times.note(opened, key[1:])
    return data


Held = tuple[str, bytes, bytes]
"""The digest, the value of the name's key, and the bytes (empty if they are in a file)."""


def kept_among(opened: Opened, names: Iterable[str]) -> dict[str, Held | None]:
    """Those of `names` under which a value is kept, with the bytes of the first small ones; one transaction for all.

    None stands for the others: large or damaged ones, and those beyond the first.
    """
    keys = {name: b"k" + _key(name) for name in names}
    return opened.values.read_retried(lambda reading: _find_kept(reading, keys)) if keys else {}


def _find_kept(reading: ReadTransaction, keys: Mapping[str, bytes]) -> dict[str, Held | None]:
    found: dict[str, Held | None] = {}
    for name, key in keys.items():
        if len(found) >= _AT_HAND:
            if reading.get(key) is not None:
                found[name] = None
            continue
        try:
            held = _read_kept(reading, key, name)
            found[name] = held if 0 < len(held[2]) <= _LITTLE else None
        except NotStored:
            continue
        except BadValue:
            found[name] = None
    return found


def entries(opened: Opened, prefix: str = "") -> list[KeptEntry]:
    """The kept values whose names begin with `prefix`, by name. Damaged entries are left out."""
    opened.use_times.write(opened)
    return opened.values.read_retried(lambda reading: [entry for entry, _ in _entries(reading, prefix)])


def forget(opened: Opened, chosen: Callable[[list[KeptEntry]], list[KeptEntry]]) -> list[KeptEntry]:
    """Delete the entries that `chosen` selects, in one transaction, and the bytes that no other name points at.

    On a full disk the reserve file is deleted first, and then a few entries per transaction.
    """
    opened.must_be_writable()
    try:
        opened.use_times.write(opened)
        return opened.values.write(lambda txn: _forget(opened, txn, chosen))
    except NotWritten as error:
        if not directory.is_disk_full(error):
            raise
    directory.release_reserve(opened.path)
    try:
        return _forget_some_at_a_time(opened, chosen)
    finally:
        directory.reserve(opened.path)


def _forget_some_at_a_time(opened: Opened, chosen: Callable[[list[KeptEntry]], list[KeptEntry]]) -> list[KeptEntry]:
    noted = opened.use_times.noted()
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
            if size == 1 or not directory.is_disk_full(error):
                raise
            size //= 2
            continue
        gone += some
        left, size = left[size:], max(_AT_FIRST, min(len(gone) // 16, _AT_MOST))
    return gone


def public_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata given by the keeper of a value, without the store's own."""
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


def mark_put_by_hand(opened: Opened, digest: str) -> None:
    """Mark bytes as put by hand, so that pruning never deletes them."""
    key = _MADE_BY_HAND + bytes.fromhex(digest)
    if opened.values.read_retried(lambda reading: reading.get(key) is not None):
        return
    opened.values.write(lambda txn: txn.put(key, b""))


def _read_kept(reading: ReadTransaction, key: bytes, name: str) -> Held:
    """A kept value, read within one transaction."""
    sealed = reading.get(key)
    if sealed is None:
        raise NotStored(f"the store keeps nothing as {name!r}")
    entry = record_format.unseal(key, sealed)
    digest = _digest_in(entry, name)
    data = reading.get(b"d" + bytes.fromhex(digest))
    if data is None:
        raise NotStored(f"the store holds nothing of what it kept as {name!r}")
    return digest, entry, bytes(data)


def _digest_in(entry: bytes, name: str) -> str:
    """The digest in the value of a name's key, without unpacking all of it."""
    head = b"\x94" + msgpack.packb(name) + b"\xd9\x40"  # a list of four: the name, and a text of 64 bytes
    if entry.startswith(head):
        return str(entry[len(head) : len(head) + 64], "ascii")
    return str(msgpack.unpackb(entry)[1])


def _is_as_kept(data: bytes | memoryview, digest: str, entry: bytes) -> bool:
    """Whether bytes are undamaged: by their digest if they are few, else by the checksum, which is faster."""
    if len(data) <= _FEW:
        return digest_of(data) == digest
    return bool(_checksum(data) == msgpack.unpackb(entry)[3]["xxh3"])


def _read_file(path: Path) -> memoryview:
    """The bytes of a file in new memory, which the value made of them may use without a copy."""
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
    """Delete a damaged kept value and its bytes, also if other names point at them."""

    def work(txn: WriteTransaction) -> None:
        sealed = txn.get(b"k" + _key(name))
        try:
            digest = "" if sealed is None else msgpack.unpackb(record_format.unseal(b"k" + _key(name), sealed))[1]
        except BadValue:
            digest = ""
        txn.delete(b"k" + _key(name))
        if digest:
            txn.delete(b"d" + bytes.fromhex(digest))
            file_of(opened, digest).unlink(missing_ok=True)

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
            # Within the transaction: another process looks for a file in its own transaction before it points at it.
            file_of(opened, digest).unlink(missing_ok=True)
    return picked


def _bound_by_hand(reading: ReadTransaction | WriteTransaction) -> set[str]:
    return {digest for _, _, digest, _ in _bindings(reading, b"n")}


def _entries(reading: ReadTransaction | WriteTransaction, prefix: str) -> Iterable[tuple[KeptEntry, str]]:
    for name, when, digest, meta in _bindings(reading, b"k"):
        if name.startswith(prefix):
            used = last_used(reading, _key(name), when)
            yield KeptEntry(name, when, used, int(meta.get("bytes", 0)), public_meta(meta)), digest


def _bindings(
    reading: ReadTransaction | WriteTransaction, kind: bytes
) -> Iterable[tuple[str, float, str, dict[str, Any]]]:
    for key, sealed in reading.items(kind):
        if key[:1] != kind:
            return
        try:
            name, digest, when, meta = msgpack.unpackb(record_format.unseal(key, sealed))
        except BadValue:
            continue  # reported by `check`
        yield name, when, digest, meta


def _key(name: str) -> bytes:
    return name_key(b"", name)


_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kMGTP]?)(i?)B?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_LOOK_AGAIN = 64


def bytes_of(size: int | str) -> int:
    """The size in bytes of a number or a text such as ``"20GB"`` or ``"1.5 GiB"``. Raises ValueError."""
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None:
        raise ValueError(f"{size!r} is no size; give bytes as a whole number, or a text such as '20GB' or '1.5 GiB'")
    number, power, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[power.lower()])


def seconds_of(span: float | timedelta | None, what: str) -> float | None:
    """A duration in seconds, from seconds or a timedelta; None stays None. Raises ValueError."""
    if span is None:
        return None
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"{what}={span!r}: it is a span of time, in seconds or as a timedelta, zero or more")
    return float(seconds)


class Limit:
    """A size limit of the kept values of a store: the least recently used are deleted first.

    It adds up what this process keeps, and reads the real total when the sum exceeds the limit, and every 64 values,
    because other processes keep values too.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.RLock()
        self._looking = False
        self._total = most + 1  # unknown yet
        self._since = 0

    def count(self, opened: Opened, size: int) -> None:
        """Add the size of a value that was kept, and enforce the limit."""
        self._total += size
        self._since += 1
        if self._total <= self.most and self._since < _LOOK_AGAIN:
            return
        with self._lock:
            if not self._looking:  # else a signal handler interrupted this and keeps a value
                self._looking = True
                try:
                    self._enforce(opened)
                finally:
                    self._looking = False

    def _enforce(self, opened: Opened) -> None:
        self._since = 0
        self._total = sum(entry.bytes for entry in entries(opened))
        if self._total > self.most:
            gone = forget(opened, lambda all: to_prune(all, max_bytes=self.most, older_than=None, unused_for=None))
            self._total -= sum(entry.bytes for entry in gone)

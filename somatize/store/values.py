"""Bytes by content, names that point at them, kept values: the second LMDB file of a store, and the large files.

===========  ==============================================================================================
``d`` digest the bytes; for large ones, nothing: they are the file ``files/<digest>``
``n`` name   a name bound by hand: its digest, when, and what was said of it
``k`` name   a kept value: the same
===========  ==============================================================================================

A name too long for a key of LMDB's stands there by its beginning and its digest; the whole name is in the value.
The digest of bytes is their checksum. A name's value is sealed as records are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from somatize.errors import BadName, DamagedStore, NotStored

from . import directory, schema
from .lmdb_environment import BadValue, ReadTransaction, WriteTransaction
from .open_store import Opened

LARGE = 1 << 20
"""Bytes from which on a value is a file of its own."""
LONGEST_NAME = 4096
"""Bytes of UTF-8 that a name may have."""
_WHOLE_IN_KEY = 400


class Named(NamedTuple):
    """A name of a store: of a forward's record, of bytes bound by hand, or of a kept value."""

    name: str
    when: float
    """Seconds since 1970, in UTC."""
    meta: dict[str, Any]


class Binding(NamedTuple):
    """The content of a name."""

    name: str
    digest: str
    when: float
    meta: dict[str, Any]


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """The name bytes have by their content: 64 hexadecimal digits."""
    return sha256(data).hexdigest()  # processors have instructions for it: three times as fast as blake2b here


def check_name(name: str, what: str = "a name") -> str:
    """The name, if a store can hold it; raises `BadName`."""
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
    """Hold bytes; the same bytes are held once."""
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
        # Whoever prunes takes files away within a transaction: in this one, it is there to stay.
        if len(data) >= LARGE and not file_of(opened, digest).is_file():
            write_file(file_of(opened, digest), data)
        txn.put(key, held)

    opened.values.write(work)
    return digest


def get(opened: Opened, digest: str) -> bytes:
    """The bytes of a digest. Raises `NotStored`, and `DamagedStore` rather than give other bytes."""
    key = _digest_key(digest)
    held = opened.values.read_retried(lambda reading: _copied(reading.get(key)))
    if held is None:
        raise NotStored(f"the store holds nothing of digest {digest}")
    if not held and digest != digest_of(b""):
        file = file_of(opened, digest)
        if not file.is_file():  # to open a pipe waits for ever
            raise DamagedStore(f"{file} is missing from the store")
        held = file.read_bytes()
    if digest_of(held) != digest:
        raise DamagedStore(f"what {opened.path} holds as {digest} has other content; it was not given")
    return held


def bind(opened: Opened, kind: bytes, name: str, digest: str, meta: Mapping[str, Any] | None, *, claim: bool) -> bool:
    """Let a name point at a digest; with `claim` only if it points at nothing yet. True if it now does."""
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
        txn.put(key, schema.seal(key, value))
        return True

    return opened.values.write(work)


def resolve(opened: Opened, kind: bytes, name: str) -> Binding:
    """The content of a name; raises `NotStored`."""
    key = name_key(kind, check_name(name))
    sealed = opened.values.read_retried(lambda reading: _copied(reading.get(key)))
    if sealed is None:
        raise NotStored(f"the store holds nothing named {name!r}")
    try:
        return Binding(*msgpack.unpackb(schema.unseal(key, sealed)))
    except BadValue:
        raise DamagedStore(f"what {opened.path} holds under the name {name!r} is damaged") from None


def named(opened: Opened, kind: bytes, prefix: str) -> list[Named]:
    """The names that begin with `prefix`, in their order. A damaged one is named and skipped."""
    from somatize.utils.notices import warn_of_record

    def work(reading: ReadTransaction) -> list[Named]:
        found = []
        start = kind + prefix.encode("utf-8", "surrogatepass")[:_WHOLE_IN_KEY]
        for key, sealed in reading.items(start):
            if not key.startswith(start):
                break
            try:
                name, _, when, meta = msgpack.unpackb(schema.unseal(key, sealed))
            except BadValue:
                warn_of_record(f"the name under {key!r} in {opened.path} is damaged; it was skipped")
                continue
            if name.startswith(prefix):
                found.append(Named(name, when, meta))
        return found

    return sorted(opened.values.read_retried(work), key=lambda one: one.name)


def digests(reading: ReadTransaction) -> Iterator[tuple[str, bytes]]:
    """Every digest with what is held under it."""
    for key, held in reading.items(b"d"):
        if key[:1] != b"d":
            return
        yield key[1:].hex(), bytes(held)


def file_of(opened: Opened, digest: str) -> Path:
    """The path of bytes that are too large for the LMDB file."""
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
    """The key that stands for a name: its kind, then the name, or the beginning of a long one and its digest."""
    packed = name.encode("utf-8")
    if len(packed) <= _WHOLE_IN_KEY:
        return kind + packed
    return kind + packed[:_WHOLE_IN_KEY] + blake2b(packed, digest_size=32).digest()


def write_file(path: Path, data: bytes | bytearray | memoryview) -> None:
    """Write a file whole or not at all, under a name of its own first."""
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

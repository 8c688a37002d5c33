"""The hash that names are made with, and the words that are hashed.

It is sha256. Measured here on 19 MB (AMD EPYC, one thread): xxh3-128 1.7 ms, blake3 6.9, sha256 13.7, blake2b 27;
blake3 gains nothing from more threads on two cores. A store is shared, and what it answers is believed: who can make
two inputs of one name can hand a colleague the wrong answer, which rules out xxh3, made for tables and against nobody.
Of the others, blake3 would be one more compiled library for something Python brings along and that processors have
instructions for; blake2b has none. hashlib lets go of the GIL for what is large, so that threads hash side by side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgpack import Packer

from somatize.codecs.serializer import PACKING, TEXTS, Ext

SCHEME = 2
"""The version of names, part of each: results kept under another version are not found."""

SIZE = 32
"""The bytes of a digest."""

LONG = 1024
"""A longer text is hashed in place and packed as its digest."""

BATCH = 8192
"""The number of words packed at once, so that a long list is never packed as a whole."""

# The codes of the ext objects that stand for what msgpack has no word for; `codecs.serializer` has the ones below 16.
CHILD, TEXT, BYTES = range(32, 35)

hasher = hashlib.sha256
Pack = Callable[[Any], bytes]


def digest(*parts: bytes) -> bytes:
    """The digest of bytes that lie end to end; where one begins has to be clear from what they say."""
    return hasher(b"".join(parts)).digest()


def worded(kind: str, *words: Any) -> bytes:
    """The digest of a few plain words, told apart from those of every other kind."""
    return hasher(Packer(**PACKING, buf_size=256).pack([SCHEME, kind, *words])).digest()


def memory_digest(parts: Iterable[bytes | memoryview]) -> bytes:
    """The digest of memory in several pieces, without copying."""
    state = hasher()
    for part in parts:
        state.update(part)
    return state.digest()


def absorb(update: Callable[[bytes], None], pack: Pack, words: Sequence[Any]) -> None:
    """Hash words as msgpack writes them, in batches; how many there are has to be hashed before."""
    if len(words) <= BATCH:
        update(pack(words))
        return
    for start in range(0, len(words), BATCH):
        update(pack(words[start : start + BATCH]))


def shortened(words: Sequence[Any], kinds: set[type] | None = None) -> Sequence[Any]:
    """The words with each long text among them replaced by its digest."""
    kinds = kinds or set(map(type, words))
    texts = words if kinds <= TEXTS else [word for word in words if type(word) in TEXTS]
    if max(map(len, texts), default=0) <= LONG:
        return words
    return [long_text(word) if type(word) in TEXTS and len(word) > LONG else word for word in words]


def long_text(word: str | bytes) -> Any:
    if type(word) is str:
        return Ext(TEXT, digest(word.encode("utf-8", "surrogatepass")))
    return Ext(BYTES, memory_digest([word]))  # type: ignore[list-item]

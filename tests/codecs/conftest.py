"""What the tests of the codecs share: a round trip, and what counts as the same value."""

from __future__ import annotations

import collections
import datetime as dt
import struct

import numpy as np
import pytest

from somatize import codecs
from somatize.codecs import serializer


def _back(value):
    return codecs.loads(codecs.dumps(value))


def _same(a, b):
    """Equal in type and in bits, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and not isinstance(a, np.generic):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, complex) and not isinstance(a, np.generic):
        return _same(a.real, b.real) and _same(a.imag, b.imag)
    if isinstance(a, np.ndarray | np.generic) and not isinstance(a, str):
        if a.dtype.char in "gG":  # of whose bytes some say nothing
            return a.dtype == b.dtype and a.shape == b.shape and repr(a.tolist()) == repr(b.tolist())
        return a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple | collections.deque):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            _same(k, m) and _same(v, w) for (k, v), (m, w) in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and all(any(_same(x, y) for y in b) for x in a)
    if isinstance(a, dt.datetime | dt.time):
        return (a.replace(tzinfo=None), a.fold, a.tzinfo) == (b.replace(tzinfo=None), b.fold, b.tzinfo)
    return a == b


@pytest.fixture(scope="session")
def back():
    return _back


@pytest.fixture(scope="session")
def same():
    return _same


@pytest.fixture
def clean():
    before = dict(serializer.by_type), dict(serializer.by_kind)
    yield
    for table, kept in zip((serializer.by_type, serializer.by_kind), before, strict=True):
        table.clear()
        table.update(kept)

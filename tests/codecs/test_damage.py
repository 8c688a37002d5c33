"""Bytes that are not what was written, or not as they were."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import sys
import time
import tracemalloc
import types
import typing
import uuid
import zoneinfo

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import codecs
from somatize.errors import DamagedStore, NewerFormat, StoreError

few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: object


class Pair(typing.NamedTuple):
    a: int


SAMPLE = {
    "floats": [0.5, float("nan"), 2**80],
    ("k", 1): {"text": "t" * 1100, "raw": b"r" * 1100},
    "array": np.arange(300.0).reshape(15, 20).T,
    "small": np.array([(1, b"x")], dtype=[("a", "i4"), ("b", "S2")]),
    "tensor": torch.arange(400, dtype=torch.bfloat16),
    "more": [
        {1, 2},
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        decimal.Decimal(1),
        pathlib.Path("x"),
        range(3),
        1j,
    ],
    "shared": [SHARED := [1, (2,)], SHARED],
    "kinds": [collections.Counter("ab"), collections.OrderedDict(a=1), zoneinfo.ZoneInfo("UTC"), uuid.UUID(int=1)],
}


OBJECTS = [
    [np.arange(6)[::-2], np.broadcast_to(1, (2, 3)), torch.arange(4).reshape(2, 2).t()],
    [Point([1]), Colour.RED, Pair(1), types.SimpleNamespace(a=1)],
]


def loads_or_refuses(data):
    """The value, or None where it is refused as it should be; anything else is a failure of the test."""
    try:
        return codecs.loads(data)
    except StoreError:
        return None


@pytest.mark.filterwarnings("ignore")
def test_every_truncation_is_refused():
    data = codecs.dumps(SAMPLE)
    for length in range(len(data)):
        with pytest.raises(DamagedStore):
            codecs.loads(data[:length])
    with pytest.raises(DamagedStore):
        codecs.loads(data + b"\0")


@pytest.mark.filterwarnings("ignore")
def test_no_flipped_byte_crashes_or_swells():
    data = codecs.dumps(SAMPLE)
    script_ends = 9 + int.from_bytes(data[1:9], "little")
    tracemalloc.start()
    try:
        began = time.monotonic()
        for at in range(script_ends):
            for flip in (0x01, 0x80, 0xFF):
                damaged = bytearray(data)
                damaged[at] ^= flip
                loads_or_refuses(bytes(damaged))
        assert time.monotonic() - began < 60
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore")
def test_no_flipped_byte_of_an_object_makes_another_class():
    data = codecs.dumps(OBJECTS)
    for at in range(9, 9 + int.from_bytes(data[1:9], "little")):
        damaged = bytearray(data)
        damaged[at] ^= 0x01
        made = loads_or_refuses(bytes(damaged))
        kinds = {type(one) for one in made[1]} if isinstance(made, list) and len(made) == 2 else set()
        assert kinds <= {Point, Colour, Pair, types.SimpleNamespace} | {
            type(None),
            list,
            tuple,
            dict,
            set,
            str,
            int,
            type,
        }


@given(st.binary(max_size=200))
@few
def test_foreign_bytes_are_refused(data):
    loads_or_refuses(data)
    loads_or_refuses(b"\x01" + len(data).to_bytes(8, "little") + data)


def test_a_script_made_up_cannot_allocate_or_make_objects():
    def script(*parts):
        body = b"".join(parts)
        return b"\x01" + len(body).to_bytes(8, "little") + body

    end = b"\xc7\x00\x09"
    for body in (
        b"\xdd\xff\xff\xff\xff" + end,  # a list of four thousand million items
        b"\xc6\xff\xff\xff\xff" + end,
        b"\x93\xa2O8\x91\x01\xa1C\xc4\x08" + bytes(8) + b"\xc7\x07\x07ndarray" + end,
        b"\x94\xa2|O\x91\x01\xa1C\xc4\x08" + bytes(8) + b"\xc7\x07\x07ndarray" + end,
        b"\x94\xa3<f8\x91\xcf\x00\xff\xff\xff\xff\xff\xff\xff\xa1C\xc4\x08" + bytes(8) + b"\xc7\x07\x07ndarray" + end,
        b"\x01\x02" + end,
        end,
        b"\x90\xd7\x03" + bytes(8) + end,  # a view of memory that nothing was made of
        b"\x91\xd7\x03" + bytes(8) + b"\xc7\x05\x07tuple" + end,
        b"\x90\xd4\x04\x02" + end,
        b"\xd4\x06\x05" + end,
    ):
        with pytest.raises(DamagedStore):
            codecs.loads(script(body))


def test_the_format_stands_in_front():
    data = codecs.dumps(1)
    assert data[0] == codecs.FORMAT
    newer = codecs.FORMAT + 1
    with pytest.raises(NewerFormat, match=f"format {newer}"):
        codecs.loads(bytes([newer]) + data[1:])
    for foreign in (b"", b"\x00", b"\x80\x05K\x01.", b"\x93NUMPY\x01\x00", b"{}"):
        with pytest.raises(DamagedStore):
            codecs.loads(foreign)


def test_what_an_earlier_version_wrote_is_read(same):
    """An array in Fortran order, as format 1 has it, and all that did not change since."""
    array = np.arange(6, dtype="<i2").reshape(2, 3, order="C").copy("F")
    written = codecs.dumps([1, "a", {"k": (2.5, None)}, array])
    assert b"\xa1F" in written
    assert same(codecs.loads(b"\x01" + written[1:]), [1, "a", {"k": (2.5, None)}, array])


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    for library, value in (("numpy", np.arange(3)), ("torch", torch.arange(3))):
        data = codecs.dumps([value])
        with monkeypatch.context() as without:
            without.setitem(sys.modules, library, None)
            with pytest.raises(StoreError, match=library) as told:
                codecs.loads(data)
        assert not isinstance(told.value, DamagedStore)


def test_a_time_zone_this_machine_lacks_is_named():
    data = codecs.dumps([zoneinfo.ZoneInfo("Europe/Paris")]).replace(b"Paris", b"Pariz")
    with pytest.raises(StoreError, match="Europe/Pariz"):
        codecs.loads(data)


def test_nothing_is_ever_unpickled():
    sources = pathlib.Path(codecs.__file__).parent.glob("*.py")
    assert not [path for path in sources if "import pickle" in path.read_text() or "allow_pickle" in path.read_text()]


def test_any_kind_of_buffer_is_read(same):
    data = codecs.dumps([1, np.arange(500)])
    for buffer in (bytearray(data), memoryview(data), memoryview(b"xx" + data)[2:]):
        assert same(codecs.loads(buffer), [1, np.arange(500)])


def test_parts_are_views_that_join_to_the_same_bytes():
    value = [np.arange(5000.0), "t" * 5000, torch.arange(5000)]
    parts = codecs.dump_parts(value)
    assert b"".join(parts) == codecs.dumps(value)
    assert sum(len(part) for part in parts) == len(codecs.dumps(value))
    assert max(len(part) for part in parts if isinstance(part, bytes)) <= 5000


def test_a_view_keeps_the_memory_it_shows():
    parts = codecs.dump_parts([torch.full((100_000,), 3, dtype=torch.uint8), np.full(100_000, 4, np.uint8)])
    filler = [torch.zeros(100_000, dtype=torch.uint8) for _ in range(20)]
    joined = b"".join(parts)
    assert len(filler) == 20
    assert joined.endswith(b"\3" * 100_000 + b"\4" * 100_000)

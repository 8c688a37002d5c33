"""Codecs of one's own."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import typing

import numpy as np
import pytest
import torch

from somatize import codecs
from somatize.codecs import serializer
from somatize.errors import NotKeepable, StoreError


class Point(typing.NamedTuple):
    x: object
    y: object


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Interval:
    low: object
    high: object


@pytest.fixture
def interval(clean):
    codecs.codec("interval", Interval, dump=lambda v: [v.low, v.high], load=lambda p: Interval(*p))


def test_a_registered_type_comes_back(back, same, interval):
    codecs.codec("colour", Colour, dump=lambda v: v.value, load=Colour)
    codecs.codec("point", Point, dump=tuple, load=lambda p: Point(*p))
    value = {"a": [Interval(Interval(1, 2), np.arange(3)), Colour.RED], Point(1, 2): Point(Colour.RED, ())}
    again = back(value)
    assert type(again["a"][0]) is Interval
    assert again["a"][0].low == Interval(1, 2)
    assert same(again["a"][0].high, np.arange(3))
    assert again["a"][1] is Colour.RED
    assert list(again)[1] == Point(1, 2)
    assert type(list(again)[1]) is Point


def test_temporaries_of_a_dump_are_never_taken_for_one_another(back, interval):
    value = [Interval([i], {"v": (i, [i])}) for i in range(3000)]
    assert back(value) == value


def test_a_shared_registered_value_is_one_again(back, interval):
    one = Interval(1, 2)
    again = back([one, [one]])
    assert again[0] is again[1][0]


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        (("", Interval, repr, repr), TypeError, "kind"),
        ((3, Interval, repr, repr), TypeError, "kind"),
        (("x", 3, repr, repr), TypeError, "class"),
        (("x", Interval, None, repr), TypeError, "dump="),
        (("x", Interval, repr, 5), TypeError, "load="),
        (("x", list, repr, repr), ValueError, "list"),
        (("x", bytearray, repr, repr), ValueError, "bytearray"),
        (("x", dt.date, repr, repr), ValueError, "date"),
        (("x", np.ndarray, repr, repr), ValueError, "ndarray"),
        (("x", np.float32, repr, repr), ValueError, "float32"),
        (("x", torch.Tensor, repr, repr), ValueError, "Tensor"),
        (("taken", Interval, repr, repr), ValueError, "taken"),
        (("other", Point, repr, repr), ValueError, "Point"),
    ],
)
def test_a_codec_is_checked_when_registered(clean, arguments, error, word):
    codecs.codec("taken", Point, dump=tuple, load=list)
    kind, cls, dump, load = arguments
    with pytest.raises(error, match=word):
        codecs.codec(kind, cls, dump=dump, load=load)


def test_a_class_defined_again_takes_over(back, clean):
    def cell():
        class Thing:
            def __init__(self, n):
                self.n = n

        codecs.codec("thing", Thing, dump=lambda v: v.n, load=Thing)
        return Thing

    old, new = cell(), cell()
    assert type(back(new(1))) is new
    with pytest.raises(NotKeepable, match="Thing"):
        codecs.dumps(old(1))


def test_a_kind_nobody_registered_is_named_when_read(interval):
    data = codecs.dumps([Interval(1, 2)])
    serializer.by_kind.clear()
    with pytest.raises(StoreError, match=r"'interval'.*codec"):
        codecs.loads(data)


def test_a_dump_or_load_that_raises_is_named(clean):
    codecs.codec("interval", Interval, dump=lambda v: 1 / v.low, load=lambda p: {}[p])
    with pytest.raises(NotKeepable, match=r"value\[0\].*'interval'.*ZeroDivisionError") as told:
        codecs.dumps([Interval(0, 0)])
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    with pytest.raises(StoreError, match=r"'interval'.*KeyError"):
        codecs.loads(codecs.dumps(Interval(1, 0)))


def test_a_load_that_answers_with_another_type_is_named(clean):
    codecs.codec("interval", Interval, dump=lambda v: v.low, load=lambda p: p)
    with pytest.raises(StoreError, match=r"interval.*int.*Interval"):
        codecs.loads(codecs.dumps(Interval(1, 0)))


def test_a_dump_that_never_becomes_plainer_is_refused(clean):
    codecs.codec("interval", Interval, dump=lambda v: Interval(v, v), load=lambda p: p)
    with pytest.raises(NotKeepable, match="levels"):
        codecs.dumps(Interval(1, 0))
    serializer.by_kind.clear(), serializer.by_type.clear()
    codecs.codec("interval", Interval, dump=lambda v: v, load=lambda p: p)
    with pytest.raises(NotKeepable, match="circle"):
        codecs.dumps(Interval(1, 0))

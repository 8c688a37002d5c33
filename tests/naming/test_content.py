from __future__ import annotations

import argparse
import collections
import datetime as dt
import decimal
import enum
import fractions
import gc
import math
import os
import pathlib
import random
import re
import struct
import threading
import types
import typing
import uuid
import weakref
from array import array
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somatize import codec
from somatize.errors import Unnameable
from somatize.naming import content
from somatize.naming import given as named
from somatize.naming.content_digest import tree_digest


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Number(enum.IntEnum):
    ONE = 1


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclass
class Point:
    x: int
    y: object = field(default=0, compare=False)


@dataclass
class Other:
    x: int
    y: object = 0


@dataclass(frozen=True, slots=True)
class Slotted:
    x: int


@dataclass
class Failed(Exception):
    reason: str


class Pair(typing.NamedTuple):
    a: int
    b: int


class MyList(list):
    pass


class MyInt(int):
    pass


class MyDict(dict):
    pass


class MyOrdered(collections.OrderedDict):
    pass


class MyDefault(collections.defaultdict):
    def __init__(self, items):
        super().__init__(int, items)

    def copy(self):
        return type(self)(self)


class MyCounter(collections.Counter):
    pass


class MyStr(str):
    __slots__ = ()


def with_nan(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def slotted(x, extra):
    made = Point(x)
    made.extra = extra
    return made


def test_a_path_counts_by_what_is_there_whatever_it_is(tmp_path):
    def named_anew():
        return named({"at": [tmp_path]}).digest

    digests = [named_anew()]
    for change in (
        lambda: (tmp_path / "empty").mkdir(),
        lambda: (tmp_path / "file").write_bytes(b"a"),
        lambda: (tmp_path / "file").write_bytes(b"b"),
        lambda: (tmp_path / "file").rename(tmp_path / "moved"),
        lambda: (tmp_path / "moved").rename(tmp_path / "empty" / "moved"),
        lambda: (tmp_path / "link").symlink_to(tmp_path / "empty" / "moved"),
        lambda: (tmp_path / "empty" / "moved").write_bytes(b"c"),
        lambda: (tmp_path / "broken").symlink_to(tmp_path / "nothing"),
        lambda: (tmp_path / "nothing").write_bytes(b""),
        lambda: [(tmp_path / "empty" / name).symlink_to(tmp_path) for name in ("up", "also up", "up too")],
    ):
        change()
        digests.append(named_anew())
    assert len(set(digests)) == len(digests)
    assert named_anew() == digests[-1]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unnameable, match=r"input\['at'\]\[0\] is a path of what is neither a file nor a directory"):
        named_anew()


APART = [
    *(None, True, False, 1, 0, 1.0, 0.0, -0.0, 1j, -1, 2**63, 2**64, -(2**64), 10**40, 2**53 + 1, float(2**53 + 1)),
    *(math.nan, with_nan(0x7FF8000000000001), math.inf, -math.inf, 5e-324),
    *("", "1", "a", "é", "e\u0301", "\ud83d\ude00", "\U0001f600", b"", b"a", bytearray(b"a"), "\x00"),
    *("a" * 2000, "a" * 2001),
    *(b"a" * 2000, bytearray(b"a" * 2000), [b"a" * 2000], ["a" * 2000], ("a" * 2000,)),
    *([], (), {}, set(), frozenset(), [[]], [()], ([],), [[], []], [[[]]], [None], [0], [False], [0.0], [""]),
    *([1, 2], [2, 1], (1, 2), [[1], 2], [1, [2]], [[1, 2]], [[1], [2]], [[1, 2], []], [[], [1, 2]], [(1, 2), []]),
    *({1}, {1.0}, {True}, {"1"}, {1, 2}, frozenset({1, 2}), {(1, 2)}, {frozenset({1}), 2}, {frozenset({1, 2})}),
    *({"a": 1}, {"a": True}, {"a": 1.0}, {"a": [1]}, {"a": (1,)}, {"a": {}}, {"a": {"a": 1}}, {"b": 1}, {b"a": 1}),
    *({1: "a"}, {True: "a"}, {1.0: "a"}, {None: "a"}, {1: 2, "a": None}, {(1, 2): 3}, {1: {2: 3}}, {1: [2, 3]}),
    *([{"a": 1}, {"b": 1}], [{"b": 1}, {"a": 1}], [{"a": 1}, {"a": 1}], [{"a": 1, "b": 1}, {}], [{}, {"a": 1, "b": 1}]),
    *([{"a": [1], "b": 2}], [{"a": 1, "b": [2]}], [["a", 1]], [{"a": 1}, ["a", 1]], [["a", 1], {"a": 1}]),
    *(range(3), range(0, 6, 2), slice(3), slice(0, 3), ..., NotImplemented),
    *(decimal.Decimal(1), decimal.Decimal("1.0"), fractions.Fraction(1), uuid.UUID(int=1)),
    *(dt.date(2024, 1, 1), dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    *(dt.time(1), dt.timedelta(1)),
    *(dt.datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")), dt.datetime(2024, 1, 1, fold=1)),
    *(pathlib.Path("a"), pathlib.PurePosixPath("a"), pathlib.PureWindowsPath("a"), pathlib.Path("a/b")),
    *(Colour.RED, Colour.BLUE, Number.ONE, Flags.A, Flags.A | Flags.B, MyInt(1), MyStr("a"), MyList([1, 2]), MyList()),
    *(Point(1), Point(2), Point(1, 2), Other(1), Slotted(1), slotted(1, 2), slotted(1, 3), Pair(1, 2), Pair(2, 1)),
    *(collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), collections.defaultdict(int, a=1)),
    *(collections.defaultdict(list, a=1), collections.defaultdict(None, a=1), collections.Counter(a=1)),
    *(collections.deque([1, 2]), collections.deque([1, 2], 5), array("i", [1, 2]), array("l", [1, 2]), array("f", [1])),
    *(re.compile("a"), re.compile("a", re.IGNORECASE), re.compile(b"a")),
]  # fmt: skip


def test_what_is_apart_has_another_digest():
    seen = {}
    for value in APART:
        made = content(value)
        assert len(made) == 32
        assert made not in seen, (seen[made], value)
        assert content([value]) != made
        seen[made] = value
    wrapped = {content([value]) for value in APART} | {content({"k": value}) for value in APART}
    assert len(wrapped) == 2 * len(APART)


EQUAL = [
    ({"a": 1, "b": {"x": [1], "y": 2}}, {"a": 1, "b": {"x": [1], "y": 2}}),
    ({1: {2: 3, 4: 5}}, {1: {2: 3, 4: 5}}),
    ({"a", "b", (1, 2), 3.0}, {3.0, (1, 2), "b", "a"}),
    ({frozenset({1, 2}): {"x", "y"}}, {frozenset({2, 1}): {"y", "x"}}),
    ([[1], [1]], (lambda one: [one, one])([1])),
    (with_nan(0x7FF8000000000000), math.nan),
]


@pytest.mark.parametrize("pair", EQUAL, ids=range(len(EQUAL)))
def test_equal_content_has_one_digest(pair):
    assert content(pair[0]) == content(pair[1])
    assert content([pair[0]]) == content([pair[1]])


def in_two_orders(pairs):
    """The same pairs in each kind of mapping, in one order and in another."""
    default = lambda items: collections.defaultdict(int, items)  # noqa: E731
    for make in (dict, collections.OrderedDict, default, collections.Counter, MyDict, MyOrdered, MyDefault, MyCounter):
        one, other = make(pairs), make(reversed(pairs))
        yield one, other
        yield types.MappingProxyType(one), types.MappingProxyType(other)
        for view in ("keys", "values", "items"):
            if make is not collections.Counter:
                yield getattr(one, view)(), getattr(other, view)()


@pytest.mark.parametrize(
    "keys", [("a", "b"), (1, 2), (b"a", b"b"), (None, "b"), (1.5, True), ((1, 2), (3, 4))], ids=repr
)
def test_the_order_of_a_mapping_counts_wherever_it_lies(keys):
    seen = set()
    for one, other in in_two_orders(list(zip(keys, (3, 4), strict=True))):
        for place in (
            lambda x: x,
            lambda x: [x, x],
            lambda x: {"at": (x,)},
            lambda x: Point(1, x),
            lambda x: [1, {1: x}],
        ):
            assert (
                content(place(one))
                == content(place(copied(one)))
                != content(place(other))
                == content(place(copied(other)))
            )
        seen |= {content(one), content(other)}
    # what is a mapping of its own kind, and what a view of one
    assert len(seen) == sum(2 for _ in in_two_orders(list(zip(keys, (3, 4), strict=True))))


def copied(value):
    if isinstance(value, types.MappingProxyType):
        return types.MappingProxyType(copied(gc.get_referents(value)[0]))
    if isinstance(value, dict):
        return value.copy() if type(value) is not MyDict else MyDict(value)
    name = type(value).__name__.rpartition("_")[2]
    return getattr(copied(gc.get_referents(value)[0]), name)()


@pytest.mark.parametrize("many", [1, 2, 300])
def test_the_order_counts_in_records_alike_or_not(many):
    rows = [{"name": f"n{i}", "x": i, "y": i / 2} for i in range(many)]
    turned = [{"y": row["y"], "name": row["name"], "x": row["x"]} for row in rows]
    last = [*rows[:-1], turned[-1]]
    numbers = [{"x": row["x"], "z": row["x"]} for row in rows]
    back = [{"z": row["x"], "x": row["x"]} for row in rows]
    digests = [content(value) for value in (rows, turned, last, numbers, back)]
    assert len(set(digests)) == 5 - (many == 1)
    assert content([dict(row) for row in rows]) == content(rows)


@pytest.mark.parametrize("deep", [500, 999, 1000, 1001, 5_000])
@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {"k": x}, lambda x: (x, 1), lambda x: {1: x, "a": 2}])
def test_a_difference_buried_deep_is_found(deep, wrap):
    one, same, other = [1.0], [1.0], [1]
    for _ in range(deep):
        one, same, other = wrap(one), wrap(same), wrap(other)
    assert content(one) == content(same) != content(other)
    for value in (one, same, other):  # let go of from the outside, as Python itself goes down recursively
        while isinstance(value, list | dict | tuple) and len(value):
            value = next(iter(value.values())) if isinstance(value, dict) else value[0]


def test_sharing_does_not_count_and_costs_no_more_than_it_holds():
    doubled = [1]
    for _ in range(100):
        doubled = [doubled, doubled]
    assert content(doubled) == content(doubled)
    row = list(range(100))
    assert content([row] * 50) == content([list(row) for _ in range(50)])
    assert content((row, {"a": row})) == content((list(row), {"a": list(row)}))


def test_large_values_go_the_same_way_however_they_are_shared():
    from somatize.naming.content_digest import LARGEST

    row = [0] * 4096
    count = LARGEST // 4096 + 1
    assert content([row] * count) == content([list(row) for _ in range(count)])


class Holds:
    def __init__(self, held):
        self.held = held


def loop():
    made = [1]
    made.append({"a": made})
    return made


REFUSED = [
    (threading.Lock, "input is a _thread.lock"),
    (object, "input is an object"),
    (lambda: Holds([1, object()]), r"input\.held\[1\] is an object"),
    (lambda: argparse.Namespace(a=threading.Lock()), r"input\.a is a _thread.lock"),
    (lambda: types.SimpleNamespace(a=threading.Lock()), r"input\.a is a _thread.lock"),
    (lambda: weakref.finalize(Holds, print), r"input is a weakref.finalize"),
    (lambda: ValueError("a"), r"input is a ValueError"),
    (lambda: Failed("a"), r"input is a .*Failed"),
    (lambda: (n for n in ()), "input is a generator"),
    (lambda: iter([]), "input is a list_iterator"),
    (lambda: (threading.Lock(), "first"), r"input\[0\] is a _thread.lock"),
    (lambda: [1, {"lock": threading.Lock()}], r"input\[1\]\['lock'\] is a _thread.lock"),
    (lambda: {"a": [{object(): 1}]}, r"input\['a'\]\[0\]\.keys\(\)\[0\] is an object"),
    (lambda: Point(1, [object()]), r"input\.y\[0\] is an object"),
    (lambda: {"a": {object()}}, r"input\['a'\]\.pop\(\) is an object"),
    (lambda: collections.OrderedDict(a=object()), r"input\.values\(\)\[0\] is an object"),
    (loop, r"input\[1\]\['a'\] holds itself, and a circle has no end"),
    (pathlib.Path("/dev/null").open, r"input is a _io.TextIOWrapper"),
    (lambda: collections.defaultdict(lambda: 1), r"input\.default_factory is a function"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=range(len(REFUSED)))
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_cannot_be_named_is_refused_saying_where(case):
    make, words = case
    with pytest.raises(Unnameable, match=f"^{words}"):
        content(make())


def test_a_long_way_to_what_cannot_be_named_is_told_short():
    value = threading.Lock()
    for _ in range(400):
        value = {"a longer key": value}
    with pytest.raises(Unnameable) as refused:
        content(value)
    assert len(str(refused.value)) < 340


def test_registered_types_are_named_by_what_their_codec_says():
    class Money:
        def __init__(self, cents):
            self.cents = cents

    codec("test-keys-money", Money, dump=lambda m: {"cents": m.cents}, load=lambda p: Money(p["cents"]))
    assert content(Money(5)) == content(Money(5)) != content(Money(6))
    assert content(Money(5)) != content({"cents": 5})
    with pytest.raises(Unnameable, match="the dump= of its codec 'test-keys-money' raised AttributeError"):
        content(Money.__new__(Money))


def test_code_in_an_input_counts_as_code():
    def make(k):
        return lambda x: x + k

    assert named(make(1)).digest == named(make(1)).digest != named(make(2)).digest
    assert named([len, int, math]).digest == named([len, int, math]).digest != named([len, float, math]).digest
    assert named(1).digest != named(1, "item").digest


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.sampled_from([1, 1.0, True, 0, 0.0, -0.0, False, "1", b"1"]),
)
hashables = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
values = st.recursive(
    scalars | hashables,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.sets(hashables, max_size=4)
    ),
    max_leaves=30,
)


def same(a, b):
    """Equal with their types and the order of dicts, whatever that of sets."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same, a.items(), b.items()))
    if isinstance(a, set | frozenset):
        a, b = list(a), list(b)
    if isinstance(a, list):
        rest = list(b)
        for one in a:
            found = next((n for n, other in enumerate(rest) if same(one, other)), None)
            if found is None:
                return False
            rest.pop(found)
        return not rest
    return a == b


def shuffled(value, luck):
    """The same value, made anew, with its sets filled in another order."""
    if isinstance(value, list | tuple):
        return type(value)(shuffled(one, luck) for one in value)
    if isinstance(value, dict):
        return {shuffled(key, luck): shuffled(one, luck) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        items = [shuffled(one, luck) for one in value]
        luck.shuffle(items)
        return type(value)(items)
    return value


@settings(max_examples=120, deadline=None)
@given(values, st.integers())
def test_equal_is_equal(value, seed):
    other = shuffled(value, random.Random(seed))
    assert content(value) == content(other)
    assert tree_digest(value, "", lambda *_: None) == tree_digest(other, "", lambda *_: None)


@settings(max_examples=120, deadline=None)
@given(values, values)
def test_different_is_different(one, other):
    alike = same(one, other)
    assert (content(one) == content(other)) is alike
    assert (tree_digest(one, "", lambda *_: None) == tree_digest(other, "", lambda *_: None)) is alike


@settings(max_examples=120, deadline=None)
@given(values, st.data())
def test_one_changed_leaf_is_noticed(value, data):
    copied = shuffled(value, random.Random(0))
    spots = []

    def walk(at):
        if isinstance(at, list):
            spots.extend((at, n) for n in range(len(at)))
            for one in at:
                walk(one)
        elif isinstance(at, dict):
            spots.extend((at, key) for key in at)
            for one in at.values():
                walk(one)

    walk(copied)
    if spots:
        where, key = data.draw(st.sampled_from(spots))
        before, after = where[key], data.draw(scalars)
        where[key] = after
        assert (content(copied) == content(value)) is same(before, after)


def test_the_digests_stay_what_they_are():
    """What was kept yesterday is found today: a change here is one of format, to be made knowingly."""
    pinned = content([1, {"a": 2.5, "b": ("x", None)}, {3: b"y"}, {1, 2}, dt.date(2024, 1, 1)]).hex()
    assert pinned == PINNED


PINNED = "fab14b301cddcaa3a88153ba06ccf4084ddab11e3d29a6d9302c5f1631d59b5d"

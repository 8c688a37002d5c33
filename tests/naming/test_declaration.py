"""What a node was made with and what it shows: what counts, what does not, and what stands in the way."""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import pickle
import threading
import typing

import msgpack
import pytest

from somatize import Node
from somatize.dag.pieces import Cached, Frozen, Mapped, Marks
from somatize.errors import Unnameable
from somatize.naming import Namer, difference, given

MARKS = Marks(frozen=Frozen(), cached=Cached())


class Scale(Node):
    def __init__(self, scale, *more, words=("a",), **rest):
        self.scale = scale
        self._words = words
        self._seen = None

    def forward(self, x):
        self._seen = (self._seen or 0) + 1
        return x * self.scale


class Child(Scale):
    """One that never calls its parent's constructor."""

    def __init__(self, k=1):
        self._k = k


class Guarded(Node):
    def __init__(self, k):
        self._k = k

    def __getstate__(self):
        return {"_k": self._k}

    def __setstate__(self, state):
        self.__dict__.update(state)

    def forward(self, x):
        return x


class Emptied(Guarded):
    def __init__(self, k):
        self.__dict__ = {"_k": k}


class Own(Node):
    def __new__(cls, k):
        return super().__new__(cls)

    def __init__(self, k):
        self._k = k

    def forward(self, x):
        return x


class Bare(Node):
    def forward(self, x):
        return x


@dataclasses.dataclass(frozen=True)
class Data(Node):
    size: int = 3

    def forward(self, x):
        return x


class Keyed(Node, abc.ABC, typing.Generic[typing.TypeVar("T")]):
    __unkeyed__ = ("table", "count")
    __slots__ = ("slot",)

    def __init__(self, table, k=1):
        self.table = table
        self.count = 0
        self.slot = k

    def forward(self, x):
        return x


class Named(Node, str):
    __slots__ = ()

    def __init__(self, text):
        pass

    def forward(self, x):
        return x


def test_changing_an_argument_or_an_attribute_recomputes(name_of):
    node, namer = Scale(0.25), Namer()
    first = name_of(node, namer=namer)
    assert name_of(Scale(0.25)).digest == first.digest
    node.scale = 0.5
    second = name_of(node, namer=namer)
    assert difference(first.parts, second.parts) == ["attribute `scale` 0.5 was 0.25"]
    assert difference(first.parts, name_of(Scale(0.5)).parts) == ["argument `scale` 0.5 was 0.25"]
    for other in (Scale(0.25, 1), Scale(0.25, words=("b",)), Scale(0.25, x=1), Scale(0.25, x=2), Child(1), Child(2)):
        assert name_of(other).digest not in (first.digest, second.digest)
    assert name_of(Child()).digest == name_of(Child(1)).digest == name_of(Child(k=1)).digest
    node.scale = 0.25
    assert name_of(node, namer=namer).digest == first.digest
    node.extra = None
    assert difference(first.parts, name_of(node, namer=namer).parts) == ["attribute `extra` None, which was not there"]
    del node.extra
    assert name_of(node, namer=namer).digest == first.digest


class Options(Node):
    def __init__(self, **options):
        self._options = options

    def forward(self, x):
        return list(self._options)


def test_the_order_of_keywords_attributes_and_captured_dicts_counts(lab, name_of):
    one, other = Options(a=1, b=2), Options(b=2, a=1)
    assert name_of(one).digest == name_of(Options(a=1, b=2)).digest
    assert difference(name_of(one).parts, name_of(other).parts) == [
        "the order of its arguments",
        "attribute `_options`",
    ]
    by_keyword = functools.partial(dict, a=1, b=2), functools.partial(dict, b=2, a=1)
    assert len({name_of(one).digest for one in by_keyword}) == 2
    node, namer = Scale({"a": 1, "b": 2}), Namer()
    first = name_of(node, namer=namer)
    node.scale["a"] = node.scale.pop("a")
    assert difference(first.parts, name_of(node, namer=namer).parts) == ["attribute `scale`"]
    source = "def make(table):\n    return lambda x: list(table)\n"
    made = [lab.module(source).make(table) for table in ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
    assert len({name_of(function).digest for function in made}) == 2


def test_the_order_of_attributes_is_looked_at_each_time(name_of):
    class Open(Node):
        def forward(self, x):
            return [*vars(self)]

    node, namer = Open(), Namer()
    node.a, node.b = one, two = "one", "two"
    first = name_of(node, namer=namer)
    assert name_of(node, namer=namer).digest == first.digest
    del node.a
    node.a = one
    assert difference(first.parts, name_of(node, namer=namer).parts) == ["the order of its attributes"]
    del node.b
    node.b = two
    assert name_of(node, namer=namer).digest == first.digest


def test_working_state_does_not_count(name_of):
    node, namer = Scale(1), Namer()
    first = name_of(node, namer=namer).digest
    node.forward(1)
    # Private attributes of a node are what is tested.
    node._cache = threading.Lock()
    assert name_of(node, namer=namer).digest == first


def test_arguments_are_those_of_the_construction(name_of):
    words = ["a"]
    node = Scale(words)
    node.scale = 1
    words.append("b")
    same = Scale(["a"])
    same.scale = 1
    assert name_of(node).digest == name_of(same).digest != name_of(Scale(words)).digest


def test_mutable_attributes_are_looked_at_each_time(name_of):
    node, namer = Scale([1, {"a": 2}]), Namer()
    first = name_of(node, namer=namer)
    node.scale[1]["a"] = 3
    second = name_of(node, namer=namer)
    assert difference(first.parts, second.parts) == ["attribute `scale`"]


def test_what_is_left_out_by_name(name_of):
    node, namer = Keyed(threading.Lock()), Namer()
    first = name_of(node, namer=namer).digest
    node.count = 5
    assert name_of(Keyed(None)).digest == name_of(node, namer=namer).digest == first
    node.slot = 2
    assert name_of(node, namer=namer).digest != first != name_of(Keyed(None, 2)).digest


def test_what_has_no_name_is_told_with_its_place(name_of):
    with pytest.raises(Unnameable, match=r"^the argument `words` is a gen"):
        name_of(Scale(1, words=(n for n in ())))
    node = Scale(1)
    node.scale = [threading.Lock()]
    with pytest.raises(Unnameable, match=r"^the attribute `scale`\[0\] is a _thread.lock"):
        name_of(node)
    for lost in (Emptied(1), Own(1)):
        with pytest.raises(Unnameable, match="arguments are not known"):
            name_of(lost)
    assert name_of(Bare()).digest == name_of(Bare()).digest


@pytest.mark.parametrize("made", [Scale(2, 3, z=4), Child(5), Guarded(6), Data(7), Keyed(None, 8), Bare()])
def test_copies_and_pickles_keep_their_arguments(made, name_of):
    name = name_of(made).digest
    for other in (copy.copy(made), copy.deepcopy(made), *(pickle.loads(pickle.dumps(made, n)) for n in range(2, 6))):
        assert type(other) is type(made)
        assert name_of(other).digest == name


def test_what_construction_refuses_is_refused_as_ever():
    with pytest.raises(TypeError, match=r"Bare\(\) takes no arguments"):
        Bare(1)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Guarded()
    with pytest.raises(TypeError, match="abstract"):
        abc.ABCMeta("A", (Node,), {"f": abc.abstractmethod(lambda self: 0)})()
    assert Named("text") == "text"
    assert dataclasses.replace(Data(1), size=2) == Data(2)


def test_functions_and_classes_as_arguments_are_followed(lab, name_of):
    def named(body):
        module = lab.module(f"def f(x):\n    return {body}\nclass C:\n    def g(self):\n        return {body}\n")
        return [name_of(Scale(1, words=one)) for one in (module.f, [module.f], module.C, len)]

    first, second = named("x"), named("-x")
    assert [one.digest for one in first] == [one.digest for one in named("x")]
    assert [difference(a.parts, b.parts) for a, b in zip(first[:3], second[:3], strict=True)] == [
        ["code of `f`"],
        ["code of `f`"],
        ["code of `C.g`"],
    ]
    assert first[3].digest == second[3].digest


def test_a_node_within_a_node_counts(name_of):
    first = name_of(Scale(Scale(1)))
    assert name_of(Scale(Scale(1))).digest == first.digest != name_of(Scale(Scale(2))).digest


def test_salt_marks_feeds_and_ids():
    naming, node, before = Namer().opened(), Scale(1), given("x")
    base = naming.name_of(node, MARKS, before)
    salted = naming.name_of(node, Marks(frozen=Frozen(), cached=Cached("v2")), before)
    mapped = naming.name_of(node, Marks(frozen=Frozen(), cached=Cached(), mapped=Mapped(3)), before)
    batched = naming.name_of(node, Marks(frozen=Frozen(), cached=Cached(), mapped=Mapped(64)), before)
    called = naming.name_of(node, Marks(frozen=Frozen("a"), cached=Cached()), before)
    placed = naming.name_of(node, Marks(id="n", device="cuda", host="w", frozen=Frozen(), cached=Cached()), before)
    fed = naming.name_of(node, MARKS, {"a": base})
    assert naming.name_of(node, MARKS, {"b": base}).digest == fed.digest
    several = [{"a": base, "b": fed}, {"b": fed, "a": base}, {"a": fed, "b": base}, {"a": base, "c": fed}]
    apart = [base, salted, mapped, called, fed, *(naming.name_of(node, MARKS, feeds) for feeds in several)]
    assert len({name.digest for name in apart}) == len(apart)
    assert (mapped.digest, placed.digest) == (batched.digest, base.digest)
    assert difference(base.parts, salted.parts) == ["salt 'v2' was None"]
    assert difference(base.parts, called.parts) == ["state"]
    other = naming.name_of(node, MARKS, given("y"))
    assert difference(base.parts, other.parts) == ["input"]
    assert difference(fed.parts, naming.name_of(node, MARKS, {"embed": other}).parts) == ["an ancestor `embed`"]
    assert difference(apart[5].parts, apart[7].parts) == ["an ancestor `a`", "an ancestor `b`"]
    assert difference(given(1).parts, given(2).parts) == ["input"]
    for name in apart:
        assert msgpack.unpackb(msgpack.packb(name.parts, strict_types=True)) == name.parts
        assert difference(name.parts, name.parts) == []


class Counts:
    __unkeyed__ = ("_total",)

    def __init__(self):
        self._total = 0

    def state_dict(self):
        return {"total": self._total}

    def forward(self, x):
        return x


def test_state_is_looked_at_each_time_when_frozen():
    namer, node, before = Namer(), Counts(), given(1)
    first = namer.opened().name_of(node, MARKS, before)
    node._total = 5
    second = namer.opened().name_of(node, MARKS, before)
    assert difference(first.parts, second.parts) == ["state"]
    called = Marks(frozen=Frozen("here"), cached=Cached())
    assert (
        namer.opened().name_of(node, called, before).digest == namer.opened().name_of(Counts(), called, before).digest
    )

"""Objects of classes: dataclasses, attrs, pydantic, namespaces, enums, named tuples and plain objects."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import pathlib
import subprocess
import sys
import textwrap
import types
import typing

import attrs
import numpy as np
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import Graph, Store, codecs, node
from somatize.errors import KeepWarning, NotKeepable, StoreError, Unnameable
from somatize.naming import content

MODULE = __name__


class Colour(enum.Enum):
    RED = "red"
    BLUE = ("b", 1)
    ALSO_RED = "red"  # noqa: PIE796


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Word(enum.StrEnum):
    A = "a"


@dataclasses.dataclass
class Point:
    x: object
    y: object = dataclasses.field(default=0, compare=False)
    made: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.made = 1
        calls.append(self)


calls: list = []


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    x: object
    y: object = None


@dataclasses.dataclass(frozen=True)
class Derived(Slotted):
    z: object = None


@attrs.define
class Attrs:
    x: object
    y: object = 0


@attrs.frozen(cache_hash=True)
class Hashed:
    x: str


@attrs.define(slots=False)
class Unslotted:
    x: object


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", arbitrary_types_allowed=True)
    x: int
    inner: typing.Any = None
    _private: int = pydantic.PrivateAttr(default=3)


@pydantic.dataclasses.dataclass
class Checked:
    x: int


class Plain:
    def __init__(self, *items, **named):
        self.items = items
        self.__dict__.update(named)

    def __eq__(self, other):
        raise AssertionError

    __hash__ = object.__hash__


class Private:
    __slots__ = ("__secret", "name", "unset")

    def __init__(self, secret, name=None):
        self.__secret = secret
        self.name = name

    @property
    def secret(self):
        return self.__secret


class Both(Private):
    def __init__(self, secret, extra):
        super().__init__(secret)
        self.extra = extra

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    @functools.cached_property
    def once(self):
        return len(self.extra)


class Shadow(Private):
    __slots__ = ("name",)


class Pair(typing.NamedTuple):
    a: object
    b: object = None


class Named(collections.namedtuple("Named", "a b")):  # noqa: SLOT002, PYI024
    def total(self):
        return self.a + self.b


class Guarded:
    def __init__(self, x):
        self.x = x

    def __getattr__(self, name):
        raise AssertionError(name)


def unset():
    made = Private.__new__(Private)
    made.name = "n"
    return made


def shadow(inner, outer):
    made = Shadow("s", outer)
    Private.name.__set__(made, inner)
    return made


VALUES = {
    "enum": lambda: [Colour.RED, Colour.BLUE, Colour.ALSO_RED, Level.LOW, Word.A],
    "flags": lambda: [Mode.READ, Mode.READ | Mode.WRITE, Mode(0)],
    "dataclass": lambda: Point([1], {"b": 1, "a": 2}),
    "dataclass with slots": lambda: Slotted(np.arange(3), (1, Slotted(2))),
    "dataclass derived": lambda: Derived(1, 2, {3}),
    "attrs": lambda: Attrs(1, Attrs([2])),
    "attrs with a cached hash": lambda: Hashed("a"),
    "attrs without slots": lambda: Unslotted(1),
    "pydantic": lambda: Model(x=1, inner=Model(x=2), more=[3]),
    "pydantic dataclass": lambda: Checked(1),
    "plain": lambda: Plain(1, 2, z=1, a=[dt.date(2024, 1, 1), decimal.Decimal("1.0")]),
    "plain, another order": lambda: Plain(1, 2, a=[dt.date(2024, 1, 1), decimal.Decimal("1.0")], z=1),
    "private slots": lambda: Private(1, "n"),
    "another private slot": lambda: Private(2, "n"),
    "an unset slot": lambda: unset(),
    "slots and a dict": lambda: Both({1: 2}, "extra"),
    "slots of one name": lambda: shadow(1, 2),
    "slots of one name, turned": lambda: shadow(2, 1),
    "namespace": lambda: types.SimpleNamespace(b=1, a=pathlib.Path("x")),
    "namespace, another order": lambda: types.SimpleNamespace(a=pathlib.Path("x"), b=1),
    "arguments": lambda: argparse.Namespace(lr=0.1, out=pathlib.Path("o")),
    "named tuple": lambda: Pair(1, [Pair("a")]),
    "named tuple with methods": lambda: Named(1, 2),
    "keys": lambda: {Pair(1): 1, Colour.RED: Slotted(1), Slotted(2): 3},
    "attributes guarded": lambda: Guarded(5),
}


def parts(value):
    """What a value holds, with types, as plain tuples: to compare by."""
    if isinstance(value, enum.Enum):
        return value
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.tolist()
    if isinstance(value, tuple | list):
        return type(value), [parts(one) for one in value], parts(getattr(value, "__dict__", None))
    if isinstance(value, dict):
        return type(value), [(parts(key), parts(one)) for key, one in value.items()]
    if isinstance(value, set):
        return type(value), sorted(value)
    if type(value).__module__ in (MODULE, "types", "argparse"):
        held = object.__getattribute__(value, "__dict__") if type(value).__dictoffset__ else {}
        slots = []
        for base in type(value).__mro__:
            for name, slot in vars(base).items():
                if isinstance(slot, types.MemberDescriptorType) and base.__module__ != "types":
                    with contextlib.suppress(AttributeError):
                        found = slot.__get__(value)
                        slots.append((name, None if name == "_attrs_cached_hash" else parts(found)))
        return type(value), parts(dict(held)), slots
    return type(value), value


@pytest.mark.parametrize("kind", VALUES)
def test_an_object_comes_back_exactly_and_is_named_by_all_it_holds(back, kind):
    value = VALUES[kind]()
    calls.clear()
    again = back([value, value])
    assert again[0] is again[1] is not value or isinstance(value, enum.Enum)
    assert parts(again[0]) == parts(value)
    assert not calls
    assert content(again[0]) == content(value) == content(VALUES[kind]())


def test_what_differs_has_another_name():
    digests = [content(make()) for make in VALUES.values()]
    assert len(set(digests)) == len(digests)
    opened = Model(x=1)
    opened._private = 4
    closed = Model(x=1)
    unset = Model.model_construct(x=1, inner=None)
    assert len({content(one) for one in (opened, closed, unset, Model(x=1, inner=None))}) == 3


def test_a_hash_that_was_cached_is_not_kept(back):
    value = Hashed("a")
    hash(value)
    assert content(value) == content(Hashed("a"))
    assert hash(back(value)) == hash(value)
    assert {back(value): 1}[value] == 1


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.sampled_from([*Colour])
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Slotted, inner, inner),
        st.builds(Attrs, inner, inner),
        st.builds(lambda x, y: Model(x=1, inner=x, more=y), inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(Both, inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda d: types.SimpleNamespace(**d)),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda d: Plain(**d)),
    ),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees, trees)
def test_any_tree_of_objects_comes_back_and_equal_is_equal(back, one, other):
    again = back(one)
    assert repr(parts(again)) == repr(parts(one))
    assert content(again) == content(one)
    assert (content(one) == content(other)) == (repr(parts(one)) == repr(parts(other)))


# What is refused


class Reduced(Plain):
    def __reduce__(self):
        return Reduced, ()


class Restored(Plain):
    def __setstate__(self, state):
        raise AssertionError


class Single(Plain):
    def __new__(cls, *args):
        raise AssertionError


class Freed(Plain):
    def __del__(self):
        pass


class Managed(Plain):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Meta(type):
    pass


class OfMeta(Plain, metaclass=Meta):
    pass


class Iterates(Plain):
    def __next__(self):
        raise StopIteration


class Extended(np.ndarray):
    pass


class Odd(Pair):
    def __new__(cls, *args):
        return super().__new__(cls, *args)


class Elsewhere:
    """A descriptor that puts what it is set to where no attribute is."""

    def __set_name__(self, owner, name):
        self.held = {}

    def __get__(self, instance, owner):
        return self.held.get(id(instance))

    def __set__(self, instance, value):
        self.held[id(instance)] = value


class Described(Plain):
    x = Elsewhere()


class Pretends:
    def __init__(self, secret):
        object.__setattr__(self, "secret", secret)

    @property
    def __dict__(self):
        return {}


class Hollow:
    pass


def local():
    class Local(Plain):
        pass

    return Local(1)


def holding():
    made = Plain(1)
    made.inner = {"at": [(i for i in ())]}
    return made


def circle():
    made = Plain(1)
    made.again = [made]
    return made


class Unit:
    def __init__(self, name):
        self.name = name


Unit.KILO = Unit("km")
METRE = Unit("m")
unit = Unit("no constant")

REFUSED = {
    "constant": (lambda: METRE, r"the constant .*test_objects\.METRE is known"),
    "constant of a class": (lambda: Unit.KILO, r"the constant .*Unit\.KILO is known"),
    "reduced": (lambda: object.__new__(Reduced), "Reduced has __reduce__"),
    "restored": (lambda: object.__new__(Restored), "Restored has __setstate__"),
    "single": (lambda: object.__new__(Single), "Single has __new__"),
    "freed": (lambda: Freed(1), "Freed has __del__"),
    "managed": (lambda: Managed(1), "Managed has __enter__"),
    "iterates": (lambda: Iterates(1), "Iterates has __next__"),
    "of a metaclass": (lambda: OfMeta(1), "OfMeta has its metaclass Meta"),
    "described": (lambda: Described(1), "Described"),
    "without a dict to see": (lambda: Pretends(1), "Pretends"),
    "local": (local, "Local would not find its class again"),
    "array": (lambda: np.zeros(2).view(Extended), "Extended"),
    "exception": (lambda: ValueError(1), "ValueError"),
    "named tuple of its own making": (lambda: tuple.__new__(Odd, (1, 2)), "Odd has __new__"),
    "hollow": (Hollow, "Hollow that holds nothing is known by being the same one"),
    "finalizer": (lambda: __import__("weakref").finalize(Hollow, print), "finalize"),
    "random": (lambda: __import__("random").Random(1), "Random"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_more_than_its_attributes_is_refused(kind):
    make, words = REFUSED[kind]
    with pytest.raises(NotKeepable, match=rf"value\[1\]\[0\] .*{words}.*codec\("):
        codecs.dumps([1, (make(),)])


def test_what_a_module_has_under_another_name_is_no_constant(back):
    assert back(unit).name == "no constant"


def test_what_holds_something_elsewhere_has_no_name():
    for value in (Described(1), Pretends(1)):
        with pytest.raises(Unnameable, match=r"somatize\.codec\(.*howto/codec"):
            content(value)


def test_a_place_in_an_object_is_told():
    with pytest.raises(NotKeepable, match=r"^value\['k'\]\.inner\['at'\]\[0\] cannot .*generator"):
        codecs.dumps({"k": holding()})
    with pytest.raises(NotKeepable, match=r"^value\.again\[0\] .* holds itself"):
        codecs.dumps(circle())
    with pytest.raises(NotKeepable, match=r"^value\.a\[0\] cannot .*generator"):
        codecs.dumps(types.SimpleNamespace(a=[(i for i in ())]))


# Classes that changed

SOURCE = """
    import dataclasses, enum
    @dataclasses.dataclass
    class Kept:
        x: int
        RATE = 2
        def doubled(self):
            "A docstring."
            return self.x * 2  # a comment
    class Kind(enum.Enum):
        A = 1
"""


def typed(source, name="values_of_a_lab"):
    made = types.ModuleType(name)
    sys.modules[name] = made
    exec(textwrap.dedent(source), vars(made))
    return made


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# a comment", "# another", True),
        ("A docstring.", "Another.", True),
        ("self.x * 2", "self.x * 3", False),
        ("RATE = 2", "RATE = 3", False),
        ("x: int", "x: int\n        y: int = 0", False),
        ("class Kept", "class Gone", False),
        ("A = 1", "A = 2", False),
        ("A = 1", "B = 1", False),
    ],
)
def test_a_class_that_was_edited_is_not_filled_with_what_it_was(old, new, same):
    first = typed(SOURCE)
    value = [first.Kept(1), first.Kind.A]
    data = codecs.dumps(value)
    assert codecs.loads(data) == value
    later = typed(SOURCE.replace(old, new))
    if same:
        made = codecs.loads(data)
        assert (type(made[0]), made[0].x, made[1]) == (later.Kept, 1, later.Kind.A)
    else:
        with pytest.raises(StoreError, match=r"values_of_a_lab\.(Kept|Kind)"):
            codecs.loads(data)


def test_a_module_that_is_not_imported_is_not_imported_by_reading():
    typed(SOURCE)
    data = codecs.dumps(sys.modules["values_of_a_lab"].Kept(1))
    del sys.modules["values_of_a_lab"]
    with pytest.raises(StoreError, match="import values_of_a_lab first"):
        codecs.loads(data)
    assert "values_of_a_lab" not in sys.modules


def test_results_are_kept_and_recalled_in_another_process(tmp_path):
    (tmp_path / "lab.py").write_text(
        textwrap.dedent("""
        import argparse, attrs, dataclasses, sys, enum
        from somatize import Graph, Store, node
        class Colour(enum.Enum):
            RED = 1
        @dataclasses.dataclass
        class Point:
            x: int
            colour: Colour = Colour.RED
        @attrs.frozen
        class Tag:
            name: str
        def read(given):
            return {"point": Point(given.x), "given": given, "tag": Tag("t")}
        facts = []
        with Store(sys.argv[1]) as store:
            g = Graph.somatize(node(read).named("read").frozen().cached())
            given = argparse.Namespace(x=int(sys.argv[2]), tags=[Tag("a")])
            print(g.forward(given, store=store, watching=lambda f: facts.append(f["fact"])))
        print(facts)
        """)
    )
    said = []
    for x in (1, 1, 2):
        done = subprocess.run(
            [sys.executable, "-W", "error", tmp_path / "lab.py", tmp_path / "store", str(x)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        said.append(done.stdout.splitlines())
    assert said[0][0] == said[1][0] != said[2][0]
    assert "Point(x=1, colour=<Colour.RED: 1>)" in said[1][0]
    assert [line[1] for line in said] == [
        "['ran', 'kept', 'finished']", "['recalled', 'finished']", "['ran', 'kept', 'finished']"
    ]  # fmt: skip


def test_what_cannot_be_read_again_is_not_kept(tmp_path, monkeypatch):
    class Moody:
        def __init__(self):
            self.x = 1

        def __hash__(self):
            if not hashing:
                raise RuntimeError("not now")
            return 1

    Moody.__qualname__ = "Moody"
    # A class has to be found in its module, and each test has one of its own.
    monkeypatch.setattr(sys.modules[MODULE], "Moody", Moody, raising=False)
    hashing = [1]

    def make(_):
        made = {Moody(): 1}
        hashing.clear()
        return made

    graph = Graph.somatize(node(make).named("n").frozen().cached(ignoring=["hashing", "Moody"]))
    with Store(tmp_path) as store:
        with pytest.warns(KeepWarning, match="could not be kept, .*not now"):
            graph.forward(1, store=store)
        assert store.kept() == []

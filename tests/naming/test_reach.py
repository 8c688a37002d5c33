"""What could change a result, wherever it is kept: on functions, in partials, under an underscore, in a class."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import gc
import pickle
import threading
import typing
import weakref

import pytest
import torch

from somatize import Node, codec
from somatize.codecs import serializer, tensors
from somatize.dag.pieces import Cached, Frozen, Marks
from somatize.errors import Unnameable
from somatize.naming import Namer, content, difference, given


class Holder(Node):
    def __init__(self, held):
        self.held = held

    def forward(self, x):
        return self.held.work(x)


class Plain:
    """No Node: nobody notes what it is made with."""

    def __init__(self, k):
        self._k = k
        self._lock = threading.Lock()
        self._seen = None

    def forward(self, x):
        self._seen = (self._seen or 0) + 1
        return x * self._k


class Slotted:
    __slots__ = ("_k",)

    def __init__(self, k):
        self._k = k

    def forward(self, x):
        return x * self._k


@dataclasses.dataclass
class Data:
    size: int = 2

    def work(self, x):
        return x * self.size


class Kind(enum.Enum):
    ONE = 1

    def work(self, x):
        return x


class Two(typing.NamedTuple):
    a: int
    b: int


class Pair(Two):
    __slots__ = ()

    def work(self, x):
        return x


class Word(str):
    __slots__ = ()

    def work(self, x):
        return x


class Written:
    def work(self, x):
        return x


class Hidden(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
        self._k = k

    def forward(self, x):
        return x * self._k


class Extended(torch.nn.LSTM):
    """Of which torch keeps more than it does of every Module."""

    def __init__(self, k):
        super().__init__(1, 1)
        self._k = k


class Buffered(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
        self.register_buffer("table", torch.tensor([float(k)]), persistent=False)

    def encode(self, x, scale=1):
        return x * self.table * scale

    forward = encode


def test_what_is_put_on_a_helper_counts(lab, name_of):
    module = lab.module("""
        def helper(x):
            return x * helper.k
        helper.k = [2]
        def node(x):
            return helper(x)
    """)
    namer = Namer()
    first = name_of(module.node, namer=namer).digest
    module.helper.k = [3]
    second = name_of(module.node, namer=namer).digest
    module.helper.k.append(4)
    third = name_of(module.node, namer=namer).digest
    module.helper.other = 1
    assert len({first, second, third, name_of(module.node, namer=namer).digest}) == 4
    del module.helper.other
    module.helper.k = [2]
    assert name_of(module.node, namer=namer).digest == first


def test_what_python_lets_swap_is_noticed(lab, name_of):
    module = lab.module("""
        from somatize import Node
        def node(x, *, k=2):
            return x * k
        class Base(Node):
            def forward(self, x):
                return x
        class Other(Node):
            def forward(self, x):
                return -x
        class Child(Base):
            pass
    """)
    namer = Namer()
    first = name_of(module.node, namer=namer).digest
    module.node.__kwdefaults__["k"] = 3
    assert name_of(module.node, namer=namer).digest != first
    child = module.Child()
    names = [name_of(child, namer=namer).digest]
    module.Child.__bases__ = (module.Other,)
    names.append(name_of(child, namer=namer).digest)
    child.__class__ = module.Other
    names.append(name_of(child, namer=namer).digest)
    assert len(set(names)) == 3


@dataclasses.dataclass
class Made(Node):
    words: list = dataclasses.field(default_factory=list)

    def forward(self, x):
        return x


def test_a_field_that_is_made_anew_counts_as_it_is(name_of):
    node, namer = Made(), Namer()
    first = name_of(node, namer=namer).digest
    assert name_of(Made()).digest == first
    node.words.append("a")
    assert name_of(node, namer=namer).digest != first


def test_what_a_partial_hands_over_counts_as_it_is(lab, name_of):
    module = lab.module("def node(words, x, k=1):\n    return x")
    words, namer = ["a"], Namer()
    partial = functools.partial(module.node, words, k=1)
    first = name_of(partial, namer=namer).digest
    words.append("b")
    second = name_of(partial, namer=namer).digest
    partial.keywords["k"] = 2
    assert len({first, second, name_of(partial, namer=namer).digest}) == 3
    words.pop()
    partial.keywords["k"] = 1
    assert name_of(partial, namer=namer).digest == first


@pytest.mark.parametrize("make", [Plain, Slotted, Hidden, Extended, lambda k: Plain(k).forward])
def test_an_object_that_notes_no_arguments_counts_with_what_it_keeps_to_itself(make, name_of):
    torch.manual_seed(0)
    first = name_of(make(1)).digest
    torch.manual_seed(0)
    again = make(1)
    torch.manual_seed(0)
    assert name_of(again).digest == first != name_of(make(2)).digest


def test_what_it_keeps_to_itself_counts_but_for_working_state(name_of):
    node, namer = Plain(1), Namer()
    first = name_of(node, namer=namer).digest
    node.forward(1)
    node._lock = threading.RLock()
    assert name_of(node, namer=namer).digest == name_of(node).digest == first == name_of(Plain(1)).digest
    node._k = 2
    assert name_of(node, namer=namer).digest == name_of(Plain(2)).digest != first


class Owner(Node):
    """Whose model is its own."""

    def __init__(self):
        self._layers = {"all": [torch.nn.Linear(1, 1, bias=False), torch.nn.Dropout(0.5)]}

    def forward(self, x):
        return self._layers["all"][0](x)


class Late(Node):
    """Whose model is loaded as it first runs."""

    def __init__(self):
        self._model = self._size = None

    def forward(self, x):
        return self.model(x)

    @property
    def model(self):
        if self._model is None:
            self._load()
        return self._model

    def _load(self):
        self._model, self._size = torch.nn.Linear(1, 1, bias=False), 1


SETTLED = Marks(frozen=Frozen("digest"), cached=Cached())


def test_a_model_that_a_node_keeps_to_itself_counts_with_its_state(name_of):
    torch.manual_seed(0)
    node, namer = Owner(), Namer()
    first = name_of(node, namer=namer).digest
    torch.manual_seed(0)
    assert name_of(Owner()).digest == first != name_of(Owner()).digest
    node._layers["all"][0].weight.data.add_(1)
    second = name_of(node, namer=namer)
    node._layers["all"][1].eval()
    third = name_of(node, namer=namer)
    assert len({first, second.digest, third.digest}) == 3
    assert difference(second.parts, third.parts) == ["attribute `_layers`"]


def test_what_its_state_is_called_settles_that_but_for_the_mode(name_of, monkeypatch):
    node, namer = Owner(), Namer()
    first = name_of(node, SETTLED, namer=namer).digest
    node._layers["all"][0].weight.data.add_(1)
    # That it is not looked at is what such a node costs.
    monkeypatch.setattr(tensors, "state_of", lambda _: pytest.fail("looked at"))
    assert name_of(node, SETTLED, namer=namer).digest == first == name_of(Owner(), SETTLED).digest
    node._layers["all"][1].eval()
    assert name_of(node, SETTLED, namer=namer).digest != first


def test_a_model_loaded_as_the_node_runs_is_working_state(name_of):
    node, namer = Late(), Namer()
    first = name_of(node, namer=namer).digest
    node.forward(torch.ones(1))
    assert name_of(node, namer=namer).digest == name_of(node).digest == first == name_of(Late()).digest
    given = Late()
    given._model = torch.nn.Linear(1, 1)  # from elsewhere, before it was looked at
    assert name_of(given).digest != first


class Scaled(Node):
    def __init__(self, by):
        self._by = by

    @property
    def by(self):
        return self._by

    @by.setter
    def by(self, value):
        self._by = value

    def forward(self, x):
        return x * self.by


class Reset(Late):
    """One of whose methods, that `forward` does not call, loads the model too."""

    def reset(self):
        self._load()


class MadeUp(Node):
    """One that makes up the names of its attributes."""

    def __init__(self, **given):
        for name, value in given.items():
            setattr(self, f"_{name}", value)

    def forward(self, x):
        self._by = self._by + 0
        return x * self._by


@pytest.mark.parametrize(
    ("make", "name"),
    [(lambda: Scaled(2), "by"), (lambda: Scaled(2), "_by"), (lambda: MadeUp(by=2), "_by"), (Reset, "_size")],
    ids=["a property", "its attribute", "by a name made up", "called by another method"],
)
def test_what_anything_but_forward_assigns_counts(make, name, name_of):
    node, namer = make(), Namer()
    first = name_of(node, namer=namer).digest
    setattr(node, name, 10)
    assert name_of(node, namer=namer).digest != first == name_of(make()).digest


def test_what_has_no_name_there_is_told_with_the_cure(name_of):
    node = Scaled(n for n in ())
    with pytest.raises(Unnameable, match=r"`by` is a generator"):
        name_of(node)
    node = Scaled(1)
    node._by = (n for n in ())
    with pytest.raises(Unnameable, match=r"attribute `_by` is a generator; .*`__unkeyed__ = \('_by',\)` on its class"):
        name_of(node)


def test_an_object_that_holds_itself_is_let_go(name_of):
    node = Plain(1)
    # Private attributes of a node are what is tested.
    node._again = node.forward
    node._work = lambda x: x
    with pytest.raises(Unnameable, match=r"_lock` is a _thread.lock|holds itself"):
        name_of(node)
    del node._again
    assert name_of(node).digest == name_of(node).digest
    there = weakref.ref(node)
    node._again = node.forward
    del node
    gc.collect()
    assert there() is None


def test_what_cannot_be_named_there_is_told(name_of):
    with pytest.raises(Unnameable, match=r"`_k` is a generator"):
        name_of(Plain(n for n in ()))
    with pytest.raises(Unnameable, match=r"`_k` is a generator"):
        name_of(Hidden(n for n in ()))


@pytest.mark.parametrize("make", [Buffered, lambda k: functools.partial(Buffered(k).encode, scale=2)])
def test_buffers_that_are_not_saved_count(make, name_of):
    assert name_of(make(1)).digest == name_of(make(1)).digest != name_of(make(2)).digest


def test_the_state_behind_a_partial_of_a_method_counts(name_of):
    model, namer = torch.nn.Linear(1, 1), Namer()
    partial = functools.partial(model.forward)
    first = name_of(partial, namer=namer).digest
    with torch.no_grad():
        model.weight.add_(1)
    assert name_of(partial, namer=namer).digest != first


@pytest.mark.slow  # torch imports its compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model_has_a_name(name_of):
    model = torch.compile(torch.nn.Linear(1, 1), backend="eager")
    first = name_of(model).digest
    assert name_of(model).digest == first
    with torch.no_grad():
        model.weight.add_(1)
    assert name_of(model).digest != first


@pytest.fixture
def written():
    codec("test.written", Written, dump=lambda _: None, load=lambda _: Written())
    yield Written()
    del serializer.by_kind["test.written"], serializer.by_type[Written]


@pytest.mark.parametrize("held", [Data(), Kind.ONE, Pair(1, 2), Word("a"), None])
@pytest.mark.parametrize(
    "place", [Holder, lambda held: functools.partial(Holder.forward, held), "input", "within the input"]
)
def test_the_methods_of_an_object_that_is_handed_over_count(held, place, written, name_of, monkeypatch):
    held = written if held is None else held
    namer = Namer()
    node = place(held) if callable(place) else None

    def name():
        if node is None:
            return given(held if place == "input" else [held, {"a": held}]).digest
        return name_of(node, namer=namer).digest

    first = name()
    assert name() == first
    # A patch from outside is what is tested.
    monkeypatch.setattr(type(held), "work", lambda _, x: x + 100)
    second = name()
    assert second != first
    monkeypatch.undo()
    assert name() == first
    if node is not None and place is Holder and held is not written:
        assert name_of(copy.deepcopy(node)).digest == name_of(pickle.loads(pickle.dumps(node))).digest == first


def test_what_is_inherited_counts_whatever_module_it_is_of(lab, name_of, monkeypatch):
    """A module that is being written, that is: of a library's classes only the name counts."""
    base = lab.module("class Base:\n    def forward(self, x):\n        return x * 2\n", "lab_base")
    child = lab.module(
        """
        from lab_base import Base
        class Child(Base):
            pass
        class Calling(Base):
            def forward(self, x):
                return super().forward(x) + 1
        """
    )
    namers = Namer(), Namer()
    nodes = child.Child(), child.Calling()
    first = [name_of(node, namer=namer).digest for node, namer in zip(nodes, namers, strict=True)]
    monkeypatch.setattr(base.Base, "forward", lambda _, x: x * 3)
    second = [name_of(node, namer=namer).digest for node, namer in zip(nodes, namers, strict=True)]
    assert not set(first) & set(second)


class Float(float):
    pass


class Ordered(collections.OrderedDict):
    pass


class Default(collections.defaultdict):
    pass


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Float(0.0), Float(-0.0)),
        (Ordered(a=1, b=2), Ordered(b=2, a=1)),
        (Default(int), Default(list)),
        (Word("a"), Word("b")),
    ],
)
def test_subclasses_of_plain_types_are_told_apart_by_all_they_hold(one, other):
    assert content(one) == content(copy.deepcopy(one)) != content(other) == content(copy.deepcopy(other))


@pytest.mark.parametrize(
    "tensor", [torch.ones(4, 3)[:1, 0], torch.tensor([1 + 2j]).conj().imag, torch.ones(2, 3).T[:1, :1]]
)
def test_a_tensor_of_one_element_has_a_name_whatever_its_stride(tensor):
    assert content(tensor) == content(tensor.detach()) != content(tensor + 1)

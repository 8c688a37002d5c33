"""What comes back from a host changes nothing here, and is of the classes that are here.

The code runs in a module made for it, whose name is not that of a file, as that of a notebook's cells is not.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from somatize import Broker, Graph, node

CELLS = """
import abc, collections, dataclasses, enum, functools, typing

LIMIT = 1
REGISTRY = {}

class Base:
    def __init_subclass__(cls):
        REGISTRY[cls.__name__] = cls

class Result(Base):
    seen = 0
    def __init__(self, v): self.v = v
    def good(self): return self.v > LIMIT

class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

class Square(Shape):
    def __init__(self, v): self.v = v
    def area(self): return self.v * LIMIT

@dataclasses.dataclass
class Row:
    v: int
    def good(self): return self.v > LIMIT

@dataclasses.dataclass(slots=True, frozen=True)
class Slim:
    v: int
    def good(self): return self.v > LIMIT

class Slotted:
    __slots__ = ("v",)
    def __init__(self, v): self.v = v

class Color(enum.Enum):
    RED = 1
    def good(self): return self.value > LIMIT

class Flag(enum.IntFlag):
    A = 1
    B = 2

Point = collections.namedtuple("Point", "v w")

class Named(typing.NamedTuple):
    v: int

class Meta(type):
    made = []
    def __new__(meta, name, bases, scope, **words):
        cls = super().__new__(meta, name, bases, scope)
        Meta.made.append(name)
        return cls

class WithMeta(metaclass=Meta):
    def __init__(self, v): self.v = v

class Failure(Exception):
    def __init__(self, v):
        super().__init__(v)
        self.v = v
    def hint(self): return LIMIT

class Reduced(Exception):
    def __init__(self, a, b): super().__init__(f"{a} and {b}"); self.a, self.b = a, b
    def __reduce__(self): return Reduced, (self.a, self.b)
    def hint(self): return LIMIT

def module_function(v): return v > LIMIT

def factory(n):
    class Local:
        def __init__(self, v): self.v = v
        def good(self): return self.v > n + LIMIT
    return Local

Local = factory(3)

def counter():
    count = 0
    def counts():
        nonlocal count
        count += 1
        return count
    return counts

MAKES = {
    "Result": lambda: Result(5), "Square": lambda: Square(5), "Row": lambda: Row(5), "Slim": lambda: Slim(5),
    "Slotted": lambda: Slotted(5), "Color": lambda: Color.RED, "Flag": lambda: Flag.A | Flag.B,
    "Point": lambda: Point(5, 6), "Named": lambda: Named(5), "WithMeta": lambda: WithMeta(5), "Local": lambda: Local(5),
}
"""


@pytest.fixture
def cells() -> Iterator[Any]:
    """A module whose code always goes along, as that of `__main__` does."""
    module = types.ModuleType("cells_of_a_notebook")
    sys.modules[module.__name__] = module
    exec(compile(CELLS, "<cells>", "exec"), vars(module))
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    del sys.modules[module.__name__]


def state_of(module: Any) -> dict[str, Any]:
    """All that is in a module and in its classes, by identity."""
    found = {name: id(value) for name, value in vars(module).items() if name != "__builtins__"}
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            # Python itself notes __slotnames__ as it pickles an instance.
            found |= {f"{name}.{key}": id(member) for key, member in vars(value).items() if key != "__slotnames__"}
    return found | {"registry": dict(module.REGISTRY), "made": list(module.Meta.made)}


NAMES = ("Result", "Square", "Row", "Slim", "Slotted", "Color", "Flag", "Point", "Named", "WithMeta", "Local")


@pytest.mark.parametrize("name", NAMES)
def test_an_instance_has_the_class_that_is_here_and_nothing_of_it_changed(
    name: str, cells: Any, broker: Broker
) -> None:
    make = cells.MAKES[name]
    cls = type(make())
    before = state_of(cells)
    back = Graph.somatize(node(lambda _: [make(), type(make())]).at("w1")).forward(0, broker=broker)
    assert type(back[0]) is cls
    assert back[1] is cls
    assert state_of(cells) == before
    for attribute in ("v", "value", "w"):
        assert getattr(back[0], attribute, None) == getattr(make(), attribute, None)
    cells.LIMIT = 100
    if hasattr(cls, "good"):
        assert back[0].good() is False
        assert make().good() is False
    echoed = Graph.somatize(node(lambda x: x).at("w1")).forward(make(), broker=broker)
    assert type(echoed) is cls
    assert state_of(cells) == {**before, "LIMIT": id(cells.LIMIT)}


@pytest.mark.parametrize("name", ["Failure", "Reduced"])
def test_so_has_an_exception_also_as_a_cause_and_in_a_group(name: str, cells: Any, broker: Broker) -> None:
    cls = getattr(cells, name)
    make = (lambda: cls(5)) if name == "Failure" else (lambda: cls(1, 2))
    before = state_of(cells)

    def raises(how):
        error = make()
        error.add_note("a note")
        if how == "alone":
            raise error
        if how == "group":
            raise ExceptionGroup("several", [error])
        raise ValueError("outer") from error

    graph = Graph.somatize(node(raises).at("w1"))
    cells.LIMIT = 100
    with pytest.raises(cls) as alone:
        graph.forward("alone", broker=broker)
    with pytest.raises(ExceptionGroup) as group:
        graph.forward("group", broker=broker)
    with pytest.raises(ValueError, match="outer") as outer:
        graph.forward("cause", broker=broker)
    cells.LIMIT = 1000
    for error in (alone.value, group.value.exceptions[0], outer.value.__cause__):
        assert type(error) is cls
        assert error.hint() == 1000
        assert error.__notes__[0] == "a note"
    assert state_of(cells) == {**before, "LIMIT": id(cells.LIMIT)}


def test_a_function_of_a_module_is_the_one_that_is_here_and_a_closure_is_a_copy(cells: Any, broker: Broker) -> None:
    counts = cells.counter()
    assert counts() == 1

    def both(_):
        return cells.module_function, counts, counts()

    function, copy, count = Graph.somatize(node(both).at("w1")).forward(0, broker=broker)
    assert function is cells.module_function
    assert (count, copy(), counts()) == (2, 3, 2)


def test_an_instance_of_a_class_that_was_made_anew_since_is_none_of_the_new_one(cells: Any, broker: Broker) -> None:
    class Keeps:
        def __init__(self):
            self._first = None

        def forward(self, x):
            self._first = self._first or x
            return self._first

    graph = Graph.somatize(node(Keeps()).at("w1"))
    old = cells.Row
    assert type(graph.forward(old(5), broker=broker)) is old
    exec("@dataclasses.dataclass\nclass Row:\n    v: int\n    def good(self): return 'new'", vars(cells))
    back = graph.forward(cells.Row(6), broker=broker)
    assert type(back) is old
    assert type(Graph.somatize(node(lambda x: x).at("w1")).forward(cells.Row(6), broker=broker)) is cells.Row
    assert (old(5).good(), cells.Row(5).good()) == (True, "new")


def test_a_class_that_a_node_makes_is_one_here_too_however_often_it_comes(cells: Any, broker: Broker) -> None:
    class Makes:
        def __init__(self):
            self._cls = None

        def forward(self, x):
            if self._cls is None:

                class Made:
                    kind = "as it came"

                self._cls = Made
            self._cls.kind = "changed there"
            return self._cls()

    graph = Graph.somatize(node(Makes()).at("w1"))
    first = graph.forward(0, broker=broker)
    type(first).kind = "changed here"
    second = graph.forward(0, broker=broker)
    assert type(second) is type(first)
    assert second.kind == "changed here"

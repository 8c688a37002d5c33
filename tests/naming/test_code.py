"""What an edit does to a name: what the code does counts, how it was written does not."""

from __future__ import annotations

import functools

import pytest

from somatize.dag.pieces import Cached, Frozen, Marks
from somatize.errors import Unnameable
from somatize.naming import Namer, difference

START = """
import math, re, enum, logging, threading
from pathlib import Path
from decimal import Decimal

CONST = 3
TABLE = {"a": 1, "b": [1, 2]}
PATTERN = re.compile("a+")
LOG = logging.getLogger("one")
LOCK = threading.Lock()

class Kind(enum.Enum):
    RED = 1
    BLUE = 2

def deep(x):
    return x + 1

def helper(x, by=2):
    def inner(y):
        return deep(y) in {"a", "b", "c"}
    return inner(x * by)

class Tool:
    factor = 2
    def __init__(self):
        self.x = 1
    def use(self, x):
        return self.half(x) * self.factor
    @staticmethod
    def half(x):
        return x / 2
    @property
    def size(self):
        return 7
    @classmethod
    def made(cls):
        return cls()

class Base:
    def scaled(self, x):
        return x * CONST

class Scale(Base):
    def __init__(self, by=1):
        self.by = by
    def forward(self, x):
        with LOCK:
            LOG.info("scaling")
        if PATTERN.match(str(x)) and Kind.RED:
            return helper(self.scaled(x), by=TABLE["a"])
        return Tool().use(math.sqrt(x)) + Tool.made().size

def unrelated(x):
    return 1
"""

SAME = {
    "a comment": ("def helper(x, by=2):", "# what it is for\ndef helper(x, by=2):  # and how"),
    "lines moved": ("CONST = 3", "\n\n\n\nCONST = 3\n\n"),
    "a docstring": ("def helper(x, by=2):", 'def helper(x, by=2):\n    "What it does."'),
    "a class docstring": ("class Tool:", 'class Tool:\n    "What it is."'),
    "formatting": ('helper(self.scaled(x), by=TABLE["a"])', "(\n helper(\n  self.scaled(x),\n by=TABLE['a'],\n ))"),
    "an unrelated function": ("return 1\n", "return 2\n"),
    "an unrelated global": ("CONST = 3", "OTHER = 5; CONST = 3"),
    "the order in the module": ("def deep(x):\n    return x + 1\n", ""),
    "the order of methods": ("    factor = 2\n", ""),
    "another logger": ('logging.getLogger("one")', 'logging.getLogger("two")'),
    "another lock": ("threading.Lock()", "threading.RLock()"),
    "the order of a constant set": ('{"a", "b", "c"}', '{"c", "a", "b"}'),
    "an annotation": ("def deep(x):", "def deep(x: int) -> int:"),
    "an import of something else": ("import math,", "import json, math,"),
}  # fmt: skip

APPENDED = {
    "the order in the module": "\ndef deep(x):\n    return x + 1\n",
    "the order of methods": "\nTool.factor = 2\n",
}

DIFFERENT = {
    "a helper": ("return inner(x * by)", "return inner(x * by + 1)", "code of `helper`"),
    "a helper's helper": ("return x + 1\n", "return x + 2\n", "code of `deep`"),
    "a nested function": ("return deep(y) in", "return deep(y) not in", "code of `helper`"),
    "a constant set": ('{"a", "b", "c"}', '{"a", "b"}', "code of `helper`"),
    "a constant's type": ("return x + 1\n", "return x + 1.0\n", "code of `deep`"),
    "a constant's sign": ("return x + 1\n", "return x + -0.0\n", "code of `deep`"),
    "a default": ("by=2", "by=3", "code of `helper`"),
    "a keyword": ('(self.scaled(x), by=TABLE["a"])', '(self.scaled(x), bx=TABLE["a"])', "code of `Scale.forward`"),
    "a global": ("CONST = 3", "CONST = 4", "global `CONST` 4 was 3"),
    "a global's type": ("CONST = 3", "CONST = 3.0", "global `CONST` 3.0 was 3"),
    "a global inside": ("[1, 2]", "[1, 3]", "global `TABLE`"),
    "a global dict's order": ('{"a": 1, "b": [1, 2]}', '{"b": [1, 2], "a": 1}', "global `TABLE`"),
    "a pattern": ('"a+"', '"a*"', "global `PATTERN`"),
    "an enum's value": ("BLUE = 2", "BLUE = 3", "code of `Kind`"),
    "a base's method": ("return x * CONST", "return CONST * x", "code of `Base.scaled`"),
    "a static method": ("return x / 2", "return x / 3", "code of `Tool.half`"),
    "a property": ("return 7", "return 8", "code of `Tool.size`"),
    "a class method": ("return cls()", "return cls", "code of `Tool.made`"),
    "a class attribute": ("factor = 2", "factor = 3", "global `Tool.factor` 3 was 2"),
    "another module's function": ("math.sqrt(x)", "math.floor(x)", "code of `Scale.forward`"),
    "a global function": ("def deep(x):", "def deep(x, *more):", "code of `deep`"),
    "the bases": ("class Scale(Base):", "class Scale(Base, Tool):", "code of `Scale`"),
    "its own constructor": ("self.by = by", "self.by = by + 0", "code of `Scale.__init__`"),
    "an exception": ("with LOCK:", "if LOCK:", "code of `Scale.forward`"),
}  # fmt: skip


@pytest.mark.parametrize("edit", SAME)
def test_how_it_is_written_does_not_count(lab, name_of, edit):
    before, after = SAME[edit]
    assert before in START
    first = name_of(lab.module(START).Scale())
    second = name_of(lab.module(START.replace(before, after) + APPENDED.get(edit, "")).Scale())
    assert difference(first.parts, second.parts) == []
    assert first.digest == second.digest


@pytest.mark.parametrize("edit", DIFFERENT)
def test_what_it_does_counts(lab, name_of, edit):
    before, after, sentence = DIFFERENT[edit]
    assert before in START
    first = name_of(lab.module(START).Scale())
    second = name_of(lab.module(START.replace(before, after)).Scale())
    assert first.digest != second.digest
    assert sentence in difference(first.parts, second.parts)


@pytest.mark.parametrize("edit", DIFFERENT)
def test_a_cell_run_again_is_noticed_without_building_anew(lab, name_of, edit):
    before, after, _ = DIFFERENT[edit]
    module, namer = lab.module(START), Namer()
    node = module.Scale()
    first = name_of(node, namer=namer)
    assert name_of(node, namer=namer).digest == first.digest
    lab.again(module, START)
    again = name_of(node, namer=namer)
    # The node is still one of the old class, whose own methods nobody typed anew.
    if edit not in ("a keyword", "another module's function", "an exception", "its own constructor", "the bases"):
        lab.again(module, START.replace(before, after))
        edited = name_of(node, namer=namer)
        inherited = edit == "a base's method"
        assert (edited.digest == again.digest) is inherited


def test_what_is_patched_on_a_class_or_function_is_noticed(lab, name_of):
    module, namer = lab.module(START), Namer()
    node = module.Scale()
    names = [name_of(node, namer=namer).digest]
    module.Scale.forward = lambda self, x: x
    names.append(name_of(node, namer=namer).digest)
    module = lab.module(START)
    node = module.Scale()
    assert name_of(node, namer=namer).digest == names[0]
    module.helper.__code__ = module.deep.__code__
    names.append(name_of(node, namer=namer).digest)
    module.helper.__defaults__ = (5,)
    names.append(name_of(node, namer=namer).digest)
    module.TABLE["b"].append(3)
    names.append(name_of(node, namer=namer).digest)
    module.str = repr
    names.append(name_of(node, namer=namer).digest)
    assert len(set(names)) == 6


def test_closures_partials_defaults_and_methods(lab, name_of):
    module = lab.module(
        """
        def make(k):
            def node(x):
                return x * k
            return node
        def f(x, k=0):
            return x + k
        class Scaler:
            def __init__(self, by):
                self.by = by
            def apply(self, x):
                return x * self.by
        """
    )
    make, f, scaler = module.make, module.f, module.Scaler
    apart = [
        *(make(2), make(10), make(2.0), make(True), make([2]), make((2,)), make(f), make(module.Scaler)),
        *(functools.partial(f, k=1), functools.partial(f, k=2), functools.partial(f, k=1.0), f),
        *[lambda x, i=i: x + i for i in range(3)],
        *(scaler(1).apply, scaler(2).apply),
    ]
    digests = [name_of(thing).digest for thing in apart]
    assert len(set(digests)) == len(digests)
    assert name_of(make(2)).digest == digests[0]
    assert name_of(scaler(1).apply).digest == digests[-2]
    assert difference(name_of(make(2)).parts, name_of(make(10)).parts) == ["captured `make.<locals>.node.k` 10 was 2"]
    assert difference(name_of(apart[8]).parts, name_of(apart[9]).parts) == ["argument `k` 2 was 1"]
    assert difference(name_of(scaler(1).apply).parts, name_of(scaler(2).apply).parts) == ["attribute `by` 2 was 1"]


def test_a_captured_value_that_changes_is_noticed(lab, name_of):
    module = lab.module(
        """
        def make(k):
            def node(x):
                return x * k
            def set(to):
                nonlocal k
                k = to
            return node, set
        """
    )
    node, set_to = module.make([1])
    namer = Namer()
    first = name_of(node, namer=namer).digest
    set_to([2])
    second = name_of(node, namer=namer).digest
    node.__closure__[0].cell_contents.append(3)
    third = name_of(node, namer=namer).digest
    set_to([1])
    assert name_of(node, namer=namer).digest == first
    assert len({first, second, third}) == 3


def test_a_mutable_default_counts_as_it_is(lab, name_of):
    module, namer = lab.module("def node(x, acc=[]):\n    acc.append(x)\n    return x\n"), Namer()
    first = name_of(module.node, namer=namer).digest
    module.node(1)
    assert name_of(module.node, namer=namer).digest != first
    module.node.__defaults__[0].clear()
    assert name_of(module.node, namer=namer).digest == first


def test_decorators_are_followed(lab, name_of):
    lab.module(
        """
        import functools
        def times(n):
            def deco(f):
                @functools.wraps(f)
                def wrapper(x):
                    return f(x) * n
                return wrapper
            return deco
        """,
        "decos",
    )
    source = "from decos import times\nimport functools\n@times(2)\ndef node(x):\n    return x\n"
    base = name_of(lab.module(source).node)
    assert name_of(lab.module(source).node).digest == base.digest
    inner = name_of(lab.module(source.replace("return x", "return -x")).node)
    assert difference(base.parts, inner.parts) == ["code of `node#2`"]
    outer = name_of(lab.module(source.replace("times(2)", "times(3)")).node)
    assert difference(base.parts, outer.parts) == ["captured `node.n` 3 was 2"]
    cached = lab.module("import functools\n@functools.lru_cache\ndef node(x):\n    return x\n").node
    other = lab.module("import functools\n@functools.lru_cache\ndef node(x):\n    return -x\n").node
    assert name_of(cached).digest != name_of(other).digest


def test_a_global_that_is_a_wrapper_is_followed_too(lab, name_of):
    source = (
        "import functools\n@functools.lru_cache\ndef helper(x):\n    return x\ndef node(x):\n    return helper(x)\n"
    )
    first = name_of(lab.module(source).node)
    second = name_of(lab.module(source.replace("    return x\n", "    return -x\n")).node)
    assert "code of `helper`" in difference(first.parts, second.parts)


def test_what_other_modules_of_the_project_have_counts(lab, name_of):
    helpers = "def scale(x):\n    return 2 * x\nclass Tool:\n    pass\nK = 1\n"
    lab.module(helpers, "helpers")
    source = (
        "import helpers\nfrom helpers import scale, Tool\n"
        "def node(x):\n    return helpers.scale(x) + scale(x), Tool, helpers.K\n"
    )
    first = name_of(lab.module(source).node)
    assert set(first.parts["code"]) == {"lab:node", "helpers:scale", "helpers:Tool"}
    for before, after, sentence in (
        ("2 * x", "3 * x", "code of `scale`"),
        ("    pass", "    x = 1", "global `Tool.x` 1, which was not there"),
        ("K = 1", "K = 2", "global `K` 2 was 1"),
    ):
        lab.module(helpers.replace(before, after), "helpers")
        assert sentence in difference(first.parts, name_of(lab.module(source).node).parts)
    lab.module(helpers + "def unused(x):\n    return x\nOTHER = 3\n", "helpers")
    assert name_of(lab.module(source).node).digest == first.digest


def test_circles_have_an_end(lab, name_of):
    source = """
        def even(x):
            return x == 0 or odd(x - 1)
        def odd(x):
            return x != 0 and even(x - 1)
        class A:
            def make(self):
                return B()
        class B(A):
            me = A
            def forward(self, x):
                return super().make(), even(x), self.me
        B.also = B
        even.again = even
        """
    module = lab.module(source)
    assert name_of(module.B()).digest == name_of(lab.module(source).B()).digest
    assert name_of(module.even).digest != name_of(module.odd).digest


def test_objects_stop_the_naming_unless_ignored(lab, name_of):
    import numpy as np

    module = lab.module(
        "class Model:\n    def __init__(self): self.items = iter([])\nMODEL = Model()\n"
        "TABLE = None\ndef node(x):\n    return MODEL, TABLE\n"
    )
    with pytest.raises(
        Unnameable, match=r"the global `MODEL` of lab\.items is a list_iterator; .*ignoring=\['MODEL'\]"
    ):
        name_of(module.node)
    marks = Marks(frozen=Frozen(), cached=Cached(None, ("MODEL",)))
    first = name_of(module.node, marks).digest
    module.MODEL = 7
    assert name_of(module.node, marks).digest == first
    module.TABLE = np.zeros(3)
    with pytest.raises(Unnameable, match=r"the global `TABLE` of lab is a numpy\.ndarray"):
        name_of(module.node, marks)
    module.TABLE = {"inside": [np.zeros(3)]}
    with pytest.raises(Unnameable, match=r"the global `TABLE` of lab\['inside'\]\[0\] is a numpy.ndarray"):
        name_of(module.node, marks)
    module.TABLE = np.float32(3), np.dtype("f4"), object, np.sqrt, np.float32
    assert name_of(module.node, marks).digest != first


def test_torchs_dtypes_and_devices_count_by_value(lab, name_of):
    source = "import torch\nD = torch.float32\nW = torch.device('cpu')\ndef node(x):\n    return x.to(D, W)\n"
    first = name_of(lab.module(source).node).digest
    assert name_of(lab.module(source).node).digest == first
    assert name_of(lab.module(source.replace("float32", "float64")).node).digest != first
    assert name_of(lab.module(source.replace("'cpu'", "'cuda'")).node).digest != first


def test_dataclasses_named_tuples_and_single_dispatch(lab, name_of):
    source = """
        import dataclasses, functools, typing, abc
        @dataclasses.dataclass(frozen=True)
        class Config:
            size: int = 3
            names: list = dataclasses.field(default_factory=list)
            def double(self):
                return self.size * 2
        class Pair(typing.NamedTuple):
            a: int
            b: int = 2
        class Abstract(abc.ABC):
            @abc.abstractmethod
            def go(self): ...
        class Real(Abstract):
            def go(self):
                return 1
        @functools.singledispatch
        def act(x):
            return 1
        @act.register
        def _(x: int):
            return 2
        CONFIG = Config()
        T = typing.TypeVar("T")
        _MISSING = object()
        def node(x):
            return CONFIG.double(), Config(4), Pair(1), Real().go(), act(x), typing.cast(T, x), _MISSING
        """
    first = name_of(lab.module(source).node)
    assert name_of(lab.module(source).node).digest == first.digest
    for before, after in (
        ("size: int = 3", "size: int = 4"),
        ("self.size * 2", "self.size * 3"),
        ("b: int = 2", "b: int = 3"),
        ("return 2\n", "return 3\n"),
        ("        return 1\n        @functools", "        return 5\n        @functools"),
        ("default_factory=list", "default_factory=dict"),
    ):
        assert before in source
        assert name_of(lab.module(source.replace(before, after)).node).digest != first.digest, before


def test_the_function_that_makes_annotations_does_not_count(lab, name_of):
    # Python 3.14 puts one into every class that has some.
    source = """
        class Config:
            size = 3
            def __annotate_func__(format):
                return {"size": int}
        def node(x):
            return Config().size + x
        """
    first = name_of(lab.module(source).node).digest
    assert name_of(lab.module(source.replace("int}", "float}")).node).digest == first
    assert name_of(lab.module(source.replace("size = 3", "size = 4")).node).digest != first


def test_code_of_a_library_is_lenient(name_of):
    import json

    first = name_of(json.JSONEncoder().encode)
    assert name_of(json.JSONEncoder().encode).digest == first.digest
    assert name_of(json.dumps).digest != name_of(json.loads).digest


def test_a_thousand_functions_deep(lab, name_of):
    source = "\n".join(f"def f{n}(x):\n    return f{n + 1}(x)" for n in range(1000)) + "\ndef f1000(x):\n    return x\n"
    first = name_of(lab.module(source).f0)
    second = name_of(lab.module(source.replace("    return x\n", "    return -x\n")).f0)
    assert difference(first.parts, second.parts) == ["code of `f1000`"]


def test_a_bound_builtin_counts_with_what_it_is_bound_to(name_of):
    import operator

    table, namer = {"a": 1}, Namer()
    get = table.get
    first = name_of(get, namer=namer).digest
    assert name_of({"a": 1}.get).digest == first != name_of({"a": 2}.get).digest
    table["a"] = 3
    assert name_of(get, namer=namer).digest != first
    apart = [len, str.upper, "a".join, "b".join, operator.itemgetter(1), operator.itemgetter(2), dict.fromkeys, {}.get]
    assert len({name_of(thing).digest for thing in apart}) == len(apart)

"""Projects of several modules, and edits of them: the kept answer is the unkept one, whatever the code reaches and how."""

# ruff: noqa: E501, ISC004  (programs are easier to read in one line)

from __future__ import annotations

import importlib
import sys
import warnings
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somatize import Graph, Store, node
from somatize.errors import KeepWarning

SETTINGS = """
import re, types, enum, dataclasses
K = 4
TABLE = {"a": 1, "b": 2}
NESTED = {"in": {"k": [1, 2]}}
PATTERN = re.compile("a+")
SPACE = types.SimpleNamespace(k=1)
def f(x):
    return x + K
class Conf:
    scale = 2
    def __init__(self, k):
        self.k = k
    def total(self):
        return self.k * self.scale
CONF = Conf(3)
class Kind(enum.Enum):
    ONE = 1
@dataclasses.dataclass
class Data:
    size: int = 3
    more: int = dataclasses.field(default=1, metadata={"unit": 5})
"""


class Link(NamedTuple):
    """One way in which code reaches other code or values."""

    top: str
    """What stands at the top of the node's module."""
    body: str
    """An expression of `x` in the node."""
    files: dict[str, str]
    """Other modules than `settings`."""
    edits: list[tuple[str, str, str]]
    """Module, text, and what stands there after an edit."""
    inside: str = ""
    """Statements within the node's function."""


K = [("settings", "K = 4", "K = 5")]
LINKS: dict[str, Link] = {
    "an attribute of a module": Link("import settings", "settings.K", {}, K),
    "a name from a module": Link("from settings import K", "K", {}, K),
    "a function from a module": Link("from settings import f", "f(x)", {}, [*K, ("settings", "x + K", "x - K")]),
    "a function of a module": Link("import settings", "settings.f(x)", {}, [*K, ("settings", "x + K", "x - K")]),
    "all names of a module": Link("from settings import *", "f(K)", {}, K),
    "a module in a table": Link("import settings\nBY = {'s': settings}", "BY['s'].K", {}, K),
    "a module on a class": Link(
        "import settings\nclass Here:\n    there = settings\n    def get(self, module=settings):\n        return module.K",
        "Here.there.K + Here().get()", {}, K,
    ),
    "an alias of a type": Link(
        "import settings\nLIST = list[settings.Conf]", "LIST.__args__[0].scale", {}, [("settings", "scale = 2", "scale = 3")]
    ),
    "an alias": Link("import settings as other", "other.K", {}, K),
    "an alias of an alias": Link("import settings\nhere = settings", "here.K", {}, K),
    "a variable": Link("import settings", "there.K", {}, K, "there = settings"),
    "an argument": Link("import settings\ndef get(module):\n    return module.K", "get(settings)", {}, K),
    "an import inside": Link("", "settings.K + inner(x)", {}, K, "import settings; from settings import f as inner"),
    "an import inside, aliased": Link("", "s.f(x)", {}, K, "import settings as s"),
    "an import inside, for a comprehension": Link("", "[settings.K for _ in (1, 2)]", {}, K, "import settings"),
    "an import inside a helper": Link(
        "def helper(x):\n    from settings import K\n    return K", "helper(x)", {}, K
    ),
    "a submodule": Link(
        "import pkg.sub", "pkg.sub.K + pkg.sub.g(x)", {"pkg/__init__": "", "pkg/sub": "K = 1\ndef g(x):\n    return x"},
        [("pkg/sub", "K = 1", "K = 2"), ("pkg/sub", "return x", "return -x")],
    ),
    "a submodule inside": Link(
        "", "pkg.sub.K + k.K", {"pkg/__init__": "", "pkg/sub": "K = 1"}, [("pkg/sub", "K = 1", "K = 2")],
        "import pkg.sub; import pkg.sub as k",
    ),
    "a helper's helper": Link(
        "from pkg.sub import g", "g(x)",
        {"pkg/__init__": "", "pkg/sub": "from . import deep\nfrom .deep import h\ndef g(x):\n    return deep.h(x), h(x)",
         "pkg/deep": "def h(x):\n    return x * 2"},
        [("pkg/deep", "x * 2", "x * 3")],
    ),
    "a relative import inside": Link(
        "from pkg.sub import g", "g(x)",
        {"pkg/__init__": "", "pkg/sub": "def g(x):\n    from .deep import h\n    from . import deep\n    return h(x) + deep.K",
         "pkg/deep": "K = 1\ndef h(x):\n    return x * 2"},
        [("pkg/deep", "x * 2", "x * 3"), ("pkg/deep", "K = 1", "K = 2")],
    ),
    "what a package gives on": Link(
        "import pkg", "pkg.g(x)", {"pkg/__init__": "from .sub import g", "pkg/sub": "def g(x):\n    return x"},
        [("pkg/sub", "return x", "return -x")],
    ),
    "a package without an init": Link(
        "from space.sub import K\nimport space.sub", "K, space.sub.K", {"space/sub": "K = 1"},
        [("space/sub", "K = 1", "K = 2")],
    ),
    "a module's __getattr__": Link(
        "import lazy", "lazy.K", {"lazy": "_ALL = {'K': 1}\ndef __getattr__(name):\n    return _ALL[name]"},
        [("lazy", "'K': 1", "'K': 2"), ("lazy", "return _ALL[name]", "return -_ALL[name]")],
    ),
    "a module of another class": Link(
        "import odd", "odd.k",
        {"odd": "import sys, types\nHELD = 1\nclass Odd(types.ModuleType):\n    @property\n    def k(self):\n"
                "        return self.HELD * 2\nsys.modules[__name__].__class__ = Odd"},
        [("odd", "HELD = 1", "HELD = 2"), ("odd", "HELD * 2", "HELD * 3")],
    ),
    "getattr": Link("import settings", "getattr(settings, 'K'), getattr(settings, 'L', 3)", {}, K),
    "getattr by a name made up": Link("import settings", "getattr(settings, chr(75))", {}, K),
    "vars": Link("import settings", "vars(settings)['K'], settings.__dict__['K']", {}, K),
    "attrgetter": Link("import settings, operator", "operator.attrgetter('K')(settings)", {}, K),
    "globals": Link("from settings import K", "globals()['K']", {}, K),
    "eval": Link("from settings import K", "eval('K')", {}, K),
    "sys.modules": Link("import settings, sys", "sys.modules['settings'].K", {}, K),
    "import_module": Link("import importlib", "importlib.import_module('settings').K", {}, K),
    "import_module by a name made up": Link("import importlib", "importlib.import_module('sett' + s).K", {}, K, "s = 'ings'"),
    "__import__": Link("", "__import__('settings').K", {}, K),
    "a lambda": Link("import settings", "(lambda: settings.K)()", {}, K),
    "a generator": Link("import settings", "list(settings.K + i for i in range(2))", {}, K),
    "a generator function": Link("import settings\ndef gen():\n    yield settings.K", "list(gen())", {}, K),
    "a function handed on": Link("from settings import f", "list(map(f, [x]))", {}, K),
    "a function in a table": Link("from settings import f\nBY = {'f': f}", "BY['f'](x)", {}, K),
    "a default": Link("from settings import f, K\ndef g(x, k=K, h=f):\n    return h(x) + k", "g(x)", {}, K),
    "an attribute of a function": Link(
        "import settings\ndef g(x):\n    return g.k\ng.k = settings.K", "g(x)", {}, K
    ),
    "a class of another module": Link(
        "from settings import Conf", "Conf(1).total()", {},
        [("settings", "scale = 2", "scale = 3"), ("settings", "self.k *", "self.k +")],
    ),
    "an object of another module": Link(
        "import settings", "settings.CONF.total()", {},
        [("settings", "Conf(3)", "Conf(4)"), ("settings", "scale = 2", "scale = 3")],
    ),
    "a base in another module": Link(
        "import settings\nclass Mine(settings.Conf):\n    pass", "Mine(3).total()", {},
        [("settings", "scale = 2", "scale = 3"), ("settings", "self.k *", "self.k +")],
    ),
    "an enum": Link("from settings import Kind", "Kind.ONE.value", {}, [("settings", "ONE = 1", "ONE = 2")]),
    "a dataclass": Link(
        "import settings, dataclasses", "settings.Data().size, dataclasses.fields(settings.Data)[1].metadata['unit']",
        {}, [("settings", "size: int = 3", "size: int = 4"), ("settings", "'unit': 5".replace("'", '"'), '"unit": 6')],
    ),
    "a pattern": Link("import settings", "bool(settings.PATTERN.match('b'))", {}, [("settings", '"a+"', '"b+"')]),
    "a namespace": Link("import settings", "settings.SPACE.k", {}, [("settings", "k=1", "k=2")]),
    "the order of a dict": Link(
        "import settings", "list(settings.TABLE)", {}, [("settings", '"a": 1, "b": 2', '"b": 2, "a": 1')]
    ),
    "a descriptor": Link(
        "from desc import Holder", "Holder().k",
        {"desc": "class D:\n    def __init__(self, k):\n        self.k = k\n    def __get__(self, one, cls):\n"
                 "        return self.k * 2\nclass Holder:\n    k = D(3)"},
        [("desc", "D(3)", "D(4)"), ("desc", "self.k * 2", "self.k * 5")],
    ),
    "a metaclass": Link(
        "from meta import Made", "Made.total(), Made().k",
        {"meta": "class Meta(type):\n    unit = 1\n    def total(cls):\n        return cls.unit * 2\n"
                 "    def __call__(cls):\n        made = super().__call__()\n        made.k = 7\n        return made\n"
                 "class Made(metaclass=Meta):\n    pass"},
        [("meta", "unit = 1", "unit = 2"), ("meta", "unit * 2", "unit * 3"), ("meta", "k = 7", "k = 8")],
    ),
    "a subclass hook": Link(
        "from hook import Made", "Made.tag",
        {"hook": "class Base:\n    def __init_subclass__(cls):\n        cls.tag = 1\nclass Made(Base):\n    pass"},
        [("hook", "tag = 1", "tag = 2")],
    ),
    "a class that is registered": Link(
        "from reg import REGISTRY", "REGISTRY['g'](x)",
        {"reg": "REGISTRY = {}\ndef register(f):\n    REGISTRY[f.__name__] = f\n    return f\n@register\ndef g(x):\n"
                "    return x * 2"},
        [("reg", "x * 2", "x * 3")],
    ),
    "a closure over a dict": Link(
        "from close import g", "g(x)",
        {"close": "def make(table):\n    def g(x):\n        return table['k'] + x\n    return g\ng = make({'k': 1})"},
        [("close", "'k': 1", "'k': 2"), ("close", "+ x", "- x")],
    ),
    "a decorator with arguments": Link(
        "from deco import times\nimport settings\n@times(settings.K)\ndef g(x):\n    return x", "g(x)",
        {"deco": "import functools\ndef times(n):\n    def deco(f):\n        @functools.wraps(f)\n"
                 "        def inner(x):\n            return f(x) * n\n        return inner\n    return deco"},
        [*K, ("deco", "* n", "+ n")],
    ),
    "a decorator that is a class": Link(
        "from deco import g", "g(x)",
        {"deco": "import functools\nclass timed:\n    def __init__(self, f, k=1):\n        functools.update_wrapper(self, f)\n"
                 "        self.f, self.k = f, k\n    def __call__(self, x):\n        return self.f(x) + self.k\n@timed\n"
                 "def g(x):\n    return x * 2"},
        [("deco", "x * 2", "x * 3"), ("deco", "+ self.k", "- self.k"), ("deco", "k=1", "k=2")],
    ),
    "a decorator that is a class and takes over no name": Link(
        "from deco import g", "g(x)",
        {"deco": "class timed:\n    def __init__(self, f):\n        self.f = f\n    def __call__(self, x):\n"
                 "        return self.f(x)\n@timed\ndef g(x):\n    return x * 2"},
        [("deco", "x * 2", "x * 3"), ("deco", "return self.f(x)", "return -self.f(x)")],
    ),
    "a decorated class": Link(
        "from deco import Made", "Made().total()",
        {"deco": "def double(cls):\n    old = cls.total\n    cls.total = lambda self: old(self) * 2\n    return cls\n"
                 "@double\nclass Made:\n    def total(self):\n        return 3"},
        [("deco", "return 3", "return 4"), ("deco", "* 2", "* 3")],
    ),
    "lru_cache and partial": Link(
        "from part import g, h, cached", "g(x) + h() + cached(x)",
        {"part": "import functools\ndef f(x, k):\n    return x * k\ng = functools.partial(f, k=2)\nh = functools.partial(g, 3)\n"
                 "@functools.lru_cache(maxsize=None)\ndef cached(x):\n    return x + 1"},
        [("part", "x * k", "x - k"), ("part", "k=2", "k=3"), ("part", "(g, 3)", "(g, 4)"), ("part", "x + 1", "x + 2")],
    ),
    "singledispatch": Link(
        "from disp import act", "act(x)",
        {"disp": "import functools\n@functools.singledispatch\ndef act(x):\n    return 1\n@act.register\ndef _(x: int):\n"
                 "    return 2"},
        [("disp", "return 2", "return 3")],
    ),
    "a context manager": Link(
        "from ctx import run", "run(x)",
        {"ctx": "import contextlib\n@contextlib.contextmanager\ndef held():\n    yield 3\ndef run(x):\n"
                "    with held() as k:\n        return x * k"},
        [("ctx", "yield 3", "yield 4")],
    ),
    "a callable object and a bound method": Link(
        "from call import TWICE, apply", "TWICE(x) + apply(x)",
        {"call": "class Scaler:\n    def __init__(self, k):\n        self.k = k\n    def __call__(self, x):\n"
                 "        return x * self.k\n    def apply(self, x):\n        return x - self.k\nTWICE = Scaler(2)\n"
                 "apply = Scaler(3).apply"},
        [("call", "Scaler(2)", "Scaler(4)"), ("call", "Scaler(3)", "Scaler(5)"), ("call", "x * self", "x + self"),
         ("call", "x - self", "x + self")],
    ),
    "kinds of methods": Link(
        "from kinds import Tool", "Tool().a + Tool().b(x) + Tool.c() + Tool.d() + Tool().e",
        {"kinds": "import functools\nclass Tool:\n    __slots__ = ('__dict__',)\n    _k = 1\n    @functools.cached_property\n    def a(self):\n"
                  "        return 1\n    @functools.singledispatchmethod\n    def b(self, x):\n        return 2\n"
                  "    @classmethod\n    def c(cls):\n        return cls._k * 3\n    @staticmethod\n    def d():\n        return 4\n"
                  "    @property\n    def e(self):\n        return 5"},
        [("kinds", f"return {n}", f"return 7{n}") for n in (1, 2, 4, 5)] + [("kinds", "_k = 1", "_k = 2")],
    ),
    "modules that import each other": Link(
        "import one", "one.even(x)",
        {"one": "import two\ndef even(x):\n    return x == 0 or two.odd(x - 1)",
         "two": "import one\ndef odd(x):\n    return x != 0 and one.even(x - 1)"},
        [("two", "x != 0 and", "x == 0 or")],
    ),
    "an import that may fail": Link(
        "try:\n    from fast import g\nexcept ImportError:\n    from slow import g", "g(x)",
        {"slow": "def g(x):\n    return x"}, [("slow", "return x", "return -x"), ("fast", "", "def g(x):\n    return 9")],
    ),
    "an import inside that may fail": Link(
        "def helper(x):\n    try:\n        from fast import g\n    except ImportError:\n        from slow import g\n    return g(x)",
        "helper(x)", {"slow": "def g(x):\n    return x"},
        [("slow", "return x", "return -x"), ("fast", "", "def g(x):\n    return 9")],
    ),
    "a named tuple": Link(
        "from tup import Pair", "Pair(1).b, Pair(1).total()",
        {"tup": "import typing\nclass Pair(typing.NamedTuple):\n    a: int\n    b: int = 2\n    def total(self):\n"
                "        return self.a + self.b"},
        [("tup", "b: int = 2", "b: int = 3"), ("tup", "self.a +", "self.a -")],
    ),
    "dunder values": Link(
        "import dund", "dund.__scale__, dund.Tool.__unit__",
        {"dund": "__scale__ = 1\nclass Tool:\n    __unit__ = 2"},
        [("dund", "__scale__ = 1", "__scale__ = 3"), ("dund", "__unit__ = 2", "__unit__ = 4")],
    ),
    "joblib and numpy.vectorize": Link(
        "from wrap import g, h", "g(x) + float(h(x))",
        {"wrap": "import joblib\nimport numpy as np\n@joblib.Memory(None, verbose=0).cache\ndef g(x):\n    return x * 2\n"
                 "@np.vectorize\ndef h(x):\n    return x + 1"},
        [("wrap", "x * 2", "x * 3"), ("wrap", "x + 1", "x + 2")],
    ),
    "what a library's wrapper was told": Link(
        "from told import command", "command.main([], standalone_mode=False)",
        {"told": "import click\nclass Given:\n    k = 2\n    def __call__(self):\n        return self.k\n@click.command()\n"
                 "@click.option('--n', default=Given(), type=int)\n@click.option('--m', default=1)\ndef command(n, m):\n    return n * 7 + m"},
        [("told", "default=1", "default=2"), ("told", "n * 7", "n * 8"), ("told", "k = 2", "k = 3"),
         ("told", "return self.k", "return -self.k")],
    ),
    "a function of numpy's made of one": Link(
        "from made import g", "g(x)",
        {"made": "import numpy as np\ng = np.frompyfunc(lambda x: x * 2, 1, 1)"}, [("made", "x * 2", "x * 3")],
    ),
    "pydantic": Link(
        "from pyd import Given", "Given().total()",
        {"pyd": "from pydantic import BaseModel, field_validator\nclass Given(BaseModel, validate_default=True):\n    k: int = 3\n"
                "    @field_validator('k')\n    @classmethod\n    def more(cls, k):\n        return k + 1\n"
                "    def total(self):\n        return self.k * 2"},
        [("pyd", "k: int = 3", "k: int = 4"), ("pyd", "k + 1", "k + 2"), ("pyd", "k * 2", "k * 3")],
    ),
    "attrs": Link(
        "from att import Given", "Given().total() + Given().c",
        {"att": "import attr\n@attr.define\nclass Given:\n    k: int = 3\n    c: int = attr.field(default=1, "
                "converter=lambda c: c * 7)\n    def total(self):\n        return self.k * 2"},
        [("att", "k: int = 3", "k: int = 4"), ("att", "c * 7", "c * 8"), ("att", "k * 2", "k * 3")],
    ),
    "an array": Link(
        "import arr", "float(arr.TABLE.sum())", {"arr": "import numpy as np\nTABLE = np.ones(3)"},
        [("arr", "ones(3)", "ones(4)")],
    ),
}  # fmt: skip

REFUSED = {
    "eval",
    "sys.modules",
    "import_module by a name made up",
    "__import__",
    "an array",
    "a function of numpy's made of one",
}
"""Of which no name is made, for a reason that is told."""


WHOLE = {
    "a module in a table",
    "a module on a class",
    "vars",
    "attrgetter",
    "a variable",
    "an argument",
    "getattr by a name made up",
    "import_module",
    "globals",
}
"""Where all of a module counts, as it is used as a value."""


class Project:
    """Modules in a directory that is looked in for imports, and a node in one of them."""

    def __init__(self, place, links):
        self.place = place
        self.files = {"settings": SETTINGS}
        for link in links:
            self.files.update(link.files)
        tops = "\n".join(link.top for link in links)
        inside = "".join(f"    {link.inside}\n" for link in links if link.inside)
        bodies = "".join(f"        {link.body},\n" for link in links)
        self.files["nodes"] = f"{tops}\ndef step(x):\n{inside}    return [\n{bodies}    ]\n"
        for name in self.files:
            self.write(name)

    def write(self, name):
        path = self.place / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.files[name])

    def edit(self, name, before, after):
        source = self.files.get(name, "")
        assert before in source
        self.files[name] = source.replace(before, after) if before else after
        self.write(name)

    def step(self):
        """The node of a fresh process, as far as this project goes."""
        self.forget()
        return importlib.import_module("nodes").step

    def forget(self):
        importlib.invalidate_caches()
        tops = {name.partition("/")[0] for name in self.files} | {"fast"}
        for name in [*sys.modules]:
            if name.partition(".")[0] in tops:
                del sys.modules[name]

    def reload(self, name):
        """Load a module again, and then those that have taken names of it."""
        importlib.invalidate_caches()
        for one in [name, *(other for other in self.files if other not in (name, "nodes"))]:
            module = sys.modules.get(one.replace("/", "."))
            if module is not None and getattr(module, "__spec__", None) is not None:
                importlib.reload(module)


def kept_facts(graph, x, store):
    facts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeepWarning)
        answer = graph.forward(x, store=store, watching=facts.append)
    return answer, [fact["fact"] for fact in facts]


def graph_of(step):
    return Graph.somatize(node(step).named("step").frozen().cached())


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path / "project"
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.parametrize("kind", LINKS)
def test_each_way_to_reach_code_and_values_is_kept_and_seen(kind, place, tmp_path):
    link = LINKS[kind]
    with Store(tmp_path / "kept") as store:
        project = Project(place, [link])
        first, facts = kept_facts(graph_of(project.step()), 3, store)
        graph = graph_of(project.step())
        again, facts = kept_facts(graph, 3, store)
        assert again == first
        assert ("recalled" in facts) is (kind not in REFUSED), graph.foreseen(3, store=store)
        assert kept_facts(graph, 3, store) == (first, facts)
        project.edit("settings", "K = 4", "UNUSED = 1\nK = 4")
        if kind not in REFUSED | WHOLE:
            assert kept_facts(graph_of(project.step()), 3, store) == (first, facts)
        for edit in link.edits:
            edited = Project(place, [link])
            edited.edit(*edit)
            graph = graph_of(edited.step())
            answer, _ = kept_facts(graph, 3, store)
            assert answer == graph.forward(3), edit
            assert answer != first, edit
            (place / "fast.py").unlink(missing_ok=True)


PATCHES = {
    "a module's value": ("an attribute of a module", "import settings; settings.K = 5"),
    "a module's value, inside": ("an import inside", "import settings; settings.K = 5"),
    "a module's function": ("a function of a module", "import settings; settings.f = lambda x: x * 100"),
    "a function's code": ("a function of a module", "import settings; settings.f.__code__ = (lambda x: x * 100).__code__"),
    "a submodule's value": ("a submodule", "import pkg.sub; pkg.sub.K = 9"),
    "a submodule": ("a submodule", "import pkg, types; pkg.sub = types.SimpleNamespace(K=7, g=abs)"),
    "a name of the node's module": ("a name from a module", "import nodes; nodes.K = 9"),
    "a dict in place": ("the order of a dict", "import settings; settings.TABLE['a'] = settings.TABLE.pop('a')"),
    "a module's value, in a table": ("a module in a table", "import settings; settings.K = 5"),
    "a namespace in place": ("a namespace", "import settings; settings.SPACE.k = 9"),
    "an object in place": ("an object of another module", "import settings; settings.CONF.k = 9"),
    "a class's attribute": ("a class of another module", "import settings; settings.Conf.scale = 9"),
    "a method": ("a class of another module", "import settings; settings.Conf.total = lambda self: 100"),
    "a base's method": ("a base in another module", "import settings; settings.Conf.total = lambda self: 100"),
    "a metaclass's method": ("a metaclass", "import meta; meta.Meta.total = lambda cls: 100"),
    "a descriptor's value": ("a descriptor", "import desc; vars(desc.Holder)['k'].k = 9"),
    "a closure's dict": ("a closure over a dict", "import close; close.g.__closure__[0].cell_contents['k'] = 9"),
    "a wrapper's function": ("a decorator that is a class", "import deco; deco.g.f = lambda x: 100"),
    "a wrapper's option": ("a decorator that is a class", "import deco; deco.g.k = 100"),
    "a wrapper without a name": ("a decorator that is a class and takes over no name", "import deco; deco.g.f = abs"),
    "a registered function": ("a class that is registered", "import reg; reg.REGISTRY['g'] = lambda x: 100"),
    "one more implementation": ("singledispatch", "import disp; disp.act.register(int, lambda x: 100)"),
    "what vars shows": ("vars", "import settings; settings.K = 9"),
    "what is got by a made up name": ("getattr by a name made up", "import settings; settings.K = 9"),
    "what globals shows": ("globals", "import nodes; nodes.K = 9"),
    "a module's __getattr__": ("a module's __getattr__", "import lazy; lazy._ALL['K'] = 9"),
    "what __getattr__ is asked for": ("a module's __getattr__", "import lazy; lazy.K = 9"),
    "a property's value": ("a module of another class", "import odd; odd.HELD = 9"),
    "an enum's table": ("a function in a table", "import nodes; nodes.BY['f'] = abs"),
    "a default": ("a default", "import nodes; nodes.g.__defaults__ = (9, abs)"),
    "a function's attribute": ("an attribute of a function", "import nodes; nodes.g.k = 9"),
    "a builtin": ("a generator", "import nodes; nodes.range = lambda n: [5]"),
    "a module that is there by now": ("an import inside that may fail", "import sys, types; m = types.ModuleType('fast'); "
                                      "m.g = lambda x: 9; sys.modules['fast'] = m"),
    "another module of its name": ("an import inside", "import sys, types; m = types.ModuleType('settings'); m.K = 9; "
                                   "m.f = abs; sys.modules['settings'] = m"),
    "an array in place": ("an array", "import arr; arr.TABLE[0] = 9"),
}  # fmt: skip


@pytest.mark.parametrize("patch", PATCHES)
def test_what_is_changed_while_the_process_lives_is_seen(patch, place, tmp_path):
    kind, change = PATCHES[patch]
    with Store(tmp_path / "kept") as store:
        graph = graph_of(Project(place, [LINKS[kind]]).step())
        first, _ = kept_facts(graph, 3, store)
        kept_facts(graph, 3, store)
        exec(change, {})
        answer, _ = kept_facts(graph, 3, store)
        assert answer == graph.forward(3) != first


@pytest.mark.parametrize("kind", [kind for kind, link in LINKS.items() if "/" not in str(link.edits)])
def test_a_module_that_is_loaded_again_is_seen(kind, place, tmp_path):
    link = LINKS[kind]
    with Store(tmp_path / "kept") as store:
        for edit in link.edits:
            project = Project(place, [link])
            graph = graph_of(project.step())
            kept_facts(graph, 3, store)
            project.edit(*edit)
            project.reload(edit[0])
            answer, _ = kept_facts(graph, 3, store)
            assert answer == graph.forward(3), edit
            (place / "fast.py").unlink(missing_ok=True)


@st.composite
def programs(draw):
    """Ways to reach something, in one project; edits of it, each with how it comes about; and inputs."""
    links: list[Link] = []
    files: dict[str, str] = {}
    for kind in draw(st.lists(st.sampled_from(sorted(LINKS)), min_size=1, max_size=3, unique=True)):
        link = LINKS[kind]
        apart = not link.inside or not any(one.inside for one in links)  # their variables may have the same names
        if apart and all(files.get(name, source) == source for name, source in link.files.items()):
            files.update(link.files)
            links.append(link)
    ways = st.sampled_from(["a new process", "loaded again", "undone"])
    edits = st.sampled_from([edit for link in links for edit in link.edits])
    return (
        links,
        draw(st.lists(st.tuples(edits, ways), min_size=1, max_size=4)),
        draw(st.lists(st.sampled_from([3, 0, 2.0, True]), min_size=1, max_size=2)),
    )


def run_program(program, place, store):
    links, edits, inputs = program
    project = Project(place, links)
    (place / "fast.py").unlink(missing_ok=True)
    graph = graph_of(project.step())
    for edit, way in [(None, ""), *edits]:
        if edit is not None:
            name, before, after = edit
            if way == "undone":
                before, after = after, before
            if before not in project.files.get(name, "") or not (before or name not in project.files) or not after:
                continue
            project.edit(name, before, after)
            if way == "loaded again" and "/" not in name:
                project.reload(name)
            else:
                graph = graph_of(project.step())
        for x in inputs:
            truth = graph.forward(x)
            for _ in range(2):
                assert repr(kept_facts(graph, x, store)[0]) == repr(truth)


def differential(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=examples < 100,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@differential(25)
@given(program=programs())
def test_the_kept_answer_is_the_unkept_one(program, place, tmp_path):
    with Store(tmp_path / "kept") as store:
        run_program(program, place, store)


@pytest.mark.slow
@pytest.mark.timeout(900)
@differential(1000)
@given(program=programs())
def test_the_kept_answer_is_the_unkept_one_at_length(program, place, tmp_path):
    with Store(tmp_path / "kept") as store:
        run_program(program, place, store)

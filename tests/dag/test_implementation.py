"""What can be a node, how it is called, and what it is called by."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from somatize import Graph, Node, node
from somatize.dag.implementation import Implementation, shown, snake_case
from somatize.errors import NotANode


class Add(Node):
    def __init__(self, more: int = 1) -> None:
        self.more = more

    def forward(self, value: Any, ctx: Any) -> Any:
        return value + self.more


class Plain:
    def forward(self, value: Any) -> Any:
        return value


class Told:
    def forward(self, value: Any, ctx: Any) -> Any:
        return ctx.node


class Callable:
    def __call__(self, value: Any) -> Any:
        return value


NAMES = [
    ("HTTPServer2", "http_server2"),
    ("HTTPServer2Node", "http_server2_node"),
    ("Tokenize", "tokenize"),
    ("LayerNorm", "layer_norm"),
    ("parseXML", "parse_xml"),
    ("A", "a"),
    ("already_snake", "already_snake"),
    ("_Private", "private"),
    ("With__Two", "with_two"),
    ("<lambda>", "lambda"),
    ("__call__", "call"),
    ("_", "node"),
    ("", "node"),
    ("GPT4Model", "gpt4_model"),
]


@pytest.mark.parametrize(("name", "snake"), NAMES)
def test_names_become_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake


def named(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (Add(), "add"),
        (Plain(), "plain"),
        (Callable(), "callable"),
        (named, "named"),
        (lambda x: x, "lambda"),
        (len, "len"),
        (np.sqrt, "sqrt"),
        (functools.partial(named), "named"),
        (functools.partial(functools.partial(named)), "named"),
        (functools.partial(Callable()), "callable"),
        (nn.LayerNorm(2), "layer_norm"),
        ([].append, "append"),
        (Add(3).forward, "forward"),
    ],
)
def test_the_default_name_is_the_function_s_or_the_class_s(thing: Any, name: str) -> None:
    assert Implementation(thing).name == name


class Named:
    __name__ = "MyOwn"

    def forward(self, x: Any) -> Any:
        return x


def test_an_object_with_a_forward_is_called_by_its_class() -> None:
    assert Implementation(Named()).name == "named"


def double(x: Any, y: Any = 2) -> Any:
    return x * y


ARITIES = [
    (lambda x: x, False),
    (lambda x, ctx: x, True),
    (lambda x, anything: x, True),
    (lambda x, ctx=None: x, True),
    (lambda x, y=1: x, False),
    (lambda x, y=1, ctx=None: x, False),
    (lambda *x: x, False),
    (lambda x, *rest: x, False),
    (lambda x, **rest: x, False),
    (lambda x, *, flag=1: x, False),
    (len, False),
    (np.sqrt, False),
    (double, False),
    (Plain(), False),
    (Told(), True),
    (Add(), True),
    (Add().forward, True),
    (functools.partial(double, y=3), False),
    (functools.partial(operator.add, 3), False),
    (nn.Linear(1, 1), False),
    (str.upper, False),
]


@pytest.mark.parametrize(("thing", "takes_ctx"), ARITIES)
def test_the_arity_is_read_where_declared(thing: Any, takes_ctx: Any) -> None:
    assert Implementation(thing).takes_ctx is takes_ctx


@pytest.mark.parametrize("wrong", [lambda: 1, lambda x, y, z: 1, lambda x, *, must: 1, lambda **k: 1])
def test_what_cannot_take_one_input_is_refused(wrong: Any) -> None:
    with pytest.raises(NotANode, match=r"a node takes \(x\) or \(x, ctx\)"):
        Implementation(wrong)


def test_a_class_is_refused_saying_an_instance() -> None:
    for made in (node, Implementation, Graph.somatize, Graph().node):
        with pytest.raises(NotANode, match=r"Add is a class; a node needs an instance: Add\(\.\.\.\)"):
            made(Add)
    with pytest.raises(NotANode, match="a node needs an instance"):
        node(nn.ReLU)


@pytest.mark.parametrize("wrong", [3, "text", None, [1], {}, object()])
def test_an_object_without_forward_is_refused(wrong: Any) -> None:
    for made in (node, Graph.somatize, Graph().node):
        with pytest.raises(NotANode, match="has no `forward`"):
            made(wrong)


def test_a_node_without_forward_is_refused_where_it_is_put_into_an_expression() -> None:
    class Empty(Node):
        pass

    for declared in (lambda: Graph.somatize(Empty()), lambda: Add() >> Empty(), lambda: Graph().node(Empty())):
        with pytest.raises(NotANode, match="has no `forward`"):
            declared()


def test_a_forward_that_cannot_be_called_is_refused() -> None:
    class Flag:
        forward = True

    with pytest.raises(NotANode, match=r"`forward` of .* is True, which cannot be called"):
        node(Flag())


class AsyncForward:
    async def forward(self, x: Any) -> Any:
        return x


class AsyncNode(Node):
    async def forward(self, x: Any, ctx: Any) -> Any:
        return x


class AsyncGenerator:
    async def forward(self, x: Any) -> Any:
        yield x


class AsyncCall:
    async def __call__(self, x: Any) -> Any:
        return x


class AsyncModule(nn.Module):
    async def forward(self, x: Any) -> Any:
        return x


class AsyncAttribute:
    def __init__(self) -> None:
        self.forward = AsyncCall()


async def coroutine(x: Any) -> Any:
    return x


async def generator(x: Any) -> Any:
    yield x


@pytest.mark.parametrize(
    "thing",
    [
        coroutine,
        generator,
        AsyncForward(),
        AsyncNode(),
        AsyncGenerator(),
        AsyncCall(),
        AsyncModule(),
        AsyncAttribute(),
        AsyncForward().forward,
        functools.partial(coroutine),
        functools.partial(AsyncForward().forward),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_async_forms_are_refused_and_nothing_is_left_unawaited(thing: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for made in (Graph.somatize, Graph().node, lambda thing: Add() >> thing):
            with pytest.raises(NotANode, match=r"is async, and a node is not.*asyncio\.run"):
                made(thing)
    assert caught == []


def test_an_object_is_called_by_its_forward_and_a_method_replaced_later_is_the_one_that_runs() -> None:
    thing = Add()
    graph = Graph.somatize(thing)
    assert graph.forward(1) == 2
    thing.forward = lambda value, ctx: "replaced"  # type: ignore[method-assign]
    assert graph.forward(1) == "replaced"
    assert graph.forward(1, watching=[].append) == "replaced"


def test_a_method_replaced_on_the_class_later_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph.somatize(Plain())
    # This is what is tested.
    monkeypatch.setattr(Plain, "forward", lambda self, value: "patched")
    assert graph.forward(1) == "patched"


def test_a_bound_method_is_a_function_like_any_other() -> None:
    assert Graph.somatize(Add(5).forward).forward(1) == 6


def test_a_module_is_called_as_a_whole_so_that_its_hooks_run() -> None:
    module, heard = nn.Linear(2, 2), []
    module.register_forward_pre_hook(lambda module, args: heard.append("before"))
    module.register_forward_hook(lambda module, args, output: heard.append("after"))
    graph = Graph.somatize(module)
    assert graph.forward(torch.ones(1, 2)).shape == (1, 2)
    assert heard == ["before", "after"]
    assert graph.implementation("linear") is module


def test_a_module_whose_forward_takes_a_ctx_is_given_it() -> None:
    class Asking(nn.Module):
        def forward(self, x: Any, ctx: Any) -> Any:
            return ctx.node

    assert Graph.somatize(node(Asking()).named("me")).forward(1) == "me"


def test_the_implementation_is_copied_and_pickled_by_its_thing() -> None:
    there = pickle.loads(pickle.dumps(Implementation(Add(4))))
    assert (there.thing.more, there.takes_ctx, there.name) == (4, True, "add")
    assert copy.deepcopy(Implementation(Add(4))).thing.more == 4


def test_a_thing_is_shown_shortly() -> None:
    class Loud:
        def __repr__(self) -> str:
            return "x" * 1000

    class Broken:
        def __repr__(self) -> str:
            raise ValueError

    assert shown(Loud()) == f"{'x' * 60}... (Loud)"
    assert shown(Broken()) == "<Broken, whose repr raises>"
    assert shown(3) == "3"


def filling_in(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(x):
        return function(x, 20)

    return wrapper


def handing_on(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def first_apart(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(x, *rest):
        return function(x, *rest)

    return wrapper


def adding(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args, 20, 30)

    return wrapper


def with_ctx(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(x, ctx):
        return ctx.node, function(x)

    return wrapper


class Wraps:
    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, x: Any) -> Any:
        return self.__wrapped__(x, 20)  # type: ignore[attr-defined]


class HandsOn(Wraps):
    def __call__(self, *args: Any) -> Any:
        return self.__wrapped__(*args)  # type: ignore[attr-defined]


def of_three(x, y, z):
    return x, y, z


def of_two(x, y):
    return x, y


def told(x, ctx):
    return x, ctx.node


def plain(x):
    return x


def claimed(x):
    return x


claimed.__signature__ = __import__("inspect").signature(of_three)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("thing", "answer"),
    [
        (filling_in(of_two), (1, 20)),
        (filling_in(filling_in(of_two)), TypeError),
        (handing_on(filling_in(of_two)), (1, 20)),
        (handing_on(handing_on(told)), (1, "n")),
        (handing_on(plain), 1),
        (first_apart(told), (1, "n")),
        (first_apart(plain), 1),
        (adding(of_three), (1, 20, 30)),
        (with_ctx(plain), ("n", 1)),
        (handing_on(with_ctx(plain)), ("n", 1)),
        (Wraps(of_two), (1, 20)),
        (HandsOn(told), (1, "n")),
        (HandsOn(plain), 1),
        (functools.lru_cache(plain), 1),
        (functools.lru_cache(told), (1, "n")),
        (functools.partial(handing_on(of_two), y=2), (1, 2)),
        (claimed, 1),
        (handing_on(claimed), 1),
        (filling_in(claimed), TypeError),
        (functools.singledispatch(plain), 1),
    ],
)
def test_a_wrapper_is_called_by_its_own_signature(thing: Any, answer: Any) -> None:
    graph = Graph.somatize(node(thing).named("n"))
    if answer is TypeError:
        with pytest.raises(TypeError):
            graph.forward(1)
    else:
        assert graph.forward(1) == answer


@pytest.mark.parametrize("how", [filling_in, handing_on, first_apart])
def test_so_is_the_forward_of_a_class(how: Any) -> None:
    class Wrapped:
        @how
        def forward(self, x, *more):
            return x, *(one if one == 20 else one.node for one in more)

    expected = {filling_in: TypeError, handing_on: (1,), first_apart: (1,)}[how]
    if expected is TypeError:
        with pytest.raises(TypeError):  # the wrapper fills in for `self` and the input
            Graph.somatize(node(Wrapped()).named("n")).forward(1)
    else:
        assert Graph.somatize(node(Wrapped()).named("n")).forward(1) == expected

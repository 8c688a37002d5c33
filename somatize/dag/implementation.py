"""The implementation of a node: the object it was declared with, and its call signature, inspected once."""

from __future__ import annotations

import inspect
import re
from functools import partial
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from somatize.codecs import tensors
from somatize.errors import NotANode


class Implementation:
    """A thing that can be a node, checked, and the one way to call it.

    `runner.forward(input)` runs it, or `runner.forward(input, ctx)` where `takes_ctx`. For an object with a `forward`
    the runner is the object itself, so that a method replaced later is the one that runs; for a function or a
    torch Module it holds the callable, so that a Module's hooks run.
    """

    __slots__ = ("name", "runner", "takes_ctx", "thing")

    def __init__(self, thing: Any) -> None:
        """Raises `NotANode` for a class, an async function, or a thing that cannot be called with one input."""
        target = _target(thing)
        self.thing = thing
        self.runner: Any = _Caller(thing) if target is thing else thing
        self.takes_ctx = _read(thing, target)
        self.name = snake_case(_own_name(thing))

    def __reduce__(self) -> tuple[type, tuple[Any]]:
        return Implementation, (self.thing,)


class _Caller:
    """A callable, under the name by which the engine calls every node."""

    __slots__ = ("forward",)

    def __init__(self, forward: Any) -> None:
        self.forward = forward


def snake_case(name: str) -> str:
    """`name` in lower case with underscores; a run of capitals is one word: ``HTTPServer2`` is ``http_server2``."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name.strip("<>"))
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"_+", "_", name).strip("_").lower() or "node"


def shown(thing: Any) -> str:
    """A short name of an object for error messages."""
    try:
        words = repr(thing)
    except Exception:
        return f"<{type(thing).__name__}, whose repr raises>"
    return words if len(words) <= 80 else f"{words[:60]}... ({type(thing).__name__})"


def _target(thing: Any) -> Any:
    if isinstance(thing, type):
        raise NotANode(f"{thing.__name__} is a class; a node needs an instance: {thing.__name__}(...)")
    if tensors.is_module(thing):
        target = thing
        _refuse_async(thing, thing.forward)
    elif hasattr(thing, "forward"):
        target = thing.forward
        if not callable(target):
            raise NotANode(f"the `forward` of {shown(thing)} is {shown(target)}, which cannot be called")
    elif callable(thing):
        target = thing
    else:
        raise NotANode(
            f"{shown(thing)} cannot be a node: it has no `forward`; give a Node, a function f(x) or f(x, ctx), "
            "or an object with forward(x) or forward(x, ctx)"
        )
    return target


_ARITIES: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Whether a function takes a ctx, by function: read once for all instances of a class."""


def _read(thing: Any, target: Any) -> bool:
    function = getattr(target, "__func__", None)
    if function is None:
        return _takes_ctx(thing, target)
    takes_ctx = _ARITIES.get(function)
    if takes_ctx is None:
        takes_ctx = _ARITIES[function] = _takes_ctx(thing, target)
    return takes_ctx


def _refuse_async(thing: Any, target: Any) -> None:
    for called in (target, getattr(type(target), "__call__", None)):  # noqa: B004  it is the function that is asked
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise NotANode(
                f"{shown(thing)} is async, and a node is not: a forward is run to its end and nothing would await it; "
                "call asyncio.run(...) inside a plain function instead"
            )


def _takes_ctx(thing: Any, target: Any) -> bool:
    """Whether `target` wants the ctx: its second place is called ctx, or has no default.

    A second place with a default of its own (``lambda x, i=i: ...``) is the node's own business. A wrapper is called
    by its own signature; what it wraps says whether the ctx comes where the wrapper hands on whatever it is given.
    """
    _refuse_async(thing, target)
    return _asks_for_ctx(thing, thing.forward if tensors.is_module(thing) else target)


def _asks_for_ctx(thing: Any, target: Any) -> bool:
    own = _signature(target)
    if own is None or _hands_on(own):
        wrapped = _wrapped(target)
        if wrapped is not None:
            try:
                return _asks_for_ctx(thing, wrapped)
            except NotANode:  # the wrapper adds to what it is given
                return False
    return own is not None and _wants_ctx(thing, own)


def _signature(target: Any) -> inspect.Signature | None:
    """The parameters of a callable's own code; None for a builtin that does not say: it is called with its input alone.

    A ``__signature__`` does not count: `functools.wraps` copies it, and then it is another function's.
    """
    function = getattr(target, "__func__", target)
    if isinstance(function, FunctionType):
        bare = FunctionType(function.__code__, {}, "bare", function.__defaults__, function.__closure__)
        bare.__kwdefaults__ = function.__kwdefaults__
        target = bare if function is target else MethodType(bare, target.__self__)
    try:
        return inspect.signature(target, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _hands_on(signature: inspect.Signature) -> bool:
    """Whether a callable takes any number of arguments and names no second one."""
    kinds = [p.kind for p in signature.parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds and len([kind for kind in kinds if kind in _PLACES]) < 2


def _wrapped(target: Any) -> Any:
    """The callable that a callable wraps, bound like it; None if it wraps none."""
    if isinstance(target, partial):
        behind = _wrapped(target.func)
        return None if behind is None else partial(behind, *target.args, **target.keywords)
    inner: Any = getattr(getattr(target, "__func__", target), "__wrapped__", None)
    is_bound = isinstance(target, MethodType) and isinstance(inner, FunctionType)
    return MethodType(inner, target.__self__) if is_bound else inner


_PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _wants_ctx(thing: Any, signature: inspect.Signature) -> bool:
    """Raises `NotANode` where it cannot be called with one input, or with that and the ctx."""
    places = [p for p in signature.parameters.values() if p.kind in _PLACES]
    starred = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    demanded = [p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    required = [p for p in places if p.default is p.empty]
    if demanded or len(required) > 2 or not (places or starred):
        raise NotANode(f"{shown(thing)} takes {signature}; a node takes (x) or (x, ctx)")
    return len(required) == 2 or (len(places) >= 2 and places[1].name == "ctx")


def _own_name(thing: Any) -> str:
    while hasattr(thing, "func") and not isinstance(getattr(thing, "__name__", None), str):
        thing = thing.func  # a partial is called what its function is called
    name = getattr(thing, "__name__", None)
    return name if isinstance(name, str) and not hasattr(thing, "forward") else type(thing).__name__

"""Nodes and the pieces of a graph that `>>` and `|` build of them.

A piece is a value: every operator and suffix returns a new one and changes nothing. Where an object appears
twice in an expression, it is two nodes with one implementation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from somatize.errors import BadDevice, GraphError

from .implementation import Implementation, shown

# The device names of torch, listed so that others can be refused without torch.
_DEVICES = (
    "cpu|cuda|mps|meta|xpu|hpu|mtia|maia|xla|ipu|hip|ve|fpga|vulkan|opencl|opengl|mkldnn|ideep|lazy|privateuseone"
)
_DEVICE = re.compile(rf"(?:{_DEVICES})(?::(?:0|[1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class Mapped:
    """Mark of a node that is called once per item, or per batch of up to `batch` items."""

    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Cached:
    """Mark of a node whose result is kept; `salt` is added to the name of the result.

    `ignoring` are the global names the node's code refers to whose values that name is not made of.
    """

    salt: str | None = None
    ignoring: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Frozen:
    """Mark of a node that no longer learns; `state` names its state, or is None if the content of the state counts."""

    state: str | None = None


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks declared for a node; None where a mark was not declared."""

    id: str | None = None
    device: str | None = None
    host: str | None = None
    frozen: Frozen | None = None
    cached: Cached | None = None
    mapped: Mapped | None = None
    retries: int | None = None
    detached: bool | None = None
    """Whether what crosses to its host and back is cut from its gradient."""
    checked: bool | None = None

    def inside(self, outer: Marks) -> Marks:
        """These marks, completed by those of `outer`: the innermost wins."""
        if outer == _UNMARKED:
            return self
        inherited = {f.name: getattr(outer, f.name) for f in fields(self) if getattr(self, f.name) is None}
        if self.host is not None:
            for name in ("retries", "detached", "checked"):  # retries and detached belong to the other host
                inherited.pop(name, None)
        return replace(self, **inherited)


_UNMARKED = Marks()


class Piece:
    """A part of a graph: a node, or several put together."""

    def __rshift__(self, after: Any) -> Piece:
        """This piece, then `after`: an edge from each of its leaves to each root of `after`."""
        return Pair("chain", self, piece(after))

    def __rrshift__(self, before: Any) -> Piece:
        return Pair("chain", piece(before), self)

    def __or__(self, beside: Any) -> Piece:
        """This piece and `beside` it another, both fed by what comes before and both feeding what comes after."""
        return Pair("fork", self, piece(beside))

    def __ror__(self, beside: Any) -> Piece:
        return Pair("fork", piece(beside), self)

    def named(self, id: str) -> Piece:
        """This node under the id `id`. Raises `GraphError` for a piece of several nodes, and for what is no text."""
        inner: Piece = self
        while isinstance(inner, Marked):
            inner = inner.inner
        if isinstance(inner, Pair):
            raise GraphError(f"the id {id!r} is for one node, and this piece has several: name them one by one")
        return Marked(self, Marks(id=checked_id(id)))

    def on(self, device: Any) -> Piece:
        """Placed on a device: ``"cpu"``, ``"cuda:1"``, ``"mps"``; told as `ctx.device`, and held to it.

        The node moves its own tensors; a tensor it returns elsewhere is a `DeviceMismatch`. ``"cuda"`` is any of
        them. Raises `BadDevice` for a name that names none.
        """
        return Marked(self, Marks(device=checked_device(device)))

    def at(self, host: str, *, retries: int = 0, detached: bool = False, check: bool = True) -> Piece:
        """To run on the host the graph calls `host`, which `forward(broker=)` knows.

        With `retries` it may be run again, so many times, where the host died or hung in the middle of it, unless it
        has changed its state there. A value that requires a gradient is a `GradientCut` on its way there or back; with
        `detached` it crosses without it. With ``check=False`` no forward looks whether something of it was changed here
        since it was sent, which costs about 10 ms per 100 MB; then only `Graph.push` sends changes.
        """
        if type(retries) is not int or retries < 0:
            raise GraphError(f"at(retries={retries!r}): it is how often a node may be run again, 0 or more")
        if type(check) is not bool:
            raise GraphError(f"at(check={check!r}): it is True or False")
        marks = Marks(
            host=_text("a host", host),
            retries=retries or None,
            detached=bool(detached) or None,
            checked=None if check else False,
        )
        return Marked(self, marks)

    def frozen(self, state: str | None = None) -> Piece:
        """No longer learning. `state` names its state where the caller knows a name, such as a checkpoint's digest."""
        return Marked(self, Marks(frozen=Frozen(None if state is None else _text("a state", state))))

    def cached(self, salt: str | None = None, *, ignoring: Iterable[str] = ()) -> Piece:
        """To have its result kept, under a name that `salt` is a part of: ``.cached("v2")``.

        `ignoring` lists global names of the node's module that its code refers to and its result does not depend on,
        such as a model or a connection, which no name can be made of.
        """
        if isinstance(ignoring, str):
            raise GraphError(f"cached(ignoring={ignoring!r}): it is a list of names, such as [{ignoring!r}]")
        names = tuple(sorted({_text("a name to ignore", name) for name in ignoring}))
        return Marked(self, Marks(cached=Cached(None if salt is None else _text("a salt", salt), names)))

    def mapped(self, batch: int | None = None) -> Piece:
        """To be called once per item of its input, or with up to `batch` items at once."""
        if batch is not None and (type(batch) is not int or batch < 1):
            raise GraphError(f"mapped(batch={batch!r}): a batch is a whole number of items, 1 or more")
        return Marked(self, Marks(mapped=Mapped(batch)))


class Node(Piece):
    """Subclass it and write ``forward(self, input, ctx)``; an instance is a node, and a piece of a graph.

    `input` is the very object the predecessor returned, or a dict of those by id where several feed this
    node. `ctx` is the `Ctx` of this node. One without a forward is refused where it is put into a graph.

    What an instance is constructed with is noted, as a kept result's name is made of it.
    """

    __somatize_node__ = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made: Any = super().__new__
        made = made(cls) if made is object.__new__ else made(cls, *args, **kwargs)
        if args or kwargs or cls.__init__ is not object.__init__:
            from somatize.naming import constructor_arguments

            constructor_arguments.record(made, args, kwargs)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        from somatize.naming import constructor_arguments

        return constructor_arguments.again(self, super().__reduce_ex__(protocol))


class Leaf(Piece):
    """A node made of a function or of any object with a forward."""

    def __init__(self, thing: Any) -> None:
        self.implementation = Implementation(thing)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it had not been made a node."""
        return self.implementation.thing(*args, **kwargs)

    def __repr__(self) -> str:
        return f"node({shown(self.implementation.thing)})"


class Marked(Piece):
    """A piece with something declared of all its nodes that have not said it themselves."""

    def __init__(self, inner: Piece, marks: Marks) -> None:
        self.inner = inner
        self.marks = marks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function the node was made of."""
        called: Any = self.inner
        return called(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _put_together, (_taken_apart(self),)


class Pair(Piece):
    """Two pieces, one after the other (`chain`) or side by side (`fork`)."""

    def __init__(self, shape: str, first: Piece, second: Piece) -> None:
        self.shape = shape
        self.first = first
        self.second = second

    def __reduce__(self) -> tuple[Any, ...]:
        return _put_together, (_taken_apart(self),)


def _taken_apart(whole: Piece) -> list[Any]:
    """The nodes of a piece, then the marks and operators that combine them, in postfix order.

    It is what a piece is pickled and copied as: no deeper than a list, however deep the expression.
    """
    parts: list[Any] = []
    todo = [whole]
    while todo:
        part = todo.pop()
        if isinstance(part, Marked):
            parts.append(part.marks)
            todo.append(part.inner)
        elif isinstance(part, Pair):
            parts.append(part.shape)
            todo += [part.first, part.second]
        else:
            parts.append(part)
    return parts[::-1]


def _put_together(parts: list[Any]) -> Piece:
    made: list[Piece] = []
    for part in parts:
        if isinstance(part, Marks):
            made.append(Marked(made.pop(), part))
        elif isinstance(part, str):
            second = made.pop()
            made.append(Pair(part, made.pop(), second))
        else:
            made.append(part)
    (whole,) = made
    return whole


def node(thing: Any) -> Piece:
    """A node made of a function ``f(x)`` or ``f(x, ctx)``, or of an object with such a `forward`; also a decorator.

    A decorated function can still be called as before. A second parameter counts as the ctx if it is called so
    or has no default. A torch Module is called as a whole, so that its hooks run. Raises `NotANode` for a
    class, an async function, and whatever has no forward.
    """
    return piece(thing)


def piece(thing: Any) -> Piece:
    """`thing` itself if it is a piece, else a node made of it."""
    if isinstance(thing, Piece):
        if isinstance(thing, Node):
            Implementation(thing)  # refused here if it cannot run, where it was put into an expression
        return thing
    return Leaf(thing)


Declared = tuple[Implementation, Marks]


def unfold(expression: Piece) -> tuple[list[Declared], list[tuple[int, int]]]:
    """The nodes of an expression, left to right, and its edges between their indexes, in the order declared.

    Takes time linear in nodes and edges, and recurses nowhere: expressions may be thousands deep.
    """
    nodes: list[Declared] = []
    edges: list[tuple[int, int]] = []
    ends: list[tuple[list[int], list[int]]] = []  # roots and leaves of what is built so far
    todo: list[tuple[Piece, Marks] | Callable[[], None]] = [(expression, _UNMARKED)]

    def chain() -> None:
        (roots, tails), (heads, leaves) = ends[-2], ends.pop()
        edges.extend((tail, head) for head in heads for tail in tails)
        ends[-1] = (roots, leaves)

    def fork() -> None:
        (roots, leaves), (more_roots, more_leaves) = ends[-2], ends.pop()
        roots.extend(more_roots)
        leaves.extend(more_leaves)

    while todo:
        task = todo.pop()
        if callable(task):
            task()
            continue
        part, outer = task
        if isinstance(part, Marked):
            todo.append((part.inner, part.marks.inside(outer)))
        elif isinstance(part, Pair):
            todo += [chain if part.shape == "chain" else fork, (part.second, outer), (part.first, outer)]
        else:
            ends.append(([len(nodes)], [len(nodes)]))
            nodes.append((implementation_of(part), outer))
    return nodes, edges


def implementation_of(part: Piece) -> Implementation:
    """The implementation of a piece that is a single node without marks."""
    return part.implementation if isinstance(part, Leaf) else Implementation(part)


def checked_id(id: Any) -> str:
    """`id`, if a node can be called that. Raises `GraphError` otherwise."""
    return _text("an id", id)


def checked_device(device: Any) -> str:
    """The name of `device`, a text or a torch.device. Raises `BadDevice` if it names none."""
    name = device if isinstance(device, str) else str(device) if type(device).__name__ == "device" else ""
    if not _DEVICE.fullmatch(name):
        raise BadDevice(f"{device!r} names no device; a device is 'cpu', 'cuda', 'cuda:1', 'mps', 'meta', 'xpu:0', ...")
    return name


def _text(what: str, words: Any) -> str:
    if not isinstance(words, str) or not words:
        raise GraphError(f"{what} is a text that is not empty, not {words!r}")
    try:
        words.encode()
    except UnicodeEncodeError:
        raise GraphError(f"{what} is a text that UTF-8 can write, which {words!r} is not") from None
    return str(words)

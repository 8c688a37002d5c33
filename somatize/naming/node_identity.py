"""The identity of a node: the code it runs, the arguments it was made with, and what it shows of itself now.

Nobody sees who assigns what a library's object has under an underscore, and what it was made with has such names too:
so these attributes stand, as they were at first, for the arguments. A Module's are torch's own business.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from somatize.codecs import tensors
from somatize.errors import Unnameable

from .attributes import attributes_of, held_by, private_of, unkeyed_names
from .callables import hooks, structure
from .code_digest import NO_CODE, Reach, ReachedCode, Said, title
from .constructor_arguments import Argument, arguments_of, is_node, noted, shown
from .content_digest import content
from .hashing import SCALARS, worded
from .module_origin import is_apart, is_library
from .staleness import Watches

_SEEN: dict[int, tuple[weakref.ref[Any], dict[str, Argument | None]]] = {}
"""The named attributes of each object; None for objects that are read each time, so that none is kept alive."""


def first_seen(thing: Any) -> dict[str, Argument]:
    """The attributes with a leading underscore, named as they were when this was first asked of the object.

    What cannot be named has an `Argument` that says so.
    """
    known = _SEEN.get(id(thing))
    if known is not None and known[0]() is thing:
        return _with_live(thing, known[1])
    found = _private(thing)
    number = id(thing)
    said = {name: one if one.digest or one.wrong else None for name, one in found.items()}
    with suppress(TypeError):  # with slots and no place for a reference: it is looked at each time
        _SEEN[number] = weakref.ref(thing, lambda _: _SEEN.pop(number, None)), said
    return found


def _with_live(thing: Any, said: dict[str, Argument | None]) -> dict[str, Argument]:
    if all(said.values()):
        return said  # type: ignore[return-value]
    held = held_by(thing)
    return {name: one or Argument(None, live=held.get(name)) for name, one in said.items()}


def _private(thing: Any) -> dict[str, Argument]:
    cls = type(thing)
    if tensors.is_module(thing):
        return {}
    left_out = unkeyed_names(cls)
    return {
        name: noted(value, f"`{name}`")
        for name, value in held_by(thing).items()
        if name[:1] == "_" and name not in left_out and not is_apart(value)
    }


class NodeDeclaration(NamedTuple):
    """A thing taken apart: what it is called, whose code it runs, its arguments and its attributes."""

    title: str
    roots: list[Any]
    arguments: Mapping[str, Argument]
    attributes: Mapping[str, Any]
    holder: Any
    partials: list[Any]
    entry: str = "forward"  # the method that a run calls

    def attributes_now(self, holder: Any) -> dict[str, Any]:
        """The attributes that count, as they are now."""
        return counted(holder, self.entry)


def counted(thing: Any, entry: str = "forward") -> dict[str, Any]:
    """The attributes of a node that count: the public ones, and those with an underscore that are no working state."""
    if isinstance(thing, types.FunctionType) or thing is None:
        return {} if thing is None else attributes_of(thing)
    found = attributes_of(thing)
    return found if is_library(type(thing).__module__) else found | private_of(thing, entry)


def declared(thing: Any) -> NodeDeclaration:
    """The identity of a node's object. Raises `Unnameable`."""
    given: dict[str, Argument] = {}
    partials: list[Any] = []
    while isinstance(thing, functools.partial):
        partials.append(thing)
        named: dict[str, Any] = {f"{number}": value for number, value in enumerate(thing.args)} | thing.keywords
        given = {name: noted(value, f"`{name}`") for name, value in named.items()} | given
        thing = thing.func
    roots: list[Any] = []
    entry = "forward" if hasattr(thing, "forward") else "__call__"
    if isinstance(thing, types.MethodType):
        roots.append(thing.__func__)
        entry = thing.__name__
        thing = thing.__self__
    if _is_code(thing):
        roots.append(thing)
        holder = thing if isinstance(thing, types.FunctionType) else None
        return NodeDeclaration(title(roots[0]), roots, given, counted(holder), holder, partials)
    cls = type(thing)
    if is_node(thing):
        left_out = unkeyed_names(cls)
        given = {name: one for name, one in arguments_of(thing).items() if name not in left_out} | given
    elif is_library(cls.__module__):
        given = first_seen(thing) | given
    roots.append(cls)
    called = title(cls if len(roots) == 1 else roots[0])
    return NodeDeclaration(called, roots, given, counted(thing, entry), thing, partials, entry)


def _is_code(thing: Any) -> bool:
    held = hasattr(thing, "__dict__") or hasattr(type(thing), "__slots__")
    return isinstance(thing, _CODE) or not held or hasattr(thing, "__wrapped__")


_CODE = (type, types.FunctionType, types.BuiltinFunctionType)


class NamedDeclaration(NamedTuple):
    """The declaration of a thing with its values named; `code` is what those that are code were followed to."""

    arguments: Mapping[str, Said]
    attributes: Mapping[str, Said]
    structure: bytes | None
    code: ReachedCode
    digest: bytes


def named(found: NodeDeclaration, ignoring: tuple[str, ...], with_state: bool) -> NamedDeclaration:
    """The arguments and attributes of a declaration, named. Raises `Unnameable`."""
    plain = not tensors.is_module(found.holder)
    if (
        plain
        and not found.partials
        and set(map(type, found.attributes.values())) <= SCALARS
        and all(one.digest and one.live is None for one in found.arguments.values())
    ):
        return _plainly(found)
    reach = Reach(ignoring)
    reach.resolver.state = reach.watches.state = with_state
    reach.watches.attributes(found.holder, dict(found.attributes), found.attributes_now)
    for partial in found.partials:
        reach.watches.made(_handed_over, partial)
    arguments = {name: _argument(reach, value) for name, value in found.arguments.items()}
    given = [one.live for one in found.arguments.values() if one.digest is None]
    attributes = {
        name: _attribute(reach, name, value)
        for name, value in found.attributes.items()
        # What a node keeps of what it was made with counts already.
        if name[:1] != "_" or not any(value is one for one in given)
    }
    whole = None
    if tensors.is_module(found.holder):
        whole = reach.value(_made_of(found.holder), "the modules")
        reach.watches.made(_made_of, found.holder)
    return _put(arguments, attributes, whole, reach.code())


def _plainly(found: NodeDeclaration) -> NamedDeclaration:
    """The short form for most nodes: scalars without code."""
    arguments = {name: [value.digest.hex(), value.shown] for name, value in found.arguments.items() if value.digest}
    attributes = {name: [content(value, name).hex(), shown(value)] for name, value in found.attributes.items()}
    watches = Watches()
    watches.attributes(found.holder, dict(found.attributes), found.attributes_now)
    return _put(arguments, attributes, None, ReachedCode(NO_CODE, {}, {}, {}, watches))


def _put(
    arguments: dict[str, Said], attributes: dict[str, Said], whole: bytes | None, code: ReachedCode
) -> NamedDeclaration:
    # In their order, which code that goes through its keywords or its attributes sees.
    said = [[name, value[0]] for part in (arguments, attributes) for name, value in part.items()]
    return NamedDeclaration(
        arguments, attributes, whole, code, worded("declared", len(arguments), said, whole, code.digest)
    )


def _argument(reach: Reach, value: Argument) -> Said:
    if value.digest is not None and value.live is None:
        return [value.digest.hex(), value.shown]
    return [reach.value(value, "the argument").hex(), value.shown]


def _attribute(reach: Reach, name: str, value: Any) -> Said:
    try:
        return [reach.value(value, f"the attribute `{name}`").hex(), shown(value)]
    except Unnameable as stopped:
        if name[:1] != "_":
            raise
        raise Unnameable(
            f"{stopped}; where the result does not depend on it, `__unkeyed__ = ({name!r},)` on its class"
        ) from None


def _handed_over(partial: Any) -> list[Any]:
    """The arguments of a partial, which may change in place."""
    return [partial.args, partial.keywords]


def _made_of(module: Any) -> list[Any]:
    """The modules within a Module, whose states are a part of its own."""
    return [structure(module)[1:], hooks(module)]

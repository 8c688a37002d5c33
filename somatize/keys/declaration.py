"""What a node was declared as: the code it runs, the arguments it was made with, what it shows of itself now."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from somatize import tensors

from .code import NO_CODE, Code, Reach, Said, title
from .constructed import Argument, arguments_of, is_node, noted, shown
from .content import content
from .hashing import SCALARS, worded
from .public import attributes_of, unkeyed_names
from .seen import first_seen, models_of
from .things import hooks, structure
from .watches import Watches


class Declared(NamedTuple):
    """A thing taken apart: what it is called, whose code it runs, its arguments and its attributes."""

    title: str
    roots: list[Any]
    arguments: Mapping[str, Argument]
    attributes: Mapping[str, Any]
    holder: Any
    partials: list[Any]
    models: Mapping[str, Any] = {}  # what a Node keeps to itself that learns


def declared(thing: Any) -> Declared:
    """What a node's thing is declared as. Raises `Unnameable`."""
    given: dict[str, Argument] = {}
    partials: list[Any] = []
    while isinstance(thing, functools.partial):
        partials.append(thing)
        named: dict[str, Any] = {f"{number}": value for number, value in enumerate(thing.args)} | thing.keywords
        given = {name: noted(value, f"`{name}`") for name, value in named.items()} | given
        thing = thing.func
    roots: list[Any] = []
    if isinstance(thing, types.MethodType):
        roots.append(thing.__func__)
        thing = thing.__self__
    if _is_code(thing):
        roots.append(thing)
        holder = thing if isinstance(thing, types.FunctionType) else None
        return Declared(title(roots[0]), roots, given, _attributes_of_function(holder), holder, partials)
    cls = type(thing)
    if is_node(thing):
        left_out = unkeyed_names(cls)
        given = {name: one for name, one in arguments_of(thing).items() if name not in left_out} | given
    else:
        given = first_seen(thing) | given
    roots.append(cls)
    models = models_of(thing) if is_node(thing) and not tensors.is_module(thing) else {}
    called = title(cls if len(roots) == 1 else roots[0])
    return Declared(called, roots, given, attributes_of(thing), thing, partials, models)


def _is_code(thing: Any) -> bool:
    held = hasattr(thing, "__dict__") or hasattr(type(thing), "__slots__")
    return isinstance(thing, _CODE) or not held or hasattr(thing, "__wrapped__")


_CODE = (type, types.FunctionType, types.BuiltinFunctionType)


def _attributes_of_function(function: Any) -> dict[str, Any]:
    return attributes_of(function) if function is not None else {}


class Named(NamedTuple):
    """The declaration of a thing with its values named; `code` is what those that are code were followed to."""

    arguments: Mapping[str, Said]
    attributes: Mapping[str, Said]
    structure: bytes | None
    code: Code
    digest: bytes


def named(found: Declared, ignoring: tuple[str, ...], with_state: bool) -> Named:
    """The arguments and attributes of a declaration, named. Raises `Unnameable`."""
    plain = not tensors.is_module(found.holder)
    if (
        plain
        and not found.partials
        and not found.models
        and set(map(type, found.attributes.values())) <= SCALARS
        and all(one.digest and one.live is None for one in found.arguments.values())
    ):
        return _plainly(found)
    reach = Reach(ignoring)
    reach.resolver.state = reach.watches.state = with_state
    reach.watches.attributes(found.holder, dict(found.attributes))
    for partial in found.partials:
        reach.watches.made(_handed_over, partial)
    arguments = {name: _argument(reach, value) for name, value in found.arguments.items()}
    attributes = {name: _attribute(reach, name, value) for name, value in found.attributes.items()}
    if found.models:
        attributes |= {name: [reach.now(held, f"`{name}`").hex(), ""] for name, held in found.models.items()}
        reach.watches.made(models_of, found.holder)
    whole = None
    if tensors.is_module(found.holder):
        whole = reach.value(_made_of(found.holder), "the modules")
        reach.watches.made(_made_of, found.holder)
    return _put(arguments, attributes, whole, reach.code())


def _plainly(found: Declared) -> Named:
    """What most nodes are: scalars, with no code in them to be followed."""
    arguments = {name: [value.digest.hex(), value.shown] for name, value in found.arguments.items() if value.digest}
    attributes = {name: [content(value, name).hex(), shown(value)] for name, value in found.attributes.items()}
    watches = Watches()
    watches.attributes(found.holder, dict(found.attributes))
    return _put(arguments, attributes, None, Code(NO_CODE, {}, {}, {}, watches))


def _put(arguments: dict[str, Said], attributes: dict[str, Said], whole: bytes | None, code: Code) -> Named:
    # In their order, which code that goes through its keywords or its attributes sees.
    said = [[name, value[0]] for part in (arguments, attributes) for name, value in part.items()]
    return Named(arguments, attributes, whole, code, worded("declared", len(arguments), said, whole, code.digest))


def _argument(reach: Reach, value: Argument) -> Said:
    if value.digest is not None and value.live is None:
        return [value.digest.hex(), value.shown]
    return [reach.value(value, "the argument").hex(), value.shown]


def _attribute(reach: Reach, name: str, value: Any) -> Said:
    return [reach.value(value, f"the attribute `{name}`").hex(), shown(value)]


def _handed_over(partial: Any) -> list[Any]:
    """What a partial hands over, which may change in its place."""
    return [partial.args, partial.keywords]


def _made_of(module: Any) -> list[Any]:
    """The modules within a Module, whose states are a part of its own."""
    return [structure(module)[1:], hooks(module)]

"""What the nodes of a graph have to learn: their parameters, their state, and whether they train.

A node learns what it is (a torch Module), what its attributes are (a Module, a Parameter, a graph, or a list, tuple or
dict of them), and what it is a method or a partial of. Names are the node's id and the name within it, apart by a dot:
``embed.weight``, or ``classifier.net.0.bias`` for a Node that holds a `net`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from . import tensors
from .errors import GraphError, nearest

if TYPE_CHECKING:
    from .declaring import Declaration


class _Part(NamedTuple):
    """Something a node holds that learns: a Module, a graph or a Parameter, and its name with the node's id."""

    name: str
    thing: Any
    frozen: bool


def named_parameters(declaration: Declaration) -> Iterator[tuple[str, Any]]:
    """Each parameter of each node that is not frozen, once, though several nodes share it."""
    seen: set[int] = set()
    for part in _parts(declaration):
        if not part.frozen:
            for name, parameter in _parameters(part):
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield name, parameter


def state_dict(declaration: Declaration) -> dict[str, Any]:
    """What `load_state_dict` takes, frozen nodes included; the tensors are those of the nodes themselves."""
    state: dict[str, Any] = {}
    for part in _parts(declaration):
        if _is_parameter(part.thing):
            state[part.name] = part.thing.detach()
        else:
            state.update({f"{part.name}.{name}": value for name, value in part.thing.state_dict().items()})
    return state


def load_state_dict(declaration: Declaration, state: Mapping[str, Any], strict: bool) -> None:
    """Give the nodes a state. Raises `GraphError` before anything is loaded, where `strict` and the names differ."""
    parts = list(_parts(declaration))
    if strict:
        _refuse_others(state_dict(declaration), state)
    for part in parts:
        if _is_parameter(part.thing):
            if part.name in state:
                tensors.assign(part.thing, state[part.name], part.name)
            continue
        begins = f"{part.name}."
        own = {name.removeprefix(begins): value for name, value in state.items() if name.startswith(begins)}
        try:
            part.thing.load_state_dict(own, strict=strict)
        except Exception as error:
            error.add_note(f"while loading the state of {part.name!r}")
            raise


def train(declaration: Declaration, mode: bool) -> None:
    """Let Modules train, or not; those of frozen nodes do not either way."""
    for part in _parts(declaration):
        if not _is_parameter(part.thing):
            part.thing.train(mode and not part.frozen)


def _refuse_others(ours: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    missing, unknown = [name for name in ours if name not in given], [name for name in given if name not in ours]
    if unknown:
        raise GraphError(f"no node has a state {unknown[0]!r}{nearest(str(unknown[0]), list(ours))}{_more(unknown)}")
    if missing:
        raise GraphError(
            f"the state has no {missing[0]!r}{_more(missing)}; load_state_dict(state, strict=False) takes it"
        )


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def _parts(declaration: Declaration) -> Iterator[_Part]:
    seen: set[int] = set()
    for node in declaration.topology.names():
        frozen = declaration.marks[node].frozen is not None
        thing = declaration.implementation(node).thing
        for name, part in _held(thing, node, seen):
            yield _Part(name, part, frozen)


def _held(thing: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    while isinstance(thing, partial):
        thing = thing.func
    owner = getattr(thing, "__self__", None)
    thing = owner if _learns(owner) else thing
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if _learns(thing):
        yield name, thing
        return
    for attribute, value in getattr(thing, "__dict__", {}).items():
        for within, part in _in_value(value, f"{name}.{attribute}"):
            if id(part) not in seen:
                seen.add(id(part))
                yield within, part


def _in_value(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if _learns(value):
        yield name, value
    elif isinstance(value, dict):
        for key, element in value.items():
            if _learns(element):
                yield f"{name}.{key}", element
    elif isinstance(value, list | tuple):
        for index, element in enumerate(value):
            if _learns(element):
                yield f"{name}.{index}", element


def _learns(thing: Any) -> bool:
    """Whether something is a Module, a Parameter, or a graph, which says of its nodes what a Module says of itself."""
    if tensors.is_module(thing) or _is_parameter(thing):
        return True
    return type(thing).__name__ == "Graph" and hasattr(thing, "named_parameters")


def _is_parameter(thing: Any) -> bool:
    return tensors.is_parameter(type(thing)) and type(thing).__name__ == "Parameter"


def _parameters(part: _Part) -> Iterator[tuple[str, Any]]:
    if _is_parameter(part.thing):
        yield part.name, part.thing
    else:
        for name, parameter in part.thing.named_parameters():
            yield f"{part.name}.{name}", parameter

"""Parameters, state and training mode of a graph's nodes.

A node learns what it is (a torch Module), what its attributes are (a Module, a Parameter, a graph, or lists, tuples and
dicts of them), what it is a method or a partial of, and as a function what its code and that of functions beside it
refer to, in a closure or as a global. Names are the node's id and the name within it, apart by a dot:
``embed.weight``, or ``classifier.net.0.bias`` for a Node that holds a `net`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from somatize.codecs import tensors
from somatize.errors import GraphError, nearest
from somatize.naming.attributes import slots_of

if TYPE_CHECKING:
    from .declaration import Declaration


_PLAIN = frozenset((str, bytes, int, float, bool, type(None)))
"""Types that hold no parameters; a list may contain a million of them."""


class _Part(NamedTuple):
    """Something a node holds that learns: a Module, a graph or a Parameter, and its name with the node's id."""

    name: str
    thing: Any
    frozen: bool
    named: bool
    """Whether the code of a node names it, and no node holds it."""


def named_parameters(declaration: Declaration) -> Iterator[tuple[str, Any]]:
    """Each parameter of each node that is not frozen, once, though several nodes share it; none of a frozen one too."""
    parts = list(_parts(declaration))
    seen = {id(parameter) for part in parts if part.frozen for _, parameter in _parameters(part)}
    for part in parts:
        for name, parameter in _parameters(part):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter


def state_dict(declaration: Declaration) -> dict[str, Any]:
    """The state of all nodes, frozen ones included, as `load_state_dict` takes it; tensors are shared, not copied."""
    state: dict[str, Any] = {}
    for part in _parts(declaration):
        if _is_parameter(part.thing):
            state[part.name] = part.thing.detach()
        else:
            state.update({f"{part.name}.{name}": value for name, value in part.thing.state_dict().items()})
    return state


def load_state_dict(declaration: Declaration, state: Mapping[str, Any], strict: bool) -> None:
    """Give the nodes a state.

    Raises `GraphError` before anything is loaded, where a shape is another, or `strict` and the names differ.
    """
    own_state = state_dict(declaration)
    if strict:
        _refuse_others(own_state, state)
    for name, value in own_state.items():
        if name in state:
            tensors.refuse_other_shape(value, state[name], name)
    for part in _parts(declaration):
        if _is_parameter(part.thing):
            if part.name in state:
                tensors.assign(part.thing, state[part.name])
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
    for part in sorted(_parts(declaration), key=lambda part: part.frozen):  # one of them may lie within another
        if not _is_parameter(part.thing):
            part.thing.train(mode and not part.frozen)


def learned_by(thing: Any) -> set[int]:
    """The ids of the Modules, Parameters and buffers of what a node runs: its own, and those that its code names.

    Of a `Node` that the code of a function names, what that one holds too.
    """
    from somatize.naming.constructor_arguments import is_node

    things = [thing]
    if isinstance(thing, FunctionType):
        things += [value for _, value in _referred(thing) if is_node(value)]
    found: set[int] = set()
    for part in (part for one in things for _, part, _ in _held(one, "")):
        found.add(id(part))
        if tensors.is_module(part):
            for within in (part.modules(), part.parameters(), part.buffers()):
                found.update(map(id, within))
    return found


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


def _parts(declaration: Declaration) -> list[_Part]:
    """The objects that hold parameters in the nodes, each once.

    What several nodes hold is frozen if one of them is. If some hold it and the code of others only names it, the
    nodes that hold it decide that, and give it its name.
    """
    found: dict[int, _Part] = {}
    for node in declaration.topology.names():
        frozen = declaration.marks[node].frozen is not None
        for name, thing, named in _held(declaration.implementation(node).thing, node):
            part, before = _Part(name, thing, frozen, named), found.get(id(thing))
            if before is not None and before.named == named:
                part = before._replace(frozen=frozen or before.frozen)
            elif before is not None and named:
                part = before
            found[id(thing)] = part
    return list(found.values())


def _held(thing: Any, name: str) -> Iterator[tuple[str, Any, bool]]:
    """The objects held by one node or, if `name` says so, referred to by its code."""
    pending, seen = [(name, thing)], set()
    while pending:
        name, thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if _learns(thing):
            yield name, thing, False
            continue
        owner = getattr(thing, "__self__", None)
        if owner is not None and not isinstance(owner, ModuleType | type):
            pending.append((name, owner))
            continue
        if isinstance(thing, partial):
            pending.append((name, thing.func))
        is_code = isinstance(thing, FunctionType)
        for part, value in _referred(thing) if is_code else _attributes(thing):
            if part == "__wrapped__":
                pending.append((name, value))
            elif isinstance(value, FunctionType) and value.__module__ == getattr(thing, "__module__", None):
                pending.append((f"{name}.{part}", value))
            else:
                yield from ((within, found, is_code) for within, found in _in_value(value, f"{name}.{part}"))


def _referred(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The objects in a function's closure, those it wraps, and the globals its code names."""
    from somatize.naming.bytecode import read

    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for name in read(function.__code__).names:
        yield name, function.__globals__.get(name)
    yield from vars(function).items()  # last, as what it wraps is then gone into first


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, partial):
        yield from ((str(index), value) for index, value in enumerate(thing.args))
        yield from thing.keywords.items()
    yield from slots_of(thing)
    yield from getattr(thing, "__dict__", {}).items()


def _in_value(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The parts in a value, and in lists, tuples and dicts, one in another as they may be."""
    pending, seen = [(name, value)], set()
    while pending:
        name, value = pending.pop()
        if _learns(value):
            yield name, value
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            within = value.items() if isinstance(value, dict) else enumerate(value)
            parts = [(f"{name}.{key}", element) for key, element in within if type(element) not in _PLAIN]
            pending += reversed(parts)


def _learns(thing: Any) -> bool:
    """Whether something is a Module, a Parameter or a graph."""
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
